/* The table of elementwise operations. Called by the checker, the lowering, both backends and
 * /v1/info. Constant data; thread-safe. */
#ifndef ARRAYD_OP_H
#define ARRAYD_OP_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/type/dtype.h"

enum op {
#define OP(id, ...) OP_##id,
#include "compute/type/op.def"
#undef OP
    OP_COUNT
};

enum op_rule {
    RULE_SAME,
    RULE_NOBOOL,
    RULE_BOOL_I8,
    RULE_FLOAT,
    RULE_INTEGRAL,
    RULE_SHIFT,
    RULE_TRUTH,
    RULE_COMPARE
};
enum op_result { RESULT_SAME, RESULT_BOOL, RESULT_REAL };
enum { KINDS_B = 1, KINDS_I = 2, KINDS_F = 4, KINDS_C = 8 };

struct op_info {
    const char *name;
    unsigned char nargs;
    enum op_rule rule;
    enum op_result result;
    unsigned char kinds;   /* KINDS_* after conversion */
    unsigned char cost[2]; /* for a real and for a complex element */
};

extern const struct op_info op_table[OP_COUNT];

/* The operation called `name` (n bytes), or -1. */
int op_from_name(const char *name, size_t n);

/* The dtype of an operation's result when computed in `t`. */
enum dtype op_result_dtype(enum op op, enum dtype t);

/* Whether the operation is defined for operands of `t` (after conversion). */
bool op_defined(enum op op, enum dtype t);

/* The cost of one element relative to an addition, roughly: for deciding where to cut kernels and
 * which jobs are small. 1 for additions and comparisons, up to some tens for complex
 * transcendentals. */
uint32_t op_cost(enum op op, enum dtype t);

#endif
