/* The thread takes jobs from a queue: those that have just begun, and those whose slice has
 * something to say. A job is in it once at most, so one thread at a time works on a program. How
 * many steps a slice has follows from how long the last one took. */
#include "server/jobs_int.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"

#define GROW_MOST 4 /* times the steps of the slice before */

/* With the lock held. */
static void end(struct user_job *j, enum job_state state)
{
    j->state = state;
    j->ended_us = jobs_now_us();
    if (j->started > 0)
        j->ran += clock_ms() - j->started;
    j->started = 0;
    job_changed(j);
}

static void wake_job(void *user)
{
    struct user_job *j = user;
    pthread_mutex_lock(&j->table->lock);
    job_make_ready(j);
    pthread_mutex_unlock(&j->table->lock);
}

/* The values that the slice made; false without memory. */
static bool keep_values(struct user_job *j, uint32_t n)
{
    for (uint32_t i = 0; i < j->spec.n_series && n; i++) {
        struct series_values *s = &j->series[i];
        const void *values = program_values(j->spec.program, i, &s->dtype);
        size_t size = dtype_size(s->dtype);
        if (s->n + n > s->cap) {
            size_t cap = 2 * s->cap > s->n + n ? 2 * s->cap : s->n + n + 64;
            char *bytes = mem_reallocarray(s->bytes, cap, size);
            if (!bytes)
                return false;
            s->bytes = bytes;
            s->cap = cap;
        }
        memcpy(s->bytes + s->n * size, values, n * size);
        s->n += n;
    }
    j->n_values += n;
    return true;
}

/* A copy of an array as it is after `step`, under a handle of the session's. */
static enum err_code take_snapshot(struct user_job *j, const struct job_snapshot *s, int64_t step,
                                   struct err *e)
{
    const struct session *session = j->spec.session;
    struct handle_spec spec = {.policy = NAME_NEW};
    _cleanup_handle_ struct handle h = {0};
    _cleanup_array_ struct array *copy = NULL;
    struct array *home;
    const char *name = program_target(j->spec.program, s->target, &home);
    enum err_code code = engine_copy(session->stream, session->account, home, &copy, e);
    if (code == ERR_OK)
        code = handle_add(session->handles, copy, &spec, &h, NULL, e);
    if (code != ERR_OK)
        return code;
    pthread_mutex_lock(&j->table->lock);
    if (j->n_snapshots == j->cap_snapshots) {
        size_t cap = 2 * j->cap_snapshots + 8;
        struct snapshot_made *more = mem_reallocarray(j->snapshots, cap, sizeof *more);
        if (more) {
            j->snapshots = more;
            j->cap_snapshots = cap;
        } else {
            code = err_oom(e);
        }
    }
    if (code == ERR_OK) {
        struct snapshot_made *made = &j->snapshots[j->n_snapshots++];
        *made = (struct snapshot_made){.step = step};
        strncpy(made->name, name, NAME_SIZE - 1);
        memcpy(made->id, h.id, sizeof made->id);
    }
    pthread_mutex_unlock(&j->table->lock);
    return code;
}

static enum err_code take_snapshots(struct user_job *j, int64_t step, struct err *e)
{
    enum err_code code = ERR_OK;
    for (uint32_t i = 0; i < j->spec.n_snapshots && code == ERR_OK; i++)
        if (step % j->spec.snapshots[i].every == 0)
            code = take_snapshot(j, &j->spec.snapshots[i], step, e);
    return code;
}

/* What the slice has come to. False while it is still to come. */
static bool take_progress(struct user_job *j)
{
    struct jobs *t = j->table;
    struct program_progress g;
    program_collect(j->spec.program, &g);
    if (g.state == PROGRAM_WAITING)
        return false;
    bool good = g.state == PROGRAM_GOES_ON || g.state == PROGRAM_UNTIL;
    if (good && take_snapshots(j, g.steps, &g.err) != ERR_OK) {
        good = false;
        g.state = PROGRAM_FAILED;
        g.failed_in = g.steps;
    }
    double took = clock_ms() - j->slice_began;
    double more = t->config.slice * 1e3 / (took > 1e-3 ? took : 1e-3);
    more = more > GROW_MOST ? GROW_MOST : more;
    j->slice_steps = (int64_t)((double)j->slice_steps * more);
    j->in_slice = false;
    pthread_mutex_lock(&t->lock);
    t->in_slice--;
    pthread_cond_signal(&t->something);
    j->step = g.steps;
    if (!keep_values(j, g.n_values) && good) {
        g.state = PROGRAM_FAILED;
        g.failed_in = g.steps;
        err_oom(&g.err);
    }
    if (g.state == PROGRAM_FAILED || g.state == PROGRAM_NAN) {
        j->err = g.err;
        if (g.state == PROGRAM_NAN)
            err_set(&j->err, ERR_NOT_A_NUMBER,
                    "a NaN came up after step %" PRId64 ": the arrays are as they were after it",
                    g.steps);
        j->failed_in = g.state == PROGRAM_NAN ? g.steps + 1 : g.failed_in;
        j->statement = g.statement;
        end(j, JOB_FAILED);
    } else if (g.state == PROGRAM_UNTIL || j->step >= j->spec.steps) {
        j->stopped = g.state == PROGRAM_UNTIL ? "until" : NULL;
        end(j, JOB_DONE);
    } else {
        job_changed(j);
    }
    pthread_mutex_unlock(&t->lock);
    return true;
}

