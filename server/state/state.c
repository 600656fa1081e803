/* When snapshots are taken and by which thread; state_save.c and state_load.c have the contents.
 *
 * One at a time. A snapshot on demand has a thread of its own, since it waits for the device and
 * for the disk; main.c takes the last one. The folder's lock keeps out a second process. */
#include "server/state/state.h"

#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "protocol/json/json_writer.h"
#include "server/config.h"
#include "server/server.h"
#include "server/state/state_passed.h"
#include "server/store/auth.h"

struct state {
    struct server *server;
    struct state_dir *dir;
    int64_t restored_us;
    struct state_kept *kept;    /* main's, later the thread's that takes a snapshot; */
    struct state_passed passed; /* and so is this */
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool busy; /* a snapshot on demand is under way */
    struct state_report last;
    uint64_t taken, failed; /* how many snapshots */
};

/* --- opening --- */

enum err_code state_open(struct server *s, struct state **ret, struct err *e)
{
    const char *path = s->config->state_dir;
    *ret = NULL;
    if (!path)
        return ERR_OK;
    struct state *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_oom(e);
    t->server = s;
    enum err_code code = state_dir_open(path, &t->dir, e);
    if (code == ERR_OK && pthread_mutex_init(&t->lock, NULL) != 0)
        code = err_oom(e);
    if (code != ERR_OK) {
        state_dir_close(t->dir);
        mem_free(t);
        return code;
    }
    pthread_cond_init(&t->idle, NULL);
    *ret = t;
    return ERR_OK;
}

void state_close(struct state *t)
{
    if (!t)
        return;
    state_stop(t);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->lock);
    state_kept_free(&t->kept);
    passed_free(&t->passed);
    state_dir_close(t->dir);
    mem_free(t);
}

int64_t state_restored_us(const struct state *t)
{
    return t->restored_us;
}

static void log_report(const char *what, const struct state_report *r)
{
    char arrays[24], bytes[24], reused[24], seconds[24], earlier[24], left_out[24];
    snprintf(arrays, sizeof arrays, "%lld", (long long)r->arrays);
    snprintf(bytes, sizeof bytes, "%lld", (long long)r->bytes);
    snprintf(reused, sizeof reused, "%lld", (long long)r->reused);
    snprintf(seconds, sizeof seconds, "%.3f", r->seconds);
    snprintf(earlier, sizeof earlier, "%lld", (long long)r->earlier);
    snprintf(left_out, sizeof left_out, "%lld", (long long)r->left_out);
    bool gaps = r->earlier || r->left_out;
    log_event(gaps ? LOG_WARN : LOG_INFO, what, "arrays", arrays, "bytes", bytes, "reused", reused,
              "seconds", seconds, gaps ? "earlier" : NULL, earlier, "left_out", left_out, NULL);
}

/* --- restoring --- */

/* Removes what a failed restore has made so far. */
static void forget(void *user, struct principal *p)
{
    (void)user;
    sessions_clear(p->sessions);
    functions_clear(p->functions);
}

static enum err_code refuse(struct state *t, struct err *e)
{
    if (!t->server->config->state_ignore) {
        struct err why = *e;
        return err_set(e, why.code,
                       "the state in %s is not restored: %s%s%s; nothing has been changed there, "
                       "and --state-ignore starts without it",
                       t->server->config->state_dir, why.message, *why.pointer ? ", at " : "",
                       why.pointer);
    }
    log_event(LOG_WARN, "the state is put aside, since it cannot be restored", "reason", e->message,
              NULL);
    auth_each(t->server->auth, forget, NULL);
    state_kept_free(&t->kept);
    passed_free(&t->passed);
    return state_dir_refuse(t->dir, e);
}

enum err_code state_restore(struct state *t, struct err *e)
{
    uint64_t begun = clock_ns();
    struct state_reader reader;
    struct state_report report = {0};
    bool there;
    enum err_code code = state_read_open(t->dir, &reader, &there, e);
    if (code == ERR_OK && !there)
        return ERR_OK;
    if (code == ERR_OK) {
        if (reader.without_pointer)
            log_event(LOG_WARN,
                      "the state's 'current' is missing: the last whole snapshot is taken",
                      "folder", t->server->config->state_dir, NULL);
        code = state_read_all(t->server, &reader, &t->kept, &t->passed, &report, e);
        state_read_close(&reader);
    }
    if (code != ERR_OK)
        return refuse(t, e);
    state_dir_stays(t->dir, (uint64_t)report.beside);
    if (!reader.without_pointer)
        state_dir_tidy(t->dir);
    t->restored_us = report.taken_us;
    report.seconds = 1e-9 * (double)(clock_ns() - begun);
    log_report("restored", &report);
    return ERR_OK;
}

