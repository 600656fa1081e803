/* Several streams at once on the CUDA backend over the fake driver: in which order work is told,
 * and many threads that evaluate, write to one array, send and fetch while calls fail at random.
 * What is read is right or an error; ThreadSanitizer watches in deploy/check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/engine/engine.h"
#include "compute/gpu/api/cuda_api.h"
#include "protocol/text/infix.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"

#define N       4096
#define BULK    300000 /* floats that do not fit one slab */
#define THREADS 4

static float ramp[BULK];

static struct {
    struct engine *g;
    struct account *account;
    struct array *a, *shared; /* never written; written by all threads, always a + a whole number */
    _Atomic bool over;
    _Atomic int failed, wrong; /* requests */
} x;

struct names {
    struct array *r;
};

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct names *names = user;
    struct array *a = !strcmp(name, "a") ? x.a : !strcmp(name, "shared") ? x.shared : names->r;
    (void)e;
    *ret = (struct binding){.kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

/* `r` is what that name stands for; may be NULL. */
static enum err_code evaluate(struct engine_stream *s, const char *text, struct array *r,
                              struct array *out, struct array **ret, engine_done *done, void *user)
{
    struct names names = {r};
    struct expr expr;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = resolve, .user = &names, .max_inputs = 64};
    struct arena *arena = arena_new(0);
    expr_init(&expr, arena, 10000, 400);
    enum err_code code = expr_add_source(&expr, "/expr", &source, &e);
    if (code == ERR_OK)
        code = infix_parse(&expr, source, text, strlen(text), &expr.root, &e);
    struct eval_request req = {.expr = &expr, .env = &env, .dtype = -1, .out = out};
    if (code == ERR_OK)
        code = engine_evaluate(s, x.account, &req, ret, NULL, done, user, &e);
    arena_free(arena);
    return code;
}

static enum err_code get(struct engine_stream *s, struct array *a, float *to)
{
    return get_array(s, a, to);
}

static enum err_code put(struct engine_stream *s, int64_t n, struct array **ret)
{
    return put_array(s, x.account, ramp, 1, &n, ret);
}

