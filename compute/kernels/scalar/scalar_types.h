/* Types, the macro layer between C and device code, and bit casts; part of scalar.h. */
#ifndef ARRAYD_SCALAR_TYPES_H
#define ARRAYD_SCALAR_TYPES_H

#define AR_PASTE_(a, b, c, d) a##b##c##d
#define AR_PASTE(a, b, c, d)  AR_PASTE_(a, b, c, d)
/* ar_<OP>_<T> for the type that the template is being compiled for. */
#define AR_NAME(op) AR_PASTE(ar_, op, _, AR_T)

/* The build expands the templates with AR_EXTRACT, to embed one text per function. What follows is
 * not part of those texts; they include it. */
#if !defined(AR_EXTRACT)

#if defined(__CUDACC_RTC__)
#define AR_FN  static inline __device__
#define AR_INF __longlong_as_double(0x7ff0000000000000LL)
#define AR_NAN __longlong_as_double(0x7ff8000000000000LL)
#else
#include <math.h>
#define AR_FN  static inline __attribute__((unused))
#define AR_INF __builtin_inf()
#define AR_NAN __builtin_nan("")
#endif
/* AR_VALUE(struct type){…}: a value of it, in C and in C++. */
#if defined(__cplusplus)
#define AR_VALUE(type) type
#else
#define AR_VALUE(type) (type)
#endif

/* long is 64 bits wide on every host we build for, and int64_t is long there. */
typedef unsigned char ar_bool;
typedef signed char ar_i8;
typedef short ar_i16;
typedef int ar_i32;
typedef long ar_i64;
typedef unsigned char ar_u8;
typedef unsigned short ar_u16;
typedef unsigned int ar_u32;
typedef unsigned long ar_u64;
typedef unsigned short ar_f16;  /* raw bits, IEEE binary16 */
typedef unsigned short ar_bf16; /* raw bits, the upper half of a float */
typedef float ar_f32;
typedef double ar_f64;
struct ar_complex64 {
    float re, im;
};
struct ar_complex128 {
    double re, im;
};
typedef struct ar_complex64 ar_c64;
typedef struct ar_complex128 ar_c128;

/* v, hidden from a device's compiler. NVRTC 13 assumes that 8-bit and 16-bit integers that it
 * computed did not wrap, and omits the sign extension: maximum(~a + b, b) of int8 was wrong where
 * the sum wrapped, min(-a) and abs(a) > 0 of int16 for the least number. So values that are
 * computed in these types, converted to them or compared in them pass through here. */
AR_FN ar_i32 ar_opaque(ar_i32 v)
{
#if defined(__CUDACC_RTC__)
    asm("" : "+r"(v));
#endif
    return v;
}

/* v, as an instruction of its own. The assembler of NVRTC 13.0 lets a maximum or minimum of three
 * negate one of them, which is wrong for the least int32: max(-maximum(a, b)) was the greatest one
 * where it was among them. It sees through everything else that does nothing. */
AR_FN ar_u32 ar_own_instruction(ar_u32 v)
{
#if defined(__CUDACC_RTC__) && !defined(ARRAYD_FAKE_DEVICE)
    asm("prmt.b32 %0, %0, 0, 0x3210;" : "+r"(v));
#endif
    return v;
}

AR_FN ar_u32 ar_bits_F32(ar_f32 x)
{
#if defined(__CUDACC_RTC__)
    return __float_as_uint(x);
#else
    union {
        ar_f32 f;
        ar_u32 u;
    } v = {x};
    return v.u;
#endif
}
AR_FN ar_f32 ar_from_bits_F32(ar_u32 u)
{
#if defined(__CUDACC_RTC__)
    return __uint_as_float(u);
#else
    union {
        ar_u32 u;
        ar_f32 f;
    } v = {u};
    return v.f;
#endif
}
AR_FN ar_u64 ar_bits_F64(ar_f64 x)
{
#if defined(__CUDACC_RTC__)
    return (ar_u64)__double_as_longlong(x);
#else
    union {
        ar_f64 f;
        ar_u64 u;
    } v = {x};
    return v.u;
#endif
}
AR_FN ar_f64 ar_from_bits_F64(ar_u64 u)
{
#if defined(__CUDACC_RTC__)
    return __longlong_as_double((long long)u);
#else
    union {
        ar_u64 u;
        ar_f64 f;
    } v = {u};
    return v.f;
#endif
}

/* Larger and smaller, NaN if either is, -0 < +0; and float32 truncated to int32, saturated, NaN is
 * 0. A GPU has an instruction for each (larger and smaller from sm_80 on). The tests' fake device
 * does not support PTX. */
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 800 && !defined(ARRAYD_FAKE_DEVICE)
AR_FN ar_f32 ar_larger_F32(ar_f32 a, ar_f32 b)
{
    ar_f32 r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
AR_FN ar_f32 ar_smaller_F32(ar_f32 a, ar_f32 b)
{
    ar_f32 r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#else
/* Equal operands differ at most in the sign of zero: the bits decide which zero is returned. */
AR_FN ar_f32 ar_larger_F32(ar_f32 a, ar_f32 b)
{
    ar_f32 m = a > b ? a : b;
    m = a == b ? ar_from_bits_F32(ar_bits_F32(a) & ar_bits_F32(b)) : m;
    return a != a ? a : m;
}
AR_FN ar_f32 ar_smaller_F32(ar_f32 a, ar_f32 b)
{
    ar_f32 m = a < b ? a : b;
    m = a == b ? ar_from_bits_F32(ar_bits_F32(a) | ar_bits_F32(b)) : m;
    return a != a ? a : m;
}
#endif
AR_FN ar_f64 ar_larger_F64(ar_f64 a, ar_f64 b)
{
    ar_f64 m = a > b ? a : b;
    m = a == b ? ar_from_bits_F64(ar_bits_F64(a) & ar_bits_F64(b)) : m;
    return a != a ? a : m;
}
AR_FN ar_f64 ar_smaller_F64(ar_f64 a, ar_f64 b)
{
    ar_f64 m = a < b ? a : b;
    m = a == b ? ar_from_bits_F64(ar_bits_F64(a) | ar_bits_F64(b)) : m;
    return a != a ? a : m;
}
AR_FN ar_i32 ar_truncated_F32(ar_f32 x)
{
#if defined(__CUDACC_RTC__)
    return __float2int_rz(x);
#else
    ar_i32 r = (ar_i32)(x >= -2147483648.0f && x < 2147483648.0f ? x : 0.0f);
    r = x >= 2147483648.0f ? 0x7fffffff : r;
    return x < -2147483648.0f ? -0x7fffffff - 1 : r;
#endif
}

#endif

#endif
