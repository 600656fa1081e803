/* Bytes in and out of arrays.
 *
 * A download is a snapshot: it pins the storage the array has at that moment, and writers that come
 * later go to new storage (evaluate.c). An upload is staged in storage of its own; when the target
 * is a whole buffer, the staging simply becomes the buffer's storage, else a kernel copies it in.
 * Here staging and snapshot are host memory that the caller's thread touches directly; a device
 * behind a bus puts its pinned slabs behind the same calls. */
#include "compute/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"

struct download {
    struct storage *storage;
    const char *bytes; /* of the storage, for the host */
    struct view view;
    size_t itemsize;
    bool loose_bool;
    int64_t run; /* bytes of the innermost contiguous piece */
    int outer;   /* axes outside of it */
    uint64_t version;
    void (*wake)(void *user);
    void *user;
    bool waited;           /* the contents were not there when it began */
    _Atomic int state;     /* see below */
    _Atomic uint32_t refs; /* the owner and the job in flight */
    enum err_code result;
};
enum { DOWNLOAD_WAITING, DOWNLOAD_READY, DOWNLOAD_FAILED, DOWNLOAD_FREED };

/* Bytes that lie together at the end of the view's axes; *ret_outer axes lie outside of them. */
static int64_t innermost_run(const struct view *v, size_t itemsize, int *ret_outer)
{
    int64_t run = 1;
    int i = v->rank - 1;
    for (; i >= 0 && (v->shape[i] == 1 || v->strides[i] == run); i--)
        run *= v->shape[i];
    *ret_outer = i + 1;
    return run * (int64_t)itemsize;
}

static void download_drop(struct download *d)
{
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    atomic_fetch_sub(&d->storage->pins, 1);
    storage_unref(d->storage);
    mem_free(d);
}

static void download_done(void *user, enum err_code result, double device_ms)
{
    struct download *d = user;
    (void)device_ms; /* of a job that only marks the end */
    if (result == ERR_OK)
        result = (enum err_code)atomic_load(&d->storage->failed);
    d->result = result;
    int waiting = DOWNLOAD_WAITING;
    if (atomic_compare_exchange_strong(&d->state, &waiting,
                                       result == ERR_OK ? DOWNLOAD_READY : DOWNLOAD_FAILED) &&
        d->wake)
        d->wake(d->user);
    download_drop(d);
}

static bool settled(const struct storage *st)
{
    const struct backend_ops *ops = st->engine->backend->ops;
    return !st->writer.stream ||
           ops->passed((struct fence){st->writer.stream->stream, st->writer.ticket});
}

enum err_code download_new(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                           void *user, struct download **ret, struct err *e)
{
    struct engine *g = s->engine;
    struct download *d = mem_calloc(1, sizeof *d);
    if (!d)
        return err_oom(e);
    d->view = a->view;
    d->itemsize = dtype_size(a->dtype);
    d->run = innermost_run(&a->view, d->itemsize, &d->outer);
    d->loose_bool = a->dtype == DT_BOOL && atomic_load(&a->buffer->loose_bool);
    d->wake = wake;
    d->user = user;
    atomic_init(&d->refs, 1);

    pthread_mutex_lock(&g->lock);
    struct storage *st = a->buffer->storage;
    struct task *t = NULL;
    if (!settled(st)) { /* told by a job behind everything the storage waits for */
        t = task_new(s);
        if (!t || !task_use(t, st, false) || !task_reserve(t)) {
            pthread_mutex_unlock(&g->lock);
            task_free(t);
            mem_free(d);
            return err_oom(e);
        }
        t->done = download_done;
        t->user = d;
    }
    d->version = array_version(a);
    d->storage = storage_ref(st);
    d->bytes = g->backend->ops->host(g->backend, st->data);
    atomic_fetch_add(&st->pins, 1);
    d->waited = t != NULL;
    *ret = d;
    if (t) {
        atomic_init(&d->state, DOWNLOAD_WAITING);
        atomic_fetch_add(&d->refs, 1);
        task_submit_unlock(t);
    } else {
        d->result = (enum err_code)atomic_load(&st->failed);
        atomic_init(&d->state, d->result == ERR_OK ? DOWNLOAD_READY : DOWNLOAD_FAILED);
        pthread_mutex_unlock(&g->lock);
        if (wake)
            wake(user);
    }
    return ERR_OK;
}

enum err_code download_result(const struct download *d)
{
    return d->result;
}

void download_free(struct download *d)
{
    if (!d)
        return;
    atomic_exchange(&d->state, DOWNLOAD_FREED);
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

/* n pieces of `size` bytes, `stride` bytes apart, side by side. */
static void pack(char *to, const char *from, int64_t stride, int64_t size, int64_t n)
{
#define PACK(bytes)                                                                                \
    case bytes:                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            memcpy(to + i * bytes, from + i * stride, bytes);                                      \
        return
    switch (size) {
        PACK(1);
        PACK(2);
        PACK(4);
        PACK(8);
        PACK(16);
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * size, from + i * stride, (size_t)size);
    }
#undef PACK
}

/* Writes up to n bytes from C-order byte `at` on: the pieces along the innermost axis that is not
 * contiguous, as far as that axis goes. Returns how many. */
