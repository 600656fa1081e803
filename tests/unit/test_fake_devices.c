/* The fake driver's devices beside one another: ranges of addresses whose memory is of several,
 * whose memory a device may touch, whose stream takes what, and in which order all is run. Run in
 * each order that the fake has. Its kernels are tests/fake/test_plain.cu. */
#include "tests/unit/fake_device.h"

enum { MB = 1 << 20 };

/* Of device 1, as fake_device.h has them of device 0. */
static CUcontext context_1;
static CUmemoryPool pool_1;
static CUstream stream_1;
static CUmodule plain_1;

static char said[1024];

static void note(const char *message)
{
    snprintf(said, sizeof said, "%s", message);
}

static int setup_devices(void **state)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    if (setup(state))
        return -1;
    ok(cuDevicePrimaryCtxRetain(&context_1, 1));
    ok(cuCtxSetCurrent(context_1));
    ok(cuMemPoolCreate(&pool_1, &props));
    ok(cuStreamCreate(&stream_1, CU_STREAM_NON_BLOCKING));
    plain_1 = module_of("test_plain.cu");
    ok(cuCtxSetCurrent(context));
    return 0;
}

static int teardown_devices(void **state)
{
    ok(cuCtxSetCurrent(context_1));
    ok(cuModuleUnload(plain_1));
    ok(cuStreamDestroy(stream_1));
    ok(cuMemPoolDestroy(pool_1));
    ok(cuDevicePrimaryCtxRelease(1));
    ok(cuCtxSetCurrent(context));
    return teardown(state);
}

/* A launch on device 0 or 1. */
static int launch_on(int device, const char *name, struct params p)
{
    ok(cuCtxSetCurrent(device ? context_1 : context));
    int result =
        launch(function_of(device ? plain_1 : plain, name), 1, 1, 0, device ? stream_1 : stream, p);
    ok(cuCtxSetCurrent(context));
    return result;
}

static int wait_for(int device)
{
    ok(cuCtxSetCurrent(device ? context_1 : context));
    int result = d->cuStreamSynchronize(device ? stream_1 : stream);
    d->cuCtxSetCurrent(context);
    return result;
}

static void fine_on(int device, const char *name, struct params p)
{
    assert_int_equal(launch_on(device, name, p), CUDA_SUCCESS);
    assert_int_equal(wait_for(device), CUDA_SUCCESS);
}

static void expect_on(int device, const char *name, struct params p, int code, const char *message)
{
    *said = 0;
    fake_cuda_on_violation(note);
    assert_int_equal(launch_on(device, name, p), CUDA_SUCCESS);
    assert_int_equal(wait_for(device), code);
    fake_cuda_on_violation(NULL);
    fake_cuda_reset();
    ok(cuCtxSetCurrent(context));
    if (!strstr(said, message))
        fail_msg("%s: '%s' lacks '%s'", name, said, message);
}

static CUmemGenericAllocationHandle physical(int device, size_t bytes)
{
    CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle = 0;
    ok(cuMemCreate(&handle, bytes, &props, 0));
    return handle;
}

