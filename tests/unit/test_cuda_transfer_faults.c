/* What goes wrong with bytes in and out of a device, on the fake driver: clients that go away in
 * the middle, memory that runs out, and every driver call and allocation that can fail. */
#include "tests/unit/cuda_transfer_fixture.h"

/* Freed at any point; the memory may go when `released` is told: the fake driver finds a copy into
 * memory that is gone. */
static void aborted(void **state)
{
    (void)state;
    enum { N = 9000000 };
    unsigned char *bytes = pattern(N, 3), *got = calloc(1, N);
    struct view whole = flat(N), odd = {1, {N / 2}, {2}, 0};
    struct err e = ERR_INIT;
    static const int64_t until[] = {0, 1, 70000, 4194304, 4300000, N};
    for (size_t i = 0; i < sizeof until / sizeof *until; i++) {
        for (int kind = 0; kind < 4; kind++) {
            struct client c = {0};
            int64_t at = 0;
            void *p = NULL;
            assert_int_equal(cuda_alloc(&cuda.base, 0, N, true, &p, &e), ERR_OK);
            if (kind == 0) {
                assert_int_equal(cuda_upload_new(&cuda.base, 0, p, N, woken, &c, &c.t, &e), ERR_OK);
                assert_int_equal(push(&c, bytes, &at, until[i], 500000), ERR_OK);
                if (i % 2) { /* between a reservation and its advance */
                    size_t room;
                    (void)cuda_upload_reserve(c.t, &room);
                }
            } else {
                const struct view *v = kind == 1 ? &whole : &odd;
                int64_t end = until[i] < view_size(v) ? until[i] : view_size(v);
                assert_int_equal(cuda_download_new(&cuda.base, 0, p, v, 1, woken, &c, &c.t, &e),
                                 ERR_OK);
                if (kind != 3)
                    cuda_download_start(c.t);
                assert_int_equal(pull(&c, got, 0, end, 500000), ERR_OK);
            }
            finish(&c);
            cuda_free(&cuda.base, 0, p, N);
        }
    }
    free(bytes);
    free(got);
}

/* --- memory --- */

static void memory(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    void *p = NULL, *q = NULL;
    struct cuda_memory_stats s;
    cuda.config.memory_limit = 1 << 20;
    assert_int_equal(cuda_alloc(&cuda.base, 0, (1 << 20) - 512, true, &p, &e), ERR_OK);
    assert_int_equal((uintptr_t)p % 256, 0);
    unsigned char *got = malloc(1 << 20);
    struct view v = flat((1 << 20) - 512);
    assert_int_equal(download(p, &v, 1, got, 1 << 20), ERR_OK);
    for (int64_t i = 0; i < v.shape[0]; i++)
        assert_int_equal(got[i], 0);
    free(got);
    assert_int_equal(cuda_alloc(&cuda.base, 0, 513, false, &q, &e), ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(e.message, "has no 1024 bytes left"));
    assert_int_equal(cuda_alloc(&cuda.base, 0, 511, false, &q, &e), ERR_OK);
    cuda_free(&cuda.base, 0, q, 511);
    cuda_free(&cuda.base, 0, p, (1 << 20) - 512);
    assert_int_equal(cuda_alloc(&cuda.base, 0, INT64_MAX, false, &q, &e), ERR_OUT_OF_MEMORY);
    cuda.config.memory_limit = 0;

    /* what another pool keeps is not there; what this one keeps is handed back and tried again */
    fake_cuda_set_memory(64 << 20);
    assert_int_equal(cuda_alloc(&cuda.base, 0, 48 << 20, false, &p, &e), ERR_OK);
    assert_int_equal(cuda_alloc(&cuda.base, 0, 17 << 20, false, &q, &e), ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(e.message, "17825792"));
    assert_int_equal(cuda_alloc(&cuda.base, 0, 16 << 20, false, &q, &e), ERR_OK);
    cuda_memory_stats(&device, &s);
    assert_int_equal(s.live, 64 << 20);
    assert_int_equal(s.used, 64 << 20);
    assert_int_equal(s.total, 64 << 20);
    assert_int_equal(s.trims, 1);
    cuda_free(&cuda.base, 0, p, 48 << 20);
    cuda_free(&cuda.base, 0, q, 16 << 20);
    fake_cuda_fail(2, CUDA_ERROR_OUT_OF_MEMORY); /* the first makes the context current */
    assert_int_equal(cuda_alloc(&cuda.base, 0, 1 << 20, false, &p, &e), ERR_OK);
    fake_cuda_fail(0, 0);
    cuda_memory_stats(&device, &s);
    assert_int_equal(s.trims, 2);
    assert_int_equal(s.live, 1 << 20);
    assert_int_equal(s.peak, 64 << 20);
    cuda_free(&cuda.base, 0, p, 1 << 20);
    fake_cuda_set_memory((size_t)4 << 30);
}

/* --- failures --- */

/* Opens, sends bytes up and back as a view, closes. True when nothing failed. What it says it has
 * done is right, and nothing is left over (close_device). */
static bool scenario(void)
{
    enum { N = 1300000 };
    struct err e = ERR_INIT;
    if (open_device(&e) != ERR_OK) {
        if (fake_cuda_failed())
            fake_cuda_reset();
        assert_int_equal(mem_live(), 0);
        return false;
    }
    unsigned char *bytes = pattern(N, 8), *got = calloc(1, N);
    struct view whole = flat(N), odd = {1, {N / 8}, {2}, 1};
    void *p = NULL;
    enum err_code code = cuda_alloc(&cuda.base, 0, N, false, &p, &e);
    if (code == ERR_OK) {
        code = upload(p, bytes, N, N);
        if (code == ERR_OK) {
            code = download(p, &whole, 1, got, 300000);
            if (code == ERR_OK)
                assert_memory_equal(got, bytes, N);
        }
        if (code == ERR_OK) {
            code = download(p, &odd, 4, got, 300000);
            for (int64_t i = 0; code == ERR_OK && i < N / 8; i++)
                assert_memory_equal(got + 4 * i, bytes + 4 * (1 + 2 * i), 4);
        }
        cuda_free(&cuda.base, 0, p, N);
    }
    free(bytes);
    free(got);
    fake_cuda_fail(0, 0);
    close_device();
    return code == ERR_OK;
}

static void every_driver_call(void **state)
{
    (void)state;
    static const int codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_FAILED};
    assert_true(scenario());
    for (size_t c = 0; c < 2; c++) {
        int survived = 0, failed = 0;
        /* polling makes the number of calls vary; at the end there is only polling */
        for (int nth = 1; nth < 400; nth += nth < 120 ? 1 : 29) {
            fake_cuda_reset();
            fake_cuda_fail(nth, codes[c]);
            if (scenario())
                survived++;
            else
                failed++;
        }
        assert_true(failed > 20);
        print_message("code %d: %d failed, %d survived\n", codes[c], failed, survived);
    }
    fake_cuda_reset();
}

static void every_allocation(void **state)
{
    (void)state;
    bool done = false;
    for (int nth = 1; !done; nth++) {
        assert_true(nth < 1000);
        mem_fail_after(nth, false);
        bool fine = scenario();
        done = mem_failed() == 0;
        mem_fail_after(0, false);
        assert_true(fine || !done);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(aborted, setup, teardown),
        cmocka_unit_test_setup_teardown(memory, setup, teardown),
        cmocka_unit_test(every_driver_call),
        cmocka_unit_test(every_allocation),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
