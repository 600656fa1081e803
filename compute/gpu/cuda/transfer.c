/* Uploads and downloads, a slab at a time, so that the network and the bus work side by side and no
 * transfer needs host memory of its own size.
 *
 * Upload: the caller fills a slab; when it is full its copy is queued and the caller goes on with
 * the next one. Download: up to three slabs are filled ahead of the reader. The first one is small,
 * so that a reply can begin after microseconds, and may be queued behind a job's kernels on the
 * job's own stream, so that evaluating and answering a small expression is one trip to the device.
 *
 * A slow client must not sit on what others need: while somebody waits for a slab a transfer takes
 * no second one, and one that has not moved for a while gives its slabs back (slab.h, reclaim): an
 * upload sends on what it has, a download reads its contents again when it goes on.
 *
 * Locks: transfer->lock covers everything but wake and is never held while something of the
 * caller's runs, or while a slab is given back (which may call into another transfer). wake_lock is
 * held while the caller is woken, so that a wake is over when transfer_free returns. Bytes are
 * copied without either: a transfer is `busy` meanwhile and its slabs are left alone. */
#include <assert.h>
#include <sched.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/gpu/cuda/pack.h"
#include "compute/gpu/cuda/slab.h"
#include "compute/gpu/cuda/stream.h"
#include "compute/gpu/cuda/transfer.h"

#define AHEAD   3               /* slabs of a download, filled or being filled */
#define HOLD    4               /* slabs of a transfer */
#define SPIN_NS UINT64_C(20000) /* what a pull may wait for a small copy: it takes about 6 µs */

enum { FILLING, BEHIND_JOB, READY };

struct transfer {
    struct slab_user user; /* first */
    struct cuda_device *device;
    bool up;
    int queue;
    int64_t total; /* bytes */
    void (*released)(void *user);
    void *released_user;

    pthread_mutex_t wake_lock;
    void (*wake)(void *user); /* NULL: freed */
    void *wake_user;

    pthread_mutex_t lock;
    enum err_code failed;
    bool hungry; /* somebody will only go on after a wake */
    bool busy;   /* the caller is reading or writing slabs */
    bool dead;
    uint64_t active; /* when the caller was last here, clock_ns */
    int held;
    int64_t next; /* upload: where `filling` starts; download: first byte no slab was asked for */

    /* upload */
    CUdeviceptr to;
    struct slab *filling;
    size_t fill;

    /* download */
    struct pack pack;
    bool started, small_first;
    struct slab *head, **tail; /* in order, adjoining; the last ends at `next` */
    struct slab *unused;       /* what a job's launch could not use, to be given back after it */
};

static struct slabs *slabs_of(const struct transfer *t)
{
    return t->device->slabs;
}

static void wake(struct transfer *t)
{
    pthread_mutex_lock(&t->wake_lock);
    if (t->wake)
        t->wake(t->wake_user);
    pthread_mutex_unlock(&t->wake_lock);
}

/* With the lock, which it gives up: slabs go back, and the caller is woken if he waits for what
 * there is now. */
static void leave(struct transfer *t, struct slab *back, bool news)
{
    bool tell = news && t->hungry;
    if (tell)
        t->hungry = false;
    pthread_mutex_unlock(&t->lock);
    while (back) {
        struct slab *b = back;
        back = b->behind;
        slab_put(slabs_of(t), b);
    }
    if (tell)
        wake(t);
}

static void give(struct slab **back, struct slab *b)
{
    b->behind = *back;
    *back = b;
}

/* An event behind the slab's copy; where there can be none, for want of memory, the copy is waited
 * for: 4 MiB, and what is before it in its queue. */
static enum err_code watch(struct transfer *t, struct slab *b, CUstream on)
{
    struct cuda *c = t->device->cuda;
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(b->event, on), "cuEventRecord", NULL);
    if (code == ERR_OK)
        slab_watch(slabs_of(t), &t->user, b, t->queue);
    else if (!atomic_load(&c->lost))
        (void)cuda_check(c, c->driver->cuStreamSynchronize(on), "cuStreamSynchronize", NULL);
    return code;
}

