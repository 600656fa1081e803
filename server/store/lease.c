/* A hash table by buffer; for each buffer a list of leases: one for writing, or any number for
 * reading (a holder may have exports beside it). Leases that have expired, or whose principal's
 * account was removed, are dropped when their buffer is looked up, and everywhere when a principal
 * has reached its maximum. Expiry uses the monotonic clock; reported times are the wall clock's. */
#include "server/store/lease.h"

#include <assert.h>
#include <nettle/memops.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/table.h"
#include "server/store/auth.h"

#define TOKEN_ADVICE "send the lease's token in Arrayd-Lease"

struct holder {
    struct lease lease;
    bool pinned;  /* an export's: ends only with the export */
    double until; /* monotonic seconds */
    uint64_t memory;
    char shared[ID_SIZE]; /* this and the one before: as in struct lease_image */
    const struct principal *who;
    struct holder *next;
};

struct leased {
    uint64_t buffer;
    struct holder *holders;
    UT_hash_handle hh;
};

struct leases {
    uint32_t max;
    _Atomic uint32_t n; /* holders; read without the lock */
    pthread_mutex_t lock;
    struct leased *by_buffer;
    const struct observer *observer;
};

struct leases *leases_new(uint32_t max)
{
    struct leases *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->max = max;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        mem_free(t);
        return NULL;
    }
    return t;
}

/* --- the table --- */

/* After a change of the buffer's leases. */
static void check(const struct leases *t, const struct leased *l)
{
    lock_held(&t->lock);
#ifndef NDEBUG
    uint32_t n = 0;
    for (const struct holder *h = l ? l->holders : NULL; h; h = h->next, n++)
        assert(id_is('l', h->lease.token));
    assert(!l || n > 0); /* an entry is dropped with its last lease */
    assert(n <= atomic_load(&t->n) && HASH_COUNT(t->by_buffer) <= atomic_load(&t->n));
#else
    (void)l;
#endif
}

/* Whether the lease no longer binds anybody. */
static bool over(const struct holder *h, double now)
{
    if (h->pinned)
        return false;
    return h->until <= now || (h->who && atomic_load(&h->who->gone));
}

static struct lease_image image_of(uint64_t buffer, const struct holder *h)
{
    struct lease_image image = {.lease = h->lease,
                                .buffer = buffer,
                                .who = h->who,
                                .pinned = h->pinned,
                                .memory = h->memory};
    memcpy(image.shared, h->shared, ID_SIZE);
    return image;
}

static void tell(const struct leases *t, uint64_t buffer, const struct holder *h, bool gone)
{
    lock_held(&t->lock);
    const struct observer *o = t->observer;
    const struct lease_image image = image_of(buffer, h);
    if (o)
        o->lease(o->user, &image, gone);
}

/* Drops the leases that are over at `now`; the entry is freed with its last one, and NULL
 * returned. */
static struct leased *expire(struct leases *t, struct leased *l, double now)
{
    lock_held(&t->lock);
    for (struct holder **at = &l->holders, *h = *at; h; h = *at) {
        if (!over(h, now)) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        tell(t, l->buffer, h, true);
        mem_free(h);
        atomic_fetch_sub(&t->n, 1);
    }
    if (l->holders) {
        check(t, l);
        return l;
    }
    HASH_DEL(t->by_buffer, l);
    mem_free(l);
    check(t, NULL);
    return NULL;
}

static void expire_all(struct leases *t, double now)
{
    lock_held(&t->lock);
    struct leased *l, *tmp;
    HASH_ITER (hh, t->by_buffer, l, tmp) {
        expire(t, l, now);
    }
}

static struct leased *find(struct leases *t, uint64_t buffer)
{
    lock_held(&t->lock);
    struct leased *l;
    HASH_FIND(hh, t->by_buffer, &buffer, sizeof buffer, l);
    return l ? expire(t, l, clock_s()) : NULL;
}

