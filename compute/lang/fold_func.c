/* The functions of kernels/scalar/scalar.h, so that a literal and an array element mean the same.
 */
#include "compute/lang/fold_func.h"

#include <assert.h>

#include "compute/kernels/scalar/scalar.h"

/* Selects a row of op.def by its number of arguments and whether it is defined for real floats. */
#define CALL(id, ...)                                                                              \
    case OP_##id:                                                                                  \
        return ar_##id##_F64(__VA_ARGS__);
#define NO_CALL(id, ...)

double fold_real(enum op op, double x)
{
    switch (op) {
#define REAL_1_F                                           CALL
#define REAL_1__                                           NO_CALL
#define REAL_2_F                                           NO_CALL
#define REAL_2__                                           NO_CALL
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) REAL_##nargs##_##f(id, x)
#include "compute/type/op.def"
#undef OP
    default:
        assert(!"an operation without a function of one double");
        return 0;
    }
}

double fold_real2(enum op op, double x, double y)
{
    switch (op) {
#undef REAL_1_F
#undef REAL_2_F
#define REAL_1_F                                           NO_CALL
#define REAL_2_F                                           CALL
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) REAL_##nargs##_##f(id, x, y)
#include "compute/type/op.def"
#undef OP
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
#define COMPLEX_1_SAME(id)                                                                         \
    case OP_##id:                                                                                  \
        return from_ar(ar_##id##_C128(to_ar(z)));
#define COMPLEX_1_REAL(id)
#define COMPLEX_1_BOOL(id)
#define COMPLEX_2_SAME(id)
#define COMPLEX_2_BOOL(id)
#define COMPLEX_C(id, nargs, result) COMPLEX_##nargs##_##result(id)
#define COMPLEX__(id, nargs, result)
#define OP(id, name, nargs, rule, result, b, i, f, c, ...) COMPLEX_##c(id, nargs, result)
#include "compute/type/op.def"
#undef OP
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
