/* Loops of complex64 and complex128, out of op.def and scalar.h. The elementary functions are
 * scalar calls. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOPS_C(id, nargs, result)                                                                 \
    LOOP_OF(id, nargs, result, C64, ar_c64, ar_f32)                                                \
    LOOP_OF(id, nargs, result, C128, ar_c128, ar_f64)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) LOOPS_##c(id, nargs, result)
#include "compute/type/op.def"
#undef OP

void LOOPS_FILL(complex)(struct loop_table *t)
{
#define SET_C(id)                                          LOOP_SET(id, C64) LOOP_SET(id, C128)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) SET_##c(id)
#include "compute/type/op.def"
#undef OP
}
