/* When snapshots are taken and by which thread; state_save.c and state_load.c have the contents.
 *
 * One at a time. Those on demand have a thread, since they wait for the device and for the disk;
 * main.c takes the last one. The folder's lock keeps out a second process. */
#include "server/state/state.h"

#include <inttypes.h>
#include <stdio.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/base/worker.h"
#include "compute/engine/engine.h"
#include "protocol/json/json_writer.h"
#include "server/config/config.h"
#include "server/kept/journal_writer.h"
#include "server/server.h"
#include "server/state/state_passed.h"
#include "server/store/auth.h"

/* A snapshot on demand. */
struct order {
    struct state_report *report;
    struct state_gaps *gaps;
    struct err *e;
    void (*done)(void *user, enum err_code code);
    void *user;
};

struct state {
    struct server *server;
    struct state_dir *dir;
    int64_t restored_us;
    struct state_kept *kept;    /* main's, later the thread's that takes a snapshot; */
    struct state_passed passed; /* and so is this */
    _Atomic bool stop;
    pthread_mutex_t lock;
    struct worker worker;
    struct order order;
    bool busy; /* with the order */
    struct state_report last;
    uint64_t taken, failed; /* how many snapshots */
};

static double take_order(void *user);

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
    t->worker =
        (struct worker){.name = "arrayd-snapshot", .lock = &t->lock, .step = take_order, .user = t};
    worker_init(&t->worker);
    *ret = t;
    return ERR_OK;
}

void state_close(struct state *t)
{
    if (!t)
        return;
    state_stop(t);
    worker_destroy(&t->worker);
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
                       "the state in %s cannot be restored: %s%s%s; nothing was changed there; use "
                       "--state-ignore to start without it",
                       t->server->config->state_dir, why.message, *why.pointer ? ", at " : "",
                       why.pointer);
    }
    log_event(LOG_WARN, "the state cannot be restored and was moved aside", "reason", e->message,
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
                      "the state's file 'current' is missing: using the last complete snapshot",
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

static void tell_gone(uint64_t arrays)
{
    char n[24];
    snprintf(n, sizeof n, "%" PRIu64, arrays);
    if (arrays)
        log_event(
            LOG_WARN,
            "arrays are gone, because they could not be taken over, and the last snapshot does "
            "not have them",
            "arrays", n, NULL);
}

void state_recovered(struct state *t)
{
    struct state_reader reader;
    struct state_report report = {0};
    struct err e = ERR_INIT;
    bool there = false;
    enum err_code code = state_read_open(t->dir, &reader, &there, &e);
    if (code == ERR_OK && there) {
        code = state_read_all(t->server, &reader, NULL, &t->passed, &report, &e);
        state_read_close(&reader);
    }
    if (code == ERR_OK) {
        state_dir_stays(t->dir, (uint64_t)report.beside);
        tell_gone(writer_forget_passed(t->server->writer));
    } else {
        log_event(LOG_ERROR,
                  "the state cannot be read: what an earlier start did not restore from it will "
                  "not be in the next snapshot",
                  "reason", e.message, NULL);
    }
}

/* --- snapshots --- */

static enum err_code take(struct state *t, bool last, uint64_t deadline_ns,
                          const _Atomic bool *stop, struct state_report *ret,
                          struct state_gaps *gaps, struct err *e)
{
    uint64_t begun = clock_ns();
    struct state_report r = {0};
    enum err_code code = state_write_all(t->server, t->dir, last, deadline_ns, stop, &t->kept,
                                         &t->passed, &r, gaps, e);
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

/* The caller that `done` informs may ask for the next snapshot. */
static double take_order(void *user)
{
    struct state *t = user;
    const struct order o = t->order;
    if (!t->busy)
        return WORKER_RESTS;
    pthread_mutex_unlock(&t->lock);
    enum err_code code = take(t, false, 0, &t->stop, o.report, o.gaps, o.e);
    pthread_mutex_lock(&t->lock);
    t->busy = false;
    pthread_mutex_unlock(&t->lock);
    o.done(o.user, code);
    pthread_mutex_lock(&t->lock);
    return WORKER_AGAIN;
}

enum err_code state_snapshot(struct state *t, struct state_report *ret, struct state_gaps *gaps,
                             struct err *ret_e, void (*done)(void *user, enum err_code code),
                             void *user, struct err *e)
{
    enum err_code code = ERR_OK;
    const bool started = worker_start(&t->worker);
    pthread_mutex_lock(&t->lock);
    if (atomic_load(&t->stop))
        code = err_draining(e);
    else if (!started)
        code = err_oom(e);
    else if (t->busy)
        code = err_set(e, ERR_CONFLICT, "a snapshot is already being taken");
    if (code == ERR_OK) {
        t->order = (struct order){ret, gaps, ret_e, done, user};
        t->busy = true;
        worker_wake(&t->worker);
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

void state_stop(struct state *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, true); /* an order that is there ends with ERR_DRAINING */
    pthread_mutex_unlock(&t->lock);
    worker_stop(&t->worker);
}

enum err_code state_save(struct state *t, struct state_report *ret, struct err *e)
{
    static const _Atomic bool never;
    double most = t->server->config->state_timeout;
    state_stop(t);
    return take(t, true, most > 0 ? clock_ns() + (uint64_t)(most * 1e9) : 0, &never, ret, NULL, e);
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
              "# HELP arrayd_snapshots_total Snapshots written to disk, by result.\n"
              "# TYPE arrayd_snapshots_total counter\n"
              "arrayd_snapshots_total{result=\"taken\"} %llu\n"
              "arrayd_snapshots_total{result=\"failed\"} %llu\n",
              (unsigned long long)taken, (unsigned long long)bad);
    gauge(out, "arrayd_restored_timestamp_seconds",
          "Time of the snapshot that was restored; 0: none.", 1e-6 * (double)t->restored_us);
    gauge(out, "arrayd_snapshot_timestamp_seconds",
          "Time of this process's last snapshot; 0: none.", 1e-6 * (double)r.taken_us);
    gauge(out, "arrayd_snapshot_bytes", "Size of the last snapshot, in bytes.", (double)r.bytes);
    gauge(out, "arrayd_snapshot_seconds", "Time that the last snapshot took, in seconds.",
          r.seconds);
    gauge(out, "arrayd_snapshot_earlier",
          "Arrays that the last snapshot has with earlier contents.", (double)r.earlier);
    gauge(out, "arrayd_snapshot_left_out", "Arrays that are not in the last snapshot.",
          (double)r.left_out);
}
