/* That the fake driver finds the mistakes of kernels that it is there to find, and not what is
 * right beside them. Its kernels are tests/fake/test_*.cu. */
#include "tests/unit/fake_device.h"

static char said[1024];

static void note(const char *message)
{
    snprintf(said, sizeof said, "%s", message);
}

static void expect(const char *name, CUmodule m, struct params p, int code, const char *message)
{
    CUfunction f = function_of(m, name);
    *said = 0;
    fake_cuda_on_violation(note);
    assert_int_equal(launch(f, 1, 64, 64, stream, p), CUDA_SUCCESS);
    is(cuStreamSynchronize(stream), code);
    fake_cuda_on_violation(NULL);
    fake_cuda_reset();
    if (!strstr(said, message))
        fail_msg("%s: '%s' lacks '%s'", name, said, message);
}

/* The access is not made, and the message says where it was. */
static void test_mistakes(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(256), b = device(256 * sizeof(float));
    struct params p = {a, b, 16};
    const int failed = CUDA_ERROR_LAUNCH_FAILED;
    expect("divergent", threads, p, failed, "at __syncthreads of line");
    expect("lonely", threads, p, failed, "a shuffle of line");
    expect("lonely", threads, p, failed, "a lane that never comes");
    expect("trap", plain, p, CUDA_ERROR_LAUNCH_FAILED, "__trap() in thread (3,0,0)");
    p.n = 32;
    expect("out_of_bounds", threads, p, CUDA_ERROR_ILLEGAL_ADDRESS, "out of an array's bounds");
    release(a, b);
}

