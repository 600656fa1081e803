/* Bytes in and out of a device, on the fake driver: every size, views, jobs' fetches, too few
 * slabs, clients that stall. What fails and who goes away is test_cuda_transfer_faults.c's. */
#include "tests/unit/cuda_transfer_fixture.h"

static void sizes(void **state)
{
    (void)state;
    static const int64_t n[] = {1,      3,       16,      65535,   65536,           65537,
                                200000, 4194303, 4194304, 4194305, 4194304 + 65536, 41943041};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        round_trip(n[i], i % 2 ? 131072 : 100001, (unsigned)i);
    round_trip(20000, 7, 9);
}

/* --- views --- */

static void element(const struct view *v, int64_t i, size_t itemsize, const unsigned char *bytes,
                    unsigned char *to)
{
    int64_t at = v->offset;
    for (int a = v->rank - 1; a >= 0; a--) {
        at += i % v->shape[a] * v->strides[a];
        i /= v->shape[a];
    }
    memcpy(to, bytes + at * (int64_t)itemsize, itemsize);
}

static void check_view(const struct view *v, size_t itemsize, int64_t elements)
{
    int64_t n = elements * (int64_t)itemsize, total = view_size(v) * (int64_t)itemsize;
    unsigned char *bytes = pattern(n, (unsigned)itemsize), *want = malloc((size_t)total),
                  *got = calloc(1, (size_t)total);
    void *p = device_memory(n);
    assert_int_equal(upload(p, bytes, n, 1 << 20), ERR_OK);
    for (int64_t i = 0; i < view_size(v); i++)
        element(v, i, itemsize, bytes, want + i * (int64_t)itemsize);
    assert_int_equal(download(p, v, itemsize, got, 99991), ERR_OK);
    assert_memory_equal(got, want, (size_t)total);

    /* the middle first, then from the start: a Range, and JSON text that is made twice */
    struct client c = {0};
    struct err e = ERR_INIT;
    assert_int_equal(cuda_download_new(&cuda.base, 0, p, v, itemsize, woken, &c, &c.t, &e), ERR_OK);
    cuda_download_start(c.t);
    int64_t parts[][2] = {{total / 2 + 1, total}, {0, total / 3}, {total / 3 - 5, total}, {2, 9}};
    for (size_t i = 0; i < 4; i++) {
        memset(got, 0, (size_t)total);
        assert_int_equal(pull(&c, got, parts[i][0], parts[i][1], 65536), ERR_OK);
        assert_memory_equal(got + parts[i][0], want + parts[i][0],
                            (size_t)(parts[i][1] - parts[i][0]));
    }
    assert_int_equal(cuda_download_pull(c.t, total, got, 1), 0);
    finish(&c);
    cuda_free(&cuda.base, 0, p, n);
    free(bytes);
    free(want);
    free(got);
}

static void views(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 16; size *= 2) {
        check_view(&(struct view){3, {40, 60, 50}, {1, 40, 2400}, 0}, size, 120000);
        check_view(&(struct view){2, {301, 200}, {200, -1}, 199}, size, 60200);
        check_view(&(struct view){1, {33333}, {3}, 1}, size, 100000);
        check_view(&(struct view){4, {3, 1, 70, 111}, {0, 5, 222, 2}, 7}, size, 16000);
    }
    /* more than a few slabs; a stretch of contiguous elements shorter than a slab */
    check_view(&(struct view){2, {1100, 2048}, {1, 1100}, 0}, 8, 1100 * 2048);
    check_view(&(struct view){2, {600, 3000}, {3001, 1}, 1}, 4, 600 * 3001 + 1);
}

/* An extent past 32 bits, of one element again and again: only its middle is looked at. */
static void wide(void **state)
{
    (void)state;
    unsigned char bytes[24] = "abcdefghijklmnopqrstuvw", got[100];
    struct view v = {2, {INT64_C(1) << 33, 3}, {0, 8}, 1};
    struct client c = {0};
    struct err e = ERR_INIT;
    void *p = device_memory(24);
    assert_int_equal(upload(p, bytes, 24, 24), ERR_OK);
    assert_int_equal(cuda_download_new(&cuda.base, 0, p, &v, 1, woken, &c, &c.t, &e), ERR_OK);
    cuda_download_start(c.t);
    int64_t at = (INT64_C(3) << 33) - 100;
    int64_t done = 0;
    while (done < 100) {
        atomic_store(&c.woken, 0);
        int64_t k = cuda_download_pull(c.t, at + done, got + done, (size_t)(100 - done));
        assert_true(k >= 0);
        if (!k)
            wait_for(&c.woken);
        done += k;
    }
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(got[i], bytes[1 + (at + i) % 3 * 8]);
    finish(&c);
    cuda_free(&cuda.base, 0, p, 24);
}

