/* Programs without a server: what a slice leaves behind, where each allocation and each job may
 * fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "tests/unit/engine_front.h"
#include "tests/unit/program_text.h"

static struct fixture f;

/* What is recorded is a[1], what ends it a[0] > 5. */
static enum err_code make(const char *const *body, struct program **ret, struct err *e)
{
    struct named_array arrays[] = {{"a", f.a}, {"b", f.b}, {0}};
    return program_of_text(&(struct program_text){.stream = f.s,
                                                  .account = f.account,
                                                  .arrays = arrays,
                                                  .body = body,
                                                  .series = "x = a[1]",
                                                  .until = "x = a[0] > 5",
                                                  .stop_on_nan = true},
                           ret, e);
}

static void wake(void *user)
{
    ++*(int *)user;
}

static struct program_progress run(struct program *p, int64_t step, int64_t n)
{
    struct program_progress g;
    int woken = 0;
    program_submit(p, step, n, wake, &woken);
    assert_true(woken > 0);
    program_collect(p, &g);
    assert_int_not_equal(g.state, PROGRAM_WAITING);
    return g;
}

static double element(struct array *a, int64_t i)
{
    double x;
    struct err e = ERR_INIT;
    struct download *d;
    int woken = 0;
    assert_int_equal(download_new(f.s, a, wake, &woken, &d, &e), ERR_OK);
    assert_int_equal(download_pull(d, i * 8, &x, 8), 8);
    download_free(d);
    return x;
}

