/* A keeper of arrays' memory (engine_keep) within the test: it has a descriptor of every chunk. */
#ifndef ARRAYD_TESTS_KEEPER_H
#define ARRAYD_TESTS_KEEPER_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compute/engine/engine.h"

#define KEEPER_MOST 4096

struct keeper {
    pthread_mutex_t lock;
    struct kept_chunk {
        uint64_t number;
        int64_t size;
        int device, n, fds[BACKEND_PARTS];
    } all[KEEPER_MOST];
    int n, puts, drops;
};

static inline enum err_code keeper_put(void *user, uint64_t chunk, int device, int64_t size,
                                       const int *fds, int n, struct err *e)
{
    (void)e;
    struct keeper *k = user;
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < k->n; i++)
        if (k->all[i].number == chunk) {
            fprintf(stderr, "chunk %llu was put before\n", (unsigned long long)chunk);
            abort();
        }
    if (k->n == KEEPER_MOST)
        abort();
    struct kept_chunk *c = &k->all[k->n++];
    *c = (struct kept_chunk){.number = chunk, .size = size, .device = device, .n = n};
    for (int i = 0; i < n; i++)
        c->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
    k->puts++;
    pthread_mutex_unlock(&k->lock);
    return ERR_OK;
}

static inline struct kept_chunk *keeper_find(struct keeper *k, uint64_t chunk)
{
    for (int i = 0; i < k->n; i++)
        if (k->all[i].number == chunk)
            return &k->all[i];
    fprintf(stderr, "there is no chunk %llu\n", (unsigned long long)chunk);
    abort();
}

static inline void keeper_drop(void *user, uint64_t chunk)
{
    struct keeper *k = user;
    pthread_mutex_lock(&k->lock);
    struct kept_chunk *c = keeper_find(k, chunk);
    for (int i = 0; i < c->n; i++)
        close(c->fds[i]);
    *c = k->all[--k->n];
    k->drops++;
    pthread_mutex_unlock(&k->lock);
}

static inline struct engine_keep keeper_of(struct keeper *k)
{
    pthread_mutex_init(&k->lock, NULL);
    return (struct engine_keep){.put = keeper_put, .drop = keeper_drop, .user = k};
}

#endif
