/* The CUDA backend's inside, shared by the files of compute/gpu/cuda only: cuda.c (devices, the
 * vtable), stream.c (queues, launches, completion), memory.c (pool), share.c (memory that others
 * can map), slab.c and transfer.c (bytes in and out), prepare.c (a kernel made ready).
 *
 * Threads: anybody submits; one completion thread a device tells what has run; some threads
 * compile and load code. Locks: device->lock protects its streams' queues; slabs and pool have
 * their own. Under device->lock there are only driver calls that queue something or look (launch.c
 * names the one exception), and nothing of another transfer's or of the caller's runs, but for
 * config.lost. Of what a submission does under the engine's lock only taking memory may wait: for
 * the driver to map it, never for work. */
#ifndef ARRAYD_CUDA_INT_H
#define ARRAYD_CUDA_INT_H

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
struct fault;
struct refused;

struct cuda_device {
    struct cuda *cuda;
    int index; /* ours: 0, 1, … among those that can be used */
    CUdevice handle;
    CUcontext context; /* the primary one, retained */
    char name[128], arch[16], uuid[DEVICE_UUID];
    size_t memory_total;
    int opened; /* parts of it, for closing */

    /* memory.c */
    CUmemoryPool pool;
    CUstream alloc_stream; /* only ever allocates and frees */
    pthread_mutex_t memory_lock;
    int64_t live_bytes, peak_bytes;
    int64_t allocations, trims;

    /* share.c */
    int64_t share_grain;     /* sizes are multiples of it */
    char share_problem[192]; /* why there is no memory for sharing; "": there is */
    struct share_fds share_fds;

    struct slabs *slabs;  /* slab.c: pinned host memory */
    CUmodule pack_module; /* pack.c */
    CUfunction pack[5];   /* for elements of 1, 2, 4, 8, 16 bytes */

    /* stream.c */
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

/* --- cuda.c --- */

/* The thread's current context becomes the device's; cheap when it is already. False: lost. */
bool cuda_enter(struct cuda_device *d);

/* Judges a driver call's result: CUDA_SUCCESS and CUDA_ERROR_NOT_READY pass; out of memory is
 * ERR_OUT_OF_MEMORY; everything else poisons the backend (cuda->lost) and is ERR_DEVICE_LOST.
 * `what` names the call. e may be NULL. */
enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e);

/* "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)", of what lost the device. */
#define CUDA_WHY 160
void cuda_lost_why(struct cuda *c, char ret[CUDA_WHY]);

/* --- fault.c --- */

/* With device->lock held, the device being lost: notes what was on it, once. Before any of that
 * leaves its stream. */
void cuda_fault_look(struct cuda_device *d);
/* Without it, before any work is told: what was noted is written down and told (config.fault). */
void cuda_fault_tell(struct cuda *c);

/* --- memory.c --- */

/* Where an open fails it leaves nothing behind: its close is not to be called. */
enum err_code cuda_memory_open(struct cuda_device *d, struct err *e) must_check;
void cuda_memory_close(struct cuda_device *d);
/* backend.h's alloc and free. Memory may be used on any stream at once. */
enum err_code cuda_alloc(struct backend *b, int device, int64_t size, bool zero, void **ret,
                         struct err *e);
void cuda_free(struct backend *b, int device, void *p, int64_t size);
/* Zeroed memory for the backend's own use, beside the limit and the figures. */
enum err_code cuda_alloc_own(struct cuda_device *d, int64_t size, void **ret,
                             struct err *e) must_check;
void cuda_free_own(struct cuda_device *d, void *p);
enum err_code cuda_host_alloc(struct backend *b, int64_t size, void **ret, struct err *e);
void cuda_host_free(struct backend *b, void *p, int64_t size);

struct cuda_memory_stats {
    int64_t live, peak;         /* bytes given out */
    int64_t allocations, trims; /* so far */
    int64_t reserved, used;     /* the pool's own figures, bytes */
    int64_t free, total;        /* of the device, bytes; 0 when it does not say */
};
void cuda_memory_stats(struct cuda_device *d, struct cuda_memory_stats *ret);

