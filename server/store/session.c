/* Sessions. A table by id and a list in order of creation, both under one lock that is held for
 * look-ups only; streams, accounts and arrays are created and released outside of it.
 *
 * Expiry: a session with a time to live ends when no request holds it and its last request was that
 * long ago. The table's own thread sleeps until the earliest such moment; look-ups check too, so
 * that an expired session is never served, however late the thread is. */
#include "server/store/session_int.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/http/http.h"
#include "server/store/auth.h"
#include "server/work/scheduler.h"

/* --- one session --- */

struct session *session_ref(struct session *s)
{
    atomic_fetch_add_explicit(&node_of(s)->refs, 1, memory_order_relaxed);
    return s;
}

static void session_stream_free(struct session_stream *b)
{
    if (!b)
        return;
    engine_stream_unref(b->stream);
    sched_lane_unref(b->lane);
    mem_free(b);
}

void session_unref(struct session *s)
{
    struct node *n = s ? node_of(s) : NULL;
    const uint32_t refs = n ? atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) : 0;
    assert(!n || refs > 0);
    if (refs != 1)
        return;
    s = &n->s;
    for (uint32_t i = 1; i < atomic_load(&n->n_sides); i++)
        session_side_free(n->sides[i]);
    for (int i = 0; i < n->n_devices; i++)
        if (atomic_load(&n->elsewhere[i]))
            session_side_free(n->elsewhere[i]);
    handle_space_free(s->handles);
    session_stream_free(atomic_load(&s->background));
    account_unref(s->account);
    session_side_free(s);
}

void session_rest(struct session *s, bool rests)
{
    struct node *n = node_of(s);
    const uint32_t before =
        rests ? atomic_fetch_add(&n->resting, 1) : atomic_fetch_sub(&n->resting, 1);
    assert(rests || before > 0);
    (void)before;
}

enum err_code session_background(struct session *s, struct session_stream **ret, struct err *e)
{
    s = s->whole;
    struct session_stream *b = atomic_load(&s->background);
    if (!b) {
        const struct node *n = node_of(s);
        struct session_stream *made = mem_calloc(1, sizeof *made);
        enum err_code code =
            made ? engine_stream_background(s->stream, &made->stream, e) : err_oom(e);
        if (code == ERR_OK)
            code = session_make_lane(n->sched, n->weight, made->stream, s->device, &made->lane, e);
        if (code != ERR_OK) {
            session_stream_free(made);
            return code;
        }
        if (atomic_compare_exchange_strong(&s->background, &b, made))
            b = made;
        else
            session_stream_free(made); /* another thread was quicker */
    }
    *ret = b;
    return ERR_OK;
}

/* With the id given, or a new one (NULL). */
static enum err_code node_new_as(struct sessions *t, const struct session_spec *spec,
                                 const char *id, struct node **ret, struct err *e)
{
    const int n_devices = engine_device_count(t->engine), mesh = engine_mesh(t->engine);
    if (spec->device == SESSION_MESH && mesh < 0)
        return err_field(e, ERR_BAD_FIELD, "/device",
                         "this daemon has no mesh: its operator starts it with --mesh");
    if (spec->device < SESSION_MESH || spec->device >= n_devices)
        return n_devices == 1 ? err_field(e, ERR_BAD_FIELD, "/device",
                                          "there is no device %d: the only one is 0", spec->device)
                              : err_field(e, ERR_BAD_FIELD, "/device",
                                          "there is no device %d: the devices are 0 to %d",
                                          spec->device, n_devices - 1);
    struct node *n = mem_calloc(1, sizeof *n + (size_t)n_devices * sizeof *n->elsewhere);
    if (!n)
        return err_oom(e);
    struct session *s = &n->s;
    n->n_devices = n_devices;
    n->engine = t->engine;
    s->whole = n->sides[0] = s;
    atomic_init(&n->n_sides, 1);
    atomic_init(&n->refs, 1);
    if (id)
        memcpy(s->id, id, ID_SIZE);
    else
        id_make('s', s->id);
    if (spec->name)
        strncpy(s->name, spec->name, NAME_SIZE - 1);
    s->created_us = clock_date_us();
    s->ttl_s = spec->ttl_s;
    s->memory_limit = s->own_limit = spec->memory_limit;
    if (t->limits.session_memory &&
        (!s->memory_limit || s->memory_limit > t->limits.session_memory))
        s->memory_limit = t->limits.session_memory;
    const int wanted = spec->device == SESSION_ANY_DEVICE ? t->limits.default_device : spec->device;
    s->device = wanted == SESSION_ANY_DEVICE ? engine_roomiest_device(t->engine)
                : wanted == SESSION_MESH     ? mesh
                                             : wanted;
    s->kept_device = engine_kept_device(t->engine, s->device);
    enum err_code code = ERR_OK;
    s->handles = handle_space_new(t->handles, s->id);
    s->account = account_new_of(t->owner, s->memory_limit);
    if (!s->handles || !s->account)
        code = err_oom(e);
    else
        code = engine_stream_new(t->engine, s->device, &s->stream, e);
    if (code == ERR_OK)
        code = session_make_lane(t->limits.sched, t->weight, s->stream, s->device, &s->lane, e);
    if (code != ERR_OK) {
        engine_stream_unref(s->stream);
        handle_space_free(s->handles);
        if (s->account)
            account_unref(s->account);
        mem_free(n);
        return code;
    }
    engine_stream_account(s->stream, s->account);
    n->sched = t->limits.sched;
    n->weight = t->weight;
    n->last_used = clock_s();
    *ret = n;
    return ERR_OK;
}