/* --- a job's fetch --- */

static void behind_a_job(void **state)
{
    (void)state;
    const struct driver *cu = cuda.driver;
    static const int64_t sizes_[] = {1000, 65536, 9000000};
    for (int i = 0; i < 6; i++) {
        int64_t n = sizes_[i / 2];
        bool fails = i % 2;
        unsigned char *want = malloc((size_t)n), *got = calloc(1, (size_t)n);
        void *p = device_memory(n);
        struct view v = flat(n);
        struct client c = {0};
        struct err e = ERR_INIT;
        CUstream on;
        memset(want, 7, (size_t)n);
        cuda_enter(&device);
        assert_int_equal(cu->cuStreamCreate(&on, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        assert_int_equal(cuda_download_new(&cuda.base, 0, p, &v, 1, woken, &c, &c.t, &e), ERR_OK);
        assert_int_equal(cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 7, (size_t)n, on), 0);
        cuda_transfer_launch(c.t, on);
        assert_int_equal(cuda_download_pull(c.t, 0, got, (size_t)n), 0);
        assert_int_equal(cu->cuStreamSynchronize(on), CUDA_SUCCESS);
        assert_int_equal(atomic_load(&c.woken), 0);
        cuda_transfer_fetched(c.t, fails ? ERR_OUT_OF_MEMORY : ERR_OK);
        wait_for(&c.woken);
        assert_int_equal(pull(&c, got, 0, n, 300000), fails ? ERR_DEVICE_LOST : ERR_OK);
        if (!fails)
            assert_memory_equal(got, want, (size_t)n);
        finish(&c);
        cu->cuStreamDestroy(on);
        cuda_free(&cuda.base, 0, p, n);
        free(want);
        free(got);
    }
}

/* --- many at once --- */

static void *worker(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < 3; i++)
        round_trip(seed % 3 ? 5000000 + (int64_t)seed * 300001 : 40000, 250000, seed + i);
    return NULL;
}

static void too_few_slabs(void **state)
{
    (void)state;
    pthread_t threads[10];
    for (uintptr_t i = 0; i < 10; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)), 0);
    for (int i = 0; i < 10; i++)
        pthread_join(threads[i], NULL);
    struct cuda_slab_stats s;
    cuda_slab_stats(&device, &s);
    assert_true(s.waits > 0);
}

