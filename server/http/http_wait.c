/* Waiting requests: for the device, for a worker, for space in a sink, for bytes from a source.
 * http_state.h says how, and which thread takes which step.
 *
 * When a socket fails, libmicrohttpd may close a resumed connection before it calls us again. The
 * continuation still has to run: the request becomes an orphan, which workers finish. */
#include <microhttpd.h>

#include "protocol/wire/prefer.h"
#include "server/http/http_impl.h"
#include "server/http/wakeup.h"

bool http_is_late(const struct rq *q)
{
    return q->r.late && q->limit.deadline_ns && clock_ns() >= q->limit.deadline_ns;
}

bool http_is_revoked(struct rq *q)
{
    return q->r.abandon && !q->http->calls.lasts(&q->r);
}

/* Few requests find the watch thread resting: after one it stays awake for a tick or more. */
static void wake_watch(struct http *h)
{
    if (!atomic_load(&h->watch_rests) || !atomic_exchange(&h->watch_rests, false))
        return;
    pthread_mutex_lock(&h->lock);
    worker_wake(&h->watch);
    pthread_mutex_unlock(&h->lock);
}

static void suspend(struct rq *q)
{
    if (q->orphan)
        return;
    q->suspended = true;
    atomic_fetch_add(&q->http->suspended, 1);
    wake_watch(q->http);
    MHD_suspend_connection(q->mhd);
}

/* http_stop must know that no connection is suspended and none will be. So the count falls only
 * after a callback has ended; if the callback suspended, the count has risen again by then.
 * `inside` tells when every callback that may not have seen `cutting` has ended. */
bool http_enter(struct rq *q, bool *ret_ok)
{
    struct http *h = q->http;
    atomic_fetch_add(&h->inside, 1);
    http_loop_step(&q->conn->listener->loop);
    bool was = q->suspended;
    q->suspended = false;
    meter_enter(&q->cause);
    enum place p = state_place(&q->state);
    *ret_ok = !atomic_load(&q->dropped) &&
              (!atomic_load(&h->cutting) || p == PLACE_HANDLER || p == PLACE_REPLY);
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
    return q->reply.given || (q->in.sink && state_place(&q->state) == PLACE_STREAM);
}

void http_orphan_end(struct rq *q)
{
    struct http *h = q->http;
    if (q->inner)
        http_inner_done(q);
    rq_end(q);
    atomic_fetch_sub(&h->orphans, 1);
}

handler_fn *http_take_then(struct rq *q)
{
    handler_fn *then = q->then;
    q->then = NULL;
    if (http_is_revoked(q)) {
        then = rq_refuse;
    } else if (atomic_load(&q->limit.late) && q->r.late) {
        then = q->r.late;
        q->r.late = NULL;
    }
    state_set(&q->state, RUNS);
    return then;
}

/* fn(&q->r), with the request as the cause of the memory it takes. */
void http_work(struct rq *q, handler_fn *fn)
{
    void (*works_for)(struct request * req) = q->http->calls.works_for;
    if (works_for)
        works_for(&q->r);
    fn(&q->r);
    if (works_for)
        works_for(NULL);
}

void http_forgot(struct rq *q)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_INTERNAL, "the request was left without a reply");
    http_reply_error(&q->r, &e);
}

/* --- called by handlers --- */

static void reply_late(struct request *req)
{
    struct err e = ERR_INIT;
    rq_let_go(rq_of(req));
    err_set(&e, ERR_DEADLINE,
            "the deadline passed before the result was ready; work already queued to write an "
            "array will still be done");
    http_reply_error(req, &e);
}

void http_may_end(struct request *req, handler_fn *late)
{
    struct rq *q = rq_of(req);
    req->abandon = true;
    req->late = late ? late : reply_late;
    if (q->limit.known)
        return;
    q->limit.known = true;
    double most = q->http->config.max_wait_s, wait = most;
    q->limit.preferred_s = prefer_wait(http_header(req, "Prefer"));
    if (q->limit.preferred_s >= 0) {
        if (most > 0 && (double)q->limit.preferred_s > most)
            q->limit.preferred_s = (int64_t)most;
        else
            wait = (double)q->limit.preferred_s;
    }
    if (q->limit.preferred_s >= 0 || most > 0)
        q->limit.deadline_ns = clock_ns() + (uint64_t)(wait * 1e9);
}

