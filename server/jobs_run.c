/* The thread takes jobs from a queue: those that have just begun, and those whose slice has
 * something to say. A job is in it once at most, so one thread at a time works on a program. How
 * many steps a slice has follows from how long the last one took. */
#include "server/jobs_int.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/handlers.h"

#define GROW_MOST 16  /* times the steps of the slice before */
#define SWEEP     1.0 /* seconds after which ended jobs are looked at, whether they are kept */

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

/* --- the end --- */

struct outcome {
    enum job_state state;
    const char *stopped;
    struct err err; /* JOB_FAILED, and where: */
    int64_t failed_in;
    int32_t statement;
};

/* Memory that it has no use for any more, or can get again, goes before anybody hears of the end.
 */
static void finish(struct user_job *j, const struct outcome *o)
{
    struct jobs *t = j->table;
    if (o->state == JOB_DONE) {
        for (size_t i = 0; i < j->spec.n_functions; i++)
            functions_release(&j->spec.functions[i]);
        j->spec.n_functions = 0;
        program_free(j->spec.program); /* and the memory of the specification's text */
        j->spec.program = NULL;
    } else {
        program_rest(j->spec.program);
    }
    pthread_mutex_lock(&t->lock);
    session_rest(j->spec.session, true); /* with what has ended a session may expire */
    j->state = o->state;
    j->stopped = o->stopped;
    j->err = o->err;
    j->failed_in = o->failed_in;
    j->statement = o->statement;
    j->ended_us = clock_date_us();
    if (j->started > 0)
        j->ran += clock_ms() - j->started;
    j->started = 0;
    job_changed(j);
    bool orphan = !j->forgotten && job_is_orphan(j);
    if (orphan)
        job_forget(j);
    pthread_mutex_unlock(&t->lock);
    if (orphan)
        job_unref(j);
}

/* --- slices --- */

/* How many steps the next one has. */
static void adapt(struct user_job *j, const struct program_progress *g)
{
    bool again = g->state == PROGRAM_AGAIN;
    double took = g->device_ms; /* without what compiling took */
    double more = j->table->config.slice * 1e3 / (took > 1e-3 ? took : 1e-3);
    more = again ? 0.5 : more > GROW_MOST ? GROW_MOST : more;
    double n = (double)j->slice_steps * more;
    j->slice_steps = n < 1 ? 1 : (int64_t)n;
    j->again = again ? j->again + 1 : 0;
}

/* What the slice was, as far as it ends the job; false: it goes on. */
static bool is_end(struct user_job *j, const struct program_progress *g, struct outcome *ret)
{
    *ret = (struct outcome){
        .state = JOB_FAILED, .err = g->err, .failed_in = g->failed_in, .statement = g->statement};
    switch (g->state) {
    case PROGRAM_FAILED:
        return true;
    case PROGRAM_NAN:
        err_set(&ret->err, ERR_NOT_A_NUMBER,
                "a NaN came up in step %" PRId64 ": the arrays are as they were before it",
                g->steps + 1);
        ret->failed_in = g->steps + 1;
        return true;
    case PROGRAM_AGAIN:
        if (j->again < PROGRAM_AGAIN_MOST)
            return false;
        err_set(&ret->err, ERR_CONFLICT,
                "others write to the arrays more often than a step of the program ends");
        ret->failed_in = g->steps + 1;
        return true;
    default:
        break;
    }
    ret->state = JOB_DONE;
    ret->stopped = g->state == PROGRAM_UNTIL ? "until" : NULL;
    return ret->stopped || g->steps >= j->spec.steps;
}

/* An array of its own that was deleted has nobody to mind. */
static enum err_code may_write(const struct job_spec *spec, uint32_t target, struct err *e)
{
    const struct job_target *t = &spec->targets[target];
    const struct array_scope scope = {spec->shares, spec->principal, spec->session->handles};
    _cleanup_handle_ struct handle h = {0};
    struct array *a;
    program_target(spec->program, target, &a);
    enum err_code code = share_get(&scope, t->id, &h, e);
    if (code == ERR_NOT_FOUND && !t->shared) {
        *e = (struct err)ERR_INIT;
        code = ERR_OK;
    } else if (code == ERR_OK) {
        code = handler_writable(&h, e);
    }
    return code == ERR_OK ? lease_check(&spec->claim, a, LEASE_WRITE, e) : code;
}

enum err_code job_may_write(const struct job_spec *spec, struct err *e)
{
    struct session *s;
    enum err_code code = session_get(spec->principal->sessions, spec->session->id, true, &s, e);
    if (code != ERR_OK)
        return code;
    session_unref(s);
    for (uint32_t i = 0; i < program_targets(spec->program) && code == ERR_OK; i++)
        code = may_write(spec, i, e);
    return code;
}

