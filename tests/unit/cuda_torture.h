/* The requests of test_cuda_torture.c, and how they go through the engine's door. Included by it
 * alone, behind cmocka.h. */
#ifndef ARRAYD_CUDA_TORTURE_H
#define ARRAYD_CUDA_TORTURE_H

#include <string.h>

#include "compute/engine/engine.h"
#include "protocol/text/infix.h"
#include "tests/unit/cuda_arrays.h"

#define N     64
#define CELLS (N * N)
#define LONG  (1 << 17) /* elements whose sum needs scratch memory */
#define BULK  (5 << 18) /* float32 elements that do not fit one slab */

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    int device;
    struct array *a, *b, *line; /* N × N, N × N, LONG; never written */
    struct array *bulk;         /* BULK, on a mesh, whose GPUs each have a share of it */
    struct array *target;       /* N × N, new for every request */
};

/* What a request came to. */
struct outcome {
    enum err_code code;   /* of asking */
    _Atomic int done;     /* of the work: an enum err_code, or WAITING */
    struct array *result; /* to be read; NULL: the target */
    const float *want;    /* what it then holds */
    size_t n;
    bool told;      /* done will be told */
    struct err why; /* code is not ERR_OK */
};
enum { WAITING = -1 };

static float pattern_a[CELLS], pattern_b[CELLS], pattern_line[LONG], pattern_bulk[BULK];
static float pattern_target[CELLS], want[BULK];

static void fill_patterns(void)
{
    for (int i = 0; i < BULK; i++)
        pattern_bulk[i] = (float)(i % 1021);
    for (int i = 0; i < LONG; i++)
        pattern_line[i] = (float)(i % 7);
    for (int i = 0; i < CELLS; i++) {
        pattern_a[i] = (float)(i % 101);
        pattern_b[i] = (float)(i % 17) - 8;
        pattern_target[i] = (float)((i * 31) % 97);
    }
}

/* --- the engine's door --- */

static enum err_code put(struct fixture *x, const float *values, int rank, const int64_t *shape,
                         struct array **ret)
{
    return put_array(x->s, x->account, values, rank, shape, ret);
}

static enum err_code get(struct fixture *x, struct array *a, float *to)
{
    return get_array(x->s, a, to);
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct fixture *x = user;
    struct array *a = !strcmp(name, "a")      ? x->a
                      : !strcmp(name, "b")    ? x->b
                      : !strcmp(name, "line") ? x->line
                      : !strcmp(name, "bulk") ? x->bulk
                                              : x->target;
    (void)e;
    *ret = (struct binding){.kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

static void work_done(void *user, enum err_code result, double device_ms)
{
    struct outcome *o = user;
    (void)device_ms;
    atomic_store(&o->done, (int)result);
}

static void evaluate_on(struct fixture *x, struct engine_stream *s, const char *text,
                        struct array *out, struct outcome *o)
{
    struct arena *arena = arena_new(0);
    struct expr expr;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = resolve, .user = x, .max_inputs = 64};
    expr_init(&expr, arena, 10000, 400);
    assert_int_equal(expr_add_source(&expr, "/expr", &source, NULL), ERR_OK);
    assert_int_equal(infix_parse(&expr, source, text, strlen(text), &expr.root, &e), ERR_OK);
    struct eval_request req = {.expr = &expr, .env = &env, .dtype = -1, .out = out};
    struct array *ret = NULL;
    o->code = engine_evaluate(s, x->account, &req, &ret, NULL, work_done, o, &e);
    o->why = e;
    o->told = o->code == ERR_OK;
    if (out)
        array_unref(ret);
    else
        o->result = ret;
    arena_free(arena);
}

static void evaluate(struct fixture *x, const char *text, struct array *out, struct outcome *o)
{
    evaluate_on(x, x->s, text, out, o);
}

/* --- requests --- */

static void upload_whole(struct fixture *x, struct outcome *o)
{
    o->want = pattern_a;
    o->n = CELLS;
    o->code = put(x, pattern_a, 2, (int64_t[]){N, N}, &o->result);
}

static void upload_bulk(struct fixture *x, struct outcome *o)
{
    o->want = pattern_bulk;
    o->n = BULK;
    o->code = put(x, pattern_bulk, 1, (int64_t[]){BULK}, &o->result);
}

/* Into every other row of the target. */
static void upload_region(struct fixture *x, struct outcome *o)
{
    struct upload *u = NULL;
    struct err e = ERR_INIT;
    struct view v = {.rank = 2, .shape = {N / 2, N}, .strides = {2 * N, 1}};
    memcpy(want, pattern_target, sizeof pattern_target);
    for (int i = 0; i < N / 2; i++)
        memcpy(want + 2 * i * N, pattern_a + i * N, N * sizeof *want);
    o->want = want;
    o->n = CELLS;
    o->code = upload_new(x->s, x->account, CELLS / 2 * 4, NULL, NULL, &u, &e);
    if (o->code != ERR_OK)
        return;
    push_all(u, pattern_a, CELLS / 2 * 4);
    o->code = upload_finish_into(u, x->target, &v, false, work_done, o, &e);
    o->told = o->code == ERR_OK;
}

static void evaluate_flat(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < CELLS; i++)
        want[i] = pattern_a[i] + pattern_b[i] * 2;
    o->want = want;
    o->n = CELLS;
    evaluate(x, "a + b*2", NULL, o);
}

