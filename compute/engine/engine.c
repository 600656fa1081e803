/* The engine's frame: opening a backend, streams, and tasks: how work is ordered and completed.
 *
 * A task lists the storages it reads and writes. Submitting it under the engine's lock turns them
 * into fences: a reader waits for the last writer, a writer for the last writer and all readers
 * since, where those are on other streams and have not passed yet. Because submissions are totally
 * ordered by the lock, fences only point backwards and no cycle can arise.
 *
 * A backend may finish a small job inside submit(), under the lock; the caller's callback is then
 * told after unlocking, so that callbacks are free to call the engine. */
#include "compute/engine/engine_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/engine/export.h"
#include "compute/engine/reclaim.h"
#include "compute/program/loop.h"

enum { TASK_SUBMITTING, TASK_SUBMITTED, TASK_DONE };

uint64_t engine_next_version(struct engine *g)
{
    return atomic_fetch_add(&g->version, 1) + 1;
}

static void release_kernels(struct engine *g, struct ir_kernel *const *kernels, uint32_t n)
{
    const struct backend_ops *ops = g->backend->ops;
    for (uint32_t i = 0; ops->release && i < n; i++)
        ops->release(g->backend, kernels[i]);
}

/* Plans of the cache: plan_release. */
static void release_plan(void *user, struct ir_plan *plan)
{
    release_kernels(user, plan->kernels, plan->n_kernels);
}

static void engine_free(struct engine *g)
{
    loop_kept_free(g->loops);
    plan_cache_free(g->plans);
    mem_free(g->visitors);
    mover_free(g->mover);
    reclaim_free(g->reclaim);
    backend_close(g->backend);
    pthread_mutex_destroy(&g->flight.lock);
    pthread_mutex_destroy(&g->buffers_lock);
    pthread_mutex_destroy(&g->pins_lock);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

enum err_code engine_open(const struct engine_config *config, struct engine **ret, struct err *e)
{
    struct engine *g = mem_calloc(1, sizeof *g);
    if (!g)
        return err_oom(e);
    g->config = *config;
    g->fuse = (struct fuse_limits){.max_nodes = config->max_kernel_nodes,
                                   .max_inputs = config->max_kernel_inputs};
    enum err_code code =
        backend_open(config->backend, &config->device, &g->backend, g->note, sizeof g->note, e);
    if (code != ERR_OK) {
        mem_free(g);
        return code;
    }
    g->fuse.recompute = g->backend->ops->recompute;
    if (!g->config.max_cost)
        g->config.max_cost = g->backend->ops->max_cost;
    g->kernel_bytes = g->backend->ops->prepare ? PREPARED_BYTES : 0;
    g->plans = plan_cache_new(&(struct plan_cache_config){.capacity = config->plan_cache,
                                                          .bytes = (size_t)config->plan_cache_bytes,
                                                          .kernel_bytes = g->kernel_bytes,
                                                          .release = release_plan,
                                                          .user = g});
    g->visitors = mem_calloc((size_t)engine_device_count(g), sizeof *g->visitors);
    g->loops = loop_kept_new((size_t)config->plan_cache_bytes);
    g->mover = mover_new(g);
    g->reclaim = reclaim_new(g);
    g->host_limit = config->device.host_memory > 0 ? config->device.host_memory : mem_machine() / 2;
    pthread_mutex_init(&g->lock, NULL); /* none can fail here */
    pthread_mutex_init(&g->buffers_lock, NULL);
    pthread_mutex_init(&g->flight.lock, NULL);
    pthread_mutex_init(&g->pins_lock, NULL);
    if (!g->plans || !g->loops || !g->visitors || !g->mover || !g->reclaim) {
        engine_free(g);
        return err_oom(e);
    }
    *ret = g;
    return ERR_OK;
}

/* Streams whose last reference went, possibly inside one of their own callbacks. */
static void reap_streams(struct engine *g)
{
    struct engine_stream *s = atomic_exchange(&g->dead, NULL);
    while (s) {
        struct engine_stream *next = s->next_dead;
        g->backend->ops->stream_free(s->stream);
        if (s->watch)
            s->watch->release(s->watcher);
        account_unref(s->account);
        mem_free(s);
        s = next;
    }
}

bool engine_close(struct engine *g)
{
    if (!g)
        return true;
    mover_stop(g->mover);
    reclaim_stop(g->reclaim);
    /* the last copies of transfers let go of their memory by themselves, in a moment */
    double until = clock_ms() + g->config.close_wait_ms;
    while (atomic_load(&g->jobs) > 0 && clock_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&g->jobs) > 0)
        return false; /* a kernel may use any of it */
    for (int i = 0; i < engine_device_count(g); i++)
        engine_stream_unref(atomic_load(&g->visitors[i]));
    reap_streams(g);
    engine_free(g);
    return true;
}

