/* lock_held: states that a function must be called with a mutex held, and checks it in debug
 * builds. lock_held_shared and lock_held_alone: the same for a read-write lock, held for reading or
 * writing, or for writing.
 *
 * They cannot tell which thread holds the lock, only that one does. So they find a missing lock
 * whenever no other thread happens to hold it, which in a test is always. No state. */
#ifndef ARRAYD_BASE_LOCK_H
#define ARRAYD_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>

static inline void lock_held(const pthread_mutex_t *lock)
{
#ifndef NDEBUG
    pthread_mutex_t *m = (pthread_mutex_t *)lock; /* also that of a structure which is only read */
    int taken = pthread_mutex_trylock(m);
    if (taken == 0)
        pthread_mutex_unlock(m);
    assert(taken != 0);
#else
    (void)lock;
#endif
}

static inline void lock_held_shared(pthread_rwlock_t *l)
{
#ifndef NDEBUG
    int taken = pthread_rwlock_trywrlock(l);
    if (taken == 0)
        pthread_rwlock_unlock(l);
    assert(taken != 0);
#else
    (void)l;
#endif
}

static inline void lock_held_alone(pthread_rwlock_t *l)
{
#ifndef NDEBUG
    int taken = pthread_rwlock_tryrdlock(l);
    if (taken == 0)
        pthread_rwlock_unlock(l);
    assert(taken != 0);
#else
    (void)l;
#endif
}

#endif
