/* Shares: arrays that a principal lets others use, by id.
 *
 * One table for all principals. A share names an array's id, its owner and who may use it; it keeps
 * neither the array nor its memory alive and is void when the handle goes, or who
 * may use it. Handlers
 * find arrays by share_get, in the request's own handles first; what changes the handle itself
 * stays the owner's to do (request_own_array). Thread-safe; one short lock,
 * which may be held over that of the handles, never the other way round. */
#ifndef ARRAYD_SERVER_SHARE_H
#define ARRAYD_SERVER_SHARE_H

#include "server/store/handles.h"

struct principal;
struct shares;

/* At most `max` shares of an owner. NULL without memory. */
struct shares *shares_new(uint32_t max);
void shares_free(struct shares *t); /* NULL allowed */

/* `who` may use the owner's array `id` from now on, for writing too where `write` says so;
 * *ret_again: he might before. ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code share_give(struct shares *t, const struct principal *owner, const char *id,
                         const struct principal *who, bool write, bool *ret_again,
                         struct err *e) must_check;
/* ERR_NOT_FOUND. */
enum err_code share_take_back(struct shares *t, const char *id, const char *who,
                              struct err *e) must_check;

/* Whether `who` may still use the array, and it is there. Any thread. */
bool share_lasts(struct shares *t, const char *id, const struct principal *who);

/* Calls visit for each share of the array, in the order they were given, with the lock held. */
void share_each(struct shares *t, const char *id,
                void (*visit)(void *user, const char *who, bool write), void *user);

/* The same of all shares that count, with the array's id and its owner. */
void share_each_of_all(struct shares *t,
                       void (*visit)(void *user, const char *id, const struct principal *owner,
                                     const struct principal *who, bool write),
                       void *user);

/* Whose arrays a reference may mean: those of the session of `space`, and what others share with
 * `who`. */
struct array_scope {
    struct shares *shares; /* NULL: nobody shares */
    const struct principal *who;
    struct handle_space *space;
};
/* What `ref` means in it: an array of his own, or the id of one that is shared with him
 * (ret->shared; read-only where it is shared for reading). ERR_NOT_FOUND. */
enum err_code share_get(const struct array_scope *in, const char *ref, struct handle *ret,
                        struct err *e) must_check;
/* The same of a shared array that was found before: whether its id still means that memory to them.
 * ERR_NOT_FOUND, ERR_READ_ONLY where it is to be written, ERR_CONFLICT: it was resized. */
enum err_code share_again(const struct array_scope *in, const char *id, const struct array *a,
                          bool write, struct err *e) must_check;

#endif
