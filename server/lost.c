/* A thread sleeps until the device is lost, then paces the exit: first the delay, in which health
 * checks and clients see what happened; then the main thread stops HTTP in a hurry; and if that
 * hangs, the process exits all the same. The thread never touches the device. If the main thread is
 * already on its way out, it may be the first to log the loss: that is logged exactly once. */
#include "server/lost.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compute/backend.h"
#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "compute/base/worker.h"
#include "server/blame.h"
#include "server/server.h"
#include "server/work/asker.h"

#define STOP_S    1.0
#define NAMED_S   0.25 /* after the loss: by then the askers with work on the device are known, */
#define WRITTEN_S 5.0  /* or being written to disk, for which the exit waits this long */

/* An asker whose work was on the device. */
struct named {
    struct asker *asker; /* a reference; NULL: the daemon itself */
    struct strb kernels; /* "steps 1f3a… refused, flat 77ab…" */
    bool refused;        /* one of the kernels is refused */
};

struct lost {
    struct server *server;
    double delay_s;
    sem_t told;
    pthread_mutex_t lock; /* a loss is reported before the exit is decided, or not at all */
    bool closed;
    char why[160];
    struct timespec told_until; /* deadline for naming the askers */
    pthread_cond_t named_changed;
    bool is_noted;  /* lost_fault will be called */
    bool is_named;  /* the members below are set, will not change, and are in the log */
    bool launching; /* backend_fault's */
    struct named *named;
    size_t n_named;
    pthread_mutex_t saying; /* held while the loss is logged */
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
        log_event(LOG_ERROR, "the device is lost; the process will exit to be restarted", "reason",
                  l->why, "exit_status", "75", "seconds", seconds, NULL);
    l->said = true;
    pthread_mutex_unlock(&l->saying);
}

void lost_told(void *lost, const char *why)
{
    struct lost *l = lost;
    pthread_mutex_lock(&l->lock);
    if (!l->closed && !*l->why) {
        snprintf(l->why, sizeof l->why, "%s", why);
        atomic_store(&l->server->lost_reason, l->why);
        atomic_store(&l->server->device_lost, true);
        l->told_until = clock_after(NAMED_S);
        sem_post(&l->told);
    }
    pthread_mutex_unlock(&l->lock);
}

/* --- the askers with work on the device --- */

static struct named *find_named(const struct lost *l, const struct asker *asker)
{
    for (size_t i = 0; i < l->n_named; i++)
        if (l->named[i].asker == asker)
            return &l->named[i];
    return NULL;
}

static void add_kernel(struct named *n, const struct fault_kernel *k)
{
    if (n->kernels.data && strstr(n->kernels.data, k->key))
        return;
    strb_addf(&n->kernels, "%s%s %s%s", n->kernels.len ? ", " : "", k->form, k->key,
              k->refused ? " refused" : "");
    n->refused |= k->refused;
}

/* Lists each asker once, with the kernels of all its work. */
static void name_all(struct lost *l, const struct backend_fault *f)
{
    l->named = mem_calloc(f->n_work + 1, sizeof *l->named);
    for (uint32_t i = 0; l->named && i < f->n_work; i++) {
        const struct fault_work *w = &f->work[i];
        struct named *n = find_named(l, w->asker);
        if (!n) {
            n = &l->named[l->n_named++];
            n->asker = w->asker ? asker_ref(w->asker) : NULL;
        }
        for (uint32_t k = 0; k < w->n_kernels; k++)
            add_kernel(n, &w->kernels[k]);
    }
}

