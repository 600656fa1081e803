/* A short list of offers, searched linearly. An offer's state says who may act:
 *
 *   NEW → ASKED (the engine has it, or gets it once earlier work has been sent)
 *     → TOLD (it answered) → OPEN (a token) → HELD (a connection)
 *
 * and any but ASKED → ENDING → OVER, which exactly one party performs: in ENDING it releases pin
 * and lease without the lock. An offer that must end while ASKED is marked unwanted: the sweep ends
 * it after the engine has answered, since the engine's callback must not be delayed.
 *
 * References: the list's until the offer is over, the request's, the connection's; and the
 * engine's, until it has answered. */
#include "server/exports/export.h"

#include <assert.h>
#include <nettle/memops.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/store/auth.h"
#include "server/store/lease_use.h"
#include "server/store/share.h"

#define TICK_S  1.0  /* how often to check whether a principal still exists */
#define STUCK_S 30.0 /* at the end, to wait for the engine's answers */

enum offer_state { NEW, ASKED, TOLD, OPEN, HELD, ENDING, OVER };

struct offer {
    struct exporting asked; /* first */
    struct exports *table;
    struct lease_settling settling;
    struct offer *prev, *next;
    uint32_t refs;
    enum offer_state state;
    bool unwanted;
    char token[ID_SIZE], lease[ID_SIZE];
    char shared[ID_SIZE]; /* another principal's array: its id */
    bool write;
    uint64_t buffer;
    uid_t uid;
    const struct principal *who;
    uint64_t until_ns;
    void (*wake)(void *user);
    void *user;
};

struct exports {
    struct exports_config config;
    pthread_mutex_t lock;
    pthread_cond_t fewer; /* or one has advanced */
    struct offer *first;
    _Atomic bool stopped;
    bool deaf; /* the recipient of `changed` is gone */
    struct exports_figures figures;
};

struct exports *exports_new(const struct exports_config *config)
{
    struct exports *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->config = *config;
    pthread_mutex_init(&t->lock, NULL); /* cannot fail here */
    clock_cond_init(&t->fewer);
    return t;
}

