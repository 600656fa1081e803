/* A bell that other threads' callbacks ring, and one thread waits for.
 *
 * Used by imports and exports, which wait for staging memory and for contents on their own threads.
 * Rings are remembered: what is waited for is looked at again after each. It takes no descriptor,
 * since jobs by the thousand may wait with one each. */
#ifndef ARRAYD_SERVER_FILES_BELL_H
#define ARRAYD_SERVER_FILES_BELL_H

#include <semaphore.h>
#include <time.h>

#include "compute/base/clock.h"

#define BELL_WAIT_S 0.05

struct bell {
    sem_t rings;
};

static inline void bell_init(struct bell *b)
{
    (void)sem_init(&b->rings, 0, 0); /* cannot fail */
}

static inline void bell_ring(void *user)
{
    struct bell *b = user;
    (void)sem_post(&b->rings); /* fails where more rings are remembered than there can be */
}

/* Until it rings, or for a moment. Whether it rang. */
static inline bool bell_wait(struct bell *b)
{
    const struct timespec until = clock_after(BELL_WAIT_S);
    const bool rang = sem_clockwait(&b->rings, CLOCK_MONOTONIC, &until) == 0;
    while (rang && sem_trywait(&b->rings) == 0)
        ;
    return rang;
}

#endif