/* Clients that stop in the middle keep nobody else waiting, and can go on later. */
static void stalled(void **state)
{
    (void)state;
    enum { N = 9000000 };
    unsigned char *bytes = pattern(N, 1), *got = calloc(1, N);
    struct client up = {0}, down = {0};
    struct err e = ERR_INIT;
    struct view v = flat(N);
    void *p = device_memory(N), *q = device_memory(N);
    int64_t at = 0;
    assert_int_equal(upload(p, bytes, N, N), ERR_OK);
    assert_int_equal(cuda_download_new(&cuda.base, 0, p, &v, 1, woken, &down, &down.t, &e), ERR_OK);
    cuda_download_start(down.t);
    assert_int_equal(pull(&down, got, 0, 100000, 100000), ERR_OK);
    round_trip(6000000, 100000, 4);
    assert_int_equal(cuda_upload_new(&cuda.base, 0, q, N, woken, &up, &up.t, &e), ERR_OK);
    assert_int_equal(push(&up, bytes, &at, 1234567, 100000), ERR_OK);
    round_trip(6000000, 100000, 5);
    assert_int_equal(pull(&down, got, 100000, N, 100000), ERR_OK);
    assert_memory_equal(got, bytes, N);
    finish(&down);
    assert_int_equal(push(&up, bytes, &at, N, 100000), ERR_OK);
    struct backend_stream s;
    assert_int_equal(cuda.driver->cuStreamCreate(&s.cu, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuda_upload_join(up.t, &s, &e), ERR_OK);
    assert_int_equal(cuda.driver->cuStreamSynchronize(s.cu), CUDA_SUCCESS);
    cuda.driver->cuStreamDestroy(s.cu);
    finish(&up);
    memset(got, 0, N);
    assert_int_equal(download(q, &v, 1, got, 100000), ERR_OK);
    assert_memory_equal(got, bytes, N);
    struct cuda_slab_stats stats;
    cuda_slab_stats(&device, &stats);
    assert_true(stats.reclaimed >= 2);
    cuda_free(&cuda.base, 0, p, N);
    cuda_free(&cuda.base, 0, q, N);
    free(bytes);
    free(got);
}

/* --- reclaimed within a pull --- */

/* Somebody else in line, who takes his time. */
struct waiter {
    struct slab_user user;
    struct slab *slabs[64];
    _Atomic int n, slow;
};

static void waiter_granted(struct slab_user *u, struct slab *b)
{
    struct waiter *w = (struct waiter *)u;
    w->slabs[atomic_load(&w->n)] = b;
    atomic_fetch_add(&w->n, 1);
    if (atomic_load(&w->slow))
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}
static void waiter_copied(struct slab_user *u, struct slab *b, enum err_code result)
{
    (void)u, (void)b, (void)result;
}
static void waiter_reclaim(struct slab_user *u, uint64_t before)
{
    (void)u, (void)before;
}
static void waiter_destroy(struct slab_user *u)
{
    (void)u;
}

static void waiter_add(struct waiter *w)
{
    *w = (struct waiter){.user = {.granted = waiter_granted,
                                  .copied = waiter_copied,
                                  .reclaim = waiter_reclaim,
                                  .destroy = waiter_destroy}};
    slab_user_add(device.slabs, &w->user);
}

static void waiter_remove(struct waiter *w)
{
    for (int i = 0; i < atomic_load(&w->n); i++)
        slab_put(device.slabs, w->slabs[i]);
    slab_user_remove(device.slabs, &w->user);
}

/* Gets in line for a bulk slab, or has got one at once. */
static void waiter_asks(struct waiter *w)
{
    struct slab *b;
    assert_int_equal(slab_get(device.slabs, &w->user, SLAB_BULK, true, &b), ERR_OK);
    if (b) {
        w->slabs[atomic_load(&w->n)] = b;
        atomic_fetch_add(&w->n, 1);
    }
}

/* A pull gives slabs to others, which takes long; what it has asked for meanwhile is taken from it.
 * It asks again. */
static void reclaimed_within_a_pull(void **state)
{
    (void)state;
    enum { N = 9000000, THIRD = N / 3, BACK = 100, SOME = 50000 };
    unsigned char *bytes = pattern(N, 1), *got = calloc(1, THIRD);
    struct waiter all, next;
    struct client down = {0};
    struct err e = ERR_INIT;
    struct view v = {1, {THIRD}, {3}, 0}; /* gathered by kernels, which can be held */
    void *p = device_memory(N);
    assert_int_equal(upload(p, bytes, N, N), ERR_OK);
    assert_int_equal(cuda_download_new(&cuda.base, 0, p, &v, 1, woken, &down, &down.t, &e), ERR_OK);
    cuda_download_start(down.t);
    assert_int_equal(pull(&down, got, 0, 1000000, 1000000), ERR_OK); /* past the small slab */
    waiter_add(&all);
    waiter_add(&next);
    int64_t at = 1000000;
    for (int had = -1; had < atomic_load(&all.n);) { /* there is no other left */
        had = atomic_load(&all.n);
        waiter_asks(&all);
        for (int ms = 0; ms < 50 && atomic_load(&all.n) == had; ms++, at++) {
            assert_int_equal(pull(&down, got, at, at + 1, 1), ERR_OK); /* it is no idle transfer */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    atomic_store(&all.slow, 1);
    waiter_asks(&next);
    atomic_store(&down.woken, 0);
    fake_cuda_hold(1);
    assert_int_equal(cuda_download_pull(down.t, BACK, got, 1000), 0);
    fake_cuda_release();
    wait_for(&down.woken);
    assert_int_equal(pull(&down, got, BACK, BACK + SOME, 1000), ERR_OK);
    for (int i = 0; i < SOME; i++)
        assert_int_equal(got[BACK + i], bytes[3 * (BACK + i)]);
    atomic_store(&all.slow, 0);
    waiter_remove(&next);
    waiter_remove(&all);
    finish(&down);
    cuda_free(&cuda.base, 0, p, N);
    free(bytes);
    free(got);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(views, setup, teardown),
        cmocka_unit_test_setup_teardown(wide, setup, teardown),
        cmocka_unit_test_setup_teardown(behind_a_job, setup, teardown),
        cmocka_unit_test_setup_teardown(too_few_slabs, setup, teardown),
        cmocka_unit_test_setup_teardown(stalled, setup, teardown),
        cmocka_unit_test_setup_teardown(reclaimed_within_a_pull, setup, teardown),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
