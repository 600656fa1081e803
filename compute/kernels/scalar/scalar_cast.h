/* astype between all types, ar_cast_<FROM>_<TO>; part of scalar.h.
 *
 * Integers wrap; float to integer truncates, saturates, NaN is 0; anything to bool is x != 0;
 * complex to real drops the imaginary part (the checker refuses it where the contract does). Any
 * value is rounded to float16 or bfloat16 only once. */
#ifndef ARRAYD_SCALAR_CAST_H
#define ARRAYD_SCALAR_CAST_H

/* AR_IF_<T>(text): text if the type is compiled at all. */
#define AR_IF_BOOL(...) __VA_ARGS__
#define AR_IF_F32(...)  __VA_ARGS__
#define AR_IF_F64(...)  __VA_ARGS__
#if defined(AR_USE_I8)
#define AR_IF_I8(...) __VA_ARGS__
#else
#define AR_IF_I8(...)
#endif
#if defined(AR_USE_I16)
#define AR_IF_I16(...) __VA_ARGS__
#else
#define AR_IF_I16(...)
#endif
#if defined(AR_USE_I32)
#define AR_IF_I32(...) __VA_ARGS__
#else
#define AR_IF_I32(...)
#endif
#if defined(AR_USE_I64)
#define AR_IF_I64(...) __VA_ARGS__
#else
#define AR_IF_I64(...)
#endif
#if defined(AR_USE_U8)
#define AR_IF_U8(...) __VA_ARGS__
#else
#define AR_IF_U8(...)
#endif
#if defined(AR_USE_U16)
#define AR_IF_U16(...) __VA_ARGS__
#else
#define AR_IF_U16(...)
#endif
#if defined(AR_USE_U32)
#define AR_IF_U32(...) __VA_ARGS__
#else
#define AR_IF_U32(...)
#endif
#if defined(AR_USE_U64)
#define AR_IF_U64(...) __VA_ARGS__
#else
#define AR_IF_U64(...)
#endif
#if defined(AR_USE_F16)
#define AR_IF_F16(...) __VA_ARGS__
#else
#define AR_IF_F16(...)
#endif
#if defined(AR_USE_BF16)
#define AR_IF_BF16(...) __VA_ARGS__
#else
#define AR_IF_BF16(...)
#endif
#if defined(AR_USE_C64)
#define AR_IF_C64(...) __VA_ARGS__
#else
#define AR_IF_C64(...)
#endif
#if defined(AR_USE_C128)
#define AR_IF_C128(...) __VA_ARGS__
#else
#define AR_IF_C128(...)
#endif

/* Float to integer. V is the integer type that converts in one instruction; HIGH = MAX + 1 and LOW
 * = MIN are exact in both float types. Values outside never reach the conversion, which would be
 * undefined for them. */
#define AR_SATURATE(F, f, T, t, V, LOW, HIGH)                                                      \
    AR_FN t ar_saturate_##F##_##T(f x)                                                             \
    {                                                                                              \
        t r = (t)(V)(x >= (f)(LOW) && x < (f)(HIGH) ? x : (f)0);                                   \
        r = x >= (f)(HIGH) ? (t)((HIGH)-1) : r;                                                    \
        return x < (f)(LOW) ? (t)(LOW) : r;                                                        \
    }