/* Whether the job may write its arrays now; whose session is gone may not. */
static enum err_code may_go_on(struct user_job *j, struct err *e)
{
    struct session *s;
    enum err_code code = session_get(j->spec.principal->sessions, j->spec.session->id, true, &s, e);
    if (code != ERR_OK)
        return code;
    session_unref(s);
    for (uint32_t i = 0; i < program_targets(j->spec.program) && code == ERR_OK; i++) {
        struct array *a;
        program_target(j->spec.program, i, &a);
        code = lease_check(&j->spec.claim, a, LEASE_WRITE, e);
    }
    return code;
}

static void start_slice(struct user_job *j)
{
    struct jobs *t = j->table;
    struct err e = ERR_INIT;
    enum err_code code = may_go_on(j, &e);
    if (code == ERR_OK)
        code = program_wake(j->spec.program, &e);
    int64_t n = j->slice_steps < 1 ? 1 : j->slice_steps;
    pthread_mutex_lock(&t->lock);
    if (j->state == JOB_QUEUED) {
        j->state = JOB_RUNNING;
        j->started = clock_ms();
        job_changed(j);
    }
    if (j->cancel || t->stopping || code != ERR_OK) {
        if (code != ERR_OK) {
            j->err = e;
            j->failed_in = j->step + 1;
            j->statement = -1;
        }
        end(j, code != ERR_OK ? JOB_FAILED : JOB_CANCELLED);
        pthread_mutex_unlock(&t->lock);
        return;
    }
    t->in_slice++;
    pthread_mutex_unlock(&t->lock);
    if (n > j->spec.steps - j->step)
        n = j->spec.steps - j->step;
    for (uint32_t i = 0; i < j->spec.n_snapshots; i++) {
        int64_t every = j->spec.snapshots[i].every, left = every - j->step % every;
        n = n < left ? n : left;
    }
    j->slice_steps = program_slice_limit(j->spec.program, j->step, n);
    j->slice_began = clock_ms();
    j->in_slice = true;
    program_submit(j->spec.program, j->step, j->slice_steps, wake_job, j);
}

/* What an ended job has no use for any more, and one that may be resumed can get again. */
static void let_go(struct user_job *j)
{
    if (j->state == JOB_DONE) {
        for (size_t i = 0; i < j->spec.n_functions; i++)
            functions_release(&j->spec.functions[i]);
        j->spec.n_functions = 0;
        program_free(j->spec.program); /* and the memory of the specification's text */
        j->spec.program = NULL;
    } else {
        program_rest(j->spec.program);
    }
    pthread_mutex_lock(&j->table->lock);
    bool orphan = !j->forgotten && job_is_orphan(j);
    if (orphan)
        job_forget(j);
    pthread_mutex_unlock(&j->table->lock);
    if (orphan)
        job_unref(j);
}

static void work_on(struct user_job *j)
{
    if (j->in_slice && !take_progress(j))
        return;
    if (!job_ended(j))
        start_slice(j);
    if (!j->in_slice && job_ended(j))
        let_go(j);
}

/* With the lock held: ended jobs whose time or whose session is over go; a reference each. */
static struct user_job *take_old(struct jobs *t)
{
    int64_t until = jobs_now_us() - (int64_t)(t->config.retention * 1e6);
    for (struct user_job *j = t->first; j; j = j->next) {
        if (!job_is_over(j))
            continue;
        if (job_is_orphan(j) || j->ended_us < until) {
            job_forget(j);
            return j;
        }
    }
    return NULL;
}

static void keep_watchers_awake(struct jobs *t)
{
    for (struct user_job *j = t->first; j; j = j->next)
        for (struct job_watch *w = j->watches; w; w = w->next)
            w->wake(w->user);
}

static struct timespec after(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

static struct user_job *next_ready(struct jobs *t)
{
    struct user_job *j = t->ready;
    t->ready = j->next_ready;
    if (!t->ready)
        t->last_ready = &t->ready;
    j->ready = false;
    return j;
}

void *jobs_run(void *arg)
{
    struct jobs *t = arg;
    struct timespec tick = after(t->config.keep_alive);
    pthread_mutex_lock(&t->lock);
    while (!t->stopping || t->in_slice || t->ready) {
        struct user_job *j = NULL;
        if (t->ready) {
            j = next_ready(t);
            pthread_mutex_unlock(&t->lock);
            work_on(j);
            job_unref(j);
            pthread_mutex_lock(&t->lock);
            continue;
        }
        if (pthread_cond_timedwait(&t->something, &t->lock, &tick) == 0)
            continue;
        if (t->stopping)
            break; /* what is still under way has had its time */
        keep_watchers_awake(t);
        while ((j = take_old(t))) {
            pthread_mutex_unlock(&t->lock);
            job_unref(j);
            pthread_mutex_lock(&t->lock);
        }
        tick = after(t->config.keep_alive);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
