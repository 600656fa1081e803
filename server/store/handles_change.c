/* Changes of handles: names, marks and what is said of arrays; other arrays in their place. */
#include <pthread.h>
#include <string.h>

#include "compute/base/lock.h"
#include "server/labels/labels_read.h"
#include "server/store/handles_int.h"

/* The labels that the entry is to get; those of an array that it replaces make room for them. */
static enum err_code make_labels(const struct entry *x, const struct handle_change *change,
                                 struct labels **ret, struct err *e)
{
    lock_held(&x->space->table->lock);
    const struct handles *t = x->space->table;
    const struct name_node *node =
        change->replace && change->name ? handles_find_name(x->space, change->name) : NULL;
    const struct entry *old = node && node->entry != x ? node->entry : NULL;
    TRY(labels_make(x->labels, change->labels, &x->array->view, ret, e));
    return handles_check_labels(t,
                                (int64_t)labels_size(*ret) - (int64_t)labels_size(x->labels) -
                                    (old ? (int64_t)labels_size(old->labels) : 0),
                                e);
}

/* Whether what the entry's record grows by has room; whatever makes it smaller has. */
static enum err_code check_growth(const struct entry *x, const struct handle_change *change,
                                  const struct labels *labels, struct err *e)
{
    lock_held(&x->space->table->lock);
    const struct observer_of *o = &x->space->table->observer;
    const char *was = x->name ? x->name->key.name : "";
    const bool longer = change->name && strlen(change->name) > strlen(was);
    size_t n = change->array || longer || change->coordinate ? OBSERVER_RECORD
                                                             : 0; /* it may have its first grid */
    if (change->labels)
        n += handles_growth(labels_size(x->labels), labels_size(labels));
    return n ? observer_check_space(o->to, o->principal, n, e) : ERR_OK;
}

/* Whether it may go with others. name: a new one, or NULL. */
static enum err_code check_coordinate(const struct entry *x, const char *name, struct err *e)
{
    lock_held(&x->space->table->lock);
    if (name ? name[0] : x->name != NULL)
        return err_field(e, ERR_CONFLICT, "/coordinate",
                         "an array with a name is not deleted with those whose coordinate it is");
    if (!label_uses_beside(&x->space->table->uses, x->id, x->labels))
        return err_field(
            e, ERR_CONFLICT, "/coordinate",
            "no other array has this one among its coords: it would be deleted at once");
    return ERR_OK;
}

enum err_code handle_check_coordinate(struct handle_space *s, const char *ref, const char *name,
                                      struct err *e)
{
    struct entry *x;
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_find_ref(s, ref, &x, e);
    if (code == ERR_OK)
        code = check_coordinate(x, name, e);
    pthread_mutex_unlock(&s->table->lock);
    return code;
}

static void still_there(void *user, const char *id)
{
    (void)user;
    (void)id;
}

enum err_code handle_update(struct handle_space *s, const char *ref,
                            const struct handle_change *change, const struct handle_guard *guard,
                            struct handle *ret, struct err *e)
{
    struct entry *x, *old = NULL;
    struct array *gone = NULL;
    _cleanup_labels_ struct labels *labels = NULL;
    const char *name = change->name;
    if (name && name[0])
        TRY(name_check(name, e));
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_find_ref(s, ref, &x, e);
    if (code == ERR_OK)
        code = handles_ask(guard, x, e);
    if (code == ERR_OK && change->array && x->array != change->old)
        code = handle_changed(e);
    if (code == ERR_OK && change->labels)
        code = make_labels(x, change, &labels, e);
    if (code == ERR_OK && change->coordinate && *change->coordinate)
        code = check_coordinate(x, name, e);
    if (code == ERR_OK)
        code = check_growth(x, change, labels, e);
    if (code == ERR_OK)
        code = label_uses_reserve(&s->table->uses, labels, e);
    if (code == ERR_OK)
        label_uses_add(&s->table->uses, labels); /* before whoever has the name loses its own */
    if (code == ERR_OK && name) {
        code = handles_rename(x, name, change->replace, &old, e);
        if (code != ERR_OK)
            label_uses_drop(&s->table->uses, labels, still_there, NULL);
    }
    if (code == ERR_OK) {
        if (change->read_only >= 0)
            x->read_only = change->read_only;
        if (change->array) {
            gone = x->array;
            x->array = array_ref(change->array);
        }
        if (change->labels)
            labels = handles_relabel(x, labels);
        if (change->coordinate) /* its own labels may have been the last that had it */
            x->coordinate =
                *change->coordinate && label_uses_beside(&s->table->uses, x->id, x->labels);
        handles_tell(s->table, x, old ? old->id : NULL);
        handles_snapshot(x, ret);
    }
    handles_unlock(s->table);
    handles_entry_free(old);
    array_unref(gone);
    return code;
}

enum err_code handle_set_array(struct handle_space *s, const char *id, const struct array *old,
                               struct array *array, const struct handle_guard *guard,
                               struct handle *ret, struct err *e)
{
    struct entry *x;
    struct array *gone = NULL;
    _cleanup_labels_ struct labels *labels = NULL;
    pthread_mutex_lock(&s->table->lock);
    enum err_code code = handles_find_ref(s, id, &x, e);
    if (code == ERR_OK && x->space->seals)
        code = err_set(e, ERR_NOT_FOUND, "the session was deleted");
    else if (code == ERR_OK && handles_protected(x))
        code = err_set(e, ERR_READ_ONLY, "the array is read-only");
    else if (code == ERR_OK && x->array != old)
        code = handle_changed(e);
    else if (code == ERR_OK)
        code = handles_ask(guard, x, e);
    if (code == ERR_OK)
        code = handles_check_space(s->table, e);
    if (code == ERR_OK)
        code = labels_resize(x->labels, &x->array->view, &array->view, &labels, e);
    if (code == ERR_OK)
        code = label_uses_reserve(&s->table->uses, labels, e);
    if (code == ERR_OK) {
        gone = x->array;
        x->array = array_ref(array);
        label_uses_add(&s->table->uses, labels);
        labels = handles_relabel(x, labels);
        handles_tell(s->table, x, NULL);
        handles_snapshot(x, ret);
    }
    handles_unlock(s->table);
    array_unref(gone);
    return code;
}
