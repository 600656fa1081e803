/* compute/export on the CPU backend: whose memory it is afterwards, and what happens where there is
 * none, or no descriptor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/memory/reclaim.h"
#include "tests/unit/export_front.h"

/* Whoever keeps his mapping sees what he had, and nothing of anybody else. */
static void memory_is_not_given_to_others(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *others[50];
    struct scalar secret = {.dtype = DT_F64, .v.f64 = 4242};
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(export(&f, f.a, true, &x), ERR_OK);
    double *p = map(&x, true);
    end_export(&x);
    array_unref(f.a);
    reclaim_all(f.g->reclaim);
    for (int i = 0; i < 50; i++)
        assert_int_equal(engine_full(f.s, f.account, secret, 1, (int64_t[]){N}, &others[i], NULL),
                         ERR_OK);
    for (int i = 0; i < N; i++) {
        assert_true(p[i] == i);
        p[i] = -1;
    }
    for (int i = 0; i < 50; i++) {
        holds(&f, others[i], 4242);
        array_unref(others[i]);
    }
    unmap(&x, p);
    f.a = NULL;
    close_fixture(&f);
}

/* What nobody was given is used again, by arrays of its size and unless zeros are asked for. */
static const void *memory_of(struct array *a)
{
    pthread_mutex_lock(&a->buffer->engine->lock);
    const void *data = buffer_storage(a->buffer)->data;
    pthread_mutex_unlock(&a->buffer->engine->lock);
    return data;
}

static void memory_is_used_again(void **state)
{
    (void)state;
    struct fixture f;
    struct array *c;
    struct scalar value = {.dtype = DT_F64, .v.f64 = 77};
    const int64_t n = N, less = N - 1;
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(engine_full(f.s, f.account, value, 1, &n, &c, NULL), ERR_OK);
    array_unref(c);
    assert_int_equal(reclaim_kept(f.g->reclaim, 0), PAGE);
    int64_t bytes = engine_bytes_in_use(f.g);
    assert_int_equal(engine_zeros(f.s, f.account, DT_F64, 1, &n, &c, NULL), ERR_OK);
    assert_int_equal(reclaim_kept(f.g->reclaim, 0), PAGE);
    holds(&f, c, 0);
    array_unref(c);
    assert_int_equal(reclaim_kept(f.g->reclaim, 0), 2 * PAGE);
    assert_int_equal(engine_empty(f.s, f.account, DT_F64, 1, &less, &c, NULL), ERR_OK);
    assert_int_equal(reclaim_kept(f.g->reclaim, 0), 2 * PAGE);
    array_unref(c);
    reclaim_all(f.g->reclaim);
    assert_int_equal(reclaim_kept(f.g->reclaim, 0), 0);
    array_unref(f.b);
    const void *was = memory_of(f.a);
    array_unref(f.a);
    assert_int_equal(engine_full(f.s, f.account, value, 1, &n, &f.a, NULL), ERR_OK);
    assert_ptr_equal(memory_of(f.a), was); /* the last that was let go of */
    holds(&f, f.a, 77);
    f.b = NULL;
    assert_int_equal(engine_bytes_in_use(f.g), bytes - PAGE);
    close_fixture(&f);
}

/* But not for ever; every block has its own time. */
static void memory_is_not_kept_for_ever(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct engine *g;
    struct engine_stream *s;
    struct account *account = account_new(0);
    struct array *a[4];
    const int64_t n = N;
    const int open = descriptors();
    config.backend = "cpu";
    config.device.shareable = true;
    config.device.shareable_least = AT_ONCE;
    config.device.shareable_keep_s = 0.2;
    assert_int_equal(engine_open(&config, &g, NULL), ERR_OK);
    assert_int_equal(engine_stream_new(g, 0, &s, NULL), ERR_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(engine_empty(s, account, DT_F64, 1, &n, &a[i], NULL), ERR_OK);
    assert_int_equal(descriptors(), open + 4);
    double begun = clock_ms();
    for (int i = 0; i < 3; i++)
        array_unref(a[i]);
    assert_true(reclaim_kept(g->reclaim, 0) == 3 * PAGE || clock_ms() - begun > 200);
    while (reclaim_kept(g->reclaim, 0) > 0)
        usleep(1000);
    assert_true(clock_ms() - begun >= 200);
    while (descriptors() > open + 1)
        usleep(1000);
    array_unref(a[3]); /* the thread sleeps by now */
    while (descriptors() > open)
        usleep(1000);
    assert_true(clock_ms() - begun >= 400);
    engine_stream_unref(s);
    assert_true(engine_close(g));
    account_unref(account);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool moves = i & 1, write = i & 2;
        int64_t live = mem_live();
        int open = descriptors();
        bool struck = true;
        for (int nth = 1; struck; nth++) {
            struct fixture f;
            struct exporting x;
            open_fixture_sharing(&f, moves ? MOVES : AT_ONCE);
            mem_fail_after(nth, false);
            enum err_code code = export(&f, f.a, write, &x);
            struck = mem_failed() > 0;
            mem_fail_after(0, false);
            assert_true(code == ERR_OK || (struck && code == ERR_OUT_OF_MEMORY));
            if (code == ERR_OK)
                end_export(&x);
            assert_false(array_is_exported(f.a));
            holds_ramp(&f, f.a, 0);
            close_fixture(&f);
            assert_int_equal(mem_live(), live);
            assert_int_equal(descriptors(), open);
            assert_true(nth < 100);
        }
    }
}

