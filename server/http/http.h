/* HTTP as the handlers see it: requests, replies, bodies that stream, work that waits.
 *
 * This room is the only user of libmicrohttpd, by its documented interface, and lies at the bottom
 * of server: every other room of server may call it, and it calls compute/base, compute/engine and
 * protocol only. What it has to ask of the rooms above goes through struct http_calls. It owns
 * every struct request; a handler borrows it until it has replied. Handlers may run on an HTTP
 * thread or, for large bodies, on a worker thread, and must assume nothing about which. They never
 * block: what takes long is offloaded or waits for the device by callback.
 *
 * Life of a request: headers checked (framing, Host, Origin, Expect, limits) → route → handler.
 *  - BODY_NONE: handler(req) at once; a body is drained and ignored (413 past max_ignored_body).
 *  - BODY_BUFFERED: the body is collected (up to the route's limit, 413), then handler(req) with
 *    req->body set; bodies over `offload_bytes` run the handler on a worker. BODY_OPTIONAL: the
 *    same, and a request without Content-Length and Transfer-Encoding is not refused (411).
 *  - BODY_STREAM: handler(req) after the headers; it either replies (an error: the rest is drained)
 *    or calls http_accept_body with a sink, whose end() replies.
 * The handler must, before or after it returns, cause exactly one reply: http_reply_*, directly or
 * from a continuation (http_wait … http_wake). */
#ifndef ARRAYD_SERVER_HTTP_H
#define ARRAYD_SERVER_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "compute/base/arena.h"
#include "compute/base/clock.h"
#include "compute/base/err.h"
#include "compute/base/strb.h"

struct asker;
struct device_turn;
struct memory_pressure;
struct meter;
struct principal;
struct request;
struct server; /* everything the daemon has: config, engine, sessions (server/server.h) */

enum body_policy { BODY_NONE, BODY_BUFFERED, BODY_OPTIONAL, BODY_STREAM };

typedef void handler_fn(struct request *req);

/* Which callers a route serves. */
enum access { ACCESS_USER, ACCESS_OPERATOR, ACCESS_ANYBODY }; /* the last: req->principal is NULL */

struct route {
    const char *method;  /* "GET" (HEAD is derived), "POST", … */
    const char *pattern; /* "/v1/arrays/{ref}/data": {x} matches one non-empty segment */
    enum body_policy body;
    handler_fn *handler;
    const char *label; /* for metrics: usually the pattern */
    enum access access;
    bool works; /* it gives a device work: the handler runs when its turn has come. Not for
                   BODY_STREAM, where the body may be long in coming: see struct http_sink */
};

struct query_param {
    const char *key, *value; /* percent-decoded, NUL-free UTF-8; value "" when absent */
};

#define MAX_PATH_PARAMS  3
#define MAX_QUERY_PARAMS 64

struct request {
    struct server *server;
    struct arena *arena; /* request-scoped memory */
    const struct route *route;
    const char *method, *path;          /* raw path (no query), as sent */
    const char *param[MAX_PATH_PARAMS]; /* the {…} segments, in order */
    const struct query_param *query;
    size_t n_query;
    const char *body; /* BODY_BUFFERED: NUL-terminated, body_len bytes before the NUL */
    size_t body_len;
    int64_t content_length;      /* of a streamed body, -1 when chunked */
    char id[40];                 /* X-Request-Id */
    uint64_t connection;         /* that it came over: a number, never 0, that none has again */
    struct principal *principal; /* the caller (server/store/auth.h); NULL: anybody */
    uint8_t token[32];           /* auth.c's: what let it in, by its hash, */
    _Atomic uint64_t edition;    /* and the accounts that last did */

    /* Server-Timing, milliseconds; negative: not reported. device: shown as `gpu` or `cpu` */
    double t_parse, t_plan, t_compile, t_device, t_copy;

    /* What becomes of it while it waits: see http_may_end. */
    bool abandon;
    handler_fn *late;