void exports_free(struct exports *t)
{
    if (!t || t->first) /* not freed while the engine may still answer */
        return;
    pthread_cond_destroy(&t->fewer);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

static void tell(struct exports *t)
{
    pthread_mutex_lock(&t->lock);
    if (!t->deaf)
        t->config.changed(t->config.user);
    pthread_mutex_unlock(&t->lock);
}

/* --- the list --- */

static void unref(struct offer *o)
{
    lock_held(&o->table->lock);
    assert(o->refs > 1 || (o->refs == 1 && o->state == OVER));
    if (--o->refs == 0)
        mem_free(o);
}

static void insert(struct exports *t, struct offer *o)
{
    lock_held(&t->lock);
    assert(id_is('l', o->lease) && o->state < ENDING && o->refs > 1);
    o->next = t->first;
    if (t->first)
        t->first->prev = o;
    t->first = o;
}

static void take_out(struct offer *o)
{
    lock_held(&o->table->lock);
    assert(o->state == OVER && (o->prev ? o->prev->next == o : o->table->first == o));
    if (o->prev)
        o->prev->next = o->next;
    else
        o->table->first = o->next;
    if (o->next)
        o->next->prev = o->prev;
    o->prev = o->next = NULL;
}

static size_t count(const struct exports *t, const struct principal *who)
{
    lock_held(&t->lock);
    size_t n = 0;
    for (const struct offer *o = t->first; o; o = o->next)
        n += o->who == who;
    return n;
}

static bool orphaned(const struct offer *o)
{
    return o->who && atomic_load(&o->who->gone);
}

/* --- ending --- */

static void close_descriptor(struct offer *o)
{
    if (o->asked.exported.fd >= 0)
        close(o->asked.exported.fd);
    o->asked.exported.fd = -1;
}

static enum err_code leave(struct engine *g, struct array *a, struct err *e)
{
    struct engine_stream *s = NULL;
    TRY(engine_stream_new(g, array_device(a), &s, e));
    enum err_code code = engine_export_forget(s, a, e);
    engine_stream_unref(s);
    return code;
}

void exports_forget(struct engine *g, struct array *a)
{
    struct err e = ERR_INIT;
    array_let_see_no_more(a);
    if (array_outstays_exports(a) && leave(g, a, &e) != ERR_OK)
        log_event(LOG_WARN, "an array stays in memory that a former holder may still have mapped",
                  "reason", e.message, NULL);
}

/* After the end of an export of an array that still exists. */
static void tidy_up(struct engine *g, struct array *a, bool revoked)
{
    struct err e = ERR_INIT;
    if (revoked || array_outstays_exports(a))
        exports_forget(g, a);
    else if (array_crowds_exports(a) && leave(g, a, &e) != ERR_OK)
        log_event(LOG_DEBUG, "a small array stays in exportable memory", "reason", e.message, NULL);
}

static void finish(struct offer *o, enum offer_end how)
{
    struct exports *t = o->table;
    bool there = o->asked.export;
    engine_export_end(o->asked.export);
    close_descriptor(o);
    if (there && !atomic_load(&t->stopped) &&
        (atomic_load(&o->asked.array->refs) > 1 || array_buffer_shared(o->asked.array)))
        tidy_up(t->config.engine, o->asked.array, how == OFFER_REVOKED);
    array_unref(o->asked.array);
    lease_unpin(t->config.leases, o->buffer, o->lease);
    if (there)
        log_event(LOG_DEBUG, "an export has ended", "how", offer_end_name(how), "mode",
                  o->write ? "write" : "read", "principal", o->who ? o->who->name : "", NULL);
    pthread_mutex_lock(&t->lock);
    o->state = OVER;
    take_out(o);
    if (there)
        t->figures.ended[how]++;
    unref(o);
    pthread_cond_broadcast(&t->fewer);
    pthread_mutex_unlock(&t->lock);
    tell(t);
}

void offer_end(struct offer *o, enum offer_end how)
{
    struct exports *t = o->table;
    pthread_mutex_lock(&t->lock);
    bool mine = o->state != ASKED && o->state < ENDING;
    if (mine)
        o->state = ENDING;
    else if (o->state == ASKED)
        o->unwanted = true;
    while (!mine && o->state == ENDING) /* another thread ends it and will soon be done */
        pthread_cond_wait(&t->fewer, &t->lock);
    pthread_mutex_unlock(&t->lock);
    if (mine)
        finish(o, how);
}

/* Ends all that `which` selects; returns how many must be waited for. */
static size_t end_those(struct exports *t, bool (*which)(const struct offer *o, const void *arg),
                        const void *arg, enum offer_end how)
{
    for (;;) {
        size_t later = 0;
        struct offer *o;
        pthread_mutex_lock(&t->lock);
        for (o = t->first; o; o = o->next) {
            if (!which(o, arg))
                continue;
            if (o->state != ASKED && o->state != ENDING)
                break;
            later++;
            if (o->state == ASKED)
                o->unwanted = true;
        }
        if (o)
            o->refs++;
        pthread_mutex_unlock(&t->lock);
        if (!o)
            return later;
        offer_end(o, how);
        pthread_mutex_lock(&t->lock);
        unref(o);
        pthread_mutex_unlock(&t->lock);
    }
}

/* --- for requests --- */

/* With the list's reference and the caller's; not in the list yet. NULL without memory. */
static struct offer *begin(struct exports *t, struct array *a, const struct principal *who,
                           const char *shared, bool write)
{
    struct offer *o = mem_calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->table = t;
    o->write = o->asked.write = write;
    o->buffer = array_buffer_id(a);
    o->who = who;
    if (shared)
        memcpy(o->shared, shared, ID_SIZE);
    o->asked.exported.fd = -1;
    o->asked.array = array_ref(a);
    o->refs = 2;
    return o;
}

static void abandon(struct offer *o)
{
    array_unref(o->asked.array);
    mem_free(o);
}

enum err_code offer_new(struct exports *t, const struct lease_claim *claim, struct array *a,
                        const char *shared, bool write, bool sealed, uid_t uid, struct offer **ret,
                        struct err *e)
{
    struct offer *o = begin(t, a, claim->who, shared, write);
    if (!o)
        return err_oom(e);
    enum err_code code = ERR_OK;
    o->uid = uid;
    o->asked.sealed = sealed;
    pthread_mutex_lock(&t->lock);
    if (t->stopped)
        code = err_draining(e);
    else if (count(t, claim->who) >= t->config.max)
        code = err_set(e, ERR_QUOTA, "there are already %u exports, the most allowed (max_exports)",
                       t->config.max);
    else
        code = lease_pin(claim, a, shared, write, o->lease, e);
    if (code == ERR_OK)
        insert(t, o);
    pthread_mutex_unlock(&t->lock);
    if (code == ERR_OK)
        *ret = o;
    else
        abandon(o);
    return code;
}

static void answered(struct exporting *x)
{
    struct offer *o = (struct offer *)x;
    struct exports *t = o->table;
    pthread_mutex_lock(&t->lock);
    assert(o->state == ASKED && o->refs > 1);
    o->state = TOLD;
    bool unwanted = o->unwanted;
    if (o->wake)
        o->wake(o->user);
    unref(o);
    pthread_cond_broadcast(&t->fewer);
    pthread_mutex_unlock(&t->lock);
    if (unwanted)
        tell(t);
}

/* No more work that uses the memory will be sent. */
static void settled(struct lease_settling *s)
{
    struct offer *o = (struct offer *)((char *)s - offsetof(struct offer, settling));
    struct exports *t = o->table;
    pthread_mutex_lock(&t->lock);
    bool unwanted = o->unwanted;
    pthread_mutex_unlock(&t->lock);
    if (unwanted) {
        o->asked.code =
            err_set(&o->asked.err, ERR_CONFLICT, "no client is waiting for the export any more");
        answered(&o->asked);
        return;
    }
    struct engine_stream *own = NULL; /* waits only for work that uses the memory */
    o->asked.code =
        engine_stream_new(t->config.engine, array_device(o->asked.array), &own, &o->asked.err);
    if (own)
        engine_export(own, &o->asked);
    else
        answered(&o->asked);
    engine_stream_unref(own);
}

void offer_ask(struct offer *o, void (*wake)(void *user), void *user)
{
    struct exports *t = o->table;
    pthread_mutex_lock(&t->lock);
    bool ask = o->state == NEW;
    if (ask) {
        o->state = ASKED;
        o->refs++;
        o->wake = wake;
        o->user = user;
        o->settling.done = settled;
        o->asked.done = answered;
    }
    pthread_mutex_unlock(&t->lock);
    if (ask)
        lease_uses_settle(t->config.uses, &o->settling);
    else
        wake(user); /* ended meanwhile */
}

enum err_code offer_open(struct offer *o, struct offered *ret, struct err *e)
{
    struct exports *t = o->table;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&t->lock);
    if (o->asked.code != ERR_OK) {
        *e = o->asked.err;
        code = o->asked.code;
    } else if (o->state != TOLD || o->unwanted) {
        code = err_set(e, ERR_CONFLICT, "the export was ended while it was being made");
    } else {
        assert(!o->token[0]);
        o->state = OPEN;
        o->until_ns = clock_ns() + (uint64_t)(t->config.timeout * 1e9);
        id_make('x', o->token);
        t->figures.opened++;
        *ret = (struct offered){o->token, o->lease, o->asked.exported};
        ret->memory.fd = -1;
    }
    pthread_mutex_unlock(&t->lock);
    if (code == ERR_OK)
        tell(t);
    return code;
}

