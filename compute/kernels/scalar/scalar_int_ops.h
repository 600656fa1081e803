/* Template of the integer operations; included by scalar_int.h once per type. No include guard. */

/* 8 and 16 bits: computed and compared values, see ar_opaque(). */
#if AR_WIDTH < 32
#define AR_OPAQUE(x) ar_opaque((ar_i32)(x))
#else
#define AR_OPAQUE(x) (x)
#endif
#if AR_WIDTH == 32
#define AR_NEGATED(x) ar_own_instruction((ar_u32)(x))
#else
#define AR_NEGATED(x) AR_OPAQUE(x)
#endif

AR_FN AR_R AR_NAME(ADD)(AR_R a, AR_R b)
{
    return (AR_R)AR_OPAQUE((AR_W)a + (AR_W)b);
}
AR_FN AR_R AR_NAME(SUBTRACT)(AR_R a, AR_R b)
{
    return (AR_R)AR_OPAQUE((AR_W)a - (AR_W)b);
}
AR_FN AR_R AR_NAME(MULTIPLY)(AR_R a, AR_R b)
{
    return (AR_R)AR_OPAQUE((AR_W)a * (AR_W)b);
}
AR_FN AR_R AR_NAME(NEGATIVE)(AR_R a)
{
    return (AR_R)AR_NEGATED((AR_W)0 - (AR_W)a);
}
AR_FN AR_R AR_NAME(POSITIVE)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(SQUARE)(AR_R a)
{
    return (AR_R)AR_OPAQUE((AR_W)a * (AR_W)a);
}

/* Truncated a / b for b other than 0 and (signed) -1. */
AR_FN AR_R AR_NAME(QUOTIENT)(AR_R a, AR_R b)
{
#if defined(AR_Q) && !defined(__CUDACC_RTC__)
    return (AR_R)((AR_Q)a / (AR_Q)b);
#else
    return (AR_R)(a / b);
#endif
}
#if AR_SIGNED
/* A divisor that cannot trap; callers correct the results for the divisors it replaces. */
AR_FN AR_R AR_NAME(DIVISOR)(AR_R b)
{
    return (AR_R)(b == 0 || b == -1 ? 1 : b);
}
AR_FN AR_R AR_NAME(FLOOR_DIVIDE)(AR_R a, AR_R b)
{
    AR_R d = AR_NAME(DIVISOR)(b);
    AR_R q = AR_NAME(QUOTIENT)(a, d);
    AR_R r = (AR_R)AR_OPAQUE((AR_W)a - (AR_W)q * (AR_W)d);
    AR_R low = (AR_R)(r != 0 && (r ^ d) < 0 ? 1 : 0);
    q = (AR_R)AR_OPAQUE((AR_W)q - (AR_W)low);
    q = b == -1 ? AR_NAME(NEGATIVE)(a) : q;
    return (AR_R)(b == 0 ? 0 : q);
}
AR_FN AR_R AR_NAME(FMOD)(AR_R a, AR_R b)
{
    AR_R d = AR_NAME(DIVISOR)(b);
    return (AR_R)AR_OPAQUE((AR_W)a - (AR_W)AR_NAME(QUOTIENT)(a, d) * (AR_W)d);
}
AR_FN AR_R AR_NAME(REMAINDER)(AR_R a, AR_R b)
{
    AR_R r = AR_NAME(FMOD)(a, b);
    AR_R fix = (AR_R)(r != 0 && (r ^ b) < 0 ? b : 0);
    return (AR_R)AR_OPAQUE((AR_W)r + (AR_W)fix);
}
#else
AR_FN AR_R AR_NAME(FLOOR_DIVIDE)(AR_R a, AR_R b)
{
    AR_R q = AR_NAME(QUOTIENT)(a, (AR_R)(b == 0 ? 1 : b));
    return (AR_R)(b == 0 ? 0 : q);
}
AR_FN AR_R AR_NAME(FMOD)(AR_R a, AR_R b)
{
    AR_R d = (AR_R)(b == 0 ? 1 : b);
    return (AR_R)AR_OPAQUE((AR_W)a - (AR_W)AR_NAME(QUOTIENT)(a, d) * (AR_W)d);
}
AR_FN AR_R AR_NAME(REMAINDER)(AR_R a, AR_R b)
{
    return AR_NAME(FMOD)(a, b);
}
#endif

