/* HTTP as the handlers see it: requests, replies, streamed bodies, waiting.
 *
 * This directory is the only user of libmicrohttpd (its documented interface) and the lowest layer
 * of server: every other directory of server may call it, and it calls only compute/base and
 * protocol. It reaches the layers above through struct http_calls. It owns every struct request; a
 * handler borrows it until it has replied. Handlers run on an HTTP thread or, for large bodies, on
 * a worker thread, and must not assume which. They never block: long work is offloaded or waits for
 * the device by callback.
 *
 * Life of a request: headers checked (framing, Host, Origin, Expect, limits) → route → handler.
 *  - BODY_NONE: handler(req) at once; a body is drained and ignored (413 past max_ignored_body).
 *  - BODY_BUFFERED: the body is collected (up to the route's limit, 413), then handler(req) with
 *    req->body set; bodies over `offload_bytes` run the handler on a worker. BODY_OPTIONAL: the
 *    same, and a request without Content-Length and Transfer-Encoding is not refused (411).
 *  - BODY_STREAM: handler(req) after the headers; it either replies (an error: the rest is drained)
 *    or calls http_accept_body with a sink, whose end() replies.
 * The handler must cause exactly one reply, before or after it returns: http_reply_*, directly or
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
struct login;
struct principal;
struct request;
struct server; /* everything the daemon has: config, engine, sessions (server/server.h) */

enum body_policy { BODY_NONE, BODY_BUFFERED, BODY_OPTIONAL, BODY_STREAM };

typedef void handler_fn(struct request *req);

/* Which callers a route serves. */
enum access {
    ACCESS_USER,
    ACCESS_OPERATOR,
    ACCESS_ANYBODY, /* req->principal is NULL */
    ACCESS_GUEST,   /* it is NULL for a caller who shows neither token nor login */
};

/* Which read-only links show it (server/login/visitor.h). */
enum shown {
    SHOWN_NEVER,
    SHOWN_ALWAYS,
    SHOWN_WHOLE, /* those that show all that their owner sees; and */
    SHOWN_ONE,   /* those that name the array or job in the path, by its id */
};

struct route {
    const char *method;  /* "GET" (HEAD is derived), "POST", … */
    const char *pattern; /* "/v1/arrays/{ref}/data": {x} matches one non-empty segment */
    enum body_policy body;
    handler_fn *handler;
    const char *label; /* for metrics: usually the pattern */
    enum access access;
    bool works; /* it gives a device work: the handler runs when the scheduler admits the request.
                   Not for BODY_STREAM, where the body may take long to arrive: see struct http_sink
                 */
    enum shown shown;
    size_t most_body; /* of a body that is collected; 0: max_json_body */
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
    uint64_t connection;         /* the connection's number: never 0, never reused */
    struct principal *principal; /* the caller (server/store/auth.h); NULL: anybody */
    uint8_t token[32];           /* for auth.c: the hash of the accepted token */
    _Atomic uint64_t edition;    /* for auth.c: the last edition of the accounts that accepted it */
    bool by_link; /* for auth.c: by a read-only link, which is good as long as the account lasts */
    struct login *login; /* it came with a cookie (server/login/logins.h); NULL: with a token */

    /* Server-Timing, milliseconds; negative: not reported. device: shown as `gpu` or `cpu` */
    double t_parse, t_plan, t_compile, t_device, t_copy;
    const char *tier; /* how the device's kernels ran, in words; static; NULL: not reported */

    /* How it may end while it waits: see http_may_end. */
    bool abandon;
    handler_fn *late;

    /* owned by the layers above, released by http_calls.release */
    struct asker *asker;              /* server/work/asker.h */
    struct memory_pressure *pressure; /* server/work/memory_pressure.h */
    struct device_turn *device_turn;  /* server/work/device_turn.h */

    void *state;                     /* the handler's own */
    void (*state_free)(void *state); /* released with the request */
};

/* Request header by case-insensitive name, or NULL. Repeated headers are joined by ", ". */
const char *http_header(struct request *req, const char *name);

bool http_is_encrypted(const struct request *req); /* by TLS */
void http_last(struct request *req);               /* the connection ends with the reply */

/* Query parameter, or NULL. */
const char *http_query(const struct request *req, const char *key);

/* ERR_BAD_QUERY naming the first parameter that is not in the NULL-terminated list. */
enum err_code http_query_only(const struct request *req, const char *const *allowed,
                              struct err *e) must_check;

/* The path of the Unix socket that the request came over, and the user of the peer process; NULL:
 * not a Unix socket. */
const char *http_unix_peer(const struct request *req, uid_t *ret_uid);

/* --- replies; each ends the handler's part. Headers added before are sent with them. --- */

