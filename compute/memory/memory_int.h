/* The engine itself, for its own files and for program/, which builds on it. What its locks protect
 * and their order: storage.h, task.h. */
#ifndef ARRAYD_ENGINE_INT_H
#define ARRAYD_ENGINE_INT_H

#include <pthread.h>

#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/memory/storage.h"
#include "compute/memory/task.h"
#include "compute/ir/fuse.h"

/* See struct export_figures. */
struct export_counts {
    _Atomic int64_t readers, writers, bytes, shareable;
    _Atomic int64_t small; /* blocks smaller than shareable_least, moved there for an export */
    _Atomic uint64_t total, moved;
};

/* Tasks in flight (task.c), in the order of their submission. */
struct flight {
    pthread_mutex_t lock; /* a leaf: no other lock is taken under it */
    struct task *oldest, *newest;
    _Atomic uint64_t looked_ns;
};

/* Approximate memory that a device keeps for a kernel: its text, the layout of its parameters. */
#define PREPARED_BYTES ((size_t)24 << 10)

/* State that a layer above keeps with the engine: released with it, before the backend is closed.
 */
struct kept {
    void (*free)(struct kept *k);
};

struct engine {
    struct backend *backend;
    char note[512];
    struct engine_config config;
    struct fuse_limits fuse;
    size_t kernel_bytes; /* approximate memory that a backend keeps for a kernel */
    struct plan_cache *plans;
    struct kept *_Atomic loops; /* program/'s kept loops, made when first needed */
    pthread_mutex_t lock;
    _Atomic uint64_t submissions;
    struct flight flight;
    struct engine_stream *_Atomic *visitors; /* by device, made when first needed (transfer.c) */
    pthread_mutex_t buffers_lock;            /* taken after `lock` */
    pthread_mutex_t pins_lock;               /* after both */
    struct buffer *oldest, *newest;
    _Atomic uint64_t clock; /* counts uses of arrays */
    struct mover *mover;
    struct reclaim *reclaim;                 /* reclaim.h */
    int64_t host_limit;                      /* bytes */
    _Atomic int64_t bytes, host_bytes, jobs; /* bytes: on devices; in host memory */
    _Atomic uint64_t version, evaluations, kernels, failures;
    _Atomic uint64_t evicted, evicted_bytes, fetched;
    struct export_counts exports;
    struct engine_stream
        *_Atomic dead; /* freed by the next thread that submits: never in a callback */
};

static inline uint64_t engine_next_version(struct engine *g)
{
    return atomic_fetch_add(&g->version, 1) + 1;
}

#endif
