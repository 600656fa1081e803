/* A hash table by the keys' hashes, in order of creation. Unlike tokens, which are compared one by
 * one in constant time, keys are looked up: whoever times that learns at most something about a
 * hash, and no key has a hash that somebody chose. Logins that are over are dropped when another is
 * made, so the table is bounded by the principals' maximums. */
#include "server/login/logins.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/table.h"
#include "server/kept/journal_writer.h"
#include "server/store/auth.h"
#include "server/store/handles.h"

struct login {
    uint8_t hash[TOKEN_HASH_SIZE]; /* of the key */
    struct login_terms terms;
    uint64_t until_ns;
    _Atomic bool ended;
    _Atomic int refs;
    UT_hash_handle hh;
    char names[][ID_SIZE]; /* terms.refs */
};

struct logins {
    int64_t max_logins, max_links;
    char cookie[LOGIN_COOKIE];
    struct journal_writer *writer;
    struct kept_links kept;
    pthread_mutex_t lock;
    struct login *table;
};

struct logins *logins_new(int64_t max_logins, int64_t max_links)
{
    struct logins *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->max_logins = max_logins;
    t->max_links = max_links;
    memcpy(t->cookie, "arrayd-", LOGIN_COOKIE_SAME);
    token_digits(t->cookie + LOGIN_COOKIE_SAME, 12);
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        mem_free(t);
        return NULL;
    }
    return t;
}

const char *logins_cookie(const struct logins *t)
{
    return t->cookie;
}

/* --- one login --- */

const struct login_terms *login_terms(const struct login *l)
{
    return &l->terms;
}

bool login_lasts(const struct login *l)
{
    return !atomic_load(&l->ended) && clock_ns() < l->until_ns;
}

bool login_names(const struct login *l, const char *ref)
{
    for (size_t i = 0; i < l->terms.n_refs; i++)
        if (!strcmp(l->terms.refs[i], ref))
            return true;
    return false;
}

struct login *login_ref(struct login *l)
{
    atomic_fetch_add(&l->refs, 1);
    return l;
}

void login_unref(struct login *l)
{
    if (l && atomic_fetch_sub(&l->refs, 1) == 1)
        mem_free(l);
}

/* --- the table --- */

static struct kept_link kept_of(const struct login *l)
{
    struct kept_link k = {.whole = l->terms.whole,
                          .n_refs = l->terms.n_refs,
                          .created_us = l->terms.created_us,
                          .expires_us = l->terms.expires_us};
    memcpy(k.id, l->terms.id, sizeof k.id);
    memcpy(k.hash, l->hash, sizeof k.hash);
    memcpy(k.refs, l->names, l->terms.n_refs * sizeof *l->names);
    return k;
}

static void tell(struct logins *t, const struct login *l, bool gone)
{
    lock_held(&t->lock);
    if (!t->writer || !l->terms.link)
        return;
    const struct kept_link k = kept_of(l);
    writer_link(t->writer, l->terms.who->name, &k, gone);
}

/* False: it has been dropped before. */
static bool drop(struct logins *t, struct login *l)
{
    lock_held(&t->lock);
    if (atomic_exchange(&l->ended, true))
        return false;
    HASH_DEL(t->table, l);
    tell(t, l, true);
    login_unref(l);
    return true;
}

void logins_free(struct logins *t)
{
    if (!t)
        return;
    struct login *l, *tmp;
    pthread_mutex_lock(&t->lock);
    t->writer = NULL; /* they do not end, but this table */
    HASH_ITER (hh, t->table, l, tmp) {
        (void)drop(t, l);
    }
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

static bool is_over(const struct login *l)
{
    return !login_lasts(l) || atomic_load(&l->terms.who->gone);
}

/* Makes room for another of the principal's: drops what is over and, among logins, the oldest. */
static enum err_code make_room(struct logins *t, const struct login_terms *terms,
                               char ret_gone[ID_SIZE], struct err *e)
{
    lock_held(&t->lock);
    struct login *l, *tmp, *oldest = NULL;
    const int64_t most = terms->link ? t->max_links : t->max_logins;
    int64_t n = 0;
    HASH_ITER (hh, t->table, l, tmp) {
        if (is_over(l)) {
            (void)drop(t, l);
        } else if (l->terms.who == terms->who && l->terms.link == terms->link) {
            oldest = oldest ? oldest : l;
            n++;
        }
    }
    if (n < most)
        return ERR_OK;
    if (terms->link)
        return err_set(e, ERR_QUOTA, "there are already %lld links, the most allowed (max_links)",
                       (long long)most);
    memcpy(ret_gone, oldest->terms.id, ID_SIZE);
    (void)drop(t, oldest);
    return ERR_OK;
}

/* One that lasts so many seconds from now, with one reference. */
static struct login *make(const struct login_terms *terms, double seconds)
{
    struct login *l = mem_calloc(1, sizeof *l + terms->n_refs * sizeof *l->names);
    if (!l)
        return NULL;
    l->terms = *terms;
    l->terms.refs = (const char(*)[ID_SIZE])l->names;
    if (terms->n_refs)
        memcpy(l->names, terms->refs, terms->n_refs * sizeof *l->names);
    l->until_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    atomic_store(&l->refs, 1);
    return l;
}

static enum err_code enter(struct logins *t, struct login *l, struct err *e)
{
    lock_held(&t->lock);
    HASH_ADD(hh, t->table, hash, sizeof l->hash, l);
    if (!l->hh.tbl)
        return err_oom(e);
    tell(t, l, false);
    return ERR_OK;
}

enum err_code logins_add(struct logins *t, const struct login_terms *terms, double seconds,
                         char ret_key[LOGIN_KEY_LEN + 1], struct login **ret,
                         char ret_gone[ID_SIZE], struct err *e)
{
    *ret_gone = '\0';
    if (t->writer && terms->link)
        TRY(writer_check_space(t->writer, terms->who->name, OBSERVER_RECORD, e));
    struct login *l = make(terms, seconds);
    if (!l)
        return err_oom(e);
    id_make('v', l->terms.id);
    l->terms.created_us = clock_date_us();
    l->terms.expires_us = l->terms.created_us + (int64_t)(seconds * 1e6);
    token_digits(ret_key, LOGIN_KEY_LEN);
    token_hash(ret_key, LOGIN_KEY_LEN, l->hash);
    pthread_mutex_lock(&t->lock);
    enum err_code code = make_room(t, terms, ret_gone, e);
    if (code == ERR_OK)
        code = enter(t, l, e);
    if (code == ERR_OK)
        *ret = login_ref(l);
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        login_unref(l);
    return code;
}

/* --- links of another process --- */

static void each_kept(void *table, const struct principal *who,
                      void (*visit)(void *user, const struct kept_link *l), void *user)
{
    struct logins *t = table;
    struct login *l, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (l->terms.link && l->terms.who == who && login_lasts(l)) {
            const struct kept_link k = kept_of(l);
            visit(user, &k);
        }
    }
    pthread_mutex_unlock(&t->lock);
}

