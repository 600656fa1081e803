/* Jobs of another process, as recover.h finds them. One that was under way continues from its last
 * whole step, once jobs_go_on is called; one that cannot ends, and says why. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "server/jobs/jobs_int.h"
#include "server/kept/kept_job.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/session.h"

#define TRIES    50
#define PAUSE_US 20000

static bool state_of(const char *name, enum job_state *ret)
{
    for (int i = JOB_QUEUED; i <= JOB_CANCELLED; i++)
        if (!strcmp(job_state_names[i], name)) {
            *ret = (enum job_state)i;
            return true;
        }
    return false;
}

/* Why a job that was under way cannot continue. */
static enum err_code may_go_on(const struct jobs *t, const struct kept_job *k, struct err *e)
{
    if (k->lost.code != ERR_OK) {
        *e = k->lost;
        return e->code;
    }
    if (k->at.behind)
        return err_set(e, ERR_OUT_OF_MEMORY,
                       "the daemon ended, and its journal had had no room for what this job "
                       "recorded (journal-size): its arrays have later steps than its values");
    if (k->at.copies)
        return err_set(e, ERR_CONTENTS_LOST,
                       "the daemon ended while the results of step %" PRId64
                       " were being copied to arrays that cannot exchange their memory: they may "
                       "have the contents of step %" PRId64 " or of an earlier one",
                       k->at.step, k->at.step);
    if (k->at.crashes > t->config.most_crashes)
        return err_set(e, ERR_INTERNAL,
                       "the daemon has crashed %" PRId64
                       " times in a row while only this job's work was running, at the same step "
                       "(job-restarts): resume it to try again",
                       k->at.crashes);
    return ERR_OK;
}

/* Values and snapshots; the references are the job's. False without memory. */
static bool fill(struct user_job *j, const struct kept_job *k)
{
    const size_t n_snapshots = (size_t)k->at.snapshots;
    j->series = mem_calloc(k->n_series + 1, sizeof *j->series);
    j->snapshots = mem_calloc(n_snapshots + 1, sizeof *j->snapshots);
    if (!j->series || !j->snapshots)
        return false;
    j->body.n_series = k->n_series;
    for (uint32_t i = 0; i < k->n_series; i++) {
        struct series_values *s = &j->series[i];
        const size_t size = dtype_size(k->series[i].dtype);
        memcpy(s->name, k->series[i].name, sizeof s->name);
        s->dtype = k->series[i].dtype;
        s->n = s->cap = (size_t)k->at.values;
        s->bytes = mem_reallocarray(NULL, s->cap + 1, size);
        if (!s->bytes)
            return false;
        memcpy(s->bytes, k->series[i].bytes, s->n * size);
    }
    memcpy(j->snapshots, k->snapshots, n_snapshots * sizeof *j->snapshots);
    j->n_snapshots = j->n_taken = n_snapshots;
    j->cap_snapshots = n_snapshots + 1;
    j->n_values = k->at.values;
    return true;
}

/* The keeper lets go of what the previous process used in passing some time after this one has: for
 * a moment there may be less memory than there was. */
static enum err_code make_program(struct user_job *j, struct server *s, const struct kept_job *k,
                                  struct err *why)
{
    struct program_body body;
    enum err_code code = ERR_OUT_OF_MEMORY;
    asker_begin(j->asker);
    meter_enter(&j->cause);
    for (int i = 0; i < TRIES && code == ERR_OUT_OF_MEMORY; i++) {
        if (i)
            usleep(PAUSE_US);
        *why = (struct err)ERR_INIT;
        code = program_body_again(s, k->principal, k->text, k->text_len, &k->past, &body, why);
        if (code == ERR_OUT_OF_MEMORY && why->wanted <= 0)
            break;
    }
    meter_enter(NULL);
    asker_begin(NULL);
    if (code != ERR_OK)
        return code;
    session_unref(j->body.session);
    j->body = body;
    program_on_ready(body.program, job_ready, j);
    return ERR_OK;
}

static void end(struct user_job *j, const struct err *why)
{
    j->state = JOB_FAILED;
    j->err = *why;
    j->failed_in = j->step + 1;
    j->statement = -1;
    j->ends++;
    j->ended_us = clock_date_us();
    log_event(LOG_WARN, "a job of the previous process cannot continue", "job", j->id, "reason",
              why->message, NULL);
}

/* The only error is the loss of the device: then the journal is left as it is for another process.
 */
