/* Bytes in and out of arrays.
 *
 * A download is a snapshot: it pins the storage the array has at that moment, and writers that come
 * later go to new storage (run.c). An upload is staged in storage of its own; when the target
 * is a whole buffer, the staging simply becomes the buffer's storage, else a kernel copies it in.
 *
 * Where the host reaches the memory, the caller's thread copies bytes itself. Else the backend's
 * transfers do: a download whose contents are still being made travels as the `fetch` of the job
 * that waits for them, and an upload's storage is "written" by an empty job behind the backend's
 * copies, so that everything later is ordered by marks as always. A storage is let go only when the
 * backend says that no copy uses it any more; until then it counts as a job in flight. */
#include "compute/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "compute/pack.h"

struct download {
    struct storage *storage;
    const char *bytes; /* of the storage, for the host; or: */
    struct transfer *transfer;
    bool loose_bool;
    struct packing packing;
    uint64_t version;
    pthread_mutex_t wake_lock; /* held while the owner is woken, so that it is over when he frees */
    void (*wake)(void *user);  /* NULL once freed */
    void *user;
    bool waited;       /* the contents were not there when it began */
    engine_done *then; /* download_of_task: the task's own */
    void *then_user;
    _Atomic int state;     /* see below */
    _Atomic uint32_t refs; /* the owner and the job in flight */
    enum err_code result;
};
enum { DOWNLOAD_WAITING, DOWNLOAD_READY, DOWNLOAD_FAILED };

/* Whether the bytes of this storage go through the backend's transfers. */
static bool remote(const struct storage *st)
{
    return st->engine->backend->ops->upload_new && st->size > 0;
}

static void transfer_released(void *user)
{
    struct storage *st = user;
    struct engine *g = st->engine;
    storage_unref(st);
    atomic_fetch_sub(&g->jobs, 1);
}

/* Ends a transfer (or none); the storage's reference goes when no copy uses it. */
static void transfer_end(struct transfer *t, struct storage *take_st)
{
    struct engine *g = take_st->engine;
    if (!t) {
        storage_unref(take_st);
        return;
    }
    atomic_fetch_add(&g->jobs, 1);
    g->backend->ops->transfer_free(t, transfer_released, take_st);
}

static void download_drop(struct download *d)
{
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    atomic_fetch_sub(&d->storage->pins, 1);
    transfer_end(d->transfer, d->storage);
    pthread_mutex_destroy(&d->wake_lock);
    mem_free(d);
}

static void download_wake(void *user)
{
    struct download *d = user;
    pthread_mutex_lock(&d->wake_lock);
    if (d->wake)
        d->wake(d->user);
    pthread_mutex_unlock(&d->wake_lock);
}

static void download_done(void *user, enum err_code result, double device_ms)
{
    struct download *d = user;
    struct engine *g = d->storage->engine;
    engine_done *then = d->then;
    void *then_user = d->then_user;
    d->result = result == ERR_OK ? (enum err_code)atomic_load(&d->storage->failed) : result;
    atomic_store(&d->state, d->result == ERR_OK ? DOWNLOAD_READY : DOWNLOAD_FAILED);
    download_wake(d);
    download_drop(d);
    atomic_fetch_sub(&g->jobs, 1);
    if (then)
        then(then_user, result, device_ms);
}

static bool settled(const struct storage *st)
{
    const struct backend_ops *ops = st->engine->backend->ops;
    return !st->writer.stream ||
           ops->passed((struct fence){st->writer.stream->stream, st->writer.ticket});
}

/* With the lock held: what the storage's contents are read through. */
static enum err_code open_storage(struct download *d, struct storage *st, struct err *e)
{
    struct backend *b = st->engine->backend;
    if (remote(st) && view_size(&d->packing.view) > 0) {
        enum err_code code =
            b->ops->download_new(b, st->device, st->data, &d->packing.view, d->packing.itemsize,
                                 download_wake, d, &d->transfer, e);
        if (code != ERR_OK)
            return code;
    } else {
        d->bytes = b->ops->host(b, st->data);
    }
    d->storage = storage_ref(st);
    atomic_fetch_add(&st->pins, 1);
    return ERR_OK;
}

/* With the lock held: the job behind everything the storage waits for. NULL without memory. */
static struct task *waiting_task(struct engine_stream *s, struct download *d)
{
    struct task *t = task_new(s);
    if (!t || !task_use(t, d->storage, false) || !task_reserve(t)) {
        task_free(t);
        return NULL;
    }
    t->job.fetch = d->transfer;
    t->done = download_done;
    t->user = d;
    return t;
}

