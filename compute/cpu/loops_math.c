/* Loops of the elementary functions of float32 and float64. */
#include "compute/cpu/loops_table.h"
#include "compute/kernels/scalar.h"

#define MATH_UNARY(X, T, A)                                                                        \
    X(CBRT, T, A, A)                                                                               \
    X(EXP, T, A, A)                                                                                \
    X(EXPM1, T, A, A)                                                                              \
    X(LOG, T, A, A)                                                                                \
    X(LOG1P, T, A, A)                                                                              \
    X(LOG2, T, A, A)                                                                               \
    X(LOG10, T, A, A)                                                                              \
    X(SIN, T, A, A)                                                                                \
    X(COS, T, A, A)                                                                                \
    X(TAN, T, A, A)                                                                                \
    X(ASIN, T, A, A)                                                                               \
    X(ACOS, T, A, A)                                                                               \
    X(ATAN, T, A, A)                                                                               \
    X(SINH, T, A, A)                                                                               \
    X(COSH, T, A, A)                                                                               \
    X(TANH, T, A, A)                                                                               \
    X(ASINH, T, A, A)                                                                              \
    X(ACOSH, T, A, A)                                                                              \
    X(ATANH, T, A, A)                                                                              \
    X(SIGMOID, T, A, A)                                                                            \
    X(ERF, T, A, A)                                                                                \
    X(GAMMA, T, A, A)                                                                              \
    X(LGAMMA, T, A, A)
#define MATH_BINARY(X, T, A)                                                                       \
    X(FLOOR_DIVIDE, T, A, A)                                                                       \
    X(REMAINDER, T, A, A)                                                                          \
    X(FMOD, T, A, A)                                                                               \
    X(POW, T, A, A)                                                                                \
    X(ATAN2, T, A, A)                                                                              \
    X(LOGADDEXP, T, A, A)

MATH_UNARY(LOOP_UNARY, F32, ar_f32)
MATH_BINARY(LOOP_BINARY, F32, ar_f32)
MATH_UNARY(LOOP_UNARY, F64, ar_f64)
MATH_BINARY(LOOP_BINARY, F64, ar_f64)
LOOP_BINARY(HYPOT, F64, ar_f64, ar_f64)

void LOOPS_FILL(math)(struct loop_table *t)
{
    MATH_UNARY(LOOP_SET, F32, )
    MATH_BINARY(LOOP_SET, F32, )
    MATH_UNARY(LOOP_SET, F64, )
    MATH_BINARY(LOOP_SET, F64, )
    LOOP_SET(HYPOT, F64, , )
}
