/* Where every backend must give the same bits as the CPU's: + - × ÷ √, integers, comparisons, casts
 * and the like, on random bits (so also NaN, infinities, denormals), odd lengths and views, in
 * expressions of a few operations:
 *   exact BACKEND [COUNT] [SEED]
 * A NaN is like any other NaN. Exit 77 when the backend is not available.
 *
 * As property.c, a batch of expressions is submitted before the one before it is looked at. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/check/check.h"
#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "tests/backend/suite.h"

#define BATCH    64
#define OPERANDS 3

/* One engine: the CPU's, or the one under test. */
struct side {
    struct engine *g;
    struct engine_stream *streams[2];
};

/* An operand: a view of a buffer of random elements. */
struct operand {
    enum dtype dtype;
    int rank;
    int64_t stored; /* elements of the buffer */
    struct view view;
    void *bytes;
};

struct expression {
    uint64_t seed;
    struct operand operands[OPERANDS];
    struct arena *arena;
    struct typed *typed[2]; /* a side; they differ in the arrays */
    struct array *args[2][OPERANDS], *ret[2];
    bool failed;
};

static struct side sides[2];
static struct account *account;
static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 0x2545F4914F6CDD1Du;
}

static int64_t below(int64_t n)
{
    return (int64_t)((rng() >> 11) % (uint64_t)n);
}

/* --- operands --- */

static double some_double(void)
{
    static const double special[] = {0, 1, -1, 2, 0.5, 3, 1e-310, 65504, 1e308, 16777216};
    switch (below(4)) {
    case 0:
        return special[below(10)] * (below(2) ? 1 : -1);
    case 1:
        return (double)(below(2001) - 1000) / 8;
    default:
        return (double)(int64_t)rng() * 0x1p-62;
    }
}

static void put_scalar(enum dtype t, void *to)
{
    enum dtype part = t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
    size_t size = dtype_size(part);
    for (size_t at = 0; at < dtype_size(t); at += size) {
        uint64_t bits = rng();
        if (t == DT_BOOL)
            bits &= 1;
        else if (below(3) != 0) {
            struct scalar x = {.dtype = DT_F64, .v.f64 = some_double()};
            if (below(2) == 0 && dtype_is_integer(part))
                x = (struct scalar){.dtype = DT_I64, .v.i64 = below(20) - 10};
            bits = scalar_cast(x, part).v.u64;
        }
        memcpy((char *)to + at, &bits, size);
    }
}

/* A view of extents `shape`, or of a shape that broadcasts to it. */
static void make_operand(struct operand *o, enum dtype t, int rank, const int64_t *shape)
{
    o->dtype = t;
    o->rank = rank;
    o->view = (struct view){.rank = rank};
    int64_t step = 1;
    bool turned = below(3) == 0;
    int64_t pad = below(2) * below(4);
    for (int i = 0; i < rank; i++) {
        int a = turned ? i : rank - 1 - i;
        int64_t n = below(6) == 0 ? 1 : shape[a], every = below(4) == 0 ? 2 : 1;
        o->view.shape[a] = n;
        o->view.strides[a] = step * every;
        if (below(6) == 0) {
            o->view.offset += (n - 1) * step * every;
            o->view.strides[a] = -step * every;
        }
        step *= n * every + (below(3) == 0 ? 1 : 0);
    }
    o->view.offset += pad;
    o->stored = step + pad;
    size_t size = dtype_size(t);
    o->bytes = malloc((size_t)o->stored * size);
    for (int64_t i = 0; i < o->stored; i++)
        put_scalar(t, (char *)o->bytes + (size_t)i * size);
}

static struct array *upload(struct engine_stream *s, const struct operand *o)
{
    struct upload *u = NULL;
    struct array *whole = NULL;
    size_t n = (size_t)o->stored * dtype_size(o->dtype);
    if (upload_new(s, account, (int64_t)n, NULL, NULL, &u, NULL) != ERR_OK)
        abort();
    for (size_t at = 0, took; at < n; at += took)
        if (!(took = upload_push(u, (char *)o->bytes + at, n - at)))
            usleep(20);
    if (upload_finish_new(u, o->dtype, 1, &o->stored, false, &whole, NULL) != ERR_OK)
        abort();
    struct array *a = array_view(whole, o->dtype, &o->view);
    array_unref(whole);
    return a;
}

