/* Running sums and products of lanes side by side, row after row.
 *
 * Sums of float64 and complex128 keep the error of their additions (Knuth's two-sum); float32 and
 * complex64 add in double, which is as good. A single lane would be a chain in which each addition
 * waits for the last, so it is taken in groups: vectors make the sums within a group, log 8
 * additions deep, and the group's sum is added to the state. Products are chains. */
#include <string.h>

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

enum { GROUP = 64 };
typedef double v8d __attribute__((vector_size(64)));

/* What the state holds beyond its sum; the error of an infinite sum is NaN. */
static inline double error_of(double sum, double error)
{
    return ar_ISFINITE_F64(sum) ? error : 0;
}

static inline void running_add(double *sum, double *error, double x)
{
    double s = *sum + x, b = s - *sum;
    *error += (*sum - (s - b)) + (x - b);
    *sum = s;
}

/* Sums of x[0 … i] for each i of a group, in place. */
static inline void group_sums(double *x)
{
    const v8d zero = {0};
    double carry = 0;
    for (int k = 0; k < GROUP; k += 8) {
        v8d v;
        memcpy(&v, x + k, sizeof v);
        v += __builtin_shufflevector(zero, v, 0, 8, 9, 10, 11, 12, 13, 14);
        v += __builtin_shufflevector(zero, v, 0, 0, 8, 9, 10, 11, 12, 13);
        v += __builtin_shufflevector(zero, v, 0, 0, 0, 0, 8, 9, 10, 11);
        v += carry;
        carry = v[7];
        memcpy(x + k, &v, sizeof v);
    }
}

/* PARTS: 2 for complex. State: a sum for each part of each lane; its error is `stride` lanes
 * further. KEEP: whether the error is kept. */
#define SUM(T, P, PARTS, KEEP)                                                                     \
    static void sum_##T##_init(void *state, size_t lanes)                                          \
    {                                                                                              \
        memset(state, 0, lanes *PARTS * 2 * sizeof(double));                                       \
    }                                                                                              \
    static void sum_##T##_add(void *state, size_t stride, const void *in, size_t lanes,            \
                              size_t rows)                                                         \
    {                                                                                              \
        double *s = state, *e = s + stride * PARTS;                                                \
        const P *x = in;                                                                           \
        const size_t n = lanes * PARTS;                                                            \
        for (; rows != 0; rows--, x += n)                                                          \
            _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                if (KEEP)                                                                          \
                    running_add(&s[i], &e[i], (double)x[i]);                                       \
                else                                                                               \
                    s[i] += (double)x[i];                                                          \
            }                                                                                      \
    }                                                                                              \
    static void sum_##T##_rows(void *state, size_t stride, void *out, const void *in,              \
                               size_t lanes, size_t rows)                                          \
    {                                                                                              \
        double *s = state, *e = s + stride * PARTS;                                                \
        const P *x = in;                                                                           \
        P *o = out;                                                                                \
        const size_t n = lanes * PARTS;                                                            \
        for (; rows != 0; rows--, x += n, o += n)                                                  \
            _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                if (KEEP)                                                                          \
                    running_add(&s[i], &e[i], (double)x[i]);                                       \
                else                                                                               \
                    s[i] += (double)x[i];                                                          \
                o[i] = (P)(KEEP ? s[i] + error_of(s[i], e[i]) : s[i]);                             \
            }                                                                                      \
    }                                                                                              \
    static void sum_##T##_merge(void *into, const void *from, size_t lanes)                        \
    {                                                                                              \
        double *s = into, *e = s + lanes * PARTS;                                                  \
        const double *t = from, *f = t + lanes * PARTS;                                            \
        for (size_t i = 0; i < lanes * PARTS; i++) {                                               \
            running_add(&s[i], &e[i], t[i]);                                                       \
            e[i] += f[i];                                                                          \
        }                                                                                          \
    }
#define CHAIN(T, P)                                                                                \
    static void sum_##T##_one(double *s, const P *x, P *o, size_t n)                               \
    {                                                                                              \
        for (; n >= GROUP; n -= GROUP, x += GROUP) {                                               \
            double v[GROUP];                                                                       \
            for (int i = 0; i < GROUP; i++)                                                        \
                v[i] = (double)x[i];                                                               \
            group_sums(v);                                                                         \
            const double base = s[0], error = error_of(s[0], s[1]);                                \
            for (int i = 0; o && i < GROUP; i++)                                                   \
                o[i] = (P)(base + (error + v[i]));                                                 \
            o = o ? o + GROUP : NULL;                                                              \
            running_add(&s[0], &s[1], v[GROUP - 1]);                                               \
        }                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            running_add(&s[0], &s[1], (double)x[i]);                                               \
            if (o)                                                                                 \
                o[i] = (P)(s[0] + error_of(s[0], s[1]));                                           \
        }                                                                                          \
    }                                                                                              \
    static void sum_##T##_add_any(void *state, size_t stride, const void *in, size_t lanes,        \
                                  size_t rows)                                                     \
    {                                                                                              \
        if (stride == 1)                                                                           \
            sum_##T##_one(state, in, NULL, rows);                                                  \
        else                                                                                       \
            sum_##T##_add(state, stride, in, lanes, rows);                                         \
    }                                                                                              \
    static void sum_##T##_any(void *state, size_t stride, void *out, const void *in, size_t lanes, \
                              size_t rows)                                                         \
    {                                                                                              \
        if (stride == 1)                                                                           \
            sum_##T##_one(state, in, out, rows);                                                   \
        else                                                                                       \
            sum_##T##_rows(state, stride, out, in, lanes, rows);                                   \
    }
