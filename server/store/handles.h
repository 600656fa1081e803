/* Handles: the ids and names under which clients know arrays.
 *
 * One `struct handles` per principal: the table of ids. One `struct handle_space` per session: its
 * names, and its handles in order of creation. An id is found from every session of its principal,
 * a name only from its own.
 *
 * Called by the handlers and by session.c. A handle holds one reference to its array; readers get a
 * copy of the entry (`struct handle`) with a reference of their own, so that it cannot change or
 * disappear under them. Thread-safe; one short lock per principal, never held during work on
 * arrays. */
#ifndef ARRAYD_SERVER_HANDLES_H
#define ARRAYD_SERVER_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/engine/engine.h"
#include "server/server.h"
#include "server/store/observer.h"

#define NAME_MAX_LEN  64
#define NAME_SIZE     (NAME_MAX_LEN + 1)
#define LIST_LIMIT    100 /* default of ?limit= */
#define LIST_MAX      1000
#define LIST_FROM_TOP 0 /* `after` of the first page */

struct handles;
struct handle_space;
struct leases;       /* server/store/lease.h */
struct labels;       /* server/labels/labels.h */
struct labels_patch; /* server/labels/labels_read.h */

/* A snapshot of a handle at the time of the call. */
struct handle {
    char id[ID_SIZE];
    char name[NAME_SIZE];  /* "" if it has none */
    char session[ID_SIZE]; /* the session that owns it */
    char view_of[ID_SIZE]; /* the array it is a view of, while that exists; otherwise "" */
    bool read_only;        /* no writes: the handle is marked, or it is a view of a marked one */
    bool coordinate;       /* as in handle_spec */
    bool shared;           /* another principal's, shared with this one (share.h) */
    const char *owner;     /* if shared: whose it is; otherwise NULL */
    const char *reads_of;  /* the same if it is shared for reading only */
    int64_t created_us;    /* microseconds since 1970 */
    int64_t restored_us;   /* time of the snapshot it was restored from (state.h), or 0 */
    uint64_t seq;          /* order of creation */
    uint64_t revision;     /* another after each change of the handle */
    struct array *array;   /* a reference owned by the struct, as labels is */
    struct labels *labels; /* NULL: none */
};
void handle_clear(struct handle *h); /* releases the references */
#define _cleanup_handle_ __attribute__((cleanup(handle_clear)))

/* ERR_READ_ONLY; ERR_FORBIDDEN if another principal shares it for reading. */
enum err_code handle_writable(const struct handle *h, struct err *e) must_check;
/* ERR_FORBIDDEN: it is another principal's shared array. */
enum err_code handle_owned(const struct handle *h, struct err *e) must_check;

/* The error where the handle has another array by now: ERR_CONFLICT. */
enum err_code handle_changed(struct err *e);

/* A client's condition on a change, checked under the table's lock, so that no other change of a
 * handle comes between check and change. `now`: the affected array, NULL if there is none yet.
 * check() must not call this module; its error is passed on. */
struct handle_guard {
    enum err_code (*check)(void *user, const struct array *now, struct err *e);
    void *user;
};

/* What to do if a name is taken. */
enum name_policy {
    NAME_NEW,    /* ERR_CONFLICT */
    NAME_REPLACE /* the old handle is released; ERR_READ_ONLY if it is read-only */
};

struct handle_spec {
    const char *name; /* NULL: none */
    enum name_policy policy;
    const char *id;                   /* that it gets; NULL: a new one */
    const char *view_of;              /* id of the array this one is a view of, or NULL */
    const struct handle_guard *guard; /* NULL: none */
    struct labels *labels;            /* a reference is taken; NULL: none */
    /* It goes with the last handle whose labels have it, unless it gets a name, or then is
     * read-only or has a lease. */
    bool coordinate;
};

struct handles *handles_new(uint32_t max_handles);                    /* NULL without memory */
void handles_free(struct handles *t);                                 /* after its spaces */
void handles_observe(struct handles *t, const struct observer_of *o); /* before it is used */
struct observer_of handles_observer(const struct handles *t);
void handles_set_max(struct handles *t, uint32_t max_handles); /* existing handles stay */
/* Most bytes of all handles' labels together; 0: any number. Before it is used. */
void handles_limit_labels(struct handles *t, int64_t most);
int64_t handles_labels(struct handles *t, int64_t *ret_most); /* their bytes now */
/* Where the arrays' leases are (borrowed; NULL: there are none). Before it is used. */
void handles_keep_leased(struct handles *t, struct leases *leases);
/* Arrays that are not there, because they found no room, count among those that have coordinates.
 * Once for each. ERR_OUT_OF_MEMORY. */