static void log_named(const struct lost *l, const struct backend_fault *f)
{
    static const struct asker nobody = {.text = "the daemon itself"};
    char device[16];
    snprintf(device, sizeof device, "%d", f->device);
    for (size_t i = 0; i < l->n_named; i++) {
        const struct named *n = &l->named[i];
        const struct asker *a = n->asker ? n->asker : &nobody;
        log_event(LOG_ERROR,
                  f->launching ? "being launched when the device was lost"
                               : "on the device when it was lost",
                  "device", device, "job", a->job, "request", a->request, "principal", a->principal,
                  "session", a->session, "asked", a->text, "kernels",
                  n->kernels.data ? n->kernels.data : "none, only copies", NULL);
    }
    if (l->n_named == 0)
        log_event(LOG_ERROR, "no known work was on the device when it was lost", "device", device,
                  NULL);
    if (f->forgotten)
        log_event(LOG_ERROR,
                  "the kernels that were on the device could not be recorded in the kernel cache "
                  "folder: they will not be refused after the restart",
                  NULL);
}

void lost_noted(void *lost)
{
    struct lost *l = lost;
    pthread_mutex_lock(&l->lock);
    l->is_noted = true;
    pthread_mutex_unlock(&l->lock);
}

void lost_fault(void *lost, const struct backend_fault *f)
{
    struct lost *l = lost;
    name_all(l, f);
    l->launching = f->launching;
    log_named(l, f);
    blame_fault(l->server->culprits, f);
    pthread_mutex_lock(&l->lock);
    l->is_named = true;
    pthread_cond_broadcast(&l->named_changed);
    pthread_mutex_unlock(&l->lock);
}

static void wait_until(struct lost *l, const struct timespec *until)
{
    while (!l->is_named && pthread_cond_timedwait(&l->named_changed, &l->lock, until) != ETIMEDOUT)
        ;
}

static bool wait_for_names(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    if (*l->why)
        wait_until(l, &l->told_until);
    bool there = l->is_named;
    pthread_mutex_unlock(&l->lock);
    return there;
}

/* After this the kernels that the next process refuses are in their file, and the log names the
 * askers. */
static void wait_for_writing(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    wait_until(l, &l->told_until);
    if (l->is_noted) {
        const struct timespec until = clock_after(WRITTEN_S);
        wait_until(l, &until);
    }
    pthread_mutex_unlock(&l->lock);
}

void lost_say(struct lost *l, const struct asker *asker, struct err *e)
{
    if (!asker || !wait_for_names(l))
        return;
    const struct named *n = find_named(l, asker);
    const char *kernels = n && n->kernels.data ? n->kernels.data : "only copies";
    char others[64] = "with no other work";
    if (n && l->n_named > 1)
        snprintf(others, sizeof others, "with work of %zu other request%s", l->n_named - 1,
                 l->n_named > 2 ? "s" : "");
    if (!n)
        err_set(e, ERR_DEVICE_LOST,
                "the device was lost (%s) while %s on it, but no work of this request: send the "
                "request again when the device is back",
                l->why, l->n_named ? "work of other requests was" : "no known work was");
    else
        err_set(e, ERR_DEVICE_LOST,
                "the device was lost (%s) while this request's work was %s, %s: %.600s%s", l->why,
                l->launching ? "being launched" : "on it", others, kernels,
                n->refused ? "; a refused kernel will not be run again" : "");
}

/* --- the exit --- */

static bool is_closed(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    bool closed = l->closed;
    pthread_mutex_unlock(&l->lock);
    return closed;
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
    wait_for_writing(l);
    if (!is_closed(l))
        log_event(LOG_ERROR,
                  "open connections and work did not end in time; exiting without waiting", NULL);
    _exit(LOST_EXIT);
}

enum err_code lost_watch(struct server *s, double delay_s, struct lost **ret, struct err *e)
{
    static struct lost lost; /* the thread ends with the process */
    pthread_t thread;
    lost.server = s;
    lost.delay_s = delay_s;
    sem_init(&lost.told, 0, 0);
    pthread_mutex_init(&lost.lock, NULL);
    clock_cond_init(&lost.named_changed);
    pthread_mutex_init(&lost.saying, NULL);
    if (!thread_start(&thread, "arrayd-lost", watch, &lost))
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
    wait_for_writing(l);
    say(l);
    log_event(LOG_INFO, "stopped", "reason", "the device is lost", NULL);
    _exit(LOST_EXIT);
}