static void evaluate_sum(struct fixture *x, struct outcome *o)
{
    want[0] = 0;
    for (int i = 0; i < LONG; i++)
        want[0] += pattern_line[i];
    o->want = want;
    o->n = 1;
    evaluate(x, "sum(line)", NULL, o);
}

/* Memory that has to be zeroed first. */
static void evaluate_scan(struct fixture *x, struct outcome *o)
{
    want[0] = 0;
    for (int i = 0; i < LONG; i++)
        want[0] += pattern_line[i];
    o->want = want;
    o->n = 1;
    evaluate(x, "cumulative_sum(line)[-1]", NULL, o);
}

/* Several kernels and a temporary. */
static void evaluate_chain(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int j = 0; j < N; j++)
            sum += pattern_a[i * N + j];
        for (int j = 0; j < N; j++)
            want[i * N + j] = pattern_b[i * N + j] - sum;
    }
    o->want = want;
    o->n = CELLS;
    evaluate(x, "b - sum(a, axis=1, keepdims=True)", NULL, o);
}

/* Reads neighbours of what it writes. */
static void evaluate_in_place(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < CELLS; i++)
        want[i] = pattern_target[(i + N) % CELLS] - pattern_target[i];
    o->want = want;
    o->n = CELLS;
    evaluate(x, "shift(target, (1, 0), 'wrap') - target", x->target, o);
}

/* In pieces, each by a kernel of its own, straight into the target. */
static void evaluate_pieces(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < CELLS - N; i++)
        want[i] = pattern_a[i] * 3;
    for (int j = 0; j < N; j++) {
        want[CELLS - N + j] = 0;
        for (int i = 0; i < N; i++)
            want[CELLS - N + j] += pattern_b[i * N + j];
    }
    o->want = want;
    o->n = CELLS;
    evaluate(x, "concat([a[:-1]*3, sum(b, axis=0, keepdims=True)])", x->target, o);
}

static void download_strided(struct fixture *x, struct outcome *o)
{
    struct view v = {.rank = 2, .shape = {N / 2, N}, .strides = {2 * N, -1}, .offset = N - 1};
    for (int i = 0; i < N / 2; i++)
        for (int j = 0; j < N; j++)
            want[i * N + j] = pattern_a[2 * i * N + N - 1 - j];
    o->want = want;
    o->n = CELLS / 2;
    o->result = array_view(x->a, DT_F32, &v);
}

static void evaluate_small(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < 5; i++)
        want[i] = pattern_a[i] * 3;
    o->want = want;
    o->n = 5;
    evaluate(x, "a[0, :5]*3", NULL, o);
}

