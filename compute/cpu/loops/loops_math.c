/* Vector loops of the elementary functions of float32 and float64, put into the table over those of
 * loops_float.c.
 *
 * With FMA these are vecmath.h's functions, vectorised by the compiler, and for the others SLEEF's
 * vector functions if the build has it. Otherwise scalar.h's meaning, the C library, stays (without
 * FMA SLEEF is slower than that). Each vector function is valid only for arguments in its range
 * [low, high]: beyond it SLEEF is wrong or takes another path for all lanes at once (found with the
 * golden tables). A chunk is checked first; scalar.h computes the rare arguments outside, and the
 * vector function gets 1 in their place, so that no element's result depends on its neighbours.
 * Tails go through a padded copy for the same reason. */
#include <string.h>

#include "compute/cpu/loops/loops_math.h"

#if defined(__FMA__)
/* right for every argument: no chunks needed */
#define OWN_TOTAL(X)                                                                               \
    X(SIGMOID, F32)                                                                                \
    X(TANH, F32)                                                                                   \
    X(ERF, F32)                                                                                    \
    X(SIGMOID, F64)
#define OWN_EXP(X)                                                                                 \
    X(EXP, F32)                                                                                    \
    X(EXP, F64)
#define TOTAL(OP, T)                                                                               \
    static void chunked_##OP##_##T(void *out, const void *const *args, size_t n)                   \
    {                                                                                              \
        REAL_##T *o = out;                                                                         \
        const REAL_##T *a = args[0];                                                               \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = vm_##OP##_##T(a[i]);            \
    }
