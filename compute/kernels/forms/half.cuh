/* Arithmetic on float16 and bfloat16 for the form window, whose sums round after every operation.
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(ARRAYD_FAKE_DEVICE)
AR_FN ar_bf16 ar_half_bf16(ar_f32 x)
{
    ar_u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return (ar_bf16)r;
}
#else
AR_FN ar_bf16 ar_half_bf16(ar_f32 x)
{
    return ar_f32_to_bf16(x);
}
#endif

#endif
