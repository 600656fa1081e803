/* compute/cpu/loops: every loop on every instruction set of this machine against the golden tables,
 * with guard bytes, at every length and place, in place; reductions against plain sums.
 *
 * The loops choose their instruction set once a process, so main() runs the whole group in a child
 * process for each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/isa.h"
#include "compute/base/mem.h"
#include "compute/cpu/loops/loops.h"
#include "tests/golden/golden.h"

enum { GUARD = 64 };
static struct golden *golden;

/* A block with guard bytes before and behind. `at` shifts it off its alignment by that many
 * elements. */
struct guarded {
    unsigned char *base, *data;
    size_t bytes, total;
};

static struct guarded guarded_new(size_t bytes, size_t shift)
{
    struct guarded g = {.bytes = bytes, .total = bytes + shift + 2 * GUARD};
    g.base = mem_alloc(g.total);
    assert_non_null(g.base);
    memset(g.base, 0xA5, g.total);
    g.data = g.base + GUARD + shift;
    return g;
}

static void guarded_check(const struct guarded *g, const char *what)
{
    for (size_t i = 0; i < g->total; i++)
        if ((g->base + i < g->data || g->base + i >= g->data + g->bytes) && g->base[i] != 0xA5)
            fail_msg("%s wrote outside its block", what);
}

static loop_fn *loop_of(const struct golden_record *r)
{
    return r->kind == GOLDEN_OP ? loop_op(r->op, r->from) : loop_cast(r->from, r->to);
}

/* Halves are legalised to float32 before a loop sees them. */
static int testable(const struct golden_record *r)
{
    if (r->kind == GOLDEN_RANDOM)
        return 0;
    return r->kind == GOLDEN_CAST || !dtype_is_half(r->from) || loop_of(r) != NULL;
}

static void every_loop_gives_the_golden_values(void **state)
{
    (void)state;
    size_t failures = 0, tested = 0;
    for (size_t k = 0; k < golden->n_records; k++) {
        const struct golden_record *r = golden->records + k;
        if (!testable(r))
            continue;
        loop_fn *f = loop_of(r);
        if (f == NULL)
            fail_msg("no loop: %s", r->text);
        struct guarded out = guarded_new(r->n * dtype_size(r->to), 0);
        f(out.data, r->args, r->n);
        guarded_check(&out, r->text);
        char why[600];
        if (golden_compare(r, out.data, why, sizeof why) >= 0) {
            print_error("%s\n", why);
            failures++;
        }
        mem_free(out.base);
        tested++;
    }
    assert_true(tested > 600);
    if (failures != 0)
        fail_msg("%zu of %zu records differ", failures, tested);
}

/* Pieces of any length at any place, misaligned, give the bits of the whole block. */
static void place_and_length_do_not_matter(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 100};
    for (size_t k = 0; k < golden->n_records; k++) {
        const struct golden_record *r = golden->records + k;
        if (!testable(r))
            continue;
        loop_fn *f = loop_of(r);
        size_t in = dtype_size(r->from), size = dtype_size(r->to);
        struct guarded whole = guarded_new(r->n * size, 0);
        f(whole.data, r->args, r->n);
        size_t at = k % 7;
        for (size_t j = 0; at < r->n; j++) {
            size_t n = lengths[j % (sizeof lengths / sizeof lengths[0])];
            n = n > r->n - at ? r->n - at : n;
            struct guarded out = guarded_new(n * size, size), copy[2];
            const void *args[2];
            for (int i = 0; i < r->n_args; i++) {
                copy[i] = guarded_new(n * in, in * (j & 1));
                memcpy(copy[i].data, (const char *)r->args[i] + at * in, n * in);
                args[i] = copy[i].data;
            }
            f(out.data, args, n);
            guarded_check(&out, r->text);
            if (memcmp(out.data, whole.data + at * size, n * size) != 0)
                fail_msg("%s: other bits at %zu + %zu", r->text, at, n);
            /* in place, over either argument */
            for (int i = 0; i < r->n_args && in == size; i++) {
                const void *again[2] = {args[0], r->n_args == 2 ? args[1] : NULL};
                f(copy[i].data, again, n);
                guarded_check(&copy[i], r->text);
                if (memcmp(copy[i].data, out.data, n * size) != 0)
                    fail_msg("%s: other bits in place", r->text);
                memcpy(copy[i].data, (const char *)r->args[i] + at * in, n * in);
            }
            for (int i = 0; i < r->n_args; i++)
                mem_free(copy[i].base);
            mem_free(out.base);
            at += n;
        }
        mem_free(whole.base);
    }
}