static const CUmemAccessDesc both[] = {
    {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
    {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
};

static void test_mappings_of_a_range(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle two = physical(0, 2 * MB), four = physical(1, 4 * MB);
    CUmemAccessDesc nobody = both[0];
    CUdeviceptr p = 0;
    nobody.location.id = 3;
    ok(cuMemAddressReserve(&p, 8 * MB, 0, 0, 0));
    ok(cuMemMap(p, 2 * MB, 0, two, 0));
    is(cuMemMap(p, 4 * MB, 0, four, 0), CUDA_ERROR_INVALID_VALUE); /* over the other */
    is(cuMemMap(p + 3 * MB, 4 * MB, 0, four, 0), CUDA_ERROR_INVALID_VALUE);
    is(cuMemMap(p + 6 * MB, 4 * MB, 0, four, 0), CUDA_ERROR_INVALID_VALUE);
    is(cuMemMap(p + 2 * MB, 2 * MB, 0, four, 0), CUDA_ERROR_INVALID_VALUE); /* a part of it */
    is(cuMemMap(p + 2 * MB, 2 * MB, 2 * MB, four, 0), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemMap(p + 4 * MB, 4 * MB, 0, four, 0));
    is(cuMemSetAccess(p, 8 * MB, both, 2), CUDA_ERROR_INVALID_VALUE); /* a gap */
    ok(cuMemUnmap(p + 4 * MB, 4 * MB));
    ok(cuMemMap(p + 2 * MB, 4 * MB, 0, four, 0));
    assert_int_equal(fake_cuda_live(FAKE_MAPPINGS), 2);
    is(cuMemSetAccess(p, 8 * MB, both, 2), CUDA_ERROR_INVALID_VALUE);
    is(cuMemSetAccess(p, 4 * MB, both, 2), CUDA_ERROR_INVALID_VALUE);
    is(cuMemSetAccess(p + 4 * MB, 2 * MB, both, 2), CUDA_ERROR_INVALID_VALUE);
    is(cuMemSetAccess(p, 6 * MB, both, 0), CUDA_ERROR_INVALID_VALUE);
    is(cuMemSetAccess(p, 6 * MB, &nobody, 1), CUDA_ERROR_INVALID_VALUE);
    is(cuMemsetD8Async(p, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemSetAccess(p, 6 * MB, both, 2));
    is(cuMemUnmap(p, 4 * MB), CUDA_ERROR_INVALID_VALUE);
    is(cuMemUnmap(p + 2 * MB, 2 * MB), CUDA_ERROR_INVALID_VALUE);
    is(cuMemAddressFree(p, 8 * MB), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemUnmap(p + 2 * MB, 4 * MB));
    ok(cuMemsetD8Async(p, 0, 2 * MB, stream)); /* the other stays */
    is(cuMemsetD8Async(p, 0, 2 * MB + 1, stream), CUDA_ERROR_INVALID_VALUE);
    ok(cuMemMap(p + 2 * MB, 4 * MB, 0, four, 0));
    ok(cuStreamSynchronize(stream));
    ok(cuMemUnmap(p, 6 * MB)); /* with access and without */
    assert_int_equal(fake_cuda_live(FAKE_MAPPINGS), 0);
    ok(cuMemAddressFree(p, 8 * MB));
    ok(cuMemRelease(two));
    ok(cuMemRelease(four));
}

/* What lies over the seam of two mappings is as good as any; what was written goes with the memory,
 * not with the address. */
static void test_seam(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle two = physical(0, 2 * MB), four = physical(1, 4 * MB);
    CUdeviceptr a = ramp(64), p = 0;
    ok(cuMemAddressReserve(&p, 8 * MB, 0, 0, 0));
    ok(cuMemMap(p, 2 * MB, 0, two, 0));
    ok(cuMemMap(p + 2 * MB, 4 * MB, 0, four, 0));
    ok(cuMemSetAccess(p, 6 * MB, both, 2));
    CUdeviceptr seam = p + 2 * MB;
    ok(cuMemcpyDtoDAsync(seam - 128, a, 256, stream));
    const float *v = values(seam - 128, 64);
    for (int i = 0; i < 64; i++)
        assert_true(v[i] == (float)i);
    fine_on(0, "move_12", (struct params){a, seam, -4});
    fine_on(1, "move_12", (struct params){seam - 4, seam, 52});
    assert_true(values(seam - 4, 4)[2] == 2 && values(seam + 52, 3)[2] == 2);
    ok(cuMemsetD8Async(seam - 4, 0, 8, stream));
    assert_true(values(seam - 8, 4)[1] == 0);
    expect_on(1, "move_12", (struct params){seam - 4, p, 6 * MB - 8}, CUDA_ERROR_ILLEGAL_ADDRESS,
              "writes 12 bytes at 4194296, of an");
    is(cuMemsetD8Async(p + 6 * MB - 4, 0, 8, stream), CUDA_ERROR_INVALID_VALUE);
    /* unwritten on either side */
    expect_on(0, "move_12", (struct params){seam - 136, seam, 0}, CUDA_ERROR_LAUNCH_FAILED,
              "that nobody wrote");
    ok(cuMemcpyDtoDAsync(a, seam - 132, 8, stream));
    expect_on(0, "read_at", (struct params){a, seam, 0}, CUDA_ERROR_LAUNCH_FAILED, "nobody wrote");
    fine_on(0, "read_at", (struct params){a, seam, 1});
    ok(cuMemUnmap(p, 6 * MB));
    ok(cuMemMap(p, 4 * MB, 0, four, 0));
    ok(cuMemMap(p + 4 * MB, 2 * MB, 0, two, 0));
    ok(cuMemSetAccess(p, 6 * MB, both, 2));
    assert_true(values(p + 6 * MB - 128, 32)[5] == 5 && values(p, 32)[31] == 63);
    expect_on(0, "read_at", (struct params){p + 128, a, 0}, CUDA_ERROR_LAUNCH_FAILED,
              "nobody wrote");
    ok(cuMemUnmap(p, 6 * MB));
    ok(cuMemAddressFree(p, 8 * MB));
    ok(cuMemRelease(two));
    ok(cuMemRelease(four));
    ok(cuMemFreeAsync(a, stream));
    ok(cuStreamSynchronize(stream));
}

/* A device touches its own memory, and other memory when it was named. */
static void test_access(void **state)
{
    (void)state;
    const int denied = CUDA_ERROR_ILLEGAL_ADDRESS, invalid = CUDA_ERROR_INVALID_VALUE;
    const char *why = "that device 1 has no access to";
    CUmemGenericAllocationHandle one = physical(1, 2 * MB);
    CUdeviceptr a = ramp(64), p = 0, own = 0;
    float *host = pinned(64);
    *host = 1;
    ok(cuMemAddressReserve(&p, 2 * MB, 0, 0, 0));
    ok(cuMemMap(p, 2 * MB, 0, one, 0));
    ok(cuMemSetAccess(p, 2 * MB, both, 1)); /* to 0, though it is 1's */
    ok(cuMemsetD8Async(p, 0, 64, stream));
    fine_on(0, "add_one", (struct params){a, p, 16});
    ok(cuCtxSetCurrent(context_1));
    ok(cuMemAllocFromPoolAsync(&own, 64, pool_1, stream_1));
    ok(cuMemcpyHtoDAsync(own, host, 4, stream_1));
    is(cuMemsetD8Async(a, 0, 64, stream_1), invalid);
    is(cuMemcpyDtoDAsync(own, p, 64, stream_1), invalid);
    is(cuMemcpyDtoHAsync(host, p, 64, stream_1), invalid);
    ok(cuCtxSetCurrent(context));
    is(cuMemcpyDtoDAsync(own, a, 64, stream), invalid);
    /* each by a context that reaches it, whichever the stream is of */
    is(cuMemcpyPeerAsync(own, context, a, context, 64, stream), invalid);
    is(cuMemcpyPeerAsync(own, context_1, a, context_1, 64, stream), invalid);
    is(cuMemcpyPeerAsync(own, context_1, a, NULL, 64, stream), invalid);
    is(cuMemcpyPeerAsync(own, context_1, a, context, 64, stream_1), invalid);
    ok(cuMemcpyPeerAsync(own, context_1, a, context, 64, stream));
    ok(cuStreamSynchronize(stream));
    fine_on(1, "read_at", (struct params){(uintptr_t)host, own, 0});
    expect_on(1, "read_at", (struct params){a, own, 0}, denied, why);
    expect_on(1, "write_at", (struct params){own, a, 0}, denied, "writes 4 bytes at 0, of an");
    expect_on(1, "read_at", (struct params){p, own, 0}, denied, why);
    expect_on(0, "read_at", (struct params){own, a, 0}, denied, "that device 0 has no access to");
    ok(cuMemSetAccess(p, 2 * MB, &both[1], 1));
    ok(cuMemPoolSetAccess(pool, &both[1], 1));
    CUdeviceptr later = ramp(64);
    ok(cuStreamSynchronize(stream));
    fine_on(1, "read_at", (struct params){p, own, 0});
    fine_on(1, "read_at", (struct params){a, own, 0});
    fine_on(1, "read_at", (struct params){later, own, 0});
    fine_on(0, "read_at", (struct params){p, a, 0}); /* still */
    expect_on(0, "read_at", (struct params){own, a, 0}, denied, "that device 0 has no access to");
    is(cuMemPoolSetAccess(pool, both, 0), invalid);
    ok(cuCtxSetCurrent(context_1));
    ok(cuMemFreeAsync(own, stream_1));
    ok(cuStreamSynchronize(stream_1));
    ok(cuCtxSetCurrent(context));
    ok(cuMemUnmap(p, 2 * MB));
    ok(cuMemAddressFree(p, 2 * MB));
    ok(cuMemRelease(one));
    ok(cuMemFreeHost(host));
    release(a, later);
}

static void test_peers(void **state)
{
    (void)state;
    CUmemGenericAllocationHandle one = physical(1, 2 * MB);
    CUdeviceptr p = 0;
    int can = -1;
    ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    ok(cuDeviceCanAccessPeer(&can, 1, 1));
    assert_int_equal(can, 0);
    is(cuDeviceCanAccessPeer(&can, 0, 3), CUDA_ERROR_INVALID_DEVICE);
    const int atomics = CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    ok(cuDeviceGetP2PAttribute(&can, atomics, 0, 1));
    assert_int_equal(can, 1);
    is(cuDeviceGetP2PAttribute(&can, atomics, 1, 1), CUDA_ERROR_INVALID_DEVICE);
    setenv("ARRAYD_FAKE_PEERS", "pcie", 1);
    ok(cuDeviceGetP2PAttribute(&can, atomics, 0, 1));
    assert_int_equal(can, 0);
    ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    setenv("ARRAYD_FAKE_PEERS", "1-0", 1);
    ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    ok(cuDeviceCanAccessPeer(&can, 2, 1));
    assert_int_equal(can, 1);
    setenv("ARRAYD_FAKE_PEERS", "0", 1);
    ok(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    is(cuMemPoolSetAccess(pool_1, both, 1), CUDA_ERROR_INVALID_DEVICE);
    ok(cuMemAddressReserve(&p, 2 * MB, 0, 0, 0));
    ok(cuMemMap(p, 2 * MB, 0, one, 0));
    is(cuMemSetAccess(p, 2 * MB, both, 2), CUDA_ERROR_INVALID_DEVICE);
    ok(cuMemSetAccess(p, 2 * MB, &both[1], 1));
    unsetenv("ARRAYD_FAKE_PEERS");
    ok(cuMemUnmap(p, 2 * MB));
    ok(cuMemAddressFree(p, 2 * MB));
    ok(cuMemRelease(one));
}

/* Kernels, streams and events go by their contexts. */
static void test_contexts(void **state)
{
    (void)state;
    const int invalid = CUDA_ERROR_INVALID_HANDLE;
    CUfunction f = function_of(plain, "read_at"), f_1 = function_of(plain_1, "read_at");
    CUdeviceptr a = ramp(4), b = device(16);
    struct params p = {a, b, 0};
    CUevent e = NULL, e_1 = NULL;
    ok(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    assert_int_equal(launch(f_1, 1, 1, 0, stream, p), invalid);
    assert_int_equal(launch(f_1, 1, 1, 0, stream_1, p), invalid); /* another is current */
    is(cuMemsetD8Async(a, 0, 16, stream_1), invalid);
    is(cuStreamQuery(stream_1), invalid);
    is(cuEventRecord(e, stream_1), invalid);
    ok(cuEventRecord(e, stream));
    ok(cuStreamWaitEvent(stream_1, e, 0));
    ok(cuCtxSetCurrent(context_1));
    assert_int_equal(launch(f, 1, 1, 0, stream_1, p), invalid);
    assert_int_equal(launch(f, 1, 1, 0, stream, p), invalid);
    is(cuEventRecord(e, stream_1), invalid);
    is(cuEventRecord(e, stream), invalid);
    ok(cuEventCreate(&e_1, CU_EVENT_DISABLE_TIMING));
    ok(cuEventRecord(e_1, stream_1));
    ok(cuStreamWaitEvent(stream, e_1, 0));
    ok(cuStreamSynchronize(stream_1));
    ok(cuEventQuery(e));
    ok(cuCtxSetCurrent(context));
    ok(cuEventQuery(e_1));
    ok(cuEventDestroy(e));
    ok(cuEventDestroy(e_1));
    release(a, b);
}

/* Orders. `first` is the device whose work comes first when nothing orders it; -1: who knows. */

static int first_device(void)
{
    const char *order = getenv("ARRAYD_FAKE_ORDER");
    return !order || !strcmp(order, "forward") ? -1 : !strcmp(order, "adverse") ? 1 : 0;
}

static CUevent event_of(int device)
{
    CUevent e = NULL;
    ok(cuCtxSetCurrent(device ? context_1 : context));
    ok(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    ok(cuCtxSetCurrent(context));
    return e;
}

/* What is asked for next of one device's stream comes behind what was asked for of the other's. */
static void order(CUevent e, int before)
{
    ok(cuCtxSetCurrent(before ? context_1 : context));
    ok(cuEventRecord(e, before ? stream_1 : stream));
    ok(cuCtxSetCurrent(context));
    ok(cuStreamWaitEvent(before ? stream : stream_1, e, 0));
}

/* Memory of device 0 for both. */
static CUdeviceptr shared_zeros(size_t n)
{
    CUdeviceptr p = device(n * sizeof(float));
    ok(cuMemPoolSetAccess(pool, &both[1], 1));
    ok(cuMemsetD8Async(p, 0, n * sizeof(float), stream));
    ok(cuStreamSynchronize(stream));
    return p;
}

static void test_order(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(4), b = shared_zeros(64);
    float *seen = pinned(sizeof *seen);
    CUevent events[] = {event_of(0), event_of(1)};
    for (int i = 0; i < 60; i++) {
        const int writer = i & 1, waiter = i >> 1 & 1, ordered = i % 3 == 0;
        const bool wrong = first_device() >= 0 && first_device() != writer;
        ok(cuMemsetD8Async(b, 0, 4, stream));
        ok(cuStreamSynchronize(stream));
        assert_int_equal(launch_on(writer, "write_at", (struct params){a, b, 0}), CUDA_SUCCESS);
        if (ordered)
            order(events[writer], writer);
        else if (i < 8)
            usleep(20000); /* it is not because time is short */
        assert_int_equal(launch_on(!writer, "read_at", (struct params){b, (uintptr_t)seen, 0}),
                         CUDA_SUCCESS);
        assert_int_equal(wait_for(waiter), CUDA_SUCCESS);
        assert_int_equal(wait_for(!waiter), CUDA_SUCCESS);
        if (ordered || first_device() >= 0)
            assert_true(*seen == (ordered || !wrong));
    }
    ok(cuEventDestroy(events[0]));
    ok(cuEventDestroy(events[1]));
    ok(cuMemFreeHost(seen));
    release(a, b);
}

/* Polling for work counts as waiting for it, too, and for what that waits for. */
static void test_to_and_fro(void **state)
{
    (void)state;
    CUdeviceptr a = shared_zeros(1), b = shared_zeros(1);
    CUevent events[] = {event_of(0), event_of(1)};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(launch_on(0, "add_one", (struct params){a, b, 1}), CUDA_SUCCESS);
        order(events[0], 0);
        assert_int_equal(launch_on(1, "add_one", (struct params){b, a, 1}), CUDA_SUCCESS);
        order(events[1], 1);
    }
    while (d->cuEventQuery(events[1]) == CUDA_ERROR_NOT_READY)
        usleep(100);
    ok(cuEventQuery(events[1]));
    assert_true(values(a, 1)[0] == 20);
    while (d->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        usleep(100);
    ok(cuEventDestroy(events[0]));
    ok(cuEventDestroy(events[1]));
    release(a, b);
}

static int end_capture(CUgraphExec *exec)
{
    CUgraph graph = NULL;
    int code = d->cuStreamEndCapture(stream, &graph);
    if (code)
        return code;
    ok(cuGraphInstantiate(exec, graph, 0));
    ok(cuGraphDestroy(graph));
    return CUDA_SUCCESS;
}

/* A capture of two devices' streams, which keeps the order of events. */
static void test_capture(void **state)
{
    (void)state;
    const int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr a = shared_zeros(1), b = shared_zeros(1);
    CUevent events[] = {event_of(0), event_of(1)}, plain_event = event_of(0);
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    ok(cuStreamBeginCapture(stream, mode));
    assert_int_equal(launch_on(0, "add_one", (struct params){a, b, 1}), CUDA_SUCCESS);
    order(events[0], 0);
    assert_int_equal(launch_on(1, "add_one", (struct params){b, a, 1}), CUDA_SUCCESS);
    is(cuEventQuery(events[0]), CUDA_ERROR_CAPTURED_EVENT);
    is(cuStreamWaitEvent(stream, plain_event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    ok(cuCtxSetCurrent(context_1));
    is(cuStreamEndCapture(stream_1, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    ok(cuCtxSetCurrent(context));
    order(events[1], 1);
    assert_int_equal(end_capture(&exec), CUDA_SUCCESS);
    is(cuStreamWaitEvent(stream_1, events[0], 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    assert_true(values(a, 1)[0] == 0); /* nothing was run */
    for (int i = 0; i < 10; i++)
        ok(cuGraphLaunch(exec, stream));
    assert_true(values(a, 1)[0] == 20 && values(b, 1)[0] == 19);
    ok(cuCtxSetCurrent(context_1));
    is(cuGraphLaunch(exec, stream_1), CUDA_ERROR_INVALID_HANDLE);
    ok(cuCtxSetCurrent(context));
    ok(cuGraphLaunch(exec, stream));
    ok(cuGraphExecDestroy(exec)); /* what it was launched for is still run */
    assert_true(values(a, 1)[0] == 22);
    order(events[0], 0); /* events of streams again */
    ok(cuEventRecord(events[0], stream));
    ok(cuStreamSynchronize(stream));
    ok(cuEventQuery(events[0]));
    /* each that joins is to be waited for, after the last it was asked for */
    for (int i = 0; i < 3; i++) {
        ok(cuStreamBeginCapture(stream, mode));
        order(events[0], 0);
        if (i)
            order(events[1], 1);
        if (i == 1)
            assert_int_equal(launch_on(1, "add_one", (struct params){b, a, 1}), CUDA_SUCCESS);
        if (i == 2)
            order(events[0], 0); /* a barrier of all leaves them waiting */
        assert_int_equal(end_capture(&exec),
                         i == 2 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    ok(cuGraphExecDestroy(exec));
    CUevent all[] = {events[0], events[1], plain_event};
    for (int i = 0; i < 3; i++)
        ok(cuEventDestroy(all[i]));
    release(a, b);
}

/* What no event orders is not ordered by its place in a capture. */
static void test_order_of_a_capture(void **state)
{
    (void)state;
    CUdeviceptr a = ramp(4), b = shared_zeros(1);
    float *seen = pinned(sizeof *seen);
    CUevent events[] = {event_of(0), event_of(1)};
    for (int i = 0; i < 4; i++) {
        const int writer = i & 1, ordered = i >> 1;
        const bool wrong = first_device() >= 0 && first_device() != writer;
        CUgraphExec exec = NULL;
        ok(cuMemsetD8Async(b, 0, 4, stream));
        ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        order(events[0], 0);
        assert_int_equal(launch_on(writer, "write_at", (struct params){a, b, 0}), CUDA_SUCCESS);
        if (ordered)
            order(events[writer], writer);
        assert_int_equal(launch_on(!writer, "read_at", (struct params){b, (uintptr_t)seen, 0}),
                         CUDA_SUCCESS);
        order(events[1], 1);
        assert_int_equal(end_capture(&exec), CUDA_SUCCESS);
        ok(cuGraphLaunch(exec, stream));
        ok(cuStreamSynchronize(stream));
        if (ordered || first_device() >= 0)
            assert_true(*seen == (ordered || !wrong));
        ok(cuGraphExecDestroy(exec));
    }
    ok(cuEventDestroy(events[0]));
    ok(cuEventDestroy(events[1]));
    ok(cuMemFreeHost(seen));
    release(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mappings_of_a_range),
        cmocka_unit_test(test_seam),
        cmocka_unit_test(test_access),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_to_and_fro),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_order_of_a_capture),
    };
    return cmocka_run_group_tests(tests, setup_devices, teardown_devices);
}
