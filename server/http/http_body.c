/* Request bodies.
 *
 * libmicrohttpd passes whatever the connection's buffer holds; bytes not taken are offered again
 * after the connection was resumed. So back pressure costs nothing: leave the bytes, suspend, and
 * resume when space is free. No more of a streamed body than that buffer is ever held here. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

static void refuse(struct rq *q, enum err_code code, const char *detail)
{
    struct err e = ERR_INIT;
    err_set(&e, code, "%s", detail);
    rq_let_go(q);
    http_reply_error(&q->r, &e);
    rq_drop_body(q);
    (void)state_move(&q->state, PLACE_BODY, PLACE_DRAIN); /* else it was cut meanwhile */
}

size_t http_body_most(const struct rq *q)
{
    const size_t most = q->r.route->most_body, all = q->http->config.max_json_body;
    return most && most < all ? most : all;
}

enum err_code http_body_quota(const struct rq *q, struct err *e)
{
    return err_set(e, ERR_QUOTA, "the body is larger than the %lld bytes allowed (quota body)",
                   (long long)q->user.max_body);
}

/* Whether `n` bytes more are allowed. */
static enum err_code check_quota(const struct rq *q, size_t n, struct err *e)
{
    int64_t received = atomic_load_explicit(&q->in.received, memory_order_relaxed);
    return q->user.max_body && received + (int64_t)n > q->user.max_body ? http_body_quota(q, e)
                                                                        : ERR_OK;
}

/* Grows by doubling, but never past the announced length: a client that announces much and sends
 * little costs little. */
static bool buffer(struct rq *q, const char *bytes, size_t n)
{
    size_t limit = http_body_most(q), need = q->r.body_len + n;
    if (need > limit) {
        refuse(q, ERR_TOO_LARGE, "the body is larger than this route accepts: see max_json_body");
        return true;
    }
    if (need + 1 > q->in.cap) {
        size_t cap = q->in.cap ? q->in.cap * 2 : 4096;
        size_t whole = q->chunked ? limit : (size_t)q->r.content_length;
        while (cap < need + 1)
            cap *= 2;
        if (cap > whole + 1)
            cap = whole + 1;
        char *p = cap <= METERED_LEAST || metered_set(&q->in.counted, (int64_t)cap)
                      ? mem_realloc(q->in.buf, cap)
                      : NULL;
        if (!p) {
            struct err e = ERR_INIT;
            refuse(q, err_oom(&e), e.message);
            return true;
        }
        q->in.buf = p;
        q->in.cap = cap;
    }
    memcpy(q->in.buf + q->r.body_len, bytes, n);
    q->r.body_len = need;
    q->in.buf[need] = '\0';
    return true;
}

static void call_end(struct request *r)
{
    struct rq *q = rq_of(r);
    if (!rq_still_may(r))
        return;
    q->in.sink_done = true;
    q->in.sink->end(q->in.sink, r);
}

static void call_end_in_turn(struct request *r)
{
    const struct http_calls *calls = &rq_of(r)->http->calls;
    if (!calls->turn_take || calls->turn_take(r, call_end))
        call_end(r);
}

enum run_result http_sink_end(struct rq *q)
{
    bool failed = state_place(&q->state) == PLACE_SINK_END;
    return http_run(q, q->in.sink->works && !failed ? call_end_in_turn : call_end);
}

/* After a failed sink's end(): the reply is given, the rest of the body is dropped. */
static void sink_ended(struct rq *q)
{
    state_go(&q->state, PLACE_DRAIN);
}

static bool push(struct rq *q, const char *bytes, size_t *n)
{
    while (*n) {
        bool failed = false;
        size_t k = q->in.sink->push(q->in.sink, bytes, *n, &failed);
        if (failed) {
            if (!state_move(&q->state, PLACE_BODY, PLACE_SINK_END))
                return true; /* cut meanwhile */
            /* One byte stays, so that this function is called again once end() has replied. */
            *n = 1;
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
        atomic_fetch_add_explicit(&q->in.received, (int64_t)k, memory_order_relaxed);
    }
    return true;
}

bool http_body_bytes(struct rq *q, const char *bytes, size_t *n)
{
    atomic_store_explicit(&q->in.last_byte, clock_coarse_ms(), memory_order_relaxed);
    if (state_place(&q->state) == PLACE_SINK_END) {
        if (http_continue(q) == RUN_PARKED)
            return true;
        sink_ended(q);
    }
    if (state_place(&q->state) == PLACE_BODY) {
        size_t had = *n;
        struct err e = ERR_INIT;
        enum err_code code = check_quota(q, had, &e);
        if (!q->http->calls.lasts(&q->r))
            code = q->http->calls.refuse(&q->r, &e);
        if (code != ERR_OK) {
            refuse(q, e.code, e.message);
            return http_body_bytes(q, bytes, n);
        }
        switch (q->r.route->body) {
        case BODY_STREAM:
            return push(q, bytes, n);
        case BODY_BUFFERED:
        case BODY_OPTIONAL:
            *n = 0;
            atomic_fetch_add_explicit(&q->in.received, (int64_t)had, memory_order_relaxed);
            return buffer(q, bytes, had);
        case BODY_NONE:
            *n = 0;
            if (atomic_fetch_add_explicit(&q->in.received, (int64_t)had, memory_order_relaxed) +
                    (int64_t)had >
                q->http->config.max_ignored_body)
                refuse(q, ERR_TOO_LARGE, "this route takes no body");
            return true;
        }
    }
    /* The rest is dropped. */
    q->in.drained += (int64_t)*n;
    *n = 0;
    if (q->in.drained > q->http->config.max_unread_body) {
        if (state_move(&q->state, PLACE_DRAIN, PLACE_CUT)) {
            http_raw_reply(q);
            q->in.drained = 0;
        } else {
            return false;
        }
    }
    return true;
}

void http_accept_body(struct request *req, struct http_sink *take_sink)
{
    take_sink->req = req;
    rq_of(req)->in.sink = take_sink;
}
