/* Every driver call of a request fails once, on the fake driver, through the engine's own door.
 *
 * Out of memory: the request says so or succeeds all the same; what a download gives afterwards is
 * right, or it is told that the work failed, never something else; a target that was not written is
 * as before, and one is written in half only where a kernel between others is refused; bytes in use
 * and what the driver holds are back where they were, and the same request then succeeds. A sticky
 * error: everything later says device_lost, and closing works. A kernel that does not compile, and
 * one that fails while it runs, likewise. With ARRAYD_MESH on a mesh, and arrays that lie on all of
 * its GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/gpu/device/mesh.h"
#include "compute/gpu/text/emit.h"
#include "compute/memory/memory_int.h"
#include "tests/backend/suite.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_torture.h"
#include "tests/unit/slice.h"

#define OOM        2
#define ANY_LAUNCH 719
#define ILLEGAL    700

/* --- the torture --- */

static char why_lost[256];

static void note_lost(void *user, const char *why)
{
    (void)user;
    snprintf(why_lost, sizeof why_lost, "%s", why);
}

static void open_fixture(struct fixture *x)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.slab_memory = 16 << 20;
    config.device.mesh = getenv("ARRAYD_MESH");
    config.device.mesh_least = 1;
    config.device.lost = note_lost;
    *x = (struct fixture){.account = account_new(0)};
    if (engine_open(&config, &x->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    x->device = suite_device(x->g);
    assert_int_equal(engine_stream_new(x->g, x->device, &x->s, &e), ERR_OK);
    assert_int_equal(put(x, pattern_a, 2, (int64_t[]){N, N}, &x->a), ERR_OK);
    assert_int_equal(put(x, pattern_b, 2, (int64_t[]){N, N}, &x->b), ERR_OK);
    assert_int_equal(put(x, pattern_line, 1, (int64_t[]){LONG}, &x->line), ERR_OK);
    if (engine_mesh(x->g) >= 0)
        assert_int_equal(put(x, pattern_bulk, 1, (int64_t[]){BULK}, &x->bulk), ERR_OK);
}

static size_t requests_of(const struct fixture *x)
{
    return REQUESTS + (x->bulk ? ON_MESH : 0);
}

static void settle(struct fixture *x)
{
    int tries = 0;
    while (engine_jobs_in_flight(x->g) > 0)
        pause_a_little(&tries);
}

static void close_fixture(struct fixture *x)
{
    array_unref(x->a);
    array_unref(x->b);
    array_unref(x->line);
    array_unref(x->bulk);
    engine_stream_unref(x->s);
    settle(x);
    assert_int_equal(engine_bytes_in_use(x->g), 0);
    assert_int_equal(account_used(x->account), 0);
    engine_close(x->g);
    account_unref(x->account);
}

static void wait_for(struct outcome *o)
{
    int tries = 0;
    while (o->told && atomic_load(&o->done) == WAITING)
        pause_a_little(&tries);
}

static bool equal(const float *x, const float *y, size_t n)
{
    return memcmp(x, y, n * sizeof *x) == 0;
}

/* Whether the call may come between two kernels, the first of which was launched; those of a mesh
 * wait for each other. */
static bool is_between(const struct fixture *x, const char *call)
{
    return fake_cuda_failed_behind() > 0 && (strcmp(call, "cuLaunchKernel") == 0 ||
                                             (x->bulk && (strcmp(call, "cuEventRecord") == 0 ||
                                                          strcmp(call, "cuStreamWaitEvent") == 0 ||
                                                          strcmp(call, "cuMemsetD8Async") == 0)));
}

/* One request while a call fails; reports by failing the test. `lost`: the failure was sticky. */
static void run_failing(struct fixture *x, const struct request *r, int nth, bool sticky,
                        void (*arm)(int nth, int code), int code)
{
    static float got[BULK];
    struct outcome o = {.done = WAITING};
    const char *failed;
    arm(nth, code);
    r->run(x, &o);
    struct array *result = o.result ? o.result : x->target;
    /* a download right behind the work, while the failure may still be to come */
    if (o.code == ERR_OK && get(x, result, got) == ERR_OK && !equal(got, o.want, o.n) &&
        !(o.told && (wait_for(&o), atomic_load(&o.done) != ERR_OK) && r->into &&
          equal(got, pattern_target, CELLS)))
        fail_msg("%s, call %d: wrong data at once", r->name, nth);
    wait_for(&o);
    arm(0, 0);
    failed = fake_cuda_failed();
    enum err_code why = sticky ? ERR_DEVICE_LOST : ERR_OUT_OF_MEMORY;
    if (o.code != ERR_OK && o.code != why)
        fail_msg("%s, call %d (%s): %s", r->name, nth, failed ? failed : "none", err_name(o.code));
    if (o.told && atomic_load(&o.done) != ERR_OK && atomic_load(&o.done) != (int)why)
        fail_msg("%s, call %d (%s): work told %s", r->name, nth, failed ? failed : "none",
                 err_name((enum err_code)atomic_load(&o.done)));
    bool good = o.code == ERR_OK && (!o.told || atomic_load(&o.done) == ERR_OK);
    if (o.result || r->into) {
        enum err_code read = get(x, result, got);
        bool is_new = read == ERR_OK && o.code == ERR_OK && equal(got, o.want, o.n);
        bool is_old = read == ERR_OK && r->into && equal(got, pattern_target, CELLS);
        if (read != ERR_OK && read != why)
            fail_msg("%s, call %d (%s): reading said %s", r->name, nth, failed ? failed : "none",
                     err_name(read));
        if (read == ERR_OK && !is_new && !is_old)
            fail_msg("%s, call %d (%s): wrong data", r->name, nth, failed ? failed : "none");
        /* what work needs it has before its first kernel: only what goes on between two may leave
         * half a result */
        if (!sticky && read != ERR_OK && r->into && failed && !is_between(x, failed))
            fail_msg("%s, call %d (%s): the target is lost", r->name, nth, failed);
        if (!sticky && o.told && good && !is_new)
            fail_msg("%s, call %d (%s): succeeded without its result", r->name, nth,
                     failed ? failed : "none");
        if (!sticky && o.code != ERR_OK && r->into && !is_old)
            fail_msg("%s, call %d (%s): refused, but not as before", r->name, nth,
                     failed ? failed : "none");
    }
    array_unref(o.result);
}

static void new_target(struct fixture *x, const struct request *r)
{
    struct outcome o = {.done = WAITING};
    array_unref(x->target);
    x->target = NULL;
    assert_int_equal(put(x, pattern_target, 2, (int64_t[]){N, N}, &x->target), ERR_OK);
    if (!r->hosted)
        return;
    move_out(x, &o);
    assert_int_equal(o.code, ERR_OK);
    wait_for(&o);
    assert_true(array_in_host_memory(x->target));
}

static void drop_target(struct fixture *x)
{
    array_unref(x->target);
    x->target = NULL;
    settle(x);
}

static void run_well(struct fixture *x, const struct request *r)
{
    static float got[BULK];
    struct outcome o = {.done = WAITING};
    new_target(x, r);
    r->run(x, &o);
    assert_int_equal(o.code, ERR_OK);
    enum err_code read = get(x, o.result ? o.result : x->target, got);
    wait_for(&o);
    if (read != ERR_OK || !equal(got, o.want, o.n) || (o.told && atomic_load(&o.done) != ERR_OK))
        fail_msg("%s: not well afterwards", r->name);
    array_unref(o.result);
    drop_target(x);
}

/* Memory but for the counters of each stream, of which a mesh has one on each GPU, and modules.
 * Streams, events and pinned memory are kept for the next; they are counted at the end. */
static void count_kept(struct fixture *x, long n[3])
{
    struct cuda *c = (struct cuda *)x->g->backend;
    long streams = fake_cuda_live(FAKE_STREAMS) / c->devices[x->device].n_members;
    n[0] = fake_cuda_live(FAKE_BYTES) - streams * EMIT_COUNTERS_SIZE;
    for (int i = 0; i < c->n_gpus; i++) /* until a call finds no memory */
        n[0] -= (long)mesh_kept(&c->devices[i]);
    n[1] = fake_cuda_live(FAKE_ALLOCATIONS) - streams;
    n[2] = fake_cuda_live(FAKE_MODULES);
}

static void out_of_memory_loses_nothing(void **state)
{
    (void)state;
    struct fixture x;
    int64_t before = mem_live();
    open_fixture(&x);
    const size_t n = requests_of(&x);
    for (size_t i = 0; i < n; i++)
        run_well(&x, &requests[i]);
    int64_t bytes = engine_bytes_in_use(x.g);
    long live[3], now[3], calls = fake_cuda_calls();
    count_kept(&x, live);
    for (size_t i = 0; i < n; i++) {
        const int step = slice_step(x.bulk ? 12 : 3);
        int nth = 1 + slice_from(step);
        for (bool struck = true; struck; nth += step) {
            new_target(&x, &requests[i]);
            settle(&x);
            fake_cuda_reset();
            run_failing(&x, &requests[i], nth, false, fake_cuda_fail, OOM);
            struck = fake_cuda_failed() != NULL;
            drop_target(&x);
            assert_int_equal(engine_bytes_in_use(x.g), bytes);
            count_kept(&x, now);
            assert_memory_equal(now, live, sizeof now);
            if (nth > 2000)
                fail_msg("%s never passes", requests[i].name);
            run_well(&x, &requests[i]);
        }
        if (getenv("TORTURE_VERBOSE"))
            print_message("%s: %d calls\n", requests[i].name, nth - step - 1);
    }
    assert_true(fake_cuda_calls() > calls);
    close_fixture(&x);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
    assert_int_equal(mem_live(), before);
}

/* Whatever is asked now, the answer is device_lost. */
static void is_lost(struct fixture *x)
{
    static float got[CELLS];
    struct array *none = NULL;
    struct outcome o = {.done = WAITING};
    assert_int_equal(put(x, pattern_a, 2, (int64_t[]){N, N}, &none), ERR_DEVICE_LOST);
    assert_int_equal(get(x, x->a, got), ERR_DEVICE_LOST);
    evaluate(x, "a - 1", NULL, &o);
    wait_for(&o);
    assert_int_equal(o.code != ERR_OK ? o.code : (enum err_code)atomic_load(&o.done),
                     ERR_DEVICE_LOST);
    array_unref(o.result);
    struct engine_stream *s = NULL;
    enum err_code code = engine_stream_new(x->g, x->device, &s, NULL);
    assert_true(code == ERR_DEVICE_LOST || s);
    engine_stream_unref(s);
}

static void sticky(void (*arm)(int nth, int code), int code, int step)
{
    int64_t before = mem_live();
    /* streams of a lost device are never destroyed: a process has no room for all of a mesh's */
    step *= getenv("ARRAYD_MESH") ? 4 : 1;
    for (size_t i = 0, n = 1; i < n; i++) {
        bool struck = true;
        for (int nth = 1 + slice_from(step); struck; nth += step) {
            struct fixture x;
            open_fixture(&x);
            n = requests_of(&x);
            new_target(&x, &requests[i]);
            settle(&x);
            run_failing(&x, &requests[i], nth, true, arm, code);
            struck = fake_cuda_failed() != NULL;
            if (struck)
                is_lost(&x);
            array_unref(x.target);
            close_fixture(&x);
            fake_cuda_reset();
            assert_int_equal(mem_live(), before);
            if (nth > 2000)
                fail_msg("%s never passes", requests[i].name);
        }
    }
}

static void a_launch_failure_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail, ANY_LAUNCH, getenv("ARRAYD_LONG") ? 1 : 3 * slice_step(4));
}

