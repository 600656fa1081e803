/* The files of the kernel cache: one folder, one file per key.
 *
 * Called by kcache.c only, which owns the struct. Thread-safe once open; several processes may
 * share a folder. Every failure is a miss, and counted. */
#ifndef ARRAYD_CUDA_KCACHE_DISK_H
#define ARRAYD_CUDA_KCACHE_DISK_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/gpu/code/kcache.h"

struct kcache_disk {
    int fd;    /* of the folder; -1: none */
    int ready; /* of one that is only read, where the first has no such file; -1: none */
    _Atomic bool not_ready; /* the driver rejected code: the second is not used any more */
    int64_t max_bytes;
    pthread_mutex_t lock; /* for the fields below */
    int64_t bytes;        /* as counted at the last look into the folder, plus what we wrote */
    int stores;           /* since then */
    bool trimming;        /* a thread is measuring or deleting */
    int64_t errors;
    char problem[256];
};

/* Opens, or creates, the folder and trims it to its limit; opens the folder `ready`, which may be
 * NULL and may belong to root. Without a usable folder fd is -1 and `problem` says why; the other
 * functions then do without it. */
void kcache_disk_open(struct kcache_disk *d, const char *dir, const char *ready, int64_t max_bytes);
void kcache_disk_close(struct kcache_disk *d);

/* The code stored for the key, to be released with mem_free(); false: none that can be trusted. */
bool kcache_disk_load(struct kcache_disk *d, const struct code_key *key, void **ret_bytes,
                      size_t *ret_n);
void kcache_disk_store(struct kcache_disk *d, const struct code_key *key, const void *bytes,
                       size_t n);
/* Deletes what is stored for the key, after the driver rejected it. */
void kcache_disk_drop(struct kcache_disk *d, const struct code_key *key);

#endif