/* Each kernel at the last place that is right, and one further. */
static void test_alignment(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(256), b = device(256 * sizeof(float));
    ok(cuMemsetD8Async(b, 0, 256 * sizeof(float), stream));
    static const struct {
        const char *kernel;
        long aligned; /* bytes */
    } cases[] = {{"move_2", 2},   {"move_4", 4}, {"move_8", 8},
                 {"move_16", 16}, {"count", 4},  {"hold", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct params p = {a, b, cases[i].aligned};
        assert_int_equal(launch(function_of(plain, cases[i].kernel), 1, 1, 0, stream, p), 0);
        ok(cuStreamSynchronize(stream));
        p.n /= 2;
        expect(cases[i].kernel, plain, p, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address");
        p = (struct params){a + 1, b, cases[i].aligned};
        if (cases[i].kernel[0] == 'm')
            expect(cases[i].kernel, plain, p, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address");
    }
    release(a, b);
}

static void test_accesses_outside(void **state)
{
    (void)state;
    const int code = CUDA_ERROR_ILLEGAL_ADDRESS;
    CUdeviceptr a = ramp(17), b = device(68), gone = device(68);
    CUfunction f = function_of(plain, "write_at"), r = function_of(plain, "read_at");
    ok(cuMemsetD8Async(b, 0, 68, stream));
    ok(cuMemFreeAsync(gone, stream));
    ok(cuStreamSynchronize(stream));
    for (long at = 0; at < 17; at += 16) {
        assert_int_equal(launch(f, 1, 1, 0, stream, (struct params){a, b, at}), CUDA_SUCCESS);
        assert_int_equal(launch(r, 1, 1, 0, stream, (struct params){a, b, at}), CUDA_SUCCESS);
    }
    ok(cuStreamSynchronize(stream));
    expect("write_at", plain, (struct params){a, b, 17}, code,
           "writes 4 bytes 0 bytes behind an allocation of 68 bytes, in thread");
    expect("write_at", plain, (struct params){a, b, 17}, code, "k.cu:");
    expect("write_at", plain, (struct params){a, b, -1}, code, "4 bytes before an allocation");
    expect("read_at", plain, (struct params){a, b, 17}, code, "reads 4 bytes 0 bytes behind");
    expect("write_at", plain, (struct params){a, gone, 0}, code, "writes 4 bytes");
    expect("write_at", plain, (struct params){a, 0, 0}, code, "writes 4 bytes");
    /* the last byte of a vector, of an atomic, of a structure of 12 bytes */
    expect("move_16", plain, (struct params){a, b, 64}, code, "writes 16 bytes at 64, of an");
    expect("count", plain, (struct params){a, b, 68}, code, "changes 4 bytes");
    expect("move_12", plain, (struct params){a, b, 60}, code, "writes 12 bytes at 60, of an");
    assert_int_equal(
        launch(function_of(plain, "move_12"), 1, 1, 0, stream, (struct params){a, b, 56}),
        CUDA_SUCCESS);
    ok(cuStreamSynchronize(stream));
    release(a, b);
}

static void test_shared_memory_has_an_end(void **state)
{
    (void)state;
    const int code = CUDA_ERROR_ILLEGAL_ADDRESS;
    CUdeviceptr a = ramp(16), b = device(64);
    assert_int_equal(
        launch(function_of(threads, "dynamic_at"), 1, 64, 64, stream, (struct params){a, b, 15}),
        CUDA_SUCCESS);
    ok(cuStreamSynchronize(stream));
    expect("dynamic_at", threads, (struct params){a, b, 16}, code,
           "writes 4 bytes at 64, of 64 bytes of dynamic shared memory");
    expect("dynamic_at", threads, (struct params){a, b, 5000}, code, "of 64 bytes of dynamic");
    expect("static_behind", threads, (struct params){a, b, 0}, code,
           "bytes of static shared memory");
    release(a, b);
}

/* What nobody wrote is not read: of device memory, and of a block's shared memory. */
static void test_unwritten(void **state)
{
    (void)state;
    const int failed = CUDA_ERROR_LAUNCH_FAILED;
    char host[64] = {0};
    CUdeviceptr a = ramp(16), b = device(64), c = device(64);
    CUfunction f = function_of(plain, "read_at");
    expect("read_at", plain, (struct params){b, a, 0}, failed, "that nobody wrote, in thread");
    ok(cuMemcpyHtoDAsync(b, host, 7, stream));
    expect("read_at", plain, (struct params){b, a, 1}, failed, "reads 4 bytes at 4, of an");
    ok(cuMemcpyHtoDAsync(b + 7, host, 1, stream));
    assert_int_equal(launch(f, 1, 1, 0, stream, (struct params){b, a, 1}), CUDA_SUCCESS);
    /* a copy takes along what was written, and what was not */
    ok(cuMemcpyDtoDAsync(c + 16, b, 16, stream));
    assert_int_equal(launch(f, 1, 1, 0, stream, (struct params){c, a, 5}), CUDA_SUCCESS);
    expect("read_at", plain, (struct params){c, a, 6}, failed, "at 24, of an");
    ok(cuMemcpyDtoDAsync(c + 16, b + 1, 9, stream));
    expect("read_at", plain, (struct params){c, a, 5}, failed, "at 20, of an");
    /* so does a kernel, of its own bytes alone */
    assert_int_equal(
        launch(function_of(plain, "write_at"), 1, 1, 0, stream, (struct params){a, b, 3}),
        CUDA_SUCCESS);
    assert_int_equal(launch(f, 1, 1, 0, stream, (struct params){b, a, 3}), CUDA_SUCCESS);
    ok(cuStreamSynchronize(stream));
    expect("read_at", plain, (struct params){b, a, 2}, failed, "at 8, of an");
    expect("read_at", plain, (struct params){b, a, 4}, failed, "at 16, of an");
    fake_cuda_on_violation(note);
    is(cuMemcpyDtoHAsync(host, b, 64, stream), failed);
    assert_non_null(strstr(said, "a copy to the host of 64 bytes"));
    fake_cuda_reset();
    fake_cuda_on_violation(NULL);
    expect("race", threads, (struct params){a, b, 0}, failed,
           "of static shared memory, that nobody");
    ok(cuMemFreeAsync(c, stream));
    release(a, b);
}

/* Made when they are waited for, no sooner. */
static void test_copies_of_a_thread(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(256), b = device(256 * sizeof(float));
    struct params p = {a, b, 0};
    assert_int_equal(launch(function_of(threads, "copies"), 1, 64, 0, stream, p), CUDA_SUCCESS);
    const float *v = values(b, 256);
    for (int i = 0; i < 256; i++)
        assert_true(v[i] == (i % 4 ? (float)i : -1));
    p.n = 1;
    expect("copies", threads, p, CUDA_ERROR_LAUNCH_FAILED, "shared memory, that nobody wrote");
    p = (struct params){a + 4, b, 0};
    expect("copies", threads, p, CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address");
    p = (struct params){a + 8, b, 0};
    expect("copies", threads, p, CUDA_ERROR_ILLEGAL_ADDRESS, "reads 8 bytes 0 bytes behind");
    release(a, b);
}

static void test_phases(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(16), b = device(64 * sizeof(float));
    struct params p = {a, b, 64};
    assert_int_equal(launch(function_of(threads, "phases"), 2, 64, 0, stream, p), CUDA_SUCCESS);
    const float *v = values(b, 64);
    for (int i = 0; i < 64; i++)
        assert_true(v[i] == (float)(363 - i));
    p.n = 5;
    expect("phases", threads, p, CUDA_ERROR_LAUNCH_FAILED, "at a phase's end of line");
    release(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),         cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_accesses_outside), cmocka_unit_test(test_shared_memory_has_an_end),
        cmocka_unit_test(test_unwritten),        cmocka_unit_test(test_copies_of_a_thread),
        cmocka_unit_test(test_phases),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
