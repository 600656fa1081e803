/* Bodies on their way in, and sources on their way out.
 *
 * libmicrohttpd hands over whatever lies in the connection's buffer; what is not taken is offered
 * again after the connection was resumed. So back pressure costs nothing: leave the bytes, suspend,
 * and let whoever makes room resume. Nothing here ever holds more of a streamed body than that
 * buffer. */
#include <microhttpd.h>

#include <string.h>
#include <sys/socket.h>

#include "compute/base/mem.h"
#include "server/http/http_impl.h"

#define BLOCK_SHARED (128u << 10) /* of a download while others are served: their tail latency */
#define SHARED_NS    100000000ull /* how long after another connection's request that holds */

bool http_phase(struct rq *q, enum phase from, enum phase to)
{
    int expected = (int)from;
    return atomic_compare_exchange_strong(&q->phase, &expected, (int)to);
}

static void refuse(struct rq *q, enum err_code code, const char *detail)
{
    struct err e = ERR_INIT;
    err_set(&e, code, "%s", detail);
    rq_let_go(q);
    http_reply_error(&q->r, &e);
    rq_drop_body(q);
    q->stage = STAGE_DRAIN;
    http_phase(q, PHASE_BODY, PHASE_DRAIN);
}

enum err_code http_body_quota(const struct rq *q, struct err *e)
{
    return err_set(e, ERR_QUOTA,
                   "the body is larger than %lld bytes, the most allowed (quota body)",
                   (long long)q->user.max_body);
}

/* Whether `n` bytes more are allowed. */
static enum err_code check_quota(const struct rq *q, size_t n, struct err *e)
{
    int64_t received = atomic_load_explicit(&q->received, memory_order_relaxed);
    return q->user.max_body && received + (int64_t)n > q->user.max_body ? http_body_quota(q, e)
                                                                        : ERR_OK;
}

/* Grows by doubling, but never past what was announced: a client that claims much and sends little
 * costs little. */
static bool buffer(struct rq *q, const char *bytes, size_t n)
{
    size_t limit = q->http->config.max_json_body, need = q->r.body_len + n;
    if (need > limit) {
        refuse(q, ERR_TOO_LARGE, "the body is larger than this route takes: see max_json_body");
        return true;
    }
    if (need + 1 > q->buf_cap) {
        size_t cap = q->buf_cap ? q->buf_cap * 2 : 4096;
        size_t whole = q->chunked ? limit : (size_t)q->r.content_length;
        while (cap < need + 1)
            cap *= 2;
        if (cap > whole + 1)
            cap = whole + 1;
        char *p = cap <= METERED_LEAST || metered_set(&q->buf_counted, (int64_t)cap)
                      ? mem_realloc(q->buf, cap)
                      : NULL;
        if (!p) {
            struct err e = ERR_INIT;
            refuse(q, err_oom(&e), e.message);
            return true;
        }
        q->buf = p;
        q->buf_cap = cap;
    }
    memcpy(q->buf + q->r.body_len, bytes, n);
    q->r.body_len = need;
    q->buf[need] = '\0';
    return true;
}

static void call_end(struct request *r)
{
    struct rq *q = rq_of(r);
    if (!rq_still_may(r))
        return;
    q->sink_done = true;
    q->sink->end(q->sink, r);
}

static void call_end_in_turn(struct request *r)
{
    const struct http_calls *calls = &rq_of(r)->http->calls;
    if (!calls->turn_take || calls->turn_take(r, call_end))
        call_end(r);
}

enum run_result http_sink_end(struct rq *q)
{
    bool failed = q->stage == STAGE_SINK_END;
    return http_run(q, q->sink->works && !failed ? call_end_in_turn : call_end);
}

/* After a failed sink's end(): the reply is there, the rest of the body is not wanted. */
static void sink_ended(struct rq *q)
{
    q->stage = STAGE_DRAIN;
    http_phase(q, PHASE_WORK, PHASE_DRAIN);
}

static bool push(struct rq *q, const char *bytes, size_t *n)
{
    while (*n) {
        bool failed = false;
        size_t k = q->sink->push(q->sink, bytes, *n, &failed);
        if (failed) {
            if (!http_phase(q, PHASE_BODY, PHASE_WORK))
                return true; /* cut meanwhile */
            /* One byte stays, so that this function is called again once end() has replied. */
            *n = 1;
            q->stage = STAGE_SINK_END;
            if (http_sink_end(q) == RUN_PARKED)
                return true;
            sink_ended(q);
            *n = 0;
            return true;
        }
        if (k == 0) {
            if (http_io_park(q))
                return true;
            continue;
        }
        bytes += k;
        *n -= k;
        atomic_fetch_add_explicit(&q->received, (int64_t)k, memory_order_relaxed);
    }
    return true;
}