static void slices_go_on(void **state)
{
    (void)state;
    static const char *const body[] = {"t = a + 1", "a = t", "b[2:4] += t[2:4]", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    open_fixture(&f);
    assert_int_equal(make(body, &p, &e), ERR_OK);
    assert_int_equal(program_targets(p), 2);
    struct program_progress g = run(p, 0, 3);
    assert_int_equal(g.state, PROGRAM_GOES_ON);
    assert_int_equal(g.steps, 3);
    assert_int_equal(g.n_values, 1);
    enum dtype t;
    const double *values = program_values(p, 0, &t);
    assert_int_equal(t, DT_F64);
    assert_true(values[0] == 3); /* a[1] after two steps */
    assert_true(element(f.a, 7) == 10 && element(f.b, 1) == 100);
    assert_true(element(f.b, 2) == 100 + 3 + 4 + 5);
    g = run(p, 3, 3);
    assert_int_equal(g.state, PROGRAM_UNTIL);
    program_rest(p);
    assert_int_equal(program_wake(p, &e), ERR_OK);
    assert_int_equal(run(p, 6, 1).state, PROGRAM_GOES_ON);
    assert_true(element(f.a, 0) == 7);
    program_free(p);
    close_fixture(&f);
}

/* What is the same for all elements is read anew in each step. */
static void a_number_changes(void **state)
{
    (void)state;
    static const char *const body[] = {"b = b + 1", "a = a + b[0]", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    open_fixture(&f);
    assert_int_equal(make(body, &p, &e), ERR_OK);
    assert_int_equal(run(p, 0, 3).state, PROGRAM_UNTIL);
    assert_true(element(f.a, 7) == 7 + 3 * 100 + 6);
    assert_int_equal(run(p, 3, 2).state, PROGRAM_GOES_ON); /* nobody asks */
    assert_true(element(f.a, 7) == 7 + 5 * 100 + 15);
    program_free(p);
    close_fixture(&f);
}

/* In loops, wholes are made for a backend that runs them there: the CPU's does not. */
static void wholes_are_for_who_runs_them(void **state)
{
    (void)state;
    static const char *const body[] = {"b = (a - mean(a))/(max(a) + 1)", "a = b/2", NULL};
    for (int bound = 0; bound < 2; bound++) {
        struct err e = ERR_INIT;
        struct program *p;
        open_fixture(&f);
        assert_false(front.ops.wholes_bound);
        front.ops.wholes_bound = bound;
        assert_int_equal(make(body, &p, &e), ERR_OK);
        assert_int_equal(run(p, 0, 3).state, PROGRAM_GOES_ON);
        assert_int_equal(front.bound_wholes > 0, bound);
        program_free(p);
        close_fixture(&f);
    }
}

/* A slice that goes too far leaves nothing, and the next one knows where to stop. */
static void a_slice_that_goes_too_far(void **state)
{
    (void)state;
    static const char *const grows[] = {"a = a + 1", NULL}, *const roots[] = {"b = sqrt(b) - 3",
                                                                              "a = a*1", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    open_fixture(&f);
    assert_int_equal(make(grows, &p, &e), ERR_OK);
    assert_int_equal(program_slice_limit(p, 0, 100), 100);
    struct program_progress g = run(p, 0, 100);
    assert_int_equal(g.state, PROGRAM_AGAIN);
    assert_int_equal(g.steps, 0);
    assert_true(element(f.a, 7) == 7);
    assert_int_equal(program_slice_limit(p, 0, 100), 6); /* a[0] > 5, asked after 3 and 6 */
    g = run(p, 0, 6);
    assert_int_equal(g.state, PROGRAM_UNTIL);
    assert_int_equal(g.n_values, 3);
    assert_true(element(f.a, 7) == 13);
    assert_int_equal(program_slice_limit(p, 6, 100), 100);
    program_free(p);

    /* 100, 7, -0.35, NaN */
    assert_int_equal(make(roots, &p, &e), ERR_OK);
    int64_t at = 0, n, slices = 0;
    for (n = 50; (g = run(p, at, n)).state != PROGRAM_NAN; slices++) {
        assert_in_range(slices, 0, 9);
        at = g.state == PROGRAM_GOES_ON ? g.steps : at;
        n = program_slice_limit(p, at, 50);
        assert_in_range(n, 1, 25);
    }
    assert_int_equal(at, 2);
    assert_int_equal(g.steps, 2);
    assert_true(element(f.b, 0) == sqrt(7) - 3);
    program_free(p);
    close_fixture(&f);
}

/* The first slice is as long as one of the same program before it was. */
static void what_a_step_took_is_remembered(void **state)
{
    (void)state;
    static const char *const body[] = {"b = b + 1", "a = a*1", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    open_fixture(&f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(make(body, &p, &e), ERR_OK);
        int64_t n = 0;
        assert_int_equal(program_first_slice(p, 0, 100, 10e-3, &n, &e), ERR_OK);
        if (i == 0)
            assert_in_range(n, 1000, 10000); /* a few microseconds, not knowing better */
        else
            assert_int_equal(n, 10);
        front.device_ms =
            1; /* of a piece of work; the last has one step, values coming before it */
        assert_int_equal(run(p, 0, 100).state, PROGRAM_GOES_ON);
        front.device_ms = 0;
        program_free(p);
    }
    close_fixture(&f);
}

/* Memory that a download holds is not written: the statements go one by one then. */
static void downloads_are_in_the_way_for_a_slice(void **state)
{
    (void)state;
    static const char *const body[] = {"a = a + 1", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    struct download *d;
    int woken = 0;
    double x;
    open_fixture(&f);
    assert_int_equal(make(body, &p, &e), ERR_OK);
    assert_int_equal(download_new(f.s, f.a, wake, &woken, &d, &e), ERR_OK);
    const bool alone[] = {false, true, false, false}; /* the second gets other memory */
    for (int i = 0; i < 4; i++) {
        if (i == 3)
            download_free(d);
        assert_int_equal(run(p, i, 1).state, PROGRAM_GOES_ON);
        assert_int_equal(program_report(p).kernels == 0, alone[i]);
        if (i < 3)
            assert_int_equal(download_pull(d, 0, &x, 8), 8);
        assert_true(x == 0 && element(f.a, 0) == i + 1);
    }
    program_free(p);
    close_fixture(&f);
}

/* Kernels of a slice of one step, those of what is looked at included. */
static int kernels_of(const char *const *body)
{
    struct err e = ERR_INIT;
    struct program *p;
    struct program_progress g;
    int woken = 0;
    assert_int_equal(make(body, &p, &e), ERR_OK);
    uint64_t before = atomic_load(&f.g->kernels);
    program_submit(p, 0, 1, wake, &woken);
    int kernels = (int)(atomic_load(&f.g->kernels) - before);
    program_collect(p, &g);
    assert_int_equal(g.state, PROGRAM_GOES_ON);
    program_free(p);
    return kernels;
}

/* A temporary is no work of its own, and statements that read the same are one; what it is made of
 * is what was there when its turn came. */
static void temporaries_are_written_out(void **state)
{
    (void)state;
    static const char *const one[] = {"b = b + a*2", NULL},
                             *const two[] = {"t = a*2", "b += t", NULL},
                             *const chain[] = {"n = 1",     "s = n + 1", "t = a*s",
                                               "x = t + 0", "b += x",    NULL},
                             *const twice[] = {"t = a*2", "b += t", "a = t", NULL},
                             *const both[] = {"b = b + a*2", "a = a*2", NULL},
                             *const stale[] = {"t = a*2", "a = a + 1", "b += t", NULL},
                             *const plain[] = {"a = a + 1", "b = b + 1", NULL},
                             *const counts[] = {"t = index(0) + a", "b += t", NULL};
    open_fixture(&f);
    int single = kernels_of(one), pair = kernels_of(both);
    assert_int_equal(kernels_of(two), single);
    assert_int_equal(kernels_of(chain), single);
    assert_int_equal(kernels_of(counts), single);
    assert_int_equal(kernels_of(twice), pair);
    assert_int_equal(kernels_of(plain), pair + 1); /* nothing in common */
    double a = element(f.a, 3), b = element(f.b, 3);
    assert_int_equal(kernels_of(stale), pair);
    assert_true(element(f.a, 3) == a + 1 && element(f.b, 3) == b + 2 * a);
    close_fixture(&f);
}

/* What others write while a slice is under way is not lost: the slice comes to nothing. */
static void what_others_write_counts(void **state)
{
    (void)state;
    static const char *const body[] = {"a = a*2", "b = b + 1", NULL};
    struct err e = ERR_INIT;
    struct program *p;
    struct program_progress g;
    int woken = 0;
    open_fixture(&f);
    assert_int_equal(make(body, &p, &e), ERR_OK);
    program_submit(p, 0, 1, wake, &woken);
    assert_int_equal(evaluate(&f, "a*0", f.a, NULL), ERR_OK);
    program_collect(p, &g);
    assert_int_equal(g.state, PROGRAM_AGAIN);
    assert_int_equal(g.steps, 0);
    holds(&f, f.a, 0);
    holds(&f, f.b, 100);
    assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
    holds(&f, f.a, 0);
    holds(&f, f.b, 101);
    program_free(p);
    close_fixture(&f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const body[] = {"t = a + 1", "a[1:] = t[1:]", "b += sum(t)", NULL};
    open_fixture(&f);
    f.g->backend->ops = front.real; /* its own allocations fail, too */
    for (int nth = 1;; nth++) {
        double a = element(f.a, 3), b = element(f.b, 3);
        struct err e = ERR_INIT;
        struct program *p = NULL;
        struct program_progress g = {.state = PROGRAM_GOES_ON};
        int woken = 0;
        mem_fail_after(nth, false);
        enum err_code code = make(body, &p, &e);
        if (code == ERR_OK) {
            program_submit(p, 0, 2, wake, &woken);
            program_collect(p, &g);
        }
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        if (!failed)
            assert_int_equal(code, ERR_OK);
        if (code != ERR_OK || g.state != PROGRAM_GOES_ON) {
            assert_true(failed);
            if (g.state != PROGRAM_AGAIN) /* the second step: the first can be had by itself */
                assert_int_equal(code != ERR_OK ? code : g.err.code, ERR_OUT_OF_MEMORY);
            else
                assert_int_equal(program_slice_limit(p, 0, 2), 1);
            assert_true(element(f.a, 3) == a && element(f.b, 3) == b);
        } else {
            assert_true(element(f.a, 3) == a + 2);
        }
        if (code == ERR_OK && failed) { /* and it can go on */
            assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
        }
        program_free(p);
        if (!failed)
            break;
    }
    close_fixture(&f);
}

/* Each job of a slice fails when its turn comes; the arrays are as they were. */
static void each_job_fails(struct program *p)
{
    struct program_progress g;
    bool all = false;
    for (int nth = 0; !all; nth++) {
        int woken = 0, jobs = 0;
        hold();
        program_submit(p, 0, 2, wake, &woken);
        program_collect(p, &g);
        assert_int_equal(g.state, PROGRAM_WAITING);
        for (all = true; front.head; jobs++) {
            all &= jobs != nth;
            end(jobs == nth ? ERR_OUT_OF_MEMORY : ERR_OK);
        }
        front.hold = false;
        assert_true(woken > 0);
        program_collect(p, &g);
        if (all)
            break;
        assert_int_equal(g.state, PROGRAM_FAILED);
        assert_int_equal(g.err.code, ERR_OUT_OF_MEMORY);
        assert_in_range(g.failed_in, 1, 2);
        holds_ramp(&f, f.a, 0);
        holds(&f, f.b, 100);
    }
    assert_int_equal(g.state, PROGRAM_GOES_ON);
    assert_true(element(f.a, 3) == 18); /* 2*(2*(3 + 1) + 1) */
}

/* As one piece of work, and each statement by itself, which is how it goes where the kernels of the
 * first cannot be compiled. */
static void every_job_may_fail(void **state)
{
    (void)state;
    static const char *const body[] = {"t = a + 1", "a = t*2", "b[0:4] -= t[0:4]", NULL};
    for (int plain = 0; plain < 2; plain++) {
        struct err e = ERR_INIT;
        struct program *p;
        struct program_progress g;
        open_fixture(&f);
        assert_int_equal(make(body, &p, &e), ERR_OK);
        if (plain) {
            front.at_once = ERR_INTERNAL;
            g = run(p, 0, 2);
            assert_int_equal(g.state, PROGRAM_AGAIN);
            assert_int_equal(g.steps, 0);
        }
        front.at_once = plain ? ERR_INTERNAL : ERR_OUT_OF_MEMORY;
        g = run(p, 0, 2);
        assert_int_equal(g.state, PROGRAM_FAILED);
        assert_int_equal(g.steps, 0);
        assert_int_equal(g.failed_in, 1);
        assert_int_equal(g.statement, -1); /* none by itself, or none yet: what is looked at */
        holds_ramp(&f, f.a, 0);
        each_job_fails(p);
        program_free(p);
        close_fixture(&f);
    }
}

struct seen {
    int kernels, named;
    int32_t last_statement;
};

static enum err_code see(void *user, const struct program_kernel *k, struct err *e)
{
    struct seen *seen = user;
    (void)e;
    seen->kernels++;
    seen->last_statement = k->statement;
    for (uint32_t i = 0; i < k->kernel->n_inputs; i++)
        seen->named += k->inputs[i] && (!strcmp(k->inputs[i], "a") || !strcmp(k->inputs[i], "b"));
    return ERR_OK;
}

/* What is told is what a step is then; nothing is submitted, whichever allocation fails, and the
 * program goes on as if nothing had been asked. */
static void explains(void **state)
{
    (void)state;
    static const char *const fused[] = {"t = a + 1", "b += t", "a = t", NULL},
                             *const plain[] = {"i = astype(a, 'int64')*0", "a = take(b, i)", NULL};
    open_fixture(&f);
    for (int loop = 0; loop < 2; loop++) {
        struct err e = ERR_INIT;
        struct program *p;
        struct loop_report r;
        assert_int_equal(make(loop ? fused : plain, &p, &e), ERR_OK);
        uint64_t issued = front.issued;
        for (int nth = 1;; nth++) {
            struct seen seen = {0};
            mem_fail_after(nth, false);
            enum err_code code = program_explain(p, 5, see, &seen, &r, &e);
            bool failed = mem_failed() > 0;
            mem_fail_after(0, false);
            assert_int_equal(code, failed && code != ERR_OK ? ERR_OUT_OF_MEMORY : ERR_OK);
            if (failed)
                continue;
            assert_int_equal(r.steps, 1);
            assert_non_null(r.why);
            assert_true(seen.kernels > 0 && seen.named > 0);
            assert_int_equal(r.kernels, loop ? seen.kernels : 0);
            assert_int_equal(seen.last_statement, loop ? -1 : 1);
            break;
        }
        assert_true(front.issued == issued);
        assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
        assert_string_equal(program_report(p).why, r.why);
        program_free(p);
    }
    close_fixture(&f);
}

/* Results, those that are fetched with their bytes, and what the caller makes of them before the
 * arrays change: where that fails, or somebody else writes, nothing has changed. */
static enum err_code look_at_results(void *user, struct program_slice *made, struct err *e)
{
    int *asked = user;
    assert_int_equal(made->steps, 1);
    assert_int_equal(made->n_values, 0);
    assert_true(!made->until && !made->copies);
    holds_ramp(&f, f.a, 0);
    return ++*asked == 1 ? err_set(e, ERR_QUOTA, "not yet") : ERR_OK;
}

static enum err_code make_once(struct program **ret, struct err *e)
{
    static const char *const body[] = {"t = a + 1", "b += t", "n = 2", "a = t*n", NULL},
                             *const results[] = {"t", "n", "a", NULL};
    struct named_array arrays[] = {{"a", f.a}, {"b", f.b}, {0}};
    return program_of_text(&(struct program_text){.stream = f.s,
                                                  .account = f.account,
                                                  .arrays = arrays,
                                                  .body = body,
                                                  .results = results},
                           ret, e);
}

static void results(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct program *p;
    struct program_progress g;
    int asked = 0, woken = 0;
    open_fixture(&f);
    assert_int_equal(make_once(&p, &e), ERR_OK);
    assert_int_equal(program_targets(p), 2);
    assert_int_equal(program_result(p, 0)->view.rank, 1);
    assert_int_equal(program_result(p, 1)->dtype, DT_I64);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(program_fetch(p, i, &e), ERR_OK);
    program_on_ready(p, look_at_results, &asked);
    g = run(p, 0, 1);
    assert_int_equal(g.state, PROGRAM_FAILED);
    assert_int_equal(g.err.code, ERR_QUOTA);
    holds_ramp(&f, f.a, 0);
    holds(&f, f.b, 100);
    program_submit(p, 0, 1, wake, &woken);
    assert_int_equal(evaluate(&f, "b + 1", f.b, NULL), ERR_OK);
    program_collect(p, &g);
    assert_int_equal(g.state, PROGRAM_AGAIN);
    assert_int_equal(run(p, 0, 1).state, PROGRAM_GOES_ON);
    assert_int_equal(asked, 3);
    const double *t = program_result_bytes(p, 0);
    const int64_t *n = program_result_bytes(p, 1);
    assert_true(t[0] == 1 && t[7] == 8 && *n == 2 && !program_result_bytes(p, 2));
    assert_true(element(f.a, 7) == 16 && element(f.b, 7) == 101 + 8);
    assert_true(element(program_result(p, 2), 7) == 16);
    program_free(p);
    close_fixture(&f);
}

static void every_allocation_for_results_may_fail(void **state)
{
    (void)state;
    open_fixture(&f);
    f.g->backend->ops = front.real; /* its own allocations fail, too */
    for (int nth = 1;; nth++) {
        struct err e = ERR_INIT;
        struct program *p = NULL;
        struct program_progress g = {.state = PROGRAM_GOES_ON};
        int woken = 0;
        mem_fail_after(nth, false);
        enum err_code code = make_once(&p, &e);
        if (code == ERR_OK)
            code = program_fetch(p, 0, &e);
        if (code == ERR_OK) {
            program_submit(p, 0, 1, wake, &woken);
            program_collect(p, &g);
        }
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_true(code == ERR_OK || (failed && code == ERR_OUT_OF_MEMORY));
        program_free(p);
        if (!failed) {
            assert_int_equal(g.state, PROGRAM_GOES_ON);
            break;
        }
        if (code == ERR_OK && g.state == PROGRAM_GOES_ON) { /* one that could be done without */
            assert_int_equal(evaluate(&f, "a/2 - 1", f.a, NULL), ERR_OK);
            assert_int_equal(evaluate(&f, "b - a - 1", f.b, NULL), ERR_OK);
        }
        holds_ramp(&f, f.a, 0);
        holds(&f, f.b, 100);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_go_on),
        cmocka_unit_test(a_number_changes),
        cmocka_unit_test(wholes_are_for_who_runs_them),
        cmocka_unit_test(what_a_step_took_is_remembered),
        cmocka_unit_test(a_slice_that_goes_too_far),
        cmocka_unit_test(downloads_are_in_the_way_for_a_slice),
        cmocka_unit_test(temporaries_are_written_out),
        cmocka_unit_test(what_others_write_counts),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_job_may_fail),
        cmocka_unit_test(explains),
        cmocka_unit_test(results),
        cmocka_unit_test(every_allocation_for_results_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
