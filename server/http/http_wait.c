/* Requests that wait: for the device, for a worker, for room in a sink, for bytes of a source.
 *
 * Waiting means that the connection is suspended, which only its listener's thread may do, inside a
 * callback; anybody may resume it. Between "the handler asked to wait" and "the connection is
 * suspended" the wake may already have come. Therefore every wait is a small state machine in one
 * atomic, in which exactly one party wins the step that matters:
 *
 *     then:  NONE → ARMED (http_wait) → PARKED (suspended) → WOKEN (http_wake) → NONE (then runs)
 *                            └──────────────────────────────────┘ wake came first: no suspension
 *            PARKED → HELD (the watch thread looks at the client) → PARKED, or WOKEN
 *     io:    RUN → PARKED (suspended) → RUN (wake); RUN → PENDING (wake came first) → RUN
 *
 * Whoever takes a request out of PARKED resumes the connection, and he alone, so a connection is
 * never resumed twice and never after it has gone: while it is suspended nobody can free it.
 *
 * Workers serve two queues. Short work goes first; long work, which tells so or has run a slice and
 * comes back, never takes the last worker, so that no number of long jobs keeps a short one waiting
 * for more than what it costs itself. It has its turn every few short jobs, so it cannot starve.
 * Within a queue it is the turn of the user for whom workers have done least, by his weight
 * (start-time fair queueing, as in scheduler.c): one who sends large bodies without end keeps
 * another waiting for one slice of his at most.
 *
 * libmicrohttpd may close a resumed connection before it calls us again, when the socket has failed
 * meanwhile. The continuation still has to run: the request becomes an orphan, which workers bring
 * to its end. */
#include <microhttpd.h>

#include "compute/base/mem.h"
#include "server/http/http_impl.h"

#define SHORT_IN_A_ROW 8 /* then one long job where one waits */

static void suspend(struct rq *q)
{
    if (q->orphan)
        return;
    q->suspended = true;
    atomic_fetch_add(&q->http->suspended, 1);
    http_watch_look(q->http);
    MHD_suspend_connection(q->mhd);
}

/* Stopping needs to know that no connection is suspended and none will be. So the count falls only
 * after a callback has ended, when it has risen again if the callback suspended; and `inside` tells
 * when every callback that may not have seen `cutting` is over. */
bool http_enter(struct rq *q, bool *ret_ok)
{
    struct http *h = q->http;
    atomic_fetch_add(&h->inside, 1);
    bool was = q->suspended;
    q->suspended = false;
    meter_enter(&q->cause);
    *ret_ok = !atomic_load(&q->dropped) && (!atomic_load(&h->cutting) || q->stage >= STAGE_HANDLER);
    return was;
}

void http_leave(struct http *h, bool was_suspended)
{
    if (was_suspended)
        atomic_fetch_sub(&h->suspended, 1);
    meter_enter(NULL);
    atomic_fetch_sub(&h->inside, 1);
}

bool http_done(const struct rq *q)
{
    return q->replied || (q->stage == STAGE_STREAM_HANDLER && q->sink);
}

/* --- workers --- */

static void enqueue(struct rq *q)
{
    struct http *h = q->http;
    pthread_mutex_lock(&h->work_lock);
    struct work_queue *w = q->long_work ? &h->long_work : &h->short_work;
    const struct http_user *u = &q->user;
    q->next_work = NULL;
    q->queued = true;
    if (u->worked && *u->worked < h->worked)
        *u->worked = h->worked; /* time that the user left is nobody's */
    if (w->tail)
        w->tail->next_work = q;
    else
        w->head = q;
    w->tail = q;
    h->n_work++;
    pthread_cond_signal(&h->work_wake);
    pthread_mutex_unlock(&h->work_lock);
}

static double worked(const struct rq *q)
{
    return q->user.worked ? *q->user.worked : 0;
}

/* That of the user for whom least was done; of his, the first. */
static struct rq *take_first(struct http *h, struct work_queue *w)
{
    struct rq *before = NULL, *best_before = NULL, *best = w->head;
    for (struct rq *q = w->head; q; before = q, q = q->next_work)
        if (worked(q) < worked(best)) {
            best = q;
            best_before = before;
        }
    if (best_before)
        best_before->next_work = best->next_work;
    else
        w->head = best->next_work;
    if (w->tail == best)
        w->tail = best_before;
    if (worked(best) > h->worked)
        h->worked = worked(best);
    return best;
}

