/* The engine itself, for its own files and for the rooms above that work on it (program/). What its
 * locks protect and in which order they are taken: storage.h, task.h. */
#ifndef ARRAYD_ENGINE_INT_H
#define ARRAYD_ENGINE_INT_H

#include <pthread.h>

#include "compute/engine/engine.h"
#include "compute/engine/plan_cache.h"
#include "compute/engine/storage.h"
#include "compute/engine/task.h"
#include "compute/ir/fuse.h"

/* See struct export_figures. */
struct export_counts {
    _Atomic int64_t readers, writers, bytes, shareable;
    _Atomic int64_t small; /* blocks for less than shareable_least, moved there for an export */
    _Atomic uint64_t total, moved;
};

/* Tasks in flight (task.c), in the order of their submission. */
struct flight {
    pthread_mutex_t lock; /* takes none of the others */
    struct task *oldest, *newest;
    _Atomic uint64_t looked_ns;
};

/* What a device keeps with a kernel, about: its text, the form of its parameters. */
#define PREPARED_BYTES ((size_t)24 << 10)

/* What a room above keeps with the engine: it goes with it, before the backend is closed. */
struct kept {
    void (*free)(struct kept *k);
};

struct engine {
    struct backend *backend;
    char note[512];
    struct engine_config config;
    struct fuse_limits fuse;
    size_t kernel_bytes; /* that a backend keeps with a kernel, about */
    struct plan_cache *plans;
    struct kept *_Atomic loops; /* what program/ keeps of loops, made when first needed */
    pthread_mutex_t lock;
    _Atomic uint64_t submissions;
    struct flight flight;
    struct engine_stream *_Atomic *visitors; /* by device, made when first needed (transfer.c) */
    pthread_mutex_t buffers_lock;            /* taken after `lock` */
    pthread_mutex_t pins_lock;               /* after both */
    struct buffer *oldest, *newest;
    _Atomic uint64_t clock; /* of uses */
    struct mover *mover;
    struct reclaim *reclaim;                 /* reclaim.h */
    int64_t host_limit;                      /* bytes */
    _Atomic int64_t bytes, host_bytes, jobs; /* bytes: on devices; in host memory */
    _Atomic uint64_t version, evaluations, kernels, failures;
    _Atomic uint64_t evicted, evicted_bytes, fetched;
    struct export_counts exports;
    struct engine_stream
        *_Atomic dead; /* released by whoever submits next: never from a callback */
};

static inline uint64_t engine_next_version(struct engine *g)
{
    return atomic_fetch_add(&g->version, 1) + 1;
}

#endif