/* --- snapshots --- */

static enum err_code take(struct state *t, uint64_t deadline_ns, const _Atomic bool *stop,
                          struct state_report *ret, struct state_gaps *gaps, struct err *e)
{
    uint64_t begun = clock_ns();
    struct state_report r = {0};
    enum err_code code =
        state_write_all(t->server, t->dir, deadline_ns, stop, &t->kept, &t->passed, &r, gaps, e);
    r.seconds = 1e-9 * (double)(clock_ns() - begun);
    pthread_mutex_lock(&t->lock);
    t->taken += code == ERR_OK;
    t->failed += code != ERR_OK;
    if (code == ERR_OK)
        t->last = r;
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        return code;
    log_report("snapshot", &r);
    *ret = r;
    return ERR_OK;
}

struct order {
    struct state *state;
    struct state_report *report;
    struct state_gaps *gaps;
    struct err *e;
    void (*done)(void *user, enum err_code code);
    void *user;
};

static void rest(struct state *t)
{
    pthread_mutex_lock(&t->lock);
    t->busy = false;
    pthread_cond_broadcast(&t->idle);
    pthread_mutex_unlock(&t->lock);
}

/* The caller that `done` informs may ask for the next snapshot, and may free the state. */
static void *on_demand(void *arg)
{
    struct order o = *(struct order *)arg;
    mem_free(arg);
    enum err_code code = take(o.state, 0, &o.state->stop, o.report, o.gaps, o.e);
    rest(o.state);
    o.done(o.user, code);
    return NULL;
}

static enum err_code may_begin(struct state *t, struct err *e)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stop))
        code = err_set(e, ERR_DRAINING, "the daemon is shutting down");
    else if (t->busy)
        code = err_set(e, ERR_CONFLICT, "a snapshot is being taken");
    else
        t->busy = true;
    pthread_mutex_unlock(&t->lock);
    return code;
}

enum err_code state_snapshot(struct state *t, struct state_report *ret, struct state_gaps *gaps,
                             struct err *ret_e, void (*done)(void *user, enum err_code code),
                             void *user, struct err *e)
{
    pthread_t thread;
    enum err_code r = may_begin(t, e);
    if (r != ERR_OK)
        return r;
    struct order *o = mem_alloc(sizeof *o);
    if (o) {
        *o = (struct order){t, ret, gaps, ret_e, done, user};
        if (pthread_create(&thread, NULL, on_demand, o) == 0) {
            pthread_detach(thread);
            return ERR_OK;
        }
        mem_free(o);
    }
    rest(t);
    return err_oom(e);
}

void state_stop(struct state *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, true);
    while (t->busy)
        pthread_cond_wait(&t->idle, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

enum err_code state_save(struct state *t, struct state_report *ret, struct err *e)
{
    static const _Atomic bool never;
    double most = t->server->config->state_timeout;
    state_stop(t);
    return take(t, most > 0 ? clock_ns() + (uint64_t)(most * 1e9) : 0, &never, ret, NULL, e);
}

/* --- figures --- */

static void gauge(struct strb *out, const char *name, const char *help, double value)
{
    strb_addf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %.15g\n", name, help, name, name, value);
}

void state_metrics(struct state *t, struct strb *out)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    struct state_report r = t->last;
    uint64_t taken = t->taken, bad = t->failed;
    pthread_mutex_unlock(&t->lock);
    strb_addf(out,
              "# HELP arrayd_snapshots_total Snapshots to disk.\n"
              "# TYPE arrayd_snapshots_total counter\n"
              "arrayd_snapshots_total{result=\"taken\"} %llu\n"
              "arrayd_snapshots_total{result=\"failed\"} %llu\n",
              (unsigned long long)taken, (unsigned long long)bad);
    gauge(out, "arrayd_restored_timestamp_seconds", "Of the snapshot restored; 0: none.",
          1e-6 * (double)t->restored_us);
    gauge(out, "arrayd_snapshot_timestamp_seconds", "Of the last one of this process; 0: none.",
          1e-6 * (double)r.taken_us);
    gauge(out, "arrayd_snapshot_bytes", "Size of that.", (double)r.bytes);
    gauge(out, "arrayd_snapshot_seconds", "What it took.", r.seconds);
    gauge(out, "arrayd_snapshot_earlier", "Arrays that it has earlier contents of.",
          (double)r.earlier);
    gauge(out, "arrayd_snapshot_left_out", "Arrays that are not in it.", (double)r.left_out);
}
