/* The engine itself, for its own files and for the loops of program/, which record its work. What
 * its locks protect and their order: storage.h, task.h. */
#ifndef ARRAYD_MEMORY_INT_H
#define ARRAYD_MEMORY_INT_H

#include <pthread.h>

#include "compute/ir/fuse.h"
#include "compute/memory/memory.h"
#include "compute/memory/storage.h"
#include "compute/memory/task.h"

struct plan_cache;

/* See struct export_figures. */
struct export_counts {
    _Atomic int64_t readers, writers, bytes, shareable;
    _Atomic int64_t small; /* blocks smaller than own_least, moved there for an export */
    _Atomic uint64_t total, moved;
};

/* Of the limits of what outlives the process (keep.c). */
struct keep_use {
    _Atomic bool reached[KEEP_LIMITS];
    _Atomic int64_t chunks; /* in use, those kept for reuse not included */
};

/* Tasks in flight (task.c), in the order of their submission. */
struct task_list {
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
    int mesh; /* engine_mesh */
    char note[512];
    /* see struct engine_config */
    struct backend_config device;
    void *(*asker)(void);
    void (*asker_unref)(void *asker);
    pthread_mutex_t lock;
    _Atomic uint64_t submissions;
    struct task_list tasks;
    void (*task_freed)(struct task *t);      /* run_freed: tasks know nothing of plans */
    struct engine_stream *_Atomic *visitors; /* by device, made when first needed (transfer.c) */
    pthread_mutex_t buffers_lock;            /* taken after `lock` */
    pthread_mutex_t pins_lock;               /* after both */
    struct buffer *oldest, *newest;
    struct buffer *next_summed; /* where sums.c continues in that order; NULL: at the newest */
    _Atomic uint64_t clock;     /* counts uses of arrays, */
    _Atomic uint64_t placings;  /* and how often one got other memory */
    struct mover *mover;
    struct reclaim *reclaim; /* reclaim.h */
    struct engine_keep keep;
    struct chunks *chunks; /* chunk.h */
    struct cells *cells;   /* cells.h; NULL: no keeper */
    struct keep_use kept;
    int64_t chunk_own, max_chunks; /* see struct engine_config */
    int64_t own_least;      /* bytes: arrays of that size and more have a chunk, or could, each */
    int64_t host_limit;     /* bytes */
    _Atomic int64_t *bytes; /* by device */
    _Atomic int64_t host_bytes, jobs; /* bytes in host memory */
    _Atomic uint64_t version, failures;
    _Atomic uint64_t evicted, evicted_bytes, fetched;
    struct export_counts exports;
    struct engine_stream
        *_Atomic dead; /* freed by the next thread that submits: never in a callback */

    /* of engine/ and program/, which build on this room */
    int close_wait_ms;
    int64_t max_cost, plan_cache_bytes; /* see struct engine_config */
    struct fuse_limits fuse;
    size_t kernel_bytes; /* approximate memory that a backend keeps for a kernel */
    struct plan_cache *plans;
    struct kept *_Atomic loops; /* program/'s kept loops, made when first needed */
    _Atomic uint64_t evaluations, kernels;
    struct sums *sums; /* sums.h; NULL: none */
};

static inline uint64_t engine_next_version(struct engine *g)
{
    return atomic_fetch_add(&g->version, 1) + 1;
}

/* The contents of a buffer that was taken over are not what they were: readers get
 * ERR_CONTENTS_LOST until it is written as a whole. */
void buffer_lose(struct buffer *b);
/* Of a storage that is being taken over: its memory, where it was; false if that is not there. */
bool adopt_memory(struct storage *st, const struct engine_place *place);
/* Bytes of a device that no array has, and that are kept for new ones. */
int64_t engine_kept_bytes(const struct engine *g, int device);

#endif
