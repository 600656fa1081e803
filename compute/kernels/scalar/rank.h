/* The order for argmax and argmin: each element becomes an integer, larger for elements to be
 * preferred. NaN comes before all others, -0 is 0; float16 and bfloat16 are compared as float32.
 *
 * For the CPU backend; kernels compare the elements themselves (best.cuh). ar_greatest_<T>(x) has
 * 32 bits for types of up to 32 bits, else 64. */
#ifndef ARRAYD_RANK_H
#define ARRAYD_RANK_H

#include "compute/kernels/scalar/scalar_types.h"

#define AR_RANK_INT(T, R, K, FLIP)                                                                 \
    AR_FN K ar_greatest_##T(R x)                                                                   \
    {                                                                                              \
        return (K)x ^ (K)(FLIP);                                                                   \
    }                                                                                              \
    AR_FN K ar_least_##T(R x)                                                                      \
    {                                                                                              \
        return ~((K)x ^ (K)(FLIP));                                                                \
    }
AR_RANK_INT(BOOL, ar_bool, ar_i32, 0)
AR_RANK_INT(I8, ar_i8, ar_i32, 0)
AR_RANK_INT(I16, ar_i16, ar_i32, 0)
AR_RANK_INT(I32, ar_i32, ar_i32, 0)
AR_RANK_INT(I64, ar_i64, ar_i64, 0)
AR_RANK_INT(U8, ar_u8, ar_i32, 0)
AR_RANK_INT(U16, ar_u16, ar_i32, 0)
AR_RANK_INT(U32, ar_u32, ar_i32, 0x80000000u)
AR_RANK_INT(U64, ar_u64, ar_i64, 0x8000000000000000ul)

/* Floats are ordered as their bits, negative ones reversed; x + 0 is 0 for -0. */
#define AR_RANK_FLOAT(T, R, K, MOST)                                                               \
    AR_FN K ar_ordered_##T(R x)                                                                    \
    {                                                                                              \
        const K i = (K)ar_bits_##T(x + (R)0);                                                      \
        return i < 0 ? i ^ (K)(MOST) : i;                                                          \
    }                                                                                              \
    AR_FN K ar_greatest_##T(R x)                                                                   \
    {                                                                                              \
        const K i = ar_ordered_##T(x);                                                             \
        return x != x ? (K)(MOST) : i;                                                             \
    }                                                                                              \
    AR_FN K ar_least_##T(R x)                                                                      \
    {                                                                                              \
        const K i = ~ar_ordered_##T(x);                                                            \
        return x != x ? (K)(MOST) : i;                                                             \
    }
AR_RANK_FLOAT(F32, ar_f32, ar_i32, 0x7fffffff)
AR_RANK_FLOAT(F64, ar_f64, ar_i64, 0x7fffffffffffffffl)

#endif
