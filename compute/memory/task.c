/* Tasks: how work is ordered and completed.
 *
 * A task lists the storages it reads and writes. Submitting it under the engine's lock turns them
 * into fences: a reader waits for the last writer, a writer for the last writer and all readers
 * since, if those are on other streams and have not passed yet. Because submissions are totally
 * ordered by the lock, fences only point backwards and no cycle can arise.
 *
 * A backend may finish a small job inside submit(), under the lock; the caller's callback is then
 * called after unlocking, so that callbacks are free to call the engine.
 *
 * Work may become unwanted: the client that submitted it is gone, and with it all references to the
 * result. Nobody need report that. What a task writes can be read only through references to its
 * storage that other owners than tasks hold: a buffer, a download. If there are none, and no wanted
 * task behind it reads the storage, nobody will ever see the result. So tasks in flight are
 * examined from the newest to the oldest, and a storage has such a reference if its count exceeds
 * the references of tasks in flight. Such references cannot reappear, since taking one requires
 * one; a count that is briefly too high (a task just starting or ending) is corrected the next
 * time.
 *
 * A backend asks while work is running (job.unwanted), and the tasks are examined again only some
 * milliseconds after the last time, so that small work does not pay for this. */
#include "compute/memory/memory_int.h"

#include <assert.h>
#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/cells.h"

#define LOOK_NS 5000000u

enum { TASK_SUBMITTING, TASK_SUBMITTED, TASK_DONE };

struct task *task_new(struct engine_stream *s)
{
    struct arena *arena = arena_new(0);
    struct task *t = arena ? arena_alloc(arena, sizeof *t) : NULL;
    if (!t) {
        arena_free(arena);
        return NULL;
    }
    t->arena = arena;
    t->stream = s;
    t->job.asker = s->engine->asker ? s->engine->asker() : NULL;
    engine_stream_ref(s);
    return t;
}

void task_free(struct task *t)
{
    if (!t)
        return;
    assert(!t->in_flight);
    if (!t->fetch_submitted)
        task_free(t->fetch);
    for (uint32_t i = 0; i < t->n_uses; i++)
        storage_unref(t->uses[i].storage);
    for (uint32_t i = 0; i < t->n_rooms; i++)
        storage_unref(t->rooms[i].storage);
    t->stream->engine->task_freed(t);
    if (t->loan)
        t->loan->end(t->loan);
    if (t->job.asker)
        t->stream->engine->asker_unref(t->job.asker);
    engine_stream_unref(t->stream);
    arena_free(t->arena);
}

bool task_use(struct task *t, struct storage *st, bool write)
{
    size_t cap = t->cap_uses;
    if (arena_grow(t->arena, (void **)&t->uses, &cap, t->n_uses, sizeof *t->uses) < 0)
        return false;
    t->cap_uses = (uint32_t)cap;
    t->uses[t->n_uses++] = (struct storage_use){.storage = storage_ref(st), .write = write};
    return true;
}

bool task_copy(struct task *t, const struct storage *to, const struct storage *from, int64_t at)
{
    struct job_copy *copies = (struct job_copy *)t->job.copies;
    size_t cap = t->cap_copies;
    if (to->size == 0)
        return true;
    if (arena_grow(t->arena, (void **)&copies, &cap, t->job.n_copies, sizeof *copies) < 0)
        return false;
    copies[t->job.n_copies++] = (struct job_copy){
        .to = to->data,
        .from = (const char *)from->data + at,
        .n = to->size,
        .way = to->host                     ? COPY_OUT
               : from->host                 ? COPY_IN
               : from->device == to->device ? COPY_WITHIN
                                            : COPY_ACROSS,
        .device = from->device,
    };
    t->job.copies = copies;
    t->cap_copies = (uint32_t)cap;
    return true;
}

/* --- in flight --- */

static void task_list_add(struct task *t)
{
    struct task_list *l = &t->stream->engine->tasks;
    pthread_mutex_lock(&l->lock);
    struct task *before = l->newest; /* mostly: several threads submit */
    while (before && before->number > t->number)
        before = before->older;
    t->older = before;
    t->newer = before ? before->newer : l->oldest;
    *(t->newer ? &t->newer->older : &l->newest) = t;
    *(before ? &before->newer : &l->oldest) = t;
    t->in_flight = true;
    pthread_mutex_unlock(&l->lock);
}

static void task_list_remove(struct task *t)
{
    struct task_list *l = &t->stream->engine->tasks;
    if (!t->in_flight)
        return;
    pthread_mutex_lock(&l->lock);
    *(t->newer ? &t->newer->older : &l->newest) = t->older;
    *(t->older ? &t->older->newer : &l->oldest) = t->newer;
    t->in_flight = false;
    pthread_mutex_unlock(&l->lock);
}

