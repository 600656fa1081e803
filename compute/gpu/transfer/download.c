/* Downloads: up to three slabs are filled ahead of the reader. The first one is small, so that a
 * reply can begin after microseconds. It may be queued behind a job's kernels on the job's own
 * stream, so that evaluating a small expression and answering take one round trip to the device.
 * Locks: see transfer.c. */
#include "compute/gpu/transfer/transfer.h"

#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"

#define AHEAD   3               /* slabs of a download, filled or being filled */
#define SPIN_NS UINT64_C(20000) /* a pull waits so long for a small copy (about 6 µs) */

enum { FILLING, BEHIND_JOB, READY };

static enum slab_class download_class(const struct transfer *t)
{
    return t->small_first || t->total - t->next <= (int64_t)SLAB_SMALL_SIZE ? SLAB_SMALL
                                                                            : SLAB_BULK;
}

/* The lane of the next bytes, by the first of them. */
static struct lane *next_lane(struct transfer *t)
{
    return transfer_lane(t, pack_at(&t->pack, t->next / (int64_t)t->pack.itemsize));
}

/* Reads the next bytes into the slab: queued on `job`, of the transfer's device, or (NULL) on the
 * lane's own stream, at the end of the list. False: t->failed. */
static bool fetch(struct transfer *t, struct slab *b, CUstream job)
{
    lock_held(&t->lock);
    struct cuda *c = t->device->cuda;
    struct cuda_device *d = job ? t->device : b->lane->device;
    const CUstream on = job ? job : lane_stream(b->lane);
    int64_t left = t->total - t->next, size = (int64_t)t->pack.itemsize;
    b->from = t->next;
    b->n = left < (int64_t)b->size ? (size_t)left : b->size;
    b->state = job ? BEHIND_JOB : FILLING;
    enum err_code code = cuda_enter(d) ? ERR_OK : ERR_DEVICE_LOST;
    if (code == ERR_OK && t->pack.rank)
        code = pack_launch(d, &t->pack, b->from / size, (int64_t)b->n / size, b->bytes, on);
    else if (code == ERR_OK)
        code = cuda_check(
            c, c->driver->cuMemcpyDtoHAsync(b->bytes, t->pack.from + (uint64_t)b->from, b->n, on),
            "cuMemcpyDtoHAsync", NULL);
    if (code == ERR_OK && !job)
        code = transfer_watch(t, b);
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

/* Keeps slabs in flight; one that cannot be used goes to *back. */
static void read_ahead(struct transfer *t, struct slab **back)
{
    lock_held(&t->lock);
    while (t->started && !t->dead && t->failed == ERR_OK && t->next < t->total && t->held < AHEAD) {
        enum slab_class class = download_class(t);
        struct lane *l = next_lane(t);
        struct slab *b = NULL;
        if (t->held && slab_contended(l->device->slabs, class))
            return;
        t->failed = lane_get(l, class, true, &b);
        if (!b)
            return;
        if (!fetch(t, b, NULL))
            transfer_give(back, b);
    }
}

/* Discards what was read ahead; continues from the element that holds this byte. */
static void seek(struct transfer *t, int64_t offset, struct slab **back)
{
    lock_held(&t->lock);
    while (t->head)
        transfer_drop_head(t, back);
    t->next = offset - offset % (int64_t)t->pack.itemsize;
    t->small_first = true;
}

/* Whether the first slab's bytes have arrived. */
static bool head_ready(struct transfer *t)
{
    lock_held(&t->lock);
    struct slab *b = t->head;
    const struct driver *cu = t->device->cuda->driver;
    if (!b || b->state == BEHIND_JOB)
        return false;
    uint64_t until = b->state == FILLING && b->class == SLAB_SMALL ? clock_ns() + SPIN_NS : 0;
    while (b->state == FILLING) { /* the copy thread will mark it, but a moment later */
        if (atomic_load(&t->device->cuda->lost) || !cuda_enter(b->lane->device))
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
    struct transfer *t = ((struct lane *)u)->transfer;
    pthread_mutex_lock(&t->lock);
    for (struct slab *b = t->head; b; b = b->behind)
        if (b == slab)
            b->state = READY;
    if (result != ERR_OK && t->failed == ERR_OK)
        t->failed = result;
    transfer_leave(t, NULL, t->failed != ERR_OK || (t->head && t->head->state == READY));
}

static void download_granted(struct slab_user *u, struct slab *b)
{
    struct transfer *t = ((struct lane *)u)->transfer;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (b)
        b->lane = (struct lane *)u;
    if (!b)
        t->failed = ERR_DEVICE_LOST;
    else if (t->dead || !t->started || t->failed != ERR_OK || t->next >= t->total ||
             t->held >= AHEAD || !fetch(t, b, NULL))
        transfer_give(&back, b);
    read_ahead(t, &back);
    transfer_leave(t, back, t->failed != ERR_OK);
}

static void download_reclaim(struct slab_user *u, uint64_t before)
{
    struct transfer *t = ((struct lane *)u)->transfer;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->head && !t->busy && !t->hungry && t->active < before && t->head->state != BEHIND_JOB) {
        slab_reclaimed(((struct lane *)u)->device->slabs, t->held);
        seek(t, t->head->from, &back);
        t->started = false; /* until the next pull */
    }
    transfer_leave(t, back, false);
}

void cuda_download_start(struct transfer *t)
{
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    t->started = true;
    t->active = clock_ns();
    read_ahead(t, &back);
    transfer_leave(t, back, t->failed != ERR_OK);
}

void cuda_transfer_launch(struct transfer *t, CUstream on)
{
    struct slab *b = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->failed == ERR_OK && !t->head && t->next < t->total)
        t->failed = lane_get(next_lane(t), SLAB_SMALL, false, &b);
    if (b && !fetch(t, b, on))
        t->unused = b; /* device->lock is held: returning it may call into other transfers */
    pthread_mutex_unlock(&t->lock);
}

