/* compute/memory/chunk by the engine's door, on both backends (the GPU's on the fake driver): whose
 * memory a keeper has, what becomes of it, and what happens where there is no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "protocol/text/infix.h"
#include "tests/unit/chunk_front.h"

#define OOM 2

static void the_keeper_has_every_array(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1,    2,       127,         128,     129,         250,
                                    5000, OWN / 8, OWN / 4 - 1, OWN / 4, OWN / 4 + 1, LARGE};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    /* on the CPU what would leave less than half a chunk has one of its own, too */
    static const int64_t own_from[] = {[CPU] = OWN / 8 + 1, [CUDA] = OWN / 4};
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct array *a[SIZES];
        int64_t in_pieces = 0;
        open_fixture(&f, which);
        for (int i = 0; i < SIZES; i++) {
            a[i] = put(&f, sizes[i]);
            in_pieces += sizes[i] < own_from[which] ? sizes[i] * 4 : 0;
        }
        settle(&f);
        assert_int_equal(f.keeper.puts, 5);
        for (int i = 0; i < SIZES; i++) {
            holds(&f, a[i], sizes[i]);
            keeper_has(&f, a[i], sizes[i]);
            assert_int_equal(storage_share(storage_of(a[i])) != NULL, sizes[i] >= own_from[which]);
        }
        struct chunk_figures figures;
        chunk_figures(f.g, &figures);
        assert_int_equal(figures.chunks, 5);
        assert_int_equal(figures.bytes,
                         engine_bytes_in_use(f.g) + (which == CPU ? 1 : 2) * OWN - in_pieces);
        for (int i = 0; i < SIZES; i++)
            array_unref(a[i]);
        close_fixture(&f);
    }
}

/* What was let go of is used again, and the keeper is not asked. */
static void chunks_are_used_again(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        open_fixture(&f, which);
        for (int i = 0; i < 20; i++) {
            struct array *small = put(&f, 100), *large = put(&f, LARGE);
            int tries = 0;
            while (engine_jobs_in_flight(f.g) > 0)
                pause_a_little(&tries);
            array_unref(small);
            array_unref(large);
        }
        assert_true(f.keeper.puts <= 4); /* the thread that ends an upload may be late */
        close_fixture(&f);
    }
}

static void zeros_are_zeros(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        const int64_t sizes[] = {1, 1000, LARGE};
        open_fixture(&f, which);
        for (int i = 0; i < 3; i++) {
            const int64_t n = sizes[i];
            struct array *a = put(&f, n), *keep = put(&f, 7), *zeros;
            holds(&f, a, n);
            array_unref(a);
            assert_int_equal(engine_zeros(f.s, f.account, DT_F32, 1, &n, &zeros, NULL), ERR_OK);
            assert_int_equal(get_array(f.s, zeros, got), ERR_OK);
            for (int64_t k = 0; k < n; k++)
                assert_true(got[k] == 0);
            holds(&f, keep, 7);
            array_unref(keep);
            array_unref(zeros);
        }
        close_fixture(&f);
    }
}

/* The engine's lock is not held, so that nobody waits for the driver, and the keeper. */
static struct fixture *unlocked;

static enum err_code put_unlocked(void *user, uint64_t chunk, int device, int64_t size,
                                  const int *fds, int n, struct err *e)
{
    assert_int_equal(pthread_mutex_trylock(&unlocked->g->lock), 0);
    pthread_mutex_unlock(&unlocked->g->lock);
    return keeper_put(user, chunk, device, size, fds, n, e);
}

