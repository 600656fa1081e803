/* Bytes out of arrays.
 *
 * A download is a snapshot: it pins the array's current storage, and later writers get new storage
 * (run.c). Uploads: upload.c.
 *
 * If the host can access the memory, the caller's thread copies the bytes itself. Else the
 * backend's transfers do: a download whose contents are still being computed is the `fetch` of the
 * job that waits for them. A storage is released only when the backend says that no copy uses it
 * any more; until then it counts as a job in flight. */
#include "compute/memory/transfer.h"
#include "compute/memory/memory_int.h"

#include <stdlib.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/wake.h"
#include "compute/type/pack.h"

struct download {
    struct reader reader; /* of the storage, a reference */
    struct pin pin;       /* on that storage */
    const char *bytes;    /* the storage's, if the host can access it; or: */
    struct transfer *transfer;
    bool loose_bool;
    struct packing packing;
    uint64_t version;
    struct wake wake;  /* the owner's, until it frees the download */
    bool waited;       /* the contents were not ready when it began */
    engine_done *then; /* download_of_task: the task's own done */
    void *then_user;
    _Atomic int state;     /* see below */
    _Atomic uint32_t refs; /* held by the owner and the job in flight */
    _Atomic bool unpinned;
    enum err_code result;
};
enum { DOWNLOAD_WAITING, DOWNLOAD_READY, DOWNLOAD_FAILED };

static void transfer_released(void *user)
{
    struct storage *st = user;
    struct engine *g = st->engine;
    storage_unref(st);
    atomic_fetch_sub(&g->jobs, 1);
}

void transfer_end(struct transfer *t, struct storage *take_st)
{
    struct engine *g = take_st->engine;
    if (!t) {
        storage_unref(take_st);
        return;
    }
    atomic_fetch_add(&g->jobs, 1);
    g->backend->ops->transfer_free(t, transfer_released, take_st);
}

/* Writers can use the storage again. Called as soon as the bytes are no longer wanted: a client
 * that has received the last of them and then writes to the array finds its memory free, although
 * the work behind the download may not have released it yet. */
static void download_unpin(struct download *d)
{
    if (!atomic_exchange(&d->unpinned, true))
        storage_unpin(d->reader.storage, &d->pin);
}

static void download_drop(struct download *d)
{
    if (atomic_fetch_sub(&d->refs, 1) != 1)
        return;
    download_unpin(d);
    transfer_end(d->transfer, d->reader.storage);
    wake_destroy(&d->wake);
    mem_free(d);
}

static void download_wake(void *user)
{
    struct download *d = user;
    wake_tell(&d->wake);
}

static void download_done(void *user, enum err_code result, double device_ms)
{
    struct download *d = user;
    struct engine *g = d->reader.storage->engine;
    engine_done *then = d->then;
    void *then_user = d->then_user;
    d->result = result == ERR_OK ? (enum err_code)atomic_load(&d->reader.storage->failed) : result;
    atomic_store(&d->state, d->result == ERR_OK ? DOWNLOAD_READY : DOWNLOAD_FAILED);
    download_wake(d);
    download_drop(d);
    atomic_fetch_sub(&g->jobs, 1);
    if (then)
        then(then_user, result, device_ms);
}

void download_given_up(struct download *d, const _Atomic bool *given_up)
{
    atomic_store(&d->reader.given_up, given_up);
}

/* The task reports its end to the download. */
static void attach(struct task *t, struct download *d)
{
    t->job.fetch = d->transfer;
    t->reader = &d->reader;
    t->done = download_done;
    t->user = d;
}

static bool settled(const struct storage *st)
{
    const struct backend_ops *ops = st->engine->backend->ops;
    return !st->writer.stream ||
           ops->passed((struct fence){st->writer.stream->stream, st->writer.seq});
}

bool array_is_settled(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    bool is = settled(buffer_storage(a->buffer));
    pthread_mutex_unlock(&g->lock);
    return is;
}

/* With the lock held: opens the access to the storage's contents. */
static enum err_code open_storage(struct download *d, struct storage *st, struct account *reader,
                                  struct err *e)
{
    lock_held(&st->engine->lock);
    struct backend *b = st->engine->backend;
    enum err_code code = storage_pin(st, &d->pin, reader, e);
    if (code != ERR_OK)
        return code;
    if (storage_is_remote(st) && view_size(&d->packing.view) > 0) {
        code = b->ops->download_new(b, st->device, st->data, &d->packing.view, d->packing.itemsize,
                                    download_wake, d, &d->transfer, e);
        if (code != ERR_OK) {
            storage_unpin(st, &d->pin);
            return code;
        }
    } else {
        d->bytes = st->host ? st->data : b->ops->host(b, st->data);
    }
    d->reader.storage = storage_ref(st);
    return ERR_OK;
}

/* With the lock held: a job ordered behind all work that the storage waits for. NULL without
 * memory. */