/* A session may read what another one has on another device; a stream there does the waiting. */
static enum err_code visit(struct engine_stream **s, const struct array *a, struct err *e)
{
    struct engine *g = (*s)->engine;
    int device = a->buffer->device;
    if ((*s)->device == device)
        return ERR_OK;
    struct engine_stream *visitor = atomic_load(&g->visitors[device]);
    if (!visitor) {
        enum err_code code = engine_stream_new(g, device, &visitor, e);
        if (code != ERR_OK)
            return code;
        struct engine_stream *none = NULL;
        if (!atomic_compare_exchange_strong(&g->visitors[device], &none, visitor)) {
            engine_stream_unref(visitor);
            visitor = none;
        }
    }
    *s = visitor;
    return ERR_OK;
}

static struct download *allocate(const struct view *v, size_t itemsize, void (*wake)(void *user),
                                 void *user)
{
    struct download *d = mem_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->packing = packing_of(v, itemsize);
    d->wake = wake;
    d->user = user;
    pthread_mutex_init(&d->wake_lock, NULL); /* cannot fail here */
    atomic_init(&d->refs, 1);
    atomic_init(&d->state, DOWNLOAD_WAITING);
    return d;
}

/* One that has no storage yet. */
static void deallocate(struct download *d)
{
    pthread_mutex_destroy(&d->wake_lock);
    mem_free(d);
}

enum err_code download_of_task(struct task *t, struct storage *st, int64_t n,
                               void (*wake)(void *user), void *user, struct download **ret,
                               struct err *e)
{
    const struct view v = {.rank = 1, .shape = {n}, .strides = {1}};
    struct download *d = allocate(&v, 1, wake, user);
    if (!d)
        return err_oom(e);
    enum err_code code = open_storage(d, st, e);
    if (code != ERR_OK) {
        deallocate(d);
        return code;
    }
    d->waited = true;
    d->then = t->done;
    d->then_user = t->user;
    t->job.fetch = d->transfer;
    t->done = download_done;
    t->user = d;
    atomic_fetch_add(&d->refs, 1);
    atomic_fetch_add(&t->stream->engine->jobs, 1); /* as in download_new */
    *ret = d;
    return ERR_OK;
}

void download_undo(struct download *d)
{
    if (!d)
        return;
    struct engine *g = d->storage->engine;
    download_drop(d);
    download_free(d);
    atomic_fetch_sub(&g->jobs, 1);
}

enum err_code download_new(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                           void *user, struct download **ret, struct err *e)
{
    struct engine *g = s->engine;
    enum err_code code = visit(&s, a, e);
    if (code != ERR_OK)
        return code;
    struct download *d = allocate(&a->view, dtype_size(a->dtype), wake, user);
    if (!d)
        return err_oom(e);
    d->loose_bool = a->dtype == DT_BOOL && atomic_load(&a->buffer->loose_bool);

    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(a->buffer);
    d->waited = !settled(st);
    struct task *t = NULL;
    code = open_storage(d, st, e);
    if (code == ERR_OK && d->waited) {
        t = waiting_task(s, d);
        code = t ? ERR_OK : err_oom(e);
    }
    if (code != ERR_OK) {
        pthread_mutex_unlock(&g->lock);
        if (d->storage) {
            download_drop(d);
        } else {
            deallocate(d);
        }
        return code;
    }
    d->version = array_version(a);
    *ret = d;
    if (t) {
        atomic_fetch_add(&d->refs, 1);
        atomic_fetch_add(&g->jobs, 1); /* until download_done has let go of the storage */
        (void)task_submit(t);          /* told by done */
        task_unlock(t);
        return ERR_OK;
    }
    d->result = (enum err_code)atomic_load(&st->failed);
    atomic_store(&d->state, d->result == ERR_OK ? DOWNLOAD_READY : DOWNLOAD_FAILED);
    pthread_mutex_unlock(&g->lock);
    if (d->transfer && d->result == ERR_OK)
        g->backend->ops->download_start(d->transfer);
    else
        download_wake(d);
    return ERR_OK;
}

enum err_code download_result(const struct download *d)
{
    return d->result;
}

void download_reason(const struct download *d, char ret[DOWNLOAD_REASON])
{
    engine_reason(d->storage->engine, atomic_load(&d->storage->refusal), ret);
}

void download_free(struct download *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->wake_lock);
    d->wake = NULL;
    pthread_mutex_unlock(&d->wake_lock);
    download_drop(d);
}

uint64_t download_version(const struct download *d)
{
    return d->version;
}

double download_device_ms(const struct download *d, bool own)
{
    return own || d->waited ? atomic_load(&d->storage->written_ms) : 0;
}

double download_compile_ms(const struct download *d, bool own)
{
    return own || d->waited ? atomic_load(&d->storage->compile_ms) : 0;
}

static int64_t pull_transfer(struct download *d, int64_t offset, void *buf, size_t n)
{
    struct backend *b = d->storage->engine->backend;
    int64_t got = b->ops->download_pull(d->transfer, offset, buf, n);
    if (got < 0)
        d->result = b->ops->transfer_result(d->transfer);
    return got;
}