#define AR_SATURATE_ALL(F, f)                                                                      \
    AR_SATURATE(F, f, I8, ar_i8, ar_i32, -0x80, 0x80)                                              \
    AR_SATURATE(F, f, I16, ar_i16, ar_i32, -0x8000, 0x8000)                                        \
    AR_SATURATE(F, f, U8, ar_u8, ar_i32, 0, 0x100)                                                 \
    AR_SATURATE(F, f, U16, ar_u16, ar_i32, 0, 0x10000)                                             \
    AR_SATURATE(F, f, U32, ar_u32, ar_u32, 0, 0x100000000L)                                        \
    AR_FN ar_i64 ar_saturate_##F##_I64(f x)                                                        \
    {                                                                                              \
        f top = (f)9223372036854775808.0;                                                          \
        ar_i64 r = (ar_i64)(x >= -top && x < top ? x : (f)0);                                      \
        r = x >= top ? 0x7fffffffffffffffL : r;                                                    \
        return x < -top ? -0x7fffffffffffffffL - 1 : r;                                            \
    }                                                                                              \
    AR_FN ar_u64 ar_saturate_##F##_U64(f x)                                                        \
    {                                                                                              \
        f top = (f)18446744073709551616.0;                                                         \
        ar_u64 r = (ar_u64)(x >= 0 && x < top ? x : (f)0);                                         \
        return x >= top ? 0xffffffffffffffffUL : r;                                                \
    }
AR_SATURATE_ALL(F32, ar_f32)
AR_SATURATE_ALL(F64, ar_f64)
AR_SATURATE(F64, ar_f64, I32, ar_i32, ar_i32, -0x80000000L, 0x80000000L)
AR_FN ar_i32 ar_saturate_F32_I32(ar_f32 x)
{
    return ar_truncated_F32(x);
}

#define AR_CAST(F, f, T, t, expr)                                                                  \
    AR_IF_##F(AR_IF_##T(AR_FN t ar_cast_##F##_##T(f x) { return expr; }))

/* Real types: `v` is the value as a C number (halves as float). */
#define AR_CAST_TO_INTS(F, f, v, CONVERT)                                                          \
    AR_CAST(F, f, I8, ar_i8, CONVERT(I8, ar_i8, v))                                                \
    AR_CAST(F, f, I16, ar_i16, CONVERT(I16, ar_i16, v))                                            \
    AR_CAST(F, f, I32, ar_i32, CONVERT(I32, ar_i32, v))                                            \
    AR_CAST(F, f, I64, ar_i64, CONVERT(I64, ar_i64, v))                                            \
    AR_CAST(F, f, U8, ar_u8, CONVERT(U8, ar_u8, v))                                                \
    AR_CAST(F, f, U16, ar_u16, CONVERT(U16, ar_u16, v))                                            \
    AR_CAST(F, f, U32, ar_u32, CONVERT(U32, ar_u32, v))                                            \
    AR_CAST(F, f, U64, ar_u64, CONVERT(U64, ar_u64, v))
#define AR_CAST_TO_FLOATS(F, f, v)                                                                 \
    AR_CAST(F, f, BOOL, ar_bool, (v) != 0)                                                         \
    AR_CAST(F, f, F32, ar_f32, (ar_f32)(v))                                                        \
    AR_CAST(F, f, F64, ar_f64, (ar_f64)(v))                                                        \
    AR_CAST(F, f, C64, ar_c64, (AR_VALUE(ar_c64){(ar_f32)(v), 0}))                                 \
    AR_CAST(F, f, C128, ar_c128, (AR_VALUE(ar_c128){(ar_f64)(v), 0}))
#define AR_WRAP(T, t, v)    (sizeof(t) < 4 ? (t)ar_opaque((ar_i32)(v)) : (t)(v))
#define AR_SAT_F32(T, t, v) ar_saturate_F32_##T(v)
#define AR_SAT_F64(T, t, v) ar_saturate_F64_##T(v)

/* Integers are converted to the halves through float32, as in NumPy and ml_dtypes; float16 is
 * infinite from 65520 on, so for it that is exact. */
#define AR_CAST_INT(F, f)                                                                          \
    AR_CAST_TO_INTS(F, f, x, AR_WRAP)                                                              \
    AR_CAST_TO_FLOATS(F, f, x)                                                                     \
    AR_CAST(F, f, F16, ar_f16, ar_f32_to_f16((ar_f32)x))                                           \
    AR_CAST(F, f, BF16, ar_bf16, ar_f32_to_bf16((ar_f32)x))