SUM(F32, ar_f32, 1, 0)
SUM(F64, ar_f64, 1, 1)
SUM(C64, ar_f32, 2, 0)
SUM(C128, ar_f64, 2, 1)
CHAIN(F32, ar_f32)
CHAIN(F64, ar_f64)

/* Reductions whose state is one number K and that combine elements in order. */
#define PLAIN(name, T, R, K, IDENTITY, UP, COMBINE, DOWN)                                          \
    static void name##_##T##_init(void *state, size_t lanes)                                       \
    {                                                                                              \
        K *s = state;                                                                              \
        for (size_t i = 0; i < lanes; i++)                                                         \
            s[i] = IDENTITY;                                                                       \
    }                                                                                              \
    static void name##_##T##_add(void *state, size_t stride, const void *in, size_t lanes,         \
                                 size_t rows)                                                      \
    {                                                                                              \
        K *s = state;                                                                              \
        const R *x = in;                                                                           \
        (void)stride;                                                                              \
        for (; rows != 0; rows--, x += lanes)                                                      \
            _Pragma("GCC ivdep") for (size_t i = 0; i < lanes; i++) s[i] =                         \
                COMBINE(s[i], UP(x[i]));                                                           \
    }                                                                                              \
    static void name##_##T##_rows(void *state, size_t stride, void *out, const void *in,           \
                                  size_t lanes, size_t rows)                                       \
    {                                                                                              \
        K *s = state;                                                                              \
        const R *x = in;                                                                           \
        R *o = out;                                                                                \
        (void)stride;                                                                              \
        for (; rows != 0; rows--, x += lanes, o += lanes)                                          \
            _Pragma("GCC ivdep") for (size_t i = 0; i < lanes; i++)                                \
            {                                                                                      \
                s[i] = COMBINE(s[i], UP(x[i]));                                                    \
                o[i] = DOWN(s[i]);                                                                 \
            }                                                                                      \
    }                                                                                              \
    static void name##_##T##_merge(void *into, const void *from, size_t lanes)                     \
    {                                                                                              \
        K *s = into;                                                                               \
        const K *t = from;                                                                         \
        for (size_t i = 0; i < lanes; i++)                                                         \
            s[i] = COMBINE(s[i], t[i]);                                                            \
    }
#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))
#define COMPLEX_ONE ((ar_c128){1, 0})
#define WIDEN(x)    ((ar_c128){(x).re, (x).im})
#define NARROW(x)   ((ar_c64){(ar_f32)(x).re, (ar_f32)(x).im})
#define SAME(x)     (x)
PLAIN(sum, I64, ar_i64, ar_u64, 0, (ar_u64), PLUS, (ar_i64))
PLAIN(sum, U64, ar_u64, ar_u64, 0, SAME, PLUS, SAME)
PLAIN(prod, I64, ar_i64, ar_u64, 1, (ar_u64), TIMES, (ar_i64))
PLAIN(prod, U64, ar_u64, ar_u64, 1, SAME, TIMES, SAME)
PLAIN(prod, F32, ar_f32, double, 1, (double), TIMES, (ar_f32))
PLAIN(prod, F64, ar_f64, double, 1, SAME, TIMES, SAME)
PLAIN(prod, C64, ar_c64, ar_c128, COMPLEX_ONE, WIDEN, ar_MULTIPLY_C128, NARROW)
PLAIN(prod, C128, ar_c128, ar_c128, COMPLEX_ONE, SAME, ar_MULTIPLY_C128, SAME)

void LOOPS_FILL(scan)(struct loop_table *t)
{
#define SET(PROD, name, T, size, added, scanned)                                                   \
    t->scan[PROD][DT_##T] = (struct scan_loops){.state_size = size,                                \
                                                .init = name##_##T##_init,                         \
                                                .add = name##_##T##_##added,                       \
                                                .scan = name##_##T##_##scanned,                    \
                                                .merge = name##_##T##_merge};
    SET(0, sum, F32, 16, add_any, any)
    SET(0, sum, F64, 16, add_any, any)
    SET(0, sum, C64, 32, add, rows)
    SET(0, sum, C128, 32, add, rows)
    SET(0, sum, I64, 8, add, rows)
    SET(0, sum, U64, 8, add, rows)
    SET(1, prod, I64, 8, add, rows)
    SET(1, prod, U64, 8, add, rows)
    SET(1, prod, F32, 8, add, rows)
    SET(1, prod, F64, 8, add, rows)
    SET(1, prod, C64, 16, add, rows)
    SET(1, prod, C128, 16, add, rows)
}