enum err_code handles_keep_coordinates(struct handles *t, const struct labels *l,
                                       struct err *e) must_check;
/* Once all are restored: ends those that go with others, and whose others are not there. */
void handles_drop_coordinates(struct handles *t);
int64_t handles_count(struct handles *t);

/* The handles of session `session` (copied). NULL without memory. */
struct handle_space *handle_space_new(struct handles *t, const char *session);
/* Releases every handle; adding to the space is ERR_NOT_FOUND from now on. */
void handle_space_close(struct handle_space *s);
/* Calls the guard for each of its arrays, up to the first one it refuses to lose. */
enum err_code handle_space_ask(struct handle_space *s, const struct handle_guard *guard,
                               struct err *e) must_check;
void handle_space_free(struct handle_space *s); /* closed and unused */
int64_t handle_space_count(struct handle_space *s);

/* "a-" or "s-" and 128 random bits. */
void id_make(char prefix, char ret[ID_SIZE]);
/* Whether `s` has the form of an id. */
bool id_is(char prefix, const char *s);
/* What may be known of a secret one: it tells nothing of it, and is another for every other. */
#define ID_DIGEST 33 /* hexadecimal digits, and NUL */
void id_digest(const char id[ID_SIZE], char ret[ID_DIGEST]);

/* ERR_BAD_NAME unless [A-Za-z_][A-Za-z0-9_]{0,63}. */
enum err_code name_check(const char *name, struct err *e) must_check;

/* The array that `ref` (an id or a name) refers to in a session. ERR_NOT_FOUND. */
enum err_code handle_get(struct handle_space *s, const char *ref, struct handle *ret,
                         struct err *e) must_check;

/* The same for an id, in any session. */
enum err_code handle_get_id(struct handles *t, const char *id, struct handle *ret,
                            struct err *e) must_check;

/* Marks of what a handle says and of its array's contents: another where these are. */
struct handle_sight {
    uint64_t look, version;
    bool outside; /* the contents change without a mark: array_written_outside */
};
struct handle_sight handle_sight_of(const struct handle *h);
/* The same by id, in any session, without a reference; false if there is no such handle. */
bool handle_see(struct handles *t, const char *id, struct handle_sight *ret);

/* Whether a handle with that id exists. */
bool handle_exists(struct handles *t, const char *id);

/* Whether handle_add with this name and policy would succeed now: called before costly work. */
enum err_code handle_check_name(struct handle_space *s, const char *name, enum name_policy policy,
                                struct err *e) must_check;

/* A new handle for `array`, which takes a reference of its own. *ret_replaced (may be NULL): a
 * handle of that name was released. ERR_BAD_NAME, ERR_CONFLICT, ERR_READ_ONLY, ERR_QUOTA,
 * ERR_OUT_OF_MEMORY, ERR_NOT_FOUND (the session was deleted). */
enum err_code handle_add(struct handle_space *s, struct array *array,
                         const struct handle_spec *spec, struct handle *ret, bool *ret_replaced,
                         struct err *e) must_check;

/* New handles for several arrays, whose names differ: all of them or none, at one moment, in the
 * order of the list also for whoever takes over; so coordinates come before what has them. Errors
 * as of handle_add. */
struct handle_new {
    struct array *array;
    struct handle_spec spec;
};
/* *ret and *ret_replaced are of the last, as of handle_add (both may be NULL). */
enum err_code handle_add_all(struct handle_space *s, const struct handle_new *list, size_t n,
                             struct handle *ret, bool *ret_replaced, struct err *e) must_check;
/* Whether that would succeed now, but for a lack of memory: before costly work. The arrays need not
 * be there yet. */
enum err_code handle_check_all(struct handle_space *s, const struct handle_new *list, size_t n,
                               struct err *e) must_check;

/* Changes a handle. ERR_CONFLICT if another handle has the name ("/name"), if the handle's array is
 * not `old`, or if it is to go with others ("/coordinate"), and has a name or is no coordinate of
 * any; the errors of labels_make; ERR_QUOTA; ERR_OUT_OF_MEMORY. *ret is the handle afterwards. The
 * name belongs to the session that owns the handle. guard: NULL, or it must agree. */
