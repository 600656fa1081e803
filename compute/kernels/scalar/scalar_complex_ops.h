/* Template of the complex operations; included by scalar_complex.h once per type, with AR_T, AR_R,
 * the part's type AR_P and identifier AR_PT, and AR_DIV. No include guard. */

#define AR_PART(op)   AR_PASTE(ar_, op, _, AR_PT)
#define AR_MAKE(x, y) (AR_VALUE(AR_R){(AR_P)(x), (AR_P)(y)})

AR_FN AR_R AR_NAME(ADD)(AR_R a, AR_R b)
{
    return AR_MAKE(a.re + b.re, a.im + b.im);
}
AR_FN AR_R AR_NAME(SUBTRACT)(AR_R a, AR_R b)
{
    return AR_MAKE(a.re - b.re, a.im - b.im);
}
AR_FN AR_R AR_NAME(MULTIPLY)(AR_R a, AR_R b)
{
    return AR_MAKE(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
AR_FN AR_R AR_NAME(DIVIDE)(AR_R a, AR_R b)
{
    return AR_DIV(a, b);
}
AR_FN AR_R AR_NAME(RECIPROCAL)(AR_R a)
{
    return AR_DIV(AR_MAKE(1, 0), a);
}
AR_FN AR_R AR_NAME(SQUARE)(AR_R a)
{
    return AR_MAKE(a.re * a.re - a.im * a.im, a.re * a.im + a.im * a.re);
}
AR_FN AR_R AR_NAME(NEGATIVE)(AR_R a)
{
    return AR_MAKE(-a.re, -a.im);
}
AR_FN AR_R AR_NAME(POSITIVE)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(CONJ)(AR_R a)
{
    return AR_MAKE(a.re, -a.im);
}
AR_FN AR_P AR_NAME(REAL)(AR_R a)
{
    return a.re;
}
AR_FN AR_P AR_NAME(IMAG)(AR_R a)
{
    return a.im;
}
AR_FN AR_P AR_NAME(ABS)(AR_R a)
{
    return AR_PART(HYPOT)(a.re, a.im);
}
AR_FN AR_R AR_NAME(ROUND)(AR_R a)
{
    return AR_MAKE(AR_PART(ROUND)(a.re), AR_PART(ROUND)(a.im));
}
/* x/|x|; one infinite part gives a unit (also beside a NaN, because |x| is infinite then), two give
 * NaN */
AR_FN AR_R AR_NAME(SIGN)(AR_R a)
{
    ar_f64 re = a.re, im = a.im, ar = fabs(re), ai = fabs(im);
    if (ar == AR_INF && ai == AR_INF)
        return AR_MAKE((AR_P)AR_NAN, (AR_P)AR_NAN);
    if (ar == AR_INF)
        return AR_MAKE(re > 0 ? 1 : -1, 0);
    if (ai == AR_INF)
        return AR_MAKE(0, im > 0 ? 1 : -1);
    if (re != re || im != im)
        return AR_MAKE((AR_P)AR_NAN, (AR_P)AR_NAN);
    if (ar == 0 && ai == 0)
        return AR_MAKE(0, 0);
    /* scaled, because the modulus may overflow, or be a subnormal of few bits */
    ar_f64 s = ar > 0x1p+1000 || ai > 0x1p+1000 ? 0x1p-100 : 1;
    s = ar < 0x1p-900 && ai < 0x1p-900 ? 0x1p+150 : s;
    re *= s, im *= s;
    ar_f64 m = hypot(re, im);
    return AR_MAKE((AR_P)(re / m), (AR_P)(im / m));
}
AR_FN ar_bool AR_NAME(EQUAL)(AR_R a, AR_R b)
{
    return (a.re == b.re) & (a.im == b.im);
}
AR_FN ar_bool AR_NAME(NOT_EQUAL)(AR_R a, AR_R b)
{
    return (a.re != b.re) | (a.im != b.im);
}
AR_FN ar_bool AR_NAME(ISNAN)(AR_R a)
{
    return AR_PART(ISNAN)(a.re) | AR_PART(ISNAN)(a.im);
}
AR_FN ar_bool AR_NAME(ISINF)(AR_R a)
{
    return AR_PART(ISINF)(a.re) | AR_PART(ISINF)(a.im);
}
AR_FN ar_bool AR_NAME(ISFINITE)(AR_R a)
{
    return AR_PART(ISFINITE)(a.re) & AR_PART(ISFINITE)(a.im);
}

#if defined(AR_USE_CMATH)
#define AR_UNARY(op, fn)                                                                           \
    AR_FN AR_R AR_NAME(op)(AR_R a)                                                                 \
    {                                                                                              \
        ar_c128 r = fn(ar_c128_of((ar_f64)a.re, (ar_f64)a.im));                                    \
        return AR_MAKE((AR_P)r.re, (AR_P)r.im);                                                    \
    }
AR_UNARY(EXP, ar_cexp)
AR_UNARY(EXPM1, ar_cexpm1)
AR_UNARY(LOG, ar_clog)
AR_UNARY(LOG1P, ar_clog1p)
AR_UNARY(LOG2, ar_clog2)
AR_UNARY(LOG10, ar_clog10)
AR_UNARY(SQRT, ar_csqrt)
AR_UNARY(RSQRT, ar_crsqrt)
AR_UNARY(SIN, ar_csin)
AR_UNARY(COS, ar_ccos)
AR_UNARY(TAN, ar_ctan)
AR_UNARY(ASIN, ar_casin)
AR_UNARY(ACOS, ar_cacos)
AR_UNARY(ATAN, ar_catan)
AR_UNARY(SINH, ar_csinh)
AR_UNARY(COSH, ar_ccosh)
AR_UNARY(TANH, ar_ctanh)
AR_UNARY(ASINH, ar_casinh)
AR_UNARY(ACOSH, ar_cacosh)
AR_UNARY(ATANH, ar_catanh)
AR_UNARY(SIGMOID, ar_csigmoid)
#undef AR_UNARY
AR_FN AR_R AR_NAME(POW)(AR_R a, AR_R b)
{
    ar_c128 r =
        ar_cpow(ar_c128_of((ar_f64)a.re, (ar_f64)a.im), ar_c128_of((ar_f64)b.re, (ar_f64)b.im));
    return AR_MAKE((AR_P)r.re, (AR_P)r.im);
}
#endif

#undef AR_PART
#undef AR_MAKE
#undef AR_T
#undef AR_R
#undef AR_P
#undef AR_PT
#undef AR_DIV
