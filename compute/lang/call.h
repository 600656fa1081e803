/* A call's name and arguments against the operations, without types: for the checker, and for
 * functions when they are defined.
 *
 * Pure; errors carry the place of the call or of the argument (expr_err). */
#ifndef ARRAYD_CALL_H
#define ARRAYD_CALL_H

#include <assert.h>
#include <stdbool.h>

#include "compute/lang/expr.h"
#include "compute/lang/func.h"
#include "compute/type/op.h"

#define CALL_MAX_PARAMS 16
static_assert(FUNC_MAX_PARAMS <= CALL_MAX_PARAMS, "call_match serves both");

/* Sorts the arguments under the parameters named in the signature ("f(x, axis=None)"): ret[p], of
 * CALL_MAX_PARAMS, is the argument's number, EXPR_NOWHERE if it was left out. The first `least` are
 * required. ERR_BAD_ARITY, ERR_UNKNOWN_FIELD. */
enum err_code call_match(const struct expr *x, uint32_t node, const char *signature, uint32_t least,
                         uint32_t *ret, struct err *e) must_check;

/* Whether the operation takes two or more arguments. */
bool call_is_variadic(enum op op);

/* An elementwise operation's signature, written into `ret` and returned. */
#define CALL_SIGNATURE 64
const char *call_op_signature(enum op op, char ret[CALL_SIGNATURE]);

/* *ret_known: whether the call names an operation. If it does, also checks its arguments. */
enum err_code call_check(const struct expr *x, uint32_t node, bool *ret_known,
                         struct err *e) must_check;

/* ERR_UNKNOWN_OPERATION, with a suggestion. */
enum err_code call_unknown(const struct expr *x, uint32_t node, struct err *e);

#endif
