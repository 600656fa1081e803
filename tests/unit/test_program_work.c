/* The work that long programs take grows as their statements do: four times as many take four times
 * as much, or somewhat more until every window of the fusing is full, and not sixteen times. What
 * is counted: nodes that are checked and copied, and views that are compared while kernels are
 * fused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/engine_front.h"
#include "tests/unit/program_text.h"

static struct fixture f;
static uint64_t work, checked;

enum err_code __real_check_expr(struct arena *arena, const struct expr *x,
                                const struct check_env *env, int dtype, struct typed *ret,
                                struct err *e);
enum err_code __wrap_check_expr(struct arena *arena, const struct expr *x,
                                const struct check_env *env, int dtype, struct typed *ret,
                                struct err *e);
enum err_code __wrap_check_expr(struct arena *arena, const struct expr *x,
                                const struct check_env *env, int dtype, struct typed *ret,
                                struct err *e)
{
    work += x->n_nodes;
    checked += x->n_nodes;
    return __real_check_expr(arena, x, env, dtype, ret, e);
}

enum err_code __real_expr_append(struct expr *x, const struct expr *from, const uint32_t *swaps,
                                 uint32_t *ret, struct err *e);
enum err_code __wrap_expr_append(struct expr *x, const struct expr *from, const uint32_t *swaps,
                                 uint32_t *ret, struct err *e);
enum err_code __wrap_expr_append(struct expr *x, const struct expr *from, const uint32_t *swaps,
                                 uint32_t *ret, struct err *e)
{
    work += from->n_nodes;
    return __real_expr_append(x, from, swaps, ret, e);
}

void __real_view_extent(const struct view *v, int64_t *lo, int64_t *hi);
void __wrap_view_extent(const struct view *v, int64_t *lo, int64_t *hi);
void __wrap_view_extent(const struct view *v, int64_t *lo, int64_t *hi)
{
    work++;
    __real_view_extent(v, lo, hi);
}

static void wake(void *user)
{
    ++*(int *)user;
}

/* Makes and runs t0 = a, then n times `form`, with its own number and the one before. `all`: every
 * temporary is a result, otherwise the last one. */
static void run(int n, const char *form, bool all)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const char **body = arena_alloc_array(arena, (size_t)n + 2, sizeof(const char *));
    const char **names = arena_alloc_array(arena, (size_t)n + 2, sizeof(const char *));
    struct named_array arrays[] = {{"a", f.a}, {"b", f.b}, {0}};
    struct err e = ERR_INIT;
    struct program *p;
    struct program_progress g;
    int woken = 0;
    body[0] = "t0 = a";
    for (int i = 0; i <= n; i++) {
        body[i] = i ? arena_printf(arena, form, i, i - 1) : body[0];
        names[i] = arena_printf(arena, "t%d", i);
    }
    work = checked = 0;
    assert_int_equal(program_of_text(&(struct program_text){.stream = f.s,
                                                            .account = f.account,
                                                            .arrays = arrays,
                                                            .body = body,
                                                            .results = all ? names : names + n},
                                     &p, &e),
                     ERR_OK);
    program_submit(p, 0, 1, wake, &woken);
    program_collect(p, &g);
    assert_int_equal(g.state, PROGRAM_GOES_ON);
    program_free(p);
}

/* The work of that, with no plans kept. */
static uint64_t work_of(int n, const char *form, bool all)
{
    open_fixture(&f);
    run(n, form, all);
    close_fixture(&f);
    return work;
}

static void chains(void **state)
{
    (void)state;
    static const char *const forms[] = {"t%1$d = roll(t%2$d, 1) + roll(t%2$d, -1) - 2*t%2$d",
                                        "t%1$d = b*0.5 + t%2$d", "t%1$d = t%2$d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        assert_true(work_of(200, forms[i], false) < 8 * work_of(50, forms[i], false));
}

static void many_results(void **state)
{
    (void)state;
    static const char *const forms[] = {"t%1$d = a*%2$d.5", "t%1$d = t%2$d + b"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        assert_true(work_of(200, forms[i], true) < 8 * work_of(50, forms[i], true));
}

static void what_ran_before_is_not_checked_again(void **state)
{
    (void)state;
    open_fixture(&f);
    for (int i = 0; i < 2; i++) {
        run(20, "t%1$d = a*%2$d.5", true);
        assert_true(i ? checked == 0 : checked > 20);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chains), cmocka_unit_test(many_results),
                                       cmocka_unit_test(what_ran_before_is_not_checked_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
