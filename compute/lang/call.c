/* Matching arguments with parameters, and suggestions for unknown operations. */
#include "compute/lang/call.h"

#include <stdio.h>
#include <string.h>

static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 24 };
    size_t n = strlen(a), m = strlen(b), row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

enum err_code call_unknown(const struct expr *x, uint32_t node, struct err *e)
{
    const char *name = x->nodes[node].name;
    /* names from NumPy, torch or C */
    static const char *const others[][2] = {{"absolute", "abs"},
                                            {"amax", "max"},
                                            {"amin", "min"},
                                            {"arccos", "acos"},
                                            {"arccosh", "acosh"},
                                            {"arcsin", "asin"},
                                            {"arcsinh", "asinh"},
                                            {"arctan", "atan"},
                                            {"arctan2", "atan2"},
                                            {"arctanh", "atanh"},
                                            {"average", "mean"},
                                            {"conjugate", "conj"},
                                            {"cumprod", "cumulative_prod"},
                                            {"cumsum", "cumulative_sum"},
                                            {"fabs", "abs"},
                                            {"invert", "bitwise_invert"},
                                            {"left_shift", "bitwise_left_shift"},
                                            {"mod", "remainder"},
                                            {"power", "pow"},
                                            {"product", "prod"},
                                            {"right_shift", "bitwise_right_shift"},
                                            {"rint", "round"},
                                            {"concatenate", "concat"},
                                            {"transpose", "permute_dims"},
                                            {"swapaxes", "permute_dims"},
                                            {"moveaxis", "permute_dims"},
                                            {"ravel", "reshape"},
                                            {"convolve", "correlate"},
                                            {"tgamma", "gamma"},
                                            {"vdot", "dot"},
                                            {"vecdot", "dot"}};
    if (!strcmp(name, "fill_ghost"))
        return expr_err(x, node, e, ERR_UNKNOWN_OPERATION,
                        "fill_ghost(name) is a statement and cannot be used in an expression");
    const char *best = NULL;
    size_t distance = strlen(name) < 4 ? 2 : 3; /* must be strictly nearer than this */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i][0], name) == 0) {
            best = others[i][1];
            distance = 0;
        }
    for (int i = 0; i < OP_COUNT + FUNC_COUNT; i++) {
        const char *known = i < OP_COUNT ? op_table[i].name : func_table[i - OP_COUNT].name;
        size_t d = edit_distance(name, known);
        if (d > 1 && strlen(name) >= 3 && !strncmp(known, name, strlen(name)))
            d = 1; /* a prefix */
        if (d < distance) {
            best = known;
            distance = d;
        }
    }
    if (best)
        return expr_err(x, node, e, ERR_UNKNOWN_OPERATION,
                        "there is no operation '%s'; did you mean '%s'?", name, best);
    return expr_err(x, node, e, ERR_UNKNOWN_OPERATION, "there is no operation '%s'", name);
}

enum err_code call_match(const struct expr *x, uint32_t node, const char *signature, uint32_t least,
                         uint32_t *ret, struct err *e)
{
    const struct expr_node *n = &x->nodes[node];
    const struct expr_link *links = expr_args(x, n);
    const char *names[CALL_MAX_PARAMS];
    size_t lengths[CALL_MAX_PARAMS];
    uint32_t n_params = 0, positional = n->n_args - n->n_keywords;
    for (uint32_t p = 0; p < CALL_MAX_PARAMS; p++)
        ret[p] = EXPR_NOWHERE;
    for (; n_params < CALL_MAX_PARAMS; n_params++) {
        names[n_params] = func_param(signature, (int)n_params, &lengths[n_params]);
        if (!names[n_params])
            break;
    }
    if (positional > n_params)
        return expr_err(x, node, e, ERR_BAD_ARITY, "%s takes at most %u arguments but got %u: %s",
                        n->name, n_params, positional, signature);
    for (uint32_t i = 0; i < n->n_args; i++) {
        uint32_t p = i;
        if (i >= positional) {
            const char *key = links[i].keyword;
            for (p = 0; p < n_params; p++)
                if (strlen(key) == lengths[p] && memcmp(key, names[p], lengths[p]) == 0)
                    break;
            if (p == n_params)
                return expr_err(x, links[i].node, e, ERR_UNKNOWN_FIELD,
                                "%s has no parameter '%s': %s", n->name, key, signature);
            if (ret[p] != EXPR_NOWHERE)
                return expr_err(x, links[i].node, e, ERR_BAD_ARITY,
                                "parameter '%s' of %s is given twice", key, n->name);
        }
        ret[p] = i;
    }
    for (uint32_t p = 0; p < least; p++)
        if (ret[p] == EXPR_NOWHERE)
            return expr_err(x, node, e, ERR_BAD_ARITY, "%s is missing the argument '%.*s': %s",
                            n->name, (int)lengths[p], names[p], signature);
    return ERR_OK;
}

bool call_is_variadic(enum op op)
{
    switch (op) {
    case OP_ADD:
    case OP_MULTIPLY:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_LOGICAL_AND:
    case OP_LOGICAL_OR:
    case OP_BITWISE_AND:
    case OP_BITWISE_OR:
    case OP_BITWISE_XOR:
        return true;
    default:
        return false;
    }
}

const char *call_op_signature(enum op op, char ret[CALL_SIGNATURE])
{
    snprintf(ret, CALL_SIGNATURE, op_table[op].nargs == 2 ? "%s(x1, x2)" : "%s(x)",
             op_table[op].name);
    return ret;
}

enum err_code call_check(const struct expr *x, uint32_t node, bool *ret_known, struct err *e)
{
    const struct expr_node *n = &x->nodes[node];
    uint32_t args[CALL_MAX_PARAMS];
    char signature[CALL_SIGNATURE];
    int op = op_from_name(n->name, strlen(n->name));
    int func = op >= 0 ? -1 : func_from_name(n->name, strlen(n->name));
    *ret_known = op >= 0 || func >= 0;
    if (func >= 0)
        return call_match(x, node, func_table[func].signature, (uint32_t)func_table[func].least,
                          args, e);
    if (op < 0 || (call_is_variadic((enum op)op) && n->n_args > 2 && n->n_keywords == 0))
        return ERR_OK;
    return call_match(x, node, call_op_signature((enum op)op, signature), op_table[op].nargs, args,
                      e);
}
