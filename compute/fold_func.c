/* The C library's functions under the names of op.def, and the few it lacks. */
#include "compute/fold_func.h"

#include <assert.h>
#include <math.h>

static double sigmoid(double x)
{
    double t = exp(-fabs(x));
    return x < 0 ? t / (1 + t) : 1 / (1 + t);
}

double fold_real(enum op op, double x)
{
    int sign;
    switch (op) {
    case OP_RECIPROCAL:
        return 1 / x;
    case OP_FRAC:
        return x - trunc(x);
    case OP_SQRT:
        return sqrt(x);
    case OP_RSQRT:
        return 1 / sqrt(x);
    case OP_CBRT:
        return cbrt(x);
    case OP_EXP:
        return exp(x);
    case OP_EXPM1:
        return expm1(x);
    case OP_LOG:
        return log(x);
    case OP_LOG1P:
        return log1p(x);
    case OP_LOG2:
        return log2(x);
    case OP_LOG10:
        return log10(x);
    case OP_SIN:
        return sin(x);
    case OP_COS:
        return cos(x);
    case OP_TAN:
        return tan(x);
    case OP_ASIN:
        return asin(x);
    case OP_ACOS:
        return acos(x);
    case OP_ATAN:
        return atan(x);
    case OP_SINH:
        return sinh(x);
    case OP_COSH:
        return cosh(x);
    case OP_TANH:
        return tanh(x);
    case OP_ASINH:
        return asinh(x);
    case OP_ACOSH:
        return acosh(x);
    case OP_ATANH:
        return atanh(x);
    case OP_SIGMOID:
        return sigmoid(x);
    case OP_ERF:
        return erf(x);
    case OP_GAMMA:
        return tgamma(x);
    case OP_LGAMMA:
        return lgamma_r(x, &sign);
    default:
        assert(!"an operation without a function of one double");
        return NAN;
    }
}

double fold_real2(enum op op, double x, double y)
{
    switch (op) {
    case OP_ATAN2:
        return atan2(x, y);
    case OP_HYPOT:
        return hypot(x, y);
    case OP_COPYSIGN:
        return copysign(x, y);
    case OP_NEXTAFTER:
        return nextafter(x, y);
    case OP_LOGADDEXP:
        if (isnan(x) || isnan(y))
            return x + y;
        return x == y ? x + M_LN2 : fmax(x, y) + log1p(exp(-fabs(x - y)));
    default:
        assert(!"an operation without a function of two doubles");
        return NAN;
    }
}

double complex fold_cmul(double complex a, double complex b)
{
    return CMPLX(creal(a) * creal(b) - cimag(a) * cimag(b),
                 creal(a) * cimag(b) + cimag(a) * creal(b));
}

double complex fold_cdiv(double complex a, double complex b)
{
    double re = creal(b), im = cimag(b);
    if (fabs(re) >= fabs(im)) {
        double r = im / re, d = re + im * r;
        return CMPLX((creal(a) + cimag(a) * r) / d, (cimag(a) - creal(a) * r) / d);
    }
    double r = re / im, d = re * r + im;
    return CMPLX((creal(a) * r + cimag(a)) / d, (cimag(a) * r - creal(a)) / d);
}

/* exp(z) − 1 without cancellation near 0. */
static double complex complex_expm1(double complex z)
{
    double x = creal(z), y = cimag(z), s = sin(y / 2);
    return CMPLX(expm1(x) * cos(y) - 2 * s * s, exp(x) * sin(y));
}

static double complex complex_log1p(double complex z)
{
    double x = creal(z), y = cimag(z);
    double re = hypot(x, y) < 0.5 ? log1p(x * (2 + x) + y * y) / 2 : log(hypot(1 + x, y));
    return CMPLX(re, atan2(y, 1 + x));
}

double complex fold_complex(enum op op, double complex z)
{
    switch (op) {
    case OP_RECIPROCAL:
        return fold_cdiv(1, z);
    case OP_SQRT:
        return csqrt(z);
    case OP_RSQRT:
        return fold_cdiv(1, csqrt(z));
    case OP_EXP:
        return cexp(z);
    case OP_EXPM1:
        return complex_expm1(z);
    case OP_LOG:
        return clog(z);
    case OP_LOG1P:
        return complex_log1p(z);
    case OP_LOG2:
        return clog(z) / M_LN2;
    case OP_LOG10:
        return clog(z) / M_LN10;
    case OP_SIN:
        return csin(z);
    case OP_COS:
        return ccos(z);
    case OP_TAN:
        return ctan(z);
    case OP_ASIN:
        return casin(z);
    case OP_ACOS:
        return cacos(z);
    case OP_ATAN:
        return catan(z);
    case OP_SINH:
        return csinh(z);
    case OP_COSH:
        return ccosh(z);
    case OP_TANH:
        return ctanh(z);
    case OP_ASINH:
        return casinh(z);
    case OP_ACOSH:
        return cacosh(z);
    case OP_ATANH:
        return catanh(z);
    case OP_SIGMOID:
        return creal(z) < 0 ? fold_cdiv(cexp(z), 1 + cexp(z)) : fold_cdiv(1, 1 + cexp(-z));
    default:
        assert(!"an operation without a function of a complex number");
        return NAN;
    }
}
