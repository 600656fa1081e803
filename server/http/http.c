/* The HTTP front: libmicrohttpd's callbacks, start and stop.
 *
 * Each listener is one libmicrohttpd daemon with its own thread, which never blocks. A
 * request moves through its places (http_state.h) in calls of on_access: a first one with the
 * header, one for each piece of the body, a last one. A reply can be queued only in the last call
 * (in the first it would cost the connection), so it is kept in the request until then; where
 * libmicrohttpd must be bypassed, the reply is written by hand (http_raw_reply).
 *
 * Past max_connections of clients, connections are accepted up to a reserve, in which health and
 * metrics are answered and everything else gets 503; past the reserve, accepting pauses.
 *
 * The files, each of which calls only those listed after it: http_loop.c, http_workers.c;
 * http_watch.c (deadlines), http_body.c (bodies in), http_send.c (replies out); http_wait.c
 * (suspension), http_inner.c (requests within requests), http_queue.c (the workers' queues);
 * http_check.c (first checks), http_route.c, http_cors.c; http_reply.c, http_peers.c; http_raw.c
 * (replies by hand), http_request.c, http_listen.c, http_tls.c. */
#include <microhttpd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http_impl.h"

/* A connection's memory: room for its header, half of which is used for reading bodies, and beside
 * it the header's table (about 300 fields at the largest setting) and the reply's header. All of it
 * is zeroed with every request, and with many connections it is out of cache: at 128 KiB a tiny
 * evaluation among 64 took a quarter longer. */
#define LEAST_HEADER  (64u << 10)
#define BESIDE_HEADER (16u << 10)
/* reply bytes buffered unsent: a client that does not read would else cost megabytes */
#define UNSENT       (512 << 10)
#define LONG_BODY    (128u << 10) /* parsing more is long work */
#define QUIET_S      0.05 /* before an upgrade: a client that was just answered may ask again */
#define LAST_WORDS_S 1.0  /* after the drain time, for replies to work that was cancelled then */

/* --- a request's path --- */

/* Served even when nothing else is. */
static bool vital(const struct rq *q)
{
    const char *p = q->r.path;
    return !strcmp(p, "/healthz") || !strcmp(p, "/readyz") || !strcmp(p, "/metrics");
}

/* There is a reply and the body has not been read. */
static bool reply_early(struct rq *q)
{
    if (q->expect || (q->must_close && !q->has_body)) {
        return http_queue(q); /* the client waits, or there is nothing to drain */
    }
    /* The message's end is unknown, or too far away to read up to it. */
    if (q->must_close || q->r.content_length > q->http->config.max_unread_body) {
        http_raw_reply(q);
        state_go(&q->state, PLACE_CUT);
        return true;
    }
    state_go(&q->state, PLACE_DRAIN);
    return true;
}

/* Authenticates the caller, and checks that the route serves it. */
static enum err_code identify(struct rq *q, struct err *e)
{
    const struct http_calls *calls = &q->http->calls;
    if (q->r.route->access == ACCESS_ANYBODY || q->conn->listener->admin)
        return ERR_OK;
    enum err_code code = calls->identify(&q->r, &q->conn->principal, &q->user, e);
    if (code != ERR_OK) {
        q->must_close = true;
        return code;
    }
    if (q->user.memory)
        q->cause = (struct cause){NULL, q->user.memory, q->http->config.max_request_memory,
                                  "max_request_memory"};
    return calls->authorize(&q->r, e);
}

