/* compute/gpu/text/form_window: what becomes a window, its tiles, and the part of a thread. What
 * windows compute is in tests/http/test_windows.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compute/gpu/text/emit.h"
#include "tests/unit/emit_plans.h"

static const struct form *form_of_text(struct arena *arena, const char *text)
{
    const struct ir_plan *p = plan_of(arena, text);
    const struct form *f = form_of(arena, p->kernels[0], 256);
    assert_non_null(f);
    assert_int_equal(p->n_kernels, 1);
    return f;
}

static void a_thread_has_as_many_points_as_registers_allow(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct form *f = form_of_text(arena, "correlate(deep, " WEIGHTS_5x5x5 ", 'wrap')");
    assert_int_equal(f->kind, FORM_WINDOW);
    for (int a = 0; a < 3; a++)
        assert_true(f->window.lo[a] == -2 && f->window.hi[a] == 2);
    assert_true(f->window.deep && f->elements == 1);
    assert_int_equal(f->rows, 4);
    assert_int_equal(f->window.across, 32);
    assert_int_equal(f->window.resident, 3);
    assert_int_equal(f->grid[0] * f->grid[1], 16 * 16);
    assert_int_equal(f->grid[2] * f->window.part, 512);
    /* wider values */
    f = form_of_text(arena, "correlate(d, " WEIGHTS_5x5x5 ")");
    assert_int_equal(f->rows, 2);
    /* a plane: neighbours too, and no more of either than fill a vector */
    f = form_of_text(arena, "correlate(sq, " WEIGHTS_5x5 ", 'clamp')");
    assert_true(!f->window.deep && f->elements == 4 && f->rows == 4);
    assert_int_equal(f->grid[0] * f->grid[1], 4 * 16);
    f = form_of_text(arena, "correlate(l, " WEIGHTS_5x5 ", 'wrap')");
    assert_int_equal(f->elements, 2);
    f = form_of_text(arena, "correlate(zz, " WEIGHTS_5x5 ")");
    assert_int_equal(f->elements, 1);
    /* planes that are each for themselves: a block each */
    f = form_of_text(arena, "correlate(deep, [" WEIGHTS_5x5 "], 'wrap')");
    assert_true(!f->window.deep && f->window.part == 1);
    assert_int_equal(f->grid[2], 512);
    f = form_of_text(arena, "correlate(tall2, [" WEIGHTS_3x4 "], 'wrap')");
    assert_true(f->window.part == 2 && f->grid[2] == 50000);
    /* a row: no more threads than elements */
    f = form_of_text(arena, "correlate(row, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])");
    assert_int_equal(f->threads, 32);
    assert_int_equal(f->rows, 1);
}

/* Sums of sums are one kernel, of as many points a thread: what they have in common the compiler
 * finds (test_emit.c). */
static void factored_weights_are_a_window_too(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "fast correlate(deep, " BINOMIAL_5x5x5 ", 'wrap')",
        "fast correlate(deep, " BINOMIAL_5x5x5 ")",
        "fast correlate(deep, " BINOMIAL_5x5x5 ", 'constant', 2)",
        "fast correlate(d, " BINOMIAL_5x5x5 ", 'clamp')",
    };
    _cleanup_arena_ struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct form *f = form_of_text(arena, texts[i]);
        assert_int_equal(f->kind, FORM_WINDOW);
        assert_true(f->window.deep && f->rows == 4);
    }
    const struct form *f = form_of_text(arena, "fast correlate(sq, " BINOMIAL_5x5 ")");
    assert_true(f->kind == FORM_WINDOW && f->elements == 4 && f->rows == 4);
}

