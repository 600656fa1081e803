/* What uploads and downloads share: creation and destruction, waking the caller, returning slabs.
 *
 * Bytes pass one slab at a time, so that the network and the bus work in parallel and no transfer
 * needs host memory of its own size. A slow client must not hold what others need: while another
 * user waits for a slab, a transfer takes no second one, and one that has not moved for a while
 * returns its slabs (slab.h, reclaim): an upload sends on what it has, a download reads the
 * contents again when it continues.
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
        slab_put(t->device->slabs, b);
    }
    if (tell)
        wake_tell(&t->wake);
}

enum err_code transfer_watch(struct transfer *t, struct slab *b, CUstream on)
{
    struct cuda *c = t->device->cuda;
    enum err_code code =
        cuda_check(c, c->driver->cuEventRecord(b->event, on), "cuEventRecord", NULL);
    if (code == ERR_OK)
        slab_watch(t->device->slabs, &t->user, b, t->queue);
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
    wake_destroy(&t->wake);
    mem_free(t);
}

enum err_code transfer_new(struct backend *b, int device, int64_t total, bool up,
                           const struct slab_user *calls, void (*wake)(void *user), void *user,
                           struct transfer **ret, struct err *e)
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
    t->total = total;
    wake_init(&t->wake, wake, user);
    t->tail = &t->head;
    t->small_first = true;
    t->active = clock_ns();
    pthread_mutex_init(&t->lock, NULL); /* cannot fail here */
    t->user = *calls;
    t->user.destroy = destroy;
    slab_user_add(t->device->slabs, &t->user);
    t->queue = slab_queue_for(t->device->slabs, up, small);
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
    slab_user_remove(t->device->slabs, &t->user);
}
