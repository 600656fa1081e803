/* Uploads (upload.c) and downloads (download.c): backend.h's functions, and what a job with a fetch
 * does.
 *
 * Called by cuda.c (for the engine), launch.c and queue.c. backend.h says what each does. */
#ifndef ARRAYD_CUDA_TRANSFER_H
#define ARRAYD_CUDA_TRANSFER_H

#include "compute/base/wake.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/transfer/pack.h"
#include "compute/gpu/transfer/slab.h"

enum err_code cuda_upload_new(struct backend *b, int device, void *to, int64_t n,
                              void (*wake)(void *user), void *user, struct transfer **ret,
                              struct err *e);
void *cuda_upload_reserve(struct transfer *t, size_t *ret_n);
void cuda_upload_advance(struct transfer *t, size_t n);
enum err_code cuda_upload_join(struct transfer *t, struct backend_stream *s, struct err *e);
enum err_code cuda_download_new(struct backend *b, int device, void *from, const struct view *view,
                                size_t itemsize, void (*wake)(void *user), void *user,
                                struct transfer **ret, struct err *e);
void cuda_download_start(struct transfer *t);
int64_t cuda_download_pull(struct transfer *t, int64_t offset, void *buf, size_t n);
enum err_code cuda_transfer_result(struct transfer *t);
void cuda_transfer_free(struct transfer *t, void (*released)(void *user), void *user);
/* For a job's fetch. launch: with the device entered, queues the first copies on `on` (behind the
 * job's kernels; does not wait). fetched: once the job is known to have run (or failed), from the
 * completion thread before done(). If no slab was free at launch, fetched() starts as
 * download_start would. */
void cuda_transfer_launch(struct transfer *t, CUstream on);
void cuda_transfer_fetched(struct transfer *t, enum err_code result);

/* --- what the two share: transfer.c --- */

/* A GPU's part in a transfer: the bytes that lie on it pass through its slabs and one of its copy
 * streams. */
struct lane {
    struct slab_user user; /* first */
    struct transfer *transfer;
    struct cuda_device *device;
    int queue;
};

struct transfer {
    struct cuda_device *device; /* whose memory it is */
    struct mesh_home home;      /* on which of its members that lies */
    int64_t total;              /* bytes */
    _Atomic int users;          /* lanes that are not destroyed */
    void (*released)(void *user);
    void *released_user;

    struct wake wake; /* of the owner, until it frees the transfer */

    pthread_mutex_t lock;
    enum err_code failed;
    bool hungry; /* the caller will only continue after a wake */
    bool busy;   /* the caller is reading or writing slabs */
    bool dead;
    uint64_t active; /* when the caller last called, clock_ns */
    int held;
    int64_t next; /* upload: where `filling` starts; download: first byte not yet requested */

    /* upload */
    CUdeviceptr to;
    struct slab *filling;
    size_t fill;

    /* download */
    struct pack pack;
    bool started, small_first;
    struct slab *head, **tail; /* in order, adjacent; the last ends at `next` */
    struct slab *unused;       /* what a job's launch could not use, to be returned after it */

    int n_lanes; /* one, or each member's */
    struct lane lanes[];
};

/* Of bytes in the memory at `at`. `calls`: slab.h's callbacks; their user is a lane's first member.
 */
enum err_code transfer_new(struct backend *b, int device, const void *at, int64_t total, bool up,
                           const struct slab_user *calls, void (*wake)(void *user), void *user,
                           struct transfer **ret, struct err *e) must_check;
/* The lane of the GPU that this byte lies on. */
struct lane *transfer_lane(struct transfer *t, CUdeviceptr at);
/* slab_get, of a lane's. */
enum err_code lane_get(struct lane *l, enum slab_class class, bool wait,
                       struct slab **ret) must_check;
static inline CUstream lane_stream(const struct lane *l)
{
    return slab_stream(l->device->slabs, l->queue);
}
/* With the lock, which it releases: returns slabs, and wakes the caller if it waits for what is now
 * available. */
void transfer_leave(struct transfer *t, struct slab *back, bool news);
/* Records an event behind the slab's copy, on its lane's stream; with that device entered. If there
 * is no memory for one, waits for the copy: 4 MiB, and what is before it in its queue. */
enum err_code transfer_watch(struct transfer *t, struct slab *b) must_check;
/* With the lock: moves the first slab of a download to *back. */
void transfer_drop_head(struct transfer *t, struct slab **back);

static inline void transfer_give(struct slab **back, struct slab *b)
{
    b->behind = *back;
    *back = b;
}

#endif
