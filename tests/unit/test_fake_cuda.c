/* The fake driver and NVRTC themselves: that they compute, keep a stream's order and no more, and
 * fail on demand. Its kernels are tests/fake/test_*.cu. */
#include "tests/unit/fake_device.h"

static void test_copy(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "root"), none = NULL;
    CUdeviceptr a = ramp(1000), b = device(1000 * sizeof(float));
    struct params p = {a, b, 1000};
    assert_int_equal(launch(f, 4, 256, 0, stream, p), CUDA_SUCCESS);
    const float *v = values(b, 1000);
    for (int i = 0; i < 1000; i++)
        assert_true(v[i] == sqrtf((float)i) + 1);
    assert_int_equal(launch(function_of(plain, "times_3"), 1, 8, 0, stream, p), CUDA_SUCCESS);
    assert_true(values(b, 8)[5] == 15); /* a kernel that a macro made */
    is(cuModuleGetFunction(&none, plain, "not_me"), CUDA_ERROR_NOT_FOUND);
    is(cuModuleGetFunction(&none, plain, "nor_me"), CUDA_ERROR_NOT_FOUND);
    release(a, b);
}

static void test_launch_limits(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "root");
    struct params p = {0, 0, 0};
    int value = 0;
    assert_int_equal(launch(f, 0, 256, 0, stream, p), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(f, 1, 257, 0, stream, p), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(f, 1, 256, 50000, stream, p), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(f, 1, 256, 49153, stream, p), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(f, 1, 256, 49152, stream, p), CUDA_SUCCESS);
    ok(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    assert_in_range(value, 1, 255);
    ok(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    assert_int_equal(value, 256);
    ok(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                          function_of(plain, "language")));
    assert_int_equal(value, 128);
    ok(cuStreamSynchronize(stream));
}

/* What a text declares and what a launch asks for count together. */
static void test_shared_memory_is_limited(void **state)
{
    (void)state;
    static const char text[] = "extern \"C\" __global__ void k(char *p)\n{\n"
                               "    __shared__ char s[%d];\n    s[%d] = p[0];\n"
                               "    __syncthreads();\n    p[1] = s[%d];\n}\n";
    char source[300], log[500];
    snprintf(source, sizeof source, text, 49153, 9, 9);
    assert_null(compile(source, "-arch=sm_90", NVRTC_ERROR_COMPILATION, log, sizeof log));
    assert_non_null(strstr(log, "too much shared data"));
    snprintf(source, sizeof source, text, 40000, 39999, 39999);
    char *cubin = compile(source, "-arch=sm_90", NVRTC_SUCCESS, log, sizeof log);
    CUmodule m = NULL;
    CUdeviceptr p = device(2);
    void *params[] = {&p};
    ok(cuMemsetD8Async(p, 0, 2, stream));
    ok(cuModuleLoadData(&m, cubin));
    free(cubin);
    CUfunction f = function_of(m, "k");
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 9152, stream, params, NULL));
    is(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 9200, stream, params, NULL), CUDA_ERROR_INVALID_VALUE);
    /* a function may ask for more */
    const int most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    is(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 32), CUDA_ERROR_INVALID_VALUE);
    is(cuFuncSetAttribute(f, most, 232448), CUDA_ERROR_INVALID_VALUE);
    ok(cuFuncSetAttribute(f, most, 60000));
    ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 60000, stream, params, NULL));
    is(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 60001, stream, params, NULL), CUDA_ERROR_INVALID_VALUE);
    ok(cuStreamSynchronize(stream));
    ok(cuMemFreeAsync(p, stream));
    ok(cuModuleUnload(m));
}

static void test_barrier(void **state)
{
    (void)state;
    CUfunction f = function_of(threads, "sum");
    CUdeviceptr a = ramp(1024), b = device(4 * sizeof(float));
    struct params p = {a, b, 0};
    assert_int_equal(launch(f, 4, 256, 256 * sizeof(float), stream, p), CUDA_SUCCESS);
    const float *v = values(b, 4);
    for (int k = 0; k < 4; k++)
        assert_true(v[k] == (float)(250 * 256 * k + 249 * 125 + 7000000));
    release(a, b);
}