static enum err_code node_new(struct sessions *t, const struct session_spec *spec,
                              struct node **ret, struct err *e)
{
    return node_new_as(t, spec, NULL, ret, e);
}

/* Releases the session's resources and the table's reference; no table contains the session any
 * more. */
static void node_retire(struct node *n)
{
    handle_space_close(n->s.handles);
    session_unref(&n->s);
}

/* --- the table --- */

/* After a change of the table. */
static void check(const struct sessions *t)
{
    lock_held(&t->lock);
#ifndef NDEBUG
    const struct node *n;
    uint64_t seq = 0;
    uint32_t count = 0, defaults = 0;
    for (n = t->list; n; n = n->next, count++) {
        assert(n->s.seq > seq && atomic_load(&n->refs) > 0);
        seq = n->s.seq;
        defaults += n == t->dflt;
    }
    assert(count == HASH_COUNT(t->by_id) && seq < t->next_seq);
    assert(defaults == !t->closed && (!t->closed || count == 0));
#endif
}

static void tell(const struct sessions *t, const struct node *n, bool gone)
{
    lock_held(&t->lock);
    const struct observer_of *o = &t->observer;
    if (o->to)
        o->to->session(o->to->user, o->principal, &n->s, gone);
}

static bool table_add(struct sessions *t, struct node *n)
{
    lock_held(&t->lock);
    HASH_ADD(hh, t->by_id, s.id, ID_SIZE - 1, n);
    if (!n->hh.tbl)
        return false;
    n->s.seq = t->next_seq++;
    DL_APPEND(t->list, n);
    tell(t, n, false);
    return true;
}

static void table_remove(struct sessions *t, struct node *n)
{
    lock_held(&t->lock);
    HASH_DELETE(hh, t->by_id, n);
    DL_DELETE(t->list, n);
    tell(t, n, true);
}

/* Not counting the table's reference, and resting ones. */
static bool is_held(const struct node *n)
{
    return atomic_load(&n->refs) > 1 + atomic_load(&n->resting);
}

static bool expired(const struct sessions *t, const struct node *n, double now)
{
    lock_held(&t->lock);
    return n->s.ttl_s > 0 && !is_held(n) && now - n->last_used >= n->s.ttl_s;
}

static struct node *lookup(struct sessions *t, const char *id)
{
    lock_held(&t->lock);
    struct node *n = NULL;
    if (strcmp(id, SESSION_DEFAULT) == 0)
        return t->dflt; /* NULL: closed */
    if (id_is('s', id))
        HASH_FIND(hh, t->by_id, id, ID_SIZE - 1, n);
    return n && !expired(t, n, clock_s()) ? n : NULL;
}

static enum err_code no_session(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "there is no session '%.80s'", id);
}

double sessions_sweep(struct sessions *t)
{
    struct node *dead = NULL, *n, *tmp;
    double now = clock_s(), next = -1;
    pthread_mutex_lock(&t->lock);
    DL_FOREACH_SAFE(t->list, n, tmp)
    {
        if (n->s.ttl_s <= 0)
            continue;
        if (expired(t, n, now)) {
            table_remove(t, n);
            DL_APPEND(dead, n);
            continue;
        }
        if (is_held(n)) /* a request is using it */
            n->last_used = now;
        double left = n->last_used + n->s.ttl_s - now;
        if (next < 0 || left < next)
            next = left;
    }
    check(t);
    pthread_mutex_unlock(&t->lock);
    DL_FOREACH_SAFE(dead, n, tmp)
    {
        node_retire(n);
    }
    return next;
}

static double sweep_step(void *user)
{
    struct sessions *t = user;
    pthread_mutex_unlock(&t->lock);
    double wait = sessions_sweep(t);
    pthread_mutex_lock(&t->lock);
    /* The minimum keeps a request that has just begun from making this loop spin; the maximum keeps
     * a session created between sweep and wait from being overlooked for long. */
    return wait < 0 || wait > 5 ? 5 : wait < 0.01 ? 0.01 : wait;
}