/* Adds a response header (copied). Content-Length, Date, X-Request-Id and Server-Timing are set by
 * the front. */
void http_add_header(struct request *req, const char *name, const char *value);

void http_reply_json(struct request *req, int status, struct strb *take_body);
/* The same with another Content-Type. */
void http_reply_text(struct request *req, int status, const char *content_type,
                     struct strb *take_body);
void http_reply_empty(struct request *req, int status);
/* problem+json from an error. Adds Retry-After for 429 and 503 (e->retry_s); the router adds Allow
 * for 405. ERR_DEVICE_LOST makes the daemon unready (server->device_lost). If http_calls.retry
 * accepts the error, there is no reply and the handler runs again. So a handler that replies with
 * an error must have released everything and changed nothing. */
void http_reply_error(struct request *req, const struct err *e);

/* A body produced on demand while the request's credentials stay valid. pull() writes up to n bytes
 * of the body from `offset` on (offsets rise without gaps) and returns how many; 0: none ready, the
 * front suspends until http_source_wake; -1: the reply cannot be completed, the connection is cut.
 * free() is called once at the end, also after a disconnect. pull() runs on an HTTP thread and must
 * take at most about a millisecond. lasts() (NULL: always): whether the rest may still be sent;
 * called before and after each pull(), and a few times a second by another thread. due() (NULL:
 * never): whether pull() would have something now, where no one else wakes it; called by that
 * thread some fifty times a second while the source waits. expired() (NULL: the connection is cut):
 * called in place of that, and before each further pull(), when the credentials are no longer
 * valid; whether pull() can say so, and nothing else, from now on. */
struct http_source {
    int64_t (*pull)(struct http_source *src, int64_t offset, char *buf, size_t n);
    void (*free)(struct http_source *src);
    bool (*lasts)(const struct http_source *src);
    bool (*due)(const struct http_source *src);
    bool (*expired)(struct http_source *src);
    struct request *req; /* set by http_reply_source; valid until free() */
    /* Set, and the source is woken, when the client may have gone: bytes that are sent tell. */
    _Atomic bool doubted;
};
#define SOURCE_OPEN (-1) /* as length: unknown, the body ends where pull() returns */
#define SOURCE_END  (-2) /* this value */
void http_reply_source(struct request *req, int status, const char *content_type, int64_t length,
                       struct http_source *take_src);
void http_source_wake(struct http_source *src); /* any thread */
/* Bytes that were sent and have not been read: over TCP, that the client's kernel has not
 * acknowledged. For pull() and due(). */
int64_t http_source_unread(const struct http_source *src);

/* A source may send what other requests reply: http_inner_begin, from inside pull(), begins GET
 * `uri` for the same caller, with the header of the source's request but for what says which reply
 * is wanted. It runs like any other, on the workers. done() gets its reply, on a worker and perhaps
 * at once; it must not block, and may take the body and wake the source. http_inner_end releases
 * it: done() is not called from its return on. NULL: no memory. */
struct http_inner;
struct http_inner_reply {
    int status;
    struct strb *body;
    struct request *req; /* with its times, and the time of the workers: */
    double worked_ms;
};
const char *http_inner_header(const struct http_inner_reply *r, const char *name); /* NULL: none */
struct http_inner *http_inner_begin(struct http_source *src, const char *uri, const char *accept,
                                    const char *none_match,
                                    void (*done)(void *user, const struct http_inner_reply *r),
                                    void *user);
void http_inner_end(struct http_inner *x); /* NULL allowed */

/* Consumes a streamed body. push() takes up to n bytes and returns how many it took; 0: no space,
 * the front suspends until http_sink_wake. A sink that finds a mistake keeps the error, sets
 * *ret_failed and returns n (the rest is drained, up to max_unread_body); end() is then called at
 * once to reply. end(): the whole body has arrived (or failed): reply. abort(): the client
 * disconnected or timed out: nothing may have changed. Exactly one of end() and abort() is
 * called. */
struct http_sink {
    size_t (*push)(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed);
    void (*end)(struct http_sink *sink, struct request *req);
    void (*abort)(struct http_sink *sink);
    bool works; /* end() gives a device work: after a whole body it runs when the scheduler admits
                   the request */
    struct request *req;
};
void http_accept_body(struct request *req, struct http_sink *take_sink);
void http_sink_wake(struct http_sink *sink); /* any thread */

/* --- waiting --- */

/* From inside a handler, end() or continuation: the request continues in `then` (on an HTTP thread)
 * when http_wake(req) is called, from any thread, possibly before this handler has returned. `then`
 * sees everything that the caller of http_wake wrote before. Typical: http_wait(req, finish);
 * engine_…(…, done = wake_cb, req). */
