/* Sessions: they own handles, order work, and limit memory.
 *
 * One `struct sessions` per principal. A session is a handle space, an engine stream and an
 * account; it is reference-counted: the table holds one reference, and so does every request that
 * works in it. So a session that is deleted or expires under a request stays usable until the
 * request ends (but its handles are gone). Called by the handlers. Thread-safe. */
#ifndef ARRAYD_SERVER_SESSION_H
#define ARRAYD_SERVER_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/engine/engine.h"
#include "server/store/handles.h"

struct request;
struct sched;
struct sched_lane;
struct sessions;

/* Every principal's session; in paths and in Arrayd-Session it stands for that session's id. */
#define SESSION_DEFAULT "default"

struct session_limits {
    int default_device;     /* of sessions that ask for none; SESSION_ANY_DEVICE: one with room */
    uint32_t max_sessions;  /* per principal, not counting the default one */
    uint32_t max_arrays;    /* handles per principal */
    uint32_t max_functions; /* functions per principal */
    int64_t attrs_memory;   /* bytes of the labels of a principal's arrays; 0: no limit */
    int64_t session_memory; /* default limit of a session's memory, bytes; 0: no limit */
    int64_t request_memory; /* host memory for a principal's requests, bytes; 0: no limit */
    struct meter *memory;   /* counts those of all principals together; NULL: none */
    struct sched *sched;    /* shares devices among sessions (scheduler.h); NULL: none */
    struct leases *leases;  /* arrays that have one do not go by themselves; NULL: none have */
    const struct observer *observer; /* told of what changes (observer.h); NULL: nobody */
};
#define SESSION_LIMITS_DEFAULT                                                                     \
    {                                                                                              \
        .default_device = SESSION_ANY_DEVICE, .max_sessions = 1000, .max_arrays = 100000,          \
        .max_functions = 1000                                                                      \
    }

/* Read-only outside session.c.
 *
 * Clients that know nothing of sessions share the default session. It has several streams, so that
 * they do not wait for each other: a request sees it as the session with its connection's stream
 * (session_of), whose other parts are those of `whole`. Work on such streams is ordered by the
 * arrays it touches, like the work of different sessions. */
struct session {
    struct session *whole; /* itself, except for those */
    char id[ID_SIZE];      /* s-… */
    char name[NAME_SIZE];  /* "" if it has none */
    bool is_default;
    uint64_t seq;
    int64_t created_us;
    double ttl_s;         /* 0: never expires */
    int64_t memory_limit; /* in force; 0: none */
    int64_t own_limit;    /* as it was asked for; 0: not at all */
    int device;
    int kept_device; /* engine_kept_device, or engine_kept_again */
    struct engine_stream *stream;
    struct session_stream *_Atomic background; /* session_background's */
    struct account *account;
    struct handle_space *handles;
    struct sched_lane *lane; /* the stream's; NULL: its work goes to the device unscheduled */
};

struct session *session_ref(struct session *s); /* returns s */
void session_unref(struct session *s);          /* NULL allowed */
static inline void session_unrefp(struct session **s)
{
    session_unref(*s);
}
#define _cleanup_session_ __attribute__((cleanup(session_unrefp)))

/* rests: the caller's reference no longer keeps the session from expiring, because the caller has
 * no work for it; otherwise it does again. */
void session_rest(struct session *s, bool rests);

/* The session with a stream on that device, for looking at arrays there: itself, or a side of it,
 * made at the first call, whose work and memory are the session's. Borrowed: a reference to one is
 * a reference to the other. ERR_OUT_OF_MEMORY. */
enum err_code session_on(struct session *s, int device, struct session **ret,
                         struct err *e) must_check;

/* The streams that the session's requests work on; borrowed. Returns how many, at most
 * SESSION_STREAMS. */
#define SESSION_STREAMS 4
size_t session_streams(const struct session *s, struct engine_stream **ret);

/* The stream of the session's programs, created at the first call: borrowed. ERR_OUT_OF_MEMORY. */
struct session_stream {
    struct engine_stream *stream;
    struct sched_lane *lane; /* NULL: as above */
};
enum err_code session_background(struct session *s, struct session_stream **ret,
                                 struct err *e) must_check;

/* The table, with its default session. Its sessions' memory is also charged to `owner`; weight: the
 * owner's, see sched_lane_new. */
enum err_code sessions_new(struct engine *engine, const struct session_limits *limits,
                           struct handles *handles, struct account *owner,
                           const _Atomic uint32_t *weight, struct sessions **ret,
                           struct err *e) must_check;
void sessions_free(struct sessions *t);  /* as sessions_close; no request may be left */
void sessions_close(struct sessions *t); /* deletes all sessions; no new ones afterwards */
void sessions_clear(struct sessions *t); /* the same, but leaves an empty default session */
void sessions_set_max(struct sessions *t, uint32_t max_sessions); /* existing ones stay */
int64_t sessions_count(struct sessions *t);

/* The session a request works in: Arrayd-Session's, or the default one with the stream of the
 * request's connection: the connection's last stream, unless another connection has taken it over,
 * otherwise an idle one. A new reference; the session is touched, unless by a read-only link.
 * ERR_NOT_FOUND. */
enum err_code session_of(struct request *req, struct session **ret, struct err *e) must_check;

/* By id or SESSION_DEFAULT; a new reference. `touch` restarts the time to live. ERR_NOT_FOUND. */
enum err_code session_get(struct sessions *t, const char *id, bool touch, struct session **ret,
                          struct err *e) must_check;

struct session_spec {
    const char *name; /* NULL: none */
    double ttl_s;
    int64_t memory_limit;
    int device; /* SESSION_ANY_DEVICE: the one with most free memory; SESSION_MESH: engine_mesh's */
};
#define SESSION_ANY_DEVICE (-1)
#define SESSION_MESH       (-2)
/* A new session, a new reference. ERR_QUOTA (too many), ERR_BAD_FIELD (no such device),
 * ERR_UNAUTHORIZED (the table is closed), ERR_OUT_OF_MEMORY. */
enum err_code session_new(struct sessions *t, const struct session_spec *spec, struct session **ret,
                          struct err *e) must_check;

/* Releases its handles and removes it; a new, empty default session replaces the default one.
 * guard: NULL, or it must agree for each of its arrays. ERR_NOT_FOUND. */
enum err_code session_delete(struct sessions *t, const char *id, const struct handle_guard *guard,
                             struct err *e) must_check;

/* Restores a session of an earlier process (state.h) in a new table: `image` gives id, name,
 * is_default, seq (or 0), created_us, ttl_s, own_limit, device and kept_device; they come in their
 * order, and the maximum number does not apply. The log warns of one of the mesh where there is
 * none. Its time to live begins now. Its memory limit applies from session_limit on, so that it can
 * keep what it had. A default session replaces the new one. The
 * caller owns a reference. */
enum err_code session_restore(struct sessions *t, const struct session *image, struct session **ret,
                              struct err *e) must_check;
void session_limit(struct session *s);

/* As handle_list: references to up to `limit` sessions created after number `after`. */
size_t session_list(struct sessions *t, uint64_t after, size_t limit, struct session **ret,
                    bool *ret_more);

/* Seconds since its last request began. */
double session_idle(struct sessions *t, const struct session *s);

/* Deletes expired sessions; returns the seconds until the next may expire (-1: none can). The
 * table's own thread does this too. */
double sessions_sweep(struct sessions *t);

#endif
