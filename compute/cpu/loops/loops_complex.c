/* Loops of complex64 and complex128. The elementary functions are scalar calls. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define COMPLEX_UNARY(X, T, A, P)                                                                  \
    X(ABS, T, P, A)                                                                                \
    X(NEGATIVE, T, A, A)                                                                           \
    X(POSITIVE, T, A, A)                                                                           \
    X(SIGN, T, A, A)                                                                               \
    X(SQUARE, T, A, A)                                                                             \
    X(RECIPROCAL, T, A, A)                                                                         \
    X(ROUND, T, A, A)                                                                              \
    X(ISFINITE, T, ar_bool, A)                                                                     \
    X(ISINF, T, ar_bool, A)                                                                        \
    X(ISNAN, T, ar_bool, A)                                                                        \
    X(CONJ, T, A, A)                                                                               \
    X(REAL, T, P, A)                                                                               \
    X(IMAG, T, P, A)                                                                               \
    X(SQRT, T, A, A)                                                                               \
    X(RSQRT, T, A, A)                                                                              \
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
    X(SIGMOID, T, A, A)
#define COMPLEX_BINARY(X, T, A)                                                                    \
    X(ADD, T, A, A)                                                                                \
    X(SUBTRACT, T, A, A)                                                                           \
    X(MULTIPLY, T, A, A)                                                                           \
    X(DIVIDE, T, A, A)                                                                             \
    X(POW, T, A, A)                                                                                \
    X(EQUAL, T, ar_bool, A)                                                                        \
    X(NOT_EQUAL, T, ar_bool, A)

COMPLEX_UNARY(LOOP_UNARY, C64, ar_c64, ar_f32)
COMPLEX_BINARY(LOOP_BINARY, C64, ar_c64)
COMPLEX_UNARY(LOOP_UNARY, C128, ar_c128, ar_f64)
COMPLEX_BINARY(LOOP_BINARY, C128, ar_c128)

void LOOPS_FILL(complex)(struct loop_table *t)
{
    COMPLEX_UNARY(LOOP_SET, C64, , )
    COMPLEX_BINARY(LOOP_SET, C64, )
    COMPLEX_UNARY(LOOP_SET, C128, , )
    COMPLEX_BINARY(LOOP_SET, C128, )
}
