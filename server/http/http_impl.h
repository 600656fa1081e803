/* Inside the HTTP front: what http*.c share with each other only.
 *
 * A listener is one libmicrohttpd daemon with its own thread. A connection (struct conn)
 * lives from accept to close and is known to the watch thread, which enforces the deadlines that
 * libmicrohttpd lacks. A request (struct rq) begins with the struct request that handlers see; it
 * is created when its first line has arrived and freed when libmicrohttpd has finished with it.
 *
 * A request belongs to the thread that runs its handler, one at a time: the listener's thread, or a
 * worker while the connection is suspended. Other threads reach it only through the atomics. */
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
#define ADMIN_CONNS    128         /* of each admin listener */

/* A listener's thread. */
struct http_loop {
    int wake_fd; /* eventfd; -1: it does not run */
    _Atomic bool asleep, woken, ends;
    _Atomic bool quiesce, quiet;    /* it is to accept no more connections, and accepts none */
    _Atomic uint64_t rounds;        /* calls of libmicrohttpd */
    _Atomic(struct conn *) evicted; /* by the watch thread: to be closed */
    int in_vain;          /* of the last ones those that it asked for, without a callback of ours */
    bool spins;           /* before it sleeps, */
    int steps;            /* callbacks of ours in the last call of libmicrohttpd; if any, */
    uint64_t spins_until; /* until then (ns) */
    pthread_mutex_t lock;
    struct worker thread;
};

struct listener {
    struct http *http;
    struct MHD_Daemon *mhd;
    struct http_loop loop;
    int fd;
    char *unix_path; /* NULL: TCP */
    bool removed;    /* the path */
    bool left;       /* the socket, by the previous process */
    bool loopback;   /* not reachable from other machines */
    bool tls;
    bool admin;    /* health and metrics only */
    char *address; /* as actually bound */
};

struct conn {
    struct conn *prev, *next; /* http->conns, under http->lock */
    struct listener *listener;
    uint64_t number; /* request.connection */
    int fd;
    bool excess;                    /* past max_connections */
    bool crowded, turned_away;      /* past max_connections_per_address, and its reserve */
    struct peer *peer;              /* NULL: not counted */
    struct principal *principal;    /* who sent the last request; NULL: nobody yet */
    struct gnutls_session_int *tls; /* NULL: plain */

    pthread_mutex_t lock; /* guards rq against the watch thread */
    struct rq *rq;
    double opened, idle_since; /* seconds, monotonic */
    bool used;                 /* a request has been served */
    bool refused;              /* a request was closed for lack of memory */
    bool first;                /* the one being served is the first */
    uint64_t idle_bytes;       /* TCP: received when the watch first saw it idle; 0: not yet */
    int n_closed;              /* consecutive looks that found it closed by the client */
    double partial_since;      /* when bytes of a next request began to arrive; 0: none */
};

struct header {
    const char *name, *value;
};

struct out_header {
    struct out_header *next;
    const char *name, *value;
};

/* The request's body. */
struct body_in {
    char *buf; /* collected */
    size_t cap;
    struct metered counted;
    _Atomic int64_t received;  /* bytes of the body */
    _Atomic int64_t last_byte; /* ms, monotonic */
    int64_t drained;
    struct http_sink *sink;
    bool sink_done; /* end() or abort() was called */
};

/* The handler's reply. */
struct reply {
    bool given;
    int status;
    const char *type;
    struct strb body;
    struct http_source *src;
    int64_t length;         /* of the source */
    struct metered counted; /* the block it is read into */
    struct out_header *headers, *last;
    struct out_header retry_after; /* one of them: there when no memory is left for another */
    char retry_after_s[12];
    _Atomic int64_t sent;
};

/* How long the request may wait. */
struct wait_limit {
    bool known;
    int64_t preferred_s;  /* as applied; -1: the client sent none */
    uint64_t deadline_ns; /* 0: none */
    _Atomic bool late;
};

/* The rate of bytes in or out at a place; used by the watch thread only. */
struct pace {
    enum place place;
    double since; /* when it got there; 0: not seen yet */
    int64_t samples[RATE_SAMPLES + 1];
    int n;
    double next;
    uint64_t rounds; /* of the listener, at the first look since which bytes wait unread; 0: none */
    int64_t read;    /* of the connection by then, and of the body */
};

struct rq {
    struct request r; /* first */
    struct http *http;
    struct conn *conn; /* NULL once libmicrohttpd has released the request */
    struct MHD_Connection *mhd;
    struct http_state state;
    uint64_t begun_ns;

