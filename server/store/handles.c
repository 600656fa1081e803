/* Two hash tables per principal, of ids and of (session, name), and each session's handles by age.
 *
 * A name is a node of its own that points at its entry. So replacing an array under a name is one
 * store that cannot fail, and renaming adds the new node before it drops the old one: a failed
 * request leaves everything as it was. The order is a vector sorted by sequence number, with holes
 * where handles were removed (compacted when more than half are holes): pages begin with a binary
 * search, and a page's cursor stays valid when its handle is gone.
 *
 * Arrays are released after the lock: dropping the last reference may free device memory. */
#include "server/store/handles.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/labels/labels.h"
#include "server/store/handles_int.h"
#include "server/store/lease.h"

/* --- tables --- */

struct entry *handles_find(struct handles *t, const char *id)
{
    lock_held(&t->lock);
    struct entry *x;
    HASH_FIND(hh, t->by_id, id, ID_SIZE - 1, x);
    return x;
}

/* After a change of the space's entries. */
static void check(const struct handle_space *s)
{
    lock_held(&s->table->lock);
#ifndef NDEBUG
    const struct handles *t = s->table;
    const size_t n = s->n_order, here = n - s->holes;
    assert(t->count == HASH_COUNT(t->by_id) && HASH_COUNT(t->by_name) <= t->count);
    assert(s->holes <= n && n <= s->cap_order && here <= t->count);
    assert(n == 0 || s->order[n - 1].seq < t->next_seq);
    assert(n < 2 || s->order[n - 2].seq < s->order[n - 1].seq);
#endif
}

static struct name_key make_key(const struct handle_space *s, const char *name)
{
    struct name_key key;
    memset(&key, 0, sizeof key);
    key.space = s->number;
    strncpy(key.name, name, NAME_SIZE);
    return key;
}

struct name_node *handles_find_name(struct handle_space *s, const char *name)
{
    lock_held(&s->table->lock);
    struct name_key key = make_key(s, name);
    struct name_node *x;
    HASH_FIND(hh, s->table->by_name, &key, sizeof key, x);
    return x;
}

static struct entry *find(struct handle_space *s, const char *ref)
{
    lock_held(&s->table->lock);
    if (id_is('a', ref))
        return handles_find(s->table, ref);
    if (name_check(ref, NULL) != ERR_OK)
        return NULL;
    struct name_node *x = handles_find_name(s, ref);
    return x ? x->entry : NULL;
}

enum err_code handles_find_ref(struct handle_space *s, const char *ref, struct entry **ret,
                               struct err *e)
{
    *ret = find(s, ref);
    return *ret ? ERR_OK : err_set(e, ERR_NOT_FOUND, "there is no array '%.80s'", ref);
}

/* Marked itself, or a view of a marked array: the mark would protect nothing if a view bypassed
 * it. */
bool handles_protected(const struct entry *x)
{
    lock_held(&x->space->table->lock);
    if (x->read_only || !x->view_of[0])
        return x->read_only;
    const struct entry *parent = handles_find(x->space->table, x->view_of);
    const struct entry *base = handles_find(x->space->table, x->base);
    return (parent && parent->read_only) || (base && base->read_only);
}

void handles_snapshot(const struct entry *x, struct handle *ret)
{
    lock_held(&x->space->table->lock);
    *ret = (struct handle){.read_only = handles_protected(x),
                           .coordinate = x->coordinate,
                           .created_us = x->created_us,
                           .restored_us = x->restored_us,
                           .seq = x->seq,
                           .revision = x->revision,
                           .array = array_ref(x->array),
                           .labels = labels_ref(x->labels)};
    memcpy(ret->id, x->id, ID_SIZE);
    if (x->name)
        memcpy(ret->name, x->name->key.name, NAME_SIZE);
    memcpy(ret->session, x->space->session, ID_SIZE);
    if (x->view_of[0] && handles_find(x->space->table, x->view_of))
        memcpy(ret->view_of, x->view_of, ID_SIZE);
}