/* NULL when the work failed. */
static void *fetch(struct engine_stream *s, struct array *a)
{
    struct download *d = NULL;
    int64_t n = array_nbytes(a), at = 0, got = 0;
    char *to = malloc((size_t)n + 1);
    if (download_new(s, a, NULL, NULL, &d, NULL) != ERR_OK)
        abort();
    for (; at < n && got >= 0; at += got > 0 ? got : 0) {
        got = download_pull(d, at, to + at, (size_t)(n - at));
        if (got == 0)
            usleep(20);
    }
    if (got < 0)
        fprintf(stderr, "the work failed: %s\n", err_name(download_result(d)));
    download_free(d);
    if (got >= 0)
        return to;
    free(to);
    return NULL;
}

/* --- expressions --- */

static uint32_t add(struct expression *x, struct typed_node n)
{
    int rank = 0;
    int64_t shape[MAX_RANK], both[MAX_RANK];
    struct typed *t = x->typed[0];
    for (int i = 0; i < n.n_args && n.kind != T_REDUCE; i++) {
        const struct typed_node *a = &t->nodes[n.args[i]];
        if (shape_broadcast(rank, shape, a->rank, a->shape, &rank, both, NULL) != ERR_OK)
            abort();
        memcpy(shape, both, sizeof shape);
    }
    if (n.kind != T_INPUT && n.kind != T_REDUCE) {
        n.rank = rank;
        n.shape = arena_dup(x->arena, shape, sizeof shape);
    }
    return typed_add(x->arena, t, &n);
}

/* Operations whose results are exact, by what they are defined for. */
static const enum op any_number[] = {OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_NEGATIVE, OP_SQUARE};
static const enum op reals[] = {OP_FLOOR_DIVIDE, OP_REMAINDER, OP_FMOD,   OP_MAXIMUM,
                                OP_MINIMUM,      OP_ABS,       OP_SIGN,   OP_LESS,
                                OP_LESS_EQUAL,   OP_EQUAL,     OP_GREATER};
static const enum op floats[] = {OP_DIVIDE, OP_DIVIDE, OP_SQRT,  OP_SQRT, OP_RECIPROCAL,
                                 OP_RSQRT,  OP_FLOOR,  OP_ROUND, OP_TRUNC};
static const enum op complexes[] = {OP_DIVIDE, OP_DIVIDE, OP_RECIPROCAL, OP_CONJ, OP_EQUAL};
static const enum op integers[] = {OP_BITWISE_AND,         OP_BITWISE_OR,
                                   OP_BITWISE_XOR,         OP_BITWISE_LEFT_SHIFT,
                                   OP_BITWISE_RIGHT_SHIFT, OP_BITWISE_INVERT};
#define PICK(table) table[below((int64_t)(sizeof table / sizeof *table))]

/* Where a compiler that loses track of 8 and 16 bit values' signs shows it. */
static enum op narrow_op(void)
{
    static const enum op ops[] = {OP_ADD,     OP_SUBTRACT,       OP_NEGATIVE,
                                  OP_ABS,     OP_MAXIMUM,        OP_MINIMUM,
                                  OP_LESS,    OP_BITWISE_INVERT, OP_GREATER_EQUAL,
                                  OP_MAXIMUM, OP_MINIMUM,        OP_BITWISE_RIGHT_SHIFT};
    return PICK(ops);
}

static enum op some_op(enum dtype t)
{
    if (t == DT_BOOL)
        return below(2) ? OP_LOGICAL_AND : OP_LOGICAL_XOR;
    if (below(3) == 0)
        return PICK(any_number);
    if (t == DT_C64 || t == DT_C128)
        return PICK(complexes);
    if (below(2) == 0)
        return PICK(reals);
    return dtype_is_integer(t) ? PICK(integers) : PICK(floats);
}

static uint32_t some_cast(struct expression *x, uint32_t a, enum dtype to)
{
    if (x->typed[0]->nodes[a].dtype == to)
        return a;
    return add(x, (struct typed_node){.kind = T_CAST, .dtype = to, .n_args = 1, .args = {a}});
}

