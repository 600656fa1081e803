/* Every driver call of a request fails once, on the fake driver, through the engine's own door.
 *
 * Out of memory: the request says so or succeeds all the same; what a download gives afterwards is
 * right, or it is told that the work failed, never something else; a target that was not written is
 * as before, and one is written in half only where a kernel between others is refused; bytes in use
 * and what the driver holds are back where they were, and the same request then succeeds. A sticky
 * error: everything later says device_lost, and closing works. A kernel that does not compile, and
 * one that fails while it runs, likewise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/engine.h"
#include "protocol/infix.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"

#define N     64
#define CELLS (N * N)
#define LONG  (1 << 17) /* elements whose sum needs scratch memory */
#define BULK  (5 << 18) /* float32 elements that do not fit one slab */

#define OOM        2
#define ANY_LAUNCH 719
#define ILLEGAL    700

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct array *a, *b, *line; /* N × N, N × N, LONG; never written */
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
    o->code = engine_stream_new(x->g, 0, &s, &e);
    if (o->code == ERR_OK) {
        o->code = engine_stream_new(x->g, 0, &more, &e);
        if (o->code == ERR_OK)
            evaluate_on(x, more, "a - b", NULL, o);
        engine_stream_unref(s);
        engine_stream_unref(more);
    }
}

static const struct request {
    const char *name;
    void (*run)(struct fixture *x, struct outcome *o);
    bool into; /* the target */
} requests[] = {
    {"upload whole", upload_whole, false},      {"upload bulk", upload_bulk, false},
    {"upload region", upload_region, true},     {"evaluate flat", evaluate_flat, false},
    {"evaluate sum", evaluate_sum, false},      {"evaluate scan", evaluate_scan, false},
    {"evaluate chain", evaluate_chain, false},  {"evaluate in place", evaluate_in_place, true},
    {"evaluate pieces", evaluate_pieces, true}, {"download strided", download_strided, false},
    {"evaluate small", evaluate_small, false},  {"zeros", zeros, false},
    {"another stream", another_stream, false},
};
#define REQUESTS (sizeof requests / sizeof *requests)

/* --- the torture --- */

