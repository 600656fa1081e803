/* Making, starting, resuming and ending jobs.
 *
 * One lock for the table, the queue and the reported state of jobs. The engine is never called
 * under it. */
#include "server/jobs/jobs_int.h"

#include <inttypes.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"

/* --- the table --- */

enum err_code jobs_new(const struct jobs_config *config, struct jobs **ret, struct err *e)
{
    struct jobs *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_oom(e);
    t->config = *config;
    t->last = &t->first;
    t->last_ready = &t->ready;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->publishing, NULL);
    t->worker = (struct worker){
        .name = "arrayd-jobs", .lock = &t->lock, .step = jobs_step, .user = t, .finishes = true};
    worker_init(&t->worker);
    if (!worker_start(&t->worker)) {
        worker_destroy(&t->worker);
        pthread_mutex_destroy(&t->publishing);
        pthread_mutex_destroy(&t->lock);
        mem_free(t);
        return err_set(e, ERR_INTERNAL, "the thread that runs jobs cannot be started");
    }
    *ret = t;
    return ERR_OK;
}

void jobs_stop(struct jobs *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    worker_wake(&t->worker);
    pthread_mutex_unlock(&t->lock);
}

void jobs_leave(struct jobs *t)
{
    pthread_mutex_lock(&t->lock);
    t->leaving = t->config.writer;
    for (struct user_job *j = t->leaving ? t->first : NULL; j; j = j->next)
        for (struct job_watch *w = j->watches; w; w = w->next)
            w->wake(w->user); /* job_left */
    pthread_mutex_unlock(&t->lock);
    jobs_stop(t);
}

void jobs_end(struct jobs *t)
{
    jobs_stop(t);
    worker_stop(&t->worker);
}

bool jobs_free(struct jobs *t)
{
    if (!t)
        return true;
    jobs_end(t);
    if (t->in_slice || t->n_lent) { /* its callbacks may still come */
        log_event(LOG_WARN, "stopped while a step of a program was still running", NULL);
        return false;
    }
    t->config.writer = NULL; /* they are forgotten by this process only */
    for (;;) {
        pthread_mutex_lock(&t->lock);
        struct user_job *j = jobs_next_ready(t); /* an answer that came after the thread's end */
        if (!j && t->first) {
            j = t->first;
            job_forget(j);
        }
        pthread_mutex_unlock(&t->lock);
        if (!j)
            break;
        job_unref(j);
    }
    worker_destroy(&t->worker);
    pthread_mutex_destroy(&t->publishing);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
    return true;
}

/* Bytes of all the values that such a job may record. */
static int64_t record_bytes(const struct program_body *b)
{
    return b->n_series ? b->steps / b->record_every * b->n_series * RECORD_SIZE : 0;
}

/* What a job counts against a principal's allowance; an ended one counts what it holds. */
static int64_t held_bytes(const struct user_job *j)
{
    return job_is_over(j) ? (int64_t)j->n_values * j->body.n_series * RECORD_SIZE
                          : record_bytes(&j->body);
}

struct held {
    uint32_t jobs;
    int64_t bytes;
};

static struct held held_by(struct jobs *t, const struct principal *p, bool ended,
                           struct user_job **ret_oldest)
{
    lock_held(&t->lock);
    struct held h = {0};
    *ret_oldest = NULL;
    for (struct user_job *j = t->first; j; j = j->next) {
        bool over = job_is_over(j);
        if (j->body.principal != p || (over && !ended))
            continue;
        h.jobs++;
        h.bytes += held_bytes(j);
        if (over && (!*ret_oldest || j->ended < (*ret_oldest)->ended))
            *ret_oldest = j;
    }
    return h;
}

enum err_code jobs_make_way(struct jobs *t, const struct principal *p, int64_t bytes,
                            struct user_job **ret_old, struct err *e)
{
    lock_held(&t->lock);
    const int64_t most = t->config.record_memory;
    struct user_job *oldest;
    struct held h = held_by(t, p, false, &oldest);
    if (h.jobs >= t->config.max_jobs)
        return err_set(e, ERR_QUOTA, "%" PRIu32 " jobs are under way, which is the limit",
                       t->config.max_jobs);
    if (most && bytes > most - h.bytes)
        return err_set(e, ERR_QUOTA,
                       "this job records up to %" PRId64
                       " bytes and the jobs under way up to %" PRId64
                       ": the limit (record-memory) is %" PRId64,
                       bytes, h.bytes, most);
    for (;;) {
        h = held_by(t, p, true, &oldest);
        if (h.jobs < t->config.max_jobs && (!most || bytes <= most - h.bytes))
            return ERR_OK;
        job_forget(oldest); /* not NULL: without ended jobs there was room */
        oldest->next = *ret_old;
        *ret_old = oldest;
    }
}

void jobs_let_go(struct user_job *old)
{
    for (struct user_job *next; old; old = next) {
        next = old->next;
        job_unref(old);
    }
}

