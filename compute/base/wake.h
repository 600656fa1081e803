/* "Wake me, unless I have gone": a callback of somebody who may leave at any time.
 *
 * Used by whatever tells a waiting caller that there is news. A wake is under way while the lock is
 * held, so that it is over when wake_leave returns: the one who leaves may free what the callback
 * uses then. The callback must neither leave nor wait for one who does. Thread-safe; belongs to
 * whoever tells. */
#ifndef ARRAYD_BASE_WAKE_H
#define ARRAYD_BASE_WAKE_H

#include <pthread.h>
#include <stddef.h>

struct wake {
    pthread_mutex_t lock;
    void (*wake)(void *user); /* NULL: nobody waits, or has gone */
    void *user;
};

static inline void wake_init(struct wake *w, void (*wake)(void *user), void *user)
{
    pthread_mutex_init(&w->lock, NULL); /* cannot fail here */
    w->wake = wake;
    w->user = user;
}

static inline void wake_destroy(struct wake *w)
{
    pthread_mutex_destroy(&w->lock);
}

/* Somebody else waits from now on. */
static inline void wake_set(struct wake *w, void (*wake)(void *user), void *user)
{
    pthread_mutex_lock(&w->lock);
    w->wake = wake;
    w->user = user;
    pthread_mutex_unlock(&w->lock);
}

static inline void wake_leave(struct wake *w)
{
    wake_set(w, NULL, NULL);
}

static inline void wake_tell(struct wake *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->wake)
        w->wake(w->user);
    pthread_mutex_unlock(&w->lock);
}

#endif
