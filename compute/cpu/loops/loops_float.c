/* Loops of float32 and float64, out of op.def and scalar.h. The compiler vectorises operations of a
 * few instructions per element; loops_math.c replaces calls of the C library wherever it has a
 * vector form. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOPS_F(id, nargs, result)                                                                 \
    LOOP_OF(id, nargs, result, F32, ar_f32, ar_f32)                                                \
    LOOP_OF(id, nargs, result, F64, ar_f64, ar_f64)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) LOOPS_##f(id, nargs, result)
#include "compute/type/op.def"
#undef OP

/* the only operation of halves; see scalar_half.h */
LOOP_BINARY(NEXTAFTER, F16, ar_f16, ar_f16)
LOOP_BINARY(NEXTAFTER, BF16, ar_bf16, ar_bf16)

void LOOPS_FILL(float)(struct loop_table *t)
{
#define SET_F(id)                                          LOOP_SET(id, F32) LOOP_SET(id, F64)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) SET_##f(id)
#include "compute/type/op.def"
#undef OP
    LOOP_SET(NEXTAFTER, F16)
    LOOP_SET(NEXTAFTER, BF16)
}
