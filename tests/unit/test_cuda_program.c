/* Programs on the fake driver: a loop's graph, and every driver call of a slice failing once. An
 * array that is assigned has what it had before the slice, or what it has after it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake_cuda.h"
#include "tests/unit/program_text.h"
#include "tests/unit/slice.h"

#define N       (getenv("ARRAYD_MESH") ? 64 : 8) /* so large that several GPUs share it */
#define MOST    64
#define STEPS   300 /* a graph's loop, and some over */
#define OOM     2
#define ILLEGAL 700

static struct engine *g;
static struct engine_stream *s;
static struct account *account;
static struct array *u, *v;

static const char *const body[] = {"lap = laplacian(u, boundary='clamp')", "u += 0.1*lap",
                                   "v = v + sum(u[0])", NULL};

static void open_engine(const char *backend)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    int64_t shape[] = {N, N};
    config.backend = backend;
    config.device.slab_memory = 16 << 20;
    config.device.mesh = strcmp(backend, "cpu") != 0 ? getenv("ARRAYD_MESH") : NULL;
    config.device.mesh_least = 1;
    account = account_new(0);
    assert_int_equal(engine_open(&config, &g, &e), ERR_OK);
    assert_int_equal(engine_stream_new(g, engine_device_count(g) - 1, &s, &e), ERR_OK);
    struct literal zero = {.kind = LIT_INT}, end = {.kind = LIT_INT, .i = N * N},
                   step = {.kind = LIT_INT, .i = 1};
    struct array *line = NULL;
    struct view square;
    assert_int_equal(engine_arange(s, account, DT_F32, &zero, &end, &step, &line, &e), ERR_OK);
    assert_int_equal(view_contiguous(2, shape, 4, &square, &e), ERR_OK);
    u = array_view(line, DT_F32, &square);
    array_unref(line);
    assert_int_equal(engine_zeros(s, account, DT_F32, 1, (int64_t[]){4}, &v, &e), ERR_OK);
}

static void close_engine(void)
{
    array_unref(u);
    array_unref(v);
    engine_stream_unref(s);
    while (engine_jobs_in_flight(g) > 0)
        usleep(100);
    assert_int_equal(engine_bytes_in_use(g), 0);
    assert_true(engine_close(g));
    account_unref(account);
}

static enum err_code make_of(const char *const *text, struct program **ret, struct err *e)
{
    struct named_array arrays[] = {{"u", u}, {"v", v}, {0}};
    return program_of_text(
        &(struct program_text){
            .stream = s, .account = account, .arrays = arrays, .body = text, .series = NULL},
        ret, e);
}

static enum err_code make(struct program **ret, struct err *e)
{
    return make_of(body, ret, e);
}