static void loops_exist_where_operations_do(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT; t++) {
            int want = op_defined((enum op)op, (enum dtype)t) &&
                       (!dtype_is_half((enum dtype)t) || op == OP_NEXTAFTER);
            if (!!loop_op((enum op)op, (enum dtype)t) != want)
                fail_msg("%s %s", op_table[op].name, dtype_name((enum dtype)t));
        }
    for (int f = 0; f < DT_COUNT; f++)
        for (int t = 0; t < DT_COUNT; t++)
            assert_non_null(loop_cast((enum dtype)f, (enum dtype)t));
}

/* Every operation with a loop has a golden table, so that a new one cannot be forgotten. */
static void every_operation_has_a_table(void **state)
{
    (void)state;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT; t++) {
            if (!op_defined((enum op)op, (enum dtype)t))
                continue;
            int found = 0;
            for (size_t k = 0; k < golden->n_records; k++)
                found |= golden->records[k].kind == GOLDEN_OP &&
                         golden->records[k].op == (enum op)op &&
                         golden->records[k].from == (enum dtype)t;
            if (!found)
                fail_msg("no table for %s of %s", op_table[op].name, dtype_name((enum dtype)t));
        }
}

/* The checker folds constants with scalar_cast: it must agree with the loops bit for bit. */
static void casts_agree_with_scalar_cast(void **state)
{
    (void)state;
    for (size_t k = 0; k < golden->n_records; k++) {
        const struct golden_record *r = golden->records + k;
        if (r->kind != GOLDEN_CAST)
            continue;
        unsigned char *got = mem_calloc(r->n, dtype_size(r->to));
        assert_non_null(got);
        for (size_t i = 0; i < r->n; i++) {
            struct scalar s = {.dtype = r->from};
            memcpy(s.v.raw, (const char *)r->args[0] + i * dtype_size(r->from),
                   dtype_size(r->from));
            s = scalar_cast(s, r->to);
            memcpy(got + i * dtype_size(r->to), s.v.raw, dtype_size(r->to));
        }
        char why[600];
        if (golden_compare(r, got, why, sizeof why) >= 0)
            fail_msg("scalar_cast: %s", why);
        mem_free(got);
    }
}

static void random_numbers_are_philox(void **state)
{
    (void)state;
    size_t tested = 0;
    for (size_t k = 0; k < golden->n_records; k++) {
        const struct golden_record *r = golden->records + k;
        if (r->kind != GOLDEN_RANDOM)
            continue;
        size_t size = dtype_size(r->to);
        struct guarded out = guarded_new(r->n * size, 0), part = guarded_new(5 * size, size);
        loop_random(out.data, r->to, &r->random, r->args[0], r->n);
        guarded_check(&out, r->text);
        char why[600];
        if (golden_compare(r, out.data, why, sizeof why) >= 0)
            fail_msg("%s", why);
        loop_random(part.data, r->to, &r->random, (const int64_t *)r->args[0] + 11, 5);
        guarded_check(&part, r->text);
        assert_memory_equal(part.data, out.data + 11 * size, 5 * size);
        mem_free(out.base);
        mem_free(part.base);
        tested++;
    }
    assert_true(tested >= 20);
}

static void select_takes_each_branch(void **state)
{
    (void)state;
    enum { N = 77 };
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    for (int s = 0; s < 5; s++) {
        size_t size = sizes[s];
        unsigned char c[N], a[N * 16], b[N * 16];
        for (int i = 0; i < N; i++)
            c[i] = (i * 7 % 3) == 0;
        for (int i = 0; i < N * 16; i++)
            a[i] = (unsigned char)(i * 3 + 1), b[i] = (unsigned char)(i * 5 + 2);
        for (size_t n = 0; n <= N; n++) {
            struct guarded out = guarded_new(n * size, size);
            const void *args[] = {c, a, b};
            loop_select(size)(out.data, args, n);
            guarded_check(&out, "select");
            for (size_t i = 0; i < n; i++)
                assert_memory_equal(out.data + i * size, (c[i] ? a : b) + i * size, size);
            mem_free(out.base);
        }
    }
}