static void test_shuffle(void **state)
{
    (void)state;
    CUfunction f = function_of(threads, "shuffle");
    CUdeviceptr a = ramp(256), b = device(512 * sizeof(float));
    struct params p = {a, b, 0};
    assert_int_equal(launch(f, 1, 256, 0, stream, p), CUDA_SUCCESS);
    const float *v = values(b, 512);
    for (int i = 0; i < 256; i++) {
        int lane = i & 31, down = lane == 31 ? i : i + 1, up = i % 8 == 0 ? i : i - 1;
        assert_true(v[i] == (float)(496 + 32 * (i - lane)));
        assert_true(v[256 + i] == (float)(1000 * down + up));
    }
    release(a, b);
}

static void test_language(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "language");
    CUdeviceptr a = ramp(8), b = device(16 * sizeof(float));
    struct params p = {a, b, 0};
    ok(cuMemsetD8Async(b, 0, 16 * sizeof(float), stream));
    assert_int_equal(launch(f, 3, 128, 0, stream, p), CUDA_SUCCESS);
    const float *v = values(b, 16);
    int count = 0, most = 0;
    memcpy(&count, &v[1], sizeof count);
    memcpy(&most, &v[8], sizeof most);
    assert_int_equal(count, 3 * 128);
    assert_int_equal(most, 2);
    assert_true(v[0] == -5 && v[2] == 4 && v[3] == 14);
    assert_true(v[4] == 31 + 8 + 4 + 4 && v[5] == 3 + 2 && v[6] == 0.5f && v[7] == 1111);
    assert_true(v[9] == 10.25f - 2147483648.0f);
    release(a, b);
}