const char *engine_backend(const struct engine *g)
{
    return g->backend->ops->name;
}

bool engine_in_host_memory(const struct engine *g)
{
    return g->backend->ops->upload_new == NULL;
}

const char *engine_note(const struct engine *g)
{
    return g->note;
}

int engine_device_count(const struct engine *g)
{
    return g->backend->ops->device_count(g->backend);
}

void engine_device_info(const struct engine *g, int device, struct backend_device *ret)
{
    g->backend->ops->device_info(g->backend, device, ret);
    if (g->reclaim)
        ret->memory_free += reclaim_kept(g->reclaim, device);
}

int64_t engine_bytes_in_use(const struct engine *g)
{
    return atomic_load(&g->bytes);
}

int64_t engine_host_bytes(const struct engine *g)
{
    return atomic_load(&g->host_bytes);
}

int64_t engine_host_limit(const struct engine *g)
{
    return g->host_limit;
}

int64_t engine_jobs_in_flight(const struct engine *g)
{
    return atomic_load(&g->jobs);
}

int engine_roomiest_device(const struct engine *g)
{
    int n = engine_device_count(g), best = 0;
    int64_t most = -1;
    for (int i = 0; i < n && n > 1; i++) {
        struct backend_device d;
        engine_device_info(g, i, &d);
        if (d.memory_free > most) {
            most = d.memory_free;
            best = i;
        }
    }
    return best;
}

int64_t engine_max_cost(const struct engine *g)
{
    return g->config.max_cost;
}

void engine_report(const struct engine *g, struct backend_report *ret)
{
    const struct backend_ops *ops = g->backend->ops;
    *ret = (struct backend_report){0};
    if (ops->report)
        ops->report(g->backend, ret);
    for (int i = 0; g->config.device.shareable && i < engine_device_count(g); i++) {
        const char *problem = engine_export_problem(g, i);
        size_t n = strlen(ret->warning);
        if (problem)
            snprintf(ret->warning + n, sizeof ret->warning - n, "%sarrays cannot be exported: %s",
                     n ? "; " : "", problem);
    }
}

static enum err_code stream_new(struct engine *g, int device, bool background,
                                struct engine_stream **ret, struct err *e)
{
    reap_streams(g);
    if (device < 0 || device >= engine_device_count(g))
        return err_set(e, ERR_BAD_FIELD, "there is no device %d, only %d", device,
                       engine_device_count(g));
    struct engine_stream *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_oom(e);
    enum err_code code = g->backend->ops->stream_new(g->backend, device, background, &s->stream, e);
    if (code != ERR_OK) {
        mem_free(s);
        return code;
    }
    atomic_init(&s->refs, 1);
    s->engine = g;
    s->device = device;
    *ret = s;
    return ERR_OK;
}

enum err_code engine_stream_new(struct engine *g, int device, struct engine_stream **ret,
                                struct err *e)
{
    return stream_new(g, device, false, ret, e);
}

