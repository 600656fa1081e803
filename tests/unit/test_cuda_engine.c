/* The engine's uploads and downloads where the host does not reach the memory: on the CUDA backend
 * over the fake driver. What transfers themselves do is test_cuda_transfer's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>
#include <time.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/gpu/api/cuda_api.h"
#include "compute/memory/memory_int.h"
#include "tests/fake/fake_cuda.h"

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
};

static void open_fixture(struct fixture *f)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.slab_memory = 8 << 20;
    if (engine_open(&config, &f->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, &e), ERR_OK);
    f->account = account_new(0);
    assert_non_null(f->account);
}

/* Until nothing is under way: then every byte is back, bar what arrays hold. */
static void settle(struct fixture *f)
{
    time_t begun = time(NULL);
    while (engine_jobs_in_flight(f->g)) {
        sched_yield();
        if (time(NULL) - begun > 60)
            fail_msg("work is under way for ever");
    }
}

static void close_fixture(struct fixture *f)
{
    settle(f);
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    assert_int_equal(account_used(f->account), 0);
    engine_stream_unref(f->s);
    account_unref(f->account);
    engine_close(f->g);
}

static void woken(void *user)
{
    atomic_store((_Atomic bool *)user, true);
}

static void wait_for(_Atomic bool *flag)
{
    time_t begun = time(NULL);
    while (!atomic_load(flag)) {
        sched_yield();
        if (time(NULL) - begun > 60)
            fail_msg("nobody was woken for a minute");
    }
}

/* All of a; the download's result. */
static enum err_code read_all(struct fixture *f, struct array *a, void *to)
{
    struct download *d = NULL;
    struct err e = ERR_INIT;
    _Atomic bool wake = false;
    enum err_code code = download_new(f->s, a, woken, &wake, &d, &e);
    for (int64_t n = array_nbytes(a), at = 0; code == ERR_OK && at < n;) {
        atomic_store(&wake, false);
        int64_t got = download_pull(d, at, (char *)to + at, (size_t)(n - at));
        if (got < 0)
            code = download_result(d);
        else if (got == 0)
            wait_for(&wake);
        at += got;
    }
    download_free(d);
    return code;
}

static enum err_code push_all(struct fixture *f, const void *bytes, int64_t n, struct upload **ret)
{
    struct upload *u = NULL;
    struct err e = ERR_INIT;
    _Atomic bool wake = false;
    enum err_code code = upload_new(f->s, f->account, n, woken, &wake, &u, &e);
    for (int64_t at = 0; code == ERR_OK && at < n;) {
        atomic_store(&wake, false);
        size_t took = upload_push(u, (const char *)bytes + at, (size_t)(n - at));
        if (!took)
            wait_for(&wake);
        at += (int64_t)took;
    }
    if (code == ERR_OK)
        *ret = u;
    return code;
}

static enum err_code send(struct fixture *f, const float *x, int64_t rows, int64_t columns,
                          bool fortran, struct array **ret)
{
    struct upload *u;
    struct err e = ERR_INIT;
    int64_t shape[2] = {rows, columns};
    enum err_code code = push_all(f, x, 4 * rows * columns, &u);
    return code == ERR_OK ? upload_finish_new(u, DT_F32, 2, shape, fortran, ret, &e) : code;
}

static float *ramp(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i % 100003);
    return x;
}