AR_FN AR_R AR_NAME(POW)(AR_R a, AR_R b)
{
    AR_W base = (AR_W)a, r = 1;
    AR_U e = (AR_U)b;
#if AR_SIGNED
    if (b < 0) /* 1/a^|b|, truncated: only the units survive */
        return (AR_R)(a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0);
#endif
    while (e != 0) {
        if (e & 1)
            r *= base;
        base *= base;
        e >>= 1;
    }
    return (AR_R)AR_OPAQUE(r);
}

AR_FN AR_R AR_NAME(MAXIMUM)(AR_R a, AR_R b)
{
    return AR_OPAQUE(a) > AR_OPAQUE(b) ? a : b;
}
AR_FN AR_R AR_NAME(MINIMUM)(AR_R a, AR_R b)
{
    return AR_OPAQUE(a) < AR_OPAQUE(b) ? a : b;
}
AR_FN AR_R AR_NAME(BITWISE_AND)(AR_R a, AR_R b)
{
    return (AR_R)(a & b);
}
AR_FN AR_R AR_NAME(BITWISE_OR)(AR_R a, AR_R b)
{
    return (AR_R)(a | b);
}
AR_FN AR_R AR_NAME(BITWISE_XOR)(AR_R a, AR_R b)
{
    return (AR_R)(a ^ b);
}
AR_FN AR_R AR_NAME(BITWISE_INVERT)(AR_R a)
{
    return (AR_R)AR_OPAQUE(~a);
}
AR_FN AR_R AR_NAME(BITWISE_LEFT_SHIFT)(AR_R a, AR_R b)
{
    AR_U n = (AR_U)b; /* a negative count is a large one */
    AR_R r = (AR_R)AR_OPAQUE((AR_W)(AR_U)a << (n & (AR_WIDTH - 1)));
    return (AR_R)(n >= AR_WIDTH ? 0 : r);
}
AR_FN AR_R AR_NAME(BITWISE_RIGHT_SHIFT)(AR_R a, AR_R b)
{
    AR_U n = (AR_U)b;
#if AR_SIGNED
    return (AR_R)(a >> (b < 0 || AR_OPAQUE(b) >= AR_WIDTH ? AR_WIDTH - 1 : n));
#else
    AR_R r = (AR_R)(a >> (n & (AR_WIDTH - 1)));
    return (AR_R)(n >= AR_WIDTH ? 0 : r);
#endif
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
    return AR_OPAQUE(a) < AR_OPAQUE(b);
}
AR_FN ar_bool AR_NAME(LESS_EQUAL)(AR_R a, AR_R b)
{
    return AR_OPAQUE(a) <= AR_OPAQUE(b);
}
AR_FN ar_bool AR_NAME(GREATER)(AR_R a, AR_R b)
{
    return AR_OPAQUE(a) > AR_OPAQUE(b);
}
AR_FN ar_bool AR_NAME(GREATER_EQUAL)(AR_R a, AR_R b)
{
    return AR_OPAQUE(a) >= AR_OPAQUE(b);
}

#if AR_SIGNED
AR_FN AR_R AR_NAME(ABS)(AR_R a)
{
    return AR_OPAQUE(a) < 0 ? AR_NAME(NEGATIVE)(a) : a;
}
AR_FN AR_R AR_NAME(SIGN)(AR_R a)
{
    return (AR_R)((a > 0) - (a < 0));
}
AR_FN ar_bool AR_NAME(SIGNBIT)(AR_R a)
{
    return a < 0;
}
#else
AR_FN AR_R AR_NAME(ABS)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(SIGN)(AR_R a)
{
    return a != 0;
}
AR_FN ar_bool AR_NAME(SIGNBIT)(AR_R a)
{
    (void)a;
    return 0;
}
#endif
AR_FN AR_R AR_NAME(CEIL)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(FLOOR)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(TRUNC)(AR_R a)
{
    return a;
}
AR_FN AR_R AR_NAME(ROUND)(AR_R a)
{
    return a;
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
AR_FN ar_bool AR_NAME(ISNAN)(AR_R a)
{
    (void)a;
    return 0;
}
AR_FN ar_bool AR_NAME(ISINF)(AR_R a)
{
    (void)a;
    return 0;
}
AR_FN ar_bool AR_NAME(ISFINITE)(AR_R a)
{
    (void)a;
    return 1;
}

#undef AR_OPAQUE
#undef AR_NEGATED
#undef AR_T
#undef AR_R
#undef AR_U
#undef AR_W
#undef AR_Q
#undef AR_WIDTH
#undef AR_SIGNED
