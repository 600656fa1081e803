/* JSON tree ↔ untyped expression (the second spelling of docs/expressions.md).
 *
 * Called by reader.c and function_json.c of server/body. Nodes go into the caller's struct expr
 * (arena memory). Re-entrant. */
#ifndef ARRAYD_TREE_H
#define ARRAYD_TREE_H

#include <stdint.h>

#include "compute/base/err.h"
#include "compute/lang/expr.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"

/* Reads a tree node and its descendants. Strings are names, except where the parameter is text
 * (boundary, dtype, method, mode, spacing), which become EXPR_STRING; attributes become keyword
 * arguments. `source` is the tree's number in x->sources. Errors carry the pointer from the body's
 * root: ERR_BAD_EXPRESSION, ERR_UNKNOWN_FIELD, ERR_INEXACT_NUMBER, ERR_BAD_DTYPE,
 * ERR_LITERAL_RANGE, ERR_BAD_INDEX, ERR_EXPRESSION_TOO_LARGE, ERR_OUT_OF_MEMORY. */
enum err_code tree_parse(struct expr *x, uint32_t source, struct json v, uint32_t *ret_root,
                         struct err *e) must_check;

/* Writes the expression below `root` as a tree (one JSON value). Chains of one variadic operation
 * become one node. Work memory is `arena`; ERR_OUT_OF_MEMORY. */
enum err_code tree_write(const struct expr *x, uint32_t root, struct arena *arena,
                         struct json_writer *w, struct err *e) must_check;

#endif
