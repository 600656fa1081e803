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
#include "compute/engine/engine.h"
#include "server/blame.h"
#include "server/server.h"
#include "server/work/asker.h"

#define STOP_S    1.0
#define NAMES_S   0.25 /* after the loss: by then the askers with work on the device are known, */
#define WRITTEN_S 5.0  /* or being written to disk, for which the exit waits this long */

/* An asker whose work was on the device. */
struct asker_work {
    struct asker *asker; /* a reference; NULL: the daemon itself */
    struct strb kernels; /* "steps 1f3a… refused, flat 77ab…" */
    bool refused;        /* one of the kernels is refused */
};

struct lost {
    struct server *server;
    double delay_s;
    sem_t reported;
    pthread_mutex_t lock; /* a loss is reported before the exit is decided, or not at all */
    bool closed;
    char why[160];
    struct timespec names_due; /* deadline for naming the askers */
    pthread_cond_t names_changed;
    bool names_expected; /* lost_fault will be called */
    bool names_known;    /* the members below are set, will not change, and are in the log */
    bool launching;      /* backend_fault's */
    struct asker_work *askers;
    size_t n_askers;
    pthread_mutex_t logging; /* held while the loss is logged */
    bool is_logged;
};

static void pause_for(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0)
        ;
}

static void log_loss(struct lost *l)
{
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.1f", l->delay_s);
    pthread_mutex_lock(&l->logging);
    if (!l->is_logged)
        log_event(LOG_ERROR, "the device is lost; the process will exit to be restarted", "reason",
                  l->why, "exit_status", "75", "seconds", seconds, NULL);
    l->is_logged = true;
    pthread_mutex_unlock(&l->logging);
}

void lost_report(void *lost, const char *why)
{
    struct lost *l = lost;
    pthread_mutex_lock(&l->lock);
    if (!l->closed && !*l->why) {
        snprintf(l->why, sizeof l->why, "%s", why);
        atomic_store(&l->server->lost_reason, l->why);
        atomic_store(&l->server->device_lost, true);
        l->names_due = clock_after(NAMES_S);
        sem_post(&l->reported);
    }
    pthread_mutex_unlock(&l->lock);
}

/* --- the askers with work on the device --- */

static struct asker_work *find_asker(const struct lost *l, const struct asker *asker)
{
    for (size_t i = 0; i < l->n_askers; i++)
        if (l->askers[i].asker == asker)
            return &l->askers[i];
    return NULL;
}

static void add_kernel(struct asker_work *n, const struct fault_kernel *k)
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
    l->askers = mem_calloc(f->n_work + 1, sizeof *l->askers);
    for (uint32_t i = 0; l->askers && i < f->n_work; i++) {
        const struct fault_work *w = &f->work[i];
        struct asker_work *n = find_asker(l, w->asker);
        if (!n) {
            n = &l->askers[l->n_askers++];
            n->asker = w->asker ? asker_ref(w->asker) : NULL;
        }
        for (uint32_t k = 0; k < w->n_kernels; k++)
            add_kernel(n, &w->kernels[k]);
    }
}

static void log_askers(const struct lost *l, const struct backend_fault *f)
{
    static const struct asker nobody = {.text = "the daemon itself"};
    char device[16];
    snprintf(device, sizeof device, "%d", f->device);
    for (size_t i = 0; i < l->n_askers; i++) {
        const struct asker_work *n = &l->askers[i];
        const struct asker *a = n->asker ? n->asker : &nobody;
        log_event(LOG_ERROR,
                  f->launching ? "being launched when the device was lost"
                               : "on the device when it was lost",
                  "device", device, "job", a->job, "request", a->request, "principal", a->principal,
                  "session", a->session, "asked", a->text, "kernels",
                  n->kernels.data ? n->kernels.data : "none, only copies", NULL);
    }
    if (l->n_askers == 0)
        log_event(LOG_ERROR, "no known work was on the device when it was lost", "device", device,
                  NULL);
    if (f->forgotten)
        log_event(LOG_ERROR,
                  "the kernels that were on the device could not be recorded in the kernel cache "
                  "folder: they will not be refused after the restart",
                  NULL);
}

void lost_expect_names(void *lost)
{
    struct lost *l = lost;
    pthread_mutex_lock(&l->lock);
    l->names_expected = true;
    pthread_mutex_unlock(&l->lock);
}

void lost_fault(void *lost, const struct backend_fault *f)
{
    struct lost *l = lost;
    name_all(l, f);
    l->launching = f->launching;
    log_askers(l, f);
    blame_fault(l->server->culprits, f);
    pthread_mutex_lock(&l->lock);
    l->names_known = true;
    pthread_cond_broadcast(&l->names_changed);
    pthread_mutex_unlock(&l->lock);
}

static void wait_until(struct lost *l, const struct timespec *until)
{
    while (!l->names_known &&
           pthread_cond_timedwait(&l->names_changed, &l->lock, until) != ETIMEDOUT)
        ;
}

static bool wait_for_names(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    if (*l->why)
        wait_until(l, &l->names_due);
    bool there = l->names_known;
    pthread_mutex_unlock(&l->lock);
    return there;
}

/* After this the kernels that the next process refuses are in their file, and the log names the
 * askers. */
static void wait_for_writing(struct lost *l)
{
    pthread_mutex_lock(&l->lock);
    wait_until(l, &l->names_due);
    if (l->names_expected) {
        const struct timespec until = clock_after(WRITTEN_S);
        wait_until(l, &until);
    }
    pthread_mutex_unlock(&l->lock);
}

void lost_explain(struct lost *l, const struct asker *asker, struct err *e)
{
    if (!asker || !wait_for_names(l))
        return;
    const struct asker_work *n = find_asker(l, asker);
    const char *kernels = n && n->kernels.data ? n->kernels.data : "only copies";
    char others[64] = "with no other work";
    if (n && l->n_askers > 1)
        snprintf(others, sizeof others, "with work of %zu other request%s", l->n_askers - 1,
                 l->n_askers > 2 ? "s" : "");
    if (!n)
        err_set(e, ERR_DEVICE_LOST,
                "the device was lost (%s) while %s on it, but no work of this request: send the "
                "request again when the device is back",
                l->why, l->n_askers ? "work of other requests was" : "no known work was");
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
    while (sem_wait(&l->reported) != 0)
        ;
    log_loss(l);
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
    sem_init(&lost.reported, 0, 0);
    pthread_mutex_init(&lost.lock, NULL);
    clock_cond_init(&lost.names_changed);
    pthread_mutex_init(&lost.logging, NULL);
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
    log_loss(l);
    log_event(LOG_INFO, "stopped", "reason", "the device is lost", NULL);
    _exit(LOST_EXIT);
}

void lost_compare(struct server *s)
{
    struct err e = ERR_INIT;
    size_t compared, changed;
    char n[24], took[24];
    const double begun = clock_s();
    const enum err_code code = engine_sums(s->engine, &compared, &changed, &e);
    if (code != ERR_OK)
        log_event(LOG_WARN, "whether a fault changed arrays that nobody was writing is not known",
                  "reason", e.message, NULL);
    snprintf(n, sizeof n, "%zu", compared);
    snprintf(took, sizeof took, "%.4f", clock_s() - begun);
    if (compared > 0)
        log_event(LOG_INFO, "idle memory compared with what it was", "arrays", n, "seconds", took,
                  NULL);
    snprintf(n, sizeof n, "%zu", changed);
    if (changed > 0)
        log_event(LOG_ERROR,
                  "arrays that nobody was writing are not what they were; their contents are lost",
                  "arrays", n, NULL);
}