/* Refuses what the header alone rules out. */
static enum err_code admit(struct rq *q, struct err *e)
{
    struct http *h = q->http;
    if (!vital(q)) {
        if (q->conn->listener->admin)
            return err_set(e, ERR_NOT_FOUND, "this address serves only health and metrics");
        /* Where another process follows, connections that are open have their answer and are closed
         * with it. */
        if (atomic_load(&h->stopping) &&
            (!atomic_load(&h->server->followed) || atomic_load(&h->cutting))) {
            q->must_close = true;
            return err_draining(e);
        }
        if (atomic_load(&h->server->device_lost))
            return err_set(e, ERR_DEVICE_LOST, "the device is lost; the daemon is about to exit");
        if (q->conn->excess) {
            q->must_close = true;
            return err_set(e, ERR_OVERLOADED, "too many connections: the limit is %zu",
                           h->config.max_connections);
        }
        if (q->conn->crowded) {
            q->must_close = true;
            return http_peer_error(h, e);
        }
    }
    enum body_policy body = q->r.route->body;
    bool lacks_body = !q->framed && (body == BODY_BUFFERED || body == BODY_STREAM);
    if (lacks_body)
        q->must_close = true; /* what follows may be a body nevertheless */
    TRY(identify(q, e));
    int64_t limit = body == BODY_NONE     ? h->config.max_ignored_body
                    : body == BODY_STREAM ? INT64_MAX
                                          : (int64_t)http_body_most(q);
    if (lacks_body)
        return err_set(e, ERR_LENGTH_REQUIRED,
                       "the request needs a body: send it with a Content-Length, or chunked");
    if (q->user.max_body && q->r.content_length > q->user.max_body)
        return http_body_quota(q, e);
    if (q->r.content_length > limit)
        return err_set(e, ERR_TOO_LARGE, "the body is larger than the %lld bytes this route takes",
                       (long long)limit);
    const char *coding = http_header(&q->r, "Content-Encoding");
    if (coding && body != BODY_NONE && strcasecmp(coding, "identity") != 0)
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE,
                       "Content-Encoding %.64s is not supported: send the body unencoded", coding);
    return ERR_OK;
}

/* The request may have waited long for its body, its turn or a worker: checks its credentials
 * again. */
static void call_handler(struct request *r)
{
    if (rq_still_may(r))
        r->route->handler(r);
}

static void run_handler(struct request *r)
{
    bool offload = r->body_len > rq_of(r)->http->config.offload_bytes;
    rq_of(r)->not_begun = offload;
    if (offload && r->body_len > LONG_BODY)
        http_offload_long(r, call_handler);
    else if (offload)
        http_offload(r, call_handler);
    else
        call_handler(r);
}

static void run_in_turn(struct request *r)
{
    const struct http_calls *calls = &rq_of(r)->http->calls;
    if (!r->route->works || !calls->turn_take || calls->turn_take(r, run_handler))
        run_handler(r);
}

/* The body is complete. */
static bool handle(struct rq *q)
{
    if (!state_move(&q->state, PLACE_BODY, PLACE_HANDLER))
        return false;
    q->r.body = q->in.buf ? q->in.buf : "";
    enum run_result r =
        q->r.route->body == BODY_STREAM ? http_sink_end(q) : http_run(q, run_in_turn);
    return r == RUN_PARKED || http_queue(q);
}

/* An expectation without a body is answered at once: in place of the last call, libmicrohttpd
 * before 1.0 may make one in which no reply can be queued. */
static bool begin_body(struct rq *q)
{
    atomic_store(&q->in.last_byte, clock_coarse_ms());
    state_go(&q->state, PLACE_BODY);
    return !q->expect || q->has_body || handle(q);
}

static bool after_stream_handler(struct rq *q)
{
    return q->reply.given ? reply_early(q) : begin_body(q);
}

static bool start(struct rq *q, const char *method, const char *version)
{
    struct err e = ERR_INIT;
    if (!state_move(&q->state, PLACE_HEADER, PLACE_CHECK))
        return false; /* cut meanwhile */
    enum err_code code = http_check(q, method, version, &e);
    if (code == ERR_OK) {
        http_route(q);
        if (!q->r.route)
            return reply_early(q);
        code = admit(q, &e);
    }
    if (code != ERR_OK) {
        http_reply_error(&q->r, &e);
        return reply_early(q);
    }
    if (q->r.route->body != BODY_STREAM)
        return begin_body(q);
    state_go(&q->state, PLACE_STREAM);
    if (http_run(q, run_handler) == RUN_PARKED)
        return true;
    return after_stream_handler(q);
}

void http_repeat(struct request *r)
{
    if (r->state && r->state_free)
        r->state_free(r->state);
    r->state = NULL;
    r->state_free = NULL;
    r->abandon = false;
    r->late = NULL;
    run_handler(r);
}

