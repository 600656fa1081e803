/* The functions of kernels/scalar/scalar.h, so that a literal and an array element mean the same.
 */
#include "compute/lang/fold_func.h"

#include <assert.h>

#include "compute/kernels/scalar/scalar.h"

#define FUNCTIONS_BOTH(X)                                                                          \
    X(RECIPROCAL)                                                                                  \
    X(SQRT)                                                                                        \
    X(RSQRT)                                                                                       \
    X(EXP)                                                                                         \
    X(EXPM1)                                                                                       \
    X(LOG)                                                                                         \
    X(LOG1P)                                                                                       \
    X(LOG2)                                                                                        \
    X(LOG10)                                                                                       \
    X(SIN)                                                                                         \
    X(COS)                                                                                         \
    X(TAN)                                                                                         \
    X(ASIN)                                                                                        \
    X(ACOS)                                                                                        \
    X(ATAN)                                                                                        \
    X(SINH)                                                                                        \
    X(COSH)                                                                                        \
    X(TANH)                                                                                        \
    X(ASINH)                                                                                       \
    X(ACOSH)                                                                                       \
    X(ATANH)                                                                                       \
    X(SIGMOID)
#define FUNCTIONS_REAL(X)  X(FRAC) X(CBRT) X(ERF) X(GAMMA) X(LGAMMA)
#define FUNCTIONS_REAL2(X) X(ATAN2) X(HYPOT) X(COPYSIGN) X(NEXTAFTER) X(LOGADDEXP)

double fold_real(enum op op, double x)
{
    switch (op) {
#define X(id)                                                                                      \
    case OP_##id:                                                                                  \
        return ar_##id##_F64(x);
        FUNCTIONS_BOTH(X)
        FUNCTIONS_REAL(X)
#undef X
    default:
        assert(!"an operation without a function of one double");
        return 0;
    }
}

double fold_real2(enum op op, double x, double y)
{
    switch (op) {
#define X(id)                                                                                      \
    case OP_##id:                                                                                  \
        return ar_##id##_F64(x, y);
        FUNCTIONS_REAL2(X)
#undef X
    default:
        assert(!"an operation without a function of two doubles");
        return 0;
    }
}

static ar_c128 to_ar(double complex z)
{
    return (ar_c128){creal(z), cimag(z)};
}

static double complex from_ar(ar_c128 z)
{
    return CMPLX(z.re, z.im);
}

double complex fold_complex(enum op op, double complex z)
{
    switch (op) {
#define X(id)                                                                                      \
    case OP_##id:                                                                                  \
        return from_ar(ar_##id##_C128(to_ar(z)));
        FUNCTIONS_BOTH(X)
#undef X
    default:
        assert(!"an operation without a function of a complex number");
        return 0;
    }
}

double complex fold_cmul(double complex a, double complex b)
{
    return from_ar(ar_MULTIPLY_C128(to_ar(a), to_ar(b)));
}

double complex fold_cdiv(double complex a, double complex b)
{
    return from_ar(ar_DIVIDE_C128(to_ar(a), to_ar(b)));
}
