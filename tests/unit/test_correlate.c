/* compute/check/check_correlate: what weights are taken apart to, and how. What the sums come to is
 * in tests/http/test_factored.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "tests/unit/check_text.h"

#define SIX(row) "[" row ", " row ", " row ", " row ", " row ", " row "]"
#define WEIGHTS  SIX("[1, 2, 4, -3, 1, 0, 4]")
#define CUBE                                                                                       \
    "[[[1, 2, 1, 4], [3, 6, 3, 12], [1, 2, 1, 4]],"                                                \
    " [[2, 4, 2, 8], [6, 12, 6, 24], [2, 4, 2, 8]], [[1, 2, 1, 4], [3, 6, 3, 12], [1, 2, 1, 4]]]"

static struct typed checked(struct arena *arena, const char *text, bool fast_math, uint32_t window)
{
    const struct check_env env = {
        .resolve = check_resolve, .max_inputs = 64, .fast_math = fast_math, .window = window};
    struct err e = ERR_INIT;
    struct typed t;
    if (check_text_in(&env, arena, text, -1, &t, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    return t;
}

static uint32_t count(const struct typed *t, enum typed_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        n += t->nodes[i].kind == kind;
    return n;
}

static uint32_t products(const struct typed *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        n += t->nodes[i].kind == T_OP && t->nodes[i].op == OP_MULTIPLY;
    return n;
}

static void sums_or_passes_or_neither(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    static const char text[] = "correlate(u, " WEIGHTS ", 'clamp')";
    struct typed t = checked(a, text, false, 180);
    assert_int_equal(t.n_factored, 0);
    assert_int_equal(products(&t), 36);

    t = checked(a, text, true, 0);
    assert_int_equal(t.n_factored, 1);
    assert_true(t.factored[0].passes && t.factored[0].rank == 2);
    assert_true(t.factored[0].shape[0] == 6 && t.factored[0].shape[1] == 7);
    assert_int_equal(t.factored[0].terms, 12);
    assert_int_equal(products(&t), 12);
    assert_int_equal(count(&t, T_RESHAPE), 1);

    t = checked(a, text, true, 180);
    assert_true(t.n_factored == 1 && !t.factored[0].passes && t.factored[0].terms == 12);
    assert_int_equal(products(&t), 36 + 6);
    assert_int_equal(count(&t, T_RESHAPE), 0);
    t = checked(a, text, true, 82); /* 42 weights along two axes */
    assert_true(t.n_factored == 1 && t.factored[0].passes);

    static const char self[] = "correlate(u, " WEIGHTS ")";
    t = checked(a, self, true, 0);
    assert_int_equal(t.n_factored, 0);
    t = checked(a, self, true, 82);
    assert_int_equal(t.n_factored, 0);
    t = checked(a, self, true, 180);
    assert_true(t.n_factored == 1 && !t.factored[0].passes);

    t = checked(a, "correlate(cube, " CUBE ", 'wrap') + correlate(cube, " CUBE ")", true, 36);
    assert_true(t.n_factored == 2 && !t.factored[0].passes && !t.factored[1].passes);
    t = checked(a, "correlate(cube, " CUBE ", 'wrap') + correlate(cube, " CUBE ")", true, 35);
    assert_true(t.n_factored == 2 && t.factored[0].passes && !t.factored[1].passes);
}

/* Halves are summed in float32, along the way as well. */
static void halves_are_rounded_once(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *a = arena_new(0);
    const struct typed t = checked(a, "correlate(f16, " WEIGHTS ", 'wrap')", true, 0);
    const struct typed_node *root = &t.nodes[t.root];
    assert_true(root->kind == T_CAST && root->dtype == DT_F16);
    assert_int_equal(t.nodes[root->args[0]].dtype, DT_F32);
    for (uint32_t i = 0; i < t.n_nodes; i++)
        if (t.nodes[i].kind == T_OP || t.nodes[i].kind == T_RESHAPE)
            assert_int_equal(t.nodes[i].dtype, DT_F32);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] = "correlate(u, " WEIGHTS ", 'constant', 2) + 1";
    for (uint32_t window = 0; window <= 180; window += 180)
        for (size_t cap = 100;; cap += 100) {
            const struct check_env env = {
                .resolve = check_resolve, .max_inputs = 64, .fast_math = true, .window = window};
            struct arena *a = arena_new(cap);
            struct typed t;
            struct err e = ERR_INIT;
            const enum err_code code =
                a ? check_text_in(&env, a, text, -1, &t, &e) : ERR_OUT_OF_MEMORY;
            const bool factored = code == ERR_OK && t.n_factored == 1;
            arena_free(a);
            assert_int_equal(mem_live(), 0);
            if (code == ERR_OK) {
                assert_true(factored);
                break;
            }
            assert_int_equal(code, ERR_OUT_OF_MEMORY);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_or_passes_or_neither),
        cmocka_unit_test(halves_are_rounded_once),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
