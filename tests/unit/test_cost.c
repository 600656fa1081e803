/* What an expression costs: nodes times elements, counted plainly beside it; the bound on it, and
 * that nothing overflows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/engine/engine.h"
#include "compute/engine/run.h"
#include "compute/memory/memory_int.h"
#include "protocol/text/infix.h"

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct array *a, *b, *c; /* float64: (6, 5), (5,), (6, 1) */
};

static struct array *array_of(struct fixture *f, int rank, const int64_t *shape)
{
    struct array *a = NULL;
    assert_int_equal(engine_zeros(f->s, f->account, DT_F64, rank, shape, &a, NULL), ERR_OK);
    return a;
}

static void open_fixture(struct fixture *f, int64_t max_cost)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    config.max_cost = max_cost;
    assert_int_equal(engine_open(&config, &f->g, NULL), ERR_OK);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, NULL), ERR_OK);
    f->account = account_new(0);
    f->a = array_of(f, 2, (int64_t[]){6, 5});
    f->b = array_of(f, 1, (int64_t[]){5});
    f->c = array_of(f, 2, (int64_t[]){6, 1});
}

static void close_fixture(struct fixture *f)
{
    array_unref(f->a);
    array_unref(f->b);
    array_unref(f->c);
    engine_stream_unref(f->s);
    account_unref(f->account);
    assert_true(engine_close(f->g));
}

static enum err_code resolve(void *user, const char *name, struct binding *ret, struct err *e)
{
    struct fixture *f = user;
    struct array *a = *name == 'a' ? f->a : *name == 'b' ? f->b : f->c;
    (void)e;
    *ret = (struct binding){BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

static enum err_code ask(struct fixture *f, const char *text, bool run, int64_t *ret, struct err *e)
{
    struct arena *arena = arena_new(0);
    struct expr x;
    uint32_t source;
    expr_init(&x, arena, 10000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    assert_int_equal(infix_parse(&x, source, text, strlen(text), &x.root, NULL), ERR_OK);
    struct check_env env = {.resolve = resolve, .user = f, .max_inputs = 64};
    struct eval_request req = {.expr = &x, .env = &env, .dtype = -1};
    struct array *made = NULL;
    struct eval_explanation all;
    enum err_code code = run ? engine_evaluate(f->s, f->account, &req, &made, NULL, NULL, NULL, e)
                             : engine_explain(f->s, &req, arena, &all, e);
    if (!run && code == ERR_OK)
        *ret = plan_cost(all.plan);
    array_unref(made);
    arena_free(arena);
    return code;
}

static int64_t cost(struct fixture *f, const char *text)
{
    int64_t ret = -1;
    struct err e = ERR_INIT;
    enum err_code code = ask(f, text, false, &ret, &e);
    if (code != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    return ret;
}

/* --- beside a plain count --- */

/* Random text, and what there is in it once each: a node of the kernel that computes it. */
#define TEXT 600
struct random_text {
    char seen[64][TEXT];
    int n_seen;
};

static int below(int n)
{
    return rand() % n;
}

static void see(struct random_text *r, const char *text)
{
    for (int i = 0; i < r->n_seen; i++)
        if (!strcmp(r->seen[i], text))
            return;
    assert_true(r->n_seen < 64);
    strcpy(r->seen[r->n_seen++], text);
}

static void random_text(struct random_text *r, int depth, const char *leaves, char *ret)
{
    static const char *const two[] = {"maximum", "subtract", "hypot", "divide"};
    static const char *const one[] = {"sqrt", "exp", "floor"};
    char x[TEXT], y[TEXT];
    int n;
    if (depth == 0 || below(5) == 0) {
        n = snprintf(ret, TEXT, "%c", leaves[below((int)strlen(leaves))]);
    } else if (below(2)) {
        random_text(r, depth - 1, leaves, x);
        n = snprintf(ret, TEXT, "%s(%s)", one[below(3)], x);
    } else {
        random_text(r, depth - 1, leaves, x);
        random_text(r, depth - 1, leaves, y);
        n = snprintf(ret, TEXT, "%s(%s,%s)", two[below(4)], x, y);
    }
    assert_true(n < TEXT);
    see(r, ret);
}

static void test_a_plain_count_says_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *leaves;
        int64_t points;
    } shapes[] = {{"b", 5}, {"c", 6}, {"a", 30}};
    struct fixture f;
    char x[TEXT], text[2 * TEXT];
    open_fixture(&f, INT64_MAX);
    srand(17);
    for (int i = 0; i < 2000; i++) {
        struct random_text r = {.n_seen = 0}, inner = {.n_seen = 0};
        int k = below(3);
        random_text(&r, 4, shapes[k].leaves, x);
        assert_int_equal(cost(&f, x), r.n_seen * shapes[k].points);
        /* what a reduction visits, broadcast operands included; its result is one number */
        snprintf(text, sizeof text, "sum(broadcast_to(%s, [7, 6, 5]))", x);
        assert_int_equal(cost(&f, text), r.n_seen * 210);
        snprintf(text, sizeof text, "sum(add(a, broadcast_to(%s, [7, 6, 5])))", x);
        r.n_seen += k != 2; /* a, where it is not there already */
        assert_int_equal(cost(&f, text), (r.n_seen + 1) * 210);
        /* a reduction in an expression is a kernel of its own, and an operand */
        random_text(&inner, 2, "a", x);
        snprintf(text, sizeof text, "divide(b, max(%s))", x);
        assert_int_equal(cost(&f, text), inner.n_seen * 30 + 3 * 5);
    }
    close_fixture(&f);
}

static void test_costs_do_not_overflow(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, INT64_MAX);
    char text[TEXT] = "broadcast_to(b, [72057594037927936, 5])", more[TEXT], total[TEXT];
    for (int nodes = 1; nodes < 40; nodes++) { /* of 5·2⁵⁶ elements */
        snprintf(total, sizeof total, "max(%.550s)", text);
        assert_int_equal(cost(&f, total), nodes <= 25 ? INT64_C(5) * nodes << 56 : INT64_MAX);
        snprintf(more, sizeof more, "sqrt(%.550s)", text);
        strcpy(text, more);
    }
    assert_int_equal(cost(&f, "sum(broadcast_to(b[:0], [72057594037927936, 0]))"), 0);
    assert_int_equal(cost_sum(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(cost_sum(2, 3), 5);
    close_fixture(&f);
}

static void test_what_costs_more_than_allowed_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct err e = ERR_INIT;
    int64_t got;
    open_fixture(&f, 90);
    assert_int_equal(ask(&f, "sqrt(exp(a))", true, &got, &e), ERR_OK);
    assert_int_equal(ask(&f, "sqrt(exp(a))", false, &got, &e), ERR_OK);
    for (int run = 0; run < 2; run++) {
        memset(&e, 0, sizeof e);
        assert_int_equal(ask(&f, "sqrt(exp(a) + c)", run, &got, &e), ERR_EXPRESSION_TOO_LARGE);
        assert_string_equal(e.pointer, "/expr");
        assert_int_equal(e.offset, 0);
        assert_non_null(strstr(e.message, "max-cost"));
        assert_non_null(strstr(e.message, "150 operations"));
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plain_count_says_the_same),
        cmocka_unit_test(test_costs_do_not_overflow),
        cmocka_unit_test(test_what_costs_more_than_allowed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
