/* A device on the fake driver and clients of its transfers, for the tests of compute/gpu/cuda/slab,
 * transfer and memory (test_cuda_transfer*.c, each of which includes this once). It stands in for
 * device.c and stream.c: of a stream, only waiting for an event is asked. One device, static; a
 * test opens and closes it, and close_device() finds what was left behind. Any thread may be a
 * client.
 */
#ifndef ARRAYD_TESTS_CUDA_TRANSFER_FIXTURE_H
#define ARRAYD_TESTS_CUDA_TRANSFER_FIXTURE_H

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
#include "compute/gpu/device/memory.h"
#include "compute/gpu/device/stream.h"
#include "compute/gpu/transfer/pack.h"
#include "compute/gpu/transfer/slab.h"
#include "compute/gpu/transfer/transfer.h"
#include "tests/fake/fake_cuda.h"

#define SLAB_MEMORY (INT64_C(8) << 20) /* one bulk slab and some small ones */

static struct cuda cuda;
static struct cuda_device device;

/* --- what device.c and stream.c do --- */

bool cuda_enter(struct cuda_device *d)
{
    if (!atomic_load(&d->cuda->lost) &&
        d->cuda->driver->cuCtxSetCurrent(d->context) != CUDA_SUCCESS)
        atomic_store(&d->cuda->lost, true);
    return !atomic_load(&d->cuda->lost);
}

enum err_code cuda_entered(struct cuda_device *d, struct err *e)
{
    return cuda_enter(d) ? ERR_OK : err_set(e, ERR_DEVICE_LOST, "lost");
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

enum err_code cuda_stream_wait_event(struct backend_stream *s, CUevent event, struct err *e)
{
    return cuda_check(&cuda, cuda.driver->cuStreamWaitEvent(s->cu, event, 0), "wait", e);
}

/* A backend of one device, as cuda.c makes it. */
static inline enum err_code open_device(struct err *e)
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
    device.members[0] = &device;
    device.n_members = cuda.n_gpus = 1;
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
static inline void close_device(void)
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
    assert_int_equal(device.memory.live, 0);
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

static inline int setup(void **state)
{
    struct err e = ERR_INIT;
    (void)state;
    if (open_device(&e) != ERR_OK) {
        print_message("%s\n", e.message);
        return -1;
    }
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    close_device();
    return 0;
}

/* --- a client --- */

static inline unsigned char byte_at(int64_t i, unsigned seed)
{
    uint64_t x = (uint64_t)i / 4 * 2654435761u + seed;
    return (unsigned char)(x >> (8 * (i % 4)) ^ x >> 13);
}

static inline unsigned char *pattern(int64_t n, unsigned seed)
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

static inline void woken(void *user)
{
    atomic_fetch_add(&((struct client *)user)->woken, 1);
}

static inline void released(void *user)
{
    atomic_fetch_add(&((struct client *)user)->released, 1);
}

/* A wake that never comes is the failure looked for. */
static inline void wait_for(_Atomic int *flag)
{
    time_t begun = time(NULL);
    while (!atomic_load(flag)) {
        sched_yield();
        if (time(NULL) - begun > 60)
            fail_msg("nobody was woken for a minute");
    }
}

static inline void finish(struct client *c)
{
    cuda_transfer_free(c->t, released, c);
    wait_for(&c->released);
    assert_int_equal(atomic_load(&c->released), 1);
}

/* Bytes [*at, end) of `from`, as the network brings them: in pieces of at most `piece`. */
static inline enum err_code push(struct client *c, const unsigned char *from, int64_t *at,
                                 int64_t end, size_t piece)
{
    while (*at < end) {
        size_t room;
        atomic_store(&c->woken, 0);
        void *p = cuda_upload_reserve(c->t, &room);
        if (!p) {
            enum err_code code = cuda_transfer_result(c->t);
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
static inline enum err_code pull(struct client *c, unsigned char *to, int64_t at, int64_t end,
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

static inline struct view flat(int64_t n)
{
    return (struct view){.rank = 1, .shape = {n}, .strides = {1}};
}

static inline void *device_memory(int64_t n)
{
    struct err e = ERR_INIT;
    void *p = NULL;
    if (cuda_alloc(&cuda.base, 0, n, false, &p, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return p;
}

/* n bytes to `to`, there when this returns; the first failure. */
static inline enum err_code upload(void *to, const unsigned char *bytes, int64_t n, size_t piece)
{
    struct client c = {0};
    struct err e = ERR_INIT;
    struct backend_stream s;
    int64_t at = 0;
    enum err_code code = cuda_upload_new(&cuda.base, 0, to, n, woken, &c, &c.t, &e);
    if (code != ERR_OK)
        return code;
    code = push(&c, bytes, &at, n, piece);
    cuda_enter(&device);
    bool have = cuda.driver->cuStreamCreate(&s.cu, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (code == ERR_OK && !have)
        code = ERR_DEVICE_LOST;
    if (code == ERR_OK)
        code = cuda_upload_join(c.t, &s, &e);
    if (code == ERR_OK)
        code = cuda_check(&cuda, cuda.driver->cuStreamSynchronize(s.cu), "join", &e);
    if (have)
        cuda.driver->cuStreamDestroy(s.cu);
    if (code == ERR_OK)
        code = cuda_transfer_result(c.t);
    finish(&c);
    return code;
}

static inline enum err_code download(const void *from, const struct view *v, size_t itemsize,
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

static inline void round_trip(int64_t n, size_t piece, unsigned seed)
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

#endif
