/* Conversions from bool and the integers. */
#include "compute/cpu/loops/loops_cast.h"

#define FROM_ALL(X)                                                                                \
    CASTS_FROM(X, BOOL, ar_bool)                                                                   \
    CASTS_FROM(X, I8, ar_i8)                                                                       \
    CASTS_FROM(X, I16, ar_i16)                                                                     \
    CASTS_FROM(X, I32, ar_i32)                                                                     \
    CASTS_FROM(X, I64, ar_i64)                                                                     \
    CASTS_FROM(X, U8, ar_u8)                                                                       \
    CASTS_FROM(X, U16, ar_u16)                                                                     \
    CASTS_FROM(X, U32, ar_u32)                                                                     \
    CASTS_FROM(X, U64, ar_u64)

FROM_ALL(LOOP_CAST)

void LOOPS_FILL(cast_int)(struct loop_table *t)
{
    FROM_ALL(SET_CAST)
}