static void tiles_are_filled_by_vectors_where_memory_allows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum load_kind kind;
        int left;
    } cases[] = {
        {"correlate(sq, " WEIGHTS_5x5 ", 'clamp')", LOAD_VECTOR, 4},
        {"correlate(sq*2, " WEIGHTS_5x5 ", 'constant', 1)", LOAD_VECTOR, 4},
        {"correlate(sq[:, 1:], " WEIGHTS_5x5 ", 'clamp')", LOAD_EACH, 2},
        {"correlate(sq[:, ::-1], " WEIGHTS_5x5 ", 'clamp')", LOAD_EACH, 2},
        {"correlate(odd2, [" WEIGHTS_5x5 "], 'clamp')", LOAD_EACH, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        const struct form *f = form_of_text(arena, cases[i].text);
        if (f->kind != FORM_WINDOW || f->window.left != cases[i].left ||
            f->loads[0].kind != cases[i].kind)
            fail_msg("%s: %d columns, kind %d", cases[i].text, f->window.left, f->loads[0].kind);
    }
}

static void a_stencil_does_not_choose_at_every_term(void **state)
{
    (void)state;
    static const char *const modes[] = {"", ", 'constant', 2", ", 'clamp'", ", 'wrap'"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        char text[100];
        snprintf(text, sizeof text, "correlate(sq, [[1, 2, 1], [2, 4, 2], [1, 2, 1]]%s)", modes[i]);
        assert_int_equal(form_of_text(arena, text)->kind, i < 2 ? FORM_WINDOW : FORM_STENCIL);
    }
}

static void tiles_hold_what_is_computed_alike(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    /* the operand, its replacement outside, and products with the only weight */
    const struct form *f = form_of_text(arena, "correlate(a*b, " WEIGHTS_3x3x3 ", 'constant', 1)");
    assert_int_equal(f->window.n_tiles, 1);
    f = form_of_text(arena, "correlate(sq, [[3, 3, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3]], 'wrap')");
    assert_int_equal(f->kind, FORM_WINDOW);
    assert_int_equal(f->window.n_tiles, 1);
    uint32_t products = 0;
    for (uint32_t i = 0; i < f->n_loads; i++)
        products += f->window.nodes[f->loads[i].node].kind == WINDOW_GONE;
    assert_int_equal(products, 12); /* the middle's too, which is not shifted */
    /* a tile for each operand and boundary */
    f = form_of_text(arena, "correlate(a, " WEIGHTS_3x3x3 ", 'wrap') - correlate(b, " WEIGHTS_3x3x3
                            ", 'wrap')*correlate(a, " WEIGHTS_3x3x3 ")");
    assert_int_equal(f->window.n_tiles, 3);
    /* not converted, since arithmetic is the type's own */
    f = form_of_text(arena, "correlate(h, " WEIGHTS_5x5 ", 'wrap')");
    assert_int_equal(f->window.tiles[0].dtype, DT_F16);
}

/* Rows that lie further apart than the form stencil holds them: a pass of eleven weights. */
static void few_rows_far_apart_are_a_window(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct form *f = form_of_text(
        arena, "correlate(sq, [[1], [2], [3], [4], [5], [6], [7], [8], [9], [10], [11]], 'wrap')");
    assert_int_equal(f->kind, FORM_WINDOW);
    f = form_of_text(arena, "correlate(sq, [[1], [2], [3], [4], [5], [6], [7], [8], [9]], 'wrap')");
    assert_int_equal(f->kind, FORM_STENCIL);
}

static void few_and_far_neighbours_are_left_to_others(void **state)
{
    (void)state;
    static const char *const others[] = {
        "correlate(line, [1, 2, 3, 4, 5, 6, 7, 8, 9], 'clamp')",
        "correlate(line, [1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
        "0,"
        " 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9, 8, 7, 6], 'clamp')",
        "correlate(g, " WEIGHTS_3x3x3 ", 'ghost')",
        "sum(correlate(a, " WEIGHTS_3x3x3 "))",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        _cleanup_arena_ struct arena *arena = arena_new(0);
        if (form_of_text(arena, others[i])->kind == FORM_WINDOW)
            fail_msg("%s: window", others[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_as_many_points_as_registers_allow),
        cmocka_unit_test(factored_weights_are_a_window_too),
        cmocka_unit_test(tiles_are_filled_by_vectors_where_memory_allows),
        cmocka_unit_test(a_stencil_does_not_choose_at_every_term),
        cmocka_unit_test(tiles_hold_what_is_computed_alike),
        cmocka_unit_test(few_rows_far_apart_are_a_window),
        cmocka_unit_test(few_and_far_neighbours_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
