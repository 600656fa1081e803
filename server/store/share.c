/* A hash table by array and principal, in order of creation. Shares of arrays that no longer exist,
 * or with principals whose account was removed, are void; they are dropped when an owner has
 * reached its maximum. The structs of principals live as long as the daemon. */
#include "server/store/share.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/table.h"
#include "server/store/auth.h"

struct share_key {
    char id[(ID_SIZE + 7) / 8 * 8]; /* zero-padded: the whole struct is the key */
    const struct principal *who;
};

struct share {
    struct share_key key;
    const struct principal *owner;
    bool write;
    uint64_t seq;
    UT_hash_handle hh;
};

struct shares {
    uint32_t max;
    pthread_mutex_t lock;
    struct share *table;
    uint64_t seq; /* of the last one made */
    const struct observer *observer;
};

struct shares *shares_new(uint32_t max)
{
    struct shares *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->max = max;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void shares_free(struct shares *t)
{
    if (!t)
        return;
    struct share *s, *tmp;
    HASH_ITER (hh, t->table, s, tmp) {
        HASH_DEL(t->table, s);
        mem_free(s);
    }
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void shares_observe(struct shares *t, const struct observer *to)
{
    t->observer = to;
}

static struct share_key make_key(const char *id, const struct principal *who)
{
    struct share_key key;
    memset(&key, 0, sizeof key);
    strncpy(key.id, id, ID_SIZE - 1);
    key.who = who;
    return key;
}

/* --- the table --- */

/* A share that is in the table. */
static void check(const struct shares *t, const struct share *s)
{
    lock_held(&t->lock);
#ifndef NDEBUG
    const struct share *same;
    HASH_FIND(hh, t->table, &s->key, sizeof s->key, same);
    assert(same == s && s->key.id[0] && s->owner && s->key.who);
#else
    (void)s;
#endif
}

static bool is_void(const struct share *s)
{
    return atomic_load(&s->key.who->gone);
}

static void tell(const struct shares *t, const struct share *s, bool gone)
{
    lock_held(&t->lock);
    const struct observer *o = t->observer;
    struct share_image image = {s->key.id, s->owner, s->key.who, s->write};
    if (o)
        o->share(o->user, &image, gone);
}

static void drop(struct shares *t, struct share *s)
{
    lock_held(&t->lock);
    check(t, s);
    HASH_DEL(t->table, s);
    tell(t, s, true);
    mem_free(s);
}

/* Drops the shares of arrays and with principals that no longer exist. */
static void sweep(struct shares *t)
{
    lock_held(&t->lock);
    struct share *s, *tmp;
    HASH_ITER (hh, t->table, s, tmp) {
        if (is_void(s) || !handle_exists(s->owner->handles, s->key.id))
            drop(t, s);
    }
}

static struct share *find(struct shares *t, const struct share_key *key)
{
    lock_held(&t->lock);
    struct share *s;
    HASH_FIND(hh, t->table, key, sizeof *key, s);
    if (s && is_void(s)) {
        drop(t, s);
        s = NULL;
    }
    return s;
}

/* Whether the owner has its maximum; counts only if that is possible. */
static bool is_full(struct shares *t, const struct principal *owner)
{
    lock_held(&t->lock);
    struct share *s, *tmp;
    uint32_t n = 0;
    if (HASH_COUNT(t->table) < t->max)
        return false;
    HASH_ITER (hh, t->table, s, tmp) {
        n += s->owner == owner;
    }
    return n >= t->max;
}

/* --- the module's functions --- */

/* `limited`: if the owner has not yet as many as there may be. */
static enum err_code give(struct shares *t, const struct principal *owner, const char *id,
                          const struct principal *who, bool write, bool limited, bool *ret_again,
                          struct err *e)
{
    struct share_key key = make_key(id, who);
    struct share *fresh = mem_calloc(1, sizeof *fresh);
    if (!fresh)
        return err_oom(e);
    fresh->key = key;
    fresh->owner = owner;
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&t->lock);
    struct share *s = find(t, &key);
    *ret_again = s;
    bool full = limited && !s && is_full(t, owner);
    if (full) {
        sweep(t);
        full = is_full(t, owner);
    }
    if (full)
        code = err_set(e, ERR_QUOTA, "there are already %u shares, the most allowed (max_shares)",
                       t->max);
    else if (!s)
        code = observer_check_space(t->observer, owner->name, OBSERVER_RECORD, e);
    if (!s && code == ERR_OK) {
        HASH_ADD(hh, t->table, key, sizeof key, fresh);
        if (fresh->hh.tbl) {
            fresh->seq = ++t->seq;
            s = fresh;
            fresh = NULL;
        } else {
            code = err_oom(e);
        }
    }
    if (s) {
        check(t, s);
        s->write = write;
        tell(t, s, false);
    }
    pthread_mutex_unlock(&t->lock);
    mem_free(fresh);
    return code;
}

enum err_code share_give(struct shares *t, const struct principal *owner, const char *id,
                         const struct principal *who, bool write, bool *ret_again, struct err *e)
{
    return give(t, owner, id, who, write, true, ret_again, e);
}

enum err_code share_restore(struct shares *t, const struct principal *owner, const char *id,
                            const struct principal *who, bool write, struct err *e)
{
    bool again;
    return give(t, owner, id, who, write, false, &again, e);
}

enum err_code share_take_back(struct shares *t, const char *id, const char *who, struct err *e)
{
    struct share *s, *tmp, *found = NULL;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, s, tmp) {
        if (!found && !is_void(s) && !strcmp(s->key.id, id) && !strcmp(s->key.who->name, who))
            found = s;
    }
    if (found)
        drop(t, found);
    pthread_mutex_unlock(&t->lock);
    return found ? ERR_OK : err_set(e, ERR_NOT_FOUND, "the array is not shared with '%.80s'", who);
}