static void zeros(struct fixture *x, struct outcome *o)
{
    struct err e = ERR_INIT;
    memset(want, 0, sizeof *want * 1000);
    o->want = want;
    o->n = 1000;
    o->code = engine_zeros(x->s, x->account, DT_F32, 1, (int64_t[]){1000}, &o->result, &e);
}

static void another_stream(struct fixture *x, struct outcome *o)
{
    struct engine_stream *s = NULL, *more = NULL;
    struct err e = ERR_INIT;
    for (int i = 0; i < CELLS; i++)
        want[i] = pattern_a[i] - pattern_b[i];
    o->want = want;
    o->n = CELLS;
    o->code = engine_stream_new(x->g, x->device, &s, &e);
    if (o->code == ERR_OK) {
        o->code = engine_stream_new(x->g, x->device, &more, &e);
        if (o->code == ERR_OK)
            evaluate_on(x, more, "a - b", NULL, o);
        engine_stream_unref(s);
        engine_stream_unref(more);
    }
}

static void move(struct fixture *x, bool host, struct outcome *o)
{
    struct err e = ERR_INIT;
    o->want = pattern_target;
    o->n = CELLS;
    o->code = engine_move(x->s, x->target, host, work_done, o, &e);
    o->told = o->code == ERR_OK;
}

static void move_out(struct fixture *x, struct outcome *o)
{
    move(x, true, o);
}

static void move_back(struct fixture *x, struct outcome *o)
{
    move(x, false, o);
}

static void evaluate_target(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < CELLS; i++)
        want[i] = pattern_target[i] * 2 + pattern_b[i];
    o->want = want;
    o->n = CELLS;
    evaluate(x, "target * 2 + b", NULL, o);
}

static void overwrite_target(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < CELLS; i++)
        want[i] = pattern_b[i] + 1;
    o->want = want;
    o->n = CELLS;
    evaluate(x, "b + 1", x->target, o);
}

static void download_target(struct fixture *x, struct outcome *o)
{
    o->want = pattern_target;
    o->n = CELLS;
    o->result = array_ref(x->target);
}

/* What each GPU has a share of. */
static void evaluate_bulk(struct fixture *x, struct outcome *o)
{
    for (int i = 0; i < BULK; i++)
        want[i] = pattern_bulk[BULK - 1 - i] * 2 + 1;
    o->want = want;
    o->n = BULK;
    evaluate(x, "bulk[::-1]*2 + 1", NULL, o);
}

/* Each GPU has a state, and one joins them. */
static void reduce_bulk(struct fixture *x, struct outcome *o)
{
    want[0] = 1020;
    o->want = want;
    o->n = 1;
    evaluate(x, "max(bulk)", NULL, o);
}

static const struct request {
    const char *name;
    void (*run)(struct fixture *x, struct outcome *o);
    bool into;   /* the target */
    bool hosted; /* the target begins in host memory */
} requests[] = {
    {"upload whole", upload_whole, false},
    {"upload bulk", upload_bulk, false},
    {"upload region", upload_region, true},
    {"evaluate flat", evaluate_flat, false},
    {"evaluate sum", evaluate_sum, false},
    {"evaluate scan", evaluate_scan, false},
    {"evaluate chain", evaluate_chain, false},
    {"evaluate in place", evaluate_in_place, true},
    {"evaluate pieces", evaluate_pieces, true},
    {"download strided", download_strided, false},
    {"evaluate small", evaluate_small, false},
    {"zeros", zeros, false},
    {"another stream", another_stream, false},
    {"move out", move_out, true},
    {"move back", move_back, true, true},
    {"evaluate in place, hosted", evaluate_in_place, true, true},
    {"evaluate, hosted", evaluate_target, false, true},
    {"overwrite, hosted", overwrite_target, true, true},
    {"upload region, hosted", upload_region, true, true},
    {"download, hosted", download_target, false, true},
    /* behind the REQUESTS: on a mesh alone */
    {"evaluate bulk", evaluate_bulk},
    {"reduce bulk", reduce_bulk},
};
#define ON_MESH  2
#define REQUESTS (sizeof requests / sizeof *requests - ON_MESH)

#endif