/* Releases everything, then calls done, so that the memory is free by then. */
static void task_deliver(struct task *t)
{
    struct engine *g = t->stream->engine;
    assert(atomic_load(&g->jobs) > 0);
    engine_done *done = t->done;
    void *user = t->user;
    enum err_code result = t->result;
    double ms = t->device_ms;
    if (t->loan && result == ERR_OK)
        t->loan->took(t->loan, ms);
    const struct engine_stream *s = t->stream;
    task_list_remove(t);
    account_worked(s->account, s->watch ? s->watch->ended(s->watcher, ms) : ms);
    task_free(t);
    atomic_fetch_sub(&g->jobs, 1);
    if (done)
        done(user, result, ms);
}

/* The error of an operand that lacks the contents the task was to read, or ERR_OK. */
static enum err_code operand_failed(const struct task *t, const struct storage *st)
{
    int failed = atomic_load(&st->failed);
    if (failed == ERR_OK && t->number <= atomic_load(&st->missed_until))
        failed = atomic_load(&st->missed);
    return (enum err_code)failed;
}

/* Records a finished job's effect on a storage that it was to write. Old contents that it did not
 * touch remain valid; tasks that relied on the new ones fail (in_submit: there are none). */
static void job_wrote(const struct job *job, const struct storage_use *u)
{
    struct storage *st = u->storage;
    const bool kept = job->untouched && !u->fresh;
    /* a process that follows a lost device must not take old contents for what was answered */
    const bool forgotten = job->result == ERR_DEVICE_LOST && !job->in_submit;
    storage_written(st, job->result == ERR_OK || (kept && !forgotten),
                    job->result == ERR_OK && u->whole);
    if (job->result == ERR_OK)
        storage_copied(st);
    if (job->result != ERR_OK)
        atomic_store(&st->refusal, job->refusal);
    atomic_store(&st->written_ms, job->device_ms);
    atomic_store(&st->compile_ms, job->compile_ms);
    atomic_store(&st->tiers, job->tiers);
    if (kept) {
        if (job->in_submit)
            return;
        atomic_store(&st->missed, job->result);
        atomic_store(&st->missed_until, atomic_load(&st->engine->submissions));
        return;
    }
    if (job->result != ERR_OK || u->whole)
        atomic_store(&st->failed, job->result);
    if (job->result == ERR_OK) {
        if (u->whole)
            atomic_store(&st->missed, ERR_OK);
        storage_forget(st);
    }
}

/* A write to part of contents that were never produced: the buffer reverts past both, see
 * buffer_storage. */
static enum err_code rest_failed(const struct storage_use *u)
{
    return u->whole || u->fresh ? ERR_OK : (enum err_code)atomic_load(&u->storage->failed);
}

/* Records in each written storage how long the work took, and whether it succeeded: work that
 * failed, or read what failed work should have written, leaves no readable contents. */
static void job_measured(struct job *job)
{
    struct task *t = job->user;
    for (uint32_t i = 0; i < t->n_uses && job->result == ERR_OK; i++) {
        const struct storage_use *u = &t->uses[i];
        job->result = u->write ? rest_failed(u) : operand_failed(t, u->storage);
        if (job->result != ERR_OK)
            job->refusal = atomic_load(&u->storage->refusal);
    }
    if (job->result != ERR_OK && job->result != ERR_NOT_FOUND)
        atomic_fetch_add(&t->stream->engine->failures, 1);
    for (uint32_t i = 0; i < t->n_uses; i++)
        if (t->uses[i].write)
            job_wrote(job, &t->uses[i]);
}

void engine_reason(const struct engine *g, enum err_code code, uint64_t refusal,
                   char ret[ENGINE_REASON])
{
    char why[512] = "";
    if (code == ERR_CONTENTS_LOST)
        cells_how_text(refusal, why, sizeof why);
    else if (refusal && g->backend->ops->reason)
        g->backend->ops->reason(g->backend, refusal, why, sizeof why);
    if (code == ERR_CONTENTS_LOST)
        snprintf(ret, ENGINE_REASON, "an array that this needs %s: write all of it anew", why);
    else if (code == ERR_FAULTED || code == ERR_PLAN_FAULTED)
        snprintf(ret, ENGINE_REASON, "%s is %s",
                 code == ERR_FAULTED ? "a kernel that this needs" : "this work",
                 *why ? why : "refused, because it was running when the device faulted");
    else
        snprintf(ret, ENGINE_REASON, "the kernels could not be compiled%s%s", *why ? ": " : "",
                 why);
}