static void destroy(struct slab_user *u)
{
    struct transfer *t = (struct transfer *)u;
    if (t->released)
        t->released(t->released_user);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->wake_lock);
    mem_free(t);
}

/* --- uploads --- */

/* The slab being filled is on its way; one that cannot be goes to *back. */
static void send(struct transfer *t, struct slab **back)
{
    struct slab *b = t->filling;
    struct cuda *c = t->device->cuda;
    t->filling = NULL;
    b->from = t->next;
    b->n = t->fill;
    t->next += (int64_t)t->fill;
    t->fill = 0;
    CUstream on = slab_stream(slabs_of(t), t->queue);
    enum err_code code = t->failed;
    if (code == ERR_OK && !cuda_enter(t->device))
        code = ERR_DEVICE_LOST;
    if (code == ERR_OK)
        code = cuda_check(
            c, c->driver->cuMemcpyHtoDAsync(t->to + (uint64_t)b->from, b->bytes, b->n, on),
            "cuMemcpyHtoDAsync", NULL);
    if (code == ERR_OK)
        code = watch(t, b, on);
    if (code != ERR_OK) {
        t->failed = code;
        t->held--;
        give(back, b);
    }
}

static enum slab_class upload_class(const struct transfer *t)
{
    return t->total - t->next <= (int64_t)SLAB_SMALL_SIZE ? SLAB_SMALL : SLAB_BULK;
}

void *cuda_upload_reserve(struct transfer *t, size_t *ret_n)
{
    void *p = NULL;
    *ret_n = 0;
    pthread_mutex_lock(&t->lock);
    t->active = clock_ns();
    if (!t->filling && t->failed == ERR_OK && t->next < t->total) {
        enum slab_class class = upload_class(t);
        if (t->held < HOLD && !(t->held && slab_contended(slabs_of(t), class)))
            t->failed = slab_get(slabs_of(t), &t->user, class, true, &t->filling);
        t->held += t->filling != NULL;
    }
    if (t->filling && t->failed == ERR_OK) {
        int64_t left = t->total - t->next;
        size_t end = left < (int64_t)t->filling->size ? (size_t)left : t->filling->size;
        *ret_n = end - t->fill;
        p = t->filling->bytes + t->fill;
        t->busy = true;
    } else {
        t->hungry = true;
    }
    pthread_mutex_unlock(&t->lock);
    return p;
}

void cuda_upload_advance(struct transfer *t, size_t n)
{
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    t->busy = false;
    t->active = clock_ns();
    t->fill += n;
    if (t->filling && (t->fill == t->filling->size || t->next + (int64_t)t->fill == t->total))
        send(t, &back);
    leave(t, back, false);
}

/* The event may go when the stream knows of it, so it lives no longer than this call. */
static enum err_code join(struct transfer *t, struct stream *s, struct err *e)
{
    struct cuda *c = t->device->cuda;
    CUevent event;
    if (!cuda_enter(t->device))
        return err_set(e, ERR_DEVICE_LOST, "device %d is lost", t->device->index);
    enum err_code code = cuda_check(c, c->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
                                    "cuEventCreate", e);
    if (code != ERR_OK)
        return code;
    code = cuda_check(c, c->driver->cuEventRecord(event, slab_stream(slabs_of(t), t->queue)),
                      "cuEventRecord", e);
    if (code == ERR_OK)
        code = cuda_stream_wait_event(s, event, e);
    (void)cuda_check(c, c->driver->cuEventDestroy(event), "cuEventDestroy", NULL);
    return code;
}

enum err_code cuda_upload_join(struct transfer *t, struct stream *s, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    assert(t->next == t->total && !t->filling);
    enum err_code code = t->failed;
    bool under_way = t->held > 0;
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        return err_set(e, code,
                       code == ERR_OUT_OF_MEMORY ? "the device had no memory to copy the data"
                                                 : "the device failed while the data were copied");
    return under_way ? join(t, s, e) : ERR_OK;
}