static void wake(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

/* A slice to its end. */
static struct program_progress run(struct program *p, int64_t step, int64_t n)
{
    struct program_progress progress;
    _Atomic int woken = 0;
    program_submit(p, step, n, wake, &woken);
    do {
        usleep(50);
        program_collect(p, &progress);
    } while (progress.state == PROGRAM_WAITING);
    return progress;
}

/* false: it cannot be read. */
static bool fetch(struct array *a, float *to)
{
    struct err e = ERR_INIT;
    struct download *d;
    _Atomic int woken = 0;
    if (download_new(s, a, wake, &woken, &d, &e) != ERR_OK)
        return false;
    int64_t have = 0, n = array_nbytes(a), got = 0;
    while (have < n && got >= 0) {
        got = download_pull(d, have, (char *)to + have, (size_t)(n - have));
        have += got > 0 ? got : 0;
        usleep(20);
    }
    download_free(d);
    return have == n;
}

struct contents {
    float u[MOST * MOST], v[4];
};

static void contents(struct contents *ret)
{
    *ret = (struct contents){.u = {0}};
    assert_true(fetch(u, ret->u));
    assert_true(fetch(v, ret->v));
}

static void close_to(const struct contents *a, const struct contents *b)
{
    for (int i = 0; i < N * N; i++)
        assert_true(fabsf(a->u[i] - b->u[i]) <= 1e-4f * fabsf(b->u[i]) + 1e-4f);
    for (int i = 0; i < 4; i++)
        assert_true(fabsf(a->v[i] - b->v[i]) <= 1e-4f * fabsf(b->v[i]) + 1e-4f);
}

static struct contents after(const char *backend, int64_t steps, int64_t slice)
{
    static struct contents ret;
    struct program *p = NULL;
    struct err e = ERR_INIT;
    open_engine(backend);
    assert_int_equal(make(&p, &e), ERR_OK);
    for (int64_t at = 0; at < steps; at += slice)
        assert_int_equal(run(p, at, slice < steps - at ? slice : steps - at).state,
                         PROGRAM_GOES_ON);
    contents(&ret);
    program_free(p);
    close_engine();
    return ret;
}

/* However the steps are cut, and on both backends. */
static void slices_and_graphs_agree(void **state)
{
    (void)state;
    struct contents one = after("cuda", STEPS, 1), all = after("cuda", STEPS, STEPS),
                    some = after("cuda", STEPS, 7), cpu = after("cpu", STEPS, STEPS);
    assert_memory_equal(&one, &all, sizeof one);
    assert_memory_equal(&one, &some, sizeof one);
    close_to(&one, &cpu);
    assert_int_equal(fake_cuda_live(FAKE_GRAPHS), 0);
}

static void a_loop_is_a_graph(void **state)
{
    (void)state;
    struct program *p = NULL;
    struct err e = ERR_INIT;
    open_engine("cuda");
    assert_int_equal(make(&p, &e), ERR_OK);
    assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
    fake_cuda_fail_call("cuGraphLaunch", 1, OOM);
    assert_int_equal(run(p, 1, STEPS).state, PROGRAM_FAILED);
    assert_string_equal(fake_cuda_failed(), "cuGraphLaunch");
    fake_cuda_reset();
    program_free(p);
    close_engine();
}

/* One call of a slice fails: the arrays are of before it, or of after it, and it can go on. */
static void out_of_memory_leaves_a_whole_step(void **state)
{
    (void)state;
    struct contents before, got, done;
    bool failed = true, went = false, first = true;
    /* a busy machine asks without end whether the work is done */
    const int step = slice_step(3);
    for (int nth = 1 + slice_from(step); failed && nth < 500; nth += nth < 20 ? step : 9 * step) {
        struct program *p = NULL;
        struct err e = ERR_INIT;
        open_engine("cuda");
        contents(&before);
        assert_int_equal(make(&p, &e), ERR_OK);
        assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON); /* compiled */
        contents(&before);
        fake_cuda_fail(nth, OOM);
        struct program_progress x = run(p, 1, STEPS);
        failed = fake_cuda_failed() != NULL;
        fake_cuda_fail(0, 0);
        contents(&got);
        if (x.state == PROGRAM_FAILED) {
            went = true;
            assert_int_equal(x.err.code, ERR_OUT_OF_MEMORY);
            assert_memory_equal(&got, &before, sizeof got);
            x = run(p, 1, STEPS);
            contents(&got);
        }
        assert_int_equal(x.state, PROGRAM_GOES_ON);
        if (first)
            done = got;
        first = false;
        assert_memory_equal(&got, &done, sizeof got);
        program_free(p);
        close_engine();
        assert_int_equal(fake_cuda_live(FAKE_GRAPHS), 0);
        fake_cuda_reset();
    }
    assert_true(went);
}

static void a_lost_device_ends_it(void **state)
{
    (void)state;
    for (int nth = 1; nth < 60; nth += 3) {
        struct program *p = NULL;
        struct err e = ERR_INIT;
        open_engine("cuda");
        assert_int_equal(make(&p, &e), ERR_OK);
        assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
        fake_cuda_fail(nth, ILLEGAL);
        struct program_progress x = run(p, 1, STEPS);
        bool failed = fake_cuda_failed() != NULL;
        if (failed && x.state == PROGRAM_FAILED)
            assert_int_equal(x.err.code, ERR_DEVICE_LOST);
        program_free(p);
        close_engine();
        fake_cuda_fail(0, 0);
        fake_cuda_reset();
        if (!failed)
            break;
    }
}

/* So that it can be cut to whole passes: one with steps left over takes twice as long for them. */
static void how_many_steps_a_pass_makes_is_known_before_the_first_slice(void **state)
{
    (void)state;
    static const char *const heat[] = {"u += 0.1*laplacian(u, boundary='clamp')", NULL};
    struct program *p = NULL;
    struct err e = ERR_INIT;
    int64_t n = 0;
    open_engine("cuda");
    assert_int_equal(make_of(heat, &p, &e), ERR_OK);
    assert_int_equal(program_first_slice(p, 0, 100, 1e-3, &n, &e), ERR_OK);
    assert_true(n > 1);
    uint32_t steps = program_report(p).steps;
    assert_in_range(steps, 2, 8);
    assert_int_equal(run(p, 0, 2 * steps).state, PROGRAM_GOES_ON);
    assert_int_equal(program_report(p).steps, steps);
    program_free(p);
    close_engine();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(how_many_steps_a_pass_makes_is_known_before_the_first_slice),
        cmocka_unit_test(slices_and_graphs_agree),
        cmocka_unit_test(a_loop_is_a_graph),
        cmocka_unit_test(out_of_memory_leaves_a_whole_step),
        cmocka_unit_test(a_lost_device_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
