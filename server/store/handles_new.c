/* How new handles are added.
 *
 * Whatever can refuse is asked before the first table is changed. What can lack memory (places in
 * the tables, names that are new) comes before what cannot (names that change hands), so that of
 * several handles all are added or none, and nobody has lost a name. */
#include <string.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "server/labels/labels.h"
#include "server/store/handles_int.h"

/* What new handles need beside what there is, or in place of others. */
struct needs {
    struct handles *table;
    int64_t handles, labels;
    size_t record;
};

/* A coordinate that goes with the array that is replaced makes room, too. */
static void goes_along(void *user, const char *id)
{
    struct needs *n = user;
    const struct entry *x = handles_find_bound(n->table, id);
    n->handles -= x != NULL;
    n->labels -= x ? (int64_t)labels_size(x->labels) : 0;
}

static enum err_code check_needs(const struct needs *n, struct err *e)
{
    const struct handles *t = n->table;
    lock_held(&t->lock);
    TRY(handles_check_labels(t, n->labels, e));
    if (n->handles > 0 && n->handles + t->count > t->max_handles)
        return err_set(e, ERR_QUOTA,
                       "there are %u arrays of at most %u (quota arrays), too many for %lld more",
                       t->count, t->max_handles, (long long)n->handles);
    return observer_check_space(t->observer.to, t->observer.principal, n->record, e);
}

/* Whether all may be added. */
static enum err_code check_all(struct handle_space *s, const struct handle_new *list, size_t n,
                               struct err *e)
{
    struct needs needs = {.table = s->table};
    for (size_t i = 0; i < n; i++) {
        const struct handle_spec *spec = &list[i].spec;
        TRY(handles_check_name(s, spec->name, spec->policy, e));
        const struct name_node *node = spec->name ? handles_find_name(s, spec->name) : NULL;
        const struct entry *old = node ? node->entry : NULL;
        const size_t was = old ? labels_size(old->labels) : 0, is = labels_size(spec->labels);
        TRY(handles_ask(spec->guard, old, e));
        needs.handles += !old;
        needs.labels += (int64_t)is - (int64_t)was;
        needs.record += OBSERVER_RECORD + handles_growth(was, is);
        if (old)
            label_uses_lone(&s->table->uses, old->labels, goes_along, &needs);
    }
    return check_needs(&needs, e);
}

static struct entry *entry_new(struct handle_space *s, const struct handle_new *new)
{
    const struct handle_spec *spec = &new->spec;
    struct entry *x = mem_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->array = array_ref(new->array);
    x->labels = labels_ref(spec->labels);
    x->space = s;
    x->created_us = clock_date_us();
    if (spec->id)
        memcpy(x->id, spec->id, ID_SIZE);
    else
        id_make('a', x->id);
    x->coordinate = spec->coordinate && !spec->name;
    if (spec->view_of)
        strncpy(x->view_of, spec->view_of, ID_SIZE - 1);
    return x;
}

/* With the lock held. */
static void find_base(struct entry *x)
{
    const struct handles *t = x->space->table;
    lock_held(&t->lock);
    const struct entry *parent = x->view_of[0] ? handles_find(x->space->table, x->view_of) : NULL;
    memcpy(x->base, parent && parent->base[0] ? parent->base : x->view_of, ID_SIZE);
}

/* All that can fail: entries[0…n−1] have their places and those names that are new. Else none has.
 */
static enum err_code place_all(struct handle_space *s, const struct handle_new *list,
                               struct entry **entries, size_t n, struct err *e)
{
    enum err_code code = ERR_OK;
    struct entry *none;
    size_t placed = 0;
    for (; placed < n && code == ERR_OK; placed += code == ERR_OK) {
        find_base(entries[placed]);
        code = handles_place(s, entries[placed], e);
    }
    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        const char *name = list[i].spec.name;
        if (name && !handles_find_name(s, name))
            code = handles_name(entries[i], name, &none, e);
    }
    for (size_t i = 0; i < placed && code != ERR_OK; i++)
        handles_unlink(entries[i]);
    return code;
}

/* The rest, in the order of the list. olds[i]: the entry that is no more, or NULL. */
static void name_all(struct handle_space *s, const struct handle_new *list, struct entry **entries,
                     struct entry **olds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err never = ERR_INIT;
        if (list[i].spec.name && !entries[i]->name)
            (void)!handles_name(entries[i], list[i].spec.name, &olds[i], &never);
        handles_tell(s->table, entries[i], olds[i] ? olds[i]->id : NULL);
    }
}

/* ret_last: the last one's snapshot, if it is not NULL. */
static enum err_code add(struct handle_space *s, const struct handle_new *list,
                         struct entry **entries, struct entry **olds, size_t n,
                         struct handle *ret_last, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].spec.name)
            TRY(name_check(list[i].spec.name, e));
        entries[i] = entry_new(s, &list[i]);
        if (!entries[i])
            return err_oom(e);
    }
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = check_all(s, list, n, e);
    if (code == ERR_OK)
        code = place_all(s, list, entries, n, e);
    if (code == ERR_OK) {
        name_all(s, list, entries, olds, n);
        if (ret_last)
            handles_snapshot(entries[n - 1], ret_last);
    }
    handles_unlock(s->table);
    return code;
}

/* What is in no table: the old ones, or the new ones where they could not be added. */
static void free_all(struct entry **entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        handles_entry_free(entries[i]);
}

enum err_code handle_add(struct handle_space *s, struct array *array,
                         const struct handle_spec *spec, struct handle *ret, bool *ret_replaced,
                         struct err *e)
{
    const struct handle_new new = {array, *spec};
    struct entry *x = NULL, *old = NULL;
    const enum err_code code = add(s, &new, &x, &old, 1, ret, e);
    if (code == ERR_OK && ret_replaced)
        *ret_replaced = old != NULL;
    free_all(code == ERR_OK ? &old : &x, 1);
    return code;
}

enum err_code handle_add_all(struct handle_space *s, const struct handle_new *list, size_t n,
                             struct handle *ret, bool *ret_replaced, struct err *e)
{
    struct entry **entries = mem_calloc(2 * n + 1, sizeof *entries), **olds = entries + n;
    if (!entries)
        return err_oom(e);
    const enum err_code code = add(s, list, entries, olds, n, ret, e);
    if (code == ERR_OK && ret_replaced)
        *ret_replaced = olds[n - 1] != NULL;
    free_all(code == ERR_OK ? olds : entries, n);
    mem_free(entries);
    return code;
}

enum err_code handle_check_all(struct handle_space *s, const struct handle_new *list, size_t n,
                               struct err *e)
{
    pthread_mutex_lock(&s->table->lock);
    const enum err_code code = check_all(s, list, n, e);
    pthread_mutex_unlock(&s->table->lock);
    return code;
}
