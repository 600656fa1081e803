/* Bytes in and out of a device, on the fake driver: every size, views, too few slabs, clients that
 * stall or go away, and every driver call that can fail. The streams are this file's own: only
 * waiting for an event is asked of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "compute/base/mem.h"
#include "compute/cuda/cuda_int.h"
#include "tests/fake/fake_cuda.h"

#define SLAB_MEMORY (INT64_C(8) << 20) /* one bulk slab and some small ones */

static struct cuda cuda;
static struct cuda_device device;

/* --- what cuda.c and stream.c do --- */

bool cuda_enter(struct cuda_device *d)
{
    if (!atomic_load(&d->cuda->lost) &&
        d->cuda->driver->cuCtxSetCurrent(d->context) != CUDA_SUCCESS)
        atomic_store(&d->cuda->lost, true);
    return !atomic_load(&d->cuda->lost);
}

enum err_code cuda_check(struct cuda *c, CUresult code, const char *what, struct err *e)
{
    if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY)
        return ERR_OK;
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return err_set(e, ERR_OUT_OF_MEMORY, "%s: no memory", what);
    atomic_store(&c->lost, true);
    return err_set(e, ERR_DEVICE_LOST, "%s: %d", what, code);
}

struct stream {
    CUstream on;
};

enum err_code cuda_stream_wait_event(struct stream *s, CUevent event, struct err *e)
{
    return cuda_check(&cuda, cuda.driver->cuStreamWaitEvent(s->on, event, 0), "wait", e);
}

/* A backend of one device, as cuda.c makes it. */
static enum err_code open_device(struct err *e)
{
    memset(&cuda, 0, sizeof cuda);
    memset(&device, 0, sizeof device);
    enum err_code code = loader_open(&cuda.driver, &cuda.nvrtc, e);
    if (code != ERR_OK)
        return code;
    const struct driver *cu = cuda.driver;
    cuda.devices = &device;
    cuda.n_devices = 1;
    cuda.config.slab_memory = SLAB_MEMORY;
    device.cuda = &cuda;
    strcpy(device.arch, "sm_90");
    if (cu->cuInit(0) || cu->cuDeviceGet(&device.handle, 0) ||
        cu->cuDevicePrimaryCtxRetain(&device.context, device.handle))
        return err_set(e, ERR_INTERNAL, "no context");
    code = cuda_memory_open(&device, e);
    if (code == ERR_OK) {
        code = cuda_slabs_open(&device, e);
        if (code == ERR_OK) {
            struct kcache_config config = {.max_entries = 4};
            code = kcache_new(&config, cuda.nvrtc, &cuda.kcache, e);
            if (code == ERR_OK) {
                code = cuda_pack_open(&device, e);
                if (code == ERR_OK)
                    return ERR_OK;
                kcache_free(cuda.kcache);
            }
            cuda_slabs_close(&device);
        }
        cuda_memory_close(&device);
    }
    cu->cuDevicePrimaryCtxRelease(device.handle);
    return code;
}

