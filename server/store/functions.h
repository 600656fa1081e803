/* The functions a principal has defined: a table by name.
 *
 * One `struct functions` per principal. Called by the handlers: handlers_functions.c defines and
 * lists, eval_body.c expands calls. Definitions are immutable and live in their function's memory:
 * a reference to the function keeps them. A call finds its function when the expression is
 * evaluated, so a function may be replaced or deleted while others call it; that never makes a
 * cycle. Thread-safe. */
#ifndef ARRAYD_SERVER_FUNCTIONS_H
#define ARRAYD_SERVER_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/lang/function.h"
#include "server/store/observer.h"

struct functions;

struct definition {
    struct function *function;
    const char *text; /* the expression as sent, or a tree as JSON */
    size_t text_len;
    bool is_tree;
    int64_t created_us;
    uint64_t seq; /* order of the names' first definition */
};

struct functions *functions_new(uint32_t max);                            /* NULL without memory */
void functions_free(struct functions *t);                                 /* NULL allowed */
void functions_observe(struct functions *t, const struct observer_of *o); /* before it is used */
void functions_clear(struct functions *t);                                /* deletes them all */

/* Of a function that was in a table. */
static inline const struct definition *definition_of(const struct function *f)
{
    return f->definition;
}

/* Adds a definition; on success the table takes over its function's reference. `replace`: a name in
 * use gets the new definition, and *ret_replaced says whether it had one (otherwise ERR_CONFLICT).
 * The functions it calls must exist and take the arguments given: ERR_UNKNOWN_OPERATION,
 * ERR_BAD_ARITY, ERR_UNKNOWN_FIELD, ERR_RECURSION, with the place in the definition; ERR_QUOTA for
 * one too many. */
enum err_code functions_define(struct functions *t, struct definition *take_d, bool replace,
                               bool *ret_replaced, struct err *e) must_check;
/* The same for a definition of an earlier process (state.h). Definitions come in their order (later
 * ones are younger). Functions it calls may have been deleted since. ERR_CONFLICT for a name in
 * use. */
enum err_code functions_restore(struct functions *t, struct definition *take_d,
                                struct err *e) must_check;
enum err_code functions_delete(struct functions *t, const char *name, struct err *e) must_check;
/* The caller owns a reference to its function. ERR_NOT_FOUND. */
enum err_code functions_get(struct functions *t, const char *name, struct definition **ret,
                            struct err *e) must_check;
/* Up to `limit` functions after number `after`, oldest first; the first in any case, then as many
 * as have most_bytes of text together. References as above. */
size_t functions_list(struct functions *t, uint64_t after, size_t limit, size_t most_bytes,
                      struct definition **ret, bool *ret_more);

/* The functions that an expression calls, directly or indirectly, all as of one moment. The caller
 * owns the references (functions_release); the array is in x's arena. */
enum err_code functions_of(struct functions *t, const struct expr *x, struct function_set *ret,
                           struct err *e) must_check;
void functions_release(struct function_set *set);

#endif