/* Bytes go up and come back: larger than all slabs, transposed, in Fortran order, into a region. */
static void there_and_back(void **state)
{
    (void)state;
    enum { R = 1500, C = 2000, N = R * C };
    struct fixture f;
    struct array *a, *b;
    struct upload *u;
    struct err e = ERR_INIT;
    float *x = ramp(N), *y = malloc(N * sizeof *y);
    open_fixture(&f);
    assert_int_equal(send(&f, x, R, C, false, &a), ERR_OK);
    assert_int_equal(read_all(&f, a, y), ERR_OK);
    assert_memory_equal(x, y, N * sizeof *x);

    struct view t = {.rank = 2, .shape = {C, R}, .strides = {1, C}};
    struct array *turned = array_view(a, DT_F32, &t);
    assert_int_equal(read_all(&f, turned, y), ERR_OK);
    for (int64_t i = 0; i < N; i += 97)
        assert_true(y[i] == x[i % R * C + i / R]);
    assert_int_equal(send(&f, x, R, C, true, &b), ERR_OK);
    assert_int_equal(read_all(&f, b, y), ERR_OK);
    for (int64_t i = 0; i < N; i += 97)
        assert_true(y[i] == x[i % C * R + i / C]);
    array_unref(b);

    /* columns 1, 3, 5, … of two rows */
    struct view some = {.rank = 2, .shape = {2, C / 2}, .strides = {C, 2}, .offset = 1};
    assert_int_equal(push_all(&f, x, 4 * C, &u), ERR_OK);
    assert_int_equal(upload_finish_into(u, a, &some, false, NULL, NULL, &e), ERR_OK);
    assert_int_equal(read_all(&f, a, y), ERR_OK);
    for (int64_t i = 0; i < 2 * C; i++)
        assert_true(y[i] == (i % 2 ? x[i / 2] : x[i]));
    assert_memory_equal(x + 2 * C, y + 2 * C, (N - 2 * C) * sizeof *x);
    array_unref(turned);
    array_unref(a);
    close_fixture(&f);
    free(x);
    free(y);
}

/* Zeros are work, not a wait; nothing is asked of the device for no elements. */
static void zeros_and_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct array *a;
    struct upload *u;
    struct err e = ERR_INIT;
    int64_t shape[2] = {300, 7}, none[2] = {0, 7};
    char got[300 * 7 * 16], want[sizeof got] = {0};
    open_fixture(&f);
    for (int t = 0; t < DT_COUNT; t++) {
        memset(got, 1, sizeof got);
        assert_int_equal(engine_zeros(f.s, f.account, (enum dtype)t, 2, shape, &a, &e), ERR_OK);
        assert_int_equal(read_all(&f, a, got), ERR_OK);
        assert_memory_equal(got, want, (size_t)array_nbytes(a));
        array_unref(a);
    }
    assert_int_equal(engine_zeros(f.s, f.account, DT_F32, 2, none, &a, &e), ERR_OK);
    assert_int_equal(read_all(&f, a, got), ERR_OK);
    array_unref(a);
    assert_int_equal(push_all(&f, got, 0, &u), ERR_OK);
    assert_int_equal(upload_finish_new(u, DT_F32, 2, none, false, &a, &e), ERR_OK);
    array_unref(a);
    close_fixture(&f);
}

/* What is read is what the array had when the download began, whoever writes meanwhile. */
static void a_download_is_a_snapshot(void **state)
{
    (void)state;
    enum { N = 3000000 };
    struct fixture f;
    struct array *a;
    struct upload *u;
    struct download *d;
    struct err e = ERR_INIT;
    _Atomic bool wake = false;
    float *x = ramp(N), *y = malloc(N * sizeof *y), *z = calloc(N, sizeof *z);
    open_fixture(&f);
    assert_int_equal(send(&f, x, 1, N, false, &a), ERR_OK);
    assert_int_equal(download_new(f.s, a, woken, &wake, &d, &e), ERR_OK);
    for (int round = 0; round < 2; round++) { /* the whole buffer, then a part */
        struct view part = {.rank = 2, .shape = {1, N - round}, .strides = {N, 1}};
        assert_int_equal(push_all(&f, z, 4 * (N - round), &u), ERR_OK);
        assert_int_equal(upload_finish_into(u, a, &part, false, NULL, NULL, &e), ERR_OK);
    }
    for (int64_t at = 0; at < 4 * N;) {
        atomic_store(&wake, false);
        int64_t got = download_pull(d, at, (char *)y + at, 200000);
        assert_true(got >= 0);
        if (!got)
            wait_for(&wake);
        at += got;
    }
    assert_memory_equal(x, y, N * sizeof *x);
    download_free(d);
    assert_int_equal(read_all(&f, a, y), ERR_OK);
    assert_memory_equal(z, y, N * sizeof *x);
    array_unref(a);
    close_fixture(&f);
    free(x);
    free(y);
    free(z);
}

