/* Loops of float32 and float64 that are a few instructions an element; vectorised by the compiler.
 * The elementary functions are in loops_math.c. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define FLOAT_UNARY(X, T, A)                                                                       \
    X(ABS, T, A, A)                                                                                \
    X(NEGATIVE, T, A, A)                                                                           \
    X(POSITIVE, T, A, A)                                                                           \
    X(SIGN, T, A, A)                                                                               \
    X(SQUARE, T, A, A)                                                                             \
    X(RECIPROCAL, T, A, A)                                                                         \
    X(CEIL, T, A, A)                                                                               \
    X(FLOOR, T, A, A)                                                                              \
    X(TRUNC, T, A, A)                                                                              \
    X(ROUND, T, A, A)                                                                              \
    X(FRAC, T, A, A)                                                                               \
    X(SQRT, T, A, A)                                                                               \
    X(RSQRT, T, A, A)                                                                              \
    X(ISFINITE, T, ar_bool, A)                                                                     \
    X(ISINF, T, ar_bool, A)                                                                        \
    X(ISNAN, T, ar_bool, A)                                                                        \
    X(SIGNBIT, T, ar_bool, A)                                                                      \
    X(CONJ, T, A, A)                                                                               \
    X(REAL, T, A, A)                                                                               \
    X(IMAG, T, A, A)
#define FLOAT_BINARY(X, T, A)                                                                      \
    X(ADD, T, A, A)                                                                                \
    X(SUBTRACT, T, A, A)                                                                           \
    X(MULTIPLY, T, A, A)                                                                           \
    X(DIVIDE, T, A, A)                                                                             \
    X(MAXIMUM, T, A, A)                                                                            \
    X(MINIMUM, T, A, A)                                                                            \
    X(COPYSIGN, T, A, A)                                                                           \
    X(NEXTAFTER, T, A, A)                                                                          \
    X(EQUAL, T, ar_bool, A)                                                                        \
    X(NOT_EQUAL, T, ar_bool, A)                                                                    \
    X(LESS, T, ar_bool, A)                                                                         \
    X(LESS_EQUAL, T, ar_bool, A)                                                                   \
    X(GREATER, T, ar_bool, A)                                                                      \
    X(GREATER_EQUAL, T, ar_bool, A)

FLOAT_UNARY(LOOP_UNARY, F32, ar_f32)
FLOAT_BINARY(LOOP_BINARY, F32, ar_f32)
LOOP_BINARY(HYPOT, F32, ar_f32, ar_f32)
/* the only operation of halves; see scalar_half.h */
LOOP_BINARY(NEXTAFTER, F16, ar_f16, ar_f16)
LOOP_BINARY(NEXTAFTER, BF16, ar_bf16, ar_bf16)
FLOAT_UNARY(LOOP_UNARY, F64, ar_f64)
FLOAT_BINARY(LOOP_BINARY, F64, ar_f64)

void LOOPS_FILL(float)(struct loop_table *t)
{
    FLOAT_UNARY(LOOP_SET, F32, )
    FLOAT_BINARY(LOOP_SET, F32, )
    LOOP_SET(HYPOT, F32, , )
    LOOP_SET(NEXTAFTER, F16, , )
    LOOP_SET(NEXTAFTER, BF16, , )
    FLOAT_UNARY(LOOP_SET, F64, )
    FLOAT_BINARY(LOOP_SET, F64, )
}
