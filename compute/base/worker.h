/* A thread that does one thing over and over: waits until it is woken, or for a time, and works.
 *
 * Used by whatever has work that its callers must not wait for. The owner embeds a struct worker,
 * gives it the mutex that its own state is under, and a step, which is called with that mutex held
 * and says when it wants to be called again; it may let go of the mutex while it works. What the
 * step looks at is changed under the mutex, so that no wake is lost. Several threads may do the
 * steps of one worker, one step each at a time. Waits are on the monotonic clock.
 *
 * Thread-safe but for init and destroy. Nothing is logged. */
#ifndef ARRAYD_BASE_WORKER_H
#define ARRAYD_BASE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* What a step returns: seconds until the next, if nothing wakes it before; WORKER_AGAIN: at once;
 * WORKER_RESTS: only when it is woken. A worker that is stopped ends when a step returns that. */
#define WORKER_AGAIN 0.0
#define WORKER_RESTS (-1.0)
typedef double worker_step(void *user);

struct worker {
    const char *name; /* the thread's, at most 15 characters */
    pthread_mutex_t *lock;
    worker_step *step;
    void *user;
    int n;        /* threads; 0: one */
    size_t stack; /* of each, in bytes; 0: as usual */

    /* the worker's own */
    pthread_cond_t wake;
    pthread_t *threads, only;
    int running;
    bool stop;
};

/* The members above it are set. No thread runs yet. */
void worker_init(struct worker *w);
/* Its threads run, those that do not yet are started. False: not all can be (w->running do), or the
 * worker has been stopped; another call tries again. Without the mutex. */
bool worker_start(struct worker *w) __attribute__((warn_unused_result));
/* There may be something to do, for one of its threads. With the mutex held, or not. */
void worker_wake(struct worker *w);
/* It has been stopped: what a step need not do any more is left. With the mutex held. */
bool worker_is_stopped(const struct worker *w);
/* Wakes the threads and returns when they have ended. Without the mutex; a second time nothing
 * happens. */
void worker_stop(struct worker *w);
/* Stopped, or never started. */
void worker_destroy(struct worker *w);

/* A thread that does something of its own; false: it cannot be started. The name as above. */
bool thread_start(pthread_t *ret, const char *name, void *(*run)(void *arg), void *arg)
    __attribute__((warn_unused_result));

#endif