/* Let go half-way: nothing has changed, every byte comes back. */
static void given_up(void **state)
{
    (void)state;
    enum { N = 3000000 };
    struct fixture f;
    struct array *a;
    struct upload *u;
    struct download *d;
    struct err e = ERR_INIT;
    float *x = ramp(N), *y = malloc(N * sizeof *y);
    open_fixture(&f);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(send(&f, x, 1, N, false, &a), ERR_OK);
        assert_int_equal(download_new(f.s, a, NULL, NULL, &d, &e), ERR_OK);
        if (i % 2)
            (void)download_pull(d, 0, y, 70000);
        array_unref(a);
        download_free(d);
        assert_int_equal(upload_new(f.s, f.account, 4 * N, NULL, NULL, &u, &e), ERR_OK);
        (void)upload_push(u, x, (size_t)i * 2000000);
        upload_abort(u);
        settle(&f);
        assert_int_equal(engine_bytes_in_use(f.g), 0);
    }
    close_fixture(&f);
    free(x);
    free(y);
}

/* One of everything; ERR_OK only with right contents. */
static enum err_code everything(struct fixture *f)
{
    enum { N = 40000 };
    struct array *a = NULL, *b = NULL;
    struct err e = ERR_INIT;
    float *x = ramp(N), *y = malloc(N * sizeof *y);
    struct view t = {.rank = 2, .shape = {200, 200}, .strides = {1, 200}};
    enum err_code code = send(f, x, 200, 200, false, &a);
    struct array *turned = code == ERR_OK ? array_view(a, DT_F32, &t) : NULL;
    if (code == ERR_OK && !turned)
        code = ERR_OUT_OF_MEMORY;
    if (code == ERR_OK)
        code = engine_copy(f->s, f->account, turned, &b, &e);
    if (code == ERR_OK)
        code = read_all(f, b, y);
    for (int i = 0; code == ERR_OK && i < N; i++)
        assert_true(y[i] == x[i % 200 * 200 + i / 200]);
    if (code == ERR_OK)
        code = read_all(f, turned, y);
    for (int i = 0; code == ERR_OK && i < N; i++)
        assert_true(y[i] == x[i % 200 * 200 + i / 200]);
    array_unref(a);
    array_unref(b);
    array_unref(turned);
    free(x);
    free(y);
    settle(f);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    assert_int_equal(everything(&f), ERR_OK);
    bool refused = true;
    for (int n = 1; refused; n++) {
        mem_fail_after(n, false);
        enum err_code code = everything(&f);
        refused = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_true(code == ERR_OK || (refused && code == ERR_OUT_OF_MEMORY));
        assert_int_equal(engine_bytes_in_use(f.g), 0);
        assert_int_equal(account_used(f.account), 0);
        assert_true(n < 1000);
    }
    close_fixture(&f);
}

/* A call that finds no memory fails one request and nothing else. */
static void every_driver_call_may_find_no_memory(void **state)
{
    (void)state;
    struct fixture f;
    int failed = 0;
    open_fixture(&f);
    assert_int_equal(everything(&f), ERR_OK);
    for (int n = 1; n < 120; n++) { /* past that there is only polling */
        fake_cuda_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
        enum err_code code = everything(&f);
        fake_cuda_fail(0, 0);
        assert_true(code == ERR_OK || code == ERR_OUT_OF_MEMORY);
        failed += code != ERR_OK;
        assert_int_equal(engine_bytes_in_use(f.g), 0);
        assert_int_equal(everything(&f), ERR_OK);
    }
    assert_true(failed > 3);
    close_fixture(&f);
}

/* Code that the device does not take, here of the kernel that gathers views, is no want of memory.
 */
static void a_refused_gather_is_no_want_of_memory(void **state)
{
    (void)state;
    struct fixture f;
    struct array *a;
    float *x = ramp(40000), *y = malloc(40000 * sizeof *y);
    struct view t = {.rank = 2, .shape = {200, 200}, .strides = {1, 200}};
    open_fixture(&f);
    assert_int_equal(send(&f, x, 200, 200, false, &a), ERR_OK);
    struct array *turned = array_view(a, DT_F32, &t);
    assert_int_equal(read_all(&f, turned, y), ERR_OK);
    fake_cuda_refuse_launch(1, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(read_all(&f, turned, y), ERR_INTERNAL);
    fake_cuda_refuse_launch(0, 0);
    assert_int_equal(read_all(&f, turned, y), ERR_OK);
    assert_true(y[1] == x[200]);
    array_unref(turned);
    array_unref(a);
    close_fixture(&f);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(zeros_and_nothing),
        cmocka_unit_test(a_download_is_a_snapshot),
        cmocka_unit_test(given_up),
        cmocka_unit_test(a_refused_gather_is_no_want_of_memory),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_driver_call_may_find_no_memory),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
