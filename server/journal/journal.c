/* The log, and a table of where in it the last value of each key lies.
 *
 * Rewriting: a second log is begun, and from then on each write goes to both and also carries over
 * some keys that the second does not have yet. When it has all, and who holds the first holds it
 * too, it takes the place of the first. So no write waits for the whole of it, at every moment the
 * log that is held is complete, and no thread is needed. A rewriting that finds no memory, or that
 * nobody takes, is given up and tried again later. The two areas take turns, since fresh pages cost
 * more than what is written to them; what is left in one from the time before has another salt. */
#include "server/journal/journal.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/base/table.h"
#include "server/journal/area.h"
#include "server/journal/opening.h"
#include "server/journal/owner.h"

#define LEAST_WASTE  ((size_t)1 << 20)  /* bytes out of date before rewriting is worth it */
#define CHANGES_PART 32                 /* of the log, for growth that nobody asked room for */
#define CARRY_BYTES  ((size_t)16 << 10) /* carried over with a write, besides twice its own size */

struct log {
    struct area area;
    size_t end; /* bytes of records */
    uint64_t seq, salt;
};

struct name {
    uint8_t kind, key_len;
    char key[RECORD_KEY_MOST];
};

struct slot {
    size_t at, n;        /* of the value in the log */
    size_t at_next;      /* of the same in the second log, */
    uint64_t attempt;    /* if that is of this rewriting */
    bool damaged, set;   /* set: it has a value */
    struct owner *owner; /* NULL: none */
    UT_hash_handle hh;
    struct name name; /* allocated as long as the key is */
};

struct journal {
    pthread_mutex_t lock;
    struct journal_config config;
    struct log log;
    struct log next;    /* area.at NULL: not being rewritten */
    struct area spare;  /* the last log's, for reuse; its `at` is NULL before the first rewriting */
    struct slot *carry; /* the next to be carried over */
    uint64_t attempt;   /* number of the last rewriting begun, */
    uint64_t done;      /* and of the one that made `log`; 0: none did */
    uint32_t version;   /* of both logs */
    bool read_only;     /* it is another process's */
    struct slot *slots;
    struct owner *owners;
    size_t live; /* bytes of all keys, were each in a record of its own, or the least of its kind */
    uint64_t writes;
};

static const char *value_of(const struct journal *j, const struct slot *s)
{
    return j->log.area.at + (j->done && s->attempt == j->done ? s->at_next : s->at);
}

static struct record_item item_of(const struct slot *s, const void *value)
{
    return (struct record_item){s->name.kind, s->name.key, s->name.key_len, value, s->n};
}

static size_t weight_of(const struct journal *j, const struct record_item *x)
{
    const size_t size = record_size(x, 1), least = j->config.least ? j->config.least(x->kind) : 0;
    return size > least ? size : least;
}

static size_t weight(const struct journal *j, const struct slot *s)
{
    struct record_item x = item_of(s, "");
    return s->set ? weight_of(j, &x) : 0;
}

/* --- logs --- */

/* An empty log, in the spare area or a new one. */
static enum err_code log_new(struct journal *j, struct log *ret, struct err *e)
{
    struct log l = {.area = j->spare};
    if (getrandom(&l.salt, sizeof l.salt, 0) != sizeof l.salt)
        return err_set(e, ERR_INTERNAL, "no random number for the journal");
    if (!l.area.at)
        TRY(area_new("arrayd-journal", j->config.most, &l.area, e));
    j->spare = (struct area)AREA_NONE;
    enum err_code code = area_make_ready(&l.area, sizeof(struct opening), e);
    if (code != ERR_OK) {
        area_close(&l.area);
        return code;
    }
    opening_write((struct opening *)l.area.at, j->version, l.salt);
    *ret = l;
    return ERR_OK;
}

static enum err_code journal_full(size_t n, struct err *e)
{
    return err_set(e, ERR_OUT_OF_MEMORY,
                   "the journal has no room for another %zu bytes (journal-size)", n);
}

/* Makes sure that appending n bytes cannot fail. */
static enum err_code log_reserve(struct log *l, size_t n, struct err *e)
{
    size_t used = sizeof(struct opening) + l->end;
    if (n > l->area.size - used)
        return journal_full(n, e);
    return area_make_ready(&l->area, used + n, e);
}

/* Returns where the values begin. */
static size_t log_append(struct log *l, const struct record_item *items, size_t n)
{
    struct opening *o = (struct opening *)l->area.at;
    size_t at = sizeof *o + l->end;
    record_write(l->area.at + at, l->salt, ++l->seq, items, n);
    l->end += record_size(items, n);
    atomic_store_explicit(&o->end, l->end, memory_order_release);
    atomic_store_explicit(&o->end_again, l->end, memory_order_release);
    return at + record_values_at(items, n);
}