void http_wait(struct request *req, handler_fn *then);
void http_wake(struct request *req);

/* A waiting request is always woken, and gets `then` even if its client has disconnected, unless
 * the handler allows otherwise. From this call on
 *  - it ends without a reply when its client has disconnected (req->abandon, which the handler may
 *    clear once it has begun something it must finish), and with ERR_UNAUTHORIZED, the state freed,
 *    when its token is revoked;
 *  - it continues in `late` when its time is over (the client's Prefer: wait=SECONDS, and
 *    max_wait_s), which replies or offloads and does not wait again; NULL: ERR_DEADLINE, the
 *    state freed. The time runs from the first call on.
 * A pending waker may still call http_wake until state_free, and must not after it. */
void http_may_end(struct request *req, handler_fn *late);

/* For work on another thread that a request waits for: whether the client has disconnected, so that
 * nobody will read the reply. The request waits all the same, until it is woken. Any thread. */
bool http_client_left(const struct request *req);

/* From a continuation: runs the route's handler again from the start. */
void http_repeat(struct request *req);

/* Runs `work(req)` on a worker thread (it may reply, wait or offload again). For work that takes
 * more than about a millisecond of CPU: counting a large JSON reply, converting a large body.
 * http_offload_long is for longer work: it has lower priority, and where there are several workers
 * one is kept free of it. Work that can be cut offloads itself again every WORK_SLICE_MS or so. */
#define WORK_SLICE_MS 1
void http_offload(struct request *req, handler_fn *work);
void http_offload_long(struct request *req, handler_fn *work);
/* How many microseconds the request may wait in place, which is quicker than a suspension; 0 if
 * another client has sent a request lately, whom it would delay. */
int64_t http_spin(const struct request *req);
bool http_slice_over(uint64_t *begun_ns); /* 0 at first: starts the clock */

/* The caller's name; "": the request was not authenticated. */
const char *http_user_name(const struct request *req);
/* The client's address: "192.0.2.1", "::1", or "unix". */
#define HTTP_PEER_SIZE 64
void http_peer_name(const struct request *req, char ret[HTTP_PEER_SIZE]);

/* Adds the time since begun_ns (clock_ns) to a Server-Timing field. */
static inline void http_took(double *field, uint64_t begun_ns)
{
    *field = (*field > 0 ? *field : 0) + (double)(clock_ns() - begun_ns) * 1e-6;
}

/* --- the server's side --- */

struct http;
/* Listening sockets that outlive the process, by names; NULL members: none do. put: the socket
 * stays the front's own, too. */
#define HTTP_SOCKETS       "listen" /* all names begin so; then: */
#define HTTP_SOCKETS_PLAIN HTTP_SOCKETS "."
#define HTTP_SOCKETS_TLS   HTTP_SOCKETS "-tls."
#define HTTP_SOCKET_NAME   200
struct http_keep {
    int (*take)(void *user, const char *name); /* -1: no socket has that name */
    enum err_code (*put)(void *user, const char *name, int fd, struct err *e);
    void (*drop)(void *user, const char *name);
    const char *(*next)(void *user); /* a socket that was not taken; NULL: none */
    void *user;
};

struct http_config {
    const char *const *listen; /* "127.0.0.1:7411", "[::1]:0", "unix:/run/arrayd.sock" */
    size_t n_listen;
    const char *const *admin_listen; /* the same, for health and metrics, unauthenticated */
    size_t n_admin_listen;
    bool accounts;              /* accounts exist: addresses other than loopback are allowed */
    size_t max_header_bytes;    /* 431 */
    double header_timeout_s;    /* 408 */
    double body_idle_timeout_s; /* 408 */
    int64_t min_body_rate;      /* bytes/s over body_rate_window_s, 408 */
    double body_rate_window_s;
    int64_t max_request_memory; /* 507 */
    size_t max_json_body;       /* BODY_BUFFERED limit, 413 */
    size_t offload_bytes;       /* BODY_BUFFERED bodies above run on a worker */
    int64_t max_ignored_body;   /* of a body that the route ignores, 413 */
    int64_t max_unread_body;    /* of a refused body: read anyway, so that the client sees the */
    double unread_body_s;       /* reply; and for how long */
    size_t max_connections;
    size_t max_connections_per_address; /* 0: no limit; Unix sockets have none */
    int workers;                        /* worker threads */
    double idle_timeout_s;              /* keep-alive connections */
    double max_wait_s;                  /* http_may_end; 0: no limit */
    const char *const *allowed_hosts;   /* besides loopback names and literal listen addresses */
    size_t n_allowed_hosts;
    const char *const *cors_origins; /* "https://app.example": pages that may send requests */
    size_t n_cors_origins;
    const char *tls_cert, *tls_key; /* PEM files; NULL: no TLS */
    int unix_mode;                  /* permissions of Unix sockets */
    bool log_requests;              /* at level info, with or without a traceparent */
    double drain_timeout_s;         /* at stop: how long open requests may continue */
    struct http_keep keep;
    double stuck_s;          /* and then those whose work cannot be stopped */
    const char *device_name; /* in Server-Timing: "cpu", "gpu" */
    int64_t spin_us;         /* wakeup_soon, and the listeners' threads; 0: never */
};

