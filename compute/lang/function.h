/* Functions that users define: a name, parameters and an expression that replaces each call.
 *
 * Made and kept by server/store/functions.c; expanded (function_inline) before an expression is
 * checked, so that all later stages, including the plan cache, see only the expanded expression. An
 * argument is the same node wherever its parameter occurs: it is computed once, and may be anything
 * that is valid there (a list of axes, the name of a boundary). A parameter hides arrays, lets and
 * constants of its name. All other names in the body mean what they mean at the call, but never the
 * parameter of another function.
 *
 * A function is immutable and reference-counted, with memory of its own; thread-safe. */
#ifndef ARRAYD_FUNCTION_H
#define ARRAYD_FUNCTION_H

#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/lang/call.h"
#include "compute/lang/expr.h"

struct function_call {
    const char *name; /* of the called function */
    uint32_t node;    /* the first such call in the body */
};

struct function {
    _Atomic uint32_t refs;
    struct arena *arena; /* holds everything below, and this struct */
    const char *name;
    const char *signature; /* "f(u, v)" */
    const char *const *params;
    uint32_t n_params;
    const struct expr *body;
    struct function_call *calls; /* of other functions */
    uint32_t n_calls;
    const void *definition; /* its owner's, in the arena; NULL: none */
};

/* `body` was parsed in `take_arena` (taken on success) and has its root set; name and parameters
 * are copied. Checks everything that needs no types: each parameter is used, calls of operations
 * have valid arguments. Other calls are listed in `calls`. Returns one reference.
 * ERR_BAD_EXPRESSION, ERR_BAD_ARITY, ERR_UNKNOWN_FIELD, with the place in the body; ERR_BAD_FIELD
 * ("/params/1") for an unused parameter; ERR_OUT_OF_MEMORY. */
enum err_code function_new(struct arena *take_arena, const struct expr *body, const char *name,
                           const char *const *params, uint32_t n_params, struct function **ret,
                           struct err *e) must_check;
struct function *function_ref(struct function *f); /* returns f */
void function_unref(struct function *f);           /* NULL allowed */

/* Functions that an expression may call, and those that these call: borrowed, sorted by name,
 * without cycles. */
struct function_set {
    struct function *const *items;
    size_t n;
};

/* `x` with every call of a function in `set` expanded, in the same arena and with the same limits,
 * which count the expanded text. Calls of functions outside the set stay, for the checker to
 * report. Errors have their place in the request: ERR_BAD_ARITY, ERR_UNKNOWN_FIELD,
 * ERR_EXPRESSION_TOO_LARGE, ERR_OUT_OF_MEMORY. */
enum err_code function_inline(const struct expr *x, const struct function_set *set,
                              struct expr *ret, struct err *e) must_check;

#endif
