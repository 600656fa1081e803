/* Sessions: who owns handles, in which order work runs, what memory it may take.
 *
 * One `struct sessions` a principal. A session is a handle space, an engine stream and an account;
 * it is reference-counted: the table holds one reference, every request that works in it another,
 * so a session that is deleted or expires under a request stays usable until the request ends (its
 * handles are gone, though). Called by the handlers. Thread-safe. */
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

/* Name of the session that every principal has; in paths and in Arrayd-Session it stands for that
 * session's id. */
#define SESSION_DEFAULT "default"

struct session_limits {
    uint32_t max_sessions;  /* a principal, the default one not counted */
    uint32_t max_arrays;    /* handles of a principal */
    uint32_t max_functions; /* that a principal has defined */
    int64_t session_memory; /* bytes a session may use unless it says less; 0: no limit */
    int64_t request_memory; /* bytes of the host that a principal's requests take; 0: no limit */
    struct meter *memory;   /* in which those of all principals count; NULL: in none */
    struct sched *sched;    /* by which sessions share devices (scheduler.h); NULL: by none */
};
#define SESSION_LIMITS_DEFAULT                                                                     \
    {                                                                                              \
        .max_sessions = 1000, .max_arrays = 100000, .max_functions = 1000                          \
    }

/* Read-only for everybody but session.c.
 *
 * The default session, which clients share that know nothing of sessions, has several streams, so
 * that they do not wait for each other: to a request it is the one that works on its connection's
 * (session_of), the rest of which is that of `whole`. What such streams do is ordered by the arrays
 * they touch, as the work of different sessions is. */
struct session {
    struct session *whole; /* itself, but for those */
    char id[ID_SIZE];      /* s-… */
    char name[NAME_SIZE];  /* "" when it has none */
    bool is_default;
    uint64_t seq;
    int64_t created_us;
    double ttl_s;         /* 0: never expires */
    int64_t memory_limit; /* 0: none */
    int device;
    struct engine_stream *stream;
    struct session_stream *_Atomic background; /* session_background's */
    struct account *account;
    struct handle_space *handles;
    struct sched_lane *lane; /* the stream's; NULL: its work goes to the device at once */
};

struct session *session_ref(struct session *s); /* returns s */
void session_unref(struct session *s);          /* NULL allowed */
static inline void session_unrefp(struct session **s)
{
    session_unref(*s);
}
#define _cleanup_session_ __attribute__((cleanup(session_unrefp)))

/* A reference of the caller's no longer keeps the session from expiring, or does so again: that of
 * somebody who has no work for it. */
void session_rest(struct session *s, bool rests);

/* The streams that its requests work on; borrowed. Returns how many, at most SESSION_STREAMS. */
#define SESSION_STREAMS 4
size_t session_streams(const struct session *s, struct engine_stream **ret);

/* Of the session's programs, made when first asked for: borrowed. ERR_OUT_OF_MEMORY. */
struct session_stream {
    struct engine_stream *stream;
    struct sched_lane *lane; /* NULL: as above */
};
enum err_code session_background(struct session *s, struct session_stream **ret,
                                 struct err *e) must_check;

/* The table, with its default session. What its sessions have is charged to `owner` too; weight:
 * his, see sched_lane_new. */
enum err_code sessions_new(struct engine *engine, const struct session_limits *limits,
                           struct handles *handles, struct account *owner,
                           const _Atomic uint32_t *weight, struct sessions **ret,
                           struct err *e) must_check;
void sessions_free(struct sessions *t);  /* as sessions_close; no request is left */
void sessions_close(struct sessions *t); /* deletes every session; there will be none any more */
void sessions_clear(struct sessions *t); /* the same, but for a default session without arrays */
void sessions_set_max(struct sessions *t, uint32_t max_sessions); /* those there are stay */
int64_t sessions_count(struct sessions *t);

/* The session a request works in: Arrayd-Session's, else the default one, with the stream that the
 * request's connection has there: the one it had last, unless others have come upon that meanwhile,
 * else one that has nothing to do. A new reference; the session is touched. ERR_NOT_FOUND. */
enum err_code session_of(struct request *req, struct session **ret, struct err *e) must_check;

/* By id or SESSION_DEFAULT; a new reference. `touch` restarts the time to live. ERR_NOT_FOUND. */
enum err_code session_get(struct sessions *t, const char *id, bool touch, struct session **ret,
                          struct err *e) must_check;

struct session_spec {
    const char *name; /* NULL: none */
    double ttl_s;
    int64_t memory_limit;
    int device; /* SESSION_ANY_DEVICE: that with most free memory */
};
#define SESSION_ANY_DEVICE (-1)
/* A new session, a new reference. ERR_QUOTA (too many), ERR_BAD_FIELD (no such device),
 * ERR_UNAUTHORIZED (the table is closed), ERR_OUT_OF_MEMORY. */
enum err_code session_new(struct sessions *t, const struct session_spec *spec, struct session **ret,
                          struct err *e) must_check;

/* Releases its handles and forgets it; the default session is followed by a new, empty one. guard:
 * NULL, or what must agree for each of its arrays. ERR_NOT_FOUND. */
enum err_code session_delete(struct sessions *t, const char *id, const struct handle_guard *guard,
                             struct err *e) must_check;

/* A session of an earlier process (state.h), in the table of one that has just begun: `image` says
 * id, name, is_default, created_us, ttl_s, memory_limit and device; there may be more than are
 * allowed. Its time to live begins now. It has no memory_limit before session_limit: what it had,
 * it may have. The default one takes the place of the new one. A reference is the caller's. */
enum err_code session_restore(struct sessions *t, const struct session *image, struct session **ret,
                              struct err *e) must_check;
void session_limit(struct session *s);

/* As handle_list: references to up to `limit` sessions made after number `after`. */
size_t session_list(struct sessions *t, uint64_t after, size_t limit, struct session **ret,
                    bool *ret_more);

/* Deletes what expired by now; returns the seconds until the next may expire (-1: none can). Also
 * done by a thread of the table's own. */
double sessions_sweep(struct sessions *t);

#endif
