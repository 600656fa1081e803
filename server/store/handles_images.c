/* Handles as others keep and see them: saving and restoring them, telling of their changes, pages
 * of them, and what operators see and end of them.
 *
 * How new ones are added, and the creation and syntax of ids and names, are here, too, for want of
 * room: this folder has as many files as one may have. */
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/random.h>

#include "compute/base/clock.h"
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

/* --- new handles ---
 *
 * Whatever can refuse is asked before the first table is changed. What can lack memory (places in
 * the tables, names that are new) comes before what cannot (names that change hands), so that of
 * several handles all are added or none, and nobody has lost a name. */

/* What new handles need beside what there is, or in place of others. */
struct needs {
    uint32_t handles;
    int64_t labels;
    size_t record;
};

static enum err_code check_needs(const struct handles *t, const struct needs *n, struct err *e)
{
    lock_held(&t->lock);
    TRY(handles_check_labels(t, n->labels, e));
    if (n->handles && (t->count >= t->max_handles || n->handles > t->max_handles - t->count))
        return err_set(e, ERR_QUOTA,
                       "there are %u arrays of at most %u (quota arrays), too many for %u more",
                       t->count, t->max_handles, n->handles);
    return observer_check_space(t->observer.to, t->observer.principal, n->record, e);
}

/* Whether all may be added. */
static enum err_code check_all(struct handle_space *s, const struct handle_new *list, size_t n,
                               struct err *e)
{
    struct needs needs = {0};
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
    }
    return check_needs(s->table, &needs, e);
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

/* ret_first: the first one's snapshot, if it is not NULL. */
static enum err_code add(struct handle_space *s, const struct handle_new *list,
                         struct entry **entries, struct entry **olds, size_t n,
                         struct handle *ret_first, struct err *e)
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
        if (ret_first)
            handles_snapshot(entries[0], ret_first);
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
                             struct err *e)
{
    struct entry **entries = mem_calloc(2 * n + 1, sizeof *entries), **olds = entries + n;
    if (!entries)
        return err_oom(e);
    const enum err_code code = add(s, list, entries, olds, n, NULL, e);
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

enum err_code handles_insert(struct handle_space *s, struct entry *x, const char *name,
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
        code = handles_insert(s, x, name, &old, e);
    }
    handles_unlock(t);
    if (code != ERR_OK)
        handles_entry_free(x);
    return code;
}

void handles_drop_coordinates(struct handles *t)
{
    struct entry *x, *tmp;
    pthread_mutex_lock(&t->lock);
    HASH_ITER (hh, t->by_id, x, tmp)
        if (!label_uses_has(&t->uses, x->id))
            handles_let_go(t, x->id);
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

/* --- ids --- */

void id_make(char prefix, char ret[ID_SIZE])
{
    static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned __int128 v = 0;
    unsigned char *p = (unsigned char *)&v;
    for (size_t got = 0; got < sizeof v;) {
        ssize_t n = getrandom(p + got, sizeof v - got, 0);
        if (n > 0) /* fails only when a signal comes before the kernel's pool is ready */
            got += (size_t)n;
    }
    ret[0] = prefix;
    ret[1] = '-';
    for (int i = 2; i < ID_SIZE - 1; i++, v /= 62)
        ret[i] = digit[v % 62];
    ret[ID_SIZE - 1] = '\0';
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool id_is(char prefix, const char *s)
{
    if (s[0] != prefix || s[1] != '-')
        return false;
    for (int i = 2; i < ID_SIZE - 1; i++)
        if (!is_alnum(s[i]))
            return false;
    return s[ID_SIZE - 1] == '\0';
}

void id_digest(const char id[ID_SIZE], char ret[ID_DIGEST])
{
    struct sha256_ctx sum;
    uint8_t bytes[ID_DIGEST / 2];
    sha256_init(&sum);
    sha256_update(&sum, ID_SIZE, (const uint8_t *)id);
    sha256_digest(&sum, sizeof bytes, bytes);
    base16_encode_update(ret, sizeof bytes, bytes);
    ret[ID_DIGEST - 1] = '\0';
}

enum err_code name_check(const char *name, struct err *e)
{
    size_t n = 0;
    while ((is_alnum(name[n]) || name[n] == '_') && n <= NAME_MAX_LEN)
        n++;
    if (n == 0 || n > NAME_MAX_LEN || name[n] || (name[0] >= '0' && name[0] <= '9'))
        return err_set(e, ERR_BAD_NAME,
                       "a name must be a letter or _, followed by up to %d letters, digits or _",
                       NAME_MAX_LEN - 1);
    return ERR_OK;
}