    /* of the rooms above, let go by http_calls.release */
    struct asker *asker;              /* server/work/asker.h */
    struct memory_pressure *pressure; /* server/work/memory_pressure.h */
    struct device_turn *device_turn;  /* server/work/device_turn.h */

    void *state;                     /* the handler's own, */
    void (*state_free)(void *state); /* released with the request */
};

/* Request header by case-insensitive name, or NULL. Several of one name: joined by ", ". */
const char *http_header(struct request *req, const char *name);

/* Query parameter, or NULL. */
const char *http_query(const struct request *req, const char *key);

/* ERR_BAD_QUERY naming the first parameter that is not in the NULL-terminated list. */
enum err_code http_query_only(const struct request *req, const char *const *allowed,
                              struct err *e) must_check;

/* The path of the Unix socket that the request came over, and the user of the process that sent it;
 * NULL: another kind of socket. */
const char *http_unix_peer(const struct request *req, uid_t *ret_uid);

/* --- replies; each ends the handler's part. Headers added before go with them. --- */

/* Adds a response header (copied). Content-Length, Date, X-Request-Id and Server-Timing are
 * http.c's. */
void http_add_header(struct request *req, const char *name, const char *value);

void http_reply_json(struct request *req, int status, struct strb *take_body);
/* The same with another Content-Type. */
void http_reply_text(struct request *req, int status, const char *content_type,
                     struct strb *take_body);
void http_reply_empty(struct request *req, int status);
/* problem+json from an error; adds Retry-After for 429 and 503, Allow for 405 is http.c's.
 * ERR_DEVICE_LOST makes the daemon unready (server->device_lost). Where http_calls.retry takes the
 * error on, there is no reply: the handler runs again. So a handler that replies with an error has
 * let go of all it had, and nothing has changed. */
void http_reply_error(struct request *req, const struct err *e);

/* A body produced on demand, as long as what let its request in lasts. pull() writes up to n bytes
 * of the body from `offset` on (offsets rise without gaps) and returns how many; 0: none ready,
 * http.c suspends until http_source_wake; -1: the reply cannot be completed, the connection is cut.
 * free() is called once at the end, also after a disconnect. pull() runs on an HTTP thread and must
 * take at most about a millisecond. lasts() (NULL: it does): whether the rest may still be told;
 * asked before each pull() and after it, and a few times a second by another thread. */
struct http_source {
    int64_t (*pull)(struct http_source *src, int64_t offset, char *buf, size_t n);
    void (*free)(struct http_source *src);
    bool (*lasts)(const struct http_source *src);
    struct request *req; /* set by http_reply_source; valid until free() */
};
#define SOURCE_OPEN (-1) /* as length: nobody knows, the body ends where pull() returns */
#define SOURCE_END  (-2) /* this */
void http_reply_source(struct request *req, int status, const char *content_type, int64_t length,
                       struct http_source *take_src);
void http_source_wake(struct http_source *src); /* any thread */

/* Where a streamed body goes. push() takes up to n bytes and returns how many it took; 0: no room,
 * http.c suspends until http_sink_wake. A sink that has found a mistake keeps the error and returns
 * n (the rest is drained, up to max_unread_body) with *ret_failed set, then end() is called at once
 * to reply. end(): the whole body is here (or failed): reply. abort(): the client went away or
 * timed out: nothing may have changed. Exactly one of end() and abort() is called. */
struct http_sink {
    size_t (*push)(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed);
    void (*end)(struct http_sink *sink, struct request *req);
    void (*abort)(struct http_sink *sink);
    bool works; /* end() gives a device work: after a whole body it is called in the request's turn
                 */
    struct request *req;
};
void http_accept_body(struct request *req, struct http_sink *take_sink);
void http_sink_wake(struct http_sink *sink); /* any thread */

/* --- waiting --- */

/* From inside a handler, end() or continuation: this request goes on later in `then` (on an HTTP
 * thread), when http_wake(req) is called, from any thread, possibly before this handler returned.
 * Everything that http_wake's caller wrote before is visible to `then`. Typical: http_wait(req,
 * finish); engine_…(…, done = wake_cb, req). */
