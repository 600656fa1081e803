/* The greater and the lesser of two float32, as ar_MAXIMUM_F32 and ar_MINIMUM_F32 (NaN wins, -0 is
 * less than 0), by the one instruction that sm_80 has for it. AR_PLAIN: no inline PTX. */
#ifndef ARRAYD_EXTREME_CUH
#define ARRAYD_EXTREME_CUH

AR_FN ar_f32 ar_greater_F32(ar_f32 a, ar_f32 b)
{
#if __CUDA_ARCH__ >= 800 && !defined AR_PLAIN
    ar_f32 r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return ar_MAXIMUM_F32(a, b);
#endif
}
AR_FN ar_f32 ar_lesser_F32(ar_f32 a, ar_f32 b)
{
#if __CUDA_ARCH__ >= 800 && !defined AR_PLAIN
    ar_f32 r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return ar_MINIMUM_F32(a, b);
#endif
}

#endif
