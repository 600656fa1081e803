/* Finds where the greatest and the least elements are. Elements are compared as integers made from
 * them (kernels/scalar/rank.h), so that finding the greatest vectorises. Its place in a block is
 * searched for only when it beats the best so far, which happens seldom. Ranks go through a buffer,
 * as in loops_reduce.c. */
#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/rank.h"

enum { RANKS = 512, FOUND = 64 };

#define ARG(NAME, T, R, K, LOWEST)                                                                 \
    static int64_t NAME##_##T##_peak(const void *in, size_t n)                                     \
    {                                                                                              \
        const R *x = in;                                                                           \
        K most = LOWEST, ranks[RANKS];                                                             \
        while (n != 0) {                                                                           \
            size_t m = n < RANKS ? n : RANKS;                                                      \
            for (size_t i = 0; i < m; i++)                                                         \
                ranks[i] = ar_##NAME##_##T(x[i]);                                                  \
            for (size_t i = 0; i < m; i++)                                                         \
                most = ranks[i] > most ? ranks[i] : most;                                          \
            x += m;                                                                                \
            n -= m;                                                                                \
        }                                                                                          \
        return most;                                                                               \
    }                                                                                              \
    static size_t NAME##_##T##_find(const void *in, size_t n, int64_t rank)                        \
    {                                                                                              \
        const R *x = in;                                                                           \
        size_t i = 0;                                                                              \
        for (int hit = 0; i + FOUND <= n; i += FOUND) { /* whole vectors, then the hit's */        \
            for (int j = 0; j < FOUND; j++)                                                        \
                hit |= ar_##NAME##_##T(x[i + j]) == (K)rank;                                       \
            if (hit)                                                                               \
                break;                                                                             \
        }                                                                                          \
        while (i < n && ar_##NAME##_##T(x[i]) != (K)rank)                                          \
            i++;                                                                                   \
        return i;                                                                                  \
    }                                                                                              \
    static void NAME##_##T##_lanes(void *ranks, int64_t *at, const void *in, size_t n,             \
                                   int64_t index)                                                  \
    {                                                                                              \
        K *most = ranks;                                                                           \
        const R *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            K k = ar_##NAME##_##T(x[i]);                                                           \
            int better = (k > most[i]) | ((k == most[i]) & (index < at[i]));                       \
            most[i] = better ? k : most[i];                                                        \
            at[i] = better ? index : at[i];                                                        \
        }                                                                                          \
    }
#define LANES(K, LOWEST)                                                                           \
    static void K##_init(void *ranks, int64_t *at, size_t n)                                       \
    {                                                                                              \
        K *most = ranks;                                                                           \
        for (size_t i = 0; i < n; i++) {                                                           \
            most[i] = LOWEST;                                                                      \
            at[i] = INT64_MAX;                                                                     \
        }                                                                                          \
    }                                                                                              \
    static void K##_merge(void *ranks, int64_t *at, const void *more_ranks,                        \
                          const int64_t *more_at, size_t n)                                        \
    {                                                                                              \
        K *a = ranks;                                                                              \
        const K *b = more_ranks;                                                                   \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            int better = (b[i] > a[i]) | ((b[i] == a[i]) & (more_at[i] < at[i]));                  \
            a[i] = better ? b[i] : a[i];                                                           \
            at[i] = better ? more_at[i] : at[i];                                                   \
        }                                                                                          \
    }
LANES(ar_i32, INT32_MIN)
LANES(ar_i64, INT64_MIN)

#define BOTH(T, R, K, LOWEST)                                                                      \
    ARG(greatest, T, R, K, LOWEST)                                                                 \
    ARG(least, T, R, K, LOWEST)
BOTH(BOOL, ar_bool, ar_i32, INT32_MIN)
BOTH(I8, ar_i8, ar_i32, INT32_MIN)
BOTH(I16, ar_i16, ar_i32, INT32_MIN)
BOTH(I32, ar_i32, ar_i32, INT32_MIN)
BOTH(I64, ar_i64, ar_i64, INT64_MIN)
BOTH(U8, ar_u8, ar_i32, INT32_MIN)
BOTH(U16, ar_u16, ar_i32, INT32_MIN)
BOTH(U32, ar_u32, ar_i32, INT32_MIN)
BOTH(U64, ar_u64, ar_i64, INT64_MIN)
BOTH(F32, ar_f32, ar_i32, INT32_MIN)
BOTH(F64, ar_f64, ar_i64, INT64_MIN)

void LOOPS_FILL(arg)(struct loop_table *t)
{
#define SET(LEAST, NAME, T, K)                                                                     \
    t->arg[LEAST][DT_##T] = (struct arg_loops){.peak = NAME##_##T##_peak,                          \
                                               .find = NAME##_##T##_find,                          \
                                               .init = K##_init,                                   \
                                               .lanes = NAME##_##T##_lanes,                        \
                                               .merge = K##_merge};
#define SET_BOTH(T, K)                                                                             \
    SET(0, greatest, T, K)                                                                         \
    SET(1, least, T, K)
    SET_BOTH(BOOL, ar_i32)
    SET_BOTH(I8, ar_i32)
    SET_BOTH(I16, ar_i32)
    SET_BOTH(I32, ar_i32)
    SET_BOTH(I64, ar_i64)
    SET_BOTH(U8, ar_i32)
    SET_BOTH(U16, ar_i32)
    SET_BOTH(U32, ar_i32)
    SET_BOTH(U64, ar_i64)
    SET_BOTH(F32, ar_i32)
    SET_BOTH(F64, ar_i64)
}