static enum err_code settle_state(struct user_job *j, struct server *s, const struct kept_job *k,
                                  struct err *e)
{
    struct err why = ERR_INIT, unmade = ERR_INIT;
    enum err_code code = job_is_over(j) ? ERR_OK : may_go_on(j->table, k, &why), made = ERR_OK;
    const bool again = code == ERR_OK || code == ERR_INTERNAL; /* it can be resumed */
    if (j->state != JOB_DONE && again && k->lost.code == ERR_OK)
        made = make_program(j, s, k, &unmade);
    if (made == ERR_DEVICE_LOST) {
        *e = unmade;
        return made;
    }
    if (made != ERR_OK && !job_is_over(j) && code == ERR_OK) {
        why = unmade;
        code = made;
    }
    if (code != ERR_OK)
        end(j, &why);
    if (job_is_over(j)) {
        if (j->body.program && program_has_lost(&j->body)) {
            struct program_body taken = job_take_program(j);
            program_body_drop(&taken);
        }
        if (j->body.program)
            program_rest(j->body.program);
        j->ended = clock_ms() - (double)(clock_date_us() - j->ended_us) / 1e3;
        session_rest(j->body.session, true);
    }
    return ERR_OK;
}

/* As that of the request, whose id is not known any more. */
static struct asker *asker_of_past(const char *id, const struct kept_job *k)
{
    struct asker *a = asker_of_job(id, k->session->id);
    if (a) {
        snprintf(a->principal, sizeof a->principal, "%s", k->principal->name);
        snprintf(a->text, sizeof a->text, "POST /v1/programs");
        asker_put_body(a, k->text, k->text_len);
    }
    return a;
}

static void take_progress(struct user_job *j, const struct kept_progress *at)
{
    j->step = at->step;
    j->ends = (uint64_t)at->ends;
    j->ended_us = at->ended_us;
    j->ran = at->ran_ms;
    j->device_ms = at->device_ms;
    j->bytes = (uint64_t)at->bytes;
    j->stopped = at->until ? "until" : NULL;
    j->err = at->err;
    j->failed_in = at->failed_in;
    j->statement = at->statement;
}

enum err_code jobs_restore(struct jobs *t, struct server *s, const struct kept_job *kept,
                           struct err *e)
{
    struct kept_job own = *kept, *k = &own;
    enum job_state state;
    struct user_job *j = mem_calloc(1, sizeof *j);
    if (!j)
        return err_oom(e);
    if (!state_of(k->at.state, &state))
        state = JOB_QUEUED;
    if (t->config.culprits && !strcmp(culprits_crashed_of(t->config.culprits), k->id))
        k->at.crashes++;
    *j = (struct user_job){.refs = 1,
                           .table = t,
                           .seq = k->seq,
                           .body = {.principal = k->principal,
                                    .session = session_ref(k->session),
                                    .steps = k->steps,
                                    .record_every = k->record_every,
                                    .n_snapshots = k->takes_snapshots},
                           .cause = {.meter = meter_ref(k->principal->memory)},
                           .state = state,
                           .created_us = k->created_us,
                           .record = job_record_new(t)};
    memcpy(j->id, k->id, sizeof j->id);
    enum err_code code = fill(j, k) && j->record ? ERR_OK : err_oom(e);
    if (code == ERR_OK)
        code = job_words_make(&j->words, k->text, k->text_len, k->targets, k->targets_len, e);
    take_progress(j, &k->at);
    j->asker = asker_of_past(j->id, k);
    if (code == ERR_OK)
        code = settle_state(j, s, k, e);
    if (code != ERR_OK) {
        j->state = JOB_QUEUED; /* its session has not been told that it rests */
        job_unref(j);
        return code;
    }
    pthread_mutex_lock(&t->lock);
    t->seq = j->seq > t->seq ? j->seq : t->seq;
    *t->last = j;
    t->last = &j->next;
    job_keep_restored(j, k);
    pthread_mutex_unlock(&t->lock);
    return ERR_OK;
}

void jobs_go_on(struct jobs *t)
{
    pthread_mutex_lock(&t->lock);
    for (struct user_job *j = t->first; j; j = j->next)
        if (!job_is_over(j) && !j->ready) {
            j->started = j->state == JOB_RUNNING ? clock_ms() : 0;
            job_make_ready(j);
        }
    pthread_mutex_unlock(&t->lock);
}
