/* compute/export on the CUDA backend, with the fake driver: what is told when, every driver call of
 * making, exporting and freeing memory failing once, machines that cannot share memory, and room
 * that memory for sharing and the pool make for one another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/memory/export.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/reclaim.h"
#include "tests/descriptors.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"

#define N     1000
#define GRAIN (2 << 20)
#define OOM   2

enum { WAITING = -1, SOME = 2 * GRAIN };

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
};

static float ramp[SOME / 4 + 1], got[SOME / 4 + 1];

static void open_fixture(struct fixture *f, int64_t least, int64_t limit)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.slab_memory = 16 << 20;
    config.device.memory_limit = limit;
    config.device.shareable = true;
    config.device.shareable_least = least;
    if (engine_open(&config, &f->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    f->account = account_new(0);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, &e), ERR_OK);
}

/* No work holds any memory. */
static void idle(struct fixture *f)
{
    int tries = 0;
    while (engine_jobs_in_flight(f->g) > 0)
        pause_a_little(&tries);
}

/* And what was let go of is back. */
static void settle(struct fixture *f)
{
    idle(f);
    reclaim_all(f->g->reclaim);
}

static void close_fixture(struct fixture *f)
{
    engine_stream_unref(f->s);
    settle(f);
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    assert_int_equal(account_used(f->account), 0);
    assert_true(engine_close(f->g));
    account_unref(f->account);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
}

static enum err_code put(struct fixture *f, int64_t n, struct array **ret)
{
    return put_array(f->s, f->account, ramp, 1, &n, ret);
}

static void holds(struct fixture *f, struct array *a)
{
    size_t n = (size_t)array_nbytes(a);
    assert_int_equal(get_array(f->s, a, got), ERR_OK);
    assert_memory_equal(got, ramp, n);
}

static void told(struct exporting *x)
{
    atomic_store((_Atomic int *)x->user, (int)x->code);
}

static void begin_export(struct fixture *f, struct array *a, bool write, struct exporting *x,
                         _Atomic int *done)
{
    *x = (struct exporting){.array = a, .write = write, .done = told, .user = (void *)done};
    atomic_store(done, WAITING);
    engine_export(f->s, x);
}

static enum err_code export(struct fixture *f, struct array *a, bool write, struct exporting *x) {
    _Atomic int done; int tries = 0; begin_export(f, a, write, x, &done);
    while (atomic_load(&done) == WAITING) pause_a_little(&tries);
    return x->code;
}

static void end_export(struct exporting *x)
{
    close(x->exported.fd);
    engine_export_end(x->export);
}

/* What another process would see: the fake's descriptors can be mapped by anybody. */
static void shows(const struct exporting *x, int64_t n)
{
    assert_int_equal(x->exported.size % GRAIN, 0);
    char *p = mmap(NULL, (size_t)x->exported.size, PROT_READ, MAP_SHARED, x->exported.fd, 0);
    assert_true(p != MAP_FAILED);
    assert_memory_equal(p + x->exported.offset, ramp, (size_t)n * 4);
    for (int64_t i = x->exported.offset + n * 4; i < x->exported.size; i++)
        assert_int_equal(p[i], 0); /* nothing of what was there before */
    munmap(p, (size_t)x->exported.size);
}

/* --- */

static void books_and_identity(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *large, *small;
    const int open = descriptors();
    open_fixture(&f, GRAIN, 0);
    assert_null(engine_export_problem(f.g, 0));
    assert_int_equal(put(&f, SOME / 4 + 1, &large), ERR_OK);
    assert_int_equal(put(&f, N, &small), ERR_OK);
    settle(&f);
    assert_int_equal(engine_bytes_in_use(f.g), 3 * GRAIN + N * 4);
    assert_int_equal(account_used(f.account), 3 * GRAIN + N * 4);
    assert_int_equal(fake_cuda_live(FAKE_MAPPINGS), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(export(&f, i == 1 ? large : small, false, &x), ERR_OK);
        assert_true(x.exported.cuda);
        assert_int_equal(x.exported.size, (i == 1 ? 3 : 1) * GRAIN);
        assert_string_equal(x.exported.uuid, "GPU-61727261-7964-2773-2066-616b6520ff00");
        assert_int_equal(fcntl(x.exported.fd, F_GETFD), FD_CLOEXEC);
        shows(&x, i == 1 ? SOME / 4 + 1 : N);
        end_export(&x);
    }
    settle(&f);
    assert_int_equal(engine_bytes_in_use(f.g), 4 * GRAIN);
    assert_int_equal(account_used(f.account), 4 * GRAIN);
    assert_int_equal(fake_cuda_live(FAKE_MAPPINGS), 2);
    assert_int_equal(descriptors(), open + 2 + 2); /* the fake's, of what it has mapped, and ours */
    holds(&f, large);
    holds(&f, small);
    array_unref(large);
    array_unref(small);
    close_fixture(&f);
}

