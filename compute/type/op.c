/* The table, generated from op.def, and its lookup: with so few names, a linear scan that compares
 * lengths first is faster than hashing. */
#include "compute/type/op.h"

#include <string.h>

#define KIND_OF__ 0
#define KIND_OF_B KINDS_B
#define KIND_OF_I KINDS_I
#define KIND_OF_F KINDS_F
#define KIND_OF_C KINDS_C
const struct op_info op_table[OP_COUNT] = {
#define OP(id, name, nargs, rule, result, b, i, f, c, cost, complex_cost)                          \
    [OP_##id] = {name,                                                                             \
                 nargs,                                                                            \
                 RULE_##rule,                                                                      \
                 RESULT_##result,                                                                  \
                 KIND_OF_##b | KIND_OF_##i | KIND_OF_##f | KIND_OF_##c,                            \
                 {cost, complex_cost}},
#include "compute/type/op.def"
#undef OP
};

int op_from_name(const char *name, size_t n)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (op_table[i].name[0] == name[0] && strlen(op_table[i].name) == n &&
            memcmp(op_table[i].name, name, n) == 0)
            return i;
    return -1;
}

enum dtype op_result_dtype(enum op op, enum dtype t)
{
    switch (op_table[op].result) {
    case RESULT_BOOL:
        return DT_BOOL;
    case RESULT_REAL:
        return dtype_real(t);
    case RESULT_SAME:
        break;
    }
    return t;
}

bool op_defined(enum op op, enum dtype t)
{
    static const unsigned char of_kind[] = {[KIND_BOOL] = KINDS_B,
                                            [KIND_INT] = KINDS_I,
                                            [KIND_UINT] = KINDS_I,
                                            [KIND_FLOAT] = KINDS_F,
                                            [KIND_COMPLEX] = KINDS_C};
    return op_table[op].kinds & of_kind[dtype_kind(t)];
}

uint32_t op_cost(enum op op, enum dtype t)
{
    return op_table[op].cost[dtype_is_complex(t)];
}
