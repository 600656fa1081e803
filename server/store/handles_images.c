/* Handles as others keep and see them: saving and restoring them, telling of their changes, pages
 * of them, and what operators see and end of them. */
#include <string.h>

#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/export.h"
#include "server/labels/labels.h"
#include "server/store/handles_int.h"

void handles_image(const struct entry *x, struct handle_image *ret)
{
    lock_held(&x->space->table->lock);
    *ret = (struct handle_image){.read_only = x->read_only,
                                 .coordinate = x->coordinate,
                                 .created_us = x->created_us,
                                 .restored_us = x->restored_us,
                                 .seq = x->seq,
                                 .array = x->array,
                                 .labels = x->labels};
    memcpy(ret->id, x->id, ID_SIZE);
    if (x->name)
        memcpy(ret->name, x->name->key.name, NAME_SIZE);
    memcpy(ret->session, x->space->session, ID_SIZE);
    memcpy(ret->view_of, x->view_of, ID_SIZE);
    memcpy(ret->base, x->base, ID_SIZE);
}

void handles_tell(struct handles *t, struct entry *now, const char *gone)
{
    lock_held(&t->lock);
    struct handle_image image;
    const struct observer_of *o = &t->observer;
    if (now)
        now->revision = ++t->revisions;
    if (!o->to)
        return;
    if (now)
        handles_image(now, &image);
    o->to->array(o->to->user, o->principal, now ? &image : NULL, gone);
}

struct handle_sight handle_sight_of(const struct handle *h)
{
    const uint64_t bits = (uint64_t)h->read_only | (uint64_t)(h->view_of[0] != '\0') << 1 |
                          (uint64_t)array_in_host_memory(h->array) << 2;
    return (struct handle_sight){.look = h->revision << 3 | bits,
                                 .version = array_version(h->array),
                                 .outside = array_written_outside(h->array)};
}

bool handle_see(struct handles *t, const char *id, struct handle_sight *ret)
{
    struct handle h;
    pthread_mutex_lock(&t->lock);
    const struct entry *x = handles_find(t, id);
    if (x) {
        handles_snapshot(x, &h);
        *ret = handle_sight_of(&h);
        handle_clear(&h); /* the entry has references, too */
    }
    pthread_mutex_unlock(&t->lock);
    return x;
}

void handles_observe(struct handles *t, const struct observer_of *o)
{
    t->observer = *o;
}

struct observer_of handles_observer(const struct handles *t)
{
    return t->observer;
}

void handles_limit_labels(struct handles *t, int64_t most)
{
    t->most_labels = most;
}

void handles_keep_leased(struct handles *t, struct leases *leases)
{
    t->leases = leases;
}

int64_t handles_labels(struct handles *t, int64_t *ret_most)
{
    pthread_mutex_lock(&t->lock);
    const int64_t n = t->labels;
    pthread_mutex_unlock(&t->lock);
    *ret_most = t->most_labels;
    return n;
}

void handle_image_clear(struct handle_image *x)
{
    array_unref(x->array);
    labels_unref(x->labels);
    x->array = NULL;
    x->labels = NULL;
}

/* The table of ids iterates in the order of insertion. */
enum err_code handles_images(struct handles *t, struct handle_image **ret, size_t *ret_n,
                             struct err *e)
{
    size_t n = 0;
    struct entry *x, *tmp;
    pthread_mutex_lock(&t->lock);
    struct handle_image *images = mem_calloc(t->count, sizeof *images);
    if (images)
        HASH_ITER (hh, t->by_id, x, tmp) {
            handles_image(x, &images[n]);
            array_ref(images[n].array);
            labels_ref(images[n++].labels);
        }
    pthread_mutex_unlock(&t->lock);
    if (!images)
        return err_oom(e);
    *ret = images;
    *ret_n = n;
    return ERR_OK;
}

/* In all tables, and tells: name NULL for none. */
static enum err_code insert(struct handle_space *s, struct entry *x, const char *name,
                            struct entry **ret_old, struct err *e)
{
    lock_held(&s->table->lock);
    *ret_old = NULL;
    TRY(handles_place(s, x, e));
    if (name && handles_name(x, name, ret_old, e) != ERR_OK) {
        handles_unlink(x);
        return e->code;
    }
    handles_tell(s->table, x, *ret_old ? (*ret_old)->id : NULL);
    return ERR_OK;
}

enum err_code handle_restore(struct handle_space *s, const struct handle_image *image,
                             struct err *e)
{
    struct handles *t = s->table;
    struct entry *x = mem_calloc(1, sizeof *x), *old = NULL;
    if (!x)
        return err_oom(e);
    memcpy(x->id, image->id, ID_SIZE);
    memcpy(x->view_of, image->view_of, ID_SIZE);
    memcpy(x->base, image->base, ID_SIZE);
    x->read_only = image->read_only;
    x->coordinate = image->coordinate;
    x->created_us = image->created_us;
    x->restored_us = image->restored_us;
    x->array = array_ref(image->array);
    x->labels = labels_ref(image->labels);
    x->space = s;
    const char *name = image->name[0] ? image->name : NULL;
    pthread_mutex_lock(&t->lock);
    enum err_code code = handles_check_name(s, name, NAME_NEW, e);
    if (code == ERR_OK && handles_find(t, x->id))
        code = err_set(e, ERR_CONFLICT, "the array '%s' already exists", x->id);
    if (code == ERR_OK) {
        if (t->next_seq < image->seq)
            t->next_seq = image->seq;
        code = insert(s, x, name, &old, e);
    }
    handles_unlock(t);
    if (code != ERR_OK)
        handles_entry_free(x);
    return code;
}

