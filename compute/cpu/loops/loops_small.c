/* Loops of bool and the 8 and 16 bit integers, out of op.def and scalar.h; vectorised by the
 * compiler. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOPS_I(id, nargs, result)                                                                 \
    LOOP_OF(id, nargs, result, I8, ar_i8, ar_i8)                                                   \
    LOOP_OF(id, nargs, result, U8, ar_u8, ar_u8)                                                   \
    LOOP_OF(id, nargs, result, I16, ar_i16, ar_i16)                                                \
    LOOP_OF(id, nargs, result, U16, ar_u16, ar_u16)
#define LOOPS_B(id, nargs, result) LOOP_OF(id, nargs, result, BOOL, ar_bool, ar_bool)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...)                                         \
    LOOPS_##b(id, nargs, result) LOOPS_##i(id, nargs, result)
#include "compute/type/op.def"
#undef OP

void LOOPS_FILL(small)(struct loop_table *t)
{
#define SET_B(id) LOOP_SET(id, BOOL)
#define SET_I(id) LOOP_SET(id, I8) LOOP_SET(id, U8) LOOP_SET(id, I16) LOOP_SET(id, U16)

#define OP(id, name, nargs, rule, result, b, i, f, c, ...) SET_##b(id) SET_##i(id)
#include "compute/type/op.def"
#undef OP
}