/* --- the table --- */

static void name_set(struct name *to, const struct record_item *x)
{
    to->kind = x->kind;
    to->key_len = (uint8_t)x->key_len;
    memcpy(to->key, x->key, x->key_len);
}

static struct slot *slot_find(struct journal *j, const struct record_item *x)
{
    struct name name;
    struct slot *s;
    name_set(&name, x);
    HASH_FIND(hh, j->slots, &name, offsetof(struct name, key) + x->key_len, s);
    return s;
}

/* The slot's weight is counted, or not any more. */
static void count(struct journal *j, const struct slot *s, bool more)
{
    const size_t n = weight(j, s);
    j->live += more ? n : -n;
    if (s->owner)
        s->owner->live += more ? n : -n;
}

/* The key's entry, or a new one that has no value yet; NULL without memory. */
static struct slot *slot_make(struct journal *j, const struct record_item *x)
{
    struct slot *s = slot_find(j, x);
    size_t size = offsetof(struct name, key) + x->key_len;
    if (s)
        return s;
    s = mem_calloc(1, offsetof(struct slot, name) + size);
    if (!s || !owner_enter(&j->owners, x, &s->owner)) {
        mem_free(s);
        return NULL;
    }
    name_set(&s->name, x);
    HASH_ADD(hh, j->slots, name, size, s);
    if (!s->hh.tbl) {
        owner_leave(&j->owners, s->owner);
        mem_free(s);
        return NULL;
    }
    return s;
}

static void slot_drop(struct journal *j, struct slot *s)
{
    if (!s)
        return;
    if (j->carry == s)
        j->carry = s->hh.next;
    count(j, s, false);
    HASH_DEL(j->slots, s);
    owner_leave(&j->owners, s->owner);
    mem_free(s);
}

static bool make_slots(struct journal *j, const struct record_item *items, size_t n)
{
    size_t i = 0;
    while (i < n && (!items[i].value || slot_make(j, &items[i])))
        i++;
    if (i == n)
        return true;
    while (i-- > 0) {
        struct slot *s = slot_find(j, &items[i]);
        if (s && !s->set)
            slot_drop(j, s);
    }
    return false;
}

/* The items' values begin at `at` in the log, and, if it is being rewritten, at `at_next` in the
 * second one. Their slots exist. */
static void note(struct journal *j, size_t at, size_t at_next, const struct record_item *items,
                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct slot *s = slot_find(j, &items[i]);
        if (!items[i].value) {
            slot_drop(j, s);
            continue;
        }
        count(j, s, false);
        s->set = true;
        s->damaged = false;
        s->at = at;
        s->at_next = at_next;
        s->attempt = at_next ? j->attempt : 0;
        s->n = items[i].n;
        count(j, s, true);
        at += record_padded(s->n);
        at_next += at_next ? record_padded(s->n) : 0;
    }
}

/* --- rewriting --- */

static bool is_rewriting(const struct journal *j)
{
    return j->next.area.at;
}

/* `take` will be the next log's area. */
static void keep_spare(struct journal *j, struct area *take)
{
    area_close(&j->spare);
    area_shorten(take, LEAST_WASTE + 3 * j->live); /* it was large once */
    j->spare = *take;
    *take = (struct area)AREA_NONE;
}

static void rewrite_give_up(struct journal *j)
{
    keep_spare(j, &j->next.area);
    j->carry = NULL;
}

static enum err_code rewrite_begin(struct journal *j, struct err *e)
{
    j->attempt++;
    TRY(log_new(j, &j->next, e));
    j->carry = j->slots;
    return ERR_OK;
}

static enum err_code carry_one(struct journal *j, struct slot *s, struct err *e)
{
    const char *value = value_of(j, s);
    struct record_item x = item_of(s, value);
    TRY(log_reserve(&j->next, record_size(&x, 1), e));
    s->at = (size_t)(value - j->log.area.at);
    s->at_next = log_append(&j->next, &x, 1);
    s->attempt = j->attempt;
    return ERR_OK;
}

/* The second log takes the first one's place, which must not be touched before it is held. */
static enum err_code rewrite_end(struct journal *j, struct err *e)
{
    if (j->config.moved)
        TRY(j->config.moved(j->config.user, j->next.area.fd, e));
    struct area old = j->log.area;
    j->log = j->next;
    j->next = (struct log){.area = AREA_NONE};
    keep_spare(j, &old);
    j->done = j->attempt;
    return ERR_OK;
}