/* For share.c, of whose memory the pool knows nothing. Books bytes against the configured limit;
 * hands what the pool keeps back to the driver; what comes into memory before any stream sees it,
 * after cuMemsetD8Async on alloc_stream. */
enum err_code cuda_memory_charge(struct cuda_device *d, int64_t size, struct err *e) must_check;
void cuda_memory_discharge(struct cuda_device *d, int64_t size);
void cuda_memory_count(struct cuda_device *d); /* an allocation more */
CUresult cuda_memory_trim(struct cuda_device *d);
enum err_code cuda_memory_settle(struct cuda_device *d, struct err *e) must_check;
enum err_code cuda_memory_none(struct cuda_device *d, int64_t size, struct err *e); /* the error */

/* --- share.c --- */

/* Looks whether there is memory for sharing: makes some, and a descriptor of it. */
void cuda_share_open(struct cuda_device *d);
void cuda_share_close(struct cuda_device *d); /* after its blocks have gone */
/* backend.h's */
const char *cuda_share_problem(struct backend *b, int device);
enum err_code cuda_share_alloc(struct backend *b, int device, int64_t size, bool zero, bool must,
                               struct shared_block *ret, struct err *e);
enum err_code cuda_share_export(struct backend *b, int device, const struct shared_block *share,
                                enum share_mode mode, int *ret_fd, struct err *e);
void cuda_share_free(struct backend *b, int device, const struct shared_block *share);

/* --- slab.c, transfer.c, pack.c --- */

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

/* The module that gathers strided views, compiled (blocking) or from the kernel cache; after
 * cuda->kcache is there. Compiling needs no device, so that it can begin before there is a context:
 * cuda_pack_compile leaves it in the kernel cache. */
enum err_code cuda_pack_compile(struct cuda *c, const char *arch, struct err *e) must_check;
enum err_code cuda_pack_open(struct cuda_device *d, struct err *e) must_check;
void cuda_pack_close(struct cuda_device *d);

/* The transfer functions of backend.h. */
enum err_code cuda_upload_new(struct backend *b, int device, void *to, int64_t n,
                              void (*wake)(void *user), void *user, struct transfer **ret,
                              struct err *e);
void *cuda_upload_reserve(struct transfer *t, size_t *ret_n);
void cuda_upload_advance(struct transfer *t, size_t n);
enum err_code cuda_upload_join(struct transfer *t, struct stream *s, struct err *e);
enum err_code cuda_download_new(struct backend *b, int device, void *from, const struct view *view,
                                size_t itemsize, void (*wake)(void *user), void *user,
                                struct transfer **ret, struct err *e);
void cuda_download_start(struct transfer *t);
int64_t cuda_download_pull(struct transfer *t, int64_t offset, void *buf, size_t n);
enum err_code cuda_transfer_result(struct transfer *t);
void cuda_transfer_free(struct transfer *t, void (*released)(void *user), void *user);
/* Called by stream.c for a job's fetch: with the device entered, queues the first copies on `on`
 * (behind the job's kernels; no waiting); then, when the job is known to have run (or failed), from
 * the completion thread before done(). Where no slab was free at launch, fetched() starts as
 * download_start would. */
void cuda_transfer_launch(struct transfer *t, CUstream on);
void cuda_transfer_fetched(struct transfer *t, enum err_code result);

/* --- stream.c --- */
enum err_code cuda_streams_open(struct cuda_device *d, struct err *e) must_check;
void cuda_streams_close(struct cuda_device *d);
enum err_code cuda_stream_new(struct backend *b, int device, bool background, struct stream **ret,
                              struct err *e);
void cuda_stream_free(struct stream *s);
uint64_t cuda_submit(struct stream *s, struct job *job);
bool cuda_passed(struct fence f);
struct cuda_device *cuda_stream_device(struct stream *s);
/* What was held up may go on: a compilation has ended. */
void cuda_streams_wake(struct cuda *c);
/* Makes work submitted to `s` from now on wait for `event` too. The event may be destroyed or
 * recorded again when this returns. */
enum err_code cuda_stream_wait_event(struct stream *s, CUevent event, struct err *e) must_check;

#endif
