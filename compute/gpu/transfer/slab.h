/* A device's pinned host memory, in slabs through which all bytes to and from it pass, and the
 * thread that notices when a slab's copy is done.
 *
 * Called by transfer.c, upload.c and download.c; opened by cuda.c. A slab belongs to the user that
 * got it until slab_put. When none is free a user waits in line; a returned slab goes to the first
 * in line, so no user starves. All functions are thread-safe and none waits for the device. */
#ifndef ARRAYD_CUDA_SLAB_H
#define ARRAYD_CUDA_SLAB_H

#include "compute/gpu/device/device.h"

/* Slabs and the thread that watches copies; open after the memory, close before it and before the
 * streams' context is released. Closing waits for copies in flight. */
enum err_code cuda_slabs_open(struct cuda_device *d, struct err *e) must_check;
void cuda_slabs_close(struct cuda_device *d);
struct cuda_slab_stats {
    int64_t bytes, free_bytes; /* pinned, and of these in no transfer */
    int64_t copies, waits;     /* totals: slabs copied; requests for a slab that had to wait */
    int64_t reclaimed;         /* slabs taken from transfers whose client stalled */
};
void cuda_slab_stats(struct cuda_device *d, struct cuda_slab_stats *ret);

enum slab_class { SLAB_SMALL, SLAB_BULK, SLAB_CLASSES };
#define SLAB_SMALL_SIZE ((size_t)64 << 10)
#define SLAB_BULK_SIZE  ((size_t)4 << 20)

struct lane;
struct slab_user;

struct slab {
    struct slab *next; /* slab.c's */
    char *bytes;       /* 4 KiB aligned */
    size_t size;
    enum slab_class class;
    CUevent event;          /* for the holder to record behind its copy */
    struct slab_user *user; /* the user whose copy is watched */
    bool watched, returned; /* returned: free once the copy is done */

    /* the holder's */
    struct slab *behind;
    struct lane *lane;
    int64_t from; /* bytes [from, from + n) of the transfer */
    size_t n;
    int state;
};

/* A user of slabs, which may hold some and wait for one; embedded in a transfer. Callbacks come
 * from any thread, without any lock of slab.c's, and must not block. */
struct slab_user {
    _Atomic uint32_t refs; /* the owner's, one per watched slab, one for a place in line */
    void (*granted)(struct slab_user *u, struct slab *take_slab); /* NULL: the device is lost */
    void (*copied)(struct slab_user *u, struct slab *slab, enum err_code result);
    /* Another user waits: return slabs not touched since `before` (clock_ns). */
    void (*reclaim)(struct slab_user *u, uint64_t before);
    void (*destroy)(struct slab_user *u); /* after the last reference */

    /* slab.c's */
    struct slab_user *prev, *next; /* all users */
    struct slab_user *next_waiting;
    uint64_t round;
    bool waiting;
    enum slab_class wants;
};

/* Adds a user with one reference; its callbacks are set. */
void slab_user_add(struct slabs *s, struct slab_user *u);
/* Removes the user from the line and the list; drops the reference. destroy() comes when its copies
 * are done. */
void slab_user_remove(struct slabs *s, struct slab_user *u);

/* A slab in *ret, or NULL: none is free, and with `wait` u gets a place in line (one at most), so
 * granted() will be called. ERR_DEVICE_LOST. */
enum err_code slab_get(struct slabs *s, struct slab_user *u, enum slab_class class, bool wait,
                       struct slab **ret);
/* Returns the slab, at once or when its copy is done. Do not hold a lock that granted() takes. */
void slab_put(struct slabs *s, struct slab *slab);
/* Whether a user waits for one. */
bool slab_contended(struct slabs *s, enum slab_class class);

/* Copy streams are shared: `small` is for transfers that fit one small slab, so that they never
 * queue behind bulk. */
int slab_queue_for(struct slabs *s, bool up, bool small);
CUstream slab_stream(struct slabs *s, int queue);
/* A copy from or to the slab is queued on that stream, its event recorded behind it: u->copied()
 * will be called. */
void slab_watch(struct slabs *s, struct slab_user *u, struct slab *slab, int queue);

/* For the statistics: a user returned n slabs when asked to. */
void slab_reclaimed(struct slabs *s, int n);

#endif
