/* Pinned host memory of a device, in slabs through which all bytes to and from it pass, and the
 * thread that sees when a slab's copy has been made.
 *
 * Called by transfer.c, upload.c and download.c; opened by cuda.c. A slab belongs to who got it
 * until slab_put. Where none is free a user waits in line; whoever gives one back hands it to the
 * first in line, so nobody starves. All functions are thread-safe and none waits for the device. */
#ifndef ARRAYD_CUDA_SLAB_H
#define ARRAYD_CUDA_SLAB_H

#include "compute/gpu/cuda/device.h"

/* Slabs and the thread that watches copies; open after the memory, close before it and before the
 * streams' context goes. Closing waits for copies under way. */
enum err_code cuda_slabs_open(struct cuda_device *d, struct err *e) must_check;
void cuda_slabs_close(struct cuda_device *d);
struct cuda_slab_stats {
    int64_t bytes, free_bytes; /* pinned; of them in no transfer */
    int64_t copies, waits;     /* so far: slabs copied; requests for a slab that had to wait */
    int64_t reclaimed;         /* slabs taken from transfers whose client did not go on */
};
void cuda_slab_stats(struct cuda_device *d, struct cuda_slab_stats *ret);

enum slab_class { SLAB_SMALL, SLAB_BULK, SLAB_CLASSES };
#define SLAB_SMALL_SIZE ((size_t)64 << 10)
#define SLAB_BULK_SIZE  ((size_t)4 << 20)

struct slab_user;

struct slab {
    struct slab *next; /* slab.c's */
    char *bytes;       /* 4 KiB aligned */
    size_t size;
    enum slab_class class;
    CUevent event;          /* for the holder to record behind its copy */
    struct slab_user *user; /* whose copy is watched */
    bool watched, returned; /* returned: free once the copy has been made */

    /* the holder's */
    struct slab *behind;
    int64_t from; /* bytes [from, from + n) of the transfer */
    size_t n;
    int state;
};

/* Who may hold slabs and wait for one; embedded in a transfer. Callbacks come from any thread, with
 * no lock of slab.c's held, and must not block. */
struct slab_user {
    _Atomic uint32_t refs; /* the owner's, a watched slab's, a place in line's */
    void (*granted)(struct slab_user *u, struct slab *take_slab); /* NULL: the device is lost */
    void (*copied)(struct slab_user *u, struct slab *slab, enum err_code result);
    /* Somebody waits: gives back what has not been touched since `before` (clock_ns). */
    void (*reclaim)(struct slab_user *u, uint64_t before);
    void (*destroy)(struct slab_user *u); /* after the last reference */

    /* slab.c's */
    struct slab_user *prev, *next; /* all users */
    struct slab_user *next_waiting;
    uint64_t round;
    bool waiting;
    enum slab_class wants;
};

/* Joins, with one reference; the callbacks are set. */
void slab_user_add(struct slabs *s, struct slab_user *u);
/* Leaves the line and the list; drops the reference. destroy() comes when its copies are made. */
void slab_user_remove(struct slabs *s, struct slab_user *u);

/* A slab into *ret, or NULL: none is free, and with `wait` u has a place in line (one at most), so
 * granted() will be told. ERR_DEVICE_LOST. */
enum err_code slab_get(struct slabs *s, struct slab_user *u, enum slab_class class, bool wait,
                       struct slab **ret);
/* Back; at once, or when its copy has been made. Not with a lock held that granted() takes. */
void slab_put(struct slabs *s, struct slab *slab);
/* Whether somebody waits for one. */
bool slab_contended(struct slabs *s, enum slab_class class);

/* Copy streams are shared: `small` is for what fits one small slab, so that it never queues behind
 * bulk. */
int slab_queue_for(struct slabs *s, bool up, bool small);
CUstream slab_stream(struct slabs *s, int queue);
/* A copy from or to the slab is on its way on that stream, its event recorded behind it:
 * u->copied() will be told. */
void slab_watch(struct slabs *s, struct slab_user *u, struct slab *slab, int queue);

/* For the statistics: a user gave so many back when asked to. */
void slab_reclaimed(struct slabs *s, int n);

#endif
