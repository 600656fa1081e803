/* Loops of the 32 and 64 bit integers, out of op.def and scalar.h; vectorised by the compiler.
 * loops_small.c is a separate file only so that the two compile in parallel. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOPS_I(id, nargs, result)                                                                 \
    LOOP_OF(id, nargs, result, I32, ar_i32, ar_i32)                                                \
    LOOP_OF(id, nargs, result, U32, ar_u32, ar_u32)                                                \
    LOOP_OF(id, nargs, result, I64, ar_i64, ar_i64)                                                \
    LOOP_OF(id, nargs, result, U64, ar_u64, ar_u64)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) LOOPS_##i(id, nargs, result)
#include "compute/type/op.def"
#undef OP

void LOOPS_FILL(int)(struct loop_table *t)
{
#define SET_I(id) LOOP_SET(id, I32) LOOP_SET(id, U32) LOOP_SET(id, I64) LOOP_SET(id, U64)

#define OP(id, name, nargs, rule, result, b, i, f, c, ...) SET_##i(id)
#include "compute/type/op.def"
#undef OP
}