AR_CAST_INT(BOOL, ar_bool)
AR_CAST_INT(I8, ar_i8)
AR_CAST_INT(I16, ar_i16)
AR_CAST_INT(I32, ar_i32)
AR_CAST_INT(I64, ar_i64)
AR_CAST_INT(U8, ar_u8)
AR_CAST_INT(U16, ar_u16)
AR_CAST_INT(U32, ar_u32)
AR_CAST_INT(U64, ar_u64)

AR_CAST_TO_INTS(F16, ar_f16, ar_f16_to_f32(x), AR_SAT_F32)
AR_CAST_TO_FLOATS(F16, ar_f16, ar_f16_to_f32(x))
AR_CAST(F16, ar_f16, F16, ar_f16, x)
AR_CAST(F16, ar_f16, BF16, ar_bf16, ar_f32_to_bf16(ar_f16_to_f32(x)))
AR_CAST_TO_INTS(BF16, ar_bf16, ar_bf16_to_f32(x), AR_SAT_F32)
AR_CAST_TO_FLOATS(BF16, ar_bf16, ar_bf16_to_f32(x))
AR_CAST(BF16, ar_bf16, F16, ar_f16, ar_f32_to_f16(ar_bf16_to_f32(x)))
AR_CAST(BF16, ar_bf16, BF16, ar_bf16, x)
AR_CAST_TO_INTS(F32, ar_f32, x, AR_SAT_F32)
AR_CAST_TO_FLOATS(F32, ar_f32, x)
AR_CAST(F32, ar_f32, F16, ar_f16, ar_f32_to_f16(x))
AR_CAST(F32, ar_f32, BF16, ar_bf16, ar_f32_to_bf16(x))
AR_CAST_TO_INTS(F64, ar_f64, x, AR_SAT_F64)
AR_CAST_TO_FLOATS(F64, ar_f64, x)
AR_CAST(F64, ar_f64, F16, ar_f16, ar_f64_to_f16(x))
AR_CAST(F64, ar_f64, BF16, ar_bf16, ar_f64_to_bf16(x))

AR_CAST_TO_INTS(C64, ar_c64, x.re, AR_SAT_F32)
AR_CAST(C64, ar_c64, BOOL, ar_bool, x.re != 0 || x.im != 0)
AR_CAST(C64, ar_c64, F16, ar_f16, ar_f32_to_f16(x.re))
AR_CAST(C64, ar_c64, BF16, ar_bf16, ar_f32_to_bf16(x.re))
AR_CAST(C64, ar_c64, F32, ar_f32, x.re)
AR_CAST(C64, ar_c64, F64, ar_f64, (ar_f64)x.re)
AR_CAST(C64, ar_c64, C64, ar_c64, x)
AR_CAST(C64, ar_c64, C128, ar_c128, (AR_VALUE(ar_c128){(ar_f64)x.re, (ar_f64)x.im}))
AR_CAST_TO_INTS(C128, ar_c128, x.re, AR_SAT_F64)
AR_CAST(C128, ar_c128, BOOL, ar_bool, x.re != 0 || x.im != 0)
AR_CAST(C128, ar_c128, F16, ar_f16, ar_f64_to_f16(x.re))
AR_CAST(C128, ar_c128, BF16, ar_bf16, ar_f64_to_bf16(x.re))
AR_CAST(C128, ar_c128, F32, ar_f32, (ar_f32)x.re)
AR_CAST(C128, ar_c128, F64, ar_f64, x.re)
AR_CAST(C128, ar_c128, C64, ar_c64, (AR_VALUE(ar_c64){(ar_f32)x.re, (ar_f32)x.im}))
AR_CAST(C128, ar_c128, C128, ar_c128, x)

#undef AR_CAST
#undef AR_CAST_INT
#undef AR_CAST_TO_INTS
#undef AR_CAST_TO_FLOATS
#undef AR_WRAP
#undef AR_SAT_F32
#undef AR_SAT_F64
#undef AR_SATURATE
#undef AR_SATURATE_ALL

#endif