void shares_sweep(struct shares *t)
{
    pthread_mutex_lock(&t->lock);
    sweep(t);
    pthread_mutex_unlock(&t->lock);
}

void share_each(struct shares *t, const char *id,
                void (*visit)(void *user, const char *who, bool write), void *user)
{
    struct share *s, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, s, tmp) {
        if (!is_void(s) && !strcmp(s->key.id, id))
            visit(user, s->key.who->name, s->write);
    }
    pthread_mutex_unlock(&t->lock);
}

void share_each_of_all(struct shares *t,
                       void (*visit)(void *user, const char *id, const struct principal *owner,
                                     const struct principal *who, bool write),
                       void *user)
{
    struct share *s, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, s, tmp) {
        if (!is_void(s))
            visit(user, s->key.id, s->owner, s->key.who, s->write);
    }
    pthread_mutex_unlock(&t->lock);
}

/* The owner of an array shared with `who`; NULL: not shared. */
static const struct principal *look_up(struct shares *t, const char *id,
                                       const struct principal *who, bool *ret_write)
{
    struct share_key key = make_key(id, who);
    const struct principal *owner = NULL;
    pthread_mutex_lock(&t->lock);
    const struct share *s = find(t, &key);
    if (s) {
        owner = s->owner;
        *ret_write = s->write;
    }
    pthread_mutex_unlock(&t->lock);
    return owner;
}

bool share_lasts(struct shares *t, const char *id, const struct principal *who, bool write)
{
    bool may_write = false;
    const struct principal *owner = look_up(t, id, who, &may_write);
    return owner && (may_write || !write) && handle_exists(owner->handles, id);
}

struct handles *share_table(struct shares *t, const char *id, const struct principal *who,
                            bool *ret_write)
{
    const struct principal *owner = look_up(t, id, who, ret_write);
    return owner ? owner->handles : NULL;
}

static void mark(struct handle *h, const struct principal *owner, bool write)
{
    h->shared = true;
    h->read_only |= !write;
    h->owner = owner->name;
    h->reads_of = write ? NULL : owner->name;
}

size_t share_list(struct shares *t, const struct principal *who, uint64_t after, size_t limit,
                  struct handle *ret, bool *ret_more)
{
    struct share *s, *tmp;
    size_t n = 0;
    *ret_more = false;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, s, tmp) {
        struct handle h;
        if (s->key.who != who || s->seq <= after || *ret_more ||
            handle_get_id(s->owner->handles, s->key.id, &h, NULL) != ERR_OK)
            continue;
        if (n == limit) {
            *ret_more = true;
            handle_clear(&h);
            continue;
        }
        mark(&h, s->owner, s->write);
        h.seq = s->seq;
        ret[n++] = h;
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

enum err_code share_get(const struct array_scope *in, const char *ref, struct handle *ret,
                        struct err *e)
{
    struct shares *t = in->shares;
    struct err own = ERR_INIT; /* *e is set only on the final failure */
    enum err_code code = handle_get(in->space, ref, ret, &own);
    if (code == ERR_OK)
        return ERR_OK;
    bool write;
    const struct principal *owner =
        code == ERR_NOT_FOUND && t && id_is('a', ref) ? look_up(t, ref, in->who, &write) : NULL;
    if (!owner || handle_get_id(owner->handles, ref, ret, NULL) != ERR_OK) {
        if (e)
            *e = own;
        return code; /* as if there were no share */
    }
    mark(ret, owner, write);
    return ERR_OK;
}

enum err_code share_again(const struct array_scope *in, const char *id, const struct array *a,
                          bool write, struct err *e)
{
    _cleanup_handle_ struct handle h = {0};
    TRY(share_get(in, id, &h, e));
    if (write && h.read_only)
        return err_set(e, ERR_READ_ONLY, "the array '%s' is read-only", id);
    if (!array_same_buffer(h.array, a))
        return err_set(e, ERR_CONFLICT, "the array '%s' was resized in the meantime", id);
    return ERR_OK;
}