static int64_t pack_axis(const struct download *d, int64_t at, char *to, int64_t n)
{
    int64_t within = at % d->run, piece = at / d->run, element = d->view.offset;
    int64_t stride = 0, pieces = 1;
    for (int i = d->outer - 1; i >= 0; i--) {
        int64_t x = piece % d->view.shape[i];
        piece /= d->view.shape[i];
        element += x * d->view.strides[i];
        if (i == d->outer - 1) {
            stride = d->view.strides[i] * (int64_t)d->itemsize;
            pieces = d->view.shape[i] - x;
        }
    }
    const char *from = d->bytes + element * (int64_t)d->itemsize;
    if (within > 0 || n < d->run) {
        int64_t part = d->run - within < n ? d->run - within : n;
        memcpy(to, from + within, (size_t)part);
        return part;
    }
    if (pieces > n / d->run)
        pieces = n / d->run;
    pack(to, from, stride, d->run, pieces);
    return pieces * d->run;
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
    int64_t total = view_size(&d->view) * (int64_t)d->itemsize;
    if (offset >= total)
        return 0;
    if ((int64_t)n > total - offset)
        n = (size_t)(total - offset);
    for (int64_t done = 0; done < (int64_t)n;)
        done += pack_axis(d, offset + done, (char *)buf + done, (int64_t)n - done);
    if (d->loose_bool)
        for (size_t i = 0; i < n; i++)
            ((unsigned char *)buf)[i] = ((unsigned char *)buf)[i] != 0;
    return (int64_t)n;
}

/* --- uploads --- */

struct upload {
    struct engine_stream *stream;
    struct account *account;
    struct storage *storage;
    int64_t nbytes, filled;
};

enum err_code upload_new(struct engine_stream *s, struct account *account, int64_t nbytes,
                         void (*wake)(void *user), void *user, struct upload **ret, struct err *e)
{
    (void)wake; /* host memory always has room */
    (void)user;
    struct upload *u = mem_calloc(1, sizeof *u);
    if (!u)
        return err_oom(e);
    enum err_code code = storage_new(s->engine, account, s->device, nbytes, false, &u->storage, e);
    if (code != ERR_OK) {
        mem_free(u);
        return code;
    }
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
    storage_unref(u->storage);
    account_unref(u->account);
    engine_stream_unref(u->stream);
    mem_free(u);
}

void *upload_reserve(struct upload *u, size_t *ret_n)
{
    struct backend *b = u->stream->engine->backend;
    *ret_n = (size_t)(u->nbytes - u->filled);
    return (char *)b->ops->host(b, u->storage->data) + u->filled;
}

void upload_advance(struct upload *u, size_t n)
{
    u->filled += (int64_t)n;
}

size_t upload_push(struct upload *u, const void *bytes, size_t n)
{
    size_t room;
    void *p = upload_reserve(u, &room);
    if (n > room)
        n = room;
    if (n)
        memcpy(p, bytes, n);
    upload_advance(u, n);
    return n;
}

/* The staged bytes as an array of their own, by the shape they are meant to have. */
static enum err_code staged_array(struct upload *u, enum dtype dtype, int rank,
                                  const int64_t *shape, bool fortran, struct array **ret,
                                  struct err *e)
{
    struct view v;
    enum err_code code = view_contiguous(rank, shape, dtype_size(dtype), &v, e);
    if (code != ERR_OK)
        return code;
    if (view_size(&v) * (int64_t)dtype_size(dtype) != u->nbytes || u->filled != u->nbytes)
        return err_set(e, ERR_LENGTH_MISMATCH, "%lld bytes were staged for an array of %lld",
                       (long long)u->filled,
                       (long long)(view_size(&v) * (int64_t)dtype_size(dtype)));
    if (fortran) {
        int64_t stride = 1;
        for (int i = 0; i < rank; i++) {
            v.strides[i] = stride;
            stride *= shape[i];
        }
    }
    struct array *a = array_over(u->stream->engine, u->storage, dtype, &v, u->nbytes);
    if (!a)
        return err_oom(e);
    u->storage = NULL;
    *ret = a;
    return ERR_OK;
}

enum err_code upload_finish_new(struct upload *take_u, enum dtype dtype, int rank,
                                const int64_t *shape, bool fortran, struct array **ret,
                                struct err *e)
{
    struct array *a = NULL;
    enum err_code code = staged_array(take_u, dtype, rank, shape, fortran, &a, e);
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

/* The staging becomes the buffer's storage. */
static void adopt(struct array *target, struct array *staged)
{
    struct engine *g = target->buffer->engine;
    pthread_mutex_lock(&g->lock);
    struct storage *old = target->buffer->storage;
    target->buffer->storage = staged->buffer->storage;
    staged->buffer->storage = old;
    atomic_store(&target->buffer->version, engine_next_version(g));
    pthread_mutex_unlock(&g->lock);
}

enum err_code upload_finish_into(struct upload *take_u, struct array *a, const struct view *v,
                                 bool fortran, engine_done *done, void *user, struct err *e)
{
    _cleanup_array_ struct array *staged = NULL;
    enum err_code code = ERR_OK;
    if (view_self_overlaps(v))
        code = err_set(e, ERR_OVERLAP, "elements of the target overlap each other");
    if (code == ERR_OK)
        code = staged_array(take_u, a->dtype, v->rank, v->shape, fortran, &staged, e);
    struct engine_stream *s = take_u->stream;
    stream_ref(s);
    struct account *account = take_u->account;
    account_ref(account);
    upload_abort(take_u);
    if (code == ERR_OK && view_is_contiguous(v) && view_is_contiguous(&staged->view) &&
        array_nbytes(staged) == a->buffer->nbytes) {
        adopt(a, staged);
        if (done)
            done(user, ERR_OK, 0);
    } else if (code == ERR_OK) {
        struct task *t = task_new(s);
        struct typed *typed = t ? arena_alloc(t->arena, sizeof *typed) : NULL;
        struct array *out = NULL;
        if (!typed || !typed_input_only(t->arena, typed, staged)) {
            task_free(t);
            code = err_oom(e);
        } else {
            t->done = done;
            t->user = user;
            code = engine_run(t, typed, account, false, a, v, &out, e);
            array_unref(out);
        }
    }
    account_unref(account);
    engine_stream_unref(s);
    return code;
}