static uint64_t bytes_moved(const struct job *job)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->n_kernels; i++) {
        const struct ir_kernel *k = job->kernels[i];
        const bool again = i >= job->loop_from && i - job->loop_from < job->loop_n;
        n += (uint64_t)(ir_bytes_read(k) + ir_bytes_written(k)) * (again ? job->repeats : 1);
    }
    return n;
}

static void add_seen(struct work_seen *to, const struct job *job)
{
    atomic_fetch_or(&to->tiers, job->tiers);
    atomic_fetch_or(&to->forms, job->forms);
    if (job->result == ERR_OK)
        atomic_fetch_add(&to->bytes, bytes_moved(job));
}

static void job_done(struct job *job)
{
    struct task *t = job->user;
    t->result = job->result;
    t->device_ms = job->device_ms;
    if (t->seen)
        add_seen(t->seen, job);
    if (atomic_exchange(&t->state, TASK_DONE) == TASK_SUBMITTED)
        task_deliver(t);
}

static bool mark_pending(const struct task *t, const struct mark *m)
{
    const struct engine *g = t->stream->engine;
    return m->stream && m->stream != t->stream &&
           !g->backend->ops->passed((struct fence){m->stream->stream, m->seq});
}

/* Adds the fence unless a later one of its stream is in the list. */
static void add_wait(struct fence *waits, uint32_t *n, const struct mark *m)
{
    for (uint32_t i = 0; i < *n; i++)
        if (waits[i].stream == m->stream->stream) {
            if (waits[i].seq < m->seq)
                waits[i].seq = m->seq;
            return;
        }
    waits[(*n)++] = (struct fence){m->stream->stream, m->seq};
}

static bool reserve_reader(struct storage *st)
{
    if (st->n_readers < st->cap_readers)
        return true;
    uint32_t cap = st->cap_readers ? st->cap_readers * 2 : 2;
    struct mark *p = mem_reallocarray(st->readers, cap, sizeof *p);
    if (!p)
        return false;
    st->readers = p;
    st->cap_readers = cap;
    return true;
}

/* Removes marks that have passed, so that a long-lived array does not keep old streams alive. */
static void prune(struct storage *st, const struct task *t)
{
    const struct backend_ops *ops = t->stream->engine->backend->ops;
    for (uint32_t i = 0; i < st->n_readers;) {
        struct mark *m = &st->readers[i];
        if (m->stream != t->stream && ops->passed((struct fence){m->stream->stream, m->seq})) {
            engine_stream_unref(m->stream);
            *m = st->readers[--st->n_readers];
        } else {
            i++;
        }
    }
}

static void set_mark(struct mark *m, struct engine_stream *s, uint64_t seq)
{
    if (m->stream != s) {
        if (m->stream)
            engine_stream_unref(m->stream);
        engine_stream_ref(s);
        m->stream = s;
    }
    m->seq = seq;
}

static void record(struct storage_use *u, struct engine_stream *s, uint64_t seq)
{
    struct storage *st = u->storage;
    if (u->write) {
        for (uint32_t i = 0; i < st->n_readers; i++)
            engine_stream_unref(st->readers[i].stream);
        st->n_readers = 0;
        set_mark(&st->writer, s, seq);
        return;
    }
    for (uint32_t i = 0; i < st->n_readers; i++)
        if (st->readers[i].stream == s) {
            st->readers[i].seq = seq;
            return;
        }
    st->readers[st->n_readers] = (struct mark){0};
    set_mark(&st->readers[st->n_readers++], s, seq);
}

bool task_reserve(struct task *t)
{
    lock_held(&t->stream->engine->lock);
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        struct storage *st = t->uses[i].storage;
        prune(st, t);
        most += 1 + st->n_readers;
        if (!reserve_reader(st))
            return false;
    }
    t->waits = arena_alloc_array(t->arena, most, sizeof *t->waits);
    return t->waits != NULL;
}

enum err_code task_submit(struct task *t)
{
    lock_held(&t->stream->engine->lock);
    struct engine *g = t->stream->engine;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        struct storage *st = t->uses[i].storage;
        if (mark_pending(t, &st->writer))
            add_wait(t->waits, &n, &st->writer);
        bool behind = t->uses[i].write || t->uses[i].alone;
        for (uint32_t r = 0; behind && r < st->n_readers; r++)
            if (mark_pending(t, &st->readers[r]))
                add_wait(t->waits, &n, &st->readers[r]);
    }
    t->job.waits = t->waits;
    t->job.n_waits = n;
    t->job.done = job_done;
    t->job.measured = job_measured;
    t->job.user = t;
    for (uint32_t i = 0; i < t->n_uses; i++)
        if (t->uses[i].write)
            storage_writing(t->uses[i].storage);
    atomic_fetch_add(&g->jobs, 1);
    t->number = atomic_fetch_add(&g->submissions, 1) + 1;
    atomic_store(&t->state, TASK_SUBMITTING);
    if (t->stream->watch)
        t->stream->watch->begun(t->stream->watcher);
    uint64_t seq = backend_submit(g->backend, t->stream->stream, &t->job);
    /* a failure that another thread reports just now counts as a later one */
    if (atomic_load(&t->state) == TASK_DONE && t->job.in_submit && t->result != ERR_OK)
        return t->result; /* the next task waits for what this one would have waited for */
    /* Not delivered before task_unlock, so the uses are still there. */
    for (uint32_t i = 0; i < t->n_uses; i++)
        record(&t->uses[i], t->stream, seq);
    return ERR_OK;
}