static void a_descriptor_is_made_once(void **state)
{
    (void)state;
    static const char *const making = "cuMemExportToShareableHandle";
    struct fixture f;
    struct exporting x;
    struct array *a, *b;
    open_fixture(&f, GRAIN, 0);
    assert_int_equal(put(&f, SOME / 4, &a), ERR_OK);
    assert_int_equal(export(&f, a, false, &x), ERR_OK);
    end_export(&x);
    fake_cuda_fail_call(making, 1, 801);
    for (int write = 0; write <= 1; write++) {
        assert_int_equal(export(&f, a, write, &x), ERR_OK);
        assert_int_equal(fcntl(x.exported.fd, F_GETFD), FD_CLOEXEC);
        shows(&x, SOME / 4);
        end_export(&x);
    }
    assert_null(fake_cuda_failed()); /* the driver was not asked */
    assert_int_equal(put(&f, SOME / 4 - 1, &b), ERR_OK);
    assert_int_equal(export(&f, b, false, &x), ERR_OK); /* the second time */
    assert_string_equal(fake_cuda_failed(), making);
    shows(&x, SOME / 4 - 1);
    end_export(&x);
    fake_cuda_reset();
    array_unref(a);
    array_unref(b);
    close_fixture(&f);
}

/* What is kept makes way for what is wanted. */
static void descriptors_run_out(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *a[3];
    struct rlimit was, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    open_fixture(&f, GRAIN, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(put(&f, SOME / 4, &a[i]), ERR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(export(&f, a[i], false, &x), ERR_OK);
        end_export(&x);
    }
    int holes[16];
    for (int i = 0; i < 16; i++)
        holes[i] = dup(0);
    few.rlim_cur = (rlim_t)holes[15] + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    enum err_code code = export(&f, a[2], false, &x);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    for (int i = 0; i < 16; i++)
        close(holes[i]);
    assert_int_equal(code, ERR_OK);
    shows(&x, SOME / 4);
    end_export(&x);
    for (int i = 0; i < 3; i++)
        array_unref(a[i]);
    close_fixture(&f);
}

/* Work on the device that writes the array is still running: nothing is told, nobody waits. */
static void it_is_told_when_work_is_over(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    _Atomic int done;
    struct scalar one = {.dtype = DT_F32, .v.f32 = 1};
    for (int i = 0; i < 4; i++) {
        struct array *a;
        open_fixture(&f, i & 1 ? GRAIN : SOME, 0);
        fake_cuda_hold(1);
        assert_int_equal(engine_full(f.s, f.account, one, 1, (int64_t[]){GRAIN / 4}, &a, NULL),
                         ERR_OK);
        begin_export(&f, a, i & 2, &x, &done);
        usleep(20000);
        assert_int_equal(atomic_load(&done), WAITING);
        fake_cuda_release();
        int tries = 0;
        while (atomic_load(&done) == WAITING)
            pause_a_little(&tries);
        assert_int_equal(atomic_load(&done), ERR_OK);
        float *p = mmap(NULL, GRAIN, PROT_READ, MAP_SHARED, x.exported.fd, 0);
        assert_true(p != MAP_FAILED && p[0] == 1 && p[GRAIN / 4 - 1] == 1);
        munmap(p, GRAIN);
        end_export(&x);
        array_unref(a);
        close_fixture(&f);
    }
}

/* --- failures --- */

/* Makes an array, exports it for reading and for writing, and lets it go. */
static void one_life(struct fixture *f)
{
    struct array *a = NULL;
    struct exporting x;
    const int64_t n = SOME / 4 - 7;
    enum err_code code = put(f, n, &a);
    assert_true(code == ERR_OK || (code == ERR_OUT_OF_MEMORY && fake_cuda_failed()));
    for (int write = 0; write <= 1 && a; write++) {
        code = export(f, a, write, &x);
        if (code == ERR_OK) {
            shows(&x, n);
            end_export(&x);
        } else {
            assert_non_null(fake_cuda_failed());
            assert_true(code == ERR_OUT_OF_MEMORY || code == ERR_OVERLOADED);
            assert_true(*x.err.message && !x.export && x.exported.fd == -1);
        }
        assert_false(array_is_exported(a) || array_written_outside(a));
    }
    code = a ? get_array(f->s, a, got) : ERR_OUT_OF_MEMORY;
    assert_true(code == ERR_OK || (code == ERR_OUT_OF_MEMORY && fake_cuda_failed()));
    if (code == ERR_OK)
        assert_memory_equal(got, ramp, (size_t)n * 4);
    array_unref(a);
    settle(f);
}

static void every_call_fails_once(void **state)
{
    (void)state;
    for (int moves = 0; moves <= 1; moves++) {
        struct fixture f;
        int64_t live = mem_live();
        open_fixture(&f, moves ? 2 * SOME : GRAIN, 0);
        one_life(&f); /* what is kept is there */
        const long bytes = fake_cuda_live(FAKE_BYTES);
        const int open = descriptors();
        bool struck = true;
        for (int nth = 1; struck; nth++) {
            fake_cuda_reset();
            fake_cuda_fail(nth, OOM);
            one_life(&f);
            struck = fake_cuda_failed() != NULL;
            fake_cuda_fail(0, 0);
            assert_int_equal(fake_cuda_live(FAKE_BYTES), bytes);
            assert_int_equal(fake_cuda_live(FAKE_HANDLES), 0);
            assert_int_equal(fake_cuda_live(FAKE_MAPPINGS), 0);
            assert_int_equal(fake_cuda_live(FAKE_RANGES), 0);
            assert_int_equal(engine_bytes_in_use(f.g), 0);
            assert_int_equal(account_used(f.account), 0);
            assert_int_equal(descriptors(), open);
            assert_true(nth < 2000);
        }
        fake_cuda_reset();
        one_life(&f);
        close_fixture(&f);
        assert_int_equal(mem_live(), live);
    }
}

/* The device is lost at any call: whoever asks is told, nothing is waited for, closing works. */
static void a_lost_device(void **state)
{
    (void)state;
    bool struck = true;
    for (int nth = 1; struck; nth += 3) {
        struct fixture f;
        struct exporting x;
        struct array *a = NULL;
        int64_t live = mem_live();
        open_fixture(&f, nth & 1 ? GRAIN : 2 * SOME, 0);
        fake_cuda_fail(nth, 719);
        enum err_code code = put(&f, SOME / 4 - 7, &a);
        assert_true(code == ERR_OK || code == ERR_DEVICE_LOST);
        for (int write = 0; write <= 1 && a; write++) {
            code = export(&f, a, write, &x);
            if (code == ERR_OK)
                end_export(&x);
            else
                assert_true(code == ERR_DEVICE_LOST || code == ERR_OVERLOADED);
            assert_false(array_is_exported(a));
        }
        array_unref(a);
        settle(&f);
        struck = fake_cuda_failed() != NULL;
        engine_stream_unref(f.s);
        assert_int_equal(engine_bytes_in_use(f.g), 0);
        assert_int_equal(account_used(f.account), 0);
        assert_true(engine_close(f.g));
        account_unref(f.account);
        assert_int_equal(mem_live(), live);
        fake_cuda_reset();
        fake_cuda_fail(0, 0);
        assert_true(nth < 2000);
    }
}

/* What the driver refuses for reasons that are not the device's end: arrays are made all the same,
 * an export says why not, and the next one is none the worse. */
static void refusals_are_not_the_end(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap",
                                        "cuMemSetAccess", "cuMemExportToShareableHandle"};
    static const int codes[] = {304, 800, 801};
    struct fixture f;
    struct exporting x;
    struct array *a;
    for (size_t i = 0; i < 5; i++) {
        open_fixture(&f, GRAIN, 0);
        for (size_t k = 0; k < 3; k++) {
            fake_cuda_reset();
            fake_cuda_fail_call(calls[i], 1, codes[k]);
            assert_int_equal(put(&f, SOME / 4, &a), ERR_OK);
            if (i < 4) { /* ordinary memory */
                settle(&f);
                assert_string_equal(fake_cuda_failed(), calls[i]);
                assert_int_equal(fake_cuda_live(FAKE_HANDLES) + fake_cuda_live(FAKE_RANGES), 0);
                fake_cuda_fail_call(calls[i], 1, codes[k]);
            }
            assert_int_equal(export(&f, a, true, &x), ERR_OVERLOADED);
            assert_non_null(strstr(x.err.message, calls[i]));
            assert_int_equal(export(&f, a, true, &x), ERR_OK);
            shows(&x, SOME / 4);
            end_export(&x);
            holds(&f, a);
            array_unref(a);
            settle(&f);
        }
        fake_cuda_reset();
        close_fixture(&f);
    }
}