/* --- the module's functions --- */

/* Creates the default session, and the thread that ends expired sessions. */
static enum err_code begin(struct sessions *t, struct err *e)
{
    struct session_spec spec = {.name = SESSION_DEFAULT, .device = SESSION_ANY_DEVICE};
    TRY(node_new(t, &spec, &t->dflt, e));
    t->dflt->s.is_default = true;
    pthread_mutex_lock(&t->lock);
    bool added = table_add(t, t->dflt);
    pthread_mutex_unlock(&t->lock);
    if (added && worker_start(&t->sweeper))
        return ERR_OK;
    if (added) {
        pthread_mutex_lock(&t->lock);
        table_remove(t, t->dflt);
        pthread_mutex_unlock(&t->lock);
    }
    node_retire(t->dflt);
    return added ? err_set(e, ERR_OUT_OF_MEMORY, "cannot start a thread") : err_oom(e);
}

enum err_code sessions_new(struct engine *engine, const struct session_limits *limits,
                           struct handles *handles, struct account *owner,
                           const _Atomic uint32_t *weight, struct sessions **ret, struct err *e)
{
    struct sessions *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_oom(e);
    t->engine = engine;
    t->limits = *limits;
    t->handles = handles;
    t->observer = handles_observer(handles);
    t->owner = owner;
    t->weight = weight;
    t->next_seq = 1;
    pthread_mutex_init(&t->lock, NULL);
    t->sweeper =
        (struct worker){.name = "arrayd-sweeper", .lock = &t->lock, .step = sweep_step, .user = t};
    worker_init(&t->sweeper);
    enum err_code code = begin(t, e);
    if (code != ERR_OK) {
        worker_destroy(&t->sweeper);
        pthread_mutex_destroy(&t->lock);
        mem_free(t);
        return code;
    }
    *ret = t;
    return ERR_OK;
}

void sessions_close(struct sessions *t)
{
    struct node *gone = NULL, *n, *tmp;
    pthread_mutex_lock(&t->lock);
    t->closed = true;
    t->dflt = NULL;
    DL_FOREACH_SAFE(t->list, n, tmp)
    {
        table_remove(t, n);
        DL_APPEND(gone, n);
    }
    check(t);
    pthread_mutex_unlock(&t->lock);
    worker_stop(&t->sweeper);
    DL_FOREACH_SAFE(gone, n, tmp)
    {
        node_retire(n);
    }
}