int64_t download_pull(struct download *d, int64_t offset, void *buf, size_t n)
{
    switch (atomic_load(&d->state)) {
    case DOWNLOAD_WAITING:
        return 0;
    case DOWNLOAD_READY:
        break;
    default:
        return -1;
    }
    int64_t total = view_size(&d->packing.view) * (int64_t)d->packing.itemsize;
    if (offset >= total)
        return 0;
    if ((int64_t)n > total - offset)
        n = (size_t)(total - offset);
    int64_t got = d->transfer ? pull_transfer(d, offset, buf, n) : (int64_t)n;
    if (!d->transfer)
        for (int64_t done = 0; done < got;)
            done +=
                packing_copy(&d->packing, d->bytes, offset + done, (char *)buf + done, got - done);
    for (int64_t i = 0; d->loose_bool && i < got; i++)
        ((unsigned char *)buf)[i] = ((unsigned char *)buf)[i] != 0;
    return got;
}

/* --- uploads --- */

struct upload {
    struct engine_stream *stream;
    struct account *account;
    struct storage *storage;
    struct transfer *transfer; /* to `target` (a reference); or NULL */
    struct storage *target;
    int64_t nbytes, filled;
    uint64_t if_version; /* upload_expect */
};

enum err_code upload_new(struct engine_stream *s, struct account *account, int64_t nbytes,
                         void (*wake)(void *user), void *user, struct upload **ret, struct err *e)
{
    struct backend *b = s->engine->backend;
    struct upload *u = mem_calloc(1, sizeof *u);
    if (!u)
        return err_oom(e);
    enum err_code code = storage_new(s->engine, account, s->device, nbytes, false, &u->storage, e);
    if (code == ERR_OK && remote(u->storage))
        code =
            b->ops->upload_new(b, s->device, u->storage->data, nbytes, wake, user, &u->transfer, e);
    if (code != ERR_OK) {
        storage_unref(u->storage);
        mem_free(u);
        return code;
    }
    if (u->transfer)
        u->target = storage_ref(u->storage);
    u->stream = s;
    stream_ref(s);
    u->account = account;
    account_ref(account);
    u->nbytes = nbytes;
    *ret = u;
    return ERR_OK;
}

void upload_abort(struct upload *u)
{
    if (!u)
        return;
    if (u->transfer)
        transfer_end(u->transfer, u->target);
    storage_unref(u->storage);
    account_unref(u->account);
    engine_stream_unref(u->stream);
    mem_free(u);
}

void *upload_reserve(struct upload *u, size_t *ret_n)
{
    struct backend *b = u->stream->engine->backend;
    if (u->transfer && u->filled < u->nbytes)
        return b->ops->upload_reserve(u->transfer, ret_n);
    *ret_n = (size_t)(u->nbytes - u->filled);
    return u->transfer ? (char *)u : (char *)b->ops->host(b, u->storage->data) + u->filled;
}

void upload_advance(struct upload *u, size_t n)
{
    if (u->transfer)
        u->stream->engine->backend->ops->upload_advance(u->transfer, n);
    u->filled += (int64_t)n;
}

static enum err_code upload_result(const struct upload *u)
{
    return u->transfer ? u->stream->engine->backend->ops->transfer_result(u->transfer) : ERR_OK;
}

size_t upload_push(struct upload *u, const void *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        size_t room;
        void *p = upload_reserve(u, &room);
        if (!p && upload_result(u) != ERR_OK)
            return n;
        if (!p || !room)
            break;
        if (room > n - done)
            room = n - done;
        memcpy(p, (const char *)bytes + done, room);
        upload_advance(u, room);
        done += room;
    }
    return done;
}

void upload_expect(struct upload *u, uint64_t version)
{
    u->if_version = version;
}

/* The job that ends the bytes under way: whoever is ordered after it sees them. */
static enum err_code landing(struct upload *u, struct task **ret, struct err *e)
{
    struct task *t = task_new(u->stream);
    if (!t || !task_use(t, u->target, true)) {
        task_free(t);
        return err_oom(e);
    }
    t->uses[0].whole = t->uses[0].fresh = true;
    *ret = t;
    return ERR_OK;
}

/* Makes the staged bytes the contents of their storage and, where `b` is not NULL, that the
 * buffer's. */