/* False while the slice is still to come to something, or when the job has ended with it. */
static bool take_progress(struct user_job *j)
{
    struct jobs *t = j->table;
    struct program_progress g;
    struct outcome o;
    struct err refusal = ERR_INIT;
    pthread_mutex_lock(&t->publishing);
    if (job_may_write(&j->spec, &refusal) != ERR_OK)
        program_discard(j->spec.program);
    program_collect(j->spec.program, &g);
    pthread_mutex_unlock(&t->publishing);
    if (g.state == PROGRAM_WAITING)
        return false;
    if (g.state == PROGRAM_AGAIN && refusal.code != ERR_OK) {
        g.state = PROGRAM_FAILED;
        g.err = refusal;
        g.failed_in = g.steps + 1;
    }
    bool good = g.state == PROGRAM_GOES_ON || g.state == PROGRAM_UNTIL;
    enum err_code code = good ? take_snapshots(j, g.steps, &g.err) : ERR_OK;
    adapt(j, &g);
    pthread_mutex_lock(&t->lock);
    j->report = program_report(j->spec.program);
    j->device_ms += g.device_ms;
    if (good && !keep_values(j, g.n_values))
        code = err_oom(&g.err);
    j->step = g.steps;
    if (code != ERR_OK) {
        g.state = PROGRAM_FAILED;
        g.failed_in = g.steps;
    }
    bool over = is_end(j, &g, &o);
    if (!over)
        job_changed(j);
    pthread_mutex_unlock(&t->lock);
    j->in_slice = false;
    if (over)
        finish(j, &o);
    pthread_mutex_lock(&t->lock);
    t->in_slice--;
    pthread_cond_signal(&t->something);
    pthread_mutex_unlock(&t->lock);
    return !over;
}

static void start_slice(struct user_job *j)
{
    struct jobs *t = j->table;
    struct outcome o = {.state = JOB_FAILED, .failed_in = j->step + 1, .statement = -1};
    o.err = (struct err)ERR_INIT;
    enum err_code code = job_may_write(&j->spec, &o.err);
    if (code == ERR_OK)
        code = program_wake(j->spec.program, &o.err);
    pthread_mutex_lock(&t->lock);
    if (j->state == JOB_QUEUED) {
        j->state = JOB_RUNNING;
        j->started = clock_ms();
        job_changed(j);
    }
    bool cancelled = j->cancel || t->stopping;
    if (!cancelled && code == ERR_OK)
        t->in_slice++;
    pthread_mutex_unlock(&t->lock);
    if (cancelled)
        o = (struct outcome){.state = JOB_CANCELLED, .statement = -1};
    if (cancelled || code != ERR_OK) {
        finish(j, &o);
        return;
    }
    if (!j->slice_steps)
        j->slice_steps = program_first_slice(j->spec.program, j->step, t->config.slice);
    int64_t n = j->slice_steps;
    const int64_t at_once = program_report(j->spec.program).steps;
    if (n > j->spec.steps - j->step)
        n = j->spec.steps - j->step;
    else if (at_once > 0 && n > at_once)
        n -= n % at_once; /* those over would be passes of fewer steps */
    for (uint32_t i = 0; i < j->spec.n_snapshots; i++) {
        int64_t every = j->spec.snapshots[i].every, left = every - j->step % every;
        n = n < left ? n : left;
    }
    j->slice_steps = program_slice_limit(j->spec.program, j->step, n);
    j->in_slice = true;
    program_submit(j->spec.program, j->step, j->slice_steps, wake_job, j);
}

static void work_on(struct user_job *j)
{
    if (!j->in_slice ? !job_ended(j) : take_progress(j))
        start_slice(j);
}

/* With the lock held: ended jobs whose time or whose session is over go; a reference each. */
static struct user_job *take_old(struct jobs *t)
{
    int64_t until = clock_date_us() - (int64_t)(t->config.retention * 1e6);
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

static struct user_job *next_ready(struct jobs *t)
{
    struct user_job *j = t->ready;
    t->ready = j->next_ready;
    if (!t->ready)
        t->last_ready = &t->ready;
    j->ready = false;
    return j;
}

static bool is_past(const struct timespec *moment)
{
    const struct timespec now = clock_after(0);
    return now.tv_sec != moment->tv_sec ? now.tv_sec > moment->tv_sec
                                        : now.tv_nsec >= moment->tv_nsec;
}

/* With the lock held, which is let go of meanwhile. */
static void forget_old(struct jobs *t)
{
    for (struct user_job *j; (j = take_old(t));) {
        pthread_mutex_unlock(&t->lock);
        job_unref(j);
        pthread_mutex_lock(&t->lock);
    }
}

void *jobs_run(void *arg)
{
    struct jobs *t = arg;
    struct timespec alive = clock_after(t->config.keep_alive), sweep = clock_after(SWEEP);
    pthread_mutex_lock(&t->lock);
    while (!t->stopping || t->in_slice || t->ready) {
        if (is_past(&alive)) { /* also while there is always a job that is ready */
            if (t->stopping && !t->ready)
                break; /* what is still under way has had its time */
            keep_watchers_awake(t);
            alive = clock_after(t->config.keep_alive);
        } else if (is_past(&sweep)) {
            forget_old(t);
            sweep = clock_after(SWEEP);
        } else if (t->ready) {
            struct user_job *j = next_ready(t);
            pthread_mutex_unlock(&t->lock);
            work_on(j);
            job_unref(j);
            pthread_mutex_lock(&t->lock);
        } else {
            pthread_cond_timedwait(&t->something, &t->lock, &sweep);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}