void offer_close(struct offer *o)
{
    if (!o)
        return;
    struct exports *t = o->table;
    pthread_mutex_lock(&t->lock);
    o->wake = NULL;
    bool ends = o->state < OPEN;
    pthread_mutex_unlock(&t->lock);
    if (ends)
        offer_end(o, OFFER_LOST);
    pthread_mutex_lock(&t->lock);
    unref(o);
    pthread_mutex_unlock(&t->lock);
}

static bool has_lease(const struct offer *o, const void *lease)
{
    return !strcmp(o->lease, lease);
}

void exports_end(struct exports *t, const char *lease)
{
    end_those(t, has_lease, lease, OFFER_RELEASED);
}

struct revocation {
    uint64_t buffer;
    const struct principal *who;
    bool reading;
};

static bool is_revoked(const struct offer *o, const void *arg)
{
    const struct revocation *v = arg;
    return o->buffer == v->buffer && (!v->who || o->who == v->who) && (o->write || v->reading);
}

void exports_revoke(struct exports *t, uint64_t buffer, const struct principal *who, bool reading)
{
    struct revocation v = {buffer, who, reading};
    end_those(t, is_revoked, &v, OFFER_REVOKED);
}

/* --- for the socket --- */

struct offer *exports_take(struct exports *t, const char *token, uid_t uid, struct exported *ret)
{
    struct offer *found = NULL;
    uint64_t now = clock_ns();
    if (!id_is('x', token))
        return NULL;
    pthread_mutex_lock(&t->lock);
    for (struct offer *o = t->first; o; o = o->next)
        if (o->state == OPEN && o->uid == uid && o->until_ns > now && !orphaned(o) &&
            memeql_sec(o->token, token, ID_SIZE))
            found = o;
    if (found) {
        memset(found->token, 0, sizeof found->token);
        found->state = HELD;
        found->refs++;
        *ret = found->asked.exported; /* the descriptor too: the offer's end closes none */
        found->asked.exported.fd = -1;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

enum err_code exports_adopt(struct exports *t, const struct lease_image *lease, struct array *a,
                            struct offer **ret, bool *ret_cuda, struct err *e)
{
    struct offer *o = begin(t, a, lease->who, lease->shared, lease->lease.write);
    if (!o)
        return err_oom(e);
    enum err_code code = engine_export_adopt(a, o->write, &o->asked.export, e);
    if (code != ERR_OK) {
        abandon(o);
        return code;
    }
    o->state = HELD;
    memcpy(o->lease, lease->lease.token, ID_SIZE);
    pthread_mutex_lock(&t->lock);
    insert(t, o);
    pthread_mutex_unlock(&t->lock);
    *ret_cuda = !engine_in_host_memory(t->config.engine);
    *ret = o;
    return ERR_OK;
}

bool offer_writes(const struct offer *o)
{
    return o->write;
}

const char *offer_lease(const struct offer *o)
{
    return o->lease;
}

bool offer_is_over(struct offer *o)
{
    pthread_mutex_lock(&o->table->lock);
    bool over = o->state == OVER;
    pthread_mutex_unlock(&o->table->lock);
    return over;
}

static bool is_expired(const struct offer *o, const void *now)
{
    return o->state == OPEN && o->until_ns <= *(const uint64_t *)now;
}

static bool is_orphaned(const struct offer *o, const void *arg)
{
    return !arg && orphaned(o);
}

bool export_share_lasts(const struct engine *g, struct shares *shares, const char *shared,
                        const struct principal *who, bool write)
{
    return !shared[0] || share_lasts(shares, shared, who, write || !engine_in_host_memory(g));
}

/* The share may end silently: its owner's session can expire. */
static bool is_unshared(const struct offer *o, const void *arg)
{
    const struct exports_config *c = &o->table->config;
    return !arg && !export_share_lasts(c->engine, c->shares, o->shared, o->who, o->write);
}

static bool is_unwanted(const struct offer *o, const void *arg)
{
    return !arg && o->unwanted && o->state == TOLD;
}

double exports_sweep(struct exports *t)
{
    uint64_t now = clock_ns();
    end_those(t, is_expired, &now, OFFER_EXPIRED);
    end_those(t, is_orphaned, NULL, OFFER_REVOKED);
    end_those(t, is_unshared, NULL, OFFER_REVOKED);
    end_those(t, is_unwanted, NULL, OFFER_LOST);
    pthread_mutex_lock(&t->lock);
    double next = t->first ? TICK_S : -1;
    for (const struct offer *o = t->first; o; o = o->next)
        if (o->state == OPEN) {
            double left = o->until_ns > now ? (double)(o->until_ns - now) * 1e-9 : 0;
            next = left < next ? left : next;
        }
    pthread_mutex_unlock(&t->lock);
    return next;
}

/* --- for main --- */

static bool needs_no_time(const struct offer *o, const void *arg)
{
    (void)arg;
    return !(o->state == HELD && o->write);
}

static bool is_any(const struct offer *o, const void *arg)
{
    return o && !arg;
}

size_t exports_stop(struct exports *t)
{
    pthread_mutex_lock(&t->lock);
    t->stopped = true;
    pthread_mutex_unlock(&t->lock);
    end_those(t, needs_no_time, NULL, OFFER_REVOKED);
    pthread_mutex_lock(&t->lock);
    size_t n = 0;
    for (const struct offer *o = t->first; o; o = o->next)
        n++;
    pthread_mutex_unlock(&t->lock);
    return n;
}

void exports_stop_all(struct exports *t)
{
    uint64_t until = clock_ns() + (uint64_t)(STUCK_S * 1e9);
    while (end_those(t, is_any, NULL, OFFER_REVOKED) > 0 && clock_ns() < until) {
        struct timespec soon = clock_after(1);
        pthread_mutex_lock(&t->lock);
        if (t->first)
            pthread_cond_timedwait(&t->fewer, &t->lock, &soon);
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_lock(&t->lock);
    t->deaf = true; /* the engine may answer later what it has not answered by now */
    pthread_mutex_unlock(&t->lock);
}

/* --- figures --- */

size_t exports_count(struct exports *t, const struct principal *who)
{
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    size_t n = count(t, who);
    pthread_mutex_unlock(&t->lock);
    return n;
}

void exports_figures(struct exports *t, struct exports_figures *ret)
{
    pthread_mutex_lock(&t->lock);
    *ret = t->figures;
    pthread_mutex_unlock(&t->lock);
}
