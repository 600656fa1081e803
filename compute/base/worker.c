/* A loop around the step. The mutex is the owner's, so that one lock covers both the step's view of
 * its work and the wait for more.
 *
 * Several threads that wait for one condition variable may miss a signal in glibc before 2.41
 * (https://sourceware.org/bugzilla/show_bug.cgi?id=25847), so they look again after a while. */
#include "compute/base/worker.h"

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"

#define LOOK_AGAIN_S 2.0

static void *run(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(w->lock);
    for (;;) {
        double wait = w->step(w->user);
        if (wait == WORKER_AGAIN)
            continue;
        if (w->stop && (wait < 0 || !w->finishes))
            break;
        if (wait < 0 && w->n > 1)
            wait = LOOK_AGAIN_S;
        if (wait < 0) {
            pthread_cond_wait(&w->wake, w->lock);
        } else {
            const struct timespec until = clock_after(wait);
            pthread_cond_timedwait(&w->wake, w->lock, &until);
        }
    }
    pthread_mutex_unlock(w->lock);
    return NULL;
}

static bool start(pthread_t *ret, size_t stack, const char *name, void *(*f)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (stack)
        pthread_attr_setstacksize(&attr, stack);
    bool started = pthread_create(ret, &attr, f, arg) == 0;
    pthread_attr_destroy(&attr);
    if (started)
        pthread_setname_np(*ret, name);
    return started;
}

bool thread_start(pthread_t *ret, const char *name, void *(*f)(void *arg), void *arg)
{
    return start(ret, 0, name, f, arg);
}

void thread_leave(pthread_t t, double seconds)
{
    const struct timespec until = clock_after(seconds);
    if (pthread_clockjoin_np(t, NULL, CLOCK_MONOTONIC, &until) != 0)
        pthread_detach(t);
}

void worker_init(struct worker *w)
{
    w->running = 0;
    w->stop = false;
    w->threads = NULL;
    clock_cond_init(&w->wake);
    pthread_mutex_init(&w->stopping, NULL); /* cannot fail here */
}

bool worker_start(struct worker *w)
{
    const int n = w->n ? w->n : 1;
    pthread_mutex_lock(w->lock);
    if (!w->threads)
        w->threads = n == 1 ? &w->only : mem_calloc((size_t)n, sizeof *w->threads);
    while (w->threads && !w->stop && w->running < n &&
           start(&w->threads[w->running], w->stack, w->name, run, w))
        w->running++;
    bool all = w->running == n;
    pthread_mutex_unlock(w->lock);
    return all;
}

void worker_wake(struct worker *w)
{
    pthread_cond_signal(&w->wake);
}

bool worker_is_stopped(const struct worker *w)
{
    lock_held(w->lock);
    return w->stop;
}

void worker_stop(struct worker *w)
{
    pthread_mutex_lock(&w->stopping);
    pthread_mutex_lock(w->lock);
    const int n = w->running;
    w->stop = true;
    w->running = 0;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(w->lock);
    for (int i = 0; i < n; i++)
        pthread_join(w->threads[i], NULL);
    pthread_mutex_unlock(&w->stopping);
}

void worker_destroy(struct worker *w)
{
    if (w->threads != &w->only)
        mem_free(w->threads);
    pthread_mutex_destroy(&w->stopping);
    pthread_cond_destroy(&w->wake);
}
