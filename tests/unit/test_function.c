/* Functions written out: sharing, places, hygiene, limits, and every allocation that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "protocol/text/infix.h"
#include "server/store/functions.h"

static enum err_code parse(struct arena *arena, const char *text, size_t max_nodes, struct expr *x,
                           struct err *e)
{
    uint32_t source;
    expr_init(x, arena, max_nodes, 40);
    enum err_code code = expr_add_source(x, "/expr", &source, e);
    return code ? code : infix_parse(x, source, text, strlen(text), &x->root, e);
}

/* define(t, "f", "x y", "x + y") */
static enum err_code define(struct functions *t, const char *name, const char *param_text,
                            const char *text, bool replace, struct err *e)
{
    struct arena *arena = arena_new(0);
    struct definition *d = arena ? arena_alloc(arena, sizeof *d) : NULL;
    const char *params[4];
    uint32_t n = 0;
    bool replaced;
    struct expr x;
    char *list = d ? arena_strndup(arena, param_text, strlen(param_text)) : NULL;
    if (!list) {
        arena_free(arena);
        return err_oom(e);
    }
    for (char *p = strtok(list, " "); p; p = strtok(NULL, " "))
        params[n++] = p;
    enum err_code code = parse(arena, text, 1000, &x, e);
    if (code == ERR_OK)
        code = function_new(arena, &x, name, params, n, &d->function, e);
    if (code == ERR_OK)
        code = functions_define(t, d, replace, &replaced, e);
    if (code != ERR_OK)
        arena_free(arena);
    return code;
}

static enum err_code write_out(struct functions *t, struct arena *arena, const char *text,
                               size_t max_nodes, struct expr *ret, struct err *e)
{
    struct expr x;
    struct function_set set = {0};
    enum err_code code = parse(arena, text, max_nodes, &x, e);
    if (code == ERR_OK)
        code = functions_of(t, &x, &set, e);
    if (code == ERR_OK)
        code = function_inline(&x, &set, ret, e);
    functions_release(&set);
    return code;
}

static void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s: %s", err_name(code), e->message);
}

static void test_sharing_and_places(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct expr x;
    struct functions *t = functions_new(10);
    struct arena *arena = arena_new(0);
    must(define(t, "cube", "x", "x*x*x", false, &e), &e);
    must(define(t, "f", "m", "cube(m + 1)", false, &e), &e);
    must(write_out(t, arena, "2 - f(a)", 100, &x, &e), &e);
    /* a, f, 1, +, cube, *, *, 2, −: cube's x is one node, the sum, each time */
    const struct expr_node *root = &x.nodes[x.root];
    assert_string_equal(root->name, "subtract");
    const struct expr_node *outer = &x.nodes[x.links[root->first_arg + 1].node];
    assert_string_equal(outer->name, "multiply");
    uint32_t third = x.links[outer->first_arg + 1].node;
    const struct expr_node *inner = &x.nodes[x.links[outer->first_arg].node];
    assert_int_equal(x.links[inner->first_arg].node, third);
    assert_int_equal(x.links[inner->first_arg + 1].node, third);
    assert_string_equal(x.nodes[third].name, "add");
    for (uint32_t i = 0; i < x.n_nodes; i++)
        for (uint32_t k = 0; k < x.nodes[i].n_args; k++)
            assert_true(x.links[x.nodes[i].first_arg + k].node < i);
    expr_err(&x, x.links[root->first_arg + 1].node, &e, ERR_SHAPE_MISMATCH, "no");
    assert_string_equal(e.pointer, "/expr");
    assert_int_equal(e.offset, 4);
    assert_string_equal(e.message, "no (in function 'cube', at offset 3 of its /expr; called in "
                                   "'f', at offset 0 of its /expr)");
    functions_free(t);
    arena_free(arena);
}

static void test_limits(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct expr x;
    struct functions *t = functions_new(100);
    struct arena *arena = arena_new(0);
    char name[16], text[64];
    must(define(t, "f0", "x", "x + x", false, &e), &e);
    for (int i = 1; i < 60; i++) {
        snprintf(name, sizeof name, "f%d", i);
        snprintf(text, sizeof text, "f%d(x)*f%d(-x)", i - 1, i - 1);
        must(define(t, name, "x", text, false, &e), &e);
    }
    assert_int_equal(write_out(t, arena, "1 + f3(a)", 500, &x, &e), ERR_OK);
    assert_int_equal(write_out(t, arena, "1 + f30(a)", 500, &x, &e), ERR_EXPRESSION_TOO_LARGE);
    assert_int_equal(e.offset, 4);
    assert_true(arena_bytes(arena) < 1 << 20);
    /* f59 is 60 calls deep, of 40 allowed */
    assert_int_equal(write_out(t, arena, "f59(a)", 1 << 20, &x, &e), ERR_EXPRESSION_TOO_LARGE);
    functions_free(t);
    arena_free(arena);
}

/* All that the other tests do, with the nth allocation refused. */
static enum err_code all(struct err *e)
{
    struct expr x;
    struct functions *t = functions_new(10);
    struct arena *arena = arena_new(0);
    enum err_code code = t && arena ? ERR_OK : err_oom(e);
    if (code == ERR_OK)
        code = define(t, "g", "x y", "sum(x, axis=0)*y + x", false, e);
    if (code == ERR_OK)
        code = define(t, "f", "x", "g(x, y=2) - g(y=x, x=3)", false, e);
    if (code == ERR_OK)
        code = define(t, "g", "x y", "x - y", true, e);
    if (code == ERR_OK && define(t, "g", "x y", "f(x) - y", true, e) == ERR_OK)
        fail_msg("a circle was taken");
    if (code == ERR_OK)
        code = write_out(t, arena, "f(f(a[1:])) + g(1, f(b))", 1000, &x, e);
    functions_free(t);
    arena_free(arena);
    return code;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int64_t nth = 1;; nth++) {
        struct err e = ERR_INIT;
        mem_fail_after(nth, false);
        enum err_code code = all(&e);
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_int_equal(mem_live(), before);
        if (!failed) {
            must(code, &e);
            break;
        }
        if (code != ERR_OK)
            assert_int_equal(code, ERR_OUT_OF_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing_and_places),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
