/* Arithmetic on float16 and bfloat16, whose results are rounded after every operation.
 *
 * A sum, difference or product is defined as that of float32, rounded to the type. For float16 the
 * device's own instruction gives the same: float32 has more than twice as many digits and two, so
 * that rounding twice equals rounding once, and no result of two float16 is subnormal in float32.
 * NaNs are the device's one NaN either way. bfloat16 has float32's range, so that products below it
 * are rounded twice: only the rounding is the device's own, for results of float32 operations. */
#ifndef ARRAYD_HALF_CUH
#define ARRAYD_HALF_CUH

#if defined(__CUDA_ARCH__) && !defined(ARRAYD_FAKE_DEVICE)
#define AR_HALF_OP(name, text, plain)                                                              \
    AR_FN ar_f16 name(ar_f16 a, ar_f16 b)                                                          \
    {                                                                                              \
        ar_u16 r;                                                                                  \
        asm(text " %0, %1, %2;" : "=h"(r) : "h"((ar_u16)a), "h"((ar_u16)b));                       \
        return (ar_f16)r;                                                                          \
    }
#else
#define AR_HALF_OP(name, text, plain)                                                              \
    AR_FN ar_f16 name(ar_f16 a, ar_f16 b)                                                          \
    {                                                                                              \
        return ar_f32_to_f16(ar_f16_to_f32(a) plain ar_f16_to_f32(b));                             \
    }
#endif
AR_HALF_OP(ar_half_ADD, "add.rn.f16", +)
AR_HALF_OP(ar_half_SUBTRACT, "sub.rn.f16", -)
AR_HALF_OP(ar_half_MULTIPLY, "mul.rn.f16", *)

/* ar_half_f32: the value of a float16. ar_half_f16: that of float32, rounded.
 *
 * ar_half_DIVIDE: a product by the reciprocal, corrected by what is left, which is exact. That is
 * the quotient rounded to float32, or the number beside it. Either rounds to the same float16: a
 * quotient of two numbers of 11 bits is never halfway between two float16 numbers, and is at least
 * 2^-23 of itself from every such point. Quotients that are subnormal in float16 may be such
 * numbers, but then they are float32 numbers of few digits, and the correction finds them. With 0
 * or infinity there is nothing to correct.
 *
 * ar_half_EXP: the device's power of two is too inaccurate for float32, but with this argument the
 * result rounds to what float32's own function does, for all 65,536 float16: tried out on an H200,
 * so other architectures, whose instruction may differ, do without. */
#if defined(__CUDA_ARCH__) && !defined(ARRAYD_FAKE_DEVICE)
AR_FN ar_f32 ar_half_f32(ar_f16 x)
{
    ar_f32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((ar_u16)x));
    return r;
}
AR_FN ar_f16 ar_half_f16(ar_f32 x)
{
    ar_u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return (ar_f16)r;
}
AR_FN ar_f16 ar_half_DIVIDE(ar_f16 a, ar_f16 b)
{
    const ar_f32 x = ar_half_f32(a), y = ar_half_f32(b);
    ar_f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
    const ar_f32 q = x * r, left = fmaf(-q, y, x);
    return ar_half_f16(fabsf(left) > 0 ? fmaf(left, r, q) : q); /* not if it is 0 or NaN */
}
AR_FN ar_f16 ar_half_EXP(ar_f16 a)
{
#if __CUDA_ARCH__ == 900
    ar_f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;"
        : "=f"(r)
        : "f"(fmaf(ar_half_f32(a), 1.44269504f, 0x1.8p-25f)));
    return ar_half_f16(r);
#else
    return ar_half_f16(ar_EXP_F32(ar_half_f32(a)));
#endif
}
#else
AR_FN ar_f32 ar_half_f32(ar_f16 x)
{
    return ar_f16_to_f32(x);
}
AR_FN ar_f16 ar_half_f16(ar_f32 x)
{
    return ar_f32_to_f16(x);
}
AR_FN ar_f16 ar_half_DIVIDE(ar_f16 a, ar_f16 b)
{
    return ar_f32_to_f16(ar_DIVIDE_F32(ar_f16_to_f32(a), ar_f16_to_f32(b)));
}
AR_FN ar_f16 ar_half_EXP(ar_f16 a)
{
    return ar_f32_to_f16(ar_EXP_F32(ar_f16_to_f32(a)));
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(ARRAYD_FAKE_DEVICE)
AR_FN ar_bf16 ar_half_bf16(ar_f32 x)
{
    ar_u32 r; /* of two, in one instruction of the fast unit; of one it is the slow one's */
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(x));
    return (ar_bf16)r;
}
#else
AR_FN ar_bf16 ar_half_bf16(ar_f32 x)
{
    return ar_f32_to_bf16(x);
}
#endif

#endif
