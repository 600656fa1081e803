/* A cancellable callback: "wake me, unless I have left".
 *
 * Used by code that notifies a waiting caller. wake_tell calls the callback with the lock held, so
 * when wake_leave returns no call is running, and the waiter may free what the callback uses. The
 * callback must call nothing of this module nor wait for a thread that does. Thread-safe; owned by
 * the notifier. */
#ifndef ARRAYD_BASE_WAKE_H
#define ARRAYD_BASE_WAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct wake {
    pthread_mutex_t lock;
    void (*wake)(void *user); /* NULL: nobody waits, or the waiter has left */
    void *user;
    bool told; /* since it was set */
};

static inline void wake_init(struct wake *w, void (*wake)(void *user), void *user)
{
    pthread_mutex_init(&w->lock, NULL); /* cannot fail here */
    w->wake = wake;
    w->user = user;
    w->told = false;
}

static inline void wake_destroy(struct wake *w)
{
    pthread_mutex_destroy(&w->lock);
}

/* Replaces the waiter. */
static inline void wake_set(struct wake *w, void (*wake)(void *user), void *user)
{
    pthread_mutex_lock(&w->lock);
    w->wake = wake;
    w->user = user;
    w->told = false;
    pthread_mutex_unlock(&w->lock);
}

static inline void wake_leave(struct wake *w)
{
    wake_set(w, NULL, NULL);
}

static inline void wake_tell(struct wake *w)
{
    pthread_mutex_lock(&w->lock);
    w->told = true;
    if (w->wake)
        w->wake(w->user);
    pthread_mutex_unlock(&w->lock);
}

/* For a waiter that polls. Once it is true the call has been made, and does not reach whoever is
 * set next. */
static inline bool wake_told(struct wake *w)
{
    pthread_mutex_lock(&w->lock);
    bool told = w->told;
    pthread_mutex_unlock(&w->lock);
    return told;
}

#endif
