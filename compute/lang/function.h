/* Functions that users define: a name, parameters and an expression that is written out wherever
 * the function is called.
 *
 * Made and kept by server/store/functions.c; written out (function_inline) before an expression is
 * checked, so that everything behind that, the plan cache included, sees only what it is made of.
 * An argument stands in the place of its parameter as the same node each time: it is computed once,
 * and may be whatever the place allows (a list of axes, the name of a boundary). A parameter hides
 * arrays, lets and constants of its name; all other names in the body mean what they would mean
 * where the call stands, but never the parameter of another function.
 *
 * A function is immutable and reference-counted, with memory of its own; thread-safe. */
#ifndef ARRAYD_FUNCTION_H
#define ARRAYD_FUNCTION_H

#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/lang/call.h"
#include "compute/lang/expr.h"

struct function_call {
    const char *name; /* of the function that is called */
    uint32_t node;    /* the first such call in the body */
};

struct function {
    _Atomic uint32_t refs;
    struct arena *arena; /* all below, and this, live here */
    const char *name;
    const char *signature; /* "f(u, v)" */
    const char *const *params;
    uint32_t n_params;
    const struct expr *body;
    struct function_call *calls; /* of other functions */
    uint32_t n_calls;
};

/* `body` is what was parsed in `take_arena` (taken on success), its root set; name and parameters
 * are copied. Checks what can be said without types: that each parameter is used, that calls of
 * operations have the arguments these take. What else it calls is listed in `calls`. One reference.
 * ERR_BAD_EXPRESSION, ERR_BAD_ARITY, ERR_UNKNOWN_FIELD, with the place in the body;
 * ERR_BAD_FIELD ("/params/1") for a parameter that is not used; ERR_OUT_OF_MEMORY. */
enum err_code function_new(struct arena *take_arena, const struct expr *body, const char *name,
                           const char *const *params, uint32_t n_params, struct function **ret,
                           struct err *e) must_check;
struct function *function_ref(struct function *f); /* returns f */
void function_unref(struct function *f);           /* NULL allowed */

/* Functions that an expression may call, and those that these call: borrowed, sorted by their
 * names. No circles. */
struct function_set {
    struct function *const *items;
    size_t n;
};

/* `x` with every call of a function in `set` written out, in the same arena and with the same
 * limits, which count what was written out. What is called and not in the set stays, for the
 * checker to complain about. Errors have their place in the request: ERR_BAD_ARITY,
 * ERR_UNKNOWN_FIELD, ERR_EXPRESSION_TOO_LARGE, ERR_OUT_OF_MEMORY. */
enum err_code function_inline(const struct expr *x, const struct function_set *set,
                              struct expr *ret, struct err *e) must_check;

#endif