size_t handles_after(const struct handle_space *s, uint64_t seq)
{
    lock_held(&s->table->lock);
    size_t lo = 0, hi = s->n_order;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->order[mid].seq <= seq)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool order_reserve(struct handle_space *s)
{
    lock_held(&s->table->lock);
    if (s->n_order < s->cap_order)
        return true;
    size_t cap = s->cap_order ? 2 * s->cap_order : 8;
    struct order_item *p = mem_reallocarray(s->order, cap, sizeof *p);
    if (!p)
        return false;
    s->order = p;
    s->cap_order = cap;
    return true;
}

static void order_drop(struct handle_space *s, uint64_t seq)
{
    lock_held(&s->table->lock);
    size_t i = handles_after(s, seq - 1);
    assert(i < s->n_order && s->order[i].seq == seq);
    s->order[i].entry = NULL;
    s->holes++;
    if (s->holes <= 16 || s->holes <= s->n_order / 2)
        return;
    size_t n = 0;
    for (i = 0; i < s->n_order; i++)
        if (s->order[i].entry)
            s->order[n++] = s->order[i];
    s->n_order = n;
    s->holes = 0;
}

/* A node for the name, in the table, pointing at x; NULL without memory. */
static struct name_node *name_new(struct handle_space *s, const char *name, struct entry *x)
{
    lock_held(&s->table->lock);
    struct name_node *node = mem_calloc(1, sizeof *node);
    if (!node)
        return NULL;
    node->key = make_key(s, name);
    node->entry = x;
    HASH_ADD(hh, s->table->by_name, key, sizeof node->key, node);
    if (node->hh.tbl)
        return node;
    mem_free(node);
    return NULL;
}

static void name_free(struct handles *t, struct name_node *node)
{
    lock_held(&t->lock);
    HASH_DELETE(hh, t->by_name, node);
    mem_free(node);
}

enum err_code handles_place(struct handle_space *s, struct entry *x, struct err *e)
{
    lock_held(&s->table->lock);
    struct handles *t = s->table;
    if (!order_reserve(s))
        return err_oom(e);
    TRY(label_uses_reserve(&t->uses, x->labels, e));
    HASH_ADD(hh, t->by_id, id, ID_SIZE - 1, x);
    if (!x->hh.tbl) {
        label_uses_cancel(&t->uses, x->labels);
        return err_oom(e);
    }
    label_uses_add(&t->uses, x->labels);
    x->seq = t->next_seq++;
    s->order[s->n_order++] = (struct order_item){x->seq, x};
    t->count++;
    t->labels += (int64_t)labels_size(x->labels);
    check(s);
    return ERR_OK;
}

enum err_code handles_name(struct entry *x, const char *name, struct entry **ret_old, struct err *e)
{
    lock_held(&x->space->table->lock);
    struct name_node *node = handles_find_name(x->space, name);
    *ret_old = NULL;
    if (node) {
        *ret_old = node->entry;
        node->entry->name = NULL;
        node->entry = x;
        x->name = node;
        handles_unlink(*ret_old);
        return ERR_OK;
    }
    x->name = name_new(x->space, name, x);
    return x->name ? ERR_OK : err_oom(e);
}

static bool is_kept(const struct entry *x)
{
    struct leases *leases = x->space->table->leases;
    return x->read_only || (leases && lease_guard(leases, x->array, NULL) != ERR_OK);
}

struct entry *handles_find_bound(struct handles *t, const char *id)
{
    lock_held(&t->lock);
    struct entry *x = handles_find(t, id);
    return x && x->coordinate && !x->unused && !is_kept(x) ? x : NULL;
}

/* Its release would change tables that are being changed: see handles_unlock. */
void handles_unused(struct handles *t, const char *id)
{
    lock_held(&t->lock);
    struct entry *x = handles_find(t, id);
    if (!x || !x->coordinate || x->unused)
        return;
    x->coordinate = !is_kept(x); /* else it stays, also when it is not kept any more */
    x->unused = true;
    DL_APPEND(t->unused, x);
}

/* An array that nothing has as a coordinate any more. */
static void is_unused(void *user, const char *id)
{
    handles_unused(user, id);
}

/* Out of every table but that of the space's order. */
static void leave(struct handles *t, struct entry *x)
{
    lock_held(&t->lock);
    HASH_DELETE(hh, t->by_id, x);
    if (x->name)
        name_free(t, x->name);
    if (x->unused)
        DL_DELETE(t->unused, x);
    t->count--;
    t->labels -= (int64_t)labels_size(x->labels);
    label_uses_drop(&t->uses, x->labels, is_unused, t);
}

