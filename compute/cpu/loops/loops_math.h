/* How loops_math.c runs a vector function over a block: chunks, arguments outside its range, tails.
 * Private to loops_math.c; compiled once per instruction set. */
#ifndef ARRAYD_CPU_LOOPS_MATH_H
#define ARRAYD_CPU_LOOPS_MATH_H

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

#define REAL_F32 ar_f32
#define REAL_F64 ar_f64

/* The widest vector of any instruction set: chunks are padded to it. */
enum { MATH_CHUNK = 256, MATH_PAD = 16 };

#if defined(__FMA__)
#include <immintrin.h>
#endif
#if defined(HAVE_SLEEF) && defined(__FMA__)
#include <sleef.h>
#if defined(__AVX512F__)
#define VECTOR_F32         __m512
#define VECTOR_F64         __m512d
#define SLEEF_F32(fn, acc) Sleef_##fn##f16_##acc##avx512f
#define SLEEF_F64(fn, acc) Sleef_##fn##d8_##acc##avx512f
#else
#define VECTOR_F32         __m256
#define VECTOR_F64         __m256d
#define SLEEF_F32(fn, acc) Sleef_##fn##f8_##acc##avx2
#define SLEEF_F64(fn, acc) Sleef_##fn##d4_##acc##avx2
#endif
#else
#undef HAVE_SLEEF
#endif

#define DEFINE_CHUNKS(T)                                                                           \
    static inline __attribute__((always_inline, unused)) void chunks_##T(                          \
        void *out, const void *const *args, size_t n, REAL_##T low, REAL_##T high,                 \
        void (*vector)(REAL_##T *, const REAL_##T *, size_t), REAL_##T (*scalar)(REAL_##T))        \
    {                                                                                              \
        REAL_##T *o = out;                                                                         \
        const REAL_##T *a = args[0];                                                               \
        while (n != 0) {                                                                           \
            size_t m = n < MATH_CHUNK ? n : MATH_CHUNK;                                            \
            int inside = 1;                                                                        \
            for (size_t i = 0; i < m; i++)                                                         \
                inside &= (a[i] >= low) & (a[i] <= high);                                          \
            if (inside && m % MATH_PAD == 0) {                                                     \
                vector(o, a, m);                                                                   \
            } else {                                                                               \
                REAL_##T x[MATH_CHUNK], y[MATH_CHUNK];                                             \
                size_t padded = (m + MATH_PAD - 1) / MATH_PAD * MATH_PAD;                          \
                for (size_t i = 0; i < m; i++)                                                     \
                    x[i] = (a[i] >= low) & (a[i] <= high) ? a[i] : (REAL_##T)1;                    \
                for (size_t i = m; i < padded; i++)                                                \
                    x[i] = (REAL_##T)1;                                                            \
                vector(y, x, padded);                                                              \
                for (size_t i = 0; !inside && i < m; i++)                                          \
                    if (!((a[i] >= low) & (a[i] <= high)))                                         \
                        y[i] = scalar(a[i]);                                                       \
                memcpy(o, y, m * sizeof *o);                                                       \
            }                                                                                      \
            o += m;                                                                                \
            a += m;                                                                                \
            n -= m;                                                                                \
        }                                                                                          \
    }                                                                                              \
    static inline __attribute__((always_inline, unused)) void chunks2_##T(                         \
        void *out, const void *const *args, size_t n, REAL_##T low, REAL_##T high,                 \
        void (*vector)(REAL_##T *, const REAL_##T *, const REAL_##T *, size_t),                    \
        REAL_##T (*scalar)(REAL_##T, REAL_##T))                                                    \
    {                                                                                              \
        REAL_##T *o = out;                                                                         \
        const REAL_##T *a = args[0], *b = args[1];                                                 \
        while (n != 0) {                                                                           \
            size_t m = n < MATH_CHUNK ? n : MATH_CHUNK;                                            \
            int inside = 1;                                                                        \
            for (size_t i = 0; i < m; i++)                                                         \
                inside &= (a[i] >= low) & (a[i] <= high) & (b[i] >= low) & (b[i] <= high);         \
            if (inside && m % MATH_PAD == 0) {                                                     \
                vector(o, a, b, m);                                                                \
            } else {                                                                               \
                REAL_##T x[MATH_CHUNK], y[MATH_CHUNK], z[MATH_CHUNK];                              \
                size_t padded = (m + MATH_PAD - 1) / MATH_PAD * MATH_PAD;                          \
                for (size_t i = 0; i < m; i++) {                                                   \
                    int ok = (a[i] >= low) & (a[i] <= high) & (b[i] >= low) & (b[i] <= high);      \
                    x[i] = ok ? a[i] : (REAL_##T)1;                                                \
                    y[i] = ok ? b[i] : (REAL_##T)1;                                                \
                }                                                                                  \
                for (size_t i = m; i < padded; i++)                                                \
                    x[i] = y[i] = (REAL_##T)1;                                                     \
                vector(z, x, y, padded);                                                           \
                for (size_t i = 0; !inside && i < m; i++)                                          \
                    if (!((a[i] >= low) & (a[i] <= high) & (b[i] >= low) & (b[i] <= high)))        \
                        z[i] = scalar(a[i], b[i]);                                                 \
                memcpy(o, z, m * sizeof *o);                                                       \
            }                                                                                      \
            o += m;                                                                                \
            a += m;                                                                                \
            b += m;                                                                                \
            n -= m;                                                                                \
        }                                                                                          \
    }
DEFINE_CHUNKS(F32)
DEFINE_CHUNKS(F64)

/* The loop over block_<OP>_<T>, which handles multiples of MATH_PAD elements in [low, high]. */
#define LOOP_CHUNKED(OP, T, low, high)                                                             \
    static void chunked_##OP##_##T(void *out, const void *const *args, size_t n)                   \
    {                                                                                              \
        chunks_##T(out, args, n, low, high, block_##OP##_##T, ar_##OP##_##T);                      \
    }
#define LOOP_CHUNKED2(OP, T, low, high)                                                            \
    static void chunked_##OP##_##T(void *out, const void *const *args, size_t n)                   \
    {                                                                                              \
        chunks2_##T(out, args, n, low, high, block_##OP##_##T, ar_##OP##_##T);                     \
    }

#define SLEEF_LOOP(OP, T, fn, acc, low, high)                                                      \
    static void block_##OP##_##T(REAL_##T *out, const REAL_##T *in, size_t n)                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i += sizeof(VECTOR_##T) / sizeof *in) {                          \
            VECTOR_##T v;                                                                          \
            memcpy(&v, in + i, sizeof v);                                                          \
            v = SLEEF_##T(fn, acc)(v);                                                             \
            memcpy(out + i, &v, sizeof v);                                                         \
        }                                                                                          \
    }                                                                                              \
    LOOP_CHUNKED(OP, T, low, high)
#define SLEEF_LOOP2(OP, T, fn, acc, low, high)                                                     \
    static void block_##OP##_##T(REAL_##T *out, const REAL_##T *a, const REAL_##T *b, size_t n)    \
    {                                                                                              \
        for (size_t i = 0; i < n; i += sizeof(VECTOR_##T) / sizeof *a) {                           \
            VECTOR_##T v, w;                                                                       \
            memcpy(&v, a + i, sizeof v);                                                           \
            memcpy(&w, b + i, sizeof w);                                                           \
            v = SLEEF_##T(fn, acc)(v, w);                                                          \
            memcpy(out + i, &v, sizeof v);                                                         \
        }                                                                                          \
    }                                                                                              \
    LOOP_CHUNKED2(OP, T, low, high)

#endif
