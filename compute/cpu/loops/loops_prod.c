/* Products of floats and complex numbers, in a fixed number of lanes folded as a tree, like the
 * sums (loops_reduce.c, which also has the products of integers). Real ones are kept as a fraction
 * and a power of two (product.h), in two planes of an accumulator. complex64 multiplies in double,
 * so that neither rounding nor the range of an intermediate product shows in the result; complex128
 * may overflow or underflow on the way. Complex products are built without fused multiply-adds, see
 * meson.build. */
#include <string.h>

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/product.h"
#include "compute/kernels/scalar/scalar.h"

enum { LANES = 32, FEW = 8, PAIRS = 16, CHUNK = 64 };

/* vectors are never passed to a function that is not inlined */
#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE static inline __attribute__((always_inline))

typedef double v4d __attribute__((vector_size(32)));
typedef float v4f __attribute__((vector_size(16)));
typedef ar_i64 v4l __attribute__((vector_size(32)));
typedef ar_u64 v4u __attribute__((vector_size(32)));
#define WIDTH 4

INLINE v4d load_F32(const float *x)
{
    v4f v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(v, v4d);
}

INLINE v4d load_F64(const double *x)
{
    v4d v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* All ones where v is not 0, infinite or NaN, and lies within `low` and its inverse. */
INLINE v4l within(v4d v, double low, double high)
{
    v = (v4d)((v4u)v & ~((ar_u64)1 << 63));
    return (v >= low) & (v <= high);
}

/* ar_fraction of each. */
INLINE v4d fractions(v4d p, v4l *e)
{
    const v4u bits = (v4u)p, finite = (v4u)within(p, 0x1p-1022, 0x1.fffffffffffffp1023);
    *e += (v4l)(((bits >> 52 & 2047) - 1022) & finite);
    return (v4d)((bits & ~(finite & (ar_u64)2047 << 52)) | (finite & (ar_u64)1022 << 52));
}

INLINE bool all(v4l v)
{
    return (v[0] & v[1] & v[2] & v[3]) != 0;
}

static void real_vinit(void *acc, size_t n)
{
    double *m = acc;
    ar_i64 *e = (ar_i64 *)(m + n);
    for (size_t i = 0; i < n; i++) {
        m[i] = 0.5;
        e[i] = 1;
    }
}

static void real_vmerge(void *into, const void *from, size_t n, size_t stride)
{
    double *m = into;
    const double *p = from;
    ar_i64 *e = (ar_i64 *)(m + stride);
    const ar_i64 *f = (const ar_i64 *)(p + stride);
    for (size_t i = 0; i < n; i++) {
        e[i] += f[i];
        m[i] = ar_fraction(m[i] * p[i], &e[i]);
    }
}

static inline void times_one(double *m, ar_i64 *e, double x)
{
    *m = ar_fraction(*m, e);
    const struct ar_product s = ar_product_by_any((struct ar_product){*m, *e}, x);
    *m = s.m;
    *e = s.e;
}

/* Fractions may be unnormalised: within LEAST and its inverse, or values without an exponent. They
 * are normalised only when they leave that range. ANY: one element may be enough to leave it
 * (float64); elements within SMALL and its inverse may be taken in ROWS times before, and so may
 * any float32. */
#define ROWS  6
#define SMALL 0x1p-150
#define LEAST 0x1p-500
#define REAL_PROD(T, R, ANY)                                                                       \
    /* n ≤ CHUNK lanes */                                                                        \
    static inline void prod_##T##_chunk(double *m, ar_i64 *e, const R *x, size_t n)                \
    {                                                                                              \
        const size_t whole = n - n % WIDTH;                                                        \
        v4l good = (v4l){0} - 1;                                                                   \
        for (size_t i = 0; i < whole && ANY; i += WIDTH)                                           \
            good &= within(load_##T(x + i), LEAST, 1 / LEAST);                                     \
        size_t i = all(good) ? whole : 0;                                                          \
        for (size_t k = 0; k < i; k += WIDTH) {                                                    \
            v4d v = load_F64(m + k) * load_##T(x + k);                                             \
            memcpy(m + k, &v, sizeof v);                                                           \
            good &= within(v, LEAST, 1 / LEAST);                                                   \
        }                                                                                          \
        for (size_t k = 0; k < i && !all(good); k += WIDTH) {                                      \
            v4l f;                                                                                 \
            memcpy(&f, e + k, sizeof f);                                                           \
            v4d v = fractions(load_F64(m + k), &f);                                                \
            memcpy(m + k, &v, sizeof v);                                                           \
            memcpy(e + k, &f, sizeof f);                                                           \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            times_one(m + i, e + i, (double)x[i]);                                                 \
    }                                                                                              \
    static void prod_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                \
    {                                                                                              \
        double *m = acc;                                                                           \
        ar_i64 *e = (ar_i64 *)(m + stride);                                                        \
        const R *x = in;                                                                           \
        for (size_t k; n != 0; n -= k, m += k, e += k, x += k) {                                   \
            k = n < CHUNK ? n : CHUNK;                                                             \
            prod_##T##_chunk(m, e, x, k);                                                          \
        }                                                                                          \
    }                                                                                              \
    INLINE void prod_##T##_lanes(void *state, const R *x, size_t n, const size_t w)                \
    {                                                                                              \
        v4d m[LANES / WIDTH];                                                                      \
        v4l e[LANES / WIDTH];                                                                      \
        double fraction[LANES], one[2];                                                            \
        ar_i64 exponent[LANES];                                                                    \
        for (size_t k = 0; k < w / WIDTH; k++) {                                                   \
            m[k] = (v4d){0} + 0.5;                                                                 \
            e[k] = (v4l){0} + 1;                                                                   \
        }                                                                                          \
        while (n >= w) {                                                                           \
            const size_t rows = n / w < ROWS ? n / w : ROWS;                                       \
            v4l good = (v4l){0} - 1;                                                               \
            for (size_t i = 0; i < rows * w && ANY; i += WIDTH)                                    \
                good &= within(load_##T(x + i), SMALL, 1 / SMALL);                                 \
            if (ANY && !all(good))                                                                 \
                break;                                                                             \
            for (size_t r = 0; r < rows; r++, x += w)                                              \
                for (size_t k = 0; k < w / WIDTH; k++)                                             \
                    m[k] *= load_##T(x + WIDTH * k);                                               \
            for (size_t k = 0; k < w / WIDTH; k++)                                                 \
                m[k] = fractions(m[k], &e[k]);                                                     \
            n -= rows * w;                                                                         \
        }                                                                                          \
        memcpy(fraction, m, w * sizeof *fraction);                                                 \
        memcpy(exponent, e, w * sizeof *exponent);                                                 \
        for (size_t k = 0, left = n; left != 0; left -= k, x += k) {                               \
            k = left < w ? left : w;                                                               \
            prod_##T##_chunk(fraction, exponent, x, k);                                            \
        }                                                                                          \
        for (size_t i = 0; i < w && n != 0; i++)                                                   \
            fraction[i] = ar_fraction(fraction[i], exponent + i);                                  \
        for (size_t half = w / 2; half > 0; half /= 2)                                             \
            for (size_t i = 0; i < half; i++) {                                                    \
                fraction[i] *= fraction[i + half]; /* not below 2^-LANES */                        \
                exponent[i] += exponent[i + half];                                                 \
            }                                                                                      \
        one[0] = fraction[0];                                                                      \
        memcpy(one + 1, exponent, sizeof *exponent);                                               \
        real_vmerge(state, one, 1, 1);                                                             \
    }                                                                                              \
    static void prod_##T##_block(void *state, const void *in, size_t n)                            \
    {                                                                                              \
        if (n < 2 * LANES)                                                                         \
            prod_##T##_lanes(state, in, n, FEW);                                                   \
        else                                                                                       \
            prod_##T##_lanes(state, in, n, LANES);                                                 \
    }                                                                                              \
    static void prod_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,            \
                                   double divisor)                                                 \
    {                                                                                              \
        R *o = out;                                                                                \
        const double *m = acc;                                                                     \
        const ar_i64 *e = (const ar_i64 *)(m + stride);                                            \
        (void)divisor;                                                                             \
        for (size_t i = 0; i < n; i++) {                                                           \
            struct ar_product s = {m[i], e[i]};                                                    \
            s.m = ar_fraction(s.m, &s.e);                                                          \
            o[i] = (R)ar_product_value(s);                                                         \
        }                                                                                          \
    }
#define REAL_SAME(T)                                                                               \
    static void prod_##T##_vinit(void *acc, size_t n)                                              \
    {                                                                                              \
        real_vinit(acc, n);                                                                        \
    }                                                                                              \
    static void prod_##T##_vmerge(void *into, const void *from, size_t n, size_t stride)           \
    {                                                                                              \
        real_vmerge(into, from, n, stride);                                                        \
    }
REAL_PROD(F32, ar_f32, 0)
REAL_PROD(F64, ar_f64, 1)
REAL_SAME(F32)
REAL_SAME(F64)

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
    REDUCE_SET(PROD, prod, F32, sizeof(struct ar_product), sizeof(struct ar_product))
    REDUCE_SET(PROD, prod, F64, sizeof(struct ar_product), sizeof(struct ar_product))
    t->reduce[REDUCE_PROD][DT_F32].acc_step = t->reduce[REDUCE_PROD][DT_F64].acc_step =
        sizeof(double);
    REDUCE_SET(PROD, prod, C64, sizeof(ar_c128), sizeof(ar_c128))
    REDUCE_SET(PROD, prod, C128, sizeof(ar_c128), sizeof(ar_c128))
}