enum err_code handles_keep_coordinates(struct handles *t, const struct labels *l, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    const enum err_code code = label_uses_reserve(&t->uses, l, e);
    if (code == ERR_OK)
        label_uses_add(&t->uses, l);
    pthread_mutex_unlock(&t->lock);
    return code;
}

void handles_drop_coordinates(struct handles *t)
{
    struct entry *x, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->by_id, x, tmp)
        if (!label_uses_has(&t->uses, x->id))
            handles_unused(t, x->id);
    handles_unlock(t);
}

/* --- for operators --- */

enum err_code handle_end(struct handles *t, const char *id, struct handle *ret, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    struct entry *x = handles_find(t, id);
    if (x) {
        handles_snapshot(x, ret);
        handles_unlink(x);
        handles_tell(t, NULL, x->id);
    }
    handles_unlock(t);
    if (!x)
        return err_set(e, ERR_NOT_FOUND, "there is no array '%.80s'", id);
    handles_entry_free(x);
    return ERR_OK;
}

size_t handle_list_all(struct handles *t, uint64_t after, size_t limit,
                       void (*take)(void *user, const struct handle *h), void *user, bool *ret_more)
{
    size_t n = 0;
    struct entry *x, *tmp;
    *ret_more = false;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->by_id, x, tmp) {
        if (x->seq <= after)
            continue;
        *ret_more = n == limit;
        if (n == limit)
            break;
        struct handle h;
        handles_snapshot(x, &h);
        take(user, &h);
        n++;
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

void handle_space_seal(struct handle_space *s, bool sealed)
{
    pthread_mutex_lock(&s->table->lock);
    sealed ? s->seals++ : s->seals--;
    pthread_mutex_unlock(&s->table->lock);
}

/* --- looking --- */

void handles_set_max(struct handles *t, uint32_t max_handles)
{
    pthread_mutex_lock(&t->lock);
    t->max_handles = max_handles;
    pthread_mutex_unlock(&t->lock);
}

int64_t handles_count(struct handles *t)
{
    pthread_mutex_lock(&t->lock);
    int64_t n = t->count;
    pthread_mutex_unlock(&t->lock);
    return n;
}

int64_t handle_space_count(struct handle_space *s)
{
    pthread_mutex_lock(&s->table->lock);
    int64_t n = (int64_t)(s->n_order - s->holes);
    pthread_mutex_unlock(&s->table->lock);
    return n;
}

enum err_code handle_get_id(struct handles *t, const char *id, struct handle *ret, struct err *e)
{
    pthread_mutex_lock(&t->lock);
    const struct entry *x = handles_find(t, id);
    if (x)
        handles_snapshot(x, ret);
    pthread_mutex_unlock(&t->lock);
    return x ? ERR_OK : err_set(e, ERR_NOT_FOUND, "there is no array '%.80s'", id);
}

bool handle_exists(struct handles *t, const char *id)
{
    pthread_mutex_lock(&t->lock);
    bool there = handles_find(t, id);
    pthread_mutex_unlock(&t->lock);
    return there;
}

size_t handle_list(struct handle_space *s, uint64_t after, size_t limit, struct handle *ret,
                   bool *ret_more)
{
    size_t n = 0;
    bool more = false;
    pthread_mutex_lock(&s->table->lock);
    for (size_t i = handles_after(s, after); i < s->n_order && !more; i++) {
        if (!s->order[i].entry)
            continue;
        if (n < limit)
            handles_snapshot(s->order[i].entry, &ret[n++]);
        else
            more = true;
    }
    pthread_mutex_unlock(&s->table->lock);
    *ret_more = more;
    return n;
}

enum err_code handle_space_ask(struct handle_space *s, const struct handle_guard *guard,
                               struct err *e)
{
    enum err_code code = ERR_OK;
    pthread_mutex_lock(&s->table->lock);
    for (size_t i = 0; i < s->n_order && code == ERR_OK; i++)
        if (s->order[i].entry)
            code = guard->check(guard->user, s->order[i].entry->array, e);
    pthread_mutex_unlock(&s->table->lock);
    return code;
}

/* --- permissions --- */

enum err_code handle_changed(struct err *e)
{
    return err_set(e, ERR_CONFLICT, "another request changed the array in the meantime");
}

enum err_code handle_owned(const struct handle *h, struct err *e)
{
    return h->shared ? err_set(e, ERR_FORBIDDEN, "only the owner of the array can do that")
                     : ERR_OK;
}

enum err_code handle_writable(const struct handle *h, struct err *e)
{
    if (!h->read_only)
        return ERR_OK;
    if (h->reads_of)
        return err_set(e, ERR_FORBIDDEN,
                       "the array belongs to %s and is shared with you for reading only",
                       h->reads_of);
    return err_set(e, ERR_READ_ONLY, "the array '%s' is read-only", h->name[0] ? h->name : h->id);
}
