/* How long a request that waits goes on waiting: until its client has gone, its time is over, or
 * the token that let it in is nobody's any more.
 *
 * libmicrohttpd does not look at a connection that is suspended. So the watch thread does, some
 * tens of times a second, and wakes those that have come to an end; it holds a request meanwhile,
 * so that nobody wakes it and changes what is looked at.
 *
 * A client that has closed its connection and one that has only ended its sending side look alike
 * over TCP: a FIN came. Who waits is taken for gone then, as by nginx and Go's net/http: the first
 * is common, and libmicrohttpd closes the connection of the second as soon as it goes on, since it
 * reads before it writes. (The second gets its reply where that comes at once.) A stream of events,
 * which libmicrohttpd only writes to, is woken instead: its source sends a comment, which one who
 * has closed answers with a reset. */
#include <microhttpd.h>

#include <poll.h>

#include "protocol/wire/prefer.h"
#include "server/http/http_impl.h"

enum presence { PRESENT, SILENT /* it will send no more */, GONE };

static enum presence presence(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0)
        return PRESENT;
    return p.revents & (POLLERR | POLLHUP | POLLNVAL) ? GONE : SILENT;
}

/* One that a worker has not come to yet. */
static void watch_queued(const struct conn *c, struct rq *q)
{
    struct http *h = q->http;
    pthread_mutex_lock(&h->work_lock); /* so it stays in the queue */
    if (q->queued && (q->not_begun || q->r.abandon) && presence(c) != PRESENT)
        atomic_store(&q->dropped, true);
    pthread_mutex_unlock(&h->work_lock);
}

bool http_is_late(const struct rq *q)
{
    return q->r.late && q->deadline_ns && http_now_ns() >= q->deadline_ns;
}

bool http_is_revoked(struct rq *q)
{
    return q->r.abandon && !q->http->calls.lasts(&q->r);
}

void http_watch_waiting(const struct conn *c, struct rq *q)
{
    if (!http_hold(q)) {
        watch_queued(c, q);
        return;
    }
    bool left = q->r.abandon && presence(c) != PRESENT, late = !left && http_is_late(q);
    bool revoked = !left && http_is_revoked(q);
    if (left)
        atomic_store(&q->dropped, true);
    if (late)
        atomic_store(&q->is_late, true);
    http_unhold(q, left || late || revoked);
}

void http_watch_source(const struct conn *c, struct rq *q)
{
    if (!http_source_lasts(q)) {
        http_io_drop(q);
        return;
    }
    switch (presence(c)) {
    case PRESENT:
        break;
    case SILENT:
        if (q->src && q->src_length == SOURCE_OPEN)
            http_source_wake(q->src);
        break;
    case GONE:
        http_io_drop(q);
        break;
    }
}

/* --- what handlers call --- */

static void reply_late(struct request *req)
{
    struct err e = ERR_INIT;
    rq_let_go(rq_of(req));
    err_set(&e, ERR_DEADLINE,
            "what was asked for was not there in the time there was for it; what has been queued "
            "to write an array is done all the same");
    http_reply_error(req, &e);
}

void http_may_end(struct request *req, handler_fn *late)
{
    struct rq *q = rq_of(req);
    req->abandon = true;
    req->late = late ? late : reply_late;
    if (q->patience_known)
        return;
    q->patience_known = true;
    double most = q->http->config.max_wait_s, wait = most;
    q->preferred_s = prefer_wait(http_header(req, "Prefer"));
    if (q->preferred_s >= 0) {
        if (most > 0 && (double)q->preferred_s > most)
            q->preferred_s = (int64_t)most;
        else
            wait = (double)q->preferred_s;
    }
    if (q->preferred_s >= 0 || most > 0)
        q->deadline_ns = http_now_ns() + (uint64_t)(wait * 1e9);
}
