/* Conversions from float16, bfloat16, float32, float64 and complex. */
#include "compute/cpu/loops_cast.h"

#define FROM_ALL(X)                                                                                \
    CASTS_FROM(X, F16, ar_f16)                                                                     \
    CASTS_FROM(X, BF16, ar_bf16)                                                                   \
    CASTS_FROM(X, F32, ar_f32)                                                                     \
    CASTS_FROM(X, F64, ar_f64)                                                                     \
    CASTS_FROM(X, C64, ar_c64)                                                                     \
    CASTS_FROM(X, C128, ar_c128)

FROM_ALL(LOOP_CAST)

void LOOPS_FILL(cast)(struct loop_table *t)
{
    FROM_ALL(SET_CAST)
}