static void upload_granted(struct slab_user *u, struct slab *b)
{
    struct transfer *t = (struct transfer *)u;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (!b) {
        t->failed = ERR_DEVICE_LOST;
    } else if (t->dead || t->filling || t->failed != ERR_OK || t->next == t->total) {
        give(&back, b);
    } else {
        t->filling = b;
        t->held++;
    }
    leave(t, back, true);
}

static void upload_copied(struct slab_user *u, struct slab *b, enum err_code result)
{
    struct transfer *t = (struct transfer *)u;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    t->held--;
    if (result != ERR_OK && t->failed == ERR_OK)
        t->failed = result;
    give(&back, b);
    leave(t, back, true);
}

static void upload_reclaim(struct slab_user *u, uint64_t before)
{
    struct transfer *t = (struct transfer *)u;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->filling && !t->busy && t->active < before) {
        if (t->fill) {
            send(t, &back);
        } else {
            give(&back, t->filling);
            t->filling = NULL;
            t->held--;
        }
        slab_reclaimed(slabs_of(t), 1);
    }
    leave(t, back, false);
}

/* --- downloads --- */

static enum slab_class download_class(const struct transfer *t)
{
    return t->small_first || t->total - t->next <= (int64_t)SLAB_SMALL_SIZE ? SLAB_SMALL
                                                                            : SLAB_BULK;
}

/* The next bytes into the slab: queued on `on`, at the end of the list. False: t->failed. */
static bool fetch(struct transfer *t, struct slab *b, CUstream on, bool behind_job)
{
    struct cuda *c = t->device->cuda;
    int64_t left = t->total - t->next, size = (int64_t)t->pack.itemsize;
    b->from = t->next;
    b->n = left < (int64_t)b->size ? (size_t)left : b->size;
    b->state = behind_job ? BEHIND_JOB : FILLING;
    enum err_code code = cuda_enter(t->device) ? ERR_OK : ERR_DEVICE_LOST;
    if (code == ERR_OK && t->pack.rank)
        code = pack_launch(t->device, &t->pack, b->from / size, (int64_t)b->n / size, b->bytes, on);
    else if (code == ERR_OK)
        code = cuda_check(
            c, c->driver->cuMemcpyDtoHAsync(b->bytes, t->pack.from + (uint64_t)b->from, b->n, on),
            "cuMemcpyDtoHAsync", NULL);
    if (code == ERR_OK && !behind_job)
        code = watch(t, b, on);
    if (code != ERR_OK) {
        t->failed = code;
        return false;
    }
    t->small_first = false;
    t->next += (int64_t)b->n;
    t->held++;
    b->behind = NULL;
    *t->tail = b;
    t->tail = &b->behind;
    return true;
}

/* Keeps slabs on their way; one that cannot be used goes to *back. */
static void read_ahead(struct transfer *t, struct slab **back)
{
    while (t->started && !t->dead && t->failed == ERR_OK && t->next < t->total && t->held < AHEAD) {
        enum slab_class class = download_class(t);
        struct slab *b = NULL;
        if (t->held && slab_contended(slabs_of(t), class))
            return;
        t->failed = slab_get(slabs_of(t), &t->user, class, true, &b);
        if (!b)
            return;
        if (!fetch(t, b, slab_stream(slabs_of(t), t->queue), false))
            give(back, b);
    }
}

static void drop_head(struct transfer *t, struct slab **back)
{
    struct slab *b = t->head;
    t->head = b->behind;
    if (!t->head)
        t->tail = &t->head;
    t->held--;
    give(back, b);
}

/* Forgets what was read ahead; goes on from the element with this byte. */
static void seek(struct transfer *t, int64_t offset, struct slab **back)
{
    while (t->head)
        drop_head(t, back);
    t->next = offset - offset % (int64_t)t->pack.itemsize;
    t->small_first = true;
}

