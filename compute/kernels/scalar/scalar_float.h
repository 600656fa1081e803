/* Template of the operations on float32 and float64; included by scalar.h once per type, with AR_T,
 * AR_R, AR_UI (the unsigned integer of the same width), AR_WIDTH and AR_M(fn) (the C library's name
 * for the type: sqrtf, sqrt). No include guard.
 *
 * gamma of a negative integer is NaN, of ±0 is ±inf; lgamma there is +inf. */

#define AR_BITS(x)  AR_PASTE(ar_, bits, _, AR_T)(x)
#define AR_FROM(u)  AR_PASTE(ar_, from_bits, _, AR_T)(u)
#define AR_SIGN_BIT ((AR_UI)1 << (AR_WIDTH - 1))

AR_FN AR_R AR_NAME(ADD)(AR_R a, AR_R b)
{
    return a + b;
}
AR_FN AR_R AR_NAME(SUBTRACT)(AR_R a, AR_R b)
{
    return a - b;
}
AR_FN AR_R AR_NAME(MULTIPLY)(AR_R a, AR_R b)
{
    return a * b;
}
AR_FN AR_R AR_NAME(DIVIDE)(AR_R a, AR_R b)
{
    return a / b;
}
/* A GPU's own negation gives every NaN the same sign. */
AR_FN AR_R AR_NAME(NEGATIVE)(AR_R a)
{
    return AR_FROM(AR_BITS(a) ^ AR_SIGN_BIT);
}
AR_FN AR_R AR_NAME(POSITIVE)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(SQUARE)(AR_R a)
{
    return a * a;
}
AR_FN AR_R AR_NAME(RECIPROCAL)(AR_R a)
{
    return (AR_R)1 / a;
}
AR_FN AR_R AR_NAME(ABS)(AR_R a)
{
    return AR_M(fabs)(a);
}
AR_FN AR_R AR_NAME(SQRT)(AR_R a)
{
    return AR_M(sqrt)(a);
}
AR_FN AR_R AR_NAME(RSQRT)(AR_R a)
{
    return (AR_R)1 / AR_M(sqrt)(a);
}
AR_FN AR_R AR_NAME(CEIL)(AR_R a)
{
    return AR_M(ceil)(a);
}
AR_FN AR_R AR_NAME(FLOOR)(AR_R a)
{
    return AR_M(floor)(a);
}
AR_FN AR_R AR_NAME(TRUNC)(AR_R a)
{
    return AR_M(trunc)(a);
}
AR_FN AR_R AR_NAME(ROUND)(AR_R a)
{
    return AR_M(rint)(a);
}
AR_FN AR_R AR_NAME(FRAC)(AR_R a)
{
    return a - AR_M(trunc)(a);
}
AR_FN AR_R AR_NAME(CONJ)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(REAL)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(IMAG)(AR_R a)
{
    (void)a;
    return 0;
}
AR_FN AR_R AR_NAME(SIGN)(AR_R a)
{
    AR_R r = a > 0 ? (AR_R)1 : (AR_R)0;
    r = a < 0 ? (AR_R)-1 : r;
    return a != a ? a : r;
}
AR_FN AR_R AR_NAME(COPYSIGN)(AR_R a, AR_R b)
{
    return AR_FROM((AR_BITS(a) & ~AR_SIGN_BIT) | (AR_BITS(b) & AR_SIGN_BIT));
}

AR_FN AR_R AR_NAME(MAXIMUM)(AR_R a, AR_R b)
{
    return AR_NAME(larger)(a, b);
}
AR_FN AR_R AR_NAME(MINIMUM)(AR_R a, AR_R b)
{
    return AR_NAME(smaller)(a, b);
}

AR_FN ar_bool AR_NAME(EQUAL)(AR_R a, AR_R b)
{
    return a == b;
}
AR_FN ar_bool AR_NAME(NOT_EQUAL)(AR_R a, AR_R b)
{
    return a != b;
}
AR_FN ar_bool AR_NAME(LESS)(AR_R a, AR_R b)
{
    return a < b;
}
AR_FN ar_bool AR_NAME(LESS_EQUAL)(AR_R a, AR_R b)
{
    return a <= b;
}
AR_FN ar_bool AR_NAME(GREATER)(AR_R a, AR_R b)
{
    return a > b;
}
AR_FN ar_bool AR_NAME(GREATER_EQUAL)(AR_R a, AR_R b)
{
    return a >= b;
}
AR_FN ar_bool AR_NAME(ISNAN)(AR_R a)
{
    return a != a;
}
AR_FN ar_bool AR_NAME(ISINF)(AR_R a)
{
    return AR_M(fabs)(a) == (AR_R)AR_INF;
}
AR_FN ar_bool AR_NAME(ISFINITE)(AR_R a)
{
    return AR_M(fabs)(a) < (AR_R)AR_INF;
}
AR_FN ar_bool AR_NAME(SIGNBIT)(AR_R a)
{
    return (ar_bool)(AR_BITS(a) >> (AR_WIDTH - 1));
}

AR_FN AR_R AR_NAME(NEXTAFTER)(AR_R a, AR_R b)
{
    AR_UI u = AR_BITS(a);
    /* one more away from zero, one less towards it; bits of one sign are ordered as integers */
    AR_UI up = (a < b) == (a > 0) ? u + 1 : u - 1;
    AR_UI tiny = (AR_BITS(b) & AR_SIGN_BIT) | 1;
    AR_R r = AR_FROM(a == 0 ? tiny : up);
    r = a == b ? b : r;
    return a != a || b != b ? a + b : r;
}