/* A call without bytes: the body is complete, or a suspended request goes on. */
static bool go_on(struct rq *q)
{
    switch (state_place(&q->state)) {
    case PLACE_STREAM:
        return http_continue(q) == RUN_PARKED || after_stream_handler(q);
    case PLACE_BODY:
        return handle(q);
    case PLACE_HANDLER:
        return http_continue(q) == RUN_PARKED || http_queue(q);
    case PLACE_DRAIN:
        return state_move(&q->state, PLACE_DRAIN, PLACE_HANDLER) && http_queue(q);
    case PLACE_REPLY:
        return true;
    case PLACE_HEADER:
    case PLACE_CHECK:
    case PLACE_SINK_END:
    case PLACE_CUT:
        break;
    }
    return false;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *n, void **con_cls)
{
    (void)cls, (void)mhd, (void)url;
    struct rq *q = *con_cls;
    if (!q)
        return MHD_NO; /* rq_new had no memory */
    struct http *h = q->http;
    bool ok, was = http_enter(q, &ok);
    if (ok && state_place(&q->state) == PLACE_HEADER)
        ok = start(q, method, version);
    else if (ok)
        ok = *n ? http_body_bytes(q, data, n) : go_on(q);
    http_leave(h, was);
    return ok ? MHD_YES : MHD_NO;
}

/* The request line has arrived; `uri` is still as sent. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct listener *l = cls;
    struct http *h = l->http;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct conn *c = info ? info->socket_context : NULL;
    struct rq *q = c ? rq_new(h, c, mhd, uri ? uri : "") : NULL;
    if (!q) {
        if (c)
            c->refused = true; /* closed for lack of memory, not for a mistake of the client's */
        return NULL;
    }
    atomic_fetch_add_explicit(&h->in_flight, 1, memory_order_relaxed);
    atomic_store_explicit(&h->last_conn, (uintptr_t)c, memory_order_relaxed);
    atomic_store_explicit(&h->last_begun_ns, q->begun_ns, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    c->rq = q;
    c->first = !c->used;
    c->used = true;
    c->idle_bytes = 0;
    c->partial_since = 0;
    pthread_mutex_unlock(&c->lock);
    return q;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                         enum MHD_RequestTerminationCode why)
{
    (void)cls, (void)mhd, (void)why;
    struct rq *q = *con_cls;
    *con_cls = NULL;
    if (!q)
        return;
    struct http *h = q->http;
    bool ok, was = http_enter(q, &ok);
    struct conn *c = q->conn;
    pthread_mutex_lock(&c->lock);
    c->rq = NULL;
    c->idle_since = clock_s();
    pthread_mutex_unlock(&c->lock);
    if ((q->then || q->work) && !q->r.abandon)
        http_orphan(q);
    else
        rq_end(q);
    http_leave(h, was);
}

/* libmicrohttpd closes a connection silently when its first line has no blank (another protocol, a
 * mistyped command). MHD_USE_TURBO below leaves the socket writable until here. */
static void refuse_noise(struct conn *c)
{
    if (c->used || c->refused || c->excess || c->turned_away || c->tls ||
        atomic_load(&c->listener->http->stopping) || !http_unanswered(c->fd))
        return;
    struct err e = ERR_INIT;
    char id[33];
    http_new_id(id);
    err_set(&e, ERR_BAD_FRAMING, "this is not an HTTP request line");
    http_raw_error(c, id, &e);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct listener *l = cls;
    struct http *h = l->http;
    struct conn *c = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        atomic_store(&l->loop.woken, true); /* see http_loop.c */
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = mem_calloc(1, sizeof *c);
        *socket_context = c;
        if (!c || !info) {
            mem_free(c);
            *socket_context = NULL;
            return; /* its first request will find no context and be closed */
        }
        *c = (struct conn){.listener = l, .fd = info->connect_fd, .opened = clock_s()};
        pthread_mutex_init(&c->lock, NULL);
        if (!l->unix_path) {
            int most = UNSENT;
            setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
        }
        if (l->tls) {
            info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
            c->tls = info ? info->tls_session : NULL;
        }
        atomic_fetch_add(&h->connections, 1);
        if (!l->admin)
            c->excess = atomic_fetch_add(&h->clients, 1) >= (int64_t)h->config.max_connections;
        info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        pthread_mutex_lock(&h->lock);
        http_peer_enter(h, c, info ? info->client_addr : NULL);
        c->number = ++h->connections_ever;
        c->next = h->conns;
        if (c->next)
            c->next->prev = c;
        else
            worker_wake(&h->watch);
        h->conns = c;
        pthread_mutex_unlock(&h->lock);
        if (c->turned_away)
            http_turn_away(c);
    } else if (c) {
        refuse_noise(c);
        pthread_mutex_lock(&h->lock);
        if (c->prev)
            c->prev->next = c->next;
        else
            h->conns = c->next;
        if (c->next)
            c->next->prev = c->prev;
        http_peer_leave(h, c);
        pthread_mutex_unlock(&h->lock);
        http_loop_forget(c);
        h->calls.disconnected(c->principal);
        atomic_fetch_sub(&h->connections, 1);
        if (!l->admin)
            atomic_fetch_sub(&h->clients, 1);
        pthread_mutex_destroy(&c->lock);
        mem_free(c);
        *socket_context = NULL;
    }
}