static void gather_scatter_fill_move_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    for (int s = 0; s < 5; s++)
        for (int64_t step = -3; step <= 3; step++)
            for (size_t n = 0; n < 23; n++) {
                size_t size = sizes[s];
                unsigned char in[23 * 3 * 16], back[23 * 3 * 16];
                for (size_t i = 0; i < sizeof in; i++)
                    in[i] = (unsigned char)(i * 11 + 3);
                size_t first = step < 0 && n ? (n - 1) * (size_t)-step : 0;
                int64_t stride = step * (int64_t)size;
                struct guarded out = guarded_new(n * size, size);
                loop_gather(out.data, in + first * size, stride, size, n);
                guarded_check(&out, "gather");
                for (size_t i = 0; i < n; i++)
                    assert_memory_equal(out.data + i * size,
                                        in + ((int64_t)first + (int64_t)i * step) * (int64_t)size,
                                        size);
                if (step != 0) {
                    memset(back, 0, sizeof back);
                    loop_scatter(back + first * size, stride, out.data, size, n);
                    for (size_t i = 0; i < sizeof in / size; i++) {
                        int64_t d = (int64_t)i - (int64_t)first;
                        int hit = d % step == 0 && d / step >= 0 && d / step < (int64_t)n;
                        static const unsigned char zero[16];
                        assert_memory_equal(back + i * size, hit ? in + i * size : zero, size);
                    }
                }
                union value v;
                memcpy(v.raw, in, 16);
                loop_fill(out.data, &v, size, n);
                guarded_check(&out, "fill");
                for (size_t i = 0; i < n; i++)
                    assert_memory_equal(out.data + i * size, v.raw, size);
                mem_free(out.base);
            }
    int64_t ramp[40];
    loop_iota(ramp, -5, 3, 40);
    for (int i = 0; i < 40; i++)
        assert_int_equal(ramp[i], -5 + 3 * i);
}

/* Runs both forms over the same elements, in several pieces, and checks that they agree on `want`
 * (NULL: only with each other, to 1 ulp for sums). */
static void reduce_both(enum reduce_op op, enum dtype t, const void *in, size_t n, void *ret)
{
    const struct reduce_loops *r = loop_reduce(op, t);
    size_t size = dtype_size(t);
    assert_non_null(r);
    assert_in_range(r->state_size, 1, 64);
    assert_in_range(r->acc_size, 1, 32);
    struct guarded a = guarded_new(r->state_size, 0), b = guarded_new(r->state_size, 0);
    struct guarded out = guarded_new(size, size);
    size_t half = n / 3;
    r->init(a.data);
    r->block(a.data, in, half);
    r->block(a.data, in, 0);
    r->init(b.data);
    r->block(b.data, (const char *)in + half * size, n - half);
    r->merge(a.data, b.data);
    r->init(b.data);
    r->merge(a.data, b.data); /* a state that saw nothing merges as nothing */
    r->finish(a.data, out.data, 1);
    guarded_check(&a, "reduce");
    guarded_check(&out, "reduce");
    memcpy(ret, out.data, size);

    /* lanes: three equal rows, each lane reduces its three elements */
    size_t lanes = n / 3;
    struct guarded acc = guarded_new(lanes * r->acc_size, 0);
    struct guarded more = guarded_new(lanes * r->acc_size, 0);
    struct guarded rows = guarded_new(lanes * size, 0);
    r->vinit(acc.data, lanes);
    r->vadd(acc.data, in, lanes, lanes);
    r->vadd(acc.data, (const char *)in + lanes * size, lanes, lanes);
    r->vinit(more.data, lanes);
    r->vadd(more.data, (const char *)in + 2 * lanes * size, lanes, lanes);
    r->vmerge(acc.data, more.data, lanes, lanes);
    r->vfinish(rows.data, acc.data, lanes, lanes, 1);
    guarded_check(&acc, "vreduce");
    guarded_check(&more, "vreduce");
    guarded_check(&rows, "vreduce");
    for (size_t i = 0; i < lanes; i++) {
        r->init(a.data);
        for (size_t k = 0; k < 3; k++)
            r->block(a.data, (const char *)in + (k * lanes + i) * size, 1);
        r->finish(a.data, out.data, 1);
        struct golden_record rec = {.n = 1,
                                    .to = t,
                                    .from = t,
                                    .expected = out.data,
                                    .n_args = 1,
                                    .args = {in},
                                    .text = "lanes"};
        bool rounded = op == REDUCE_SUM || op == REDUCE_VAR;
        rec.tolerance = rounded && t >= DT_C64   ? GOLDEN_COMPLEX
                        : rounded && t >= DT_F32 ? GOLDEN_ULP
                                                 : GOLDEN_EXACT;
        rec.units = op == REDUCE_VAR ? 8 : 2;
        char why[600];
        if (golden_compare(&rec, rows.data + i * size, why, sizeof why) >= 0)
            fail_msg("reduction %d of %s: %s", (int)op, dtype_name(t), why);
    }
    mem_free(a.base);
    mem_free(b.base);
    mem_free(out.base);
    mem_free(acc.base);
    mem_free(more.base);
    mem_free(rows.base);
}