/* Takes the entry out of every table; the caller releases its array and frees it. */
void handles_unlink(struct entry *x)
{
    lock_held(&x->space->table->lock);
    leave(x->space->table, x);
    order_drop(x->space, x->seq);
    check(x->space);
}

/* One coordinate may be the last that has another. */
void handles_unlock(struct handles *t)
{
    struct entry *gone = NULL, *x, *next;
    lock_held(&t->lock);
    while (t->unused) {
        x = t->unused;
        if (x->coordinate) {
            handles_unlink(x);
            handles_tell(t, NULL, x->id);
            LL_PREPEND(gone, x);
        } else {
            DL_DELETE(t->unused, x);
            x->unused = false;
            handles_tell(t, x, NULL);
        }
    }
    pthread_mutex_unlock(&t->lock);
    LL_FOREACH_SAFE (gone, x, next)
        handles_entry_free(x);
}

void handles_entry_free(struct entry *x)
{
    if (!x)
        return;
    array_unref(x->array);
    labels_unref(x->labels);
    mem_free(x);
}

enum err_code handles_check_name(struct handle_space *s, const char *name, enum name_policy policy,
                                 struct err *e)
{
    lock_held(&s->table->lock);
    if (s->closed || s->seals)
        return err_set(e, ERR_NOT_FOUND, "the session was deleted");
    struct name_node *node = name ? handles_find_name(s, name) : NULL;
    if (!node)
        return ERR_OK;
    if (policy == NAME_NEW)
        return err_set(e, ERR_CONFLICT, "there is already an array named '%s'", name);
    if (node->entry->read_only)
        return err_set(e, ERR_READ_ONLY, "the array named '%s' is read-only", name);
    return ERR_OK;
}

enum err_code handles_ask(const struct handle_guard *guard, const struct entry *x, struct err *e)
{
    return guard ? guard->check(guard->user, x ? x->array : NULL, e) : ERR_OK;
}

size_t handles_growth(size_t was, size_t is)
{
    return is > was ? is - was : 0;
}

enum err_code handles_check_space(const struct handles *t, struct err *e)
{
    return observer_check_space(t->observer.to, t->observer.principal, OBSERVER_RECORD, e);
}

enum err_code handles_check_labels(const struct handles *t, int64_t more, struct err *e)
{
    lock_held(&t->lock);
    if (more > 0 && t->most_labels && t->labels + more > t->most_labels)
        return err_set(e, ERR_QUOTA,
                       "the attributes of all arrays would take more than %lld bytes, the most "
                       "allowed (attrs-memory)",
                       (long long)t->most_labels);
    return ERR_OK;
}

/* --- the module's functions --- */

void handle_clear(struct handle *h)
{
    array_unref(h->array);
    h->array = NULL;
    labels_unref(h->labels);
    h->labels = NULL;
}

struct handles *handles_new(uint32_t max_handles)
{
    struct handles *t = mem_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    if (pthread_mutex_init(&t->lock, NULL)) {
        mem_free(t);
        return NULL;
    }
    t->max_handles = max_handles;
    t->next_seq = 1;
    return t;
}

