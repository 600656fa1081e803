/* The loops of fused.h, generated; compiled once per instruction set with ISA defined to its name,
 * like the other loops. */
#include "compute/cpu/loops/fused.h"

#include <stdint.h>
#include <string.h>

#define FIRST_ADD(a, b) (a) + (b)
#define FIRST_SUB(a, b) (a) - (b)
#define FIRST_MUL(a, b) (a) * (b)
#define FIRST_DIV(a, b) (a) / (b)
#define STEP_ADD(v, x)  (v) + (x)
#define STEP_SUB(v, x)  (v) - (x)
#define STEP_RSUB(v, x) (x) - (v)
#define STEP_MUL(v, x)  (v) * (x)

#define TWO(T, NAME, F, S)                                                                         \
    static void two_##NAME##_##F##_##S(void *out, const void *const *args, size_t n)               \
    {                                                                                              \
        T *o = out;                                                                                \
        const T *a = args[0], *b = args[1], *c = args[2];                                          \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            T v = FIRST_##F(a[i], b[i]);                                                           \
            o[i] = STEP_##S(v, c[i]);                                                              \
        }                                                                                          \
    }
#define THREE(T, NAME, F, S, U)                                                                    \
    static void three_##NAME##_##F##_##S##_##U(void *out, const void *const *args, size_t n)       \
    {                                                                                              \
        T *o = out;                                                                                \
        const T *a = args[0], *b = args[1], *c = args[2], *d = args[3];                            \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            T v = FIRST_##F(a[i], b[i]);                                                           \
            v = STEP_##S(v, c[i]);                                                                 \
            o[i] = STEP_##U(v, d[i]);                                                              \
        }                                                                                          \
    }
#define SET_TWO(T, NAME, F, S) t->two[NAME][FUSED_FIRST_##F][FUSED_##S] = two_##NAME##_##F##_##S;
#define SET_THREE(T, NAME, F, S, U)                                                                \
    t->three[NAME][FUSED_FIRST_##F][FUSED_##S][FUSED_##U] = three_##NAME##_##F##_##S##_##U;

#define STEPS3(X, T, NAME, F, S)                                                                   \
    X(T, NAME, F, S, ADD) X(T, NAME, F, S, SUB) X(T, NAME, F, S, RSUB) X(T, NAME, F, S, MUL)
#define STEPS2(X2, X3, T, NAME, F, S) X2(T, NAME, F, S) STEPS3(X3, T, NAME, F, S)
#define STEPS1(X2, X3, T, NAME, F)                                                                 \
    STEPS2(X2, X3, T, NAME, F, ADD)                                                                \
    STEPS2(X2, X3, T, NAME, F, SUB)                                                                \
    STEPS2(X2, X3, T, NAME, F, RSUB)                                                               \
    STEPS2(X2, X3, T, NAME, F, MUL)
#define ALL(X2, X3, T, NAME)                                                                       \
    STEPS1(X2, X3, T, NAME, ADD)                                                                   \
    STEPS1(X2, X3, T, NAME, SUB)                                                                   \
    STEPS1(X2, X3, T, NAME, MUL)                                                                   \
    STEPS1(X2, X3, T, NAME, DIV)

/* Strips of as many vectors as registers hold are summed, term after term; the weight of a term is
 * spread over a vector once for all of them. */
#ifdef __AVX512F__
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif
#define STRIPS(T, NAME, N)                                                                         \
    for (; i + N * lanes <= n; i += N * lanes) {                                                   \
        vector_##NAME v[N];                                                                        \
        uintptr_t before = 0;                                                                      \
        for (size_t t = 0; t < n_terms; t++) {                                                     \
            const T *x = (const T *)terms[t] + i, weight = (T)weights[t];                          \
            if (N > 1 && (uintptr_t)terms[t] - before >= 64) {                                     \
                before = (uintptr_t)terms[t];                                                      \
                _Pragma("GCC unroll 8") for (size_t j = 0; j < N; j++)                             \
                    __builtin_prefetch((const char *)(x + (2 * N + j) * lanes));                   \
            }                                                                                      \
            _Pragma("GCC unroll 8") for (size_t j = 0; j < N; j++)                                 \
            {                                                                                      \
                const vector_##NAME p = *(const loose_##NAME *)(x + j * lanes) * weight;           \
                v[j] = t ? v[j] + p : p;                                                           \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (size_t j = 0; j < N; j++) *                                   \
            (loose_##NAME *)(o + i + j * lanes) = v[j];                                            \
    }
#define SUM(T, NAME)                                                                               \
    typedef T vector_##NAME __attribute__((vector_size(VECTOR)));                                  \
    typedef T loose_##NAME                                                                         \
        __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias)); /* anywhere */        \
    static void sum_##NAME(void *out, const void *const *terms, const double *weights,             \
                           size_t n_terms, size_t n)                                               \
    {                                                                                              \
        const size_t lanes = VECTOR / sizeof(T);                                                   \
        T *o = out;                                                                                \
        size_t i = 0;                                                                              \
        STRIPS(T, NAME, 8)                                                                         \
        STRIPS(T, NAME, 4)                                                                         \
        STRIPS(T, NAME, 2)                                                                         \
        STRIPS(T, NAME, 1)                                                                         \
        T v[VECTOR / sizeof(T)] = {0};                                                             \
        for (size_t t = 0; t < n_terms; t++) {                                                     \
            const T *x = (const T *)terms[t] + i, weight = (T)weights[t];                          \
            for (size_t j = 0; j < n - i; j++)                                                     \
                v[j] = t ? v[j] + x[j] * weight : x[j] * weight;                                   \
        }                                                                                          \
        memcpy(o + i, v, (n - i) * sizeof(T));                                                     \
    }
SUM(float, 0)
SUM(double, 1)

/* 0: float32, 1: float64 */
ALL(TWO, THREE, float, 0)
ALL(TWO, THREE, double, 1)

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
void PASTE(fused_fill_, ISA)(struct fused_table *t)
{
    t->sum[0] = sum_0;
    t->sum[1] = sum_1;
    ALL(SET_TWO, SET_THREE, float, 0)
    ALL(SET_TWO, SET_THREE, double, 1)
}