static uint32_t reduced(struct expression *x, uint32_t a)
{
    enum dtype t = x->typed[0]->nodes[a].dtype;
    if (dtype_is_complex(t) || t == DT_BOOL)
        return a;
    /* the order of a sum changes a float's rounding, not an integer's */
    bool sum = dtype_is_integer(t) && below(2);
    if (sum)
        t = t >= DT_U8 ? DT_U64 : DT_I64;
    else if (dtype_is_half(t)) /* there is no reduction of halves in the IR */
        t = DT_F32;
    a = some_cast(x, a, t);
    struct typed_node n = x->typed[0]->nodes[a];
    struct typed_node r = {.kind = T_REDUCE, .dtype = t, .n_args = 1, .args = {a}};
    r.reduce.op = sum ? REDUCE_SUM : below(2) ? REDUCE_MAX : REDUCE_MIN;
    int64_t shape[MAX_RANK];
    for (int k = 0; k < n.rank; k++) {
        if (below(2))
            r.reduce.axes |= 1u << k;
        else
            shape[r.rank++] = n.shape[k];
    }
    r.shape = arena_dup(x->arena, shape, sizeof shape);
    return typed_add(x->arena, x->typed[0], &r);
}

static void make_graph(struct expression *x)
{
    static const enum dtype types[] = {DT_F32, DT_F64,  DT_F32, DT_F64, DT_F16, DT_BF16,
                                       DT_C64, DT_C128, DT_I8,  DT_I16, DT_I32, DT_I64,
                                       DT_U8,  DT_U16,  DT_U32, DT_U64};
    static const enum dtype narrow[] = {DT_I8, DT_I16, DT_U8, DT_U16};
    bool only_narrow = below(4) == 0;
    enum dtype type = only_narrow ? PICK(narrow) : PICK(types);
    int rank = 1 + (int)below(3);
    int64_t shape[MAX_RANK];
    for (int k = 0; k < rank; k++)
        shape[k] = 1 + below(rank == 1 ? 3000 : rank == 2 ? 70 : 20);
    x->arena = arena_new(0);
    struct typed *t = x->typed[0] = arena_alloc(x->arena, sizeof *t);
    t->inputs = arena_alloc_array(x->arena, OPERANDS, sizeof *t->inputs);
    uint32_t pool[16];
    int n = 0;
    for (int k = 0; k < OPERANDS; k++) {
        make_operand(&x->operands[k], only_narrow || below(8) ? type : PICK(types), rank, shape);
        const struct operand *o = &x->operands[k];
        t->inputs[t->n_inputs] = (struct typed_input){NULL, o->dtype, o->view, "x"};
        pool[n++] = add(x, (struct typed_node){.kind = T_INPUT,
                                               .dtype = o->dtype,
                                               .input = t->n_inputs++,
                                               .rank = rank,
                                               .shape = x->operands[k].view.shape});
    }
    for (int steps = 1 + (int)below(5); steps > 0; steps--) {
        uint32_t a = pool[n - 1 - below(n < 3 ? n : 3)], b = pool[below(n)];
        enum dtype to = below(10) ? t->nodes[a].dtype : only_narrow ? PICK(narrow) : PICK(types);
        if (to == DT_BOOL && below(2))
            to = type;
        enum op op = only_narrow && to != DT_BOOL ? narrow_op() : some_op(to);
        a = some_cast(x, a, to);
        b = some_cast(x, b, to);
        pool[n++] = add(x, (struct typed_node){.kind = T_OP,
                                               .dtype = op_result_dtype(op, to),
                                               .op = op,
                                               .n_args = op_table[op].nargs,
                                               .args = {a, b}});
    }
    t->root = below(5) ? pool[n - 1] : reduced(x, pool[n - 1]);
}

static void submit(struct expression *x, int batch, uint64_t seed)
{
    *x = (struct expression){.seed = seed};
    rng_state = seed * 0x9E3779B97F4A7C15ull | 1;
    for (int k = 0; k < 8; k++)
        rng();
    make_graph(x);
    for (int k = 0; k < 2; k++) {
        struct engine_stream *s = sides[k].streams[batch];
        struct typed *t = x->typed[k] = arena_dup(x->arena, x->typed[0], sizeof *t);
        t->inputs = arena_dup(x->arena, t->inputs, OPERANDS * sizeof *t->inputs);
        for (int i = 0; i < OPERANDS; i++) {
            x->args[k][i] = upload(s, &x->operands[i]);
            t->inputs[i].array = x->args[k][i];
        }
        struct err e = ERR_INIT;
        if (engine_run(task_new(s), t, account, false, NULL, NULL, &x->ret[k], &e) != ERR_OK) {
            fprintf(stderr, "engine_run: %s\n", e.message);
            x->failed = true;
        }
    }
}

/* --- results --- */

