/* The functions a principal has defined: a table by name.
 *
 * One `struct functions` a principal. Called by the handlers: handlers_functions.c defines and
 * lists, eval_body.c has calls written out. Definitions are immutable and live in their function's
 * memory: a reference to the function keeps them. A call finds its function when the expression is
 * evaluated, so a function may be replaced or deleted while others call it; that never makes a
 * circle. Thread-safe. */
#ifndef ARRAYD_SERVER_FUNCTIONS_H
#define ARRAYD_SERVER_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/lang/function.h"

struct functions;

struct definition {
    struct function *function;
    const char *text; /* the expression as it was sent, or a tree as JSON */
    size_t text_len;
    bool is_tree;
    int64_t created_us;
    uint64_t seq; /* in the order of the names' first definition */
};

struct functions *functions_new(uint32_t max); /* NULL without memory */
void functions_free(struct functions *t);      /* NULL allowed */
void functions_clear(struct functions *t);     /* deletes them all */

/* Enters a definition, whose function's reference is taken on success. `replace`: a taken name gets
 * the new definition, *ret_replaced says whether it had one (else ERR_CONFLICT). What it calls must
 * be there, with the arguments given: ERR_UNKNOWN_OPERATION, ERR_BAD_ARITY, ERR_UNKNOWN_FIELD,
 * ERR_RECURSION, with the place in the definition; ERR_QUOTA for one too many. */
enum err_code functions_define(struct functions *t, struct definition *take_d, bool replace,
                               bool *ret_replaced, struct err *e) must_check;
/* The same of a definition of an earlier process (state.h), in its order (one that comes later is
 * younger) and whatever it calls: what was deleted since it was defined may be among that.
 * ERR_CONFLICT for a taken name. */
enum err_code functions_restore(struct functions *t, struct definition *take_d,
                                struct err *e) must_check;
enum err_code functions_delete(struct functions *t, const char *name, struct err *e) must_check;
/* A reference to its function is the caller's. ERR_NOT_FOUND. */
enum err_code functions_get(struct functions *t, const char *name, struct definition **ret,
                            struct err *e) must_check;
/* Up to `limit` after number `after`, oldest first, the first in any case and then as many as have
 * most_bytes of text together; references as above. */
size_t functions_list(struct functions *t, uint64_t after, size_t limit, size_t most_bytes,
                      struct definition **ret, bool *ret_more);

/* What an expression calls, with what that calls, all as of one moment. References are the caller's
 * (functions_release); the array is x's arena memory. */
enum err_code functions_of(struct functions *t, const struct expr *x, struct function_set *ret,
                           struct err *e) must_check;
void functions_release(struct function_set *set);

#endif