#define OWN_UNARY(X)                                                                               \
    X(SIN, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(COS, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(TAN, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(LOG, F32, 0x1p-126f, 0x1.fffffep+127f)                                                       \
    X(SIN, F64, -VM_TRIG_F64, VM_TRIG_F64)                                                         \
    X(COS, F64, -VM_TRIG_F64, VM_TRIG_F64)                                                         \
    X(TAN, F64, -VM_TRIG_F64, VM_TRIG_F64)
#define OWN(OP, T, low, high)                                                                      \
    static void block_##OP##_##T(REAL_##T *out, const REAL_##T *in, size_t n)                      \
    {                                                                                              \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) out[i] = vm_##OP##_##T(in[i]);         \
    }                                                                                              \
    LOOP_CHUNKED(OP, T, low, high)
#include "compute/cpu/loops/vecmath.h"
OWN_TOTAL(TOTAL)
#if defined(__AVX512F__)
/* vm_EXP's last third, its scaling, is one instruction here. It takes any power of two and rounds
 * once, as the two products there do: the same bits. */
#define EXP512(T, N, S)                                                                            \
    static void chunked_EXP_##T(void *out, const void *const *args, size_t n)                      \
    {                                                                                              \
        REAL_##T *o = out, p[MATH_CHUNK], k[MATH_CHUNK];                                           \
        const REAL_##T *a = args[0];                                                               \
        for (size_t m; n != 0; o += m, a += m, n -= m) {                                           \
            m = n < MATH_CHUNK ? n : MATH_CHUNK;                                                   \
            _Pragma("GCC ivdep") for (size_t i = 0; i < m; i++)                                    \
            {                                                                                      \
                REAL_##T t;                                                                        \
                p[i] = vm_exp_##T(a[i], &t);                                                       \
                k[i] = t - ROUNDER_##T;                                                            \
            }                                                                                      \
            for (size_t i = 0; i < m; i += N) {                                                    \
                const unsigned some = m - i < N ? (1u << (m - i)) - 1 : (1u << N) - 1;             \
                _mm512_mask_storeu_##S(                                                            \
                    o + i, (__mmask##N)some,                                                       \
                    _mm512_scalef_##S(_mm512_loadu_##S(p + i), _mm512_loadu_##S(k + i)));          \
            }                                                                                      \
        }                                                                                          \
    }
EXP512(F32, 16, ps)
EXP512(F64, 8, pd)
#else
OWN_EXP(TOTAL)
#endif
OWN_UNARY(OWN)
/* both arguments finite */
#define OWN_BINARY(X) X(POW, F32, -0x1.fffffep+127f, 0x1.fffffep+127f)
#define OWN2(OP, T, low, high)                                                                     \
    static void block_##OP##_##T(REAL_##T *out, const REAL_##T *a, const REAL_##T *b, size_t n)    \
    {                                                                                              \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) out[i] = vm_##OP##_##T(a[i], b[i]);    \
    }                                                                                              \
    LOOP_CHUNKED2(OP, T, low, high)
OWN_BINARY(OWN2)
/* exact results, so that either way gives the same bits */
#define OWN_MODULO(X)                                                                              \
    X(FLOOR_DIVIDE, F32)                                                                           \
    X(REMAINDER, F32)                                                                              \
    X(FMOD, F32)                                                                                   \
    X(FLOOR_DIVIDE, F64)                                                                           \
    X(REMAINDER, F64)                                                                              \
    X(FMOD, F64)
#define MODULO(OP, T)                                                                              \
    static void chunked_##OP##_##T(void *out, const void *const *args, size_t n)                   \
    {                                                                                              \
        REAL_##T *o = out;                                                                         \
        const REAL_##T *a = args[0], *b = args[1];                                                 \
        for (size_t m; n != 0; o += m, a += m, b += m, n -= m) {                                   \
            REAL_##T y[MATH_CHUNK];                                                                \
            m = n < MATH_CHUNK ? n : MATH_CHUNK;                                                   \
            int ok = 1;                                                                            \
            for (size_t i = 0; i < m; i++)                                                         \
                ok &= vm_fmod_ok_##T(a[i], b[i]);                                                  \
            for (size_t i = 0; i < m; i++)                                                         \
                y[i] = vm_##OP##_##T(a[i], b[i]);                                                  \
            for (size_t i = 0; !ok && i < m; i++)                                                  \
                if (!vm_fmod_ok_##T(a[i], b[i]))                                                   \
                    y[i] = ar_##OP##_##T(a[i], b[i]);                                              \
            memcpy(o, y, m * sizeof *o);                                                           \
        }                                                                                          \
    }
OWN_MODULO(MODULO)
#else
#define OWN_TOTAL(X)
#define OWN_EXP(X)
#define OWN_UNARY(X)
#define OWN_BINARY(X)
#define OWN_MODULO(X)
#endif

#if defined(HAVE_SLEEF)
#define SLEEF_UNARY(X)                                                                             \
    X(CBRT, F32, cbrt, u10, -INFINITY, INFINITY)                                                   \
    X(EXPM1, F32, expm1, u10, -INFINITY, INFINITY)                                                 \
    X(LOG1P, F32, log1p, u10, -INFINITY, 1e37f)                                                    \
    X(LOG2, F32, log2, u10, -INFINITY, INFINITY)                                                   \
    X(LOG10, F32, log10, u10, -INFINITY, INFINITY)                                                 \
    X(ASIN, F32, asin, u10, -INFINITY, INFINITY)                                                   \
    X(ACOS, F32, acos, u10, -INFINITY, INFINITY)                                                   \
    X(ATAN, F32, atan, u10, -INFINITY, INFINITY)                                                   \
    X(SINH, F32, sinh, u10, -88, 88)                                                               \
    X(COSH, F32, cosh, u10, -88, 88)                                                               \
    X(ASINH, F32, asinh, u10, -1e18f, 1e18f)                                                       \
    X(ACOSH, F32, acosh, u10, -INFINITY, 1e18f)                                                    \
    X(ATANH, F32, atanh, u10, -INFINITY, INFINITY)                                                 \
    X(GAMMA, F32, tgamma, u10, -30, INFINITY)                                                      \
    X(LGAMMA, F32, lgamma, u10, 0, 1e30f)                                                          \
    X(CBRT, F64, cbrt, u10, -INFINITY, INFINITY)                                                   \
    X(EXPM1, F64, expm1, u10, -INFINITY, INFINITY)                                                 \
    X(LOG, F64, log, u10, -INFINITY, INFINITY)                                                     \
    X(LOG1P, F64, log1p, u10, -INFINITY, 1e306)                                                    \
    X(LOG2, F64, log2, u10, -INFINITY, INFINITY)                                                   \
    X(LOG10, F64, log10, u10, -INFINITY, INFINITY)                                                 \
    X(ASIN, F64, asin, u10, -INFINITY, INFINITY)                                                   \
    X(ACOS, F64, acos, u10, -INFINITY, INFINITY)                                                   \
    X(ATAN, F64, atan, u10, -INFINITY, INFINITY)                                                   \
    X(SINH, F64, sinh, u10, -709, 709)                                                             \
    X(COSH, F64, cosh, u10, -709, 709)                                                             \
    X(TANH, F64, tanh, u10, -INFINITY, INFINITY)                                                   \
    X(ASINH, F64, asinh, u10, -1e153, 1e153)                                                       \
    X(ACOSH, F64, acosh, u10, -INFINITY, 1e153)                                                    \
    X(ATANH, F64, atanh, u10, -INFINITY, INFINITY)                                                 \
    X(ERF, F64, erf, u10, -INFINITY, INFINITY)                                                     \
    X(GAMMA, F64, tgamma, u10, -150, INFINITY)                                                     \
    X(LGAMMA, F64, lgamma, u10, 0, 1e300)
/* both arguments in [low, high] */
#define SLEEF_BINARY(X)                                                                            \
    X(ATAN2, F32, atan2, u10, -INFINITY, INFINITY)                                                 \
    X(POW, F64, pow, u10, -INFINITY, INFINITY)                                                     \
    X(ATAN2, F64, atan2, u10, -INFINITY, INFINITY)                                                 \
    X(HYPOT, F64, hypot, u05, -INFINITY, INFINITY)
SLEEF_UNARY(SLEEF_LOOP)
SLEEF_BINARY(SLEEF_LOOP2)

/* the larger + log1p(exp(-difference)) */
#define LOGADDEXP(T, ABS, limit)                                                                   \
    static void block_LOGADDEXP_##T(REAL_##T *out, const REAL_##T *a, const REAL_##T *b, size_t n) \
    {                                                                                              \
        REAL_##T e[MATH_CHUNK];                                                                    \
        for (size_t i = 0; i < n; i++)                                                             \
            e[i] = vm_EXP_##T(-ABS(a[i] - b[i]));                                                  \
        block_LOG1P_##T(e, e, n);                                                                  \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) out[i] =                               \
            (a[i] > b[i] ? a[i] : b[i]) + e[i];                                                    \
    }                                                                                              \
    LOOP_CHUNKED2(LOGADDEXP, T, -limit, limit)
LOGADDEXP(F32, fabsf, 3e38f)
LOGADDEXP(F64, fabs, 1e308)
#define SLEEF_COMPOSED(X)                                                                          \
    X(LOGADDEXP, F32)                                                                              \
    X(LOGADDEXP, F64)
#else
#define SLEEF_UNARY(X)
#define SLEEF_BINARY(X)
#define SLEEF_COMPOSED(X)
#endif

void LOOPS_FILL(math)(struct loop_table *t)
{
    (void)t; /* the baseline has none */
#define SET_CHUNKED(OP, T, ...) t->op[OP_##OP][DT_##T] = chunked_##OP##_##T;
    OWN_TOTAL(SET_CHUNKED)
    OWN_EXP(SET_CHUNKED)
    OWN_UNARY(SET_CHUNKED)
    OWN_BINARY(SET_CHUNKED)
    SLEEF_UNARY(SET_CHUNKED)
    SLEEF_BINARY(SET_CHUNKED)
    SLEEF_COMPOSED(SET_CHUNKED)
    OWN_MODULO(SET_CHUNKED)
}