static struct task *waiting_task(struct engine_stream *s, struct download *d)
{
    lock_held(&s->engine->lock);
    struct task *t = task_new(s);
    if (!t || !task_use(t, d->reader.storage, false) || !task_reserve(t)) {
        task_free(t);
        return NULL;
    }
    attach(t, d);
    return t;
}

static struct download *allocate(const struct view *v, size_t itemsize, void (*wake)(void *user),
                                 void *user)
{
    struct download *d = mem_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->packing = packing_of(v, itemsize);
    wake_init(&d->wake, wake, user);
    atomic_init(&d->refs, 1);
    atomic_init(&d->state, DOWNLOAD_WAITING);
    return d;
}

/* Frees a download that has no storage yet. */
static void deallocate(struct download *d)
{
    wake_destroy(&d->wake);
    mem_free(d);
}

enum err_code download_of_task(struct task *t, struct storage *st, int64_t n,
                               void (*wake)(void *user), void *user, struct download **ret,
                               struct err *e)
{
    lock_held(&st->engine->lock);
    const struct view v = {.rank = 1, .shape = {n}, .strides = {1}};
    struct download *d = allocate(&v, 1, wake, user);
    if (!d)
        return err_oom(e);
    enum err_code code = open_storage(d, st, t->stream->account, e);
    if (code != ERR_OK) {
        deallocate(d);
        return code;
    }
    d->waited = true;
    d->then = t->done;
    d->then_user = t->user;
    attach(t, d);
    atomic_fetch_add(&d->refs, 1);
    atomic_fetch_add(&t->stream->engine->jobs, 1); /* as in download_new */
    *ret = d;
    return ERR_OK;
}

void download_undo(struct download *d)
{
    if (!d)
        return;
    struct engine *g = d->reader.storage->engine;
    download_drop(d);
    download_free(d);
    atomic_fetch_sub(&g->jobs, 1);
}

enum err_code download_new(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                           void *user, struct download **ret, struct err *e)
{
    struct engine *g = s->engine;
    struct account *reader = s->account;
    TRY(engine_visit(&s, a->buffer->device, e));
    struct download *d = allocate(&a->view, dtype_size(a->dtype), wake, user);
    if (!d)
        return err_oom(e);
    d->loose_bool = a->dtype == DT_BOOL && atomic_load(&a->buffer->loose_bool);

    buffer_touch(a->buffer);
    pthread_mutex_lock(&g->lock);
    struct storage *st = buffer_storage(a->buffer);
    d->waited = !settled(st);
    struct task *t = NULL;
    enum err_code code = open_storage(d, st, reader, e);
    if (code == ERR_OK && d->waited) {
        t = waiting_task(s, d);
        code = t ? ERR_OK : err_oom(e);
    }
    if (code != ERR_OK) {
        pthread_mutex_unlock(&g->lock);
        if (d->reader.storage) {
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
        atomic_fetch_add(&g->jobs, 1); /* until download_done has released the storage */
        (void)task_submit(t);          /* done reports it */
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

/* The bytes are only read, so the buffer need not know of this view: it lives here. */
enum err_code download_buffer(struct engine_stream *s, struct array *a, void (*wake)(void *user),
                              void *user, struct download **ret, struct err *e)
{
    struct array bytes = {.buffer = a->buffer,
                          .dtype = DT_U8,
                          .view = {.rank = 1, .shape = {a->buffer->nbytes}, .strides = {1}}};
    return download_new(s, &bytes, wake, user, ret, e);
}

enum err_code download_result(const struct download *d)
{
    return d->result;
}

void download_reason(const struct download *d, char ret[DOWNLOAD_REASON])
{
    engine_reason(d->reader.storage->engine, download_result(d),
                  atomic_load(&d->reader.storage->refusal), ret);
}

void download_free(struct download *d)
{
    if (!d)
        return;
    wake_leave(&d->wake);
    download_unpin(d);
    atomic_store(&d->reader.left, true);
    download_drop(d);
}

uint64_t download_version(const struct download *d)
{
    return d->version;
}

double download_device_ms(const struct download *d, bool own)
{
    return own || d->waited ? atomic_load(&d->reader.storage->written_ms) : 0;
}

double array_device_ms(const struct array *a)
{
    struct engine *g = a->buffer->engine;
    pthread_mutex_lock(&g->lock);
    const double ms = atomic_load(&buffer_storage(a->buffer)->written_ms);
    pthread_mutex_unlock(&g->lock);
    return ms;
}

double download_compile_ms(const struct download *d, bool own)
{
    return own || d->waited ? atomic_load(&d->reader.storage->compile_ms) : 0;
}

unsigned download_tiers(const struct download *d, bool own)
{
    return own || d->waited ? atomic_load(&d->reader.storage->tiers) : 0;
}

static int64_t pull_transfer(struct download *d, int64_t offset, void *buf, size_t n)
{
    struct backend *b = d->reader.storage->engine->backend;
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