/* What the front must know about the user who sent a request. The pointers are valid until
 * http_stop. */
struct http_user {
    const char *name;               /* NULL: not authenticated */
    struct meter *memory;           /* host memory that the user's requests take */
    int64_t max_body;               /* bytes, 0: no limit */
    const _Atomic uint32_t *weight; /* the user's share of the workers, relative to other users */
    double *worked;                 /* the front's own: worker time divided by weight, ns */
};

/* Callbacks into the layers above, which the front does not know (server/front.c). Called by any
 * thread that works on the request; optional ones may be NULL. */
struct http_calls {
    const struct route *routes; /* the table, valid until http_stop */
    size_t n_routes;
    /* Finds the caller: sets req->principal and *ret, which is zeroed and stays so for a guest, who
     * is nobody. *whose is the user who last
     * used the connection (NULL: none) and is set to this one. After an error the connection is
     * closed. */
    enum err_code (*identify)(struct request *req, struct principal **whose, struct http_user *ret,
                              struct err *e) must_check;
    /* An inner request (http_inner_begin) is of the caller of that one. */
    void (*repeat)(struct request *req, const struct request *of);
    /* Whether the route serves that user. */
    enum err_code (*authorize)(const struct request *req, struct err *e) must_check;
    /* lasts: whether the request's credentials are still valid. refuse: sets the error if not. */
    bool (*lasts)(struct request *req);
    enum err_code (*refuse)(struct request *req, struct err *e) must_check;
    /* A connection of that user has closed; NULL: never authenticated. */
    void (*disconnected)(struct principal *whose);
    /* The request has ended. Status 0: no reply could be sent. */
    void (*ended)(struct request *req, int status, double seconds, int64_t bytes_in,
                  int64_t bytes_out);
    /* The last call: releases what the layers above have put into the request. */
    void (*release)(struct request *req);
    /* Optional: the calling thread works for this request from now on; NULL: for none. */
    void (*works_for)(struct request *req);
    /* Optional: called again and again while a request waits in place (wakeup_soon): runs callbacks
     * of work that has ended. */
    void (*poll)(struct server *server);
    /* Optional: called before a handler's error becomes the reply, where the handler can run again;
     * true: it will (http_wait, then http_repeat). */
    bool (*retry)(struct request *req, const struct err *e);
    /* Optional: adds details to a handler's error that becomes the reply, where they are known. */
    void (*explain)(const struct request *req, struct err *e);
    /* Both optional. turn_take: called before the handler of a route with `works`, or a sink's
     * end(), runs; true: run now; false: the request continues in `then` (http_wait), or has its
     * reply. turn_leave: the request has its reply. */
    bool (*turn_take)(struct request *req, handler_fn *then);
    void (*turn_leave)(struct request *req);
};

enum err_code http_start(struct server *server, const struct http_config *config,
                         const struct http_calls *calls, struct http **ret,
                         struct err *e) must_check;
/* Whether the daemon could listen with this configuration and these TLS files: binds and releases
 * at once; only before http_start. The errors are http_start's. */
enum err_code http_try_listen(const struct http_config *config, struct err *e) must_check;
/* Whether an error of that is about an address that another process, or this one, listens on. */
bool http_is_taken(const struct err *e);
/* The addresses actually bound ("127.0.0.1:41033" after ":0"), or those of admin_listen; static
 * until http_stop. */
size_t http_addresses(const struct http *h, bool admin, const char *const **ret);
/* Reads the TLS files again, if configured, for new connections. ERR_BAD_FIELD: the old ones stay
 * in use. */
enum err_code http_reload(struct http *h, struct err *e) must_check;
/* Stops accepting connections, lets requests finish for up to drain_timeout_s, cancels the rest,
 * joins the threads. False: some work has not ended even after stuck_s; it and `h` still exist, and
 * this may be called again. */
bool http_stop(struct http *h);
/* Whether drain_timeout_s is over, so that whatever still waits is to end. NULL: no. */
bool http_cuts(const struct http *h);

struct http_gauges {
    int64_t connections, in_flight, suspended, queued_work;
    int64_t busy, busy_long; /* worker threads; of these, with long work */
};
void http_gauges(struct http *h, struct http_gauges *ret);

#endif
