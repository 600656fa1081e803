/* A bell that other threads' callbacks ring, and one thread waits for.
 *
 * Used by imports and exports, which wait for staging memory and for contents on their own threads.
 * Rings are remembered: what is waited for is looked at again after each. */
#ifndef ARRAYD_SERVER_FILES_BELL_H
#define ARRAYD_SERVER_FILES_BELL_H

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "compute/base/err.h"

#define BELL_WAIT_MS 50

struct bell {
    int fd; /* −1: none */
};

static inline enum err_code bell_init(struct bell *b, struct err *e)
{
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return b->fd >= 0 ? ERR_OK : err_set(e, ERR_OVERLOADED, "too many files are open");
}

static inline void bell_free(struct bell *b)
{
    if (b->fd >= 0)
        close(b->fd);
    b->fd = -1;
}

static inline void bell_ring(void *user)
{
    const struct bell *b = user;
    (void)!eventfd_write(b->fd, 1);
}

/* Until it rings, or for a moment. Whether it rang. */
static inline bool bell_wait(const struct bell *b)
{
    struct pollfd x = {.fd = b->fd, .events = POLLIN};
    eventfd_t n;
    return poll(&x, 1, BELL_WAIT_MS) > 0 && eventfd_read(b->fd, &n) == 0;
}

#endif