/* Whether the first slab's bytes are there. */
static bool head_ready(struct transfer *t)
{
    struct slab *b = t->head;
    const struct driver *cu = t->device->cuda->driver;
    if (!b || b->state == BEHIND_JOB)
        return false;
    uint64_t until = b->state == FILLING && b->class == SLAB_SMALL ? clock_ns() + SPIN_NS : 0;
    while (b->state == FILLING) { /* the copy thread will tell, but a moment later */
        if (atomic_load(&t->device->cuda->lost) || !cuda_enter(t->device))
            return false;
        if (cu->cuEventQuery(b->event) == CUDA_SUCCESS)
            b->state = READY;
        else if (clock_ns() >= until)
            return false;
    }
    return true;
}

static void download_copied(struct slab_user *u, struct slab *slab, enum err_code result)
{
    struct transfer *t = (struct transfer *)u;
    pthread_mutex_lock(&t->lock);
    for (struct slab *b = t->head; b; b = b->behind)
        if (b == slab)
            b->state = READY;
    if (result != ERR_OK && t->failed == ERR_OK)
        t->failed = result;
    leave(t, NULL, t->failed != ERR_OK || (t->head && t->head->state == READY));
}

static void download_granted(struct slab_user *u, struct slab *b)
{
    struct transfer *t = (struct transfer *)u;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (!b)
        t->failed = ERR_DEVICE_LOST;
    else if (t->dead || !t->started || t->failed != ERR_OK || t->next >= t->total ||
             t->held >= AHEAD || !fetch(t, b, slab_stream(slabs_of(t), t->queue), false))
        give(&back, b);
    read_ahead(t, &back);
    leave(t, back, t->failed != ERR_OK);
}

static void download_reclaim(struct slab_user *u, uint64_t before)
{
    struct transfer *t = (struct transfer *)u;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->head && !t->busy && !t->hungry && t->active < before && t->head->state != BEHIND_JOB) {
        slab_reclaimed(slabs_of(t), t->held);
        seek(t, t->head->from, &back);
        t->started = false; /* until the next pull */
    }
    leave(t, back, false);
}

void cuda_download_start(struct transfer *t)
{
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    t->started = true;
    t->active = clock_ns();
    read_ahead(t, &back);
    leave(t, back, t->failed != ERR_OK);
}

void cuda_transfer_launch(struct transfer *t, CUstream on)
{
    struct slab *b = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->failed == ERR_OK && !t->head && t->next < t->total)
        t->failed = slab_get(slabs_of(t), &t->user, SLAB_SMALL, false, &b);
    if (b && !fetch(t, b, on, true))
        t->unused = b; /* device->lock is held: giving it back may call into other transfers */
    pthread_mutex_unlock(&t->lock);
}

void cuda_transfer_fetched(struct transfer *t, enum err_code result)
{
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->unused)
        give(&back, t->unused);
    t->unused = NULL;
    if (result != ERR_OK && t->failed == ERR_OK)
        t->failed = result;
    if (t->head && t->head->state == BEHIND_JOB) {
        t->head->state = READY;
        if (result != ERR_OK)
            seek(t, 0, &back);
    }
    t->started = true;
    t->active = clock_ns();
    read_ahead(t, &back);
    leave(t, back, t->failed != ERR_OK || (t->head && t->head->state == READY));
}

/* Up to n bytes out of the slabs that are there. The lock is let go for the copying: nobody else
 * takes slabs from a busy transfer. */
static int64_t drain(struct transfer *t, int64_t offset, char *to, size_t n, struct slab **back)
{
    size_t done = 0;
    while (done < n && t->failed == ERR_OK && head_ready(t)) {
        struct slab *b = t->head;
        size_t at = (size_t)(offset + (int64_t)done - b->from);
        size_t k = b->n - at < n - done ? b->n - at : n - done;
        t->busy = true;
        pthread_mutex_unlock(&t->lock);
        memcpy(to + done, b->bytes + at, k);
        pthread_mutex_lock(&t->lock);
        t->busy = false;
        done += k;
        if (at + k == b->n)
            drop_head(t, back);
    }
    return (int64_t)done;
}