void handles_free(struct handles *t)
{
    if (!t)
        return;
    assert(!t->by_id && !t->by_name && !t->unused);
    label_uses_free(&t->uses); /* of arrays that were not there */
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

struct handle_space *handle_space_new(struct handles *t, const char *session)
{
    struct handle_space *s = mem_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->table = t;
    strncpy(s->session, session, ID_SIZE - 1);
    pthread_mutex_lock(&t->lock);
    s->number = t->next_space++;
    pthread_mutex_unlock(&t->lock);
    return s;
}

void handle_space_close(struct handle_space *s)
{
    struct handles *t = s->table;
    pthread_mutex_lock(&t->lock);
    s->closed = true;
    size_t n = s->n_order;
    struct order_item *items = s->order;
    for (size_t i = 0; i < n; i++) {
        struct entry *x = items[i].entry;
        if (!x)
            continue;
        leave(t, x);
        handles_tell(t, NULL, x->id);
    }
    s->order = NULL;
    s->n_order = s->cap_order = s->holes = 0;
    check(s);
    handles_unlock(t);
    for (size_t i = 0; i < n; i++)
        handles_entry_free(items[i].entry);
    mem_free(items);
}

void handle_space_free(struct handle_space *s)
{
    if (!s)
        return;
    assert(s->n_order == s->holes);
    mem_free(s->order);
    mem_free(s);
}

enum err_code handle_get(struct handle_space *s, const char *ref, struct handle *ret, struct err *e)
{
    struct entry *x;
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_find_ref(s, ref, &x, e);
    if (code == ERR_OK)
        handles_snapshot(x, ret);
    pthread_mutex_unlock(&s->table->lock);
    return code;
}

enum err_code handle_check_name(struct handle_space *s, const char *name, enum name_policy policy,
                                struct err *e)
{
    TRY(name_check(name, e));
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_check_name(s, name, policy, e);
    if (code == ERR_OK)
        code = handles_check_space(s->table, e);
    pthread_mutex_unlock(&s->table->lock);
    return code;
}

/* x gets the name that another has. */
static enum err_code take_over(struct entry *x, struct name_node *node, struct entry **ret_old,
                               struct err *e)
{
    struct handle_space *s = x->space;
    struct leases *leases = s->table->leases;
    TRY(handles_check_name(s, node->key.name, NAME_REPLACE, e));
    TRY(leases ? lease_guard(leases, node->entry->array, e) : ERR_OK);
    if (x->name)
        name_free(s->table, x->name);
    x->coordinate = false;
    return handles_name(x, node->key.name, ret_old, e);
}

enum err_code handles_rename(struct entry *x, const char *name, bool replace,
                             struct entry **ret_old, struct err *e)
{
    lock_held(&x->space->table->lock);
    struct handle_space *s = x->space;
    if (!name[0]) {
        if (x->name)
            name_free(s->table, x->name);
        x->name = NULL;
        return ERR_OK;
    }
    struct name_node *node = handles_find_name(s, name);
    if (node && node->entry == x)
        return ERR_OK;
    if (node && replace)
        return take_over(x, node, ret_old, e) == ERR_OK ? ERR_OK : err_prefix(e, "/name");
    if (node)
        return err_field(e, ERR_CONFLICT, "/name", "there is already an array named '%s'", name);
    node = name_new(s, name, x);
    if (!node)
        return err_oom(e);
    if (x->name)
        name_free(s->table, x->name);
    x->name = node;
    x->coordinate = false; /* it is wanted for itself */
    return ERR_OK;
}

struct labels *handles_relabel(struct entry *x, struct labels *take_labels)
{
    struct handles *t = x->space->table;
    lock_held(&t->lock);
    struct labels *old = x->labels;
    x->labels = take_labels;
    t->labels += (int64_t)labels_size(take_labels) - (int64_t)labels_size(old);
    label_uses_drop(&t->uses, old, is_unused, t);
    return old;
}

static bool is_wanted(const struct entry *x, const char *ref)
{
    return x->name ? id_is('a', ref) : label_uses_beside(&x->space->table->uses, x->id, x->labels);
}

/* if_unwanted: unless somebody else wants it, as handle_let_go has it. */
static enum err_code remove_entry(struct handle_space *s, const char *ref, bool if_unwanted,
                                  const struct handle_guard *guard, struct err *e)
{
    struct entry *x;
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_find_ref(s, ref, &x, e);
    if (code == ERR_OK && x->read_only)
        code = err_set(e, ERR_READ_ONLY, "the array is read-only");
    if (code == ERR_OK)
        code = handles_ask(guard, x, e);
    const bool goes = code == ERR_OK && !(if_unwanted && is_wanted(x, ref));
    if (goes) {
        handles_unlink(x);
        handles_tell(s->table, NULL, x->id);
    } else if (code == ERR_OK && !x->name && !x->coordinate) {
        x->coordinate = true;
        handles_tell(s->table, x, NULL);
    }
    handles_unlock(s->table);
    if (goes)
        handles_entry_free(x);
    return code;
}

enum err_code handle_remove(struct handle_space *s, const char *ref,
                            const struct handle_guard *guard, struct err *e)
{
    return remove_entry(s, ref, false, guard, e);
}

enum err_code handle_let_go(struct handle_space *s, const char *ref,
                            const struct handle_guard *guard, struct err *e)
{
    return remove_entry(s, ref, true, guard, e);
}
