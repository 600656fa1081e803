/* The ground of the CUDA backend: the backend, its devices, their contexts, and what a driver
 * call's result means. Private to compute/gpu/cuda, whose files stand on it in this order, each
 * calling only those above it:
 *
 *   device.c                     contexts, results, the loss of a device
 *   memory.c  share.c            the pool; memory that others can map
 *   stream.c                     streams
 *   slab.c  pack.c               pinned memory and its copies; kernels that gather views
 *   transfer.c  upload.c  download.c   bytes in and out
 *   prepare.c                    a kernel made ready
 *   launch.c  fault.c            a job onto its stream; what was there when a device was lost
 *   queue.c                      jobs: when they go, when they are over
 *   cuda.c                       opening, the vtable
 *
 * Threads: anybody submits; one completion thread a device tells what has run; some threads
 * compile and load code. Locks: device->lock protects its streams' queues; slabs and pool have
 * their own. Under device->lock there are only driver calls that queue something or look (launch.c
 * names the one exception), and nothing of another transfer's or of the caller's runs, but for
 * config.lost. Of what a submission does under the engine's lock only taking memory may wait: for
 * the driver to map it, never for work. */
#ifndef ARRAYD_CUDA_DEVICE_H
#define ARRAYD_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "compute/backend.h"
#include "compute/gpu/api/loader.h"
#include "compute/gpu/code/kcache.h"
#include "compute/gpu/cuda/share_fd.h"

struct cuda;
struct slabs;
struct flight;
struct compiler;
struct stream;
struct fault;
struct refused;

/* The pool that array memory and scratch come from. */
struct device_memory {
    pthread_mutex_t lock;
    CUmemoryPool pool;
    CUstream stream;    /* only ever allocates and frees */
    int64_t live, peak; /* bytes */
    int64_t allocations, trims;
};

/* Memory that other processes can map. */
struct device_sharing {
    int64_t grain;     /* sizes are multiples of it */
    char problem[192]; /* why there is none; "": there is */
    struct share_fds fds;
};

/* The kernels that gather views. */
struct device_pack {
    CUmodule module;
    CUfunction kernels[5]; /* for elements of 1, 2, 4, 8, 16 bytes */
};

struct cuda_device {
    struct cuda *cuda;
    int index; /* ours: 0, 1, … among those that can be used */
    CUdevice handle;
    CUcontext context; /* the primary one, retained */
    char name[128], arch[16], uuid[DEVICE_UUID];
    size_t memory_total;
    int opened; /* parts of it, for closing */

    struct device_memory memory; /* memory.c */
    struct device_sharing share; /* share.c */
    struct slabs *slabs;         /* slab.c: pinned host memory */
    struct device_pack pack;     /* pack.c */

    /* stream.c, queue.c */
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* of the completion thread */
    struct stream *busy;     /* streams with launched jobs, by next_busy */
    struct stream *streams;  /* all, by next */
    struct stream *spare[2]; /* given back, with their CUDA streams; [1]: background ones */
    struct flight *flights;  /* of finished jobs, for the next ones */
    unsigned char *params;   /* of the kernel being launched */
    bool held_up;            /* some stream has a job that may not be launched yet */
    bool retry;              /* for the completion thread: try those again */
    pthread_t completion;
    bool completion_started, stop;
    bool looked; /* fault.c: what was there when the device was lost is known */
};

struct cuda {
    struct backend base;
    const struct driver *driver;
    const struct nvrtc *nvrtc;
    struct backend_config config;
    struct kcache *kcache;
    struct compiler *compiler;
    struct health *health; /* NULL: no figures of the GPUs' sensors */
    struct cuda_device *devices;
    int n_devices;
    _Atomic bool lost;           /* a sticky error: every later call fails */
    _Atomic int lost_code;       /* the CUresult, */
    _Atomic int lost_device;     /* on which device, −1: not known, */
    const char *lost_what;       /* and of which call; static text */
    struct refused *refused;     /* kernels that are not run any more */
    struct fault *_Atomic fault; /* that is still to be told */
    pthread_mutex_t fault_lock;  /* held while it is */
    _Atomic bool noted;          /* one was, to be told or told by now: there is no second */
    _Atomic bool opened, told;   /* config.lost is to be told, has been */
    char timings[256];           /* of opening, for a person */
};

/* The thread's current context becomes the device's; cheap when it is already. False: lost. */
bool cuda_enter(struct cuda_device *d);

/* The same as an error: ERR_DEVICE_LOST. */
enum err_code cuda_entered(struct cuda_device *d, struct err *e) must_check;

/* Judges a driver call's result: CUDA_SUCCESS and CUDA_ERROR_NOT_READY pass; out of memory is
 * ERR_OUT_OF_MEMORY; everything else poisons the backend (cuda->lost) and is ERR_DEVICE_LOST.
 * `what` names the call. e may be NULL. */
enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e);

/* "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)", of what lost the device. */
#define CUDA_WHY 160
void cuda_lost_why(struct cuda *c, char ret[CUDA_WHY]);

/* Tells config.lost, once, that a device is lost. Not before opening has succeeded: until then the
 * caller of open hears of it. With cuda->fault_lock, or while no other thread has the backend. */
void cuda_tell_lost(struct cuda *c);

/* What is held up on any device may go on: a compilation has ended, or work on another device. */
void cuda_wake(struct cuda *c);

#endif
