/* The fake driver for tests of itself: test_fake_cuda.c and test_fake_access.c. Its kernels are
 * tests/fake/test_*.cu. */
#ifndef ARRAYD_TESTS_FAKE_DEVICE_H
#define ARRAYD_TESTS_FAKE_DEVICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "compute/gpu/api/loader.h"
#include "tests/fake/fake_cuda.h"

static const struct driver *d;
static const struct nvrtc *rtc;
static CUcontext context;
static CUmemoryPool pool;
static CUstream stream, other;
static CUmodule plain, threads;

#define ok(call)    assert_int_equal(d->call, CUDA_SUCCESS)
#define is(call, r) assert_int_equal(d->call, r)

struct params {
    CUdeviceptr a, b;
    long n;
};
static const char params_h[] = "struct params { float *a, *b; long n; };\n";

static inline char *file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", FAKE_KERNELS, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* The cubin (NULL unless `expected` is success) and, in `log`, what the compiler said. */
static inline char *compile(const char *source, const char *arch, int expected, char *log,
                            size_t n_log)
{
    const char *options[] = {arch, "--fmad=false", "-default-device", "--std=c++17", "-DSOME=1"};
    const char *headers[] = {params_h}, *names[] = {"params.h"};
    nvrtcProgram p = NULL;
    size_t n = 0;
    assert_int_equal(rtc->nvrtcCreateProgram(&p, source, "k.cu", 1, headers, names), NVRTC_SUCCESS);
    int result = rtc->nvrtcCompileProgram(p, 5, options);
    assert_int_equal(rtc->nvrtcGetProgramLogSize(p, &n), NVRTC_SUCCESS);
    char *text = malloc(n);
    assert_int_equal(rtc->nvrtcGetProgramLog(p, text), NVRTC_SUCCESS);
    if (result != expected)
        print_error("%s", text);
    if (log)
        snprintf(log, n_log, "%s", text);
    free(text);
    assert_int_equal(result, expected);
    assert_int_equal(rtc->nvrtcGetCUBINSize(p, &n), NVRTC_SUCCESS);
    char *cubin = n ? malloc(n) : NULL;
    if (cubin)
        assert_int_equal(rtc->nvrtcGetCUBIN(p, cubin), NVRTC_SUCCESS);
    assert_int_equal(rtc->nvrtcDestroyProgram(&p), NVRTC_SUCCESS);
    return cubin;
}

static CUmodule module_of(const char *name)
{
    char *source = file(name), *cubin = compile(source, "-arch=sm_90", NVRTC_SUCCESS, NULL, 0);
    CUmodule m = NULL;
    ok(cuModuleLoadData(&m, cubin));
    free(cubin);
    free(source);
    return m;
}

static inline int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    if (loader_open(&d, &rtc, &e)) {
        print_error("%s\n", e.message);
        return -1;
    }
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    uint64_t all = UINT64_MAX;
    is(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    is(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    ok(cuCtxSetCurrent(context));
    ok(cuMemPoolCreate(&pool, &props));
    ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    plain = module_of("test_plain.cu");
    threads = module_of("test_threads.cu");
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    ok(cuModuleUnload(plain));
    ok(cuModuleUnload(threads));
    ok(cuStreamDestroy(stream));
    ok(cuStreamDestroy(other));
    ok(cuMemPoolDestroy(pool));
    ok(cuDevicePrimaryCtxRelease(0));
    for (enum fake_kind k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live(k), 0);
    return 0;
}

static CUfunction function_of(CUmodule m, const char *name)
{
    CUfunction f = NULL;
    ok(cuModuleGetFunction(&f, m, name));
    return f;
}

static CUdeviceptr device(size_t bytes)
{
    CUdeviceptr p = 0;
    ok(cuMemAllocFromPoolAsync(&p, bytes, pool, stream));
    return p;
}

static inline void *pinned(size_t bytes)
{
    void *p = NULL;
    ok(cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
    return p;
}

static inline int launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, CUstream s,
                         struct params p)
{
    int more = 1000;
    void *params[] = {&p, &more};
    return d->cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, s, params, NULL);
}

static inline const float *values(CUdeviceptr from, size_t n)
{
    static float to[4096];
    assert_true(n <= 4096);
    ok(cuMemcpyDtoHAsync(to, from, n * sizeof(float), stream));
    return to;
}

static CUdeviceptr ramp(size_t n)
{
    static float from[4096];
    for (size_t i = 0; i < n; i++)
        from[i] = (float)i;
    CUdeviceptr p = device(n * sizeof(float));
    ok(cuMemcpyHtoDAsync(p, from, n * sizeof(float), stream));
    return p;
}

static inline void release(CUdeviceptr a, CUdeviceptr b)
{
    ok(cuMemFreeAsync(a, stream));
    ok(cuMemFreeAsync(b, stream));
    ok(cuStreamSynchronize(stream));
}

#endif
