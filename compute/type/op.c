/* The table, generated from op.def, and a perfect-enough lookup: names are few, so a linear scan
 * over a length-filtered table is faster than hashing them. */
#include "compute/type/op.h"

#include <string.h>

#define B KINDS_B
#define I KINDS_I
#define F KINDS_F
#define C KINDS_C
const struct op_info op_table[OP_COUNT] = {
#define OP(id, name, nargs, rule, result, kinds)                                                   \
    [OP_##id] = {name, nargs, RULE_##rule, RESULT_##result, kinds},
#include "compute/type/op.def"
#undef OP
};
#undef B
#undef I
#undef F
#undef C

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
    bool complex_ = dtype_is_complex(t);
    switch (op) {
    case OP_ADD ... OP_MULTIPLY:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_BITWISE_AND ... OP_SQUARE:
    case OP_CEIL ... OP_FRAC:
    case OP_ISFINITE ... OP_IMAG:
        return complex_ ? 2 : 1;
    case OP_DIVIDE:
    case OP_SQRT:
    case OP_RECIPROCAL:
    case OP_COPYSIGN:
        return complex_ ? 8 : 2;
    case OP_GAMMA:
    case OP_LGAMMA:
        return 32;
    default:
        return complex_ ? 64 : 8;
    }
}
