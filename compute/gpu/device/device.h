/* The base of the CUDA backend: the backend, its devices, their contexts, and what a driver call's
 * result means. Private to compute/gpu/device, compute/gpu/transfer and compute/gpu/cuda, whose
 * files build on each other in this order, those of a line calling each other and those above:
 *
 *   device/    device.c                 contexts, results, CUDA streams, the loss of a device
 *              mesh_memory.c  memory.c  share.c   memory on several GPUs; the pool; memory that
 *                                       others can map
 *              mesh.c                   several GPUs as one device
 *              stream.c                 streams
 *   transfer/  slab.c  pack.c           pinned memory and its copies; kernels that gather views
 *              transfer.c  upload.c  download.c   bytes in and out
 *   cuda/      parts.c                  which member does what of a kernel
 *              prepare.c  machines.c    compiling and loading kernels, and the interpreter
 *              whole.c                  one kernel in place of several
 *              beside.c                 what may run beside what
 *              launch_kernel.c  launch.c  fault.c   a kernel, and a job, onto its stream; what was
 *                                       on a lost device
 *              queue.c                  jobs: when they are launched, when they are done
 *              cuda.c                   opening, the vtable
 *
 * Threads: any thread submits; one completion thread per device reports finished jobs; some threads
 * compile and load code. Locks: device->lock protects its streams' queues; slabs and pool have
 * their own. Under device->lock there are only driver calls that queue or query (launch.c names the
 * exceptions), and neither another transfer nor the caller's functions run, except config.lost.
 * Of what a submission does under the engine's lock, only allocating memory may block: while the
 * driver maps it, never for work. */
#ifndef ARRAYD_CUDA_DEVICE_H
#define ARRAYD_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "compute/backend.h"
#include "compute/culprit/alone.h"
#include "compute/gpu/api/loader.h"
#include "compute/gpu/api/share_fd.h"
#include "compute/gpu/code/kcache.h"

struct cuda;
struct slabs;
struct launch;
struct compiler;
struct machines;
struct backend_stream;
struct fault;
struct mesh_range;
struct mesh_block;

/* The pool that array memory and scratch come from. */
struct device_memory {
    pthread_mutex_t lock;
    CUmemoryPool pool;
    CUstream stream;    /* used only to allocate and free */
    int64_t live, peak; /* bytes */
    int64_t of_mesh;    /* of those that are given out, what the mesh's arrays have */
    int64_t allocations, trims;
};

/* Memory that other processes can map. */
struct device_sharing {
    int64_t grain;     /* sizes are multiples of it */
    char problem[192]; /* why sharing is unavailable; "": it is available */
    struct share_fds fds;
};

/* The kernels that gather strided views. */
struct device_pack {
    CUmodule module;
    CUfunction kernels[5]; /* for elements of 1, 2, 4, 8, 16 bytes */
};

struct cuda_device {
    struct cuda *cuda;
    int index; /* our own: 0, 1, … among the usable devices */
    CUdevice handle;
    CUcontext context; /* the primary one, retained */
    char name[128], arch[16], uuid[DEVICE_UUID];
    int shared;        /* bytes of shared memory that a block can ask for */
    bool copies_boxes; /* has an engine that copies parts of arrays into shared memory */
    size_t memory_total;
    int opened; /* how many parts are open, for closing */

    /* What it consists of: itself, or the GPUs of a mesh, whose first has the context and the
     * smaller blocks of memory; each has slabs */
    struct cuda_device *members[BACKEND_PARTS];
    int n_members;
    /* mesh_memory.c: a mesh's memory in use, and what is kept for its next arrays, the one freed
     * last first; with memory.lock */
    struct mesh_range *used, *kept;
    struct mesh_block *elsewhere; /* what is not divided, and on another than the first member */

    struct device_memory memory; /* memory.c */
    struct device_sharing share; /* share.c */
    struct slabs *slabs;         /* slab.c: pinned host memory */
    struct device_pack pack;     /* pack.c */

