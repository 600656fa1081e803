/* What a function that must be called with a mutex held says of it, and checks in debug builds.
 *
 * lock_held cannot tell whose thread holds the mutex, only that one does: so a missing lock is
 * found whenever nobody else happens to hold it, which in a test is always. Free of state. */
#ifndef ARRAYD_BASE_LOCK_H
#define ARRAYD_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>

static inline void lock_held(pthread_mutex_t *m)
{
#ifndef NDEBUG
    int taken = pthread_mutex_trylock(m);
    if (taken == 0)
        pthread_mutex_unlock(m);
    assert(taken != 0);
#else
    (void)m;
#endif
}

#endif
