/* Inside the HTTP front: what http*.c share and nobody else sees.
 *
 * A listener is one libmicrohttpd daemon with its own epoll thread. A connection (struct conn)
 * lives from accept to close and is known to the watch thread, which enforces the deadlines that
 * libmicrohttpd lacks. A request (struct rq) begins with the struct request that handlers see; it
 * is made when its first line has arrived and freed when libmicrohttpd has finished with it.
 *
 * Who may touch a request: the thread that runs its handler, one at a time (the listener's thread,
 * or a worker while the connection is suspended). Others reach it only through the atomics. */
#ifndef ARRAYD_SERVER_HTTP_IMPL_H
#define ARRAYD_SERVER_HTTP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "compute/base/meter.h"
#include "compute/base/worker.h"
#include "server/http/http.h"
#include "server/http/http_state.h"
#include "server/server.h"

struct gnutls_session_int;
struct peer;
struct sockaddr;
struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;
struct rq;

#define RATE_SAMPLES   6
#define HTTP_NO_TIMING "parse;dur=0.000, plan;dur=0.000, compile;dur=0.000, total;dur=0.000"
#define THREAD_STACK   (32u << 20) /* the deepest recursion that settings allow, with sanitizers */
#define RESERVE_CONNS  64          /* past max_connections, for health and metrics */

struct listener {
    struct http *http;
    struct MHD_Daemon *mhd;
    int fd;
    char *unix_path; /* NULL: TCP */
    bool removed;    /* the path */
    bool loopback;   /* nobody reaches it from elsewhere */
    bool tls;
    bool admin;    /* health and metrics only */
    char *address; /* as really bound */
};

struct conn {
    struct conn *prev, *next; /* http->conns, under http->lock */
    struct listener *listener;
    uint64_t number; /* request.connection */
    int fd;
    bool excess;                    /* past max_connections */
    bool crowded, turned_away;      /* past max_connections_per_address, and its reserve */
    struct peer *peer;              /* NULL: not counted */
    struct principal *principal;    /* whose it is: the one who asked last; NULL: nobody's yet */
    struct gnutls_session_int *tls; /* NULL: plain */

    pthread_mutex_t lock; /* guards rq against the watch thread */
    struct rq *rq;
    double opened, idle_since; /* seconds, monotonic */
    bool used;                 /* a request has been served */
    bool refused;              /* a request had no memory to become a struct rq */
    bool first;                /* the one being served is the first */
    uint64_t idle_bytes;       /* TCP: received when the watch first saw it idle; 0: not yet */
    int n_closed;              /* looks in a row that found it closed by the client */
    double partial_since;      /* bytes of a next request began to arrive; 0: none */
};

struct header {
    const char *name, *value;
};

struct out_header {
    struct out_header *next;
    const char *name, *value;
};

/* The body on its way in. */
struct body_in {
    char *buf; /* collected */
    size_t cap;
    struct metered counted;
    _Atomic int64_t received;  /* bytes of it */
    _Atomic int64_t last_byte; /* ms, monotonic */
    int64_t drained;
    struct http_sink *sink;
    bool sink_done; /* end() or abort() was called */
};

/* What the handler has replied. */
struct reply {
    bool given;
    int status;
    const char *type;
    struct strb body;
    struct http_source *src;
    int64_t length;         /* of the source */
    struct metered counted; /* the block that it is read into */
    struct out_header *headers, *last;
    _Atomic int64_t sent;
};

/* How long it may wait. */
struct wait_limit {
    bool known;
    int64_t preferred_s;  /* as it is applied; -1: the client has not said */
    uint64_t deadline_ns; /* 0: none */
    _Atomic bool late;
};

/* How fast bytes come or go at a place; the watch thread's own. */
struct pace {
    enum place place;
    double since; /* it is there; 0: not looked at yet */
    int64_t samples[RATE_SAMPLES + 1];
    int n;
    double next;
};

struct rq {
    struct request r; /* first */
    struct http *http;
    struct conn *conn; /* NULL once libmicrohttpd has let go */
    struct MHD_Connection *mhd;
    struct http_state state;
    uint64_t begun_ns;