enum err_code engine_stream_background(struct engine_stream *of, struct engine_stream **ret,
                                       struct err *e)
{
    enum err_code code = stream_new(of->engine, of->device, true, ret, e);
    if (code == ERR_OK && of->account)
        engine_stream_account(*ret, of->account);
    return code;
}

void engine_stream_account(struct engine_stream *s, struct account *a)
{
    account_ref(a);
    s->account = a;
}

void engine_stream_watch(struct engine_stream *s, const struct work_watch *watch, void *user)
{
    s->watch = watch;
    s->watcher = user;
}

void stream_ref(struct engine_stream *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void engine_stream_unref(struct engine_stream *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    struct engine *g = s->engine;
    s->next_dead = atomic_load(&g->dead);
    while (!atomic_compare_exchange_weak(&g->dead, &s->next_dead, s))
        ;
}

/* --- tasks --- */

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
    t->job.asker = s->engine->config.asker ? s->engine->config.asker() : NULL;
    stream_ref(s);
    return t;
}

/* Kernels that no entry of the plan cache has: the task's own. */
static void release_own_kernels(struct task *t)
{
    for (uint32_t i = 0; i < t->job.n_kernels && !t->lent[0]; i++)
        if (!t->entry || !plan_entry_has(t->entry, t->job.kernels[i]))
            release_kernels(t->stream->engine, &t->job.kernels[i], 1);
}