/* The first slice begins here, rather than once the table's thread has woken. */
static void begin(struct user_job *j)
{
    asker_begin(j->asker);
    job_begin_slice(j);
    asker_begin(NULL);
    pthread_mutex_lock(&j->table->lock);
    job_take_back(j);
    pthread_mutex_unlock(&j->table->lock);
}

static enum err_code make_words(const struct program_body *b, struct job_words *ret, struct err *e)
{
    _cleanup_strb_ struct strb targets = {0};
    struct json_writer w = JSON_WRITER(&targets);
    kept_put_targets(&w, b);
    if (targets.failed)
        return err_oom(e);
    return job_words_make(ret, b->text, b->text_len, targets.data, targets.len, e);
}

enum err_code jobs_start(struct jobs *t, const struct program_body *take_body, int64_t first_slice,
                         struct user_job **ret, struct err *e)
{
    struct user_job *j = mem_calloc(1, sizeof *j), *old = NULL;
    struct series_values *series = mem_calloc(take_body->n_series, sizeof *series);
    struct job_record *record = job_record_new(t);
    struct job_words words = {0};
    enum err_code code = make_words(take_body, &words, e);
    if (!j || !series || (t->config.writer && !record) || code != ERR_OK) {
        mem_free(j);
        mem_free(series);
        job_record_free(record);
        job_words_clear(&words);
        return err_oom(e);
    }
    pthread_mutex_lock(&t->lock);
    if (t->stopping)
        code = err_draining(e);
    else
        code = jobs_make_way(t, take_body->principal, record_bytes(take_body), &old, e);
    if (code != ERR_OK) {
        pthread_mutex_unlock(&t->lock);
        mem_free(j);
        mem_free(series);
        job_record_free(record);
        job_words_clear(&words);
        return code;
    }
    *j = (struct user_job){.refs = 2, /* the table's and the caller's */
                           .table = t,
                           .seq = ++t->seq,
                           .body = *take_body,
                           .words = words,
                           .cause = {.meter = meter_ref(meter_current())},
                           .series = series,
                           .created_us = clock_date_us(),
                           .statement = -1,
                           .slice_steps = first_slice,
                           .record = record};
    program_on_ready(take_body->program, job_ready, j);
    for (uint32_t i = 0; i < take_body->n_series; i++)
        strncpy(series[i].name, take_body->series[i], NAME_SIZE - 1);
    id_make('j', j->id);
    code = job_keep_begin(j, e);
    if (code == ERR_OK) {
        j->asker = asker_of_job(j->id, j->body.session->id);
        *t->last = j;
        t->last = &j->next;
        job_lend(j);
    }
    pthread_mutex_unlock(&t->lock);
    jobs_let_go(old);
    if (code != ERR_OK) {
        job_record_free(record);
        job_words_clear(&j->words);
        meter_unref(j->cause.meter);
        mem_free(series);
        mem_free(j);
        return code;
    }
    begin(j);
    *ret = j;
    return ERR_OK;
}

/* --- one job --- */

void job_cancel(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    j->cancel = !job_is_over(j);
    if (j->cancel) /* it may be waiting for its turn or for another job */
        job_make_ready(j);
    pthread_mutex_unlock(&j->table->lock);
}

enum err_code job_remove(struct user_job *j, struct err *e)
{
    pthread_mutex_lock(&j->table->lock);
    bool can = job_is_over(j), was = j->forgotten;
    if (can && !was)
        job_forget(j);
    pthread_mutex_unlock(&j->table->lock);
    if (!can)
        return err_set(e, ERR_CONFLICT, "the job has not ended");
    if (was)
        return err_set(e, ERR_NOT_FOUND, "there is no job '%s'", j->id);
    job_unref(j);
    return ERR_OK;
}

enum err_code job_resume(struct user_job *j, struct err *e)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&j->table->lock);
    if (j->table->stopping) /* the thread may have ended */
        code = err_draining(e);
    else if ((j->state != JOB_FAILED && j->state != JOB_CANCELLED) || j->forgotten)
        code =
            err_set(e, ERR_CONFLICT,
                    "a job that is %s cannot be resumed: only one that was cancelled or has failed",
                    job_state_names[j->state]);
    else if (j->words.kind)
        code = err_set(e, ERR_CONFLICT, "only programs can be resumed");
    else if (!j->body.program)
        code =
            err_set(e, ERR_CONFLICT,
                    "the job cannot be resumed: an array that it uses is gone or no longer shared");
    if (code == ERR_OK) {
        session_rest(j->body.session, false);
        job_enter(j, JOB_QUEUED);
        j->cancel = false;
        j->slice_steps = 0;
        j->again = 0;
        j->retry = (struct memory_retry){0};
        job_keep_again(j);
        job_changed(j);
        job_make_ready(j);
    }
    pthread_mutex_unlock(&j->table->lock);
    return code;
}