    /* from the header */
    const char *uri; /* raw, with the query */
    struct header *headers;
    size_t n_headers, cap_headers;
    const char *traceparent;
    bool head;       /* HEAD */
    bool cors;       /* from a page of another origin, which is allowed */
    bool framed;     /* Content-Length or Transfer-Encoding was there */
    bool must_close; /* the framing can no longer be trusted */
    bool expect, chunked, has_body;

    struct http_user user; /* the caller */
    struct cause cause;    /* which meter counts the host memory it takes */
    struct body_in in;
    struct pace pace;

    /* what runs next: on the listener's thread, on a worker */
    handler_fn *then, *work;
    struct wait_limit limit;
    struct rq *next_work;
    bool long_work;
    bool queued;          /* for a worker; under http->work_lock */
    bool not_begun;       /* its handler has not run yet */
    bool suspended;       /* as the listener's thread left it */
    bool orphan;          /* libmicrohttpd released it while `then` was still to come */
    _Atomic bool left;    /* the client has disconnected while it waited */
    _Atomic bool dropped; /* stopping, or the client has disconnected: end it at the next call */

    struct reply reply;
    uint64_t worked_ns;       /* time of a processor that workers have given it */
    struct http_inner *inner; /* the stream that made it; NULL: a client */
};

struct http {
    struct server *server;
    struct http_config config;
    struct http_calls calls;
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
    double next_look, waited; /* the watch's own: next full look, last sight of a waiting one */
    _Atomic bool watch_rests; /* nothing has waited for a while: it looks less often */

    pthread_mutex_t work_lock;
    struct worker workers;
    struct work_queue {
        struct rq *head, *tail;
    } short_work, long_work;
    int64_t n_work;   /* in both queues */
    double worked;    /* *user.worked of the job begun last */
    int running;      /* workers running something, */
    int long_running; /* and long work */
    int short_run;    /* short jobs begun in a row while long ones waited */

