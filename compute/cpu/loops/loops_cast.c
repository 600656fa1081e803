/* Conversions from float16, bfloat16, float32, float64 and complex. */
#include "compute/cpu/loops/loops_cast.h"

#define FROM_ALL(X)                                                                                \
    CASTS_FROM(X, F16, ar_f16)                                                                     \
    CASTS_FROM(X, BF16, ar_bf16)                                                                   \
    CASTS_FROM(X, F32, ar_f32)                                                                     \
    CASTS_FROM(X, F64, ar_f64)                                                                     \
    CASTS_FROM(X, C64, ar_c64)                                                                     \
    CASTS_FROM(X, C128, ar_c128)

FROM_ALL(LOOP_CAST)

/* float16 and float32, the conversions every half precision expression makes: the instructions do
 * bit for bit what scalar_half.h does (NaNs made quiet included). */
#if defined(__AVX512F__)
#include <immintrin.h>

enum { HALVES = 16 };

static void f16c_F16_F32(void *out, const void *const *args, size_t n)
{
    float *o = out;
    const ar_f16 *a = args[0];
    size_t i = 0;
    for (; i + HALVES <= n; i += HALVES)
        _mm512_storeu_ps(o + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(a + i))));
    for (; i < n; i++)
        o[i] = ar_f16_to_f32(a[i]);
}
static void f16c_F32_F16(void *out, const void *const *args, size_t n)
{
    ar_f16 *o = out;
    const float *a = args[0];
    size_t i = 0;
    for (; i + HALVES <= n; i += HALVES)
        _mm256_storeu_si256((void *)(o + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        o[i] = ar_f32_to_f16(a[i]);
}
#elif defined(__F16C__)
#include <immintrin.h>

enum { HALVES = 8 };

static void f16c_F16_F32(void *out, const void *const *args, size_t n)
{
    float *o = out;
    const ar_f16 *a = args[0];
    size_t i = 0;
    for (; i + HALVES <= n; i += HALVES)
        _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(a + i))));
    for (; i < n; i++)
        o[i] = ar_f16_to_f32(a[i]);
}
static void f16c_F32_F16(void *out, const void *const *args, size_t n)
{
    ar_f16 *o = out;
    const float *a = args[0];
    size_t i = 0;
    for (; i + HALVES <= n; i += HALVES)
        _mm_storeu_si128((void *)(o + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(a + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        o[i] = ar_f32_to_f16(a[i]);
}
#endif

void LOOPS_FILL(cast)(struct loop_table *t)
{
    FROM_ALL(SET_CAST)
#if defined(__F16C__)
    t->cast[DT_F16][DT_F32] = f16c_F16_F32;
    t->cast[DT_F32][DT_F16] = f16c_F32_F16;
#endif
}
