/* Descriptors of memory that others can map, kept for the next who asks: on Linux the driver takes
 * half a millisecond to make one, and as much when the last duplicate of one is closed, which is
 * more than all the rest of an export. Everybody gets a duplicate, by one system call.
 *
 * Kept are those of the blocks last asked for, a small part of what the process may have open. All
 * functions are thread-safe. */
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
        uint64_t asked; /* by the clock below */
    } kept[SHARE_FDS];
    int n;
    uint64_t clock;
};

void share_fds_init(struct share_fds *f);
void share_fds_free(struct share_fds *f); /* closes them all */

/* A duplicate of the block's descriptor, close-on-exec, for the caller to close; -1: none is kept,
 * or there is no descriptor left. */
int share_fds_get(struct share_fds *f, int64_t handle);
/* Keeps a duplicate of `fd`, which may take the place of another block's; none where there is none
 * left, or where the process may have few. */
void share_fds_keep(struct share_fds *f, int64_t handle, int fd);
/* Before the block's memory goes back: its descriptor would hold it. */
void share_fds_drop(struct share_fds *f, int64_t handle);
/* Where descriptors are wanting. False: none was kept. */
bool share_fds_drop_all(struct share_fds *f);