static void is_done(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    atomic_store((_Atomic int *)user, (int)result);
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct array *a = user;
    (void)name, (void)e;
    *ret = (struct binding){.kind = BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

static struct array *evaluate(struct fixture *f, const char *text, struct array *a,
                              struct array *out)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct expr expr;
    struct err e = ERR_INIT;
    uint32_t source;
    struct check_env env = {.resolve = resolve, .user = a, .max_inputs = 64};
    expr_init(&expr, arena, 10000, 400);
    assert_int_equal(expr_add_source(&expr, "/expr", &source, NULL), ERR_OK);
    assert_int_equal(infix_parse(&expr, source, text, strlen(text), &expr.root, &e), ERR_OK);
    struct eval_request req = {.expr = &expr, .env = &env, .dtype = -1, .out = out};
    struct array *ret = NULL;
    if (engine_evaluate(f->s, f->account, &req, &ret, NULL, NULL, NULL, &e) != ERR_OK)
        fail_msg("%s", e.message);
    settle(f);
    return ret;
}

static void chunks_are_made_without_the_lock(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        _Atomic int done = -1;
        int tries = 0;
        open_fixture(&f, which);
        struct array *a = put(&f, LARGE);
        settle(&f);
        unlocked = &f;
        f.g->keep.put = put_unlocked;
        array_unref(evaluate(&f, "a + 1", a, NULL)); /* a new result */
        settle(&f);
        array_unref(evaluate(&f, "shift(a, 1, 'wrap')", a, a)); /* in place of the old one */
        assert_int_equal(engine_move(f.s, a, true, is_done, (void *)&done, NULL), ERR_OK);
        while (atomic_load(&done) < 0)
            pause_a_little(&tries);
        settle(&f);
        array_unref(evaluate(&f, "sum(a)", a, NULL)); /* it comes back */
        assert_false(array_in_host_memory(a));
        array_unref(a);
        close_fixture(&f);
    }
}

static void beyond_the_limit(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct array *a[6];
        struct engine_config config = ENGINE_CONFIG_DEFAULT;
        config.max_chunks = 3;
        open_with(&f, which, &config);
        for (int i = 0; i < 6; i++)
            a[i] = put(&f, i & 1 ? LARGE : 100);
        assert_int_equal(f.keeper.puts, 3);
        for (int i = 0; i < 6; i++) {
            holds(&f, a[i], i & 1 ? LARGE : 100);
            assert_int_equal(storage_of(a[i])->chunk != NULL, i < 5);
        }
        array_unref(a[3]);
        settle(&f);
        a[3] = put(&f, LARGE); /* there is one again */
        assert_non_null(storage_of(a[3])->chunk);
        for (int i = 0; i < 6; i++)
            array_unref(a[i]);
        close_fixture(&f);
    }
}

static void beyond_the_cells(void **state)
{
    (void)state;
    struct fixture f;
    struct array *a[3];
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.max_kept = 2;
    open_with(&f, CPU, &config);
    for (int i = 0; i < 3; i++) {
        a[i] = put(&f, 100);
        assert_int_equal(storage_of(a[i])->cell != 0, i < 2);
    }
    holds(&f, a[2], 100);
    array_unref(a[0]);
    struct array *again = put(&f, 100);
    assert_int_not_equal(storage_of(again)->cell, 0);
    array_unref(again);
    array_unref(a[1]);
    array_unref(a[2]);
    close_fixture(&f);
}

/* The flags of the mapping that has the address, as the kernel has them. */
static void flags_of(const void *at, char ret[256])
{
    char line[512];
    unsigned long begin, end;
    bool is_in = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    *ret = '\0';
    while (!*ret && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_in = (uintptr_t)at >= begin && (uintptr_t)at < end;
        else if (is_in && !strncmp(line, "VmFlags:", 8))
            snprintf(ret, 256, "%.255s", line);
    }
    fclose(f);
}

/* Where the system allows them for shared memory on request. */
static void huge_pages_are_asked_for(void **state)
{
    (void)state;
    struct fixture f;
    char flags[256];
    if (access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", F_OK) != 0)
        skip();
    open_fixture(&f, CPU);
    struct array *small = put(&f, 100), *large = put(&f, LARGE), *odd = put(&f, OWN / 4 + 1);
    flags_of(storage_of(small)->data, flags);
    assert_non_null(strstr(flags, " hg"));
    flags_of(storage_of(large)->data, flags);
    assert_non_null(strstr(flags, " hg"));
    flags_of(storage_of(odd)->data, flags); /* would take nearly twice its memory */
    assert_null(strstr(flags, " hg"));
    array_unref(small);
    array_unref(large);
    array_unref(odd);
    close_fixture(&f);
}

/* KiB of the mapping that has the address in memory. */
static long resident(const void *at)
{
    char line[512];
    unsigned long begin, end;
    long kib = -1;
    bool is_in = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_in = (uintptr_t)at >= begin && (uintptr_t)at < end;
        else if (is_in)
            (void)!sscanf(line, "Rss: %ld kB", &kib);
    }
    fclose(f);
    return kib;
}

