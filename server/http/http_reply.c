/* Requests as objects, and replies.
 *
 * A reply is first kept in the request (status, headers, body or source) and handed over only when
 * libmicrohttpd will take it: inside its callback, with the body of the request read. Where that
 * moment never comes (a body that is refused and keeps coming, a deadline), the same reply is
 * written to the socket by hand. */
#include <microhttpd.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "compute/base/mem.h"
#include "protocol/wire/problem.h"
#include "server/http/http_impl.h"

#define STREAM_BLOCK   4096 /* of a body whose length nobody knows */
#define SOURCE_BLOCK   (1u << 20)
#define ARENA_PER_BODY 64 /* what a request may use, beside its largest body: a tree is some 40 */

/* --- requests --- */

/* xoshiro256++: identifiers for logs need to be different, not secret. */
static uint64_t random_u64(void)
{
    static _Thread_local uint64_t s[4];
    if (!(s[0] | s[1] | s[2] | s[3]) &&
        getrandom(s, sizeof s, GRND_NONBLOCK) != (ssize_t)sizeof s) {
        s[0] = http_now_ns();
        s[1] = (uintptr_t)&s;
        s[2] = 0x9e3779b97f4a7c15u;
    }
    uint64_t sum = s[0] + s[3], t = s[1] << 17;
    uint64_t result = (sum << 23 | sum >> 41) + s[0];
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

void http_new_id(char out[33])
{
    static const char digits[] = "0123456789abcdef";
    for (int half = 0; half < 2; half++) {
        uint64_t v = random_u64();
        for (int i = 0; i < 16; i++, v >>= 4)
            out[half * 16 + i] = digits[v & 15];
    }
    out[32] = '\0';
}

struct rq *rq_new(struct http *h, struct conn *c, struct MHD_Connection *mhd, const char *uri)
{
    struct rq *q = mem_calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->r.arena = arena_new(ARENA_PER_BODY * h->config.max_json_body);
    q->uri = q->r.arena ? arena_strndup(q->r.arena, uri, strlen(uri)) : NULL;
    if (!q->uri) {
        arena_free(q->r.arena);
        mem_free(q);
        return NULL;
    }
    q->r.server = h->server;
    q->r.connection = c->number;
    q->r.method = "-";
    q->r.path = q->uri;
    q->r.t_parse = q->r.t_plan = q->r.t_compile = q->r.t_device = q->r.t_copy = -1;
    q->http = h;
    q->conn = c;
    q->mhd = mhd;
    q->begun_ns = http_now_ns();
    http_new_id(q->r.id);
    return q;
}

void rq_let_go(struct rq *q)
{
    if (q->sink && !q->sink_done && q->sink->abort)
        q->sink->abort(q->sink);
    q->sink_done = true;
    if (q->r.state && q->r.state_free)
        q->r.state_free(q->r.state);
    q->r.state = NULL;
    q->r.state_free = NULL;
}

void rq_drop_body(struct rq *q)
{
    mem_free(q->buf);
    mem_gave_back(q->buf_cap);
    metered_end(&q->buf_counted);
    q->buf = NULL;
    q->buf_cap = 0;
    q->r.body = NULL;
}

/* The reply has been handed over: of a request that has taken much, only what will be logged stays
 * while the client reads it. */
static void lighten(struct rq *q)
{
    if (q->src || arena_bytes(q->r.arena) + q->buf_cap <= METERED_LEAST)
        return;
    struct arena *small = arena_new(0);
    const char *path = small ? arena_strndup(small, q->r.path, strlen(q->r.path)) : NULL;
    const char *trace = q->traceparent;
    if (small && trace)
        trace = arena_strndup(small, trace, strlen(trace));
    if (!path || (q->traceparent && !trace)) {
        arena_free(small);
        return;
    }
    rq_let_go(q);
    rq_drop_body(q);
    arena_free(q->r.arena);
    q->r.arena = small;
    q->uri = q->r.path = path;
    q->traceparent = trace;
    q->r.query = NULL;
    q->r.n_query = 0;
    q->r.device_turn = NULL; /* it left it with the reply */
    q->headers = NULL;
    q->n_headers = q->cap_headers = 0;
    q->out_headers = q->last_out = NULL;
}

void rq_free(struct rq *q)
{
    if (q->src && q->src->free)
        q->src->free(q->src);
    rq_let_go(q);
    if (q->http->calls.release)
        q->http->calls.release(&q->r);
    strb_free(&q->body);
    rq_drop_body(q);
    metered_end(&q->src_counted);
    arena_free(q->r.arena);
    meter_unref(q->cause.meter);
    mem_free(q);
}

void rq_refuse(struct request *r)
{
    struct err e = ERR_INIT;
    rq_let_go(rq_of(r));
    r->late = NULL; /* nobody's patience is over */
    if (rq_of(r)->http->calls.refuse(r, &e) != ERR_OK)
        http_reply_error(r, &e);
}

bool rq_still_may(struct request *r)
{
    struct err e = ERR_INIT;
    const struct http_calls *calls = &rq_of(r)->http->calls;
    if (!calls->lasts(r)) {
        rq_refuse(r);
        return false;
    }
    if (calls->authorize(r, &e) == ERR_OK)
        return true;
    http_reply_error(r, &e);
    return false;
}

const char *http_header(struct request *req, const char *name)
{
    struct rq *q = rq_of(req);
    const char *value = NULL;
    for (size_t i = 0; i < q->n_headers; i++) {
        if (strcasecmp(q->headers[i].name, name) != 0)
            continue;
        if (!value)
            value = q->headers[i].value;
        else
            value = arena_printf(req->arena, "%s, %s", value, q->headers[i].value);
        if (!value)
            return q->headers[i].value;
    }
    return value;
}

const char *http_user_name(const struct request *req)
{
    const char *name = rq_of_const(req)->user.name;
    return name ? name : "";
}

const char *http_query(const struct request *req, const char *key)
{
    for (size_t i = 0; i < req->n_query; i++)
        if (!strcmp(req->query[i].key, key))
            return req->query[i].value;
    return NULL;
}

enum err_code http_query_only(const struct request *req, const char *const *allowed, struct err *e)
{
    for (size_t i = 0; i < req->n_query; i++) {
        const char *const *a = allowed;
        while (*a && strcmp(*a, req->query[i].key) != 0)
            a++;
        if (!*a)
            return err_set(e, ERR_BAD_QUERY, "unknown query parameter '%.64s'", req->query[i].key);
    }
    return ERR_OK;
}

/* --- replies --- */

void http_add_header(struct request *req, const char *name, const char *value)
{
    struct rq *q = rq_of(req);
    struct out_header *h = arena_alloc(req->arena, sizeof *h);
    char *n = arena_strndup(req->arena, name, strlen(name));
    char *v = arena_strndup(req->arena, value, strlen(value));
    if (!h || !n || !v)
        return; /* the reply is worth more than one of its headers */
    *h = (struct out_header){NULL, n, v};
    if (q->last_out)
        q->last_out->next = h;
    else
        q->out_headers = h;
    q->last_out = h;
}

static bool take_reply(struct rq *q, int status, const char *content_type)
{
    if (q->replied) /* a handler's mistake; the first reply stands */
        return false;
    q->replied = true;
    if (q->r.device_turn && q->http->calls.turn_leave)
        q->http->calls.turn_leave(&q->r);
    q->status = status;
    q->content_type = content_type;
    return true;
}

void http_reply_text(struct request *req, int status, const char *content_type,
                     struct strb *take_body)
{
    struct rq *q = rq_of(req);
    if (take_body->failed) {
        struct err e = ERR_INIT;
        strb_free(take_body);
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    if (take_reply(q, status, content_type)) {
        q->body = *take_body;
        *take_body = (struct strb){0};
    } else {
        strb_free(take_body);
    }
}

void http_reply_json(struct request *req, int status, struct strb *take_body)
{
    http_reply_text(req, status, "application/json", take_body);
}

void http_reply_empty(struct request *req, int status)
{
    take_reply(rq_of(req), status, NULL);
}

/* Whether it is the route's handler that speaks, and has not taken anything of a body yet. */
static bool may_repeat(const struct rq *q)
{
    return (q->stage == STAGE_HANDLER && q->r.route->body != BODY_STREAM) ||
           (q->stage == STAGE_STREAM_HANDLER && !q->sink);
}

void http_reply_error(struct request *req, const struct err *e)
{
    struct rq *q = rq_of(req);
    struct err lost;
    if (e->code == ERR_DEVICE_LOST) {
        atomic_store(&q->http->server->device_lost, true);
        if (q->http->calls.say_lost) {
            lost = *e;
            q->http->calls.say_lost(req, &lost);
            e = &lost;
        }
    }
    if (!q->replied && may_repeat(q) && q->http->calls.retry && q->http->calls.retry(req, e))
        return;
    if (!take_reply(q, err_status(e->code), "application/problem+json"))
        return;
    if (q->status == 429 || q->status == 503)
        http_add_header(req, "Retry-After", "1");
    problem_write(e, &q->body);
    if (q->body.failed) { /* the status alone must do */
        strb_free(&q->body);
        q->content_type = NULL;
    }
}

/* That libmicrohttpd has of it at once. */
static size_t source_block(const struct rq *q, int64_t length)
{
    if (length < 0)
        return STREAM_BLOCK;
    size_t block = q->head ? 1 : SOURCE_BLOCK;
    return (uint64_t)length < block ? (size_t)length : block;
}

void http_reply_source(struct request *req, int status, const char *content_type, int64_t length,
                       struct http_source *take_src)
{
    struct rq *q = rq_of(req);
    take_src->req = req;
    size_t block = source_block(q, length);
    bool counts =
        q->replied || block <= METERED_LEAST || metered_set(&q->src_counted, (int64_t)block);
    if (!counts || !take_reply(q, status, content_type)) {
        if (take_src->free)
            take_src->free(take_src);
        if (!counts) {
            struct err e = ERR_INIT;
            err_oom(&e);
            http_reply_error(req, &e);
        }
        return;
    }
    q->src = take_src;
    q->src_length = length;
}

/* --- on their way --- */

static size_t put_ms(char *buf, size_t n, size_t at, const char *name, double ms)
{
    if (ms < 0)
        ms = 0;
    uint64_t us = ms > 1e12 ? (uint64_t)1e15 : (uint64_t)(ms * 1000 + 0.5);
    char digits[24];
    size_t d = sizeof digits;
    for (int i = 0; i < 3; i++, us /= 10)
        digits[--d] = (char)('0' + us % 10);
    digits[--d] = '.';
    do
        digits[--d] = (char)('0' + us % 10);
    while (us /= 10);
    size_t name_len = strlen(name), len = sizeof digits - d;
    if (at + name_len + len + 8 > n)
        return at;
    if (at) {
        memcpy(buf + at, ", ", 2);
        at += 2;
    }
    memcpy(buf + at, name, name_len);
    memcpy(buf + at + name_len, ";dur=", 5);
    memcpy(buf + at + name_len + 5, digits + d, len);
    at += name_len + 5 + len;
    buf[at] = '\0';
    return at;
}

void http_server_timing(const struct rq *q, char *buf, size_t n)
{
    const struct request *r = &q->r;
    size_t at = put_ms(buf, n, 0, "parse", r->t_parse);
    at = put_ms(buf, n, at, "plan", r->t_plan);
    at = put_ms(buf, n, at, "compile", r->t_compile);
    if (r->t_device >= 0)
        at = put_ms(buf, n, at, q->http->device_name, r->t_device);
    if (r->t_copy >= 0)
        at = put_ms(buf, n, at, "copy", r->t_copy);
    put_ms(buf, n, at, "total", (double)(http_now_ns() - q->begun_ns) * 1e-6);
}

static bool bodiless(int status)
{
    return status < 200 || status == 204 || status == 304;
}

bool http_queue(struct rq *q)
{
    struct MHD_Response *m;
    if (q->src && q->src_length < 0) { /* it ends when it ends */
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, http_pull, q, NULL);
        if (m && q->head) /* of chunks, libmicrohttpd would send the last one */
            MHD_set_response_options(m, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    } else if (q->src && q->src_length > 0) {
        m = MHD_create_response_from_callback((uint64_t)q->src_length,
                                              source_block(q, q->src_length), http_pull, q, NULL);
    } else if (q->body.len && !bodiless(q->status)) {
        atomic_store_explicit(&q->sent, q->head ? 0 : (int64_t)q->body.len, memory_order_relaxed);
        m = MHD_create_response_from_buffer_with_free_callback(q->body.len, q->body.data, mem_free);
        if (m)
            q->body.data = NULL; /* it counts until the request ends */
    } else {
        m = MHD_create_response_from_buffer_with_free_callback(0, (void *)"", NULL);
    }
    if (!m)
        return false;
    char timing[200];
    http_server_timing(q, timing, sizeof timing);
    bool ok = MHD_add_response_header(m, "X-Request-Id", q->r.id) &&
              MHD_add_response_header(m, "Server-Timing", timing);
    if (ok && q->content_type && !bodiless(q->status))
        ok = MHD_add_response_header(m, "Content-Type", q->content_type);
    if (ok && q->patience_known && q->preferred_s >= 0 && (q->r.late || atomic_load(&q->is_late))) {
        snprintf(timing, sizeof timing, "wait=%lld", (long long)q->preferred_s);
        ok = MHD_add_response_header(m, "Preference-Applied", timing);
    }
    for (const struct out_header *h = q->out_headers; ok && h; h = h->next)
        ok = MHD_add_response_header(m, h->name, h->value);
    if (ok && (q->must_close || atomic_load_explicit(&q->http->stopping, memory_order_relaxed)))
        ok = MHD_add_response_header(m, "Connection", "close");
    ok = ok && MHD_queue_response(q->mhd, (unsigned)q->status, m);
    MHD_destroy_response(m);
    q->stage = STAGE_QUEUED;
    http_phase(q, PHASE_WORK, PHASE_REPLY);
    lighten(q);
    return ok;
}

/* --- by hand --- */

static void send_all(struct conn *c, const char *p, size_t n)
{
    if (c->tls) {
        http_tls_send(c, p, n);
        return;
    }
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break; /* a client that does not read its last reply has none */
        p += k;
        n -= (size_t)k;
    }
}

static void raw_head(struct strb *out, int status, const char *id, const char *timing)
{
    char date[64];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    strb_addf(out,
              "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\nX-Request-Id: %s\r\n"
              "Server-Timing: %s\r\n",
              status, MHD_get_reason_phrase_for((unsigned)status), date, id, timing);
}

void http_raw_reply(struct rq *q)
{
    _cleanup_strb_ struct strb out = {0};
    char timing[200];
    http_server_timing(q, timing, sizeof timing);
    raw_head(&out, q->status, q->r.id, timing);
    for (const struct out_header *h = q->out_headers; h; h = h->next)
        strb_addf(&out, "%s: %s\r\n", h->name, h->value);
    if (q->content_type && q->body.len)
        strb_addf(&out, "Content-Type: %s\r\n", q->content_type);
    strb_addf(&out, "Content-Length: %zu\r\n\r\n", q->body.len);
    if (!q->head)
        strb_addn(&out, q->body.data ? q->body.data : "", q->body.len);
    if (!out.failed)
        send_all(q->conn, out.data, out.len);
    shutdown(q->conn->fd, SHUT_WR);
}

void http_raw_error(struct conn *c, const char *id, const struct err *e)
{
    _cleanup_strb_ struct strb out = {0}, body = {0};
    problem_write(e, &body);
    raw_head(&out, err_status(e->code), id, HTTP_NO_TIMING);
    strb_addf(&out, "Content-Type: application/problem+json\r\nContent-Length: %zu\r\n\r\n",
              body.len);
    strb_addn(&out, body.data ? body.data : "", body.len);
    if (!out.failed && !body.failed)
        send_all(c, out.data, out.len);
    shutdown(c->fd, SHUT_WR);
}