void sessions_free(struct sessions *t)
{
    if (!t)
        return;
    sessions_close(t);
    worker_destroy(&t->sweeper);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void sessions_clear(struct sessions *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t last = 0, end = t->next_seq; /* the new default session comes after it */
    pthread_mutex_unlock(&t->lock);
    struct session *s;
    bool more;
    while (last < end && session_list(t, last, 1, &s, &more)) {
        last = s->seq;
        bool gone = last >= end || session_delete(t, s->id, NULL, NULL) == ERR_OK;
        session_unref(s);
        if (!gone) /* no memory for a default session: the rest stays until the next call */
            return;
    }
}

void sessions_set_max(struct sessions *t, uint32_t max_sessions)
{
    pthread_mutex_lock(&t->lock);
    t->limits.max_sessions = max_sessions;
    pthread_mutex_unlock(&t->lock);
}

int64_t sessions_count(struct sessions *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t n = HASH_COUNT(t->by_id);
    pthread_mutex_unlock(&t->lock);
    return n;
}

enum err_code session_get(struct sessions *t, const char *id, bool touch, struct session **ret,
                          struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct node *n = lookup(t, id);
    if (n) {
        if (touch)
            n->last_used = clock_s();
        *ret = session_ref(&n->s);
    }
    pthread_mutex_unlock(&t->lock);
    return n ? ERR_OK : no_session(id, e);
}

enum err_code session_of(struct request *req, struct session **ret, struct err *e)
{
    const char *id = http_header(req, "Arrayd-Session");
    struct sessions *t = req->principal->sessions;
    /* a visitor by a read-only link does not keep the session alive */
    enum err_code code = session_get(t, id ? id : SESSION_DEFAULT, !req->by_link, ret, e);
    if (code == ERR_OK && (*ret)->is_default && req->connection)
        *ret = session_side_for(t, node_of(*ret), req->connection);
    return code;
}

enum err_code session_new(struct sessions *t, const struct session_spec *spec, struct session **ret,
                          struct err *e)
{
    struct node *n;
    TRY(observer_check_space(t->observer.to, t->observer.principal, OBSERVER_RECORD, e));
    enum err_code code = node_new(t, spec, &n, e);
    if (code != ERR_OK)
        return code;
    pthread_mutex_lock(&t->lock);
    if (t->closed)
        code = err_set(e, ERR_UNAUTHORIZED, "the account was removed");
    else if (HASH_COUNT(t->by_id) > t->limits.max_sessions)
        code = err_set(e, ERR_QUOTA,
                       "there are already %u sessions, the most allowed (quota sessions)",
                       t->limits.max_sessions);
    else if (!table_add(t, n))
        code = err_oom(e);
    if (code == ERR_OK) {
        *ret = session_ref(&n->s);
        worker_wake(&t->sweeper);
    }
    check(t);
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        node_retire(n);
    return code;
}

enum err_code session_delete(struct sessions *t, const char *id, const struct handle_guard *guard,
                             struct err *e)
{
    struct node *fresh = NULL;
    enum err_code code = ERR_OK;
    struct session_spec spec = {.name = SESSION_DEFAULT, .device = SESSION_ANY_DEVICE};
    pthread_mutex_lock(&t->lock);
    struct node *n = lookup(t, id);
    if (n && n == t->dflt) {
        /* the successor first, so that a failure changes nothing */
        pthread_mutex_unlock(&t->lock);
        TRY(node_new(t, &spec, &fresh, e));
        fresh->s.is_default = true;
        pthread_mutex_lock(&t->lock);
        n = lookup(t, id); /* another request may have been quicker */
        if (!n || n != t->dflt) {
            pthread_mutex_unlock(&t->lock);
            node_retire(fresh);
            return no_session(id, e);
        }
        if (!table_add(t, fresh)) {
            pthread_mutex_unlock(&t->lock);
            node_retire(fresh);
            return err_oom(e);
        }
    }
    if (!n)
        code = no_session(id, e);
    else if (guard)
        code = handle_space_ask(n->s.handles, guard, e);
    struct node *gone = code == ERR_OK ? n : fresh;
    if (code == ERR_OK && fresh)
        t->dflt = fresh;
    if (gone)
        table_remove(t, gone);
    check(t);
    pthread_mutex_unlock(&t->lock);
    if (gone)
        node_retire(gone);
    return code;
}

static void warn_without_mesh(const struct session *s)
{
    char device[16];
    snprintf(device, sizeof device, "%d", s->device);
    log_event(LOG_WARN,
              "a session of the mesh is on one GPU, with its arrays, until there is a mesh again",
              "id", s->id, "device", device, NULL);
}

enum err_code session_restore(struct sessions *t, const struct session *image, struct session **ret,
                              struct err *e)
{
    struct session_spec spec = {.name = image->name[0] ? image->name : NULL,
                                .ttl_s = image->ttl_s,
                                .memory_limit = image->own_limit,
                                .device = image->device};
    struct node *n, *gone = NULL;
    enum err_code code = node_new_as(t, &spec, image->id, &n, e);
    if (code != ERR_OK)
        return code;
    n->s.created_us = image->created_us;
    n->s.is_default = image->is_default;
    n->s.kept_device = image->kept_device;
    account_set_limits(n->s.account, 0, 0);
    pthread_mutex_lock(&t->lock);
    if (lookup(t, n->s.id))
        code = err_set(e, ERR_CONFLICT, "there are two sessions named '%s'", n->s.id);
    if (t->next_seq < image->seq)
        t->next_seq = image->seq;
    if (code == ERR_OK && !table_add(t, n))
        code = err_oom(e);
    if (code == ERR_OK && image->is_default) {
        gone = t->dflt;
        table_remove(t, gone);
        t->dflt = n;
    }
    if (code == ERR_OK)
        *ret = session_ref(&n->s);
    check(t);
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        gone = n;
    else if (engine_kept_is_mesh(image->kept_device) && engine_mesh(t->engine) < 0)
        warn_without_mesh(*ret);
    if (gone)
        node_retire(gone);
    return code;
}

void session_limit(struct session *s)
{
    account_set_limits(s->account, s->memory_limit, 0);
}

size_t session_list(struct sessions *t, uint64_t after, size_t limit, struct session **ret,
                    bool *ret_more)
{
    size_t n = 0;
    bool more = false;
    double now = clock_s();
    struct node *x;
    pthread_mutex_lock(&t->lock);
    DL_FOREACH(t->list, x)
    {
        if (x->s.seq <= after || expired(t, x, now))
            continue;
        if (n == limit) {
            more = true;
            break;
        }
        ret[n++] = session_ref(&x->s);
    }
    pthread_mutex_unlock(&t->lock);
    *ret_more = more;
    return n;
}

double session_idle(struct sessions *t, const struct session *s)
{
    pthread_mutex_lock(&t->lock);
    const double idle = clock_s() - node_of(s)->last_used;
    pthread_mutex_unlock(&t->lock);
    return idle > 0 ? idle : 0;
}