/* Of what is to be written as a whole; zeros may never be touched. */
static void pages_are_made_ahead(void **state)
{
    (void)state;
    struct fixture f;
    const int64_t n = INT64_C(40) << 20;
    struct array *a, *zeros;
    int tries = 0;
    open_fixture(&f, CPU);
    assert_int_equal(engine_zeros(f.s, f.account, DT_U8, 1, &n, &zeros, NULL), ERR_OK);
    assert_int_equal(engine_empty(f.s, f.account, DT_U8, 1, &n, &a, NULL), ERR_OK);
    if (madvise(storage_of(a)->data, 4096, 23 /* MADV_POPULATE_WRITE */) == 0)
        while (resident(storage_of(a)->data) < n >> 10)
            pause_a_little(&tries);
    assert_int_equal(resident(storage_of(zeros)->data), 0);
    array_unref(a);
    array_unref(zeros);
    for (int i = 0; i < 200; i++) { /* gone before they are made, sizes of their own */
        const int64_t size = n + ((int64_t)(i % 50) << 12);
        assert_int_equal(engine_empty(f.s, f.account, DT_U8, 1, &size, &a, NULL), ERR_OK);
        array_unref(a);
        if (i % 3 == 0)
            reclaim_all(f.g->reclaim);
    }
    close_fixture(&f);
}

static void a_machine_that_cannot(void **state)
{
    (void)state;
    struct fixture f;
    struct backend_report report;
    setenv("ARRAYD_FAKE_VMM", "0", 1);
    open_fixture(&f, CUDA);
    unsetenv("ARRAYD_FAKE_VMM");
    assert_non_null(engine_keep_problem(f.g, 0));
    engine_report(f.g, &report);
    assert_non_null(strstr(report.warning, "do not outlive"));
    struct array *small = put(&f, 100), *large = put(&f, LARGE);
    holds(&f, small, 100);
    holds(&f, large, LARGE);
    assert_int_equal(f.keeper.puts, 0);
    array_unref(small);
    array_unref(large);
    close_fixture(&f);
    open_fixture(&f, CUDA);
    engine_report(f.g, &report);
    assert_string_equal(report.warning, "");
    close_fixture(&f);
}

/* Arrays come and go while calls of `fail` fail; what is had holds what it is to hold. */
static bool one_life(struct fixture *f)
{
    static const int64_t sizes[] = {100, 3000, LARGE, 100, OWN / 4};
    struct array *a[5] = {NULL};
    bool all = true;
    for (int i = 0; i < 5; i++) {
        enum err_code code = i == 3
                                 ? engine_zeros(f->s, f->account, DT_F32, 1, &sizes[i], &a[i], NULL)
                                 : put_array(f->s, f->account, ramp, 1, &sizes[i], &a[i]);
        assert_true(code == ERR_OK || code == ERR_OUT_OF_MEMORY);
        all &= code == ERR_OK;
    }
    for (int i = 0; i < 5; i++) {
        if (a[i] && i != 3 && get_array(f->s, a[i], got) == ERR_OK)
            assert_memory_equal(got, ramp, (size_t)sizes[i] * 4);
        array_unref(a[i]);
    }
    settle(f);
    assert_int_equal(f->keeper.n, 0);
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    assert_int_equal(account_used(f->account), 0);
    return all;
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, CPU);
    (void)one_life(&f);
    for (int64_t nth = 1, failed = 1; failed; nth++) {
        mem_fail_after(nth, false);
        (void)one_life(&f);
        failed = mem_failed();
        mem_fail_after(0, false);
        assert_true(nth < 2000);
    }
    close_fixture(&f);
}