/* Whether the list "l-…, l-…" has the token. */
static bool has_token(const char *tokens, const char *token)
{
    for (const char *p = tokens; p && *p;) {
        p += strspn(p, " \t,");
        size_t n = strcspn(p, " \t,");
        if (n == ID_SIZE - 1 && memeql_sec(p, token, n))
            return true;
        p += n;
    }
    return false;
}

/* The claim's own lease, preferably not an export's; *ret_others: others hold leases. */
static struct holder *own(const struct lease_claim *c, const struct leased *l, bool *ret_others)
{
    lock_held(&c->table->lock);
    struct holder *mine = NULL;
    *ret_others = false;
    for (struct holder *h = l ? l->holders : NULL; h; h = h->next)
        if (!has_token(c->tokens, h->lease.token))
            *ret_others = true;
        else if (!mine || mine->pinned)
            mine = h;
    return mine;
}

static bool for_writing(const struct leased *l)
{
    for (const struct holder *h = l->holders; h; h = h->next)
        if (h->lease.write)
            return true;
    return false;
}

static bool is_pinned(const struct leased *l)
{
    for (const struct holder *h = l->holders; h; h = h->next)
        if (h->pinned)
            return true;
    return false;
}

/* Says who else holds a lease, and until when: of several, the one that lasts longest. A holder is
 * named by its account; without accounts there is nothing to tell holders apart. */
static enum err_code locked(const struct lease_claim *c, const struct leased *l, const char *advice,
                            struct err *e)
{
    lock_held(&c->table->lock);
    const struct holder *last = NULL;
    char by[PRINCIPAL_SIZE + 8] = "", end[CLOCK_DATE_SIZE] = "its export ends";
    for (const struct holder *h = l->holders; h; h = h->next)
        if (!has_token(c->tokens, h->lease.token) &&
            (!last || h->pinned || (!last->pinned && h->until > last->until)))
            last = h;
    assert(last);
    if (last->who && strcmp(last->who->name, LOCAL_USER) != 0)
        snprintf(by, sizeof by, " by '%s'", last->who->name);
    if (!last->pinned)
        clock_date_text(last->lease.expires_us, end);
    return err_set(e, ERR_LOCKED, "the array is leased for %s%s%s until %s: %s",
                   for_writing(l) ? "writing" : "reading", is_pinned(l) ? " (exported)" : "", by,
                   end, advice);
}

/* --- the module's functions --- */

void leases_observe(struct leases *t, const struct observer *to)
{
    t->observer = to;
}

void leases_sweep(struct leases *t)
{
    pthread_mutex_lock(&t->lock);
    expire_all(t, clock_s());
    pthread_mutex_unlock(&t->lock);
}

