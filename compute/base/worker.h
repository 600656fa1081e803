/* A background thread that runs a step again and again, when it is woken or after a time.
 *
 * Used for work that callers must not wait for. The owner embeds a struct worker and gives it a
 * step and the mutex that guards the owner's state. The step is called with that mutex held and
 * returns when to call it again; it may release the mutex while it works. Whatever the step looks
 * at must change under the mutex, so that no wake is lost. A worker may have several threads, each
 * running one step at a time. Waits use the monotonic clock.
 *
 * Thread-safe except init and destroy. Nothing is logged. */
#ifndef ARRAYD_BASE_WORKER_H
#define ARRAYD_BASE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* What a step returns: seconds until the next step, unless a wake comes first; WORKER_AGAIN:
 * immediately; WORKER_RESTS: only when woken. A stopped worker ends when its step returns anything
 * but WORKER_AGAIN: a queue is worked off, and nothing is waited for. */
#define WORKER_AGAIN 0.0
#define WORKER_RESTS (-1.0)
typedef double worker_step(void *user);

struct worker {
    const char *name; /* of the thread, at most 15 characters */
    pthread_mutex_t *lock;
    worker_step *step;
    void *user;
    int n;         /* number of threads; 0: one */
    size_t stack;  /* bytes per thread; 0: the default */
    bool finishes; /* when stopped it waits, too, and ends when its step returns WORKER_RESTS */

    /* private to the worker */
    pthread_cond_t wake;
    pthread_mutex_t stopping; /* held until the threads are joined; taken before `lock` */
    pthread_t *threads, only;
    int running;
    bool stop;
};

/* Before the call, set the members above the private ones. Starts no thread yet. */
void worker_init(struct worker *w);
/* Starts those of its threads that do not run yet. False: some could not be started (w->running do
 * run), or the worker is stopped; another call tries again. Without the mutex. */
bool worker_start(struct worker *w) __attribute__((warn_unused_result));
/* Wakes one of its threads: there may be work. With or without the mutex. */
void worker_wake(struct worker *w);
/* Whether the worker is stopped, and work that is queued would only be refused. With the mutex
 * held. */
bool worker_is_stopped(const struct worker *w);
/* Wakes the threads and returns when they have ended, also if another thread has called it before.
 * Without the mutex. */
void worker_stop(struct worker *w);
/* Only after worker_stop, or if it was never started. */
void worker_destroy(struct worker *w);

/* Starts a thread of its own; false: it cannot be started. `name` as above. */
bool thread_start(pthread_t *ret, const char *name, void *(*run)(void *arg), void *arg)
    __attribute__((warn_unused_result));
/* Waits for it to end, but no longer than that: then it is left behind, and what it uses has to
 * live as long as it does. For a thread in a library's call that may never return. */
void thread_leave(pthread_t t, double seconds);

#endif