static void every_driver_call_fails_once(void **state)
{
    (void)state;
    static const int codes[] = {OOM, 801};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        open_fixture(&f, CUDA);
        (void)one_life(&f);
        const long bytes = fake_cuda_live(FAKE_BYTES);
        bool struck = true;
        static const char *const calls[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap",
                                            "cuMemSetAccess", "cuMemExportToShareableHandle"};
        for (int nth = 1; struck; nth++) {
            fake_cuda_reset();
            if (i == 0)
                fake_cuda_fail(nth, codes[i]);
            else /* others are the device's end */
                fake_cuda_fail_call(calls[nth % 5], nth / 5 + 1, codes[i]);
            (void)one_life(&f);
            struck = fake_cuda_failed() != NULL;
            fake_cuda_fail(0, 0);
            assert_int_equal(fake_cuda_live(FAKE_BYTES), bytes);
            assert_int_equal(fake_cuda_live(FAKE_HANDLES), 0);
            assert_int_equal(fake_cuda_live(FAKE_RANGES), 0);
            assert_true(nth < 2000);
        }
        fake_cuda_reset();
        assert_true(one_life(&f));
        close_fixture(&f);
    }
}

/* It is no piece; on the CPU it outlives the process all the same. */
static void is_alone(const struct array *a, int which)
{
    const struct chunk *c = storage_of(a)->chunk;
    assert_int_equal(c != NULL, which == CPU);
    assert_true(!c || (!c->cut && c->number && c->share.size == 4096));
}

/* Close to the device's limit a small array is made all the same. */
static void no_room_for_a_chunk(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct engine_config config = ENGINE_CONFIG_DEFAULT;
        config.device.memory_limit = 2 * OWN + OWN / 2;
        open_with(&f, which, &config);
        struct array *large = put(&f, LARGE), *small = put(&f, 100);
        is_alone(small, which);
        holds(&f, small, 100);
        array_unref(large);
        array_unref(small);
        settle(&f);
        struct array *again = put(&f, 100);
        assert_non_null(storage_of(again)->chunk);
        array_unref(again);
        close_fixture(&f);
        /* nor is the last of the room taken, which other memory may need */
        config.device.memory_limit = 2 * OWN - 1;
        open_with(&f, which, &config);
        small = put(&f, 100);
        is_alone(small, which);
        array_unref(small);
        close_fixture(&f);
    }
}

/* --- many threads --- */

struct member {
    struct fixture *f;
    struct engine_stream *s;
    unsigned seed;
    pthread_t thread;
};

static void *member_run(void *user)
{
    struct member *m = user;
    struct array *a[16] = {NULL};
    float own[2000];
    for (int i = 0; i < 600; i++) {
        m->seed = m->seed * 1664525u + 1013904223u;
        const int which = (int)(m->seed >> 12) % 16;
        const int64_t n = 1 + (int64_t)((m->seed >> 16) % 2000);
        if (a[which]) {
            int64_t had = array_nbytes(a[which]) / 4;
            if (get_array(m->s, a[which], own) != ERR_OK || memcmp(own, ramp, (size_t)had * 4) != 0)
                abort();
            array_unref(a[which]);
            a[which] = NULL;
        } else if (put_array(m->s, m->f->account, ramp, 1, &n, &a[which]) != ERR_OK) {
            abort();
        }
    }
    for (int i = 0; i < 16; i++)
        array_unref(a[i]);
    return NULL;
}

static void a_crowd(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct member all[4];
        open_fixture(&f, which);
        for (unsigned i = 0; i < 4; i++) {
            all[i] = (struct member){.f = &f, .seed = i};
            assert_int_equal(engine_stream_new(f.g, 0, &all[i].s, NULL), ERR_OK);
            assert_int_equal(pthread_create(&all[i].thread, NULL, member_run, &all[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(all[i].thread, NULL);
            engine_stream_unref(all[i].s);
        }
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_keeper_has_every_array),
        cmocka_unit_test(chunks_are_used_again),
        cmocka_unit_test(zeros_are_zeros),
        cmocka_unit_test(chunks_are_made_without_the_lock),
        cmocka_unit_test(beyond_the_limit),
        cmocka_unit_test(beyond_the_cells),
        cmocka_unit_test(huge_pages_are_asked_for),
        cmocka_unit_test(pages_are_made_ahead),
        cmocka_unit_test(a_machine_that_cannot),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(every_driver_call_fails_once),
        cmocka_unit_test(no_room_for_a_chunk),
        cmocka_unit_test(a_crowd),
    };
    for (size_t i = 0; i < sizeof ramp / sizeof *ramp; i++)
        ramp[i] = (float)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