void http_wait(struct request *req, handler_fn *then);
void http_wake(struct request *req);

/* A request that waits is woken, and one whose client has gone still gets `then`, unless the
 * handler allows otherwise. From this call on
 *  - it ends without a reply when its client has gone (req->abandon, which the handler may take
 *    back where something has begun that it has to bring to its end), and with ERR_UNAUTHORIZED,
 *    the state freed, when the token that let it in is nobody's any more;
 *  - it goes on in `late` when its time is over (Prefer: wait=SECONDS of the client's, and
 *    max_wait_s), which replies or offloads and does not wait again; NULL: ERR_DEADLINE, the
 *    state freed. The time runs from the first call on.
 * Whoever was to wake it may still do so; from state_free on nobody does. */
void http_may_end(struct request *req, handler_fn *late);

/* From a continuation: the route's handler runs once more, from the start. */
void http_repeat(struct request *req);

/* Runs `work(req)` on a worker thread (it may reply, wait or offload again). For what takes more
 * than about a millisecond of CPU: counting a large JSON reply, converting a large body.
 * http_offload_long is for what may take longer: such work comes after the other, and one worker is
 * kept free of it where there are several. Work that can be cut does so: it offloads itself again
 * every WORK_SLICE_MS or so. */
#define WORK_SLICE_MS 1
void http_offload(struct request *req, handler_fn *work);
void http_offload_long(struct request *req, handler_fn *work);
/* Whether nobody else has asked for anything lately: waiting some microseconds in place then costs
 * nobody anything and is quicker than a suspension. */
bool http_alone(const struct request *req);
bool http_slice_over(uint64_t *begun_ns); /* 0 at first: starts the clock */

/* The caller's name; "": nobody was asked. */
const char *http_user_name(const struct request *req);
/* Where the client is: "192.0.2.1", "::1", or "unix". */
#define HTTP_PEER_SIZE 64
void http_peer_name(const struct request *req, char ret[HTTP_PEER_SIZE]);

/* Adds the time since begun_ns (clock_ns) to one of the fields of Server-Timing. */
static inline void http_took(double *field, uint64_t begun_ns)
{
    *field = (*field > 0 ? *field : 0) + (double)(clock_ns() - begun_ns) * 1e-6;
}

/* --- the server side of it --- */

struct http;
struct http_config {
    const char *const *listen; /* "127.0.0.1:7411", "[::1]:0", "unix:/run/arrayd.sock" */
    size_t n_listen;
    const char *const *admin_listen; /* the same, for health and metrics alone, asked by anybody */
    size_t n_admin_listen;
    bool accounts;           /* there are some: other addresses than loopback may be listened on */
    size_t max_header_bytes; /* 431 */
    double header_timeout_s; /* 408 */
    double body_idle_timeout_s; /* 408 */
    int64_t min_body_rate;      /* bytes/s over body_rate_window_s, 408 */
    double body_rate_window_s;
    int64_t max_request_memory; /* 507 */
    size_t max_json_body;       /* BODY_BUFFERED limit, 413 */
    size_t offload_bytes;       /* BODY_BUFFERED bodies above run on a worker */
    int64_t max_ignored_body;   /* of a body that the route ignores, 413 */
    int64_t max_unread_body; /* of a refused body: read all the same, so that the client sees the */
    double unread_body_s;    /* reply; and for how long */
    size_t max_connections;
    size_t max_connections_per_address; /* 0: no limit; Unix sockets have none */
    int workers;                        /* worker threads */
    double idle_timeout_s;              /* keep-alive connections */
    double max_wait_s;                  /* http_may_end; 0: as long as it takes */
    const char *const *allowed_hosts;   /* besides loopback names and literal listen addresses */
    size_t n_allowed_hosts;
    const char *const *cors_origins; /* "https://app.example": of pages that may ask */
    size_t n_cors_origins;
    const char *tls_cert, *tls_key; /* PEM files; NULL: no TLS */
    int unix_mode;                  /* permissions of Unix sockets */
    bool log_requests;              /* at the level info, with a traceparent or without */
    double drain_timeout_s;         /* at stop: how long open requests may go on */
    double stuck_s;                 /* and then, those whose work cannot be stopped */
};

