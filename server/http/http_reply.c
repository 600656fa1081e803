/* The handler's reply. It is kept in the request (status, headers, body or source) until
 * http_send.c hands it to libmicrohttpd. Where that never happens (a refused body that keeps
 * coming, a deadline), http_raw.c writes the same reply to the socket. */
#include <string.h>

#include "protocol/wire/problem.h"
#include "server/http/http_impl.h"

#define STREAM_BLOCK 4096 /* of a body of unknown length */
#define SOURCE_BLOCK (1u << 20)

void rq_refuse(struct request *r)
{
    struct err e = ERR_INIT;
    rq_let_go(rq_of(r));
    r->late = NULL; /* no longer matters */
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

/* --- replies --- */

static void add(struct reply *r, struct out_header *h)
{
    if (r->last)
        r->last->next = h;
    else
        r->headers = h;
    r->last = h;
}

void http_add_header(struct request *req, const char *name, const char *value)
{
    struct out_header *h = arena_alloc(req->arena, sizeof *h);
    char *n = arena_strndup(req->arena, name, strlen(name));
    char *v = arena_strndup(req->arena, value, strlen(value));
    if (!h || !n || !v)
        return; /* better a reply without this header than none */
    *h = (struct out_header){NULL, n, v};
    add(&rq_of(req)->reply, h);
}

static bool take_reply(struct rq *q, int status, const char *content_type)
{
    if (q->reply.given) /* a handler's mistake; the first reply stands */
        return false;
    q->reply.given = true;
    if (q->r.device_turn && q->http->calls.turn_leave)
        q->http->calls.turn_leave(&q->r);
    q->reply.status = status;
    q->reply.type = content_type;
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
        q->reply.body = *take_body;
        *take_body = (struct strb){0};
    } else {
        strb_free(take_body);
    }
}

void http_reply_json(struct request *req, int status, struct strb *take_body)
{
    http_reply_text(req, status, "application/json", take_body);
}

void http_last(struct request *req)
{
    rq_of(req)->must_close = true;
}

void http_reply_empty(struct request *req, int status)
{
    take_reply(rq_of(req), status, NULL);
}

/* Whether the route's handler is the caller, and has not taken anything of a body yet. */
static bool may_repeat(const struct rq *q)
{
    enum place p = state_place(&q->state);
    return (p == PLACE_HANDLER && q->r.route->body != BODY_STREAM) ||
           (p == PLACE_STREAM && !q->in.sink);
}

static void add_retry_after(struct reply *r, int seconds)
{
    snprintf(r->retry_after_s, sizeof r->retry_after_s, "%d", seconds);
    r->retry_after = (struct out_header){NULL, "Retry-After", r->retry_after_s};
    add(r, &r->retry_after);
}

void http_reply_error(struct request *req, const struct err *e)
{
    struct rq *q = rq_of(req);
    struct err said = *e;
    if (e->code == ERR_DEVICE_LOST)
        atomic_store(&q->http->server->device_lost, true);
    if (!q->reply.given && may_repeat(q) && q->http->calls.retry && q->http->calls.retry(req, e))
        return;
    if (q->http->calls.explain)
        q->http->calls.explain(req, &said);
    if (!take_reply(q, err_status(e->code), "application/problem+json"))
        return;
    if (q->reply.status == 429 || q->reply.status == 503)
        add_retry_after(&q->reply, said.retry_s > 0 ? said.retry_s : 1);
    problem_write(&said, &q->reply.body);
    if (q->reply.body.failed) { /* the status alone must do */
        strb_free(&q->reply.body);
        q->reply.type = NULL;
    }
}

/* The bytes of it that libmicrohttpd buffers at once. */
size_t http_source_block(const struct rq *q, int64_t length)
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
    size_t block = http_source_block(q, length);
    bool counts =
        q->reply.given || block <= METERED_LEAST || metered_set(&q->reply.counted, (int64_t)block);
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
    q->reply.src = take_src;
    q->reply.length = length;
}