/* The next job, or NULL where none may begin now. */
static struct rq *take_work(struct http *h)
{
    int most = h->config.workers > 1 ? h->config.workers - 1 : 1;
    bool may_long = h->long_work.head && h->long_running < most;
    struct work_queue *w = &h->short_work;
    if (may_long && (!w->head || h->short_run >= SHORT_IN_A_ROW)) {
        w = &h->long_work;
        h->short_run = 0;
    } else if (w->head) {
        h->short_run = may_long ? h->short_run + 1 : 0;
    } else {
        return NULL;
    }
    struct rq *q = take_first(h, w);
    h->n_work--;
    q->queued = false;
    h->long_running += w == &h->long_work;
    return q;
}

static void orphan_end(struct rq *q)
{
    struct http *h = q->http;
    rq_end(q);
    atomic_fetch_sub(&h->orphans, 1);
}

static handler_fn *take_then(struct rq *q)
{
    handler_fn *then = q->then;
    q->then = NULL;
    if (http_is_revoked(q)) {
        then = rq_refuse;
    } else if (atomic_load(&q->is_late) && q->r.late) {
        then = q->r.late;
        q->r.late = NULL;
    }
    atomic_store(&q->wait, WAIT_NONE);
    return then;
}

/* fn(&q->r), with the request as the cause of what it begins. */
static void at_work(struct rq *q, handler_fn *fn)
{
    void (*works_for)(struct request * req) = q->http->calls.works_for;
    if (works_for)
        works_for(&q->r);
    fn(&q->r);
    if (works_for)
        works_for(NULL);
}

static void forgot(struct rq *q)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_INTERNAL, "the request was left without a reply");
    http_reply_error(&q->r, &e);
}

/* One request on a worker: until it replied or waits. */
static void work_on(struct rq *q)
{
    meter_enter(&q->cause);
    for (;;) {
        handler_fn *fn = q->work;
        q->work = NULL;
        if (atomic_load(&q->dropped) && !q->orphan)
            break;
        q->not_begun = false;
        if (!fn)
            fn = take_then(q); /* an orphan's */
        else if (http_is_revoked(q))
            fn = rq_refuse;
        at_work(q, fn);
        if (q->work && !http_done(q)) {
            enqueue(q); /* others have their turn */
            return;
        }
        if (!http_done(q) && atomic_load(&q->wait) == WAIT_NONE)
            forgot(q);
        if (http_done(q))
            break;
        int expected = WAIT_ARMED;
        if (atomic_compare_exchange_strong(&q->wait, &expected, WAIT_PARKED))
            return;
        if (!q->orphan)
            break; /* `then` belongs on the listener's thread */
    }
    if (q->orphan)
        orphan_end(q);
    else
        MHD_resume_connection(q->mhd);
}

static void *worker(void *arg)
{
    struct http *h = arg;
    pthread_mutex_lock(&h->work_lock);
    for (;;) {
        struct rq *q = take_work(h);
        if (!q) {
            if (h->work_stop)
                break;
            pthread_cond_wait(&h->work_wake, &h->work_lock);
            continue;
        }
        bool was_long = q->long_work;
        struct http_user u = q->user;
        uint64_t begun = http_now_ns();
        pthread_mutex_unlock(&h->work_lock);
        work_on(q);
        meter_enter(NULL);
        pthread_mutex_lock(&h->work_lock);
        if (u.worked)
            *u.worked += (double)(http_now_ns() - begun) / atomic_load(u.weight);
        if (was_long) {
            h->long_running--;
            if (h->long_work.head)
                pthread_cond_signal(&h->work_wake);
        }
    }
    pthread_mutex_unlock(&h->work_lock);
    return NULL;
}

enum err_code http_workers_start(struct http *h, struct err *e)
{
    int n = h->config.workers > 0 ? h->config.workers : 1;
    h->workers = mem_calloc((size_t)n, sizeof *h->workers);
    if (!h->workers)
        return err_oom(e);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    for (; h->n_workers < n; h->n_workers++)
        if (pthread_create(&h->workers[h->n_workers], &attr, worker, h) != 0)
            break;
    pthread_attr_destroy(&attr);
    return h->n_workers == n ? ERR_OK : err_set(e, ERR_INTERNAL, "cannot start worker threads");
}

void http_workers_stop(struct http *h)
{
    pthread_mutex_lock(&h->work_lock);
    h->work_stop = true;
    pthread_cond_broadcast(&h->work_wake);
    pthread_mutex_unlock(&h->work_lock);
    for (int i = 0; i < h->n_workers; i++)
        pthread_join(h->workers[i], NULL);
    mem_free(h->workers);
    h->workers = NULL;
    h->n_workers = 0;
}

void http_drop_queued(struct http *h)
{
    const struct work_queue *const queues[] = {&h->short_work, &h->long_work};
    pthread_mutex_lock(&h->work_lock);
    for (int i = 0; i < 2; i++)
        for (struct rq *q = queues[i]->head; q; q = q->next_work)
            if (q->not_begun || q->r.abandon)
                atomic_store(&q->dropped, true);
    pthread_mutex_unlock(&h->work_lock);
}

