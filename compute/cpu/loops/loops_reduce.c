/* Reductions.
 *
 * Sums of floats run in a fixed number of lanes, folded as a tree, so that the result is the same
 * on every instruction set: float32 (and complex64) lanes are float64; float64 lanes are short
 * chains whose sums are added to the state with Knuth's two-sum, keeping its error.
 *
 * Minima and maxima of floats are taken over integer keys that order as the floats do, with NaN
 * beyond the winning infinity. Integer minimum is associative, so the compiler vectorises it
 * without permission to reorder floats; -0 < +0 holds, and NaN propagates. */
#include <string.h>

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

enum { LANES = 32, CHUNK = 4096, KEYS = 512 };

/* Sums 32 interleaved lanes down to the first `width`; complex numbers stop at 2. */
static inline void fold(double *lanes, int width)
{
    for (int w = LANES / 2; w >= width; w /= 2)
        for (int i = 0; i < w; i++)
            lanes[i] += lanes[i + w];
}

/* The compiler keeps a local array in registers when the loop over it is plain. Vectors of 64
 * bytes, on a processor whose own have 32, would go through memory and take four times as long. */
#define LANES_OF(T, P)                                                                             \
    static void lanes_##T(const P *x, size_t n, double *ret)                                       \
    {                                                                                              \
        double lanes[LANES] = {0};                                                                 \
        for (; n >= LANES; x += LANES, n -= LANES)                                                 \
            for (size_t j = 0; j < LANES; j++)                                                     \
                lanes[j] += (double)x[j];                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            lanes[i] += (double)x[i];                                                              \
        memcpy(ret, lanes, sizeof lanes);                                                          \
    }
LANES_OF(F32, ar_f32)
LANES_OF(F64, ar_f64)

/* A running sum and the error of its additions (two-sum: exact for any magnitudes). */
struct running {
    double sum, error;
};
static inline void running_add(struct running *r, double x)
{
    double s = r->sum + x, b = s - r->sum;
    r->error += (r->sum - (s - b)) + (x - b);
    r->sum = s;
}
static inline double running_value(const struct running *r)
{
    /* an infinite sum has a NaN error */
    return ar_ISFINITE_F64(r->sum) ? r->sum + r->error : r->sum;
}

/* The state form of float sums; PARTS is 2 for complex. */
#define FLOAT_SUM(T, R, P, TO_LANES, PARTS)                                                        \
    static void sum_##T##_init(void *state)                                                        \
    {                                                                                              \
        memset(state, 0, PARTS * sizeof(struct running));                                          \
    }                                                                                              \
    static void sum_##T##_block(void *state, const void *in, size_t n)                             \
    {                                                                                              \
        struct running *s = state;                                                                 \
        const P *x = in;                                                                           \
        for (n *= PARTS; n != 0;) {                                                                \
            size_t m = n < CHUNK ? n : CHUNK;                                                      \
            double lanes[LANES];                                                                   \
            TO_LANES(x, m, lanes);                                                                 \
            fold(lanes, PARTS);                                                                    \
            for (int i = 0; i < PARTS; i++)                                                        \
                running_add(s + i, lanes[i]);                                                      \
            x += m;                                                                                \
            n -= m;                                                                                \
        }                                                                                          \
    }                                                                                              \
    static void sum_##T##_merge(void *into, const void *from)                                      \
    {                                                                                              \
        struct running *a = into;                                                                  \
        const struct running *b = from;                                                            \
        for (int i = 0; i < PARTS; i++) {                                                          \
            running_add(a + i, b[i].sum);                                                          \
            a[i].error += b[i].error;                                                              \
        }                                                                                          \
    }                                                                                              \
    static void sum_##T##_finish(const void *state, void *out, double divisor)                     \
    {                                                                                              \
        const struct running *s = state;                                                           \
        P *o = out;                                                                                \
        for (int i = 0; i < PARTS; i++)                                                            \
            o[i] = (P)(running_value(s + i) / divisor);                                            \
    }                                                                                              \
    static void sum_##T##_vinit(void *acc, size_t n)                                               \
    {                                                                                              \
        memset(acc, 0, n *PARTS * sizeof(double));                                                 \
    }                                                                                              \
    static void sum_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                 \
    {                                                                                              \
        (void)stride;                                                                              \
        double *a = acc;                                                                           \
        const P *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n * PARTS; i++) a[i] += (double)x[i];          \
    }                                                                                              \
    static void sum_##T##_vmerge(void *into, const void *from, size_t n, size_t stride)            \
    {                                                                                              \
        (void)stride;                                                                              \
        double *a = into;                                                                          \
        const double *b = from;                                                                    \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n * PARTS; i++) a[i] += b[i];                  \
    }                                                                                              \
    static void sum_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,             \
                                  double divisor)                                                  \
    {                                                                                              \
        (void)stride;                                                                              \
        P *o = out;                                                                                \
        const double *a = acc;                                                                     \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n * PARTS; i++) o[i] = (P)(a[i] / divisor);    \
    }