static bool is_nan(enum dtype part, uint64_t bits)
{
    switch (part) {
    case DT_F16:
        return (bits & 0x7fff) > 0x7c00;
    case DT_BF16:
        return (bits & 0x7fff) > 0x7f80;
    case DT_F32:
        return (bits & 0x7fffffff) > 0x7f800000;
    case DT_F64:
        return (bits & INT64_MAX) > INT64_C(0x7ff0000000000000);
    default:
        return false;
    }
}

static bool same(const struct expression *x, const char *want, const char *got)
{
    enum dtype t = x->ret[0]->dtype;
    enum dtype part = t == DT_C64 ? DT_F32 : t == DT_C128 ? DT_F64 : t;
    size_t size = dtype_size(part), n = (size_t)array_nbytes(x->ret[0]) / size;
    for (size_t i = 0; i < n; i++) {
        uint64_t a = 0, b = 0;
        memcpy(&a, want + i * size, size);
        memcpy(&b, got + i * size, size);
        if (a == b || (is_nan(part, a) && is_nan(part, b)))
            continue;
        struct strb text = {0};
        typed_print(x->typed[1], &text);
        fprintf(stderr, "%s %zu of %zu: got %0*" PRIx64 ", the CPU %0*" PRIx64 "\n%s\n",
                part == t ? "element" : "part", i, n, (int)size * 2, b, (int)size * 2, a,
                text.data ? text.data : "");
        strb_free(&text);
        return false;
    }
    return true;
}

/* Whether all is well. */
static bool finish(struct expression *x, int batch)
{
    if (!x->failed) {
        char *want = fetch(sides[0].streams[batch], x->ret[0]);
        char *got = fetch(sides[1].streams[batch], x->ret[1]);
        x->failed = !want || !got || !same(x, want, got);
        free(want);
        free(got);
    }
    if (x->failed)
        fprintf(stderr, "  (seed %" PRIu64 ")\n", x->seed);
    for (int k = 0; k < 2; k++) {
        array_unref(x->ret[k]);
        for (int i = 0; i < OPERANDS; i++)
            array_unref(x->args[k][i]);
    }
    for (int i = 0; i < OPERANDS; i++)
        free(x->operands[i].bytes);
    arena_free(x->arena);
    return !x->failed;
}

static int finish_batch(struct expression *batch, int which, int *n)
{
    int failed = 0;
    for (int i = 0; i < *n; i++)
        failed += !finish(&batch[i], which);
    *n = 0;
    return failed;
}

/* Seeds that have found something; they come first. */
static const uint64_t found[] = {50681};
#define N_FOUND ((int)(sizeof found / sizeof *found))

int main(int argc, char **argv)
{
    const char *const backends[] = {"cpu", argc > 1 ? argv[1] : "cpu"};
    int count = argc > 2 ? atoi(argv[2]) : 1000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    static struct expression batches[2][BATCH];
    account = account_new(0);
    for (int k = 0; k < 2; k++) {
        struct engine_config config = suite_config(backends[k]);
        struct err e = ERR_INIT;
        if (engine_open(&config, &sides[k].g, &e) != ERR_OK) {
            fprintf(stderr, "skipped: %s\n", e.message);
            return 77;
        }
        for (int i = 0; i < 2; i++)
            if (engine_stream_new(sides[k].g, suite_device(sides[k].g), &sides[k].streams[i], &e) !=
                ERR_OK)
                abort();
    }
    int failed = 0, at = 0, n[2] = {0};
    for (int i = 0; i < count && failed < 5; i++) {
        submit(&batches[at][n[at]++], at, i < N_FOUND ? found[i] : seed + (uint64_t)i);
        if (n[at] == BATCH) {
            at = !at;
            failed += finish_batch(batches[at], at, &n[at]);
        }
    }
    for (int k = 0; k < 2; k++)
        failed += finish_batch(batches[k], k, &n[k]);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++)
            engine_stream_unref(sides[k].streams[i]);
        for (int i = 0; i < 5000 && engine_jobs_in_flight(sides[k].g) > 0; i++)
            usleep(1000); /* what was fetched is let go a moment later */
        if (engine_bytes_in_use(sides[k].g) != 0) {
            fprintf(stderr, "%" PRId64 " bytes still in use\n", engine_bytes_in_use(sides[k].g));
            failed++;
        }
        engine_close(sides[k].g);
    }
    account_unref(account);
    printf("exact %s: %d expressions, %d failed\n", backends[1], count, failed);
    return failed != 0;
}