static void refusals(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *none;
    open_fixture(&f);
    assert_string_equal(engine_export_problem(f.g, 0), "exports are disabled");
    assert_int_equal(export(&f, f.a, false, &x), ERR_FORBIDDEN);
    close_fixture(&f);
    open_fixture_sharing(&f, MOVES);
    assert_null(engine_export_problem(f.g, 0));
    assert_int_equal(engine_zeros(f.s, f.account, DT_F64, 1, (int64_t[]){0}, &none, NULL), ERR_OK);
    assert_int_equal(export(&f, none, false, &x), ERR_CONFLICT);
    array_unref(none);
    account_set_limits(f.account, 2 * NBYTES + PAGE - NBYTES - 1, 0); /* a byte too little */
    assert_int_equal(export(&f, f.a, false, &x), ERR_QUOTA);
    holds_ramp(&f, f.a, 0);
    account_set_limits(f.account, 2 * NBYTES + PAGE - NBYTES, 0);
    assert_int_equal(export(&f, f.a, false, &x), ERR_OK);
    end_export(&x);
    close_fixture(&f);
}

/* A few descriptors: arrays are made all the same, and what cannot be exported says so. */
static void descriptors_run_out(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct rlimit was, few;
    struct array *all[40] = {NULL};
    int exported = 0, open = descriptors();
    struct scalar one = {.dtype = DT_F64, .v.f64 = 1};
    open_fixture_sharing(&f, AT_ONCE);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 64; /* 16 for these two and the next, 32 for what is exported */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(engine_full(f.s, f.account, one, 1, (int64_t[]){N}, &all[i], NULL),
                         ERR_OK);
    struct export_figures n;
    engine_export_figures(f.g, &n);
    assert_int_equal(n.shareable, 16 * PAGE);
    for (int i = 0; i < 40; i++) {
        enum err_code code = export(&f, all[i], false, &x);
        assert_int_equal(code, exported < 30 ? ERR_OK : ERR_OVERLOADED);
        exported += code == ERR_OK;
        holds(&f, all[i], 1);
        if (code == ERR_OK)
            end_export(&x);
        else
            assert_non_null(strstr(x.err.message, "file descriptors"));
    }
    int taken[64], n_taken = 0; /* by somebody else */
    while ((taken[n_taken] = dup(0)) >= 0)
        n_taken++;
    assert_int_equal(export(&f, all[0], false, &x), ERR_OVERLOADED);
    while (n_taken)
        close(taken[--n_taken]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    for (int i = 0; i < 40; i++)
        array_unref(all[i]);
    close_fixture(&f);
    assert_int_equal(descriptors(), open);
}

/* The process may make no large files: a memfd is one. */
static void no_file_is_so_large(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct rlimit was, little;
    struct array *c;
    const int64_t n = 10000;
    struct scalar one = {.dtype = DT_F64, .v.f64 = 1};
    open_fixture_sharing(&f, AT_ONCE);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little = was;
    little.rlim_cur = PAGE;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(engine_full(f.s, f.account, one, 1, &n, &c, NULL), ERR_OK);
    assert_int_equal(export(&f, c, false, &x), ERR_OVERLOADED);
    assert_non_null(strstr(x.err.message, "File too large"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(export(&f, c, false, &x), ERR_OK);
    end_export(&x);
    array_unref(c);
    close_fixture(&f);
}

static void nothing_leaks(void **state)
{
    (void)state;
    struct fixture f;
    struct exporting x;
    struct array *c;
    int64_t live = mem_live();
    int open = descriptors();
    open_fixture_sharing(&f, MOVES);
    for (int i = 0; i < 1000; i++) {
        struct scalar value = {.dtype = DT_F64, .v.f64 = i};
        assert_int_equal(engine_full(f.s, f.account, value, 1, (int64_t[]){N}, &c, NULL), ERR_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(export(&f, c, k, &x), ERR_OK);
            double *p = map(&x, k);
            assert_true(p[N - 1] == i);
            unmap(&x, p);
            end_export(&x);
        }
        array_unref(c);
    }
    reclaim_all(f.g->reclaim);
    assert_int_equal(descriptors(), open);
    assert_int_equal(engine_bytes_in_use(f.g), 2 * NBYTES);
    close_fixture(&f);
    assert_int_equal(mem_live(), live);
    assert_int_equal(descriptors(), open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_not_given_to_others),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(memory_is_not_kept_for_ever),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(refusals),
        cmocka_unit_test(descriptors_run_out),
        cmocka_unit_test(no_file_is_so_large),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
