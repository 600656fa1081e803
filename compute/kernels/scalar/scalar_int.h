/* Operations on bool and the integers; part of scalar.h. */
#ifndef ARRAYD_SCALAR_INT_H
#define ARRAYD_SCALAR_INT_H

/* bool: 0 or 1 in a byte; + is or, × is and, as in NumPy */
AR_FN ar_bool ar_ADD_BOOL(ar_bool a, ar_bool b)
{
    return a | b;
}
AR_FN ar_bool ar_MULTIPLY_BOOL(ar_bool a, ar_bool b)
{
    return a & b;
}
AR_FN ar_bool ar_MAXIMUM_BOOL(ar_bool a, ar_bool b)
{
    return a | b;
}
AR_FN ar_bool ar_MINIMUM_BOOL(ar_bool a, ar_bool b)
{
    return a & b;
}
AR_FN ar_bool ar_BITWISE_AND_BOOL(ar_bool a, ar_bool b)
{
    return a & b;
}
AR_FN ar_bool ar_BITWISE_OR_BOOL(ar_bool a, ar_bool b)
{
    return a | b;
}
AR_FN ar_bool ar_BITWISE_XOR_BOOL(ar_bool a, ar_bool b)
{
    return a ^ b;
}
AR_FN ar_bool ar_LOGICAL_AND_BOOL(ar_bool a, ar_bool b)
{
    return a & b;
}
AR_FN ar_bool ar_LOGICAL_OR_BOOL(ar_bool a, ar_bool b)
{
    return a | b;
}
AR_FN ar_bool ar_LOGICAL_XOR_BOOL(ar_bool a, ar_bool b)
{
    return a ^ b;
}
AR_FN ar_bool ar_LOGICAL_NOT_BOOL(ar_bool a)
{
    return a ^ 1;
}
AR_FN ar_bool ar_BITWISE_INVERT_BOOL(ar_bool a)
{
    return a ^ 1;
}
AR_FN ar_bool ar_EQUAL_BOOL(ar_bool a, ar_bool b)
{
    return a == b;
}
AR_FN ar_bool ar_NOT_EQUAL_BOOL(ar_bool a, ar_bool b)
{
    return a != b;
}
AR_FN ar_bool ar_LESS_BOOL(ar_bool a, ar_bool b)
{
    return a < b;
}
AR_FN ar_bool ar_LESS_EQUAL_BOOL(ar_bool a, ar_bool b)
{
    return a <= b;
}
AR_FN ar_bool ar_GREATER_BOOL(ar_bool a, ar_bool b)
{
    return a > b;
}
AR_FN ar_bool ar_GREATER_EQUAL_BOOL(ar_bool a, ar_bool b)
{
    return a >= b;
}
#define AR_BOOL_SAME(op)                                                                           \
    AR_FN ar_bool ar_##op##_BOOL(ar_bool a)                                                        \
    {                                                                                              \
        return a;                                                                                  \
    }
#define AR_BOOL_CONST(op, value)                                                                   \
    AR_FN ar_bool ar_##op##_BOOL(ar_bool a)                                                        \
    {                                                                                              \
        (void)a;                                                                                   \
        return value;                                                                              \
    }
AR_BOOL_SAME(ABS)
AR_BOOL_SAME(CEIL)
AR_BOOL_SAME(FLOOR)
AR_BOOL_SAME(TRUNC)
AR_BOOL_SAME(ROUND)
AR_BOOL_SAME(CONJ)
AR_BOOL_SAME(REAL)
AR_BOOL_CONST(IMAG, 0)
AR_BOOL_CONST(ISNAN, 0)
AR_BOOL_CONST(ISINF, 0)
AR_BOOL_CONST(ISFINITE, 1)
#undef AR_BOOL_SAME
#undef AR_BOOL_CONST

/* The integers share one text, compiled with
 *   AR_T, AR_R  identifier and type        AR_U  the unsigned type of the same width
 *   AR_W        unsigned type to compute in, wide enough that C promotes it no further
 *   AR_Q        float type in which dividing is exact after truncation (quotients of n-bit
 *               integers stay 2^-n away from the next integer, relatively), so that division of 8,
 *               16 and 32 bits vectorises; absent for 64 bits
 *   AR_WIDTH, AR_SIGNED */
#if defined(AR_USE_I8)
#define AR_T      I8
#define AR_R      ar_i8
#define AR_U      ar_u8
#define AR_W      ar_u32
#define AR_Q      ar_f32
#define AR_WIDTH  8
#define AR_SIGNED 1
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_I16)
#define AR_T      I16
#define AR_R      ar_i16
#define AR_U      ar_u16
#define AR_W      ar_u32
#define AR_Q      ar_f32
#define AR_WIDTH  16
#define AR_SIGNED 1
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_I32)
#define AR_T      I32
#define AR_R      ar_i32
#define AR_U      ar_u32
#define AR_W      ar_u32
#define AR_Q      ar_f64
#define AR_WIDTH  32
#define AR_SIGNED 1
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_I64)
#define AR_T      I64
#define AR_R      ar_i64
#define AR_U      ar_u64
#define AR_W      ar_u64
#define AR_WIDTH  64
#define AR_SIGNED 1
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_U8)
#define AR_T      U8
#define AR_R      ar_u8
#define AR_U      ar_u8
#define AR_W      ar_u32
#define AR_Q      ar_f32
#define AR_WIDTH  8
#define AR_SIGNED 0
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_U16)
#define AR_T      U16
#define AR_R      ar_u16
#define AR_U      ar_u16
#define AR_W      ar_u32
#define AR_Q      ar_f32
#define AR_WIDTH  16
#define AR_SIGNED 0
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_U32)
#define AR_T      U32
#define AR_R      ar_u32
#define AR_U      ar_u32
#define AR_W      ar_u32
#define AR_Q      ar_f64
#define AR_WIDTH  32
#define AR_SIGNED 0
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif
#if defined(AR_USE_U64)
#define AR_T      U64
#define AR_R      ar_u64
#define AR_U      ar_u64
#define AR_W      ar_u64
#define AR_WIDTH  64
#define AR_SIGNED 0
#include "compute/kernels/scalar/scalar_int_ops.h"
#endif

#endif
