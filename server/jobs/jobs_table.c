/* The table: references to jobs, the queue of those that are ready, and finding jobs. */
#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/jobs/jobs_int.h"

/* --- references --- */

struct program_body job_take_program(struct user_job *j)
{
    struct program_body b = {.program = j->body.program,
                             .functions = j->body.functions,
                             .n_functions = j->body.n_functions};
    j->body.program = NULL; /* its memory has the text of the whole body */
    j->body.n_functions = 0;
    return b;
}

static void job_free(struct user_job *j)
{
    program_body_drop(&j->body);
    for (uint32_t i = 0; i < j->body.n_series; i++)
        mem_free(j->series[i].bytes);
    mem_free(j->series);
    mem_free(j->snapshots);
    job_words_clear(&j->words);
    job_record_free(j->record);
    if (job_is_over(j))
        session_rest(j->body.session, false);
    session_unref(j->body.session);
    asker_unref(j->asker);
    meter_unref(j->cause.meter);
    mem_free(j);
}

void job_unref(struct user_job *j)
{
    if (!j)
        return;
    struct jobs *t = j->table;
    pthread_mutex_lock(&t->lock);
    bool last = --j->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (last)
        job_free(j);
}

/* --- with the lock held --- */

void job_changed(struct user_job *j)
{
    lock_held(&j->table->lock);
    j->revision++;
    for (struct job_watch *w = job_is_over(j) ? j->watches : NULL; w; w = w->next)
        w->wake(w->user);
}

void job_enter(struct user_job *j, enum job_state state)
{
    lock_held(&j->table->lock);
    assert(state == JOB_QUEUED ? j->state == JOB_FAILED || j->state == JOB_CANCELLED
                               : !job_is_over(j));
    assert(state != JOB_DONE || j->state == JOB_RUNNING);
    j->state = state;
}

static void add_ready(struct user_job *j)
{
    lock_held(&j->table->lock);
    struct jobs *t = j->table;
    j->next_ready = NULL;
    *t->last_ready = j;
    t->last_ready = &j->next_ready;
    worker_wake(&t->worker);
}

void job_make_ready(struct user_job *j)
{
    lock_held(&j->table->lock);
    if (j->ready)
        return;
    j->ready = true;
    j->refs++;
    if (!j->lent)
        add_ready(j);
}

void job_lend(struct user_job *j)
{
    lock_held(&j->table->lock);
    j->lent = true;
    j->table->n_lent++;
}

void job_take_back(struct user_job *j)
{
    lock_held(&j->table->lock);
    j->lent = false;
    j->table->n_lent--;
    if (j->ready)
        add_ready(j);
    else
        worker_wake(&j->table->worker); /* a slice may be under way */
}

void job_enter_slice(struct user_job *j)
{
    lock_held(&j->table->lock);
    j->refs++;
    j->table->in_slice++;
}

void job_leave_slice(struct user_job *j)
{
    struct jobs *t = j->table;
    lock_held(&t->lock);
    j->refs--;
    assert(j->refs > 0 && t->in_slice > 0);
    t->in_slice--;
    t->unsure = 0; /* what is expected may be the end of this one */
    worker_wake(&t->worker);
}

struct user_job *jobs_next_ready(struct jobs *t)
{
    lock_held(&t->lock);
    struct user_job *j = t->ready;
    if (!j)
        return NULL;
    t->ready = j->next_ready;
    if (!t->ready)
        t->last_ready = &t->ready;
    j->ready = false;
    return j;
}

void job_forget(struct user_job *j)
{
    lock_held(&j->table->lock);
    struct jobs *t = j->table;
    j->forgotten = true;
    job_keep_gone(j);
    for (struct user_job **p = &t->first; *p; p = &(*p)->next)
        if (*p == j) {
            *p = j->next;
            if (t->last == &j->next)
                t->last = p;
            return;
        }
}

bool job_is_orphan(const struct user_job *j)
{
    lock_held(&j->table->lock);
    struct session *s = NULL;
    bool gone = session_get(j->body.principal->sessions, j->body.session->id, false, &s, NULL);
    session_unref(s);
    return gone;
}

/* --- finding them --- */

static bool is_of(const struct user_job *j, const struct principal *p)
{
    return !p || j->body.principal == p;
}

size_t jobs_count(struct jobs *t, const struct principal *p, size_t *ret_running)
{
    size_t n = 0;
    *ret_running = 0;
    pthread_mutex_lock(&t->lock);
    for (const struct user_job *j = t->first; j; j = j->next)
        if (is_of(j, p) && !job_is_orphan(j)) {
            n++;
            *ret_running += !job_is_over(j);
        }
    pthread_mutex_unlock(&t->lock);
    return n;
}

size_t jobs_running(struct jobs *t, const struct principal *p, int device)
{
    size_t n = 0;
    pthread_mutex_lock(&t->lock);
    for (const struct user_job *j = t->first; j; j = j->next)
        n += is_of(j, p) && !job_is_over(j) && !j->resting && !j->words.kind && !job_is_orphan(j) &&
             j->body.session->device == device;
    pthread_mutex_unlock(&t->lock);
    return n;
}

enum err_code jobs_find(struct jobs *t, const struct principal *p, const char *id,
                        struct user_job **ret, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct user_job *j = t->first;
    while (j && (strcmp(j->id, id) != 0 || !is_of(j, p)))
        j = j->next;
    if (j && job_is_orphan(j))
        j = NULL;
    if (j)
        j->refs++;
    pthread_mutex_unlock(&t->lock);
    if (!j)
        return err_set(e, ERR_NOT_FOUND, "there is no job '%.40s'", id);
    *ret = j;
    return ERR_OK;
}

size_t jobs_list(struct jobs *t, const struct principal *p, uint64_t after_seq, size_t limit,
                 struct user_job **ret, bool *ret_more)
{
    size_t n = 0;
    *ret_more = false;
    pthread_mutex_lock(&t->lock);
    for (struct user_job *j = t->first; j && !*ret_more; j = j->next) {
        if (!is_of(j, p) || j->seq <= after_seq || job_is_orphan(j))
            continue;
        if (n == limit) {
            *ret_more = true;
        } else {
            j->refs++;
            ret[n++] = j;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* --- publishing --- */

void jobs_publish_begin(struct jobs *t)
{
    pthread_mutex_lock(&t->publishing);
}

void jobs_publish_end(struct jobs *t)
{
    pthread_mutex_unlock(&t->publishing);
}

void jobs_settle(struct jobs *t)
{
    jobs_publish_begin(t);
    jobs_publish_end(t);
}
