/* What names in an expression mean: the request's "bind", then the session's arrays.
 *
 * Called by the handlers of evaluate and explain (through eval_body.h); its callback is the
 * check_env's. A name means one array throughout a request, whatever happens to the handles
 * meanwhile: the resolver holds a reference to each array it gave until resolver_clear. Memory is
 * the request's arena; one thread at a time. */
#ifndef ARRAYD_SERVER_RESOLVE_H
#define ARRAYD_SERVER_RESOLVE_H

#include <stddef.h>

#include "compute/base/arena.h"
#include "compute/check/check.h"
#include "protocol/json/json.h"
#include "server/store/handles.h"
#include "server/store/lease.h"
#include "server/store/share.h"

struct request;

struct resolved {
    const char *name;
    struct binding binding; /* arrays: one reference is held */
    char shared[ID_SIZE];   /* another's array: its id; else "" */
};

struct resolver {
    struct arena *arena;
    struct array_scope scope;
    struct lease_claim claim;
    struct resolved *bound; /* sorted by name */
    size_t n_bound;
    struct resolved *seen; /* the session's arrays that were asked for */
    size_t n_seen, cap_seen;
};

/* `claim`: what is read may be leased (no table: nothing is read). */
void resolver_init(struct resolver *r, struct request *req, struct handle_space *space,
                   struct lease_claim claim);
void resolver_clear(struct resolver *r);

/* Reads "bind": an object of names and arrays (id or name), weak scalars or typed constants. `bind`
 * may be absent. ERR_BAD_FIELD, ERR_BAD_NAME, ERR_NOT_FOUND (no such array), ERR_INEXACT_NUMBER …,
 * with the pointer. */
enum err_code resolver_bind(struct resolver *r, struct json bind, struct err *e) must_check;

/* The id of an array that it gave, where it is another's; NULL: it is not. */
const char *resolver_shared(const struct resolver *r, const struct array *a);

/* Whether all others' arrays that it gave are still shared: share_again. */
enum err_code resolver_ask_again(const struct resolver *r, struct err *e) must_check;

/* check_env.resolve; `user` is the resolver. */
enum err_code resolver_resolve(void *user, const char *name, struct binding *ret,
                               struct err *e) must_check;

#endif
