/* Uploads: the caller fills a slab; when it is full its copy is queued and the caller continues
 * with the next one. Locks: see transfer.c. */
#include "compute/gpu/transfer/transfer.h"

#include <assert.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/gpu/device/stream.h"

#define HOLD 4 /* slabs per transfer */

/* Queues the copy of the slab being filled; one that cannot be sent goes to *back. */
static void send(struct transfer *t, struct slab **back)
{
    lock_held(&t->lock);
    struct slab *b = t->filling;
    struct cuda *c = t->device->cuda;
    t->filling = NULL;
    b->from = t->next;
    b->n = t->fill;
    t->next += (int64_t)t->fill;
    t->fill = 0;
    enum err_code code = t->failed;
    if (code == ERR_OK && !cuda_enter(b->lane->device))
        code = ERR_DEVICE_LOST;
    if (code == ERR_OK)
        code = cuda_check(c,
                          c->driver->cuMemcpyHtoDAsync(t->to + (uint64_t)b->from, b->bytes, b->n,
                                                       lane_stream(b->lane)),
                          "cuMemcpyHtoDAsync", NULL);
    if (code == ERR_OK)
        code = transfer_watch(t, b);
    if (code != ERR_OK) {
        t->failed = code;
        t->held--;
        transfer_give(back, b);
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
        struct lane *l = transfer_lane(t, t->to + (uint64_t)t->next);
        if (t->held < HOLD && !(t->held && slab_contended(l->device->slabs, class)))
            t->failed = lane_get(l, class, true, &t->filling);
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
    transfer_leave(t, back, false);
}

/* The event may be destroyed once the stream knows of it, so it lives no longer than this call. */
static enum err_code join(const struct lane *l, struct backend_stream *s, struct err *e)
{
    struct cuda *c = l->device->cuda;
    CUevent event;
    TRY(cuda_entered(l->device, e));
    TRY(cuda_check(c, c->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate",
                   e));
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(event, lane_stream(l)), "cuEventRecord", e);
    if (code == ERR_OK)
        code = cuda_stream_wait_event(s, event, e);
    (void)cuda_check(c, c->driver->cuEventDestroy(event), "cuEventDestroy", NULL);
    return code;
}

enum err_code cuda_upload_join(struct transfer *t, struct backend_stream *s, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    assert(t->next == t->total && !t->filling);
    enum err_code code = t->failed;
    bool under_way = t->held > 0;
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        return err_set(e, code,
                       code == ERR_OUT_OF_MEMORY
                           ? "the device ran out of memory while copying the data"
                           : "the device failed while copying the data");
    for (int k = 0; k < t->n_lanes && under_way && code == ERR_OK; k++)
        code = join(&t->lanes[k], s, e);
    return code;
}

static void upload_granted(struct slab_user *u, struct slab *b)
{
    struct lane *l = (struct lane *)u;
    struct transfer *t = l->transfer;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (!b) {
        t->failed = ERR_DEVICE_LOST;
    } else {
        b->lane = l;
        if (t->dead || t->filling || t->failed != ERR_OK || t->next == t->total) {
            transfer_give(&back, b);
        } else {
            t->filling = b;
            t->held++;
        }
    }
    transfer_leave(t, back, true);
}

static void upload_copied(struct slab_user *u, struct slab *b, enum err_code result)
{
    struct transfer *t = ((struct lane *)u)->transfer;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    t->held--;
    if (result != ERR_OK && t->failed == ERR_OK)
        t->failed = result;
    transfer_give(&back, b);
    transfer_leave(t, back, true);
}

static void upload_reclaim(struct slab_user *u, uint64_t before)
{
    struct lane *l = (struct lane *)u;
    struct transfer *t = l->transfer;
    struct slab *back = NULL;
    pthread_mutex_lock(&t->lock);
    if (t->filling && t->filling->lane == l && !t->busy && t->active < before) {
        if (t->fill) {
            send(t, &back);
        } else {
            transfer_give(&back, t->filling);
            t->filling = NULL;
            t->held--;
        }
        slab_reclaimed(l->device->slabs, 1);
    }
    transfer_leave(t, back, false);
}

enum err_code cuda_upload_new(struct backend *b, int device, void *to, int64_t n,
                              void (*wake)(void *user), void *user, struct transfer **ret,
                              struct err *e)
{
    static const struct slab_user calls = {
        .granted = upload_granted, .copied = upload_copied, .reclaim = upload_reclaim};
    struct transfer *t;
    TRY(transfer_new(b, device, to, n, true, &calls, wake, user, &t, e));
    t->to = (CUdeviceptr)(uintptr_t)to;
    *ret = t;
    return ERR_OK;
}