void cuda_transfer_fetched(struct transfer *t, enum err_code result)
{
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->unused)
        transfer_give(&back, t->unused);
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
    transfer_leave(t, back, t->failed != ERR_OK || (t->head && t->head->state == READY));
}

/* Takes up to n bytes out of the filled slabs. The lock is released while copying: no other thread
 * takes slabs from a busy transfer. */
static int64_t drain(struct transfer *t, int64_t offset, char *to, size_t n, struct slab **back)
{
    lock_held(&t->lock);
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
            transfer_drop_head(t, back);
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
            transfer_drop_head(t, &back);
        read_ahead(t, &none);
        got = drain(t, offset, buf, n, &back);
    }
    transfer_leave(t, back, false);
    pthread_mutex_lock(&t->lock);
    t->started |= !behind_job; /* what was read ahead may have been reclaimed in between */
    read_ahead(t, &none);      /* after returning slabs: waiting users come first */
    if (got == 0 && t->failed != ERR_OK)
        got = -1;
    t->hungry = got == 0;
    /* data that arrived between the two looks */
    bool again = t->hungry && t->head && t->head->state == READY;
    transfer_leave(t, none, again);
    return got;
}

enum err_code cuda_download_new(struct backend *b, int device, void *from, const struct view *view,
                                size_t itemsize, void (*wake)(void *user), void *user,
                                struct transfer **ret, struct err *e)
{
    static const struct slab_user calls = {
        .granted = download_granted, .copied = download_copied, .reclaim = download_reclaim};
    struct transfer *t;
    int64_t total = view_size(view) * (int64_t)itemsize;
    TRY(transfer_new(b, device, from, total, false, &calls, wake, user, &t, e));
    pack_init(&t->pack, from, view, itemsize);
    *ret = t;
    return ERR_OK;
}
