/* What the files of handles share: the tables behind them. The lock of struct handles guards
 * everything; the callers of these functions hold it. */
#ifndef ARRAYD_SERVER_HANDLES_INT_H
#define ARRAYD_SERVER_HANDLES_INT_H

#include <pthread.h>

#include "compute/base/table.h"
#include "server/labels/label_uses.h"
#include "server/store/handles.h"

struct name_key {
    uint64_t space;
    char name[NAME_SIZE + 7]; /* zero-padded: the whole struct is the key */
};

struct name_node {
    struct name_key key;
    struct entry *entry;
    UT_hash_handle hh;
};

struct entry {
    char id[ID_SIZE];
    char view_of[ID_SIZE]; /* "" if not created as a view */
    char base[ID_SIZE];    /* the array at the start of the chain of views */
    bool read_only;
    bool coordinate; /* see handle_spec */
    bool unused;     /* it is in handles.unused, by prev and next */
    int64_t created_us, restored_us;
    uint64_t seq, revision;
    struct array *array;
    struct labels *labels;
    struct handle_space *space;
    struct name_node *name; /* NULL: none */
    struct entry *prev, *next;
    UT_hash_handle hh;
};

struct handles {
    pthread_mutex_t lock; /* everything here and in the spaces */
    struct entry *by_id;
    struct name_node *by_name;
    uint64_t next_seq, next_space, revisions;
    uint32_t max_handles;
    uint32_t count;
    int64_t labels, most_labels; /* bytes of all handles' */
    struct leases *leases;       /* NULL: none */
    struct label_uses uses;
    struct entry *unused; /* coordinates that go with the lock: handles_unlock */
    struct observer_of observer;
};

struct order_item {
    uint64_t seq;
    struct entry *entry; /* NULL: a hole */
};

struct handle_space {
    struct handles *table;
    uint64_t number; /* in name keys */
    char session[ID_SIZE];
    bool closed;
    unsigned seals; /* handle_space_seal */
    struct order_item *order;
    size_t n_order, cap_order, holes;
};

struct entry *handles_find(struct handles *t, const char *id); /* NULL: no such handle */
/* By id or name: ERR_NOT_FOUND. */
enum err_code handles_find_ref(struct handle_space *s, const char *ref, struct entry **ret,
                               struct err *e) must_check;
/* Marked read-only itself, or a view of a marked array. */
bool handles_protected(const struct entry *x);
/* Before a handle is written down. */
enum err_code handles_check_space(const struct handles *t, struct err *e) must_check;
/* "": it has no name any more. replace: the entry that has had it is unlinked and becomes *ret_old.
 * ERR_CONFLICT, ERR_READ_ONLY, ERR_LOCKED, ERR_OUT_OF_MEMORY. */
enum err_code handles_rename(struct entry *x, const char *name, bool replace,
                             struct entry **ret_old, struct err *e) must_check;
/* The entry gets the labels, whose uses are counted, instead of its own, which the caller releases
 * after the lock. */
struct labels *handles_relabel(struct entry *x, struct labels *take_labels);
/* ERR_NOT_FOUND for a closed space, and the policy's error for a name in use (NULL: none). */
enum err_code handles_check_name(struct handle_space *s, const char *name, enum name_policy policy,
                                 struct err *e) must_check;
/* The array and the labels are borrowed. */
void handles_image(const struct entry *x, struct handle_image *ret);
/* Tells that a handle is new or has changed, that one was removed, or that one takes the other's
 * place. Either may be NULL. */
void handles_tell(struct handles *t, struct entry *now, const char *gone);
struct name_node *handles_find_name(struct handle_space *s, const char *name);
/* The guard's error, if there is one; x may be NULL. */
enum err_code handles_ask(const struct handle_guard *guard, const struct entry *x,
                          struct err *e) must_check;
size_t handles_growth(size_t was, size_t is);
/* Whether the labels of all may take so many bytes more: ERR_QUOTA. */
enum err_code handles_check_labels(const struct handles *t, int64_t more, struct err *e) must_check;
/* Adds x to all tables but that of names; handles_unlink undoes it. ERR_OUT_OF_MEMORY. */
enum err_code handles_place(struct handle_space *s, struct entry *x, struct err *e) must_check;
/* Gives a placed entry a name. The entry that has had it is unlinked and becomes *ret_old; then
 * this cannot fail. Else ERR_OUT_OF_MEMORY. */
enum err_code handles_name(struct entry *x, const char *name, struct entry **ret_old,
                           struct err *e) must_check;
/* The first item of the space's order numbered above `seq`. */
size_t handles_after(const struct handle_space *s, uint64_t seq);
void handles_snapshot(const struct entry *x, struct handle *ret);
void handles_unlink(struct entry *x); /* from all tables; nobody is told */
/* The coordinate with that id, if it is to be deleted with the last array that has it (handle_spec)
 * and is neither read-only nor leased; else NULL. */
struct entry *handles_find_bound(struct handles *t, const char *id);
/* Nothing has the coordinate any more: it is deleted by handles_unlock, or from now on stays. */
void handles_unused(struct handles *t, const char *id);
/* Ends a change of handles: coordinates that nothing has any more are released. */
void handles_unlock(struct handles *t);
void handles_entry_free(struct entry *x); /* without the lock; NULL allowed */

#endif
