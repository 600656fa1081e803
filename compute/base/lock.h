/* lock_held: states that a function must be called with a mutex held, and checks it in debug
 * builds.
 *
 * It cannot tell which thread holds the mutex, only that one does. So it finds a missing lock
 * whenever no other thread happens to hold it, which in a test is always. No state. */
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