/* What the front has to know of the user that a request comes from. The pointers are valid until
 * http_stop. */
struct http_user {
    const char *name;               /* NULL: nobody was asked */
    struct meter *memory;           /* of the host, that the user's requests take */
    int64_t max_body;               /* bytes, 0: no limit */
    const _Atomic uint32_t *weight; /* of the user's work beside others' */
    double *worked; /* the front's own: time that workers took, by that weight, ns */
};

/* What the front asks of the rooms above it, none of which it knows (server/front.c). Called by any
 * thread that works on the request; optional ones may be NULL. */
struct http_calls {
    const struct route *routes; /* the table, there until http_stop */
    size_t n_routes;
    /* Finds the caller: sets req->principal and *ret, which is zeroed. *whose is the user that the
     * connection was used by last (NULL: none), and becomes this one. After an error the connection
     * is closed. */
    enum err_code (*identify)(struct request *req, struct principal **whose, struct http_user *ret,
                              struct err *e) must_check;
    /* Whether the route serves that user. */
    enum err_code (*authorize)(const struct request *req, struct err *e) must_check;
    /* Whether what let the request in still does, and what to say where it does not. */
    bool (*lasts)(struct request *req);
    enum err_code (*refuse)(struct request *req, struct err *e) must_check;
    /* A connection has ended, and whose it was; NULL: nobody's. */
    void (*disconnected)(struct principal *whose);
    /* The request has ended. Status 0: no reply could be sent. */
    void (*ended)(struct request *req, int status, double seconds, int64_t bytes_in,
                  int64_t bytes_out);
    /* The last one: lets go of what the rooms above have put into it. */
    void (*release)(struct request *req);
    /* Optional: what the calling thread does from now on it does for this request; NULL: for none.
     */
    void (*works_for)(struct request *req);
    /* Optional: asked before a handler's error becomes the reply, where the handler can run again;
     * true: it will (http_wait, then http_repeat). */
    bool (*retry)(struct request *req, const struct err *e);
    /* Optional: says more of a handler's ERR_DEVICE_LOST, where it is known. */
    void (*say_lost)(const struct request *req, struct err *e);
    /* Optional, both: asked before a handler of a route that works runs, or end() of a sink: true:
     * now; false: it goes on in `then` (http_wait), or has been replied to. turn_leave: it has
     * been. */
    bool (*turn_take)(struct request *req, handler_fn *then);
    void (*turn_leave)(struct request *req);
};

enum err_code http_start(struct server *server, const struct http_config *config,
                         const struct http_calls *calls, struct http **ret,
                         struct err *e) must_check;
/* Whether it could listen there now, with those TLS files: binds and lets go at once; before
 * http_start only. The errors are http_start's. */
enum err_code http_try_listen(const struct http_config *config, struct err *e) must_check;
/* The addresses really bound ("127.0.0.1:41033" after ":0"), or those of admin_listen; static until
 * http_stop. */
size_t http_addresses(const struct http *h, bool admin, const char *const **ret);
/* Reads the TLS files again, if there are some, for connections from now on. ERR_BAD_FIELD: what
 * was read before stays. */
enum err_code http_reload(struct http *h, struct err *e) must_check;
/* Stops taking connections, lets requests finish up to drain_timeout_s, cancels the rest, joins.
 * False: work does not end, not in stuck_s either; it and `h` are still there, and this may be
 * called again. */
bool http_stop(struct http *h);

struct http_gauges {
    int64_t connections, in_flight, suspended, queued_work;
};
void http_gauges(struct http *h, struct http_gauges *ret);

#endif