static void task_tell(struct task *t)
{
    if (atomic_load(&t->state) != TASK_DONE)
        task_list_add(t);
    if (atomic_exchange(&t->state, TASK_SUBMITTED) == TASK_DONE)
        task_deliver(t);
}

void task_unlock(struct task *t)
{
    struct engine *g = t->stream->engine;
    pthread_mutex_unlock(&g->lock);
    if (t->fetch)
        task_tell(t->fetch);
    task_tell(t);
    engine_stream_reap(g);
}

void task_unlock_unsubmitted(struct task *take_t)
{
    pthread_mutex_unlock(&take_t->stream->engine->lock);
    if (take_t->fetch_submitted)
        task_tell(take_t->fetch);
    task_free(take_t);
}

void engine_sync(struct engine_stream *s, engine_done *done, void *user)
{
    struct task *t = task_new(s);
    if (!t) {
        done(user, ERR_OUT_OF_MEMORY, 0);
        return;
    }
    t->done = done;
    t->user = user;
    pthread_mutex_lock(&s->engine->lock);
    if (!task_reserve(t)) {
        pthread_mutex_unlock(&s->engine->lock);
        task_free(t);
        done(user, ERR_OUT_OF_MEMORY, 0);
        return;
    }
    (void)task_submit(t); /* done reports it */
    task_unlock(t);
}

/* --- unwanted work --- */

static void count_references(const struct task_list *l)
{
    for (const struct task *t = l->oldest; t; t = t->newer)
        for (uint32_t i = 0; i < t->n_uses; i++) {
            t->uses[i].storage->in_flight = 0;
            t->uses[i].storage->awaited = false;
        }
    for (const struct task *t = l->oldest; t; t = t->newer) {
        for (uint32_t i = 0; i < t->n_uses; i++)
            t->uses[i].storage->in_flight++;
        if (t->reader && atomic_load(&t->reader->left))
            t->reader->storage->in_flight++; /* a reference that nobody reads through any more */
    }
}

/* Whether the task serves only a download that nobody wants any more. */
static bool is_idle_download(const struct task *t)
{
    if (!t->reader || t->n_uses != 1 || t->uses[0].write)
        return false;
    const _Atomic bool *given_up = atomic_load(&t->reader->given_up);
    return atomic_load(&t->reader->left) || (given_up && atomic_load(given_up));
}

/* Whether the task is wanted; the tasks behind it have been examined. */
static bool is_wanted(const struct task *t)
{
    if (!t->job.unwanted)
        return !is_idle_download(t);
    bool held = !t->given_up || !atomic_load(t->given_up), writes = false;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const struct storage *st = t->uses[i].storage;
        if (!t->uses[i].write)
            continue;
        if (st->awaited || (held && !st->scratch && atomic_load(&st->refs) > st->in_flight))
            return true;
        writes = true;
    }
    return held && !writes; /* merely an intermediate step of the tasks behind it */
}

static void look(struct task_list *l)
{
    pthread_mutex_lock(&l->lock);
    count_references(l);
    for (struct task *t = l->newest; t; t = t->older) {
        bool wanted = is_wanted(t);
        for (uint32_t i = 0; i < t->n_uses; i++)
            if (wanted)
                t->uses[i].storage->awaited = true;
            else if (t->uses[i].write)
                storage_forget(t->uses[i].storage); /* the old contents are unwanted, too */
        atomic_store(&t->unwanted, !wanted);
    }
    pthread_mutex_unlock(&l->lock);
}

bool task_unwanted(struct job *job)
{
    struct task *t = job->user;
    struct task_list *l = &t->stream->engine->tasks;
    uint64_t now = clock_ns(), last = atomic_load(&l->looked_ns);
    if (now - last >= LOOK_NS && atomic_compare_exchange_strong(&l->looked_ns, &last, now))
        look(l);
    return atomic_load(&t->unwanted);
}