bool http_client_left(const struct request *req)
{
    return atomic_load(&rq_of_const(req)->left);
}

void http_wait(struct request *req, handler_fn *then)
{
    struct rq *q = rq_of(req);
    q->then = then;
    state_set(&q->state, ARMED);
}

void http_wake(struct request *req)
{
    struct rq *q = rq_of(req);
    if (state_wake(&q->state) != PARKED)
        return; /* the thread about to park sees it; the request is no longer ours to touch */
    if (q->orphan)
        http_enqueue(q);
    else
        http_resume(q->mhd, q->conn->listener);
}

bool http_hold(struct rq *q)
{
    return state_step(&q->state, PARKED, HELD);
}

void http_unhold(struct rq *q, bool end)
{
    if (state_step(&q->state, HELD, end ? WOKEN : PARKED) && !end)
        return;
    http_resume(q->mhd, q->conn->listener); /* woken by `end`, or by http_wake while held */
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
    uint64_t now = clock_ns();
    if (!*begun_ns)
        *begun_ns = now;
    return now - *begun_ns >= WORK_SLICE_MS * 1000000u;
}

static void wake_flow(struct rq *q)
{
    if (state_wake_flow(&q->state))
        http_resume(q->mhd, q->conn->listener);
}

void http_sink_wake(struct http_sink *sink)
{
    wake_flow(rq_of(sink->req));
}

void http_source_wake(struct http_source *src)
{
    wake_flow(rq_of(src->req));
}

bool wakeup_soon(struct wakeup *w)
{
    struct rq *q = rq_of(w->req);
    const struct http_calls *calls = &q->http->calls;
    const int64_t most = http_spin(w->req);
    if (most == 0)
        return false;
    if (calls->works_for)
        calls->works_for(NULL); /* what ends meanwhile is not this request's */
    meter_enter(NULL);
    uint64_t end = clock_ns() + (uint64_t)most * 1000;
    while (atomic_load(&w->state) != WAKEUP_WOKEN && clock_ns() <= end)
        if (calls->poll)
            calls->poll(q->http->server);
    meter_enter(&q->cause);
    if (calls->works_for)
        calls->works_for(&q->r);
    return atomic_load(&w->state) == WAKEUP_WOKEN;
}

/* --- called by the front --- */

bool http_io_park(struct rq *q)
{
    if (state_step_flow(&q->state, WOKEN, RUNS))
        return false;
    suspend(q);
    if (!state_step_flow(&q->state, RUNS, PARKED)) { /* woken meanwhile, or cut */
        (void)state_step_flow(&q->state, WOKEN, RUNS);
        http_resume(q->mhd, q->conn->listener);
    }
    return true;
}

void http_io_drop(struct rq *q)
{
    atomic_store(&q->dropped, true);
    wake_flow(q);
}

/* Continues after a handler or a continuation has returned. */
enum run_result http_continue(struct rq *q)
{
    for (;;) {
        if (http_done(q))
            return RUN_DONE;
        enum waits w = state_waits(&q->state);
        if (!q->work && w == RUNS) {
            http_forgot(q);
            return RUN_DONE;
        }
        if (q->work) {
            suspend(q);
            http_enqueue(q);
            return RUN_PARKED;
        }
        if (w == ARMED && http_is_late(q)) {
            atomic_store(&q->limit.late, true);
        } else if (w == ARMED) {
            bool orphan = q->orphan;
            suspend(q);
            if (state_step(&q->state, ARMED, PARKED))
                return RUN_PARKED;
            if (!orphan) {
                http_resume(q->mhd, q->conn->listener); /* woken while it was being suspended */
                return RUN_PARKED;
            }
        }
        http_work(q, http_take_then(q));
    }
}

enum run_result http_run(struct rq *q, handler_fn *fn)
{
    http_work(q, fn);
    return http_continue(q);
}

void http_orphan(struct rq *q)
{
    q->orphan = true;
    atomic_store(&q->left, true);
    q->mhd = NULL;
    q->conn = NULL;
    atomic_fetch_add(&q->http->orphans, 1);
    if (http_continue(q) == RUN_DONE)
        http_orphan_end(q);
}