int64_t cuda_download_pull(struct transfer *t, int64_t offset, void *buf, size_t n)
{
    struct slab *back = NULL, *none = NULL;
    int64_t got = 0;
    if (offset >= t->total)
        return 0;
    pthread_mutex_lock(&t->lock);
    t->active = clock_ns();
    const bool behind_job = t->head && t->head->state == BEHIND_JOB;
    if (!behind_job) {
        t->started = true;
        int64_t from = t->head ? t->head->from : t->next;
        if (offset < from || offset > t->next)
            seek(t, offset, &back);
        while (t->head && offset >= t->head->from + (int64_t)t->head->n)
            drop_head(t, &back);
        read_ahead(t, &none);
        got = drain(t, offset, buf, n, &back);
    }
    leave(t, back, false);
    pthread_mutex_lock(&t->lock);
    t->started |= !behind_job; /* what was read ahead may have been reclaimed between the two */
    read_ahead(t, &none);      /* after giving back: those in line go first */
    if (got == 0 && t->failed != ERR_OK)
        got = -1;
    t->hungry = got == 0;
    /* what came between the two looks */
    bool again = t->hungry && t->head && t->head->state == READY;
    leave(t, none, again);
    return got;
}

/* --- both --- */

static enum err_code transfer_new(struct backend *b, int device, int64_t total, bool up,
                                  void (*wake_fn)(void *user), void *user, struct transfer **ret,
                                  struct err *e)
{
    struct transfer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_oom(e);
    t->device = &((struct cuda *)b)->devices[device];
    if (atomic_load(&t->device->cuda->lost)) {
        mem_free(t);
        return err_set(e, ERR_DEVICE_LOST, "device %d is lost", device);
    }
    bool small = total <= (int64_t)SLAB_SMALL_SIZE;
    t->up = up;
    t->total = total;
    t->wake = wake_fn;
    t->wake_user = user;
    t->tail = &t->head;
    t->small_first = true;
    t->active = clock_ns();
    pthread_mutex_init(&t->lock, NULL); /* cannot fail here */
    pthread_mutex_init(&t->wake_lock, NULL);
    t->user.granted = up ? upload_granted : download_granted;
    t->user.copied = up ? upload_copied : download_copied;
    t->user.reclaim = up ? upload_reclaim : download_reclaim;
    t->user.destroy = destroy;
    slab_user_add(slabs_of(t), &t->user);
    t->queue = slab_queue_for(slabs_of(t), up, small);
    *ret = t;
    return ERR_OK;
}

enum err_code cuda_upload_new(struct backend *b, int device, void *to, int64_t n,
                              void (*wake_fn)(void *user), void *user, struct transfer **ret,
                              struct err *e)
{
    struct transfer *t;
    enum err_code code = transfer_new(b, device, n, true, wake_fn, user, &t, e);
    if (code != ERR_OK)
        return code;
    t->to = (CUdeviceptr)(uintptr_t)to;
    *ret = t;
    return ERR_OK;
}

enum err_code cuda_download_new(struct backend *b, int device, void *from, const struct view *view,
                                size_t itemsize, void (*wake_fn)(void *user), void *user,
                                struct transfer **ret, struct err *e)
{
    struct transfer *t;
    int64_t total = view_size(view) * (int64_t)itemsize;
    enum err_code code = transfer_new(b, device, total, false, wake_fn, user, &t, e);
    if (code != ERR_OK)
        return code;
    pack_init(&t->pack, from, view, itemsize);
    *ret = t;
    return ERR_OK;
}

enum err_code cuda_transfer_result(struct transfer *t)
{
    pthread_mutex_lock(&t->lock);
    enum err_code code = t->failed;
    pthread_mutex_unlock(&t->lock);
    return code;
}

void cuda_transfer_free(struct transfer *t, void (*released)(void *user), void *user)
{
    struct slab *back = NULL;
    if (!t)
        return;
    pthread_mutex_lock(&t->wake_lock);
    t->wake = NULL;
    pthread_mutex_unlock(&t->wake_lock);
    pthread_mutex_lock(&t->lock);
    t->dead = true;
    t->released = released;
    t->released_user = user;
    if (t->filling) {
        give(&back, t->filling);
        t->filling = NULL;
    }
    while (t->head)
        drop_head(t, &back);
    leave(t, back, false);
    slab_user_remove(slabs_of(t), &t->user);
}
