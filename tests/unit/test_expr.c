/* compute/expr: storage, limits, and the places that errors carry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compute/base/mem.h"
#include "compute/lang/expr.h"

static uint32_t leaf(struct expr *x, long offset, const char *step)
{
    struct expr_node n = {
        .kind = EXPR_NAME, .name = "a", .offset = offset, .source = 0, .step = step};
    uint32_t id;
    assert_int_equal(expr_add(x, &n, NULL, 0, 0, &id, NULL), ERR_OK);
    return id;
}

static uint32_t call(struct expr *x, uint32_t a, uint32_t b, long offset, const char *step)
{
    struct expr_node n = {.kind = EXPR_CALL, .name = "add", .offset = offset, .step = step};
    struct expr_link links[] = {{a, NULL}, {b, "x2"}};
    uint32_t id;
    assert_int_equal(expr_add(x, &n, links, 2, 1, &id, NULL), ERR_OK);
    return id;
}

static void places_in_text_and_tree(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source;
    expr_init(&x, a, 100, 10);
    assert_int_equal(expr_add_source(&x, "/tree", &source, &e), ERR_OK);
    uint32_t p = leaf(&x, -1, "args/0"), q = leaf(&x, -1, "x2");
    uint32_t inner = call(&x, p, q, -1, "args/0"), r = leaf(&x, -1, "args/1");
    uint32_t root = call(&x, inner, r, -1, NULL);
    assert_int_equal(expr_err(&x, q, &e, ERR_BAD_AXIS, "axis %d", 3), ERR_BAD_AXIS);
    assert_string_equal(e.pointer, "/tree/args/0/x2");
    assert_string_equal(e.message, "axis 3");
    assert_int_equal(e.offset, -1);
    assert_int_equal(expr_err(&x, root, &e, ERR_BAD_AXIS, "x"), ERR_BAD_AXIS);
    assert_string_equal(e.pointer, "/tree");
    uint32_t text = leaf(&x, 17, NULL);
    assert_int_equal(expr_err(&x, text, &e, ERR_BAD_AXIS, "x"), ERR_BAD_AXIS);
    assert_string_equal(e.pointer, "/tree");
    assert_int_equal(e.offset, 17);
    assert_int_equal(expr_keyword(&x, &x.nodes[inner], "x2"), q);
    assert_int_equal(expr_keyword(&x, &x.nodes[inner], "x1"), EXPR_NOWHERE);
    assert_int_equal(expr_err(&x, q, NULL, ERR_BAD_AXIS, "no err"), ERR_BAD_AXIS);
}

static void deep_pointer_names_an_ancestor(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t source, deep = 0, at;
    expr_init(&x, a, 1000, 10);
    assert_int_equal(expr_add_source(&x, "/tree", &source, &e), ERR_OK);
    at = deep = leaf(&x, -1, "args/0");
    for (int i = 0; i < 100; i++)
        at = call(&x, at, leaf(&x, -1, "args/1"), -1, i == 99 ? NULL : "args/0");
    expr_err(&x, deep, &e, ERR_BAD_AXIS, "x");
    size_t n = strlen(e.pointer);
    assert_in_range(n, sizeof e.pointer - 8, sizeof e.pointer - 1);
    assert_int_equal(strncmp(e.pointer, "/tree/args/0/args/0", 19), 0);
    assert_int_equal((n - 5) % 7, 0);
    expr_err(&x, at, &e, ERR_BAD_AXIS, "x");
    assert_string_equal(e.pointer, "/tree");
}

static void node_limit(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    struct expr x;
    struct err e = ERR_INIT;
    uint32_t id = 7;
    expr_init(&x, a, 3, 10);
    for (int i = 0; i < 3; i++)
        leaf(&x, i, NULL);
    struct expr_node n = {.kind = EXPR_NONE, .offset = 9};
    assert_int_equal(expr_add(&x, &n, NULL, 0, 0, &id, &e), ERR_EXPRESSION_TOO_LARGE);
    assert_int_equal(e.offset, 9);
    assert_int_equal(id, 7);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int nth = 1;; nth++) {
        mem_fail_after(nth, false);
        struct arena *a = arena_new(0);
        struct err e = ERR_INIT;
        enum err_code rc = a ? ERR_OK : ERR_OUT_OF_MEMORY;
        struct expr x;
        expr_init(&x, a, 2000, 10);
        uint32_t id, source;
        if (!rc)
            rc = expr_add_source(&x, "/expr", &source, &e);
        for (int i = 0; i < 600 && !rc; i++) {
            struct expr_node n = {.kind = EXPR_NONE};
            struct expr_link l = {0, NULL};
            rc = expr_add(&x, &n, &l, i > 0, 0, &id, &e);
            if (!rc)
                rc = expr_add_let(&x, "name", id, &e);
        }
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(a);
        assert_int_equal(mem_live(), 0);
        assert_int_equal(rc, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_in_text_and_tree),
        cmocka_unit_test(deep_pointer_names_an_ancestor),
        cmocka_unit_test(node_limit),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
