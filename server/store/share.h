/* Shares: arrays that a principal lets others use, by id.
 *
 * One table for all principals. A share records an array's id, its owner and the principal who may
 * use it; it keeps neither the array nor its memory alive and is void when the handle or that
 * principal is gone. Called by the handlers, which find arrays by share_get, in the request's own
 * handles first; only the owner may change the handle itself (request_own_array). Thread-safe; one
 * short lock, which may be held around the handles' lock, never the other way round. */
#ifndef ARRAYD_SERVER_SHARE_H
#define ARRAYD_SERVER_SHARE_H

#include "server/store/handles.h"

struct principal;
struct shares;

/* At most `max` shares per owner. NULL without memory. */
struct shares *shares_new(uint32_t max);
void shares_free(struct shares *t);                               /* NULL allowed */
void shares_observe(struct shares *t, const struct observer *to); /* before it is used; borrowed */

/* A share as the observer is told of it. */
struct share_image {
    const char *id;
    const struct principal *owner, *who;
    bool write;
};

/* From now on `who` may use the owner's array `id`, with `write` for writing too; *ret_again: it
 * already could. ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code share_give(struct shares *t, const struct principal *owner, const char *id,
                         const struct principal *who, bool write, bool *ret_again,
                         struct err *e) must_check;
/* The same of an earlier process, whatever the limit is now. ERR_OUT_OF_MEMORY. */
enum err_code share_restore(struct shares *t, const struct principal *owner, const char *id,
                            const struct principal *who, bool write, struct err *e) must_check;
/* ERR_NOT_FOUND. */
enum err_code share_take_back(struct shares *t, const char *id, const char *who,
                              struct err *e) must_check;

/* Drops what is void: after accounts were removed. */
void shares_sweep(struct shares *t);

/* Whether `who` may still use (`write`: and write) the array, and it exists. Any thread. */
bool share_lasts(struct shares *t, const char *id, const struct principal *who, bool write);

/* The table that an array shared with `who` is in, and whether they may write it; NULL: it is not
 * shared. Any thread. */
struct handles *share_table(struct shares *t, const char *id, const struct principal *who,
                            bool *ret_write);

/* Up to `limit` of the arrays shared with `who` after number `after` (handle.seq here is the
 * share's number), oldest share first; the caller clears them. */
size_t share_list(struct shares *t, const struct principal *who, uint64_t after, size_t limit,
                  struct handle *ret, bool *ret_more);

/* Calls visit for each share of the array, in order of creation, with the lock held. */
void share_each(struct shares *t, const char *id,
                void (*visit)(void *user, const char *who, bool write), void *user);

/* The same for all valid shares, with the array's id and its owner. */
void share_each_of_all(struct shares *t,
                       void (*visit)(void *user, const char *id, const struct principal *owner,
                                     const struct principal *who, bool write),
                       void *user);

/* The arrays a reference may mean: those of the session of `space`, and those shared with `who`. */
struct array_scope {
    struct shares *shares; /* NULL: no sharing */
    const struct principal *who;
    struct handle_space *space;
};
/* The array that `ref` means there: one of the principal's own, or the id of one shared with it
 * (ret->shared; read-only if shared for reading). ERR_NOT_FOUND. */
enum err_code share_get(const struct array_scope *in, const char *ref, struct handle *ret,
                        struct err *e) must_check;
/* The same for a shared array found before: whether its id still means the same memory.
 * ERR_NOT_FOUND, ERR_READ_ONLY if it is to be written, ERR_CONFLICT: it was resized. */
enum err_code share_again(const struct array_scope *in, const char *id, const struct array *a,
                          bool write, struct err *e) must_check;

#endif