/* Carries over keys of about that many bytes, or all, and ends when the second log has all. */
static enum err_code rewrite_more(struct journal *j, size_t bytes, struct err *e)
{
    size_t until = j->next.end + bytes;
    while (j->carry && (bytes == SIZE_MAX || j->next.end < until)) {
        struct slot *s = j->carry;
        if (s->attempt != j->attempt && !s->damaged)
            TRY(carry_one(j, s, e));
        j->carry = s->hh.next;
    }
    return j->carry ? ERR_OK : rewrite_end(j, e);
}

/* Does some of the rewriting that is due. Without memory for it the log just continues. */
static void rewrite_some(struct journal *j, size_t bytes)
{
    lock_held(&j->lock);
    if (!is_rewriting(j) &&
        (j->log.end < LEAST_WASTE + 2 * j->live || rewrite_begin(j, NULL) != ERR_OK))
        return;
    if (rewrite_more(j, CARRY_BYTES + 2 * bytes, NULL) != ERR_OK)
        rewrite_give_up(j);
}

static enum err_code rewrite_all(struct journal *j, struct err *e)
{
    if (!is_rewriting(j))
        TRY(rewrite_begin(j, e));
    enum err_code code = rewrite_more(j, SIZE_MAX, e);
    if (code != ERR_OK)
        rewrite_give_up(j);
    return code;
}

/* --- writing --- */

/* Half of the log is for what is out of date, so that a full log always gains by being rewritten.
 */
static bool is_full(struct journal *j, const struct record_item *items, size_t n)
{
    size_t before = 0, after = 0;
    for (size_t i = 0; i < n; i++) {
        const struct slot *s = slot_find(j, &items[i]);
        before += s ? weight(j, s) : 0;
        after += items[i].value ? weight_of(j, &items[i]) : 0;
    }
    return after > before && j->live + after - before > j->config.most / 2;
}

static enum err_code reserve(struct journal *j, size_t n, struct err *e)
{
    if (log_reserve(&j->log, n, NULL) != ERR_OK) {
        TRY(rewrite_all(j, e));
        TRY(log_reserve(&j->log, n, e));
    }
    if (is_rewriting(j) && log_reserve(&j->next, n, NULL) != ERR_OK)
        rewrite_give_up(j);
    return ERR_OK;
}

static enum err_code write_locked(struct journal *j, const struct record_item *items, size_t n,
                                  struct err *e)
{
    lock_held(&j->lock);
    assert(!j->read_only);
    TRY(record_check(items, n, e));
    size_t size = record_size(items, n);
    if (is_full(j, items, n))
        return journal_full(size, e);
    TRY(reserve(j, size, e));
    if (!make_slots(j, items, n))
        return err_oom(e);
    size_t at = log_append(&j->log, items, n);
    size_t at_next = is_rewriting(j) ? log_append(&j->next, items, n) : 0;
    note(j, at, at_next, items, n);
    j->writes++;
    rewrite_some(j, size);
    return ERR_OK;
}

enum err_code journal_write(struct journal *j, const struct record_item *items, size_t n,
                            struct err *e)
{
    pthread_mutex_lock(&j->lock);
    enum err_code code = write_locked(j, items, n, e);
    pthread_mutex_unlock(&j->lock);
    return code;
}

enum err_code journal_check_space(struct journal *j, const char *owner, size_t n, struct err *e)
{
    pthread_mutex_lock(&j->lock);
    const struct owner *o = owner && j->config.shared ? owner_find(j->owners, owner) : NULL;
    const size_t after = j->live + n;
    const size_t most = j->config.most / 2 - j->config.most / CHANGES_PART;
    const bool full = after > most, too_much = !full && o && o->live + n > most - after;
    pthread_mutex_unlock(&j->lock);
    if (too_much)
        return err_set(e, ERR_OUT_OF_MEMORY,
                       "the journal has no room for another %zu bytes of '%.80s': a user "
                       "may hold as much of it as is free (journal-size)",
                       n, owner);
    return full ? journal_full(n, e) : ERR_OK;
}

/* --- reading --- */

bool journal_has(struct journal *j, uint8_t kind, const char *key, size_t key_len)
{
    const struct record_item x = {.kind = kind, .key = key, .key_len = key_len};
    pthread_mutex_lock(&j->lock);
    const bool has = slot_find(j, &x);
    pthread_mutex_unlock(&j->lock);
    return has;
}

void journal_each(struct journal *j, uint8_t kind,
                  void (*fn)(void *user, const struct record_item *item), void *user)
{
    struct slot *s, *tmp;
    pthread_mutex_lock(&j->lock);
    HASH_ITER (hh, j->slots, s, tmp) {
        struct record_item x = item_of(s, s->damaged ? NULL : value_of(j, s));
        if (x.kind == kind)
            fn(user, &x);
    }
    pthread_mutex_unlock(&j->lock);
}