static void open_engine(struct engine_stream **ret)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.slab_memory = 8 << 20;
    memset(&x, 0, sizeof x);
    if (engine_open(&config, &x.g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    x.account = account_new(0);
    assert_int_equal(engine_stream_new(x.g, 0, ret, &e), ERR_OK);
    assert_int_equal(put(*ret, N, &x.a), ERR_OK);
    assert_int_equal(put(*ret, N, &x.shared), ERR_OK);
}

static void close_engine(struct engine_stream *s)
{
    int tries = 0;
    array_unref(x.a);
    array_unref(x.shared);
    engine_stream_unref(s);
    while (engine_jobs_in_flight(x.g) > 0)
        pause_a_little(&tries);
    assert_int_equal(engine_bytes_in_use(x.g), 0);
    assert_int_equal(account_used(x.account), 0);
    engine_close(x.g);
    account_unref(x.account);
}

/* --- the order of telling --- */

/* Told of the long job, by the thread that tells: when it goes on, the device has done everything,
 * and what is told first is its choice. */
static void until_all_has_run(void *user, enum err_code result, double device_ms)
{
    (void)user;
    (void)result;
    (void)device_ms;
    (void)fake_cuda_live(FAKE_LAUNCHES); /* waits for all streams */
}

/* A long job, then one whose launch is refused, and on another stream one that reads what that
 * should have written: nobody may get to see it. */
static void what_was_not_written_is_not_read(void **state)
{
    (void)state;
    static float got[N];
    struct engine_stream *first, *second;
    struct err e = ERR_INIT;
    open_engine(&first);
    assert_int_equal(engine_stream_new(x.g, 0, &second, &e), ERR_OK);
    for (int round = 0; round < 6; round++) {
        struct array *before = NULL, *r = NULL, *after = NULL;
        bool well = round == 0; /* and everything is compiled */
        fake_cuda_hold(well ? 0 : 1);
        assert_int_equal(
            evaluate(first, "a + 1", NULL, NULL, &before, well ? NULL : until_all_has_run, NULL),
            ERR_OK);
        fake_cuda_refuse_launch(well ? 0 : 1, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(evaluate(first, "a * 2", NULL, NULL, &r, NULL, NULL), ERR_OK);
        assert_int_equal(evaluate(second, "sqrt(r)", r, NULL, &after, NULL, NULL), ERR_OK);
        fake_cuda_release();
        assert_int_equal(get(second, after, got), well ? ERR_OK : ERR_OUT_OF_MEMORY);
        assert_int_equal(get(second, r, got), well ? ERR_OK : ERR_OUT_OF_MEMORY);
        assert_int_equal(get(second, before, got), ERR_OK);
        assert_true(got[7] == 8);
        array_unref(before);
        array_unref(r);
        array_unref(after);
    }
    engine_stream_unref(second);
    close_engine(first);
}

static void keep_time(void *user, enum err_code result, double device_ms)
{
    *(double *)user = result == ERR_OK ? device_ms : -1;
}

/* A job that has waited behind others is not charged with theirs, nor with a gap before it. */
static void each_job_has_its_own_time(void **state)
{
    (void)state;
    static float got[N];
    struct engine_stream *s;
    open_engine(&s);
    for (int round = 0; round < 3; round++) {
        double ms[8];
        struct array *r[8] = {NULL};
        fake_cuda_hold(round == 0 ? 0 : 1); /* the first compiles */
        for (int i = 0; i < 8; i++)
            assert_int_equal(evaluate(s, "a + 1", NULL, NULL, &r[i], keep_time, &ms[i]), ERR_OK);
        usleep(600000);
        fake_cuda_release();
        for (int i = 0; i < 8; i++) {
            assert_int_equal(get(s, r[i], got), ERR_OK);
            array_unref(r[i]);
        }
        for (int tries = 0; engine_jobs_in_flight(x.g) > 0;)
            pause_a_little(&tries);
        if (round == 0)
            continue;
        assert_true(ms[0] >= 400); /* the first may begin late */
        for (int i = 1; i < 8; i++)
            assert_true(ms[i] >= 0 && ms[i] < 300);
        usleep(60000);
    }
    close_engine(s);
}

/* The first piece is written, the second refused: what is there is neither the old contents nor the
 * new ones. */
static void a_result_made_half_is_not_read(void **state)
{
    (void)state;
    static float got[2 * N];
    struct engine_stream *s;
    struct array *out = NULL, *again = NULL;
    open_engine(&s);
    assert_int_equal(evaluate(s, "concat([a, a])", NULL, NULL, &out, NULL, NULL), ERR_OK);
    assert_int_equal(evaluate(s, "concat([a*3, a*5])", NULL, out, &again, NULL, NULL), ERR_OK);
    assert_int_equal(get(s, out, got), ERR_OK); /* and everything is compiled */
    assert_true(got[7] == 21 && got[N + 7] == 35);
    array_unref(again);
    again = NULL;
    fake_cuda_refuse_launch(2, CUDA_ERROR_OUT_OF_MEMORY);
    enum err_code code = evaluate(s, "concat([a*3, a*5])", NULL, out, &again, NULL, NULL);
    fake_cuda_refuse_launch(0, 0);
    assert_true(code == ERR_OK || code == ERR_OUT_OF_MEMORY);
    for (int tries = 0; engine_jobs_in_flight(x.g) > 0;) /* until that is known */
        pause_a_little(&tries);
    assert_int_equal(get(s, out, got), ERR_OUT_OF_MEMORY);
    array_unref(again);
    array_unref(out);
    close_engine(s);
}

/* --- many parameters --- */

/* Every second element from each of 64 places, times a number of its own: more parameters than go
 * along with a launch, so that they come by way of pinned memory. One call after the other fails.
 */
static void many_parameters_are_right_or_refused(void **state)
{
    (void)state;
    struct engine_stream *s;
    _cleanup_strb_ struct strb text = {0};
    float want = 0, got[64];
    int refused = 0;
    open_engine(&s);
    struct view v = {.rank = 6, .shape = {4, 4, 4, 4, 4, 4}, .strides = {1024, 256, 64, 16, 4, 1}};
    struct array *six = array_view(x.a, DT_F32, &v);
    for (unsigned i = 0; i < 64; i++) {
        strb_addf(&text, "%s%u*six[", i ? " + " : "", i + 1);
        unsigned at = 0;
        for (unsigned k = 0; k < 6; k++) {
            strb_addf(&text, k ? ", %u::2" : "%u::2", i >> k & 1);
            at += (i >> k & 1) * (unsigned)v.strides[k];
        }
        strb_addc(&text, ']');
        want += (float)(i + 1) * ramp[at];
    }
    long pinned = fake_cuda_live(FAKE_HOST_ALLOCATIONS);
    for (int nth = 0; nth < 40; nth++) {
        struct array *r = NULL;
        fake_cuda_fail(nth, CUDA_ERROR_OUT_OF_MEMORY);
        enum err_code code = evaluate(s, text.data, six, NULL, &r, NULL, NULL);
        if (code == ERR_OK)
            code = get(s, r, got);
        fake_cuda_fail(0, 0);
        assert_true(code == ERR_OK || (nth > 0 && code == ERR_OUT_OF_MEMORY));
        assert_true(code != ERR_OK || got[0] == want);
        refused += code != ERR_OK;
        array_unref(r);
    }
    assert_true(refused > 2);
    assert_true(fake_cuda_live(FAKE_HOST_ALLOCATIONS) > pinned);
    array_unref(six);
    close_engine(s);
}

/* --- many threads --- */

static void expect(const char *what, enum err_code code, bool right)
{
    if (code == ERR_OUT_OF_MEMORY) {
        atomic_fetch_add(&x.failed, 1);
    } else if (code != ERR_OK || !right) {
        atomic_fetch_add(&x.wrong, 1);
        print_error("%s: %s\n", what, code == ERR_OK ? "wrong contents" : err_name(code));
    }
}

static void new_result(struct engine_stream *s, int i, float *got)
{
    static const char *const texts[] = {"a*%d", "a - %d", "maximum(a, %d)"};
    char text[64];
    struct array *r = NULL;
    snprintf(text, sizeof text, texts[i % 3], i);
    enum err_code code = evaluate(s, text, NULL, NULL, &r, NULL, NULL);
    if (code == ERR_OK)
        code = get(s, r, got);
    bool right = code == ERR_OK;
    for (int k = 0; right && k < N; k++)
        right = got[k] == (i % 3 == 0   ? ramp[k] * (float)i
                           : i % 3 == 1 ? ramp[k] - (float)i
                                        : (ramp[k] > (float)i ? ramp[k] : (float)i));
    expect(text, code, right);
    array_unref(r);
}

static void write_shared(struct engine_stream *s, int i, float *got)
{
    char text[64];
    struct array *r = NULL;
    snprintf(text, sizeof text, "a + %d", i);
    enum err_code code = evaluate(s, text, NULL, x.shared, &r, NULL, NULL);
    expect(text, code, true);
    array_unref(r);
    code = get(s, x.shared, got);
    bool right = code == ERR_OK;
    for (int k = 0; right && k < N; k++)
        right = got[k] - ramp[k] == got[0] - ramp[0];
    expect("what all write to", code, right);
}

static void add_up(struct engine_stream *s, float *got)
{
    struct array *r = NULL;
    enum err_code code =
        evaluate(s, "max(shared - a) - min(shared - a)", NULL, NULL, &r, NULL, NULL);
    if (code == ERR_OK)
        code = get(s, r, got);
    expect("spread", code, code == ERR_OK && got[0] == 0);
    array_unref(r);
}

static void there_and_back(struct engine_stream *s, float *got)
{
    struct array *r = NULL;
    enum err_code code = put(s, BULK, &r);
    if (code == ERR_OK)
        code = get(s, r, got);
    expect("there and back", code, code == ERR_OK && memcmp(got, ramp, sizeof ramp) == 0);
    array_unref(r);
}

static void *session(void *arg)
{
    int seed = (int)(intptr_t)arg, rounds = getenv("ARRAYD_LONG") ? 400 : 24;
    float *got = malloc(sizeof ramp);
    struct engine_stream *s = NULL;
    struct err e = ERR_INIT;
    while (engine_stream_new(x.g, 0, &s, &e) != ERR_OK)
        ;
    for (int i = 0; i < rounds; i++) {
        new_result(s, i * THREADS + seed, got);
        write_shared(s, i * THREADS + seed, got);
        if (i % 4 == seed % 4)
            there_and_back(s, got);
        add_up(s, got);
    }
    engine_stream_unref(s);
    free(got);
    return NULL;
}

/* Calls of the driver and of the compiler find no memory, now and then. */
static void *saboteur(void *arg)
{
    unsigned seed = 1;
    (void)arg;
    while (!atomic_load(&x.over)) {
        switch (rand_r(&seed) % 3) {
        case 0:
            fake_cuda_fail(1 + rand_r(&seed) % 40, CUDA_ERROR_OUT_OF_MEMORY);
            break;
        case 1:
            fake_nvrtc_fail(1 + rand_r(&seed) % 2, NVRTC_ERROR_OUT_OF_MEMORY);
            break;
        default:
            fake_cuda_refuse_launch(1 + rand_r(&seed) % 20, CUDA_ERROR_OUT_OF_MEMORY);
            break;
        }
        usleep(500);
    }
    fake_cuda_reset();
    fake_nvrtc_fail(0, 0);
    return NULL;
}

static void sessions_side_by_side(void **state)
{
    (void)state;
    struct engine_stream *s;
    pthread_t threads[THREADS], bad;
    float *got = malloc(sizeof ramp);
    open_engine(&s);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, session, (void *)(intptr_t)i), 0);
    assert_int_equal(pthread_create(&bad, NULL, saboteur, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&x.over, true);
    pthread_join(bad, NULL);
    assert_int_equal(x.wrong, 0);
    assert_true(x.failed > 0);
    int failed = x.failed;
    new_result(s, 1, got); /* and all is well */
    write_shared(s, 2, got);
    add_up(s, got);
    assert_int_equal(x.wrong, 0);
    assert_int_equal(x.failed, failed);
    close_engine(s);
    free(got);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_written_is_not_read),
        cmocka_unit_test(each_job_has_its_own_time),
        cmocka_unit_test(a_result_made_half_is_not_read),
        cmocka_unit_test(many_parameters_are_right_or_refused),
        cmocka_unit_test(sessions_side_by_side),
    };
    for (int i = 0; i < BULK; i++)
        ramp[i] = (float)(i % 1021);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
