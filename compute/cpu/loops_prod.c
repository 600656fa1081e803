/* Products of floats and complex numbers, in a fixed number of lanes folded as a tree, as the sums
 * are (loops_reduce.c, which has those of integers). float32 and complex64 multiply in double, so
 * that neither rounding nor the range of an intermediate product shows in the result. Complex
 * products are built without fused multiply-adds, see meson.build. */
#include <string.h>

#include "compute/cpu/loops_table.h"
#include "compute/kernels/scalar.h"

enum { LANES = 32, PAIRS = 16 };

#define REAL_PROD(T, R)                                                                            \
    static void prod_##T##_vinit(void *acc, size_t n)                                              \
    {                                                                                              \
        double *a = acc;                                                                           \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = 1;                                                                              \
    }                                                                                              \
    static void prod_##T##_block(void *state, const void *in, size_t n)                            \
    {                                                                                              \
        const R *x = in;                                                                           \
        double lanes[LANES];                                                                       \
        prod_##T##_vinit(lanes, LANES);                                                            \
        for (; n >= LANES; x += LANES, n -= LANES)                                                 \
            for (int i = 0; i < LANES; i++)                                                        \
                lanes[i] *= (double)x[i];                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            lanes[i] *= (double)x[i];                                                              \
        for (int w = LANES / 2; w > 0; w /= 2)                                                     \
            for (int i = 0; i < w; i++)                                                            \
                lanes[i] *= lanes[i + w];                                                          \
        *(double *)state *= lanes[0];                                                              \
    }                                                                                              \
    static void prod_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                \
    {                                                                                              \
        (void)stride;                                                                              \
        double *a = acc;                                                                           \
        const R *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] *= (double)x[i];                  \
    }                                                                                              \
    static void prod_##T##_vmerge(void *into, const void *from, size_t n, size_t stride)           \
    {                                                                                              \
        (void)stride;                                                                              \
        double *a = into;                                                                          \
        const double *b = from;                                                                    \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] *= b[i];                          \
    }                                                                                              \
    static void prod_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,            \
                                   double divisor)                                                 \
    {                                                                                              \
        (void)stride;                                                                              \
        R *o = out;                                                                                \
        const double *a = acc;                                                                     \
        (void)divisor;                                                                             \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = (R)a[i];                        \
    }
REAL_PROD(F32, ar_f32)
REAL_PROD(F64, ar_f64)

#define COMPLEX_PROD(T, R, P)                                                                      \
    static void prod_##T##_vinit(void *acc, size_t n)                                              \
    {                                                                                              \
        ar_c128 *a = acc;                                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = (ar_c128){1, 0};                                                                \
    }                                                                                              \
    static void prod_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                \
    {                                                                                              \
        (void)stride;                                                                              \
        ar_c128 *a = acc;                                                                          \
        const R *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] =                                 \
            ar_MULTIPLY_C128(a[i], (ar_c128){x[i].re, x[i].im});                                   \
    }                                                                                              \
    static void prod_##T##_vmerge(void *into, const void *from, size_t n, size_t stride)           \
    {                                                                                              \
        (void)stride;                                                                              \
        ar_c128 *a = into;                                                                         \
        const ar_c128 *b = from;                                                                   \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] = ar_MULTIPLY_C128(a[i], b[i]);   \
    }                                                                                              \
    static void prod_##T##_block(void *state, const void *in, size_t n)                            \
    {                                                                                              \
        const R *x = in;                                                                           \
        ar_c128 lanes[PAIRS];                                                                      \
        prod_##T##_vinit(lanes, PAIRS);                                                            \
        for (; n >= PAIRS; x += PAIRS, n -= PAIRS)                                                 \
            prod_##T##_vadd(lanes, x, PAIRS, PAIRS);                                               \
        prod_##T##_vadd(lanes, x, n, PAIRS);                                                       \
        for (size_t w = PAIRS / 2; w > 0; w /= 2)                                                  \
            prod_##T##_vmerge(lanes, lanes + w, w, PAIRS);                                         \
        prod_##T##_vmerge(state, lanes, 1, 1);                                                     \
    }                                                                                              \
    static void prod_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,            \
                                   double divisor)                                                 \
    {                                                                                              \
        (void)stride;                                                                              \
        R *o = out;                                                                                \
        const ar_c128 *a = acc;                                                                    \
        (void)divisor;                                                                             \
        for (size_t i = 0; i < n; i++)                                                             \
            o[i] = (R){(P)a[i].re, (P)a[i].im};                                                    \
    }
COMPLEX_PROD(C64, ar_c64, ar_f32)
COMPLEX_PROD(C128, ar_c128, ar_f64)

#define SINGLE(T)                                                                                  \
    static void prod_##T##_init(void *state)                                                       \
    {                                                                                              \
        prod_##T##_vinit(state, 1);                                                                \
    }                                                                                              \
    static void prod_##T##_merge(void *into, const void *from)                                     \
    {                                                                                              \
        prod_##T##_vmerge(into, from, 1, 1);                                                       \
    }                                                                                              \
    static void prod_##T##_finish(const void *state, void *out, double divisor)                    \
    {                                                                                              \
        prod_##T##_vfinish(out, state, 1, 1, divisor);                                             \
    }
SINGLE(F32)
SINGLE(F64)
SINGLE(C64)
SINGLE(C128)

void LOOPS_FILL(prod)(struct loop_table *t)
{
    REDUCE_SET(PROD, prod, F32, sizeof(double), sizeof(double))
    REDUCE_SET(PROD, prod, F64, sizeof(double), sizeof(double))
    REDUCE_SET(PROD, prod, C64, sizeof(ar_c128), sizeof(ar_c128))
    REDUCE_SET(PROD, prod, C128, sizeof(ar_c128), sizeof(ar_c128))
}
