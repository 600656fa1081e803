/* Infix text → untyped expression: Python's syntax and precedence, see docs/expressions.md.
 *
 * Called by server/body/reader.c, statement.c and server/doctor.c. Nodes go into the
 * caller's struct expr (arena memory). Re-entrant. */
#ifndef ARRAYD_INFIX_H
#define ARRAYD_INFIX_H

#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/lang/expr.h"

/* Characters of a decimal number, at most; underscores do not count. */
#define INFIX_NUMBER_MAX 4096

/* Parses n bytes of UTF-8. Operators arrive as calls of their operation ("add", "negative", …),
 * brackets and tuples as EXPR_LIST, indexing as EXPR_GETITEM. A minus directly before a literal is
 * part of it, except before `**` (−2**2 is −4). `source` is the text's number in x->sources; errors
 * carry its pointer and the character offset: ERR_BAD_EXPRESSION, ERR_BAD_INDEX,
 * ERR_LITERAL_RANGE (an integer beyond 127 bits), ERR_EXPRESSION_TOO_LARGE (past x->max_nodes or
 * x->max_nesting), ERR_OUT_OF_MEMORY. */
enum err_code infix_parse(struct expr *x, uint32_t source, const char *text, size_t n,
                          uint32_t *ret_root, struct err *e) must_check;

#endif
