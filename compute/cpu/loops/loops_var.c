/* Variances, in one pass over memory.
 *
 * A state holds n elements as sums of their distances from a pivot, Σ(x − pivot) and Σ(x − pivot)²,
 * in double precision. Two states are merged by the pairwise formula of Chan, Golub and LeVeque
 * (Algorithms for computing the sample variance, 1983). The merged state has their common mean as
 * its pivot, and keeps the sum of what rounding the pivot lost: without that a mean of 10^6
 * standard deviations would cost as many digits. A block of one state is in the cache, so it is
 * read twice: first for the mean, then for the distances from it. A lane of many takes its first
 * element as the pivot, and soon the mean of the elements so far: the first element may be far from
 * all others, and the squares of a chain of n (loops.h) then n times as large as the result. */
#include <string.h>

#include "compute/cpu/loops/loops_table.h"
#include "compute/kernels/scalar/scalar.h"

enum { LANES = 32, CHUNK = 4096, EARLY = 8, LATER = 64 };

struct moments {
    double pivot, n, sum, squares;
};

static void var_init(void *state)
{
    memset(state, 0, sizeof(struct moments));
}

static void var_vinit(void *acc, size_t stride)
{
    memset(acc, 0, stride * sizeof(struct moments));
}

/* The same elements around a pivot moved by `by`. */
static inline struct moments moved(double pivot, double by, double n, double squares)
{
    double to = pivot + by, b = to - pivot, lost = (pivot - (to - b)) + (by - b); /* two-sum */
    return (struct moments){to, n, n * lost, squares};
}

static inline struct moments centred(const struct moments *m)
{
    double mean = m->sum / m->n;
    return moved(m->pivot, mean, m->n, m->squares - m->sum * mean);
}

static void merge_one(struct moments *a, const struct moments *b)
{
    if (b->n == 0)
        return;
    if (a->n == 0) {
        *a = *b;
        return;
    }
    struct moments p = centred(a), q = centred(b);
    double n = p.n + q.n, share = q.n / n, apart = q.pivot - p.pivot + (q.sum / q.n - p.sum / p.n);
    *a = moved(p.pivot, p.sum / p.n + apart * share, n,
               p.squares + q.squares + apart * apart * (p.n * share));
}

static void var_merge(void *into, const void *from)
{
    merge_one(into, from);
}

/* A lane's numbers are `stride` apart, beside those of the next lane: that vectorises. */
static inline struct moments lane(const double *acc, size_t stride)
{
    return (struct moments){acc[0], acc[stride], acc[2 * stride], acc[3 * stride]};
}

static inline void put_lane(double *acc, size_t stride, const struct moments *m)
{
    acc[0] = m->pivot;
    acc[stride] = m->n;
    acc[2 * stride] = m->sum;
    acc[3 * stride] = m->squares;
}

/* Moves the pivots of n lanes to their means. */
static void centre(double *acc, size_t n, size_t stride)
{
    for (size_t i = 0; i < n; i++) {
        struct moments m = lane(acc + i, stride);
        m = centred(&m);
        put_lane(acc + i, stride, &m);
    }
}

static void var_vmerge(void *into, const void *from, size_t n, size_t stride)
{
    double *a = into;
    const double *b = from;
    for (size_t i = 0; i < n; i++) {
        struct moments m = lane(a + i, stride), more = lane(b + i, stride);
        merge_one(&m, &more);
        put_lane(a + i, stride, &m);
    }
}

static double variance(const struct moments *m, double divisor)
{
    return m->n == 0 ? 0 / divisor : (m->squares - m->sum * (m->sum / m->n)) / divisor;
}

static double fold(double *lanes)
{
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            lanes[i] += lanes[i + w];
    return lanes[0];
}

#define VAR(T, R)                                                                                  \
    /* n ≤ CHUNK */                                                                              \
    static struct moments of_##T(const R *x, size_t n) {                                           \
        double lanes[LANES] = {0}, sums[LANES] = {0}, squares[LANES] = {0};                        \
        size_t whole = n - n % LANES;                                                              \
        for (size_t i = 0; i < whole; i += LANES)                                                  \
            for (size_t j = 0; j < LANES; j++)                                                     \
                lanes[j] += (double)x[i + j];                                                      \
        for (size_t i = whole; i < n; i++)                                                         \
            lanes[i - whole] += (double)x[i];                                                      \
        const double mean = fold(lanes) / (double)n;                                               \
        for (size_t i = 0; i < whole; i += LANES)                                                  \
            for (size_t j = 0; j < LANES; j++) {                                                   \
                double d = (double)x[i + j] - mean;                                                \
                sums[j] += d;                                                                      \
                squares[j] += d * d;                                                               \
            }                                                                                      \
        for (size_t i = whole; i < n; i++) {                                                       \
            double d = (double)x[i] - mean;                                                        \
            sums[i - whole] += d;                                                                  \
            squares[i - whole] += d * d;                                                           \
        }                                                                                          \
        return (struct moments){mean, (double)n, fold(sums), fold(squares)};                       \
    } static void var_##T##_block(void *state, const void *in, size_t n)                           \
    {                                                                                              \
        const R *x = in;                                                                           \
        for (size_t m; n != 0; x += m, n -= m) {                                                   \
            m = n < CHUNK ? n : CHUNK;                                                             \
            struct moments more = of_##T(x, m);                                                    \
            merge_one(state, &more);                                                               \
        }                                                                                          \
    }                                                                                              \
    static void var_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                 \
    {                                                                                              \
        double *pivot = acc, *count = pivot + stride, *sum = count + stride;                       \
        double *squares = sum + stride;                                                            \
        const R *x = in;                                                                           \
        for (size_t i = 0; i < n && count[n - 1] == 0; i++) /* counts never rise with the lane */  \
            pivot[i] = count[i] == 0 ? (double)x[i] : pivot[i];                                    \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            const double d = (double)x[i] - pivot[i];                                              \
            count[i] += 1;                                                                         \
            sum[i] += d;                                                                           \
            squares[i] += d * d;                                                                   \
        }                                                                                          \
        if (n > 0 && (count[0] == EARLY || count[0] == LATER))                                     \
            centre(acc, n, stride);                                                                \
    }                                                                                              \
    static void var_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,             \
                                  double divisor)                                                  \
    {                                                                                              \
        R *o = out;                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            struct moments m = lane((const double *)acc + i, stride);                              \
            o[i] = (R)variance(&m, divisor);                                                       \
        }                                                                                          \
    }                                                                                              \
    static void var_##T##_finish(const void *state, void *out, double divisor)                     \
    {                                                                                              \
        var_##T##_vfinish(out, state, 1, 1, divisor);                                              \
    }
VAR(F32, ar_f32)
VAR(F64, ar_f64)

#define SET(T)                                                                                     \
    t->reduce[REDUCE_VAR][DT_##T] = (struct reduce_loops){                                         \
        .state_size = sizeof(struct moments),                                                      \
        .init = var_init,                                                                          \
        .block = var_##T##_block,                                                                  \
        .merge = var_merge,                                                                        \
        .finish = var_##T##_finish,                                                                \
        .acc_size = sizeof(struct moments),                                                        \
        .acc_step = sizeof(double),                                                                \
        .vinit = var_vinit,                                                                        \
        .vadd = var_##T##_vadd,                                                                    \
        .vmerge = var_vmerge,                                                                      \
        .vfinish = var_##T##_vfinish,                                                              \
    };

void LOOPS_FILL(var)(struct loop_table *t)
{
    SET(F32)
    SET(F64)
}
