/* Requests as objects: creation, what they release and when, and their end with its log line. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

#define ARENA_PER_BODY 64  /* per byte of the largest body: a parse tree takes about 40 */
#define PATH_LOGGED    200 /* bytes of a path in the log */

/* xoshiro256++: identifiers for logs need to be different, not secret. */
static uint64_t random_u64(void)
{
    static _Thread_local uint64_t s[4];
    if (!(s[0] | s[1] | s[2] | s[3]) &&
        getrandom(s, sizeof s, GRND_NONBLOCK) != (ssize_t)sizeof s) {
        s[0] = clock_ns();
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
    q->begun_ns = clock_ns();
    http_new_id(q->r.id);
    return q;
}

void rq_let_go(struct rq *q)
{
    if (q->in.sink && !q->in.sink_done && q->in.sink->abort)
        q->in.sink->abort(q->in.sink);
    q->in.sink_done = true;
    if (q->r.state && q->r.state_free)
        q->r.state_free(q->r.state);
    q->r.state = NULL;
    q->r.state_free = NULL;
}

void rq_drop_body(struct rq *q)
{
    mem_free(q->in.buf);
    mem_gave_back(q->in.cap);
    metered_end(&q->in.counted);
    q->in.buf = NULL;
    q->in.cap = 0;
    q->r.body = NULL;
}

/* After the reply has been handed over: frees a large request's memory except what will be logged,
 * so that it is not held while the client reads. */
void rq_lighten(struct rq *q)
{
    if (q->reply.src || arena_bytes(q->r.arena) + q->in.cap <= METERED_LEAST)
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
    q->r.device_turn = NULL; /* released with the reply */
    q->headers = NULL;
    q->n_headers = q->cap_headers = 0;
    q->reply.headers = q->reply.last = NULL;
}

static void rq_free(struct rq *q)
{
    if (q->reply.src && q->reply.src->free)
        q->reply.src->free(q->reply.src);
    rq_let_go(q);
    if (q->http->calls.release)
        q->http->calls.release(&q->r);
    strb_free(&q->reply.body);
    rq_drop_body(q);
    metered_end(&q->reply.counted);
    arena_free(q->r.arena);
    meter_unref(q->cause.meter);
    mem_free(q);
}

void rq_end(struct rq *q)
{
    struct http *h = q->http;
    double seconds = (double)(clock_ns() - q->begun_ns) * 1e-9;
    int64_t in = atomic_load(&q->in.received), out = atomic_load(&q->reply.sent);
    enum place p = state_place(&q->state);
    bool sent = p == PLACE_REPLY || (q->reply.given && p == PLACE_CUT);
    int status = sent ? q->reply.status : p == PLACE_CUT ? 408 : 0;
    h->calls.ended(&q->r, status, seconds, in, out);
    bool asked = q->traceparent || h->config.log_requests;
    enum log_level level = status >= 500 ? LOG_WARN : asked ? LOG_INFO : LOG_DEBUG;
    if (log_enabled(level)) {
        char s[16], i[24], o[24], ms[32], device[32] = "";
        snprintf(s, sizeof s, "%d", status);
        snprintf(i, sizeof i, "%lld", (long long)in);
        snprintf(o, sizeof o, "%lld", (long long)out);
        snprintf(ms, sizeof ms, "%.3f", seconds * 1e3);
        /* shortened: even a client without any rights can send long ones */
        char path[PATH_LOGGED + 4];
        if (snprintf(path, sizeof path, "%s", q->r.path) > PATH_LOGGED)
            memcpy(path + PATH_LOGGED, "\xe2\x80\xa6", 4);
        if (q->r.t_device >= 0)
            snprintf(device, sizeof device, "%.3f", q->r.t_device);
        log_event(level, "request", "id", q->r.id, "traceparent",
                  q->traceparent ? q->traceparent : "", "principal", http_user_name(&q->r),
                  "method", q->r.method, "path", path, "status", s, "bytes_in", i, "bytes_out", o,
                  "ms", ms, "device_ms", device, NULL);
    }
    rq_free(q);
    atomic_fetch_sub_explicit(&h->in_flight, 1, memory_order_release);
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
