/* Descriptors of memory that other processes can map, kept for the next request: on Linux the
 * driver takes half a millisecond to make one, and as much when the last duplicate of one is
 * closed, which is more than the rest of an export. Every request gets a duplicate, by one system
 * call.
 *
 * The descriptors of the most recently requested blocks are kept, a small part of the process's
 * limit. All functions are thread-safe. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARE_FDS 64

struct share_fds {
    pthread_mutex_t lock;
    struct kept_fd {
        int64_t handle; /* the block's, CUmemGenericAllocationHandle */
        int fd;
        uint64_t asked; /* when last requested, by the clock below */
    } kept[SHARE_FDS];
    int n;
    uint64_t clock;
};

void share_fds_init(struct share_fds *f);
void share_fds_free(struct share_fds *f); /* closes them all */

/* A duplicate of the block's descriptor, close-on-exec, for the caller to close; -1: none is kept,
 * or the process has no descriptor left. */
int share_fds_get(struct share_fds *f, int64_t handle);
/* Keeps a duplicate of `fd`, possibly in place of another block's; keeps none if the process has no
 * descriptor left, or may have few. */
void share_fds_keep(struct share_fds *f, int64_t handle, int fd);
/* Call before the block's memory is freed: its descriptor would keep it allocated. */
void share_fds_drop(struct share_fds *f, int64_t handle);
/* Call when descriptors run out. False: none was kept. */
bool share_fds_drop_all(struct share_fds *f);