/* --- start and stop --- */

static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *s)
{
    (void)cls, (void)mhd;
    return strlen(s);
}

static bool start_daemon(struct http *h, struct listener *l)
{
    const struct http_config *c = &h->config;
    double idle = c->idle_timeout_s;
    if (idle < c->body_idle_timeout_s)
        idle = c->body_idle_timeout_s;
    if (idle < c->header_timeout_s)
        idle = c->header_timeout_s;
    size_t memory =
        BESIDE_HEADER + (c->max_header_bytes > LEAST_HEADER ? c->max_header_bytes : LEAST_HEADER);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, http_tls_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)http_tls_versions},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem *extra = l->tls ? tls : &tls[2];
    struct MHD_OptionItem strict[] = {
#if MHD_VERSION >= 0x00097701
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL}, /* no NUL, no continued line, no bare LF */
#endif
        {MHD_OPTION_END, 0, NULL},
    };
    l->mhd = MHD_start_daemon(
        (l->tls ? MHD_USE_TLS : 0) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
            MHD_USE_TURBO,
        0, NULL, NULL, on_access, l, MHD_OPTION_LISTEN_SOCKET, l->fd,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(l->admin ? ADMIN_CONNS : c->max_connections + RESERVE_CONNS),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(idle + 5), MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, l, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        l, MHD_OPTION_ARRAY, extra, MHD_OPTION_ARRAY, strict, MHD_OPTION_END);
    return l->mhd && http_loop_start(l);
}

static void http_free(struct http *h)
{
    http_tls_free();
    http_listen_free(h);
    for (size_t i = 0; i < h->n_hosts; i++)
        mem_free(h->hosts[i]);
    mem_free(h->hosts);
    worker_destroy(&h->watch);
    worker_destroy(&h->workers);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->work_lock);
    mem_free(h);
}

enum err_code http_start(struct server *server, const struct http_config *config,
                         const struct http_calls *calls, struct http **ret, struct err *e)
{
    struct http *h = mem_calloc(1, sizeof *h);
    if (!h)
        return err_oom(e);
    h->server = server;
    h->config = *config;
    h->calls = *calls;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->work_lock, NULL);
    h->watch = (struct worker){
        .name = "arrayd-watch", .lock = &h->lock, .step = http_watch_step, .user = h};
    h->workers = (struct worker){.name = "arrayd-worker",
                                 .lock = &h->work_lock,
                                 .step = http_workers_step,
                                 .user = h,
                                 .n = config->workers > 0 ? config->workers : 1,
                                 .stack = THREAD_STACK};
    worker_init(&h->watch);
    worker_init(&h->workers);
    signal(SIGPIPE, SIG_IGN);
    enum err_code code = http_cors_check(config, e);
    if (code == ERR_OK && (config->tls_cert || config->tls_key))
        code = http_tls_load(config, e);
    if (code == ERR_OK)
        code = http_listen(h, e);
    if (code == ERR_OK)
        code = http_hosts_init(h, e);
    if (code == ERR_OK && (!worker_start(&h->workers) || !worker_start(&h->watch)))
        code = err_set(e, ERR_OUT_OF_MEMORY, "cannot start a thread");
    if (code != ERR_OK) {
        worker_stop(&h->watch);
        worker_stop(&h->workers);
        http_free(h);
        return code;
    }
    *ret = server->http = h; /* a request may come before this function returns */
    for (size_t i = 0; i < h->n_listeners; i++)
        if (!start_daemon(h, &h->listeners[i])) {
            code = err_set(e, ERR_INTERNAL, "libmicrohttpd failed to start on %s", h->addresses[i]);
            http_stop(h);
            *ret = server->http = NULL;
            return code;
        }
    return ERR_OK;
}