FLOAT_SUM(F32, ar_f32, ar_f32, lanes_F32, 1)
FLOAT_SUM(F64, ar_f64, ar_f64, lanes_F64, 1)
FLOAT_SUM(C64, ar_c64, ar_f32, lanes_F32, 2)
FLOAT_SUM(C128, ar_c128, ar_f64, lanes_F64, 2)

/* Reductions whose accumulator is one number K: KEY maps an element to it, COMBINE is associative
 * and commutative, VALUE maps back. Keys go through a buffer: in one loop the compiler turns a
 * float's NaN test into a branch around the reduction and vectorises neither. */
#define SIMPLE(name, T, R, K, IDENTITY, KEY, COMBINE, VALUE)                                       \
    static void name##_##T##_vinit(void *acc, size_t n)                                            \
    {                                                                                              \
        K *a = acc;                                                                                \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = (K)(IDENTITY);                                                                  \
    }                                                                                              \
    static void name##_##T##_init(void *state)                                                     \
    {                                                                                              \
        name##_##T##_vinit(state, 1);                                                              \
    }                                                                                              \
    static void name##_##T##_block(void *state, const void *in, size_t n)                          \
    {                                                                                              \
        K a = *(K *)state, keys[KEYS];                                                             \
        const R *x = in;                                                                           \
        for (; n != 0;) {                                                                          \
            size_t m = n < KEYS ? n : KEYS;                                                        \
            for (size_t i = 0; i < m; i++)                                                         \
                keys[i] = (K)KEY(x[i]);                                                            \
            for (size_t i = 0; i < m; i++)                                                         \
                a = COMBINE(K, a, keys[i]);                                                        \
            x += m;                                                                                \
            n -= m;                                                                                \
        }                                                                                          \
        *(K *)state = a;                                                                           \
    }                                                                                              \
    static void name##_##T##_vmerge(void *into, const void *from, size_t n, size_t stride)         \
    {                                                                                              \
        (void)stride;                                                                              \
        K *a = into;                                                                               \
        const K *b = from;                                                                         \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] = COMBINE(K, a[i], b[i]);         \
    }                                                                                              \
    static void name##_##T##_merge(void *into, const void *from)                                   \
    {                                                                                              \
        name##_##T##_vmerge(into, from, 1, 1);                                                     \
    }                                                                                              \
    static void name##_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)              \
    {                                                                                              \
        (void)stride;                                                                              \
        K *a = acc;                                                                                \
        const R *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) a[i] = COMBINE(K, a[i], KEY(x[i]));    \
    }                                                                                              \
    static void name##_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,          \
                                     double divisor)                                               \
    {                                                                                              \
        (void)stride;                                                                              \
        R *o = out;                                                                                \
        (void)divisor;                                                                             \
        const K *a = acc;                                                                          \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = VALUE(a[i]);                    \
    }                                                                                              \
    static void name##_##T##_finish(const void *state, void *out, double divisor)                  \
    {                                                                                              \
        name##_##T##_vfinish(out, state, 1, 1, divisor);                                           \
    }

#define SAME(x)        (x)
#define PLUS(K, a, b)  (K)((a) + (b))
#define TIMES(K, a, b) (K)((a) * (b))
#define LEAST(K, a, b) ((a) < (b) ? (a) : (b))
#define MOST(K, a, b)  ((a) > (b) ? (a) : (b))
#define OR(K, a, b)    (K)((a) | (b))
#define AND(K, a, b)   (K)((a) & (b))