void task_free(struct task *t)
{
    if (!t)
        return;
    if (!t->fetch_submitted)
        task_free(t->fetch);
    for (uint32_t i = 0; i < t->n_uses; i++)
        storage_unref(t->uses[i].storage);
    release_own_kernels(t);
    for (int i = 0; i < LOOP_PASSES; i++)
        loop_kernels_unref(t->lent[i]);
    if (t->job.asker)
        t->stream->engine->config.asker_unref(t->job.asker);
    engine_stream_unref(t->stream);
    plan_entry_unref(t->entry);
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

/* Lets go of everything, then tells the caller: bytes are back when it hears of it. */
static void task_deliver(struct task *t)
{
    struct engine *g = t->stream->engine;
    engine_done *done = t->done;
    void *user = t->user;
    enum err_code result = t->result;
    double ms = t->device_ms;
    for (int i = 0; i < LOOP_PASSES && t->lent[i] && result == ERR_OK; i++)
        loop_kernels_took(t->lent[i], ms, t->lent_steps);
    const struct engine_stream *s = t->stream;
    flight_remove(t);
    account_worked(s->account, s->watch ? s->watch->ended(s->watcher, ms) : ms);
    task_free(t);
    atomic_fetch_sub(&g->jobs, 1);
    if (done)
        done(user, result, ms);
}

/* Why an operand is not what the task was to read, or ERR_OK. */
static enum err_code operand_failed(const struct task *t, const struct storage *st)
{
    int failed = atomic_load(&st->failed);
    if (failed == ERR_OK && t->number <= atomic_load(&st->missed_until))
        failed = atomic_load(&st->missed);
    return (enum err_code)failed;
}

/* What work that is over has made of a storage it was to write. Old contents that it left alone
 * stand; who counted on the new ones hears of it (in_submit: nobody did). */
static void job_wrote(const struct job *job, const struct storage_use *u)
{
    struct storage *st = u->storage;
    if (job->result != ERR_OK)
        atomic_store(&st->refusal, job->refusal);
    atomic_store(&st->written_ms, job->device_ms);
    atomic_store(&st->compile_ms, job->compile_ms);
    if (job->untouched && !u->fresh) {
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

/* A part written to contents that never came: the buffer falls back behind both, see
 * buffer_storage. */
static enum err_code rest_failed(const struct storage_use *u)
{
    return u->whole || u->fresh ? ERR_OK : (enum err_code)atomic_load(&u->storage->failed);
}

/* Whoever waits for what was written can tell how long it took, and whether it is there: work that
 * failed, or read what failed work should have written, leaves nothing that may be shown. */
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
    if (refusal && g->backend->ops->reason)
        g->backend->ops->reason(g->backend, refusal, why, sizeof why);
    if (code == ERR_FAULTED)
        snprintf(ret, ENGINE_REASON, "a kernel of this is %s",
                 *why ? why : "refused: it was on a device that faulted");
    else
        snprintf(ret, ENGINE_REASON, "the kernels for this could not be compiled%s%s",
                 *why ? ": " : "", why);
}

static void job_done(struct job *job)
{
    struct task *t = job->user;
    t->result = job->result;
    t->device_ms = job->device_ms;
    if (atomic_exchange(&t->state, TASK_DONE) == TASK_SUBMITTED)
        task_deliver(t);
}

static bool mark_pending(const struct task *t, const struct mark *m)
{
    const struct engine *g = t->stream->engine;
    return m->stream && m->stream != t->stream &&
           !g->backend->ops->passed((struct fence){m->stream->stream, m->ticket});
}

/* Adds the fence unless a later one of its stream is there. */
static void add_wait(struct fence *waits, uint32_t *n, const struct mark *m)
{
    for (uint32_t i = 0; i < *n; i++)
        if (waits[i].stream == m->stream->stream) {
            if (waits[i].ticket < m->ticket)
                waits[i].ticket = m->ticket;
            return;
        }
    waits[(*n)++] = (struct fence){m->stream->stream, m->ticket};
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

/* Forgets marks that have passed, so that a long-lived array does not keep old streams alive. */
static void prune(struct storage *st, const struct task *t)
{
    const struct backend_ops *ops = t->stream->engine->backend->ops;
    for (uint32_t i = 0; i < st->n_readers;) {
        struct mark *m = &st->readers[i];
        if (m->stream != t->stream && ops->passed((struct fence){m->stream->stream, m->ticket})) {
            engine_stream_unref(m->stream);
            *m = st->readers[--st->n_readers];
        } else {
            i++;
        }
    }
}

static void set_mark(struct mark *m, struct engine_stream *s, uint64_t ticket)
{
    if (m->stream != s) {
        if (m->stream)
            engine_stream_unref(m->stream);
        stream_ref(s);
        m->stream = s;
    }
    m->ticket = ticket;
}

static void record(struct storage_use *u, struct engine_stream *s, uint64_t ticket)
{
    struct storage *st = u->storage;
    if (u->write) {
        for (uint32_t i = 0; i < st->n_readers; i++)
            engine_stream_unref(st->readers[i].stream);
        st->n_readers = 0;
        set_mark(&st->writer, s, ticket);
        return;
    }
    for (uint32_t i = 0; i < st->n_readers; i++)
        if (st->readers[i].stream == s) {
            st->readers[i].ticket = ticket;
            return;
        }
    st->readers[st->n_readers] = (struct mark){0};
    set_mark(&st->readers[st->n_readers++], s, ticket);
}

bool task_reserve(struct task *t)
{
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
    atomic_fetch_add(&g->jobs, 1);
    t->number = atomic_fetch_add(&g->submissions, 1) + 1;
    atomic_store(&t->state, TASK_SUBMITTING);
    if (t->stream->watch)
        t->stream->watch->begun(t->stream->watcher);
    uint64_t ticket = backend_submit(g->backend, t->stream->stream, &t->job);
    /* what another thread tells in this moment is work that failed later */
    if (atomic_load(&t->state) == TASK_DONE && t->job.in_submit && t->result != ERR_OK)
        return t->result; /* who comes next waits for what this would have waited for */
    /* Not delivered before task_unlock, so the uses are still there. */
    for (uint32_t i = 0; i < t->n_uses; i++)
        record(&t->uses[i], t->stream, ticket);
    return ERR_OK;
}

static void task_tell(struct task *t)
{
    if (atomic_load(&t->state) != TASK_DONE)
        flight_add(t);
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
    reap_streams(g);
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
    (void)task_submit(t); /* told by done */
    task_unlock(t);
}