static void open_fixture(struct fixture *x)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.slab_memory = 16 << 20;
    *x = (struct fixture){.account = account_new(0)};
    if (engine_open(&config, &x->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(engine_stream_new(x->g, 0, &x->s, &e), ERR_OK);
    assert_int_equal(put(x, pattern_a, 2, (int64_t[]){N, N}, &x->a), ERR_OK);
    assert_int_equal(put(x, pattern_b, 2, (int64_t[]){N, N}, &x->b), ERR_OK);
    assert_int_equal(put(x, pattern_line, 1, (int64_t[]){LONG}, &x->line), ERR_OK);
}

static void settle(struct fixture *x)
{
    int tries = 0;
    while (engine_jobs_in_flight(x->g) > 0)
        pause_a_little(&tries);
}

static void close_fixture(struct fixture *x)
{
    array_unref(x->a);
    array_unref(x->b);
    array_unref(x->line);
    engine_stream_unref(x->s);
    settle(x);
    assert_int_equal(engine_bytes_in_use(x->g), 0);
    assert_int_equal(account_used(x->account), 0);
    engine_close(x->g);
    account_unref(x->account);
}

static void wait_for(struct outcome *o)
{
    int tries = 0;
    while (o->told && atomic_load(&o->done) == WAITING)
        pause_a_little(&tries);
}

static bool equal(const float *x, const float *y, size_t n)
{
    return memcmp(x, y, n * sizeof *x) == 0;
}

/* One request while a call fails; reports by failing the test. `lost`: the failure was sticky. */
static void run_failing(struct fixture *x, const struct request *r, int nth, bool sticky,
                        void (*arm)(int nth, int code), int code)
{
    static float got[BULK];
    struct outcome o = {.done = WAITING};
    const char *failed;
    arm(nth, code);
    r->run(x, &o);
    struct array *result = o.result ? o.result : x->target;
    /* a download right behind the work, while the failure may still be to come */
    if (o.code == ERR_OK && get(x, result, got) == ERR_OK && !equal(got, o.want, o.n) &&
        !(o.told && (wait_for(&o), atomic_load(&o.done) != ERR_OK) && r->into &&
          equal(got, pattern_target, CELLS)))
        fail_msg("%s, call %d: wrong data at once", r->name, nth);
    wait_for(&o);
    arm(0, 0);
    failed = fake_cuda_failed();
    enum err_code why = sticky ? ERR_DEVICE_LOST : ERR_OUT_OF_MEMORY;
    if (o.code != ERR_OK && o.code != why)
        fail_msg("%s, call %d (%s): %s", r->name, nth, failed ? failed : "none", err_name(o.code));
    if (o.told && atomic_load(&o.done) != ERR_OK && atomic_load(&o.done) != (int)why)
        fail_msg("%s, call %d (%s): work told %s", r->name, nth, failed ? failed : "none",
                 err_name((enum err_code)atomic_load(&o.done)));
    bool good = o.code == ERR_OK && (!o.told || atomic_load(&o.done) == ERR_OK);
    if (o.result || r->into) {
        enum err_code read = get(x, result, got);
        bool is_new = read == ERR_OK && o.code == ERR_OK && equal(got, o.want, o.n);
        bool is_old = read == ERR_OK && r->into && equal(got, pattern_target, CELLS);
        if (read != ERR_OK && read != why)
            fail_msg("%s, call %d (%s): reading said %s", r->name, nth, failed ? failed : "none",
                     err_name(read));
        if (read == ERR_OK && !is_new && !is_old)
            fail_msg("%s, call %d (%s): wrong data", r->name, nth, failed ? failed : "none");
        /* what work needs it has before its first kernel: only what goes on between two may leave
         * half a result */
        if (!sticky && read != ERR_OK && r->into && failed && strcmp(failed, "cuLaunchKernel") != 0)
            fail_msg("%s, call %d (%s): the target is lost", r->name, nth, failed);
        if (!sticky && o.told && good && !is_new)
            fail_msg("%s, call %d (%s): succeeded without its result", r->name, nth,
                     failed ? failed : "none");
        if (!sticky && o.code != ERR_OK && r->into && !is_old)
            fail_msg("%s, call %d (%s): refused, but not as before", r->name, nth,
                     failed ? failed : "none");
    }
    array_unref(o.result);
}

static void new_target(struct fixture *x)
{
    array_unref(x->target);
    x->target = NULL;
    assert_int_equal(put(x, pattern_target, 2, (int64_t[]){N, N}, &x->target), ERR_OK);
}

static void drop_target(struct fixture *x)
{
    array_unref(x->target);
    x->target = NULL;
    settle(x);
}

static void run_well(struct fixture *x, const struct request *r)
{
    static float got[BULK];
    struct outcome o = {.done = WAITING};
    new_target(x);
    r->run(x, &o);
    assert_int_equal(o.code, ERR_OK);
    enum err_code read = get(x, o.result ? o.result : x->target, got);
    wait_for(&o);
    if (read != ERR_OK || !equal(got, o.want, o.n) || (o.told && atomic_load(&o.done) != ERR_OK))
        fail_msg("%s: not well afterwards", r->name);
    array_unref(o.result);
    drop_target(x);
}

static void out_of_memory_loses_nothing(void **state)
{
    (void)state;
    /* streams, events and pinned memory are kept for the next; they are counted at the end */
    static const enum fake_kind kept[] = {FAKE_BYTES, FAKE_ALLOCATIONS, FAKE_MODULES};
    struct fixture x;
    int64_t before = mem_live();
    open_fixture(&x);
    for (size_t i = 0; i < REQUESTS; i++)
        run_well(&x, &requests[i]);
    int64_t bytes = engine_bytes_in_use(x.g);
    long live[FAKE_KINDS], calls = fake_cuda_calls();
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
        live[kept[k]] = fake_cuda_live(kept[k]);
    for (size_t i = 0; i < REQUESTS; i++) {
        int nth = 1;
        for (bool struck = true; struck; nth++) {
            new_target(&x);
            settle(&x);
            fake_cuda_reset();
            run_failing(&x, &requests[i], nth, false, fake_cuda_fail, OOM);
            struck = fake_cuda_failed() != NULL;
            drop_target(&x);
            assert_int_equal(engine_bytes_in_use(x.g), bytes);
            for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
                assert_int_equal(fake_cuda_live(kept[k]), live[kept[k]]);
            if (nth > 2000)
                fail_msg("%s never passes", requests[i].name);
            run_well(&x, &requests[i]);
        }
        if (getenv("TORTURE_VERBOSE"))
            print_message("%s: %d calls\n", requests[i].name, nth - 2);
    }
    assert_true(fake_cuda_calls() > calls);
    close_fixture(&x);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
    assert_int_equal(mem_live(), before);
}

/* Whatever is asked now, the answer is device_lost. */
static void is_lost(struct fixture *x)
{
    static float got[CELLS];
    struct array *none = NULL;
    struct outcome o = {.done = WAITING};
    assert_int_equal(put(x, pattern_a, 2, (int64_t[]){N, N}, &none), ERR_DEVICE_LOST);
    assert_int_equal(get(x, x->a, got), ERR_DEVICE_LOST);
    evaluate(x, "a - 1", NULL, &o);
    wait_for(&o);
    assert_int_equal(o.code != ERR_OK ? o.code : (enum err_code)atomic_load(&o.done),
                     ERR_DEVICE_LOST);
    array_unref(o.result);
    struct engine_stream *s = NULL;
    enum err_code code = engine_stream_new(x->g, 0, &s, NULL);
    assert_true(code == ERR_DEVICE_LOST || s);
    engine_stream_unref(s);
}

static void sticky(void (*arm)(int nth, int code), int code, int step)
{
    int64_t before = mem_live();
    for (size_t i = 0; i < REQUESTS; i++) {
        bool struck = true;
        for (int nth = 1; struck; nth += step) {
            struct fixture x;
            open_fixture(&x);
            new_target(&x);
            settle(&x);
            run_failing(&x, &requests[i], nth, true, arm, code);
            struck = fake_cuda_failed() != NULL;
            if (struck)
                is_lost(&x);
            array_unref(x.target);
            close_fixture(&x);
            fake_cuda_reset();
            assert_int_equal(mem_live(), before);
            if (nth > 2000)
                fail_msg("%s never passes", requests[i].name);
        }
    }
}

static void a_launch_failure_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail, ANY_LAUNCH, getenv("ARRAYD_LONG") ? 1 : 3);
}