static uint64_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return *s >> 11;
}

#define INT_REDUCTIONS(T, R)                                                                       \
    static void reduce_##T(size_t n)                                                               \
    {                                                                                              \
        R *x = mem_alloc(n * sizeof(R) + 1), sum = 0, least = 0, most = 0, got;                    \
        uint64_t seed = n;                                                                         \
        for (size_t i = 0; i < n; i++) {                                                           \
            x[i] = (R)next_random(&seed);                                                          \
            sum = (R)((uint64_t)sum + (uint64_t)x[i]);                                             \
            least = i == 0 || x[i] < least ? x[i] : least;                                         \
            most = i == 0 || x[i] > most ? x[i] : most;                                            \
        }                                                                                          \
        reduce_both(REDUCE_SUM, DT_##T, x, n, &got);                                               \
        assert_true(got == sum);                                                                   \
        reduce_both(REDUCE_MIN, DT_##T, x, n, &got);                                               \
        assert_true(n == 0 || got == least);                                                       \
        reduce_both(REDUCE_MAX, DT_##T, x, n, &got);                                               \
        assert_true(n == 0 || got == most);                                                        \
        mem_free(x);                                                                               \
    }
INT_REDUCTIONS(I8, int8_t)
INT_REDUCTIONS(I16, int16_t)
INT_REDUCTIONS(I32, int32_t)
INT_REDUCTIONS(I64, int64_t)
INT_REDUCTIONS(U8, uint8_t)
INT_REDUCTIONS(U16, uint16_t)
INT_REDUCTIONS(U32, uint32_t)
INT_REDUCTIONS(U64, uint64_t)

#define FLOAT_REDUCTIONS(T, R, C, epsilon)                                                         \
    static void reduce_##T(size_t n)                                                               \
    {                                                                                              \
        R *x = mem_alloc(2 * n * sizeof(R) + 1), least = (R)INFINITY, most = (R)-INFINITY, got;    \
        long double sum[2] = {0, 0}, size = 0;                                                     \
        uint64_t seed = n + 1;                                                                     \
        for (size_t i = 0; i < 2 * n; i++) {                                                       \
            x[i] = (R)((double)next_random(&seed) * 0x1p-52 - (i % 5 ? 0 : 1));                    \
            if (i < n) {                                                                           \
                least = x[i] < least ? x[i] : least;                                               \
                most = x[i] > most ? x[i] : most;                                                  \
            }                                                                                      \
        }                                                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            sum[0] += x[i], size += fabsl((long double)x[i]);                                      \
        reduce_both(REDUCE_SUM, DT_##T, x, n, &got);                                               \
        assert_true(fabsl((long double)got - sum[0]) <= (epsilon)*size);                           \
        reduce_both(REDUCE_MIN, DT_##T, x, n, &got);                                               \
        assert_true(got == least);                                                                 \
        reduce_both(REDUCE_MAX, DT_##T, x, n, &got);                                               \
        assert_true(got == most);                                                                  \
        R z[2];                                                                                    \
        reduce_both(REDUCE_SUM, DT_##C, x, n, z);                                                  \
        sum[0] = sum[1] = size = 0;                                                                \
        for (size_t i = 0; i < 2 * n; i++)                                                         \
            sum[i & 1] += x[i], size += fabsl((long double)x[i]);                                  \
        for (int k = 0; k < 2; k++)                                                                \
            assert_true(fabsl((long double)z[k] - sum[k]) <= (epsilon)*size);                      \
        for (size_t at = 0; at < n; at += n / 5 + 1) { /* NaN anywhere wins */                     \
            R old = x[at];                                                                         \
            x[at] = at & 1 ? (R)NAN : -(R)NAN;                                                     \
            reduce_both(REDUCE_MIN, DT_##T, x, n, &got);                                           \
            assert_true(isnan(got));                                                               \
            reduce_both(REDUCE_MAX, DT_##T, x, n, &got);                                           \
            assert_true(isnan(got));                                                               \
            reduce_both(REDUCE_SUM, DT_##T, x, n, &got);                                           \
            assert_true(isnan(got));                                                               \
            x[at] = (R)INFINITY;                                                                   \
            reduce_both(REDUCE_MAX, DT_##T, x, n, &got);                                           \
            assert_true(got == (R)INFINITY);                                                       \
            reduce_both(REDUCE_SUM, DT_##T, x, n, &got);                                           \
            assert_true(got == (R)INFINITY);                                                       \
            x[at] = old;                                                                           \
        }                                                                                          \
        mem_free(x);                                                                               \
    }
/* The mean is `offset`, in standard deviations roughly; the pass may cost `epsilon`. */
#define VARIANCES(T, R, epsilon)                                                                   \
    static void variance_##T(size_t n, double offset)                                              \
    {                                                                                              \
        R *x = mem_alloc(n * sizeof(R) + 1), got;                                                  \
        long double mean = 0, squares = 0;                                                         \
        uint64_t seed = n + 7;                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            x[i] = (R)((double)next_random(&seed) * 0x1p-52 + offset);                             \
        for (size_t i = 0; i < n; i++)                                                             \
            mean += (long double)x[i] / (long double)n;                                            \
        for (size_t i = 0; i < n; i++)                                                             \
            squares += (x[i] - mean) * (x[i] - mean);                                              \
        reduce_both(REDUCE_VAR, DT_##T, x, n, &got); /* divided by 1 */                            \
        assert_true(fabsl((long double)got - squares) <= (epsilon)*squares);                       \
        if (n) {                                                                                   \
            x[n / 2] = (R)INFINITY;                                                                \
            reduce_both(REDUCE_VAR, DT_##T, x, n, &got);                                           \
            assert_true(isnan(got));                                                               \
        }                                                                                          \
        mem_free(x);                                                                               \
    }
VARIANCES(F32, float, 6e-8L)
VARIANCES(F64, double, 1e-14L)

FLOAT_REDUCTIONS(F32, float, C64, 6e-8L)
FLOAT_REDUCTIONS(F64, double, C128, 3e-16L)

static void reductions_reduce(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 7, 31, 32, 33, 64, 100, 1000, 4096, 10001};
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        size_t n = lengths[k];
        reduce_I8(n), reduce_I16(n), reduce_I32(n), reduce_I64(n);
        reduce_U8(n), reduce_U16(n), reduce_U32(n), reduce_U64(n);
        reduce_F32(n), reduce_F64(n);
        for (double offset = 0; offset < 1e8; offset = 100 * offset + 1)
            variance_F32(n, offset), variance_F64(n, offset);
        unsigned char *b = mem_calloc(n + 1, 1), got;
        for (int one = 0; one < 2; one++)
            for (size_t at = 0; at <= n; at += n / 4 + 1) {
                memset(b, one, n);
                b[at] = !one; /* at == n: outside */
                reduce_both(REDUCE_ANY, DT_BOOL, b, n, &got);
                assert_int_equal(got, n != 0 && (!one ? at < n : n > 1 || at == n));
                reduce_both(REDUCE_ALL, DT_BOOL, b, n, &got);
                assert_int_equal(got, n == 0 || (one ? at == n : n == 1 && at < n));
            }
        mem_free(b);
    }
    assert_true(!loop_reduce(REDUCE_MIN, DT_C64) && !loop_reduce(REDUCE_SUM, DT_F16));
    assert_true(!loop_reduce(REDUCE_ANY, DT_F32) && !loop_reduce(REDUCE_SUM, DT_BOOL));
}

/* Loops are where reduce.def says, and what saw nothing is its identity. */
static void reductions_are_as_their_table_says(void **state)
{
    (void)state;
    for (enum reduce_op op = 0; op < REDUCE_COUNT; op++)
        for (enum dtype t = 0; t < DT_COUNT; t++) {
            const struct reduce_loops *r = reduce_is_arg(op) ? NULL : loop_reduce(op, t);
            if (reduce_defined(op, t) != (reduce_is_arg(op) ? loop_arg(op, t) != NULL : r != NULL))
                fail_msg("%s of %s", reduce_name(op), dtype_name(t));
            if (!r)
                continue;
            double nothing[8];
            struct scalar got = {.dtype = t}, want = reduce_identity(op, t);
            r->init(nothing);
            r->finish(nothing, &got.v, reduce_divides(op) ? 0 : 1);
            bool nan = reduce_table[op].identity == IDENTITY_NAN &&
                       isnan(literal_from_scalar(got).re) && isnan(literal_from_scalar(want).re);
            if (!nan && memcmp(&got.v, &want.v, dtype_size(t)) != 0)
                fail_msg("%s of no %s", reduce_name(op), dtype_name(t));
        }
}

/* 10^8 uniform float32: right to 1e-6 relative. In one state, block by block. */
static void long_sums_stay_right(void **state)
{
    (void)state;
    enum { N = 1 << 12 };
    float *x = mem_alloc(N * sizeof *x);
    int64_t index[N];
    struct random_params p = {.dist = RANDOM_UNIFORM, .seed = 7};
    loop_iota(index, 0, 1, N);
    loop_random(x, DT_F32, &p, index, N);
    long double one = 0;
    for (int i = 0; i < N; i++)
        one += x[i];
    const struct reduce_loops *r = loop_reduce(REDUCE_SUM, DT_F32);
    unsigned char s[64] __attribute__((aligned(64)));
    r->init(s);
    size_t rounds = 100000000 / N;
    for (size_t k = 0; k < rounds; k++)
        r->block(s, x, N);
    float got;
    r->finish(s, &got, 1);
    assert_true(fabsl(got - one * rounds) <= 1e-6L * one * rounds);
    mem_free(x);
    /* compensation: a sum that plain addition loses entirely */
    const struct reduce_loops *d = loop_reduce(REDUCE_SUM, DT_F64);
    double big = 1e16, small = 1, got64;
    d->init(s);
    d->block(s, &big, 1);
    for (int i = 0; i < 1000; i++)
        d->block(s, &small, 1);
    big = -big;
    d->block(s, &big, 1);
    d->finish(s, &got64, 1);
    assert_true(got64 == 1000);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_exist_where_operations_do),
        cmocka_unit_test(every_operation_has_a_table),
        cmocka_unit_test(every_loop_gives_the_golden_values),
        cmocka_unit_test(place_and_length_do_not_matter),
        cmocka_unit_test(casts_agree_with_scalar_cast),
        cmocka_unit_test(random_numbers_are_philox),
        cmocka_unit_test(select_takes_each_branch),
        cmocka_unit_test(gather_scatter_fill_move_bytes),
        cmocka_unit_test(reductions_reduce),
        cmocka_unit_test(reductions_are_as_their_table_says),
        cmocka_unit_test(long_sums_stay_right),
    };
    golden = golden_load();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_free(golden);
    return failed;
}

int main(void)
{
    int failed = 0;
    enum isa best = isa_choose(NULL);
    for (int i = 0; i < ISA_COUNT; i++) {
        const char *name = isa_name((enum isa)i);
        if (name == NULL)
            return 1;
        if ((enum isa)i > best) {
            printf("%s: this processor has none, skipped\n", name);
            continue;
        }
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("ARRAYD_CPU_ISA", name, 1);
            printf("%s:\n", name);
            if (strcmp(loop_isa(), name) != 0)
                _exit(2);
            int n = run_all();
            fflush(NULL);
            _exit(n != 0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            printf("%s: failed\n", name);
            failed = 1;
        }
    }
    return failed;
}