static inline ar_i32 order_F32(ar_f32 x)
{
    ar_i32 i = (ar_i32)ar_bits_F32(x);
    return i ^ ((i >> 31) & 0x7fffffff);
}
static inline ar_i64 order_F64(ar_f64 x)
{
    ar_i64 i = (ar_i64)ar_bits_F64(x);
    return i ^ ((i >> 63) & 0x7fffffffffffffff);
}
#define FLOAT_KEYS(T, R, K, U, MIN_K, MAX_K)                                                       \
    static inline K min_key_##T(R x)                                                               \
    {                                                                                              \
        return x != x ? MIN_K : order_##T(x);                                                      \
    }                                                                                              \
    static inline K max_key_##T(R x)                                                               \
    {                                                                                              \
        return x != x ? MAX_K : order_##T(x);                                                      \
    }                                                                                              \
    static inline R value_##T(K key)                                                               \
    {                                                                                              \
        K i = key < 0 ? key ^ MAX_K : key;                                                         \
        R x = ar_from_bits_##T((U)i);                                                              \
        return x != x ? (R)AR_NAN : x;                                                             \
    }
FLOAT_KEYS(F32, ar_f32, ar_i32, ar_u32, INT32_MIN, INT32_MAX)
FLOAT_KEYS(F64, ar_f64, ar_i64, ar_u64, INT64_MIN, INT64_MAX)
SIMPLE(min, F32, ar_f32, ar_i32, order_F32((ar_f32)AR_INF), min_key_F32, LEAST, value_F32)
SIMPLE(max, F32, ar_f32, ar_i32, order_F32((ar_f32)-AR_INF), max_key_F32, MOST, value_F32)
SIMPLE(min, F64, ar_f64, ar_i64, order_F64(AR_INF), min_key_F64, LEAST, value_F64)
SIMPLE(max, F64, ar_f64, ar_i64, order_F64(-AR_INF), max_key_F64, MOST, value_F64)

#define INT_REDUCE(T, R, U, MIN_R, MAX_R)                                                          \
    SIMPLE(sum, T, R, U, 0, (U), PLUS, (R))                                                        \
    SIMPLE(min, T, R, R, MAX_R, SAME, LEAST, SAME)                                                 \
    SIMPLE(max, T, R, R, MIN_R, SAME, MOST, SAME)
INT_REDUCE(I8, ar_i8, ar_u8, INT8_MIN, INT8_MAX)
INT_REDUCE(I16, ar_i16, ar_u16, INT16_MIN, INT16_MAX)
INT_REDUCE(I32, ar_i32, ar_u32, INT32_MIN, INT32_MAX)
INT_REDUCE(I64, ar_i64, ar_u64, INT64_MIN, INT64_MAX)
INT_REDUCE(U8, ar_u8, ar_u8, 0, UINT8_MAX)
INT_REDUCE(U16, ar_u16, ar_u16, 0, UINT16_MAX)
INT_REDUCE(U32, ar_u32, ar_u32, 0, UINT32_MAX)
INT_REDUCE(U64, ar_u64, ar_u64, 0, UINT64_MAX)
SIMPLE(prod, I64, ar_i64, ar_u64, 1, (ar_u64), TIMES, (ar_i64))
SIMPLE(prod, U64, ar_u64, ar_u64, 1, SAME, TIMES, SAME)
SIMPLE(max, BOOL, ar_bool, ar_bool, 0, SAME, OR, SAME)
SIMPLE(min, BOOL, ar_bool, ar_bool, 1, SAME, AND, SAME)

void LOOPS_FILL(reduce)(struct loop_table *t)
{
#define SET REDUCE_SET
    SET(SUM, sum, F32, sizeof(struct running), sizeof(double))
    SET(SUM, sum, F64, sizeof(struct running), sizeof(double))
    SET(SUM, sum, C64, 2 * sizeof(struct running), 2 * sizeof(double))
    SET(SUM, sum, C128, 2 * sizeof(struct running), 2 * sizeof(double))
#define SET_INT(T, R)                                                                              \
    SET(SUM, sum, T, sizeof(R), sizeof(R))                                                         \
    SET(MIN, min, T, sizeof(R), sizeof(R))                                                         \
    SET(MAX, max, T, sizeof(R), sizeof(R))
    SET_INT(I8, ar_i8)
    SET_INT(I16, ar_i16)
    SET_INT(I32, ar_i32)
    SET_INT(I64, ar_i64)
    SET_INT(U8, ar_u8)
    SET_INT(U16, ar_u16)
    SET_INT(U32, ar_u32)
    SET_INT(U64, ar_u64)
    SET(PROD, prod, I64, 8, 8)
    SET(PROD, prod, U64, 8, 8)
    SET(MIN, min, F32, 4, 4)
    SET(MAX, max, F32, 4, 4)
    SET(MIN, min, F64, 8, 8)
    SET(MAX, max, F64, 8, 8)
    SET(MAX, max, BOOL, 1, 1)
    SET(MIN, min, BOOL, 1, 1)
}