static void an_illegal_address_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail, ILLEGAL, getenv("ARRAYD_LONG") ? 1 : 4);
}

static void a_kernel_that_fails_later_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail_launch, ANY_LAUNCH, 1);
}

/* A kernel that does not compile is our mistake. It is not compiled anew at every request, whoever
 * asks is told what the compiler said, and the next kernel is none the worse. */
static void a_refused_kernel_is_told(void **state)
{
    (void)state;
    struct fixture x;
    static float got[CELLS];
    open_fixture(&x);
    int64_t bytes = engine_bytes_in_use(x.g);
    long compiled = fake_nvrtc_calls();
    for (int round = 0; round < 3; round++) {
        struct outcome o = {.done = WAITING};
        bool well = round == 2;
        fake_nvrtc_fail(round == 0, 0);
        evaluate(&x, well ? "b*7 - a*3" : "a*7 + 11 - b*3", NULL, &o);
        assert_true(o.code == (well ? ERR_OK : ERR_INTERNAL) || round == 0);
        if (o.code != ERR_OK) /* told at once, as it is where the refusal is known */
            assert_non_null(strstr(o.why.message, "failed on demand"));
        if (o.result) {
            wait_for(&o);
            assert_int_equal(atomic_load(&o.done), well ? ERR_OK : ERR_INTERNAL);
            assert_int_equal(get(&x, o.result, got), well ? ERR_OK : ERR_INTERNAL);
        }
        for (int i = 0; well && i < CELLS; i++)
            assert_true(got[i] == pattern_b[i] * 7 - pattern_a[i] * 3);
        array_unref(o.result);
        settle(&x);
        assert_int_equal(engine_bytes_in_use(x.g), bytes);
    }
    assert_int_equal(fake_nvrtc_calls(), compiled + 2);
    close_fixture(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_loses_nothing),
        cmocka_unit_test(a_refused_kernel_is_told),
        cmocka_unit_test(a_launch_failure_is_the_end),
        cmocka_unit_test(an_illegal_address_is_the_end),
        cmocka_unit_test(a_kernel_that_fails_later_is_the_end),
    };
    fill_patterns();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
