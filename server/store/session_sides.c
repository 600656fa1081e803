/* The streams of the default session, and those of sessions on other devices.
 *
 * A connection keeps its last stream, so that what one client sends in sequence runs in order
 * without synchronization between streams; unless another connection took that stream while it was
 * idle. A new or displaced connection takes an idle stream. If all are busy, another one is
 * created, up to SESSION_STREAMS; beyond that they are shared. So clients wait for each other's
 * work only under heavy load, and a single client works on the first stream as if there were no
 * others.
 *
 * On each other device a session has one stream, with which it only looks at arrays there. */
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/store/session_int.h"
#include "server/work/scheduler.h"

enum err_code session_make_lane(struct sched *sched, const _Atomic uint32_t *weight,
                                struct engine_stream *stream, int device, struct sched_lane **ret,
                                struct err *e)
{
    enum err_code code = sched ? sched_lane_new(sched, weight, device, ret, e) : ERR_OK;
    if (code == ERR_OK && sched)
        engine_stream_watch(stream, &sched_watch, sched_lane_ref(*ret));
    return code;
}

void session_side_free(struct session *s)
{
    engine_stream_unref(s->stream);
    sched_lane_unref(s->lane);
    mem_free(s);
}

size_t session_streams(const struct session *s, struct engine_stream **ret)
{
    const struct node *n = node_of(s);
    size_t count = atomic_load(&n->n_sides);
    for (size_t i = 0; i < count; i++)
        ret[i] = n->sides[i]->stream;
    return count;
}

/* NULL without memory. */
static struct session *side_new(const struct node *n, int device)
{
    struct session *s = mem_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    memcpy(s->id, n->s.id, sizeof s->id);
    memcpy(s->name, n->s.name, sizeof s->name);
    s->whole = n->sides[0];
    s->is_default = n->s.is_default;
    s->seq = n->s.seq;
    s->created_us = n->s.created_us;
    s->ttl_s = n->s.ttl_s;
    s->memory_limit = n->s.memory_limit;
    s->device = device;
    s->account = n->s.account;
    s->handles = n->s.handles;
    if (engine_stream_new(n->engine, s->device, &s->stream, NULL) != ERR_OK ||
        session_make_lane(n->sched, n->weight, s->stream, s->device, &s->lane, NULL) != ERR_OK) {
        session_side_free(s);
        return NULL;
    }
    engine_stream_account(s->stream, s->account);
    return s;
}

/* The first idle one; SESSION_STREAMS: none. Without the table's lock: scheduler and jobs call each
 * other with their locks held when work ends, and jobs look sessions up. */
static uint32_t idle_side(const struct node *n)
{
    uint32_t count = atomic_load(&n->n_sides);
    for (uint32_t i = 0; i < count; i++)
        if (!n->sides[i]->lane || !sched_lane_is_busy(n->sides[i]->lane))
            return i;
    return SESSION_STREAMS;
}

/* With the lock held: the one this connection had last; SESSION_STREAMS: none. */
static uint32_t kept_side(const struct sessions *t, const struct node *n, uint64_t user)
{
    lock_held(&t->lock);
    uint32_t count = atomic_load(&n->n_sides), i = 0;
    while (i < count && n->users[i] != user)
        i++;
    return i < count ? i : SESSION_STREAMS;
}

struct session *session_side_for(struct sessions *t, struct node *n, uint64_t user)
{
    pthread_mutex_lock(&t->lock);
    uint32_t i = kept_side(t, n, user);
    pthread_mutex_unlock(&t->lock);
    if (i < SESSION_STREAMS)
        return n->sides[i];
    i = idle_side(n);
    bool more = i == SESSION_STREAMS && atomic_load(&n->n_sides) < SESSION_STREAMS;
    struct session *made = more ? side_new(n, n->s.device) : NULL;
    pthread_mutex_lock(&t->lock);
    uint32_t count = atomic_load(&n->n_sides);
    if (made && count < SESSION_STREAMS) {
        n->sides[i = count] = made;
        atomic_store(&n->n_sides, count + 1);
        made = NULL;
    } else if (i == SESSION_STREAMS) {
        i = (uint32_t)(user % count);
    }
    n->users[i] = user;
    pthread_mutex_unlock(&t->lock);
    if (made) /* another thread was quicker */
        session_side_free(made);
    return n->sides[i];
}

enum err_code session_on(struct session *s, int device, struct session **ret, struct err *e)
{
    struct node *n = node_of(s);
    struct session *there = device == s->device ? s : atomic_load(&n->elsewhere[device]);
    if (!there) {
        struct session *made = side_new(n, device);
        if (!made)
            return err_oom(e);
        if (atomic_compare_exchange_strong(&n->elsewhere[device], &there, made))
            there = made;
        else
            session_side_free(made); /* another thread was quicker */
    }
    *ret = there;
    return ERR_OK;
}