    /* stream.c, queue.c */
    pthread_mutex_t lock;
    pthread_cond_t wake;             /* wakes the completion thread */
    struct backend_stream *busy;     /* streams with launched jobs, linked by next_busy */
    struct backend_stream *streams;  /* all streams, linked by next */
    struct backend_stream *spare[2]; /* freed, with their CUDA streams; [1]: background ones */
    struct launch *launches;         /* of finished jobs, for reuse */
    unsigned char *params;           /* of the kernel being launched */
    bool held_up;                    /* some stream has a job that cannot be launched yet */
    bool retry;                      /* tells the completion thread to try those again */
    bool telling;                    /* a thread reports a job; one at a time, for their order */
    uint64_t told_ns;           /* when the last job was reported, or work began after a rest */
    _Atomic uint64_t polled_ns; /* when another thread than the completion thread last looked */
    pthread_t completion;
    bool completion_started, stop;
    struct alone alone; /* of a GPU, with `running`: which job has it to itself (beside.c) */
    int running;        /* jobs on it, of whichever device */
    bool tells;         /* jobs of other devices may start, and are still to be told */
    bool looked;        /* fault.c: what was on the lost device is recorded */
    uint64_t members_looked_ns; /* of a mesh: when its members were last asked (mesh_look) */
};

struct cuda {
    struct backend base;
    const struct driver *driver;
    const struct nvrtc *nvrtc;
    struct backend_config config;
    struct kcache *kcache;
    struct compiler *compiler;
    struct machines *machines;   /* machines.c: the interpreter; NULL: none */
    _Atomic int64_t interpreted; /* launches */
    _Atomic int64_t wholes;      /* likewise */
    _Atomic int64_t mesh_remote; /* bytes, likewise */
    struct health *health;       /* NULL: no figures from the GPUs' sensors */
    struct cuda_device *devices; /* the GPUs, then the mesh */
    int n_devices, n_gpus;
    _Atomic bool lost;           /* a sticky error: every later call fails */
    _Atomic int lost_code;       /* the CUresult, */
    _Atomic int lost_device;     /* the device, −1: unknown, */
    const char *lost_what;       /* and the call; static text */
    struct culprits *culprits;   /* what is refused and suspected, and what runs */
    bool own_culprits;           /* nobody else has the list */
    struct fault *_Atomic fault; /* still to be reported, by device */
    pthread_mutex_t fault_lock;  /* held while it is reported */
    bool fault_told;
    pthread_mutex_t beside_lock; /* beside.c */
    _Atomic bool held_back;      /* a job may not start yet; with a mesh */
    _Atomic bool waits_across;   /* a job may wait for one of another device */
    _Atomic bool noted;        /* a fault was recorded, and perhaps reported: there is no second */
    _Atomic bool opened, told; /* config.lost is to be called, has been */
    char timings[256];         /* of opening, for a person */
};

/* Makes the device's context current on this thread; cheap if it already is. False: lost. */
bool cuda_enter(struct cuda_device *d);

/* The same as an error: ERR_DEVICE_LOST. */
enum err_code cuda_entered(struct cuda_device *d, struct err *e) must_check;

/* Judges a driver call's result: CUDA_SUCCESS and CUDA_ERROR_NOT_READY pass; out of memory is
 * ERR_OUT_OF_MEMORY; everything else poisons the backend (cuda->lost) and is ERR_DEVICE_LOST.
 * `what` names the call. e may be NULL. */
enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e);

/* A CUDA stream of the device entered. */
enum err_code cuda_stream_create(struct cuda *c, bool background, CUstream *ret,
                                 struct err *e) must_check;

/* "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)", for the call that lost the device. */
#define CUDA_WHY 160
void cuda_lost_why(struct cuda *c, char ret[CUDA_WHY]);

/* Calls config.lost once when a device is lost, but not before opening has succeeded: until then
 * the caller of open gets the error. With cuda->fault_lock, or while no other thread uses the
 * backend. */
void cuda_tell_lost(struct cuda *c);

/* Retries held-up jobs on every device: a compilation has ended, or work on another device. */
void cuda_wake(struct cuda *c);

#endif
