/* A thread sleeps until it is told, then paces the end: the delay, in which health checks and
 * clients see what happened; then HTTP is stopped in a hurry by the main thread; and if that hangs,
 * the process ends all the same. It never touches the device. Where the main thread is on its way
 * out already it may be the first to say what happened: that is said once, and always. */
#include "server/lost.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "server/server.h"

#define STOP_S 1.0

struct lost {
    struct server *server;
    double delay_s;
    sem_t told;
    pthread_mutex_t lock; /* a loss is told before the end is decided, or not at all */
    bool closed;
    char why[160];
    pthread_mutex_t saying; /* held while it is said */
    bool said;
};

static void pause_for(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void say(struct lost *l)
{
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.1f", l->delay_s);
    pthread_mutex_lock(&l->saying);
    if (!l->said)
        log_event(LOG_ERROR, "the device is lost, the process will end for a restart", "reason",
                  l->why, "exit_status", "75", "seconds", seconds, NULL);
    l->said = true;
    pthread_mutex_unlock(&l->saying);
}

static void *watch(void *arg)
{
    struct lost *l = arg;
    while (sem_wait(&l->told) != 0)
        ;
    say(l);
    pause_for(l->delay_s);
    atomic_store(&l->server->hurry, true);
    kill(getpid(), LOST_SIGNAL);
    pause_for(STOP_S);
    log_event(LOG_ERROR, "what is open does not end; leaving without it", NULL);
    _exit(LOST_EXIT);
}

void lost_told(void *lost, const char *why)
{
    struct lost *l = lost;
    pthread_mutex_lock(&l->lock);
    if (!l->closed && !*l->why) {
        snprintf(l->why, sizeof l->why, "%s", why);
        atomic_store(&l->server->lost_reason, l->why);
        atomic_store(&l->server->device_lost, true);
        sem_post(&l->told);
    }
    pthread_mutex_unlock(&l->lock);
}

enum err_code lost_watch(struct server *s, double delay_s, struct lost **ret, struct err *e)
{
    static struct lost lost; /* the thread ends with the process */
    pthread_t thread;
    lost.server = s;
    lost.delay_s = delay_s;
    sem_init(&lost.told, 0, 0);
    pthread_mutex_init(&lost.lock, NULL);
    pthread_mutex_init(&lost.saying, NULL);
    if (pthread_create(&thread, NULL, watch, &lost) != 0)
        return err_set(e, ERR_OUT_OF_MEMORY, "cannot start a thread");
    pthread_detach(thread);
    *ret = &lost;
    return ERR_OK;
}

void lost_leave(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    l->closed = true;
    bool lost = *l->why;
    pthread_mutex_unlock(&l->lock);
    if (!lost)
        return;
    say(l);
    log_event(LOG_INFO, "stopped", "reason", "the device is lost", NULL);
    _exit(LOST_EXIT);
}
