/* Between session.c, which keeps the table, and session_sides.c, which gives the default session
 * several streams, and any session one on another device. */
#ifndef ARRAYD_SERVER_SESSION_INT_H
#define ARRAYD_SERVER_SESSION_INT_H

#include <pthread.h>

#include "compute/base/table.h"
#include "compute/base/worker.h"
#include "server/store/session.h"

struct node {
    struct session s;                       /* first: a session is its node */
    struct session *sides[SESSION_STREAMS]; /* itself, and its sides on other streams; */
    _Atomic uint32_t n_sides;               /* added under the table's lock, never removed */
    uint64_t users[SESSION_STREAMS];        /* the connection that last used it; under the lock */
    _Atomic uint32_t refs;
    _Atomic uint32_t resting; /* references that do not keep it from expiring */
    struct engine *engine;    /* the table's, */
    struct sched *sched;      /* as this is */
    const _Atomic uint32_t *weight;
    double last_used; /* seconds, monotonic; under the table's lock */
    struct node *prev, *next;
    UT_hash_handle hh;
    int n_devices;
    struct session *_Atomic elsewhere[]; /* by device: its side there, made when first needed */
};

struct sessions {
    struct engine *engine;
    struct session_limits limits;
    struct handles *handles;
    struct account *owner;
    const _Atomic uint32_t *weight;
    struct observer_of observer; /* that of the handles */

    pthread_mutex_t lock; /* everything below, and most of sessions */
    struct node *by_id;
    struct node *list;
    struct node *dflt;
    uint64_t next_seq;
    struct worker sweeper; /* woken by a new session that may expire */
    bool closed;           /* nothing is added any more; the sweeper has ended, or will soon */
};

static inline struct node *node_of(const struct session *s)
{
    return (struct node *)s->whole;
}

/* Creates a lane that watches the stream; without a scheduler *ret is untouched. */
enum err_code session_make_lane(struct sched *sched, const _Atomic uint32_t *weight,
                                struct engine_stream *stream, int device, struct sched_lane **ret,
                                struct err *e) must_check;
/* The session with the stream for that connection. */
struct session *session_side_for(struct sessions *t, struct node *n, uint64_t user);
void session_side_free(struct session *s);

#endif