static enum err_code restore_kept(void *table, struct principal *who, const struct kept_link *k,
                                  struct err *e)
{
    struct logins *t = table;
    struct login_terms terms = {.who = who,
                                .link = true,
                                .whole = k->whole,
                                .n_refs = k->n_refs,
                                .refs = k->refs,
                                .created_us = k->created_us,
                                .expires_us = k->expires_us};
    const int64_t whole_us = k->expires_us - k->created_us; /* the clock may have been set back */
    int64_t left_us = k->expires_us - clock_date_us();
    left_us = left_us < whole_us ? left_us : whole_us;
    memcpy(terms.id, k->id, sizeof terms.id);
    if (left_us <= 0)
        return ERR_OK;
    struct login *l = make(&terms, (double)left_us * 1e-6);
    if (!l)
        return err_oom(e);
    memcpy(l->hash, k->hash, sizeof l->hash);
    pthread_mutex_lock(&t->lock);
    const enum err_code code = enter(t, l, e);
    pthread_mutex_unlock(&t->lock);
    if (code != ERR_OK)
        login_unref(l);
    return code;
}

const struct kept_links *logins_keep(struct logins *t, struct journal_writer *writer)
{
    t->writer = writer;
    t->kept = (struct kept_links){t, each_kept, restore_kept};
    return &t->kept;
}

struct login *logins_find(struct logins *t, const char *key, size_t n)
{
    uint8_t hash[TOKEN_HASH_SIZE];
    struct login *l = NULL;
    if (n != LOGIN_KEY_LEN)
        return NULL;
    token_hash(key, n, hash);
    pthread_mutex_lock(&t->lock);
    HASH_FIND(hh, t->table, hash, sizeof hash, l);
    if (l && login_lasts(l))
        login_ref(l);
    else
        l = NULL;
    pthread_mutex_unlock(&t->lock);
    return l;
}

bool logins_end(struct logins *t, struct login *l)
{
    pthread_mutex_lock(&t->lock);
    const bool was = drop(t, l);
    pthread_mutex_unlock(&t->lock);
    return was;
}

size_t logins_end_all(struct logins *t, const struct principal *who)
{
    struct login *l, *tmp;
    size_t n = 0;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (!l->terms.link && l->terms.who == who) {
            n += login_lasts(l);
            (void)drop(t, l);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

enum err_code logins_end_link(struct logins *t, const struct principal *who, const char *id,
                              struct err *e)
{
    struct login *l, *tmp;
    bool found = false;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (l->terms.link && l->terms.who == who && !strcmp(l->terms.id, id)) {
            found = login_lasts(l);
            (void)drop(t, l);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return found ? ERR_OK : err_set(e, ERR_NOT_FOUND, "there is no link '%.80s'", id);
}

void logins_each_link(struct logins *t, const struct principal *who,
                      void (*visit)(void *user, const struct login_terms *terms), void *user)
{
    struct login *l, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (l->terms.link && l->terms.who == who && login_lasts(l))
            visit(user, &l->terms);
    }
    pthread_mutex_unlock(&t->lock);
}

void logins_sweep(struct logins *t)
{
    struct login *l, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (is_over(l))
            (void)drop(t, l);
    }
    pthread_mutex_unlock(&t->lock);
}

void logins_count(struct logins *t, int64_t *ret_logins, int64_t *ret_links)
{
    struct login *l, *tmp;
    *ret_logins = *ret_links = 0;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->table, l, tmp) {
        if (!is_over(l))
            ++*(l->terms.link ? ret_links : ret_logins);
    }
    pthread_mutex_unlock(&t->lock);
}
