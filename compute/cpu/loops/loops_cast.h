/* Text shared by loops_cast.c (from floats and complex) and loops_cast_int.c (from integers), which
 * are two files only so that they compile in parallel. */
#ifndef ARRAYD_CPU_LOOPS_CAST_H
#define ARRAYD_CPU_LOOPS_CAST_H

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define LOOP_CAST(F, f, T, R)                                                                      \
    static void cast_##F##_##T(void *out, const void *const *args, size_t n)                       \
    {                                                                                              \
        R *o = out;                                                                                \
        const f *a = args[0];                                                                      \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = ar_cast_##F##_##T(a[i]);        \
    }
#define SET_CAST(F, f, T, R) t->cast[DT_##F][DT_##T] = cast_##F##_##T;
#define CASTS_FROM(X, F, f)                                                                        \
    X(F, f, BOOL, ar_bool)                                                                         \
    X(F, f, I8, ar_i8)                                                                             \
    X(F, f, I16, ar_i16)                                                                           \
    X(F, f, I32, ar_i32)                                                                           \
    X(F, f, I64, ar_i64)                                                                           \
    X(F, f, U8, ar_u8)                                                                             \
    X(F, f, U16, ar_u16)                                                                           \
    X(F, f, U32, ar_u32)                                                                           \
    X(F, f, U64, ar_u64)                                                                           \
    X(F, f, F16, ar_f16)                                                                           \
    X(F, f, BF16, ar_bf16)                                                                         \
    X(F, f, F32, ar_f32)                                                                           \
    X(F, f, F64, ar_f64)                                                                           \
    X(F, f, C64, ar_c64)                                                                           \
    X(F, f, C128, ar_c128)

#endif