static enum err_code land(struct upload *u, struct buffer *b, struct err *e)
{
    struct engine *g = u->stream->engine;
    struct task *t = NULL;
    struct storage *old = NULL;
    enum err_code code = u->transfer ? landing(u, &t, e) : ERR_OK;
    if (code != ERR_OK)
        return code;
    pthread_mutex_lock(&g->lock);
    if (b)
        code = require_version(b, u->if_version, e);
    if (code == ERR_OK && t)
        code = task_reserve(t) ? g->backend->ops->upload_join(u->transfer, u->stream->stream, e)
                               : err_oom(e);
    if (code != ERR_OK) {
        pthread_mutex_unlock(&g->lock);
        task_free(t);
        return code;
    }
    if (b)
        old = buffer_storage(b);
    if (b && t)
        atomic_store(&u->target->before, storage_ref(old));
    code = t ? task_submit(t) : ERR_OK;
    if (b && code == ERR_OK) {
        b->storage = u->storage;
        u->storage = NULL;
        atomic_store(&b->version, engine_next_version(g));
    }
    if (t)
        task_unlock(t);
    else
        pthread_mutex_unlock(&g->lock);
    if (code != ERR_OK)
        return err_set(e, code, "%s", err_title(code));
    storage_unref(old);
    return ERR_OK;
}

/* Whether all of the bytes are there, and how they lie. */
static enum err_code staged_view(const struct upload *u, enum dtype dtype, int rank,
                                 const int64_t *shape, bool fortran, struct view *ret,
                                 struct err *e)
{
    enum err_code code = view_contiguous(rank, shape, dtype_size(dtype), ret, e);
    if (code != ERR_OK)
        return code;
    code = upload_result(u);
    if (code != ERR_OK)
        return err_set(e, code, "the data could not be copied to the device");
    int64_t size = view_size(ret) * (int64_t)dtype_size(dtype);
    if (size != u->nbytes || u->filled != u->nbytes)
        return err_set(e, ERR_LENGTH_MISMATCH, "%lld bytes were staged for an array of %lld",
                       (long long)u->filled, (long long)size);
    int64_t stride = 1;
    for (int i = 0; fortran && i < rank; i++) {
        ret->strides[i] = stride;
        stride *= shape[i];
    }
    return ERR_OK;
}

/* The staged bytes as an array of their own. */
static enum err_code staged_array(struct upload *u, enum dtype dtype, const struct view *v,
                                  struct array **ret, struct err *e)
{
    struct array *a = array_over(u->stream->engine, u->storage, dtype, v, u->nbytes);
    if (!a)
        return err_oom(e);
    u->storage = NULL;
    enum err_code code = u->transfer ? land(u, NULL, e) : ERR_OK;
    if (code == ERR_OK)
        *ret = a;
    else
        array_unref(a);
    return code;
}

enum err_code upload_finish_new(struct upload *take_u, enum dtype dtype, int rank,
                                const int64_t *shape, bool fortran, struct array **ret,
                                struct err *e)
{
    struct array *a = NULL;
    struct view have;
    enum err_code code = staged_view(take_u, dtype, rank, shape, fortran, &have, e);
    if (code == ERR_OK)
        code = staged_array(take_u, dtype, &have, &a, e);
    if (code == ERR_OK && !view_is_contiguous(&a->view)) {
        struct array *c = NULL;
        code = engine_copy(take_u->stream, take_u->account, a, &c, e);
        array_unref(a);
        a = c;
    }
    if (code == ERR_OK)
        *ret = a;
    upload_abort(take_u);
    return code;
}

/* A kernel copies the staged bytes to the region `v` of an array. */
static enum err_code copy_into(struct upload *u, const struct view *have, struct array *a,
                               const struct view *v, engine_done *done, void *user, struct err *e)
{
    _cleanup_array_ struct array *staged = NULL, *out = NULL;
    enum err_code code = staged_array(u, a->dtype, have, &staged, e);
    if (code != ERR_OK)
        return code;
    struct task *t = task_new(u->stream);
    struct typed *typed = t ? arena_alloc(t->arena, sizeof *typed) : NULL;
    if (!typed || !typed_input_only(t->arena, typed, staged)) {
        task_free(t);
        return err_oom(e);
    }
    t->if_version = u->if_version;
    t->done = done;
    t->user = user;
    return engine_run(t, typed, u->account, false, a, v, &out, e);
}

enum err_code upload_finish_into(struct upload *take_u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user, struct err *e)
{
    struct view have;
    enum err_code code = require_device(take_u->stream, a, NULL, e);
    if (code == ERR_OK && view_self_overlaps(v))
        code = err_set(e, ERR_OVERLAP, "elements of the target overlap each other");
    if (code == ERR_OK)
        code = staged_view(take_u, a->dtype, v->rank, v->shape, fortran, &have, e);
    bool whole = code == ERR_OK && view_is_contiguous(v) && view_is_contiguous(&have) &&
                 take_u->nbytes == a->buffer->nbytes;
    if (whole)
        code = land(take_u, a->buffer, e);
    else if (code == ERR_OK)
        code = copy_into(take_u, &have, a, v, done, user, e);
    upload_abort(take_u);
    if (whole && code == ERR_OK && done)
        done(user, ERR_OK, 0);
    return code;
}