enum err_code journal_check(int fd, struct err *e)
{
    struct area a;
    int copy = area_duplicate(fd);
    TRY(area_adopt(copy, &a, e));
    uint64_t salt;
    enum err_code code = opening_check(&a, &salt, e);
    area_close(&a);
    return code;
}

static enum err_code read_item(struct journal *j, const struct record_item *x, bool whole,
                               struct err *e)
{
    if (!x->value) {
        slot_drop(j, slot_find(j, x));
        return ERR_OK;
    }
    if (!make_slots(j, x, 1))
        return err_oom(e);
    note(j, (size_t)((const char *)x->value - j->log.area.at), 0, x, 1);
    slot_find(j, x)->damaged = !whole;
    return ERR_OK;
}

/* Fills the table from the adopted log. */
static enum err_code read_log(struct journal *j, struct journal_damage *ret, struct err *e)
{
    const struct opening *o = (const struct opening *)j->log.area.at;
    uint64_t end = atomic_load(&o->end);
    struct record_reader r = {.log = j->log.area.at + sizeof *o,
                              .salt = j->log.salt,
                              .size = j->log.area.size - sizeof *o,
                              .end = end == atomic_load(&o->end_again) ? (size_t)end : SIZE_MAX};
    struct record record;
    while (record_next(&r, &record)) {
        size_t cursor[2] = {0};
        bool any = false;
        for (uint32_t i = 0; i < record.count; i++) {
            struct record_item x;
            bool whole;
            record_item(&record, cursor, &x, &whole);
            any |= !whole;
            TRY(read_item(j, &x, whole, e));
        }
        ret->records += any;
    }
    ret->records += r.damaged;
    ret->missing = r.missing;
    return ERR_OK;
}

/* --- the journal --- */

/* NULL without memory. */
static struct journal *make(const struct journal_config *config)
{
    struct journal *j = mem_calloc(1, sizeof *j);
    if (!j)
        return NULL;
    pthread_mutex_init(&j->lock, NULL);
    j->config = *config;
    j->version = JOURNAL_VERSION_PLAIN;
    if (j->config.most < 2 * LEAST_WASTE)
        j->config.most = 2 * LEAST_WASTE;
    j->log.area = j->next.area = j->spare = (struct area)AREA_NONE;
    return j;
}

enum err_code journal_open(const struct journal_config *config, struct journal **ret, struct err *e)
{
    struct journal *j = make(config);
    if (!j)
        return err_oom(e);
    enum err_code code = log_new(j, &j->log, e);
    if (code != ERR_OK)
        journal_close(j);
    else
        *ret = j;
    return code;
}

enum err_code journal_read(int take_fd, struct journal **ret, struct journal_damage *ret_damage,
                           struct err *e)
{
    struct journal_damage damage = {0};
    struct journal *j = make(&(struct journal_config){0});
    if (!j) {
        area_close(&(struct area){.fd = take_fd});
        return err_oom(e);
    }
    j->read_only = true;
    enum err_code code = area_adopt(take_fd, &j->log.area, e);
    if (code == ERR_OK)
        code = opening_check(&j->log.area, &j->log.salt, e);
    if (code == ERR_OK)
        code = read_log(j, &damage, e);
    if (code != ERR_OK) {
        journal_close(j);
        return code;
    }
    if (ret_damage)
        *ret_damage = damage;
    *ret = j;
    return ERR_OK;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    while (j->slots)
        slot_drop(j, j->slots);
    area_close(&j->log.area);
    area_close(&j->next.area);
    area_close(&j->spare);
    pthread_mutex_destroy(&j->lock);
    mem_free(j);
}

void journal_needs(struct journal *j, uint32_t version)
{
    assert(version <= JOURNAL_VERSION);
    pthread_mutex_lock(&j->lock);
    if (version > j->version) {
        j->version = version;
        opening_needs((struct opening *)j->log.area.at, version);
        if (is_rewriting(j))
            opening_needs((struct opening *)j->next.area.at, version);
    }
    pthread_mutex_unlock(&j->lock);
}

int journal_fd(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    int fd = j->log.area.fd;
    pthread_mutex_unlock(&j->lock);
    return fd;
}

void journal_figures(struct journal *j, struct journal_figures *ret)
{
    pthread_mutex_lock(&j->lock);
    *ret = (struct journal_figures){(int64_t)j->log.end, (int64_t)j->live, HASH_COUNT(j->slots),
                                    j->writes, j->done};
    pthread_mutex_unlock(&j->lock);
}
