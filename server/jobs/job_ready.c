/* What a slice that has succeeded leaves besides the arrays' contents: room for recorded values,
 * and the copies that are due, are made before the arrays get its results. If that fails, it is
 * discarded. Where a journal will say that the copies are there, they have to be before it does:
 * the slice waits for them. */
#include <assert.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "server/jobs/jobs_int.h"

/* --- values --- */

/* With the lock held; false without memory. */
static bool reserve_values(struct user_job *j, uint32_t n)
{
    lock_held(&j->table->lock);
    for (uint32_t i = 0; i < j->body.n_series && n; i++) {
        struct series_values *s = &j->series[i];
        program_values(j->body.program, i, &s->dtype);
        if (s->n + n <= s->cap)
            continue;
        const size_t most = (size_t)(j->body.steps / j->body.record_every);
        size_t cap = 2 * s->cap > s->n + n ? 2 * s->cap : s->n + n + 64;
        cap = cap < most ? cap : most;
        char *bytes = mem_reallocarray(s->bytes, cap, dtype_size(s->dtype));
        if (!bytes)
            return false;
        s->bytes = bytes;
        s->cap = cap;
    }
    return true;
}

/* With the lock held: puts the values that the slice recorded behind the others. */
static void take_values(struct user_job *j, uint32_t n)
{
    lock_held(&j->table->lock);
    for (uint32_t i = 0; i < j->body.n_series && n; i++) {
        struct series_values *s = &j->series[i];
        size_t size = dtype_size(s->dtype);
        memcpy(s->bytes + s->n * size, program_values(j->body.program, i, &s->dtype), n * size);
    }
}

void job_count_values(struct user_job *j, uint32_t n)
{
    lock_held(&j->table->lock);
    for (uint32_t i = 0; i < j->body.n_series; i++)
        j->series[i].n += n;
    j->n_values += n;
}

/* --- copies --- */

/* A place for one more; NULL without memory. */
static struct kept_snapshot *add_snapshot(struct user_job *j)
{
    struct kept_snapshot *s = NULL;
    pthread_mutex_lock(&j->table->lock);
    if (j->n_taken == j->cap_snapshots) {
        size_t cap = 2 * j->cap_snapshots + 8;
        struct kept_snapshot *more = mem_reallocarray(j->snapshots, cap, sizeof *more);
        j->snapshots = more ? more : j->snapshots;
        j->cap_snapshots = more ? cap : j->cap_snapshots;
    }
    if (j->n_taken < j->cap_snapshots)
        s = &j->snapshots[j->n_taken++];
    pthread_mutex_unlock(&j->table->lock);
    return s;
}

/* With the same effect as if it had never been added. */
static void unadd_snapshot(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    j->n_taken--;
    pthread_mutex_unlock(&j->table->lock);
}

/* A client may have deleted it in the moment since it was made. */
static void remove_copy(const struct session *s, const char *id)
{
    struct err e = ERR_INIT;
    if (handle_remove(s->handles, id, NULL, &e) != ERR_OK)
        log_event(LOG_DEBUG, "a copy had already been deleted", "id", id, NULL);
}

/* A copy of an array as it will be after `step`, under a handle in the session. */
static enum err_code take_snapshot(struct user_job *j, const struct body_snapshot *s, int64_t step,
                                   struct err *e)
{
    const struct session *session = j->body.session;
    struct program *p = j->body.program;
    _cleanup_handle_ struct handle h = {0}, of = {0};
    _cleanup_array_ struct array *copy = NULL;
    struct array *home;
    TRY(engine_copy(session->stream, session->account, program_made(p, s->target), &copy, e));
    struct kept_snapshot *made = add_snapshot(j);
    if (!made)
        return err_oom(e);
    *made = (struct kept_snapshot){.step = step};
    strncpy(made->name, program_target(p, s->target, &home), NAME_SIZE - 1);
    id_make('a', made->id);
    program_target_now(&j->body, s->target, &of);
    struct handle_spec spec = {.policy = NAME_NEW, .id = made->id, .labels = of.labels};
    enum err_code code = job_keep_snapshot(j, made, e);
    if (code == ERR_OK)
        code = handle_add(session->handles, copy, &spec, &h, NULL, e);
    if ((code == ERR_QUOTA || code == ERR_OUT_OF_MEMORY) &&
        spec.labels) { /* rather a copy without than no job */
        spec.labels = NULL;
        code = handle_add(session->handles, copy, &spec, &h, NULL, e);
    }
    if (code != ERR_OK)
        unadd_snapshot(j);
    return code;
}

void job_drop_snapshots(struct user_job *j)
{
    for (; j->n_taken > j->n_snapshots; j->n_taken--)
        remove_copy(j->body.session, j->snapshots[j->n_taken - 1].id);
}

static void copied(void *user, enum err_code result, double device_ms)
{
    struct user_job *j = user;
    struct jobs *t = j->table;
    (void)device_ms;
    pthread_mutex_lock(&t->lock);
    j->copying = false;
    j->copied = result;
    job_make_ready(j);
    job_leave_slice(j);
    pthread_mutex_unlock(&t->lock);
}

void job_await(struct user_job *j, struct engine_stream *stream)
{
    pthread_mutex_lock(&j->table->lock);
    assert(!j->copying);
    j->copying = true;
    job_enter_slice(j);
    pthread_mutex_unlock(&j->table->lock);
    engine_sync(stream, copied, j);
}

bool job_awaits(struct user_job *j)
{
    pthread_mutex_lock(&j->table->lock);
    bool yes = j->copying;
    pthread_mutex_unlock(&j->table->lock);
    return yes;
}

static bool has_due(const struct user_job *j, int64_t steps)
{
    uint32_t i = 0;
    while (i < j->body.n_snapshots && steps % j->body.snapshots[i].every != 0)
        i++;
    return i < j->body.n_snapshots;
}

static enum err_code take_due(struct user_job *j, int64_t steps, struct err *e)
{
    for (uint32_t i = 0; i < j->body.n_snapshots; i++)
        if (steps % j->body.snapshots[i].every == 0)
            TRY(take_snapshot(j, &j->body.snapshots[i], steps, e));
    return ERR_OK;
}

static enum err_code make_snapshots(struct user_job *j, struct program_slice *made, struct err *e)
{
    const bool taken = j->n_taken > j->n_snapshots;
    if (!has_due(j, made->steps))
        return ERR_OK;
    made->later = job_awaits(j); /* perhaps for a slice that was discarded */
    if (made->later)
        return ERR_OK;
    if (!taken) {
        TRY(take_due(j, made->steps, e));
        made->later = j->record;
        if (made->later)
            job_await(j, j->body.session->stream);
        return ERR_OK;
    }
    return j->copied == ERR_OK
               ? ERR_OK
               : err_set(e, j->copied, "the device failed while it made a snapshot");
}

enum err_code job_ready(void *job, struct program_slice *made, struct err *e)
{
    struct user_job *j = job;
    pthread_mutex_lock(&j->table->lock);
    bool room = reserve_values(j, made->n_values);
    if (room)
        take_values(j, made->n_values);
    pthread_mutex_unlock(&j->table->lock);
    if (!room)
        return err_oom(e);
    TRY(make_snapshots(j, made, e));
    return made->later ? ERR_OK : job_keep_slice(j, made, e);
}
