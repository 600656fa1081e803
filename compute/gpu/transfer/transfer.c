/* What uploads and downloads share: creation and destruction, waking the caller, returning slabs.
 *
 * Bytes pass one slab at a time, so that the network and the bus work in parallel and no transfer
 * needs host memory of its own size. A slow client must not hold what others need: while another
 * user waits for a slab, a transfer takes no second one, and one that has not moved for a while
 * returns its slabs (slab.h, reclaim): an upload sends on what it has, a download reads the
 * contents again when it continues.
 *
 * On a mesh, what lies on a GPU passes through that one's slabs: so GPUs copy side by side, each
 * over its own link to the host, for the users that are there at once. A slab is read or written
 * where it begins; its end may be the next one's.
 *
 * Locks: transfer->lock covers everything but wake, and is never held while the caller's functions
 * run or a slab is returned (which may call into another transfer). Bytes are copied without it: a
 * transfer is `busy` meanwhile and its slabs are left alone. */
#include "compute/gpu/transfer/transfer.h"

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"

void transfer_leave(struct transfer *t, struct slab *back, bool news)
{
    lock_held(&t->lock);
    bool tell = news && t->hungry;
    if (tell)
        t->hungry = false;
    pthread_mutex_unlock(&t->lock);
    while (back) {
        struct slab *b = back;
        back = b->behind;
        slab_put(b->lane->device->slabs, b);
    }
    if (tell)
        wake_tell(&t->wake);
}

struct lane *transfer_lane(struct transfer *t, CUdeviceptr at)
{
    return &t->lanes[mesh_member(&t->home, at)];
}

enum err_code lane_get(struct lane *l, enum slab_class class, bool wait, struct slab **ret)
{
    const enum err_code code = slab_get(l->device->slabs, &l->user, class, wait, ret);
    if (code == ERR_OK && *ret)
        (*ret)->lane = l;
    return code;
}

enum err_code transfer_watch(struct transfer *t, struct slab *b)
{
    struct cuda *c = t->device->cuda;
    const CUstream on = lane_stream(b->lane);
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(b->event, on), "cuEventRecord", NULL);
    if (code == ERR_OK)
        slab_watch(b->lane->device->slabs, &b->lane->user, b, b->lane->queue);
    else if (!atomic_load(&c->lost))
        (void)cuda_check(c, c->driver->cuStreamSynchronize(on), "cuStreamSynchronize", NULL);
    return code;
}

static void destroy(struct slab_user *u)
{
    struct transfer *t = ((struct lane *)u)->transfer;
    if (atomic_fetch_sub(&t->users, 1) != 1)
        return;
    if (t->released)
        t->released(t->released_user);
    pthread_mutex_destroy(&t->lock);
    wake_destroy(&t->wake);
    mem_free(t);
}

enum err_code transfer_new(struct backend *b, int device, const void *at, int64_t total, bool up,
                           const struct slab_user *calls, void (*wake)(void *user), void *user,
                           struct transfer **ret, struct err *e)
{
    struct cuda_device *d = &((struct cuda *)b)->devices[device];
    const struct mesh_home home = mesh_home(d, at);
    const int n = home.share || home.on[0] ? d->n_members : 1;
    struct transfer *t = mem_calloc(1, sizeof *t + (size_t)n * sizeof *t->lanes);
    if (!t)
        return err_oom(e);
    t->device = d;
    t->home = home;
    if (atomic_load(&t->device->cuda->lost)) {
        mem_free(t);
        return err_set(e, ERR_DEVICE_LOST, "device %d is lost", device);
    }
    bool small = total <= (int64_t)SLAB_SMALL_SIZE;
    t->total = total;
    wake_init(&t->wake, wake, user);
    t->tail = &t->head;
    t->small_first = true;
    t->active = clock_ns();
    pthread_mutex_init(&t->lock, NULL); /* cannot fail here */
    t->n_lanes = n;
    atomic_init(&t->users, n);
    for (int k = 0; k < n; k++) {
        struct cuda_device *m = d->members[k];
        t->lanes[k] = (struct lane){.user = *calls,
                                    .transfer = t,
                                    .device = m,
                                    .queue = slab_queue_for(m->slabs, up, small)};
        t->lanes[k].user.destroy = destroy;
    }
    for (int k = 0; k < n; k++)
        slab_user_add(t->lanes[k].device->slabs, &t->lanes[k].user);
    *ret = t;
    return ERR_OK;
}

void transfer_drop_head(struct transfer *t, struct slab **back)
{
    lock_held(&t->lock);
    struct slab *b = t->head;
    t->head = b->behind;
    if (!t->head)
        t->tail = &t->head;
    t->held--;
    transfer_give(back, b);
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
    wake_leave(&t->wake);
    pthread_mutex_lock(&t->lock);
    t->dead = true;
    t->released = released;
    t->released_user = user;
    if (t->filling) {
        transfer_give(&back, t->filling);
        t->filling = NULL;
    }
    while (t->head)
        transfer_drop_head(t, &back);
    transfer_leave(t, back, false);
    const int n = t->n_lanes; /* it may be gone behind the last */
    for (int k = 0; k < n; k++)
        slab_user_remove(t->lanes[k].device->slabs, &t->lanes[k].user);
}