enum err_code http_reload(struct http *h, struct err *e)
{
    return h->config.tls_cert ? http_tls_load(&h->config, e) : ERR_OK;
}

size_t http_addresses(const struct http *h, bool admin, const char *const **ret)
{
    *ret = h->addresses + (admin ? h->config.n_listen : 0);
    return admin ? h->config.n_admin_listen : h->config.n_listen;
}

void http_gauges(struct http *h, struct http_gauges *ret)
{
    ret->connections = atomic_load(&h->connections);
    ret->in_flight = atomic_load(&h->in_flight);
    ret->suspended = atomic_load(&h->suspended);
    pthread_mutex_lock(&h->work_lock);
    ret->queued_work = h->n_work;
    ret->busy = h->running;
    ret->busy_long = h->long_running;
    pthread_mutex_unlock(&h->work_lock);
}

/* Cuts suspended uploads and downloads. Requests that wait for work stay: the code that works for
 * them holds pointers to them, and resumes them when it is done; those that may end before that are
 * ended by the watch thread, as if their clients had left. */
static void cut_transfers(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    for (struct conn *c = h->conns; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        if (c->rq && state_flow_parked(&c->rq->state))
            http_io_drop(c->rq);
        pthread_mutex_unlock(&c->lock);
    }
    pthread_mutex_unlock(&h->lock);
}

static void accept_no_more(struct http *h)
{
    for (size_t i = 0; i < h->n_listeners; i++)
        if (h->listeners[i].mhd)
            http_loop_quiesce(&h->listeners[i]);
}

bool http_cuts(const struct http *h)
{
    return h && atomic_load(&h->cutting);
}

bool http_stop(struct http *h)
{
    atomic_store(&h->stopping, true);
    if (atomic_load(&h->server->followed)) /* connections to come are for the next process */
        accept_no_more(h);
    /* Still listening while open requests end: probes get the reason, other requests are
     * refused. */
    double until = clock_s() + h->config.drain_timeout_s;
    bool followed = atomic_load(&h->server->followed);
    double quiet = clock_s(); /* since then nothing was asked */
    while (clock_s() < until && !atomic_load(&h->server->hurry)) {
        if (atomic_load(&h->in_flight) > 0)
            quiet = clock_s();
        else if (!followed || !atomic_load(&h->connections) || clock_s() - quiet > QUIET_S)
            break;
        usleep(2000);
    }
    accept_no_more(h);
    http_listen_close(h);
    /* libmicrohttpd aborts the process if it is stopped while a connection is suspended. */
    atomic_store(&h->cutting, true);
    const double cut = clock_s();
    until = cut + h->config.stuck_s;
    while (atomic_load(&h->inside) > 0 && clock_s() < until)
        usleep(100);
    while (atomic_load(&h->suspended) + atomic_load(&h->orphans) > 0 && clock_s() < until) {
        cut_transfers(h);
        http_drop_queued(h);
        if (clock_s() - cut > LAST_WORDS_S)
            atomic_store(&h->leaving, true);
        usleep(2000);
    }
    if (atomic_load(&h->suspended) + atomic_load(&h->orphans) > 0)
        return false;
    worker_stop(&h->watch);
    for (size_t i = 0; i < h->n_listeners; i++) {
        http_loop_stop(&h->listeners[i]);
        if (h->listeners[i].mhd)
            MHD_stop_daemon(h->listeners[i].mhd);
    }
    worker_stop(&h->workers);
    http_free(h);
    return true;
}