static void an_illegal_address_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail, ILLEGAL, getenv("ARRAYD_LONG") ? 1 : 4 * slice_step(4));
}

static void a_kernel_that_fails_later_is_the_end(void **state)
{
    (void)state;
    sticky(fake_cuda_fail_launch, ANY_LAUNCH, slice_step(2));
}

static void a_member_that_fails_is_named(void **state)
{
    (void)state;
    struct fixture x;
    struct outcome o = {.done = WAITING};
    open_fixture(&x);
    if (x.bulk) {
        run_well(&x, &requests[3]);
        fake_cuda_refuse_launch(2, ANY_LAUNCH);
        evaluate_flat(&x, &o);
        wait_for(&o);
        assert_int_equal(atomic_load(&o.done), ERR_DEVICE_LOST);
        assert_non_null(strstr(why_lost, "cuLaunchKernel failed on device 1: "));
        array_unref(o.result);
        is_lost(&x);
    }
    close_fixture(&x);
    fake_cuda_reset();
}

/* A kernel that does not compile is our mistake. It is not compiled anew at every request, whoever
 * asks is told what the compiler said, and the next kernel is none the worse. */
static void a_refused_kernel_is_told(void **state)
{
    (void)state;
    struct fixture x;
    static float got[CELLS];
    open_fixture(&x);
    int64_t bytes = engine_bytes_in_use(x.g);
    long compiled = fake_nvrtc_calls();
    for (int round = 0; round < 3; round++) {
        struct outcome o = {.done = WAITING};
        bool well = round == 2;
        fake_nvrtc_fail(round == 0, 0);
        evaluate(&x, well ? "b*7 - a*3" : "a*7 + 11 - b*3", NULL, &o);
        assert_true(o.code == (well ? ERR_OK : ERR_INTERNAL) || round == 0);
        if (o.code != ERR_OK) /* told at once, as it is where the refusal is known */
            assert_non_null(strstr(o.why.message, "failed on demand"));
        if (o.result) {
            wait_for(&o);
            assert_int_equal(atomic_load(&o.done), well ? ERR_OK : ERR_INTERNAL);
            assert_int_equal(get(&x, o.result, got), well ? ERR_OK : ERR_INTERNAL);
        }
        for (int i = 0; well && i < CELLS; i++)
            assert_true(got[i] == pattern_b[i] * 7 - pattern_a[i] * 3);
        array_unref(o.result);
        settle(&x);
        assert_int_equal(engine_bytes_in_use(x.g), bytes);
    }
    assert_int_equal(fake_nvrtc_calls(), compiled + 2);
    close_fixture(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_loses_nothing),
        cmocka_unit_test(a_refused_kernel_is_told),
        cmocka_unit_test(a_member_that_fails_is_named),
        cmocka_unit_test(a_launch_failure_is_the_end),
        cmocka_unit_test(an_illegal_address_is_the_end),
        cmocka_unit_test(a_kernel_that_fails_later_is_the_end),
    };
    fill_patterns();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