    /* what the header says */
    const char *uri; /* raw, with the query */
    struct header *headers;
    size_t n_headers, cap_headers;
    const char *traceparent;
    bool head;       /* HEAD */
    bool cors;       /* asked by a page of another origin that may */
    bool framed;     /* Content-Length or Transfer-Encoding was there */
    bool must_close; /* framing is not to be trusted any more */
    bool expect, chunked, has_body;

    struct http_user user; /* that it comes from */
    struct cause cause;    /* where it counts what it takes of the host */
    struct body_in in;
    struct pace pace;

    /* what goes on later: on the listener's thread, on a worker */
    handler_fn *then, *work;
    struct wait_limit limit;
    struct rq *next_work;
    bool long_work;
    bool queued;          /* for a worker; under http->work_lock */
    bool not_begun;       /* and its handler has not run yet */
    bool suspended;       /* as the listener's thread left it */
    bool orphan;          /* libmicrohttpd let go while `then` was still to come */
    _Atomic bool dropped; /* stopping, or the client is gone: end it at the next call */

    struct reply reply;
};

struct http {
    struct server *server;
    struct http_config config;
    struct http_calls calls;
    const char *device_name; /* in Server-Timing: "cpu", "gpu" */
    struct listener *listeners;
    size_t n_listeners;
    const char **addresses;
    char **hosts; /* allowed Host names, lower case */
    size_t n_hosts;

    pthread_mutex_t lock; /* conns */
    struct conn *conns;
    uint64_t connections_ever;
    struct peer *peers; /* under the same lock */
    struct worker watch;
    double next_look, waited; /* its own: when all are looked at, when one was last seen to wait */
    _Atomic bool watch_rests; /* nothing has waited for a while: it looks less often */

    pthread_mutex_t work_lock;
    struct worker workers;
    struct work_queue {
        struct rq *head, *tail;
    } short_work, long_work;
    int64_t n_work;   /* queued in both */
    double worked;    /* of the user whose job was begun last, *user.worked */
    int long_running; /* workers at long work */
    int short_run;    /* short jobs begun in a row while long ones waited */

    _Atomic int64_t connections, in_flight, suspended, orphans;
    _Atomic int inside;         /* callbacks running */
    _Atomic bool cutting;       /* stopping, and the time to drain is over */
    _Atomic uint64_t last_conn; /* who began a request last, and when (ns): other traffic */
    _Atomic uint64_t last_begun_ns;
    _Atomic bool stopping;
};

static inline struct rq *rq_of(struct request *r)
{
    return (struct rq *)r;
}
static inline const struct rq *rq_of_const(const struct request *r)
{
    return (const struct rq *)r;
}

/* http_listen.c: binds; on failure nothing stays open. */
enum err_code http_listen(struct http *h, struct err *e) must_check;
void http_listen_close(struct http *h); /* closes sockets that no daemon took, removes paths */
void http_listen_free(struct http *h);  /* the same, and the lists */
enum err_code http_hosts_init(struct http *h, struct err *e) must_check;

/* http_cors.c: what http_config.cors_origins lets in. ERR_BAD_FIELD. */
enum err_code http_cors_check(const struct http_config *c, struct err *e) must_check;
/* Whether pages of `origin` may ask; the reply says so then. */
bool http_cors(struct rq *q, const char *origin);
void http_cors_preflight(struct rq *q); /* and, asked by OPTIONS, what they may send */

/* http_tls.c */
/* Reads the files; ERR_BAD_FIELD, also where libmicrohttpd cannot do it. */
enum err_code http_tls_load(const struct http_config *c, struct err *e) must_check;
void http_tls_free(void);
extern const char http_tls_versions[]; /* MHD_OPTION_HTTPS_PRIORITIES */
void *http_tls_callback(void);         /* MHD_OPTION_HTTPS_CERT_CALLBACK */
/* On the listener's thread only: what is taken at once, and the end of the writing side. */
void http_tls_send(struct conn *c, const char *p, size_t n);

/* http_check.c: the first look at a request. Fills r.*, expect, chunked, …; an error is replied to
 * by the caller; rq->must_close says whether the connection can go on. */
enum err_code http_check(struct rq *q, const char *method, const char *version,
                         struct err *e) must_check;

/* http_route.c: sets r.route and r.param; or replies (404, 405, OPTIONS) and leaves it NULL. */
void http_route(struct rq *q);