AR_FN AR_R AR_NAME(FMOD)(AR_R a, AR_R b)
{
    return AR_M(fmod)(a, b);
}
/* Python's: the remainder has the divisor's sign; the quotient is computed from the exact remainder
 * r = fmod(a, b), so that a == b·(a // b) + a % b as nearly as floats allow (the rules of CPython's
 * float_divmod). */
AR_FN AR_R AR_NAME(REMAINDER_FROM)(AR_R r, AR_R b)
{
    AR_R fixed = (b < 0) != (r < 0) ? r + b : r;
    r = r == 0 ? AR_NAME(COPYSIGN)(0, b) : fixed;
    return b == 0 ? (AR_R)AR_NAN : r;
}
AR_FN AR_R AR_NAME(FLOOR_DIVIDE_FROM)(AR_R r, AR_R a, AR_R b)
{
    AR_R q = (a - r) / b;
    q = (r != 0) & ((b < 0) != (r < 0)) ? q - 1 : q;
    AR_R f = AR_M(floor)(q);
    f = q - f > (AR_R)0.5 ? f + 1 : f;
    f = q == 0 ? AR_NAME(COPYSIGN)(0, a / b) : f;
    return b == 0 ? a / b : f;
}
AR_FN AR_R AR_NAME(REMAINDER)(AR_R a, AR_R b)
{
    return AR_NAME(REMAINDER_FROM)(AR_M(fmod)(a, b), b);
}
AR_FN AR_R AR_NAME(FLOOR_DIVIDE)(AR_R a, AR_R b)
{
    return AR_NAME(FLOOR_DIVIDE_FROM)(AR_M(fmod)(a, b), a, b);
}

#define AR_UNARY(op, fn)                                                                           \
    AR_FN AR_R AR_NAME(op)(AR_R a)                                                                 \
    {                                                                                              \
        return AR_M(fn)(a);                                                                        \
    }
AR_UNARY(CBRT, cbrt)
AR_UNARY(EXP, exp)
AR_UNARY(EXPM1, expm1)
AR_UNARY(LOG, log)
AR_UNARY(LOG1P, log1p)
AR_UNARY(LOG2, log2)
AR_UNARY(LOG10, log10)
AR_UNARY(SIN, sin)
AR_UNARY(COS, cos)
AR_UNARY(TAN, tan)
AR_UNARY(ASIN, asin)
AR_UNARY(ACOS, acos)
AR_UNARY(ATAN, atan)
AR_UNARY(SINH, sinh)
AR_UNARY(COSH, cosh)
AR_UNARY(TANH, tanh)
AR_UNARY(ASINH, asinh)
AR_UNARY(ACOSH, acosh)
AR_UNARY(ATANH, atanh)
AR_UNARY(ERF, erf)
AR_UNARY(GAMMA, tgamma)
#undef AR_UNARY

AR_FN AR_R AR_NAME(LGAMMA)(AR_R a)
{
#if defined(__CUDACC_RTC__) /* its lgammaf is inaccurate near the zeros, like its lgamma */
#if AR_WIDTH == 32
    return (ar_f32)lgamma((ar_f64)a);
#else
    return a > -20 && a < -2 ? ar_lgamma_minus_F64(a) : lgamma(a);
#endif
#else
    int sign; /* lgamma() itself writes a global */
#if AR_WIDTH == 32
    return lgammaf_r(a, &sign);
#else
    return lgamma_r(a, &sign);
#endif
#endif
}
AR_FN AR_R AR_NAME(POW)(AR_R a, AR_R b)
{
    return AR_M(pow)(a, b);
}
AR_FN AR_R AR_NAME(ATAN2)(AR_R a, AR_R b)
{
    return AR_M(atan2)(a, b);
}
AR_FN AR_R AR_NAME(HYPOT)(AR_R a, AR_R b)
{
#if AR_WIDTH == 32
    /* exact squares in float64, which also cannot overflow */
    ar_f32 r = (ar_f32)sqrt((ar_f64)a * a + (ar_f64)b * b);
    return fabsf(a) == (ar_f32)AR_INF || fabsf(b) == (ar_f32)AR_INF ? (ar_f32)AR_INF : r;
#else
    return hypot(a, b);
#endif
}
/* log(exp(a) + exp(b)) */
AR_FN AR_R AR_NAME(LOGADDEXP)(AR_R a, AR_R b)
{
    AR_R hi = a > b ? a : b, lo = a > b ? b : a;
    if (a == b) /* also two equal infinities */
        return a + (AR_R)0.69314718055994530942;
#if AR_WIDTH == 32
    return (ar_f32)((ar_f64)hi + log1p(exp((ar_f64)lo - (ar_f64)hi)));
#else
    return hi + log1p(exp(lo - hi));
#endif
}
/* exp of a negative number cannot overflow, whichever side a is on. */
AR_FN AR_R AR_NAME(SIGMOID)(AR_R a)
{
    AR_R e = AR_M(exp)(-AR_M(fabs)(a));
    return (a < 0 ? e : (AR_R)1) / ((AR_R)1 + e);
}

#undef AR_BITS
#undef AR_FROM
#undef AR_SIGN_BIT