struct handle_change {
    const char *name;        /* NULL: unchanged; "": removed */
    bool replace;            /* whoever has the name is released, unless read-only or leased */
    int read_only;           /* 0, 1; -1: unchanged */
    const struct array *old; /* the array that `array` replaces */
    struct array *array;     /* the same memory under another description; NULL: unchanged */
    const struct labels_patch *labels; /* NULL: unchanged */
    const bool *coordinate;            /* as in handle_spec; NULL: unchanged */
};
enum err_code handle_update(struct handle_space *s, const char *ref,
                            const struct handle_change *change, const struct handle_guard *guard,
                            struct handle *ret, struct err *e) must_check;
/* Whether it may go with others now, under a new name (NULL: its own); errors as above. */
enum err_code handle_check_coordinate(struct handle_space *s, const char *ref, const char *name,
                                      struct err *e) must_check;

/* Replaces `old` by `array` (a reference is taken) under the id `id`; where the axes are as many,
 * they keep their names. ERR_CONFLICT if the handle
 * has another array by now, ERR_READ_ONLY, ERR_NOT_FOUND, ERR_OUT_OF_MEMORY, or the guard's error.
 */
enum err_code handle_set_array(struct handle_space *s, const char *id, const struct array *old,
                               struct array *array, const struct handle_guard *guard,
                               struct handle *ret, struct err *e) must_check;

/* Releases a handle. ERR_NOT_FOUND, ERR_READ_ONLY (marked itself: a view of a read-only array can
 * be removed). guard: NULL, or it must agree. */
enum err_code handle_remove(struct handle_space *s, const char *ref,
                            const struct handle_guard *guard, struct err *e) must_check;

/* Releases a handle unless somebody else wants it: one with a name stays if `ref` is its id, and
 * one that other arrays have as a coordinate is released with the last of them. Errors as above. */
enum err_code handle_let_go(struct handle_space *s, const char *ref,
                            const struct handle_guard *guard, struct err *e) must_check;

/* Releases a handle of any session, even a read-only one, for an operator or at the end of its
 * owner; *ret is what it was. ERR_NOT_FOUND. */
enum err_code handle_end(struct handles *t, const char *id, struct handle *ret,
                         struct err *e) must_check;
/* As handle_list, of all sessions, each handed to take, which owns it then and is called with the
 * table's lock held. It looks through the whole table up to the last one: for pages, not for one
 * handle at a time. */
size_t handle_list_all(struct handles *t, uint64_t after, size_t limit,
                       void (*take)(void *user, const struct handle *h), void *user,
                       bool *ret_more);
/* Before a session is deleted by an operator: its arrays are neither added to nor exchanged any
 * more (ERR_NOT_FOUND), so that a list of them is all of them. False: the deletion has failed. */
void handle_space_seal(struct handle_space *s, bool sealed);

/* A handle as the table stores it: everything needed to restore it in another process (state.h). */
struct handle_image {
    char id[ID_SIZE], name[NAME_SIZE], session[ID_SIZE];
    char view_of[ID_SIZE], base[ID_SIZE]; /* whether or not these exist; "": not a view */
    bool read_only;                       /* marked itself */
    bool coordinate;
    int64_t created_us, restored_us;
    uint64_t seq;
    struct array *array; /* a reference owned by the struct, as labels is */
    struct labels *labels;
};
void handle_image_clear(struct handle_image *x); /* releases the references */
/* All handles of the principal, in order of creation (mem_free). ERR_OUT_OF_MEMORY. */
enum err_code handles_images(struct handles *t, struct handle_image **ret, size_t *ret_n,
                             struct err *e) must_check;
/* Restores one handle in the table of a new process: to be called in their order (later ones are
 * younger); the maximum number does not apply. Takes a reference to the array. ERR_CONFLICT if the
 * id or name is in use. */
enum err_code handle_restore(struct handle_space *s, const struct handle_image *image,
                             struct err *e) must_check;

/* Up to `limit` handles of the session created after the one numbered `after` (LIST_FROM_TOP: from
 * the first), in order, into ret[0…]; returns how many. *ret_more: there are more. */
size_t handle_list(struct handle_space *s, uint64_t after, size_t limit, struct handle *ret,
                   bool *ret_more);

#endif