/* --- what handlers call --- */

void http_wait(struct request *req, handler_fn *then)
{
    struct rq *q = rq_of(req);
    q->then = then;
    atomic_store(&q->wait, WAIT_ARMED);
}

void http_wake(struct request *req)
{
    struct rq *q = rq_of(req);
    int s = atomic_load(&q->wait);
    while (s == WAIT_ARMED || s == WAIT_PARKED || s == WAIT_HELD) {
        if (!atomic_compare_exchange_weak(&q->wait, &s, WAIT_WOKEN))
            continue;
        if (s != WAIT_PARKED)
            return; /* who is about to park sees it; the request is no longer ours to touch */
        if (q->orphan)
            enqueue(q);
        else
            MHD_resume_connection(q->mhd);
        return;
    }
}

bool http_hold(struct rq *q)
{
    int parked = WAIT_PARKED;
    return atomic_compare_exchange_strong(&q->wait, &parked, WAIT_HELD);
}

void http_unhold(struct rq *q, bool end)
{
    int held = WAIT_HELD;
    if (end)
        atomic_store(&q->wait, WAIT_WOKEN);
    else if (atomic_compare_exchange_strong(&q->wait, &held, WAIT_PARKED))
        return;
    MHD_resume_connection(q->mhd);
}

void http_offload(struct request *req, handler_fn *work)
{
    struct rq *q = rq_of(req);
    q->work = work;
    q->long_work = false;
}

void http_offload_long(struct request *req, handler_fn *work)
{
    struct rq *q = rq_of(req);
    q->work = work;
    q->long_work = true;
}

bool http_slice_over(uint64_t *begun_ns)
{
    uint64_t now = http_now_ns();
    if (!*begun_ns)
        *begun_ns = now;
    return now - *begun_ns >= WORK_SLICE_MS * 1000000u;
}

static void io_wake(struct rq *q)
{
    int s = atomic_load(&q->io);
    for (;;) {
        if (s == IO_PENDING)
            return;
        struct MHD_Connection *mhd = q->mhd;
        if (!atomic_compare_exchange_weak(&q->io, &s, s == IO_PARKED ? IO_RUN : IO_PENDING))
            continue;
        if (s == IO_PARKED)
            MHD_resume_connection(mhd);
        return;
    }
}

void http_sink_wake(struct http_sink *sink)
{
    io_wake(rq_of(sink->req));
}

void http_source_wake(struct http_source *src)
{
    io_wake(rq_of(src->req));
}

/* --- what the front calls --- */

bool http_io_park(struct rq *q)
{
    int expected = IO_PENDING;
    if (atomic_compare_exchange_strong(&q->io, &expected, IO_RUN))
        return false;
    suspend(q);
    expected = IO_RUN;
    if (!atomic_compare_exchange_strong(&q->io, &expected, IO_PARKED)) {
        atomic_store(&q->io, IO_RUN);
        MHD_resume_connection(q->mhd);
    }
    return true;
}

void http_io_drop(struct rq *q)
{
    atomic_store(&q->dropped, true);
    struct MHD_Connection *mhd = q->mhd;
    int expected = IO_PARKED;
    if (atomic_compare_exchange_strong(&q->io, &expected, IO_RUN))
        MHD_resume_connection(mhd);
}

/* What comes after a handler or a continuation has returned. */
enum run_result http_continue(struct rq *q)
{
    for (;;) {
        if (http_done(q))
            return RUN_DONE;
        int s = atomic_load(&q->wait);
        if (!q->work && s == WAIT_NONE) {
            forgot(q);
            return RUN_DONE;
        }
        if (q->work) {
            suspend(q);
            enqueue(q);
            return RUN_PARKED;
        }
        if (s == WAIT_ARMED && http_is_late(q)) {
            atomic_store(&q->is_late, true);
        } else if (s == WAIT_ARMED) {
            struct MHD_Connection *mhd = q->mhd;
            bool orphan = q->orphan;
            suspend(q);
            if (atomic_compare_exchange_strong(&q->wait, &s, WAIT_PARKED))
                return RUN_PARKED;
            if (!orphan) {
                MHD_resume_connection(mhd); /* woken while it was being suspended */
                return RUN_PARKED;
            }
        }
        at_work(q, take_then(q));
    }
}

enum run_result http_run(struct rq *q, handler_fn *fn)
{
    at_work(q, fn);
    return http_continue(q);
}

void http_orphan(struct rq *q)
{
    q->orphan = true;
    q->mhd = NULL;
    q->conn = NULL;
    atomic_fetch_add(&q->http->orphans, 1);
    if (http_continue(q) == RUN_DONE)
        orphan_end(q);
}
