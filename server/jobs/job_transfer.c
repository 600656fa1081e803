/* Jobs that are no programs: what they have of a job is its table, its state, its progress and its
 * end. The work is another room's, on a thread of its own.
 *
 * To the table's thread such a job is lent from its beginning to its end: it is never in a slice,
 * nobody waits for its arrays, and what would make it ready (a cancellation) is found after its
 * end. The work asks from time to time whether it goes on, so that nothing here calls up into it.
 */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/jobs/jobs_int.h"
#include "server/work/asker.h"

static bool copy(struct strb *to, const struct strb *from)
{
    strb_addn(to, from->data ? from->data : "", from->len);
    return !to->failed && !from->failed;
}

enum err_code jobs_transfer(struct jobs *t, const struct principal *p, struct session *s,
                            const char *kind, const struct strb *telling, const struct strb *brief,
                            struct user_job **ret, struct err *e)
{
    struct user_job *j = mem_calloc(1, sizeof *j), *old = NULL;
    struct job_words words = {.kind = kind};
    if (!j || !copy(&words.whole, telling) || !copy(&words.brief, brief)) {
        mem_free(j);
        job_words_clear(&words);
        return err_oom(e);
    }
    pthread_mutex_lock(&t->lock);
    enum err_code code = t->stopping ? err_draining(e) : jobs_make_way(t, p, 0, &old, e);
    if (code == ERR_OK) {
        *j = (struct user_job){.refs = 3, /* the table's, the caller's and the work's */
                               .table = t,
                               .seq = ++t->seq,
                               .body = {.principal = p, .session = session_ref(s), .steps = 1},
                               .words = words,
                               .cause = {.meter = meter_ref(meter_current())},
                               .created_us = clock_date_us(),
                               .statement = -1};
        id_make('j', j->id);
        j->asker = asker_of_job(j->id, s->id);
        *t->last = j;
        t->last = &j->next;
        job_lend(j);
    }
    pthread_mutex_unlock(&t->lock);
    jobs_let_go(old);
    if (code != ERR_OK) {
        mem_free(j);
        job_words_clear(&words);
        return code;
    }
    *ret = j;
    return ERR_OK;
}

/* With the lock held. */
static bool goes_on(const struct user_job *j)
{
    lock_held(&j->table->lock);
    return !j->cancel && !j->table->stopping && !job_is_over(j) && !job_is_orphan(j);
}

bool job_transfer_goes_on(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = goes_on(j);
    pthread_mutex_unlock(&j->table->lock);
    return yes;
}

/* With the lock held. */
static void begin(struct user_job *j)
{
    lock_held(&j->table->lock);
    if (j->state != JOB_QUEUED)
        return;
    job_enter(j, JOB_RUNNING);
    j->started = clock_ms();
}

void job_transfer_begin(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    begin(j);
    job_changed(j);
    pthread_mutex_unlock(&j->table->lock);
}

void job_transfer_at(struct user_job *j, int64_t done, int64_t bytes)
{
    pthread_mutex_lock(&j->table->lock);
    j->body.steps = bytes > 0 ? bytes : 1;
    j->step = done < j->body.steps ? done : j->body.steps;
    job_changed(j);
    pthread_mutex_unlock(&j->table->lock);
}

struct asker *job_asker(struct user_job *j)
{
    return j->asker;
}

struct session *job_session(struct user_job *j)
{
    return j->body.session;
}

void job_transfer_end(struct user_job *j, const struct err *why)
{
    struct job_end end = {.state = JOB_DONE, .err = ERR_INIT, .statement = -1};
    pthread_mutex_lock(&j->table->lock);
    if (why) {
        end.state = goes_on(j) ? JOB_FAILED : JOB_CANCELLED;
        end.err = *why;
    }
    if (!job_is_over(j)) { /* the table's thread may have given up meanwhile */
        begin(j);
        if (!why)
            j->step = j->body.steps;
        job_write_end(j, &end);
    }
    job_take_back(j);
    pthread_mutex_unlock(&j->table->lock);
    job_unref(j);
}