bool http_body_bytes(struct rq *q, const char *bytes, size_t *n)
{
    atomic_store_explicit(&q->last_byte, http_now_ms_coarse(), memory_order_relaxed);
    if (q->stage == STAGE_SINK_END) {
        if (http_continue(q) == RUN_PARKED)
            return true;
        sink_ended(q);
    }
    if (q->stage == STAGE_BODY && atomic_load(&q->phase) != PHASE_CUT) {
        size_t had = *n;
        struct err e = ERR_INIT;
        enum err_code rc = check_quota(q, had, &e);
        if (!q->http->calls.lasts(&q->r))
            rc = q->http->calls.refuse(&q->r, &e);
        if (rc) {
            refuse(q, e.code, e.message);
            return http_body_bytes(q, bytes, n);
        }
        switch (q->r.route->body) {
        case BODY_STREAM:
            return push(q, bytes, n);
        case BODY_BUFFERED:
        case BODY_OPTIONAL:
            *n = 0;
            atomic_fetch_add_explicit(&q->received, (int64_t)had, memory_order_relaxed);
            return buffer(q, bytes, had);
        case BODY_NONE:
            *n = 0;
            if (atomic_fetch_add_explicit(&q->received, (int64_t)had, memory_order_relaxed) +
                    (int64_t)had >
                q->http->config.max_ignored_body)
                refuse(q, ERR_TOO_LARGE, "this route takes no body");
            return true;
        }
    }
    /* Nobody wants it. */
    q->drained += (int64_t)*n;
    *n = 0;
    if (q->drained > q->http->config.max_unread_body) {
        if (http_phase(q, PHASE_DRAIN, PHASE_CUT)) {
            http_raw_reply(q);
            q->drained = 0;
        } else {
            return false;
        }
    }
    return true;
}

void http_accept_body(struct request *req, struct http_sink *take_sink)
{
    take_sink->req = req;
    rq_of(req)->sink = take_sink;
}

/* Whether somebody else has asked for something lately, or is being served. */
static bool others_active(const struct rq *q)
{
    struct http *h = q->http;
    if (atomic_load_explicit(&h->in_flight, memory_order_relaxed) > 1)
        return true;
    return atomic_load_explicit(&h->last_conn, memory_order_relaxed) != (uintptr_t)q->conn &&
           http_now_ns() - atomic_load_explicit(&h->last_begun_ns, memory_order_relaxed) <
               SHARED_NS;
}

bool http_alone(const struct request *req)
{
    return !others_active(rq_of_const(req));
}

bool http_source_lasts(struct rq *q)
{
    return q->http->calls.lasts(&q->r) && (!q->src->lasts || q->src->lasts(q->src));
}

static int64_t pull(struct rq *q, uint64_t pos, char *buf, size_t max)
{
    if (max > BLOCK_SHARED && others_active(q))
        max = BLOCK_SHARED;
    for (;;) {
        int64_t k = q->src->pull(q->src, (int64_t)pos, buf, max);
        if (k > 0) {
            atomic_fetch_add_explicit(&q->sent, k, memory_order_relaxed);
            return k;
        }
        if (k < 0 || atomic_load(&q->http->cutting))
            return k == SOURCE_END ? k : -1;
        if (http_io_park(q))
            return 0;
    }
}

/* Ends the connection in the midst of a reply. An error, libmicrohttpd would take for the end of
 * the request alone: it marks the connection as closed and looks at it again when its socket says
 * something, which after a suspension is in no epoll set, or when no older connection is idle. Of a
 * write that fails it lets go at once. */
static int64_t hang_up(struct rq *q, char *buf)
{
    if (!q->conn)
        return (int64_t)MHD_CONTENT_READER_END_WITH_ERROR;
    shutdown(q->conn->fd, SHUT_RDWR);
    *buf = 0; /* goes nowhere */
    return 1;
}

int64_t http_pull(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct rq *q = cls;
    struct http *h = q->http;
    bool ok, was = http_enter(q, &ok);
    bool lasts = http_source_lasts(q);
    int64_t k = ok && lasts ? pull(q, pos, buf, max) : -1;
    if (k > 0 && !(lasts = http_source_lasts(q))) /* it ended meanwhile: nothing tells of that */
        k = -1;
    if (!lasts && q->conn)
        http_reset(q->conn);
    if (k == SOURCE_END)
        k = (int64_t)MHD_CONTENT_READER_END_OF_STREAM;
    else if (k < 0)
        k = hang_up(q, buf);
    http_leave(h, was);
    return k;
}