/* http_request.c */
struct rq *rq_new(struct http *h, struct conn *c, struct MHD_Connection *mhd, const char *uri);
void rq_let_go(struct rq *q);    /* of what its handler and its sink have */
void rq_drop_body(struct rq *q); /* what was collected of it */
/* The reply has been handed over: of a request that has taken much, only what will be logged stays
 * while the client reads it. */
void rq_lighten(struct rq *q);
void rq_end(struct rq *q); /* counts, logs and frees it */
void http_new_id(char out[33]);

/* http_reply.c */
/* Instead of the handler, the sink or what goes on: one that is let in no more. */
void rq_refuse(struct request *r);
/* Whether what let it in still does; else it has its reply. */
bool rq_still_may(struct request *r);
size_t http_source_block(const struct rq *q, int64_t length); /* bytes read of a source at once */

/* http_raw.c */
/* Writes a whole reply to the socket by hand, for where libmicrohttpd takes none, and ends the
 * writing side. */
void http_raw_reply(struct rq *q);
void http_raw_error(struct conn *c, const char *id, const struct err *e);
void http_server_timing(const struct rq *q, char *buf, size_t n);
/* The client has sent something, and nothing was ever sent to it; TCP only. */
bool http_unanswered(int fd);
/* Cuts the connection: what was sent already would stay with the kernel until the client takes it.
 */
void http_reset(const struct conn *c);

/* http_send.c */
/* Hands the reply to libmicrohttpd; false: the connection must be closed. */
bool http_queue(struct rq *q);
bool http_source_lasts(struct rq *q); /* the rest may still be told */

/* http_queue.c: for workers; the first and the last take http->work_lock, the second is called with
 * it held. */
void http_enqueue(struct rq *q);
struct rq *http_take_work(struct http *h); /* the next job, or NULL where none may begin now */
void http_drop_queued(struct http *h);     /* what no worker has come to yet and nobody waits for */

/* http_wait.c */
bool http_done(const struct rq *q); /* replied, or took the body */
/* Around every callback on the listener's thread: http_enter takes the request out of the count of
 * suspended ones, which http_leave makes true (it gets what http_enter returned; the request itself
 * may be gone by then). False from *ret_ok: the daemon cuts what is left, go no further. */
bool http_enter(struct rq *q, bool *ret_ok);
void http_leave(struct http *h, bool was_suspended);
/* fn(&q->r), with the request as the cause of what it begins. */
void http_work(struct rq *q, handler_fn *fn);
handler_fn *http_take_then(struct rq *q); /* its continuation, which runs now */
void http_forgot(struct rq *q);           /* replies in the place of a handler that has not */
enum run_result { RUN_DONE, RUN_PARKED };
/* Runs fn and what it leads to on the listener's thread until it replied (or took a body) or the
 * connection is suspended. */
enum run_result http_run(struct rq *q, handler_fn *fn);
/* Goes on after a suspension. */
enum run_result http_continue(struct rq *q);
/* Suspends until the sink's or source's wake; false: it came already, try again. */
bool http_io_park(struct rq *q);
void http_io_drop(struct rq *q); /* resumes it, if parked, to be dropped */
/* libmicrohttpd lets go of a request whose continuation is still to come; it has come to its end.
 */
void http_orphan(struct rq *q);
void http_orphan_end(struct rq *q);
/* Takes the request out of the hands of those who may wake it; false: it does not wait just now. It
 * is given back, or with `end` woken in any case. */
bool http_hold(struct rq *q);
void http_unhold(struct rq *q, bool end);
bool http_is_late(const struct rq *q); /* and may be ended */
bool http_is_revoked(struct rq *q);    /* the same of one that is let in no more */

/* http_body.c: one call of libmicrohttpd with bytes of the body; false: close. */
bool http_body_bytes(struct rq *q, const char *bytes, size_t *n);
enum err_code http_body_quota(const struct rq *q, struct err *e) must_check;
enum run_result http_sink_end(struct rq *q); /* the whole body went into the sink */

/* http_workers.c */
double http_workers_step(void *h); /* the worker threads' */

/* http_peers.c; the first two under http->lock */
void http_peer_enter(struct http *h, struct conn *c, const struct sockaddr *address);
void http_peer_leave(struct http *h, struct conn *c);
enum err_code http_peer_error(const struct http *h, struct err *e) must_check;
void http_turn_away(struct conn *c); /* writes the reply by hand */

/* http_watch.c */
double http_watch_step(void *h);

#endif
