/* The files of the kernel cache: one folder, one file a key.
 *
 * Called by kcache.c only, which owns the struct. Thread-safe once open; several processes may
 * share a folder. Whatever goes wrong is a miss, counted. */
#ifndef ARRAYD_CUDA_KCACHE_DISK_H
#define ARRAYD_CUDA_KCACHE_DISK_H

#include <pthread.h>

#include "compute/gpu/code/kcache.h"

struct kcache_disk {
    int fd; /* of the folder; -1: there is none */
    int64_t max_bytes;
    pthread_mutex_t lock; /* for what follows */
    int64_t bytes;        /* as counted at the last look into the folder, plus what we wrote */
    int stores;           /* since then */
    bool trimming;        /* a thread is looking */
    int64_t errors;
    char problem[256];
};

/* Opens, or makes, the folder and brings it under its bound. Without a usable folder fd is -1 and
 * `problem` says why; the other functions then do nothing. */
void kcache_disk_open(struct kcache_disk *d, const char *dir, int64_t max_bytes);
void kcache_disk_close(struct kcache_disk *d);

/* The code stored for the key, to be released with mem_free(); false: none that can be trusted. */
bool kcache_disk_load(struct kcache_disk *d, const struct kcache_key *key, void **ret_bytes,
                      size_t *ret_n);
void kcache_disk_store(struct kcache_disk *d, const struct kcache_key *key, const void *bytes,
                       size_t n);
/* The driver refuses what is stored for the key: it goes. */
void kcache_disk_drop(struct kcache_disk *d, const struct kcache_key *key);

#endif
