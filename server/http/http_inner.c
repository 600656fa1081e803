/* Requests within requests: what a stream sends may be other replies, made one after the other.
 *
 * An inner request is of the caller, and has the header, of the request whose source asks for it.
 * It has no connection: like an orphan it is run by the workers, from its beginning on, and its
 * reply goes to the one that asked, unless that has left. A link with a lock of its own tells the
 * one whether the other is still there. */
#include <string.h>
#include <strings.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

struct http_inner {
    pthread_mutex_t lock;
    int refs;  /* under it, as is */
    bool left; /* nobody waits for the reply */
    void (*done)(void *user, const struct http_inner_reply *r);
    void *user;
};

static void unref(struct http_inner *x)
{
    lock_held(&x->lock);
    const bool last = --x->refs == 0;
    pthread_mutex_unlock(&x->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

void http_inner_end(struct http_inner *x)
{
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    x->left = true;
    unref(x);
}

void http_inner_done(struct rq *q)
{
    struct http_inner *x = q->inner;
    struct http_inner_reply r = {q->reply.status, &q->reply.body, &q->r,
                                 (double)q->worked_ns * 1e-6};
    state_go(&q->state, PLACE_REPLY);
    q->inner = NULL;
    pthread_mutex_lock(&x->lock);
    if (!x->left)
        x->done(x->user, &r);
    unref(x);
}

const char *http_inner_header(const struct http_inner_reply *r, const char *name)
{
    const struct out_header *h = rq_of_const(r->req)->reply.headers;
    while (h && strcasecmp(h->name, name) != 0)
        h = h->next;
    return h ? h->value : NULL;
}

static void run(struct request *r)
{
    struct http_inner *x = rq_of(r)->inner;
    pthread_mutex_lock(&x->lock);
    const bool left = x->left;
    pthread_mutex_unlock(&x->lock);
    if (left)
        http_reply_empty(r, 204);
    else if (rq_still_may(r))
        r->route->handler(r);
}

static bool add_header(struct rq *q, const char *name, const char *value)
{
    struct arena *arena = q->r.arena;
    struct header h = {arena_strndup(arena, name, strlen(name)),
                       arena_strndup(arena, value, strlen(value))};
    if (!h.name || !h.value ||
        arena_grow(arena, (void **)&q->headers, &q->cap_headers, q->n_headers, sizeof h))
        return false;
    q->headers[q->n_headers++] = h;
    return true;
}

/* What says which reply is wanted is the inner request's own. */
static bool is_own(const char *name)
{
    static const char *const own[] = {"Accept", "If-Match", "If-None-Match", "Prefer"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(name, own[i]))
            return true;
    return false;
}

static bool fill(struct rq *q, const struct rq *of, const char *accept, const char *none_match)
{
    struct err e = ERR_INIT;
    q->r.method = "GET";
    bool ok = add_header(q, "Accept", accept) &&
              (!none_match || add_header(q, "If-None-Match", none_match));
    for (size_t i = 0; ok && i < of->n_headers; i++)
        ok =
            is_own(of->headers[i].name) || add_header(q, of->headers[i].name, of->headers[i].value);
    if (!ok || http_target(q, &e) != ERR_OK)
        return false;
    http_route(q);
    return q->r.route;
}

struct http_inner *http_inner_begin(struct http_source *src, const char *uri, const char *accept,
                                    const char *none_match,
                                    void (*done)(void *user, const struct http_inner_reply *r),
                                    void *user)
{
    struct rq *of = rq_of(src->req);
    struct http *h = of->http;
    struct http_inner *x = mem_calloc(1, sizeof *x);
    meter_enter(NULL); /* as when a request begins */
    struct rq *q = x ? rq_new(h, of->conn, NULL, uri) : NULL;
    const bool ok = q && fill(q, of, accept, none_match);
    meter_enter(&of->cause);
    if (q) {
        q->conn = NULL;
        q->orphan = true;
        atomic_fetch_add_explicit(&h->in_flight, 1, memory_order_relaxed);
    }
    if (!ok) {
        if (q)
            rq_end(q);
        mem_free(x);
        return NULL;
    }
    pthread_mutex_init(&x->lock, NULL);
    x->refs = 2;
    x->done = done;
    x->user = user;
    h->calls.repeat(&q->r, &of->r);
    q->user = of->user;
    q->cause = (struct cause){NULL, of->cause.within, of->cause.limit, of->cause.name};
    q->inner = x;
    atomic_store(&q->state.word, state_word(PLACE_HANDLER, RUNS));
    atomic_fetch_add(&h->orphans, 1);
    q->work = run;
    http_enqueue(q);
    return x;
}