    _Atomic int64_t connections, clients, in_flight, suspended, orphans; /* clients: not of admin */
    _Atomic int inside;                                                  /* callbacks running */
    _Atomic bool cutting;       /* stopping, and the drain time is over; */
    _Atomic bool leaving;       /* what was cancelled then has had time to say so, too */
    _Atomic uint64_t last_conn; /* connection that sent the last request, and when (ns) */
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
void http_listen_close(struct http *h); /* closes sockets that no daemon took over, removes paths */
void http_listen_free(struct http *h);  /* the same, and the lists */
enum err_code http_hosts_init(struct http *h, struct err *e) must_check;

/* http_cors.c: checks http_config.cors_origins. ERR_BAD_FIELD. */
enum err_code http_cors_check(const struct http_config *c, struct err *e) must_check;
/* Whether pages of `origin` may send requests; adds the reply's headers if so. */
bool http_cors(struct rq *q, const char *origin);
void http_cors_preflight(struct rq *q); /* for OPTIONS: the methods and headers they may send */

/* http_tls.c */
/* Reads the files; ERR_BAD_FIELD, also where libmicrohttpd lacks TLS. */
enum err_code http_tls_load(const struct http_config *c, struct err *e) must_check;
void http_tls_free(void);
extern const char http_tls_versions[]; /* MHD_OPTION_HTTPS_PRIORITIES */
void *http_tls_callback(void);         /* MHD_OPTION_HTTPS_CERT_CALLBACK */
/* On the listener's thread only: sends as much as the socket takes, and ends the writing side. */
void http_tls_send(struct conn *c, const char *p, size_t n);

/* http_check.c: the first checks of a request. Fills r.*, expect, chunked, …; the caller replies to
 * an error; rq->must_close says whether the connection can continue. */
enum err_code http_check(struct rq *q, const char *method, const char *version,
                         struct err *e) must_check;

/* http_route.c: sets r.route and r.param; or replies (404, 405, OPTIONS) and leaves it NULL. */
void http_route(struct rq *q);

enum err_code http_target(struct rq *q, struct err *e) must_check; /* path and query, of q->uri */

/* http_inner.c: an inner request has its reply, and ends. */
void http_inner_done(struct rq *q);

/* http_request.c */
struct rq *rq_new(struct http *h, struct conn *c, struct MHD_Connection *mhd, const char *uri);
void rq_let_go(struct rq *q);    /* frees what its handler and its sink hold */
void rq_drop_body(struct rq *q); /* frees the part that was collected */
/* After the reply has been handed over: frees a large request's memory except what will be logged,
 * so that it is not held while the client reads. */
void rq_lighten(struct rq *q);
void rq_end(struct rq *q); /* counts, logs and frees it */
void http_new_id(char out[33]);

/* http_reply.c */
/* Replies in place of the handler, sink or continuation of a request whose credentials have
 * expired. */
void rq_refuse(struct request *r);
/* Whether its credentials are still valid; if not, it has its reply. */
bool rq_still_may(struct request *r);
size_t http_source_block(const struct rq *q, int64_t length); /* bytes read from a source at once */

/* http_raw.c */
/* Writes a whole reply to the socket by hand, where libmicrohttpd accepts none, and ends the
 * writing side. */
void http_raw_reply(struct rq *q);
void http_raw_error(struct conn *c, const char *id, const struct err *e);
void http_server_timing(const struct rq *q, char *buf, size_t n);
/* The client has sent something, and nothing was ever sent back; TCP only. */
bool http_unanswered(int fd);
/* Cuts the connection and drops unsent data, which the kernel would otherwise keep until the client
 * reads it. */
void http_reset(const struct conn *c);

/* http_send.c */
/* Hands the reply to libmicrohttpd; false: the connection must be closed. */
bool http_queue(struct rq *q);
bool http_source_lasts(struct rq *q); /* whether the rest may still be sent */

/* http_queue.c: the workers' queues. The first and the last take http->work_lock; the second is
 * called with it held. */
void http_enqueue(struct rq *q);
struct rq *http_take_work(struct http *h); /* the next job, or NULL if none may begin now */
void http_drop_queued(struct http *h);     /* drops those not begun or abandonable */

/* http_wait.c */
bool http_done(const struct rq *q); /* replied, or took the body */
/* Around every callback on the listener's thread. http_enter takes the request out of the count of
 * suspended ones; http_leave completes that (it gets what http_enter returned, since the request
 * may be freed by then). *ret_ok false: the daemon is cutting requests off, go no further. */
bool http_enter(struct rq *q, bool *ret_ok);
void http_leave(struct http *h, bool was_suspended);
/* fn(&q->r), with the request as the cause of the memory it takes. */
void http_work(struct rq *q, handler_fn *fn);
handler_fn *http_take_then(struct rq *q); /* its continuation, which runs now */
void http_forgot(struct rq *q);           /* replies for a handler that did not */
enum run_result { RUN_DONE, RUN_PARKED };
/* Runs fn and its continuations on the listener's thread until the request has its reply (or took a
 * body) or the connection is suspended. */
enum run_result http_run(struct rq *q, handler_fn *fn);
/* Continues after a suspension. */
enum run_result http_continue(struct rq *q);
/* Suspends until the sink's or source's wake; false: the wake has already come, try again. */
bool http_io_park(struct rq *q);
void http_io_drop(struct rq *q); /* if parked, resumes it to be dropped */
/* libmicrohttpd releases a request whose continuation is still to come; the orphan has ended. */
void http_orphan(struct rq *q);
void http_orphan_end(struct rq *q);
/* Keeps wakers off the request; false: it is not parked. http_unhold releases it, and with `end`
 * wakes it in any case. */
bool http_hold(struct rq *q);
void http_unhold(struct rq *q, bool end);
bool http_is_late(const struct rq *q); /* its deadline has passed, and it may be ended */
bool http_is_revoked(struct rq *q);    /* its token is revoked, and it may be ended */

/* http_body.c: one libmicrohttpd call with bytes of the body; false: close the connection. */
bool http_body_bytes(struct rq *q, const char *bytes, size_t *n);
enum err_code http_body_quota(const struct rq *q, struct err *e) must_check;
size_t http_body_most(const struct rq *q);   /* bytes of a body that is collected */
enum run_result http_sink_end(struct rq *q); /* the whole body went into the sink */

/* http_loop.c: the thread that calls libmicrohttpd; after http_loop_stop nothing does. */
bool http_loop_start(struct listener *l);
void http_loop_stop(struct listener *l);
/* From its return on no more connections are accepted, and l->fd is used no more. */
void http_loop_quiesce(struct listener *l);
/* A callback of ours is called. */
static inline void http_loop_step(struct http_loop *loop)
{
    loop->in_vain = 0;
    loop->steps++;
}
/* Has the connection closed within a second or two; with http->lock held, so that it lives. False:
 * another one is just being closed, try again. http_loop_forget: it closes by itself. */
bool http_loop_evict(struct conn *c);
void http_loop_forget(struct conn *c);
/* Resumes a suspended connection of that listener; any thread. */
void http_resume(struct MHD_Connection *mhd, struct listener *l);

/* http_workers.c */
double http_workers_step(void *h); /* one step of a worker thread */

/* http_peers.c; the first two under http->lock */
void http_peer_enter(struct http *h, struct conn *c, const struct sockaddr *address);
void http_peer_leave(struct http *h, struct conn *c);
enum err_code http_peer_error(const struct http *h, struct err *e) must_check;
void http_turn_away(struct conn *c); /* writes the reply by hand */

/* http_watch.c */
double http_watch_step(void *h);

#endif