void leases_free(struct leases *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    expire_all(t, 1e300);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

enum err_code lease_check(const struct lease_claim *c, const struct array *a,
                          enum lease_access access, struct err *e)
{
    enum err_code code = ERR_OK;
    bool others;
    if (access == LEASE_LOOK || !c->table || atomic_load(&c->table->n) == 0)
        return ERR_OK;
    pthread_mutex_lock(&c->table->lock);
    const struct leased *l = find(c->table, array_buffer_id(a));
    if (l) {
        (void)own(c, l, &others);
        if (access == LEASE_UNDO)
            code = locked(&(struct lease_claim){.table = c->table}, l,
                          "it cannot be replaced or exchanged", e);
        else if (others && (access != LEASE_READ || for_writing(l)))
            code = locked(c, l, TOKEN_ADVICE, e);
        else if (access == LEASE_PLACE && is_pinned(l))
            code = err_set(e, ERR_LOCKED,
                           "the array is exported, so its memory cannot be exchanged or replaced");
    }
    pthread_mutex_unlock(&c->table->lock);
    return code;
}

enum err_code lease_guard(void *user, const struct array *now, struct err *e)
{
    struct lease_claim c = {.table = user};
    return now ? lease_check(&c, now, LEASE_UNDO, e) : ERR_OK;
}

/* Whether the principal has its maximum; counts only if that is possible. */
static bool is_full(struct leases *t, const struct principal *who)
{
    lock_held(&t->lock);
    struct leased *l, *tmp;
    uint32_t n = 0;
    if (atomic_load(&t->n) < t->max)
        return false;
    HASH_ITER (hh, t->by_buffer, l, tmp) {
        for (const struct holder *h = l->holders; h; h = h->next)
            n += h->who == who;
    }
    return n >= t->max;
}

/* Whether there may be one more lease, after dropping expired leases if necessary. */
static enum err_code check_limit(struct leases *t, const struct lease_claim *c, uint64_t buffer,
                                 struct leased **l, struct err *e)
{
    lock_held(&t->lock);
    bool full = is_full(t, c->who);
    if (full) {
        expire_all(t, clock_s());
        *l = find(t, buffer);
        full = is_full(t, c->who);
    }
    if (!full)
        return ERR_OK;
    return err_set(e, ERR_QUOTA, "there are already %u leases, the most allowed (max_leases)",
                   t->max);
}

/* A new holder of the buffer's lease, of whom nobody is told yet. */
static struct holder *hold(struct leases *t, struct leased *l, uint64_t buffer,
                           const struct principal *who)
{
    lock_held(&t->lock);
    struct holder *h = mem_calloc(1, sizeof *h);
    struct leased *fresh = l ? NULL : mem_calloc(1, sizeof *fresh);
    if (fresh) {
        fresh->buffer = buffer;
        HASH_ADD(hh, t->by_buffer, buffer, sizeof buffer, fresh);
        if (fresh->hh.tbl) {
            l = fresh;
        } else {
            mem_free(fresh);
        }
    }
    if (!h || !l) {
        mem_free(h);
        if (l && !l->holders)
            expire(t, l, 0);
        return NULL;
    }
    id_make('l', h->lease.token);
    h->who = who;
    h->next = l->holders;
    l->holders = h;
    atomic_fetch_add(&t->n, 1);
    check(t, l);
    return h;
}

/* With the lock held. `l` is the array's; NULL: not leased yet. */
static enum err_code new_holder(struct leases *t, const struct lease_claim *c, uint64_t buffer,
                                struct leased *l, struct holder **ret, struct err *e)
{
    lock_held(&t->lock);
    TRY(check_limit(t, c, buffer, &l, e));
    TRY(observer_check_space(t->observer, c->who ? c->who->name : NULL, OBSERVER_RECORD, e));
    *ret = hold(t, l, buffer, c->who);
    return *ret ? ERR_OK : err_oom(e);
}

enum err_code lease_take(const struct lease_claim *c, const struct array *a, bool write,
                         double ttl_s, struct lease *ret, bool *ret_again, struct err *e)
{
    struct leases *t = c->table;
    enum err_code code = ERR_OK;
    uint64_t buffer = array_buffer_id(a);
    bool others;
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, buffer);
    struct holder *mine = own(c, l, &others);
    bool again = mine;
    if (others && (write || for_writing(l)))
        code = locked(c, l, TOKEN_ADVICE, e);
    else if (mine && mine->pinned)
        code = err_set(e, ERR_CONFLICT,
                       "the lease belongs to an export and lasts as long as the export");
    else if (!mine)
        code = new_holder(t, c, buffer, l, &mine, e);
    if (code == ERR_OK) {
        mine->until = clock_s() + ttl_s;
        mine->lease.write = write;
        mine->lease.expires_us = clock_date_us() + (int64_t)(ttl_s * 1e6);
        tell(t, buffer, mine, false);
        *ret = mine->lease;
        *ret_again = again;
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

enum err_code lease_pin(const struct lease_claim *c, const struct array *a, const char *shared,
                        bool write, char ret_token[ID_SIZE], struct err *e)
{
    struct leases *t = c->table;
    enum err_code code = ERR_OK;
    struct holder *h = NULL;
    uint64_t buffer = array_buffer_id(a);
    bool others;
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, buffer);
    (void)own(c, l, &others);
    if (others && (write || for_writing(l)))
        code = locked(c, l, TOKEN_ADVICE, e);
    else
        code = new_holder(t, c, buffer, l, &h, e);
    if (code == ERR_OK) {
        h->pinned = true;
        h->memory = array_memory_id(a);
        if (shared)
            memcpy(h->shared, shared, ID_SIZE);
        h->lease.write = write;
        tell(t, buffer, h, false);
        memcpy(ret_token, h->lease.token, ID_SIZE);
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

enum err_code lease_restore(struct leases *t, const struct lease_image *image, struct err *e)
{
    const double left = (double)(image->lease.expires_us - clock_date_us()) * 1e-6;
    struct holder *h = NULL;
    if (!image->pinned && left <= 0)
        return ERR_OK;
    pthread_mutex_lock(&t->lock);
    h = hold(t, find(t, image->buffer), image->buffer, image->who);
    if (h) {
        h->lease = image->lease;
        h->pinned = image->pinned;
        h->memory = image->memory;
        memcpy(h->shared, image->shared, ID_SIZE);
        h->until = clock_s() + left;
        tell(t, image->buffer, h, false);
    }
    pthread_mutex_unlock(&t->lock);
    return h ? ERR_OK : err_oom(e);
}

void lease_unpin(struct leases *t, uint64_t buffer, const char *token)
{
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, buffer);
    for (struct holder *h = l ? l->holders : NULL; h; h = h->next)
        if (h->pinned && !strcmp(h->lease.token, token)) {
            h->pinned = false;
            h->until = 0;
        }
    if (l)
        expire(t, l, 0);
    pthread_mutex_unlock(&t->lock);
}

enum err_code lease_give(const struct lease_claim *c, const struct array *a,
                         char ret_export[ID_SIZE], struct err *e)
{
    struct leases *t = c->table;
    enum err_code code = ERR_OK;
    bool others;
    ret_export[0] = '\0';
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, array_buffer_id(a));
    struct holder *mine = own(c, l, &others);
    if (mine && mine->pinned) {
        memcpy(ret_export, mine->lease.token, ID_SIZE);
    } else if (mine) {
        mine->until = 0;
        expire(t, l, 0);
    } else {
        code = l ? locked(c, l, TOKEN_ADVICE, e)
                 : err_set(e, ERR_NOT_FOUND, "the array is not leased");
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

void lease_end(struct leases *t, const struct array *a, const struct principal *who, bool reading)
{
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, array_buffer_id(a));
    for (struct holder *h = l ? l->holders : NULL; h; h = h->next)
        if (h->who == who && (reading || h->lease.write) && !h->pinned)
            h->until = 0;
    if (l)
        expire(t, l, 0);
    pthread_mutex_unlock(&t->lock);
}

void lease_end_all(struct leases *t, uint64_t buffer)
{
    pthread_mutex_lock(&t->lock);
    struct leased *l = find(t, buffer);
    for (struct holder *h = l ? l->holders : NULL; h; h = h->next)
        if (!h->pinned)
            h->until = 0;
    if (l)
        expire(t, l, 0);
    pthread_mutex_unlock(&t->lock);
}

/* --- for operators --- */

static void visit_buffer(const struct leased *l,
                         void (*visit)(void *user, const struct lease_image *l), void *user)
{
    for (const struct holder *h = l ? l->holders : NULL; h; h = h->next) {
        const struct lease_image image = image_of(l->buffer, h);
        visit(user, &image);
    }
}

void lease_each(struct leases *t, const uint64_t *buffer,
                void (*visit)(void *user, const struct lease_image *l), void *user)
{
    struct leased *l, *tmp;
    pthread_mutex_lock(&t->lock);
    if (buffer)
        visit_buffer(find(t, *buffer), visit, user);
    else {
        expire_all(t, clock_s());
        HASH_ITER (hh, t->by_buffer, l, tmp) {
            visit_buffer(l, visit, user);
        }
    }
    pthread_mutex_unlock(&t->lock);
}