/* Two streams: what the second reads is there because of the event alone. */
static void test_events(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "add_one");
    enum { N = 1 << 20 };
    float *host = pinned(N * sizeof(float));
    CUdeviceptr a = device(N * sizeof(float)), b = device(N * sizeof(float));
    CUevent start = NULL, middle = NULL, end = NULL, untimed = NULL;
    ok(cuEventCreate(&start, CU_EVENT_DEFAULT));
    ok(cuEventCreate(&middle, CU_EVENT_DEFAULT));
    ok(cuEventCreate(&end, CU_EVENT_DEFAULT));
    ok(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    ok(cuEventQuery(middle)); /* never recorded: nothing to wait for */
    ok(cuMemsetD8Async(a, 0, N * sizeof(float), stream));
    ok(cuEventRecord(start, stream));
    for (int i = 0; i < 10; i++) { /* 20 steps, to and fro */
        assert_int_equal(launch(f, 8, 128, 0, stream, (struct params){a, b, N}), CUDA_SUCCESS);
        ok(cuEventRecord(middle, stream));
        ok(cuStreamWaitEvent(other, middle, 0));
        assert_int_equal(launch(f, 8, 128, 0, other, (struct params){b, a, N}), CUDA_SUCCESS);
        ok(cuEventRecord(end, other));
        ok(cuStreamWaitEvent(stream, end, 0));
    }
    ok(cuMemcpyDtoHAsync(host, a, N * sizeof(float), stream)); /* pinned: comes back at once */
    is(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    ok(cuStreamSynchronize(stream));
    ok(cuStreamQuery(stream));
    for (int i = 0; i < N; i++)
        assert_true(host[i] == 20);
    float ms = -1;
    ok(cuEventElapsedTime(&ms, start, end));
    assert_true(ms > 0);
    ok(cuEventRecord(untimed, stream));
    is(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    CUevent events[] = {start, middle, end, untimed};
    for (int i = 0; i < 4; i++)
        ok(cuEventDestroy(events[i]));
    release(a, b);
    ok(cuMemFreeHost(host));
}

/* A stream runs in order; another does not wait for it, nor does the caller. */
static void test_streams_are_apart(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "add_one");
    CUdeviceptr a = ramp(16), b = device(64);
    struct params p = {a, b, 16};
    long before = fake_cuda_live(FAKE_LAUNCHES);
    fake_cuda_hold(1);
    assert_int_equal(launch(f, 1, 16, 0, stream, p), CUDA_SUCCESS);
    assert_int_equal(launch(f, 1, 16, 0, other, p), CUDA_SUCCESS);
    ok(cuStreamSynchronize(other));
    is(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    fake_cuda_release();
    ok(cuStreamSynchronize(stream));
    assert_int_equal(fake_cuda_live(FAKE_LAUNCHES), before + 2);
    CUstream third = NULL; /* a destroyed stream ends what it was given */
    ok(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    fake_cuda_hold(1);
    assert_int_equal(launch(f, 1, 16, 0, third, p), CUDA_SUCCESS);
    ok(cuStreamDestroy(third));
    fake_cuda_release();
    assert_int_equal(fake_cuda_live(FAKE_LAUNCHES), before + 3); /* waits */
    release(a, b);
}

static void test_memory(void **state)
{
    (void)state;
    enum { MB = 1 << 20 };
    CUdeviceptr p[4] = {0};
    uint64_t n = 0;
    size_t free_bytes = 0, total = 0;
    ok(cuMemPoolTrimTo(pool, 0));
    fake_cuda_set_memory(4 * MB);
    for (int i = 0; i < 4; i++)
        p[i] = device(MB);
    CUdeviceptr more = 0;
    is(cuMemAllocFromPoolAsync(&more, 1, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    ok(cuMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes == 0 && total == 4 * MB);
    ok(cuMemFreeAsync(p[0], stream));
    ok(cuMemAllocFromPoolAsync(&p[0], MB, pool, stream)); /* in stream order there is room */
    for (int i = 0; i < 4; i++)
        ok(cuMemFreeAsync(p[i], stream));
    ok(cuStreamSynchronize(stream));
    ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &n));
    assert_int_equal(n, 4 * MB); /* below the threshold it stays the pool's */
    ok(cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 0);
    ok(cuMemPoolTrimTo(pool, 0));
    ok(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &n));
    assert_int_equal(n, 0);
    ok(cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 4 * MB);
    fake_cuda_set_memory((size_t)4 << 30);
}

static void test_bounds(void **state)
{
    (void)state;
    char bytes[64] = {0};
    CUdeviceptr p = device(64);
    ok(cuMemcpyHtoDAsync(p, bytes, 64, stream));
    is(cuMemcpyHtoDAsync(p + 1, bytes, 64, stream), CUDA_ERROR_INVALID_VALUE);
    is(cuMemcpyDtoHAsync(bytes, p - 1, 1, stream), CUDA_ERROR_INVALID_VALUE);
    is(cuMemsetD8Async(p + 64, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
    is(cuMemcpyDtoHAsync(bytes, (CUdeviceptr)(uintptr_t)bytes, 1, stream),
       CUDA_ERROR_INVALID_VALUE);
    is(cuMemFreeAsync(p + 1, stream), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemFreeAsync(p, stream));
    is(cuMemcpyDtoHAsync(bytes, p, 64, stream), CUDA_ERROR_INVALID_VALUE); /* freed */
    is(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
    ok(cuStreamSynchronize(stream));
}

/* Failures on demand */

static void test_fail_nth(void **state)
{
    (void)state;
    CUdeviceptr p = 0;
    long before = fake_cuda_calls();
    fake_cuda_fail(2, CUDA_ERROR_OUT_OF_MEMORY);
    ok(cuStreamQuery(stream));
    is(cuMemAllocFromPoolAsync(&p, 16, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(fake_cuda_failed(), "cuMemAllocFromPoolAsync");
    ok(cuMemAllocFromPoolAsync(&p, 16, pool, stream));
    fake_cuda_fail(1, CUDA_ERROR_UNKNOWN);
    is(cuMemFreeAsync(p, stream), CUDA_ERROR_UNKNOWN); /* freed all the same */
    assert_int_equal(fake_cuda_live(FAKE_BYTES), 0);
    assert_int_equal(fake_cuda_calls() - before, 4);
    fake_nvrtc_fail(1, 0);
    char log[200];
    assert_null(compile("", "-arch=sm_90", NVRTC_ERROR_COMPILATION, log, sizeof log));
    assert_non_null(strstr(log, "on demand"));
    fake_cuda_reset();
}

static void test_sticky(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "add_one");
    CUdeviceptr a = ramp(16), b = device(64);
    long before = fake_cuda_live(FAKE_LAUNCHES);
    fake_cuda_hold(2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(launch(f, 1, 16, 0, stream, (struct params){a, b, 16}), CUDA_SUCCESS);
    fake_cuda_fail(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    is(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    is(cuStreamQuery(other), CUDA_ERROR_ILLEGAL_ADDRESS);
    is(cuMemFreeAsync(a, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    fake_cuda_reset();
    assert_int_equal(fake_cuda_live(FAKE_LAUNCHES), before); /* both were dropped */
    release(a, b);
}

/* The launch is taken; the error shows where one asks the stream. */
static void test_asynchronous_failure(void **state)
{
    (void)state;
    CUfunction f = function_of(plain, "add_one");
    CUdeviceptr a = ramp(16), b = device(64);
    CUevent e = NULL;
    ok(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    fake_cuda_fail_launch(2, CUDA_ERROR_LAUNCH_FAILED);
    struct params p = {a, b, 16};
    assert_int_equal(launch(f, 1, 16, 0, stream, p), CUDA_SUCCESS);
    assert_true(values(b, 1)[0] == 1);
    assert_int_equal(launch(f, 1, 16, 0, stream, p), CUDA_SUCCESS);
    int result = d->cuEventRecord(e, stream);
    assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_LAUNCH_FAILED);
    is(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    is(cuEventQuery(e), CUDA_ERROR_LAUNCH_FAILED);
    fake_cuda_reset();
    ok(cuEventDestroy(e));
    release(a, b);
}

static void test_mistakes_of_the_host(void **state)
{
    (void)state;
    CUmodule m = NULL;
    is(cuModuleLoadData(&m, "\177ELF, but not the fake's"), CUDA_ERROR_INVALID_IMAGE);
    char *cubin =
        compile("extern \"C\" __global__ void k() {}", "-arch=sm_80", NVRTC_SUCCESS, NULL, 0);
    memset(cubin + 16, 0, 64);
    is(cuModuleLoadData(&m, cubin), CUDA_ERROR_INVALID_IMAGE);
    free(cubin);
}

static void test_nvrtc(void **state)
{
    (void)state;
    char log[2000];
    const char *bad = "extern \"C\" __global__ void k(int x)\n{\n    x = nobody;\n}\n";
    assert_null(compile(bad, "-arch=sm_90", NVRTC_ERROR_COMPILATION, log, sizeof log));
    assert_non_null(strstr(log, "k.cu:3"));
    assert_non_null(strstr(log, "nobody"));
    assert_null(compile(bad, "--gpu-architectur=sm_90", 5, log, sizeof log));
    assert_non_null(strstr(log, "--gpu-architectur=sm_90"));
    assert_null(compile(bad, "-arch=sm_91", 5, log, sizeof log));
    const char *good = "#if !defined(__CUDACC_RTC__) || __CUDA_ARCH__ != 800 || SOME != 1\n"
                       "#error\n#endif\n#include \"params.h\"\nstatic params x;";
    char *cubin = compile(good, "-arch=sm_80", NVRTC_SUCCESS, log, sizeof log);
    assert_non_null(cubin);
    free(cubin);
    assert_null(compile(good, "-arch=compute_80", NVRTC_SUCCESS, log, sizeof log));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_launch_limits),
        cmocka_unit_test(test_shared_memory_is_limited),
        cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_streams_are_apart),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_fail_nth),
        cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_asynchronous_failure),
        cmocka_unit_test(test_mistakes_of_the_host),
        cmocka_unit_test(test_nvrtc),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