/* Everything is back, then everything goes. */
static void close_device(void)
{
    struct cuda_slab_stats slabs;
    for (int i = 0; i < 20000; i++) { /* what copies still hold */
        cuda_slab_stats(&device, &slabs);
        if (slabs.bytes == slabs.free_bytes)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    assert_int_equal(slabs.bytes, slabs.free_bytes);
    assert_true(slabs.bytes <= SLAB_MEMORY);
    cuda_slabs_close(&device);
    cuda_pack_close(&device);
    kcache_free(cuda.kcache);
    assert_int_equal(device.live_bytes, 0);
    cuda_memory_close(&device);
    cuda.driver->cuDevicePrimaryCtxRelease(device.handle);
    /* what a lost device had cannot be given back */
    static long gone[FAKE_KINDS];
    bool lost = atomic_load(&cuda.lost);
    if (lost)
        fake_cuda_reset();
    for (int k = 0; k < FAKE_CONTEXTS; k++) {
        long live = fake_cuda_live((enum fake_kind)k);
        if (lost)
            gone[k] = live;
        assert_int_equal(live, gone[k]);
    }
    assert_int_equal(mem_live(), 0);
}

static int setup(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    if (open_device(&e) != ERR_OK) {
        print_message("%s\n", e.message);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_device();
    return 0;
}

/* --- a client --- */

static unsigned char byte_at(int64_t i, unsigned seed)
{
    uint64_t x = (uint64_t)i / 4 * 2654435761u + seed;
    return (unsigned char)(x >> (8 * (i % 4)) ^ x >> 13);
}

static unsigned char *pattern(int64_t n, unsigned seed)
{
    unsigned char *p = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        p[i] = byte_at(i, seed);
    return p;
}

struct client {
    struct transfer *t;
    _Atomic int woken, released;
};

static void woken(void *user)
{
    atomic_fetch_add(&((struct client *)user)->woken, 1);
}

static void released(void *user)
{
    atomic_fetch_add(&((struct client *)user)->released, 1);
}

/* A wake that never comes is the failure looked for. */
static void wait_for(_Atomic int *flag)
{
    time_t begun = time(NULL);
    while (!atomic_load(flag)) {
        sched_yield();
        if (time(NULL) - begun > 60)
            fail_msg("nobody was woken for a minute");
    }
}

static void finish(struct client *c)
{
    cuda_transfer_free(c->t, released, c);
    wait_for(&c->released);
    assert_int_equal(atomic_load(&c->released), 1);
}

/* Bytes [*at, end) of `from`, as the network brings them: in pieces of at most `piece`. */
static enum err_code push(struct client *c, const unsigned char *from, int64_t *at, int64_t end,
                          size_t piece)
{
    while (*at < end) {
        size_t room;
        atomic_store(&c->woken, 0);
        void *p = cuda_upload_reserve(c->t, &room);
        if (!p) {
            enum err_code code = cuda_upload_result(c->t);
            if (code != ERR_OK)
                return code;
            wait_for(&c->woken);
            continue;
        }
        assert_true(room > 0);
        size_t n = room < piece ? room : piece;
        if ((int64_t)n > end - *at)
            n = (size_t)(end - *at);
        memcpy(p, from + *at, n);
        cuda_upload_advance(c->t, n);
        *at += (int64_t)n;
    }
    return ERR_OK;
}

/* Bytes [at, end) into `to`; ERR_DEVICE_LOST stands for any failure. */
static enum err_code pull(struct client *c, unsigned char *to, int64_t at, int64_t end,
                          size_t piece)
{
    while (at < end) {
        size_t n = end - at < (int64_t)piece ? (size_t)(end - at) : piece;
        atomic_store(&c->woken, 0);
        int64_t got = cuda_download_pull(c->t, at, to + at, n);
        if (got < 0)
            return ERR_DEVICE_LOST;
        if (got == 0)
            wait_for(&c->woken);
        at += got;
    }
    return ERR_OK;
}

static struct view flat(int64_t n)
{
    return (struct view){.rank = 1, .shape = {n}, .strides = {1}};
}

static void *device_memory(int64_t n)
{
    struct err e = ERR_INIT;
    void *p = NULL;
    if (cuda_alloc(&cuda.base, 0, n, false, &p, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return p;
}

/* n bytes to `to`, there when this returns; the first failure. */
static enum err_code upload(void *to, const unsigned char *bytes, int64_t n, size_t piece)
{
    struct client c = {0};
    struct err e = ERR_INIT;
    struct stream s;
    int64_t at = 0;
    enum err_code code = cuda_upload_new(&cuda.base, 0, to, n, woken, &c, &c.t, &e);
    if (code != ERR_OK)
        return code;
    code = push(&c, bytes, &at, n, piece);
    cuda_enter(&device);
    bool have = cuda.driver->cuStreamCreate(&s.on, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (code == ERR_OK && !have)
        code = ERR_DEVICE_LOST;
    if (code == ERR_OK)
        code = cuda_upload_join(c.t, &s, &e);
    if (code == ERR_OK)
        code = cuda_check(&cuda, cuda.driver->cuStreamSynchronize(s.on), "join", &e);
    if (have)
        cuda.driver->cuStreamDestroy(s.on);
    if (code == ERR_OK)
        code = cuda_upload_result(c.t);
    finish(&c);
    return code;
}

static enum err_code download(const void *from, const struct view *v, size_t itemsize,
                              unsigned char *to, size_t piece)
{
    struct client c = {0};
    struct err e = ERR_INIT;
    enum err_code code =
        cuda_download_new(&cuda.base, 0, (void *)(uintptr_t)from, v, itemsize, woken, &c, &c.t, &e);
    if (code != ERR_OK)
        return code;
    cuda_download_start(c.t);
    code = pull(&c, to, 0, view_size(v) * (int64_t)itemsize, piece);
    finish(&c);
    return code;
}

static void round_trip(int64_t n, size_t piece, unsigned seed)
{
    unsigned char *bytes = pattern(n, seed), *back = calloc(1, (size_t)n);
    struct view v = flat(n);
    void *p = device_memory(n);
    assert_int_equal(upload(p, bytes, n, piece), ERR_OK);
    assert_int_equal(download(p, &v, 1, back, piece), ERR_OK);
    assert_memory_equal(back, bytes, (size_t)n);
    cuda_free(&cuda.base, 0, p, n);
    free(bytes);
    free(back);
}

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
    struct stream s;
    assert_int_equal(cuda.driver->cuStreamCreate(&s.on, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuda_upload_join(up.t, &s, &e), ERR_OK);
    assert_int_equal(cuda.driver->cuStreamSynchronize(s.on), CUDA_SUCCESS);
    cuda.driver->cuStreamDestroy(s.on);
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
            void *p = device_memory(N);
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
    assert_non_null(strstr(e.message, "1048576"));
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
        cmocka_unit_test_setup_teardown(sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(views, setup, teardown),
        cmocka_unit_test_setup_teardown(wide, setup, teardown),
        cmocka_unit_test_setup_teardown(behind_a_job, setup, teardown),
        cmocka_unit_test_setup_teardown(too_few_slabs, setup, teardown),
        cmocka_unit_test_setup_teardown(stalled, setup, teardown),
        cmocka_unit_test_setup_teardown(aborted, setup, teardown),
        cmocka_unit_test_setup_teardown(memory, setup, teardown),
        cmocka_unit_test(every_driver_call),
        cmocka_unit_test(every_allocation),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