/* A machine that cannot: it is said, and everything else goes on. */
static void a_machine_that_cannot(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *a;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            setenv("ARRAYD_FAKE_VMM", "0", 1);
        else
            fake_cuda_fail_call("cuMemExportToShareableHandle", 1, 801);
        open_fixture(&f, GRAIN, 0);
        unsetenv("ARRAYD_FAKE_VMM");
        const char *why = engine_export_problem(f.g, 0);
        assert_non_null(why);
        struct backend_report report;
        engine_report(f.g, &report);
        assert_non_null(strstr(report.warning, why));
        assert_non_null(strstr(why, i == 0 ? "virtual memory management" : "NOT_SUPPORTED"));
        assert_int_equal(put(&f, SOME / 4, &a), ERR_OK);
        assert_int_equal(export(&f, a, false, &x), ERR_FORBIDDEN);
        assert_string_equal(x.err.message, why);
        holds(&f, a);
        array_unref(a);
        close_fixture(&f);
        fake_cuda_reset();
    }
}

/* What the pool keeps makes way for memory for sharing, and what of that was let go of a moment ago
 * for the pool and for the like; both count against the limit. */
static void room(void **state)
{
    (void)state;
    struct fixture f;
    struct array *none;
    struct err e = ERR_INIT;
    for (int i = 0; i < 2; i++) {
        const bool limited = i;
        if (!limited)
            fake_cuda_set_memory((size_t)64 << 20);
        open_fixture(&f, 8 << 20, limited ? 40 << 20 : 0);
        for (int round = 0; round < 6; round++) {
            const bool shared = round != 1 && round != 4;
            struct array *parts[8];
            const int n = shared ? 1 : 8;
            const int64_t size = (int64_t)(shared ? 36 << 20 : (36 << 20) / 8) / 4;
            for (int k = 0; k < n; k++)
                assert_int_equal(engine_zeros(f.s, f.account, DT_F32, 1, &size, &parts[k], &e),
                                 ERR_OK);
            struct export_figures figures;
            engine_export_figures(f.g, &figures);
            assert_int_equal(figures.shareable, shared ? 36 << 20 : 0);
            int64_t much = (int64_t)(32 << 20) / 4;
            assert_int_equal(engine_zeros(f.s, f.account, DT_F32, 1, &much, &none, &e),
                             ERR_OUT_OF_MEMORY);
            assert_int_equal(e.wanted, 32 << 20);
            idle(&f);
            for (int k = 0; k < n; k++)
                array_unref(parts[k]);
        }
        close_fixture(&f);
        fake_cuda_set_memory((size_t)4 << 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books_and_identity),    cmocka_unit_test(a_descriptor_is_made_once),
        cmocka_unit_test(descriptors_run_out),   cmocka_unit_test(it_is_told_when_work_is_over),
        cmocka_unit_test(every_call_fails_once), cmocka_unit_test(refusals_are_not_the_end),
        cmocka_unit_test(a_machine_that_cannot), cmocka_unit_test(room),
        cmocka_unit_test(a_lost_device), /* last: what is lost with it is not counted */
    };
    for (size_t i = 0; i < sizeof ramp / sizeof *ramp; i++)
        ramp[i] = (float)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
