/* compute/gpu/text/form_window: what becomes a window, its tiles, and the part of a thread. What
 * windows compute is in tests/http/test_windows.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

static void a_thread_has_as_many_rows_as_registers_allow(void **state)
{
    (void)state;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    const struct form *f = form_of_text(arena, "correlate(deep, " WEIGHTS_5x5x5 ", 'wrap')");
    assert_int_equal(f->kind, FORM_WINDOW);
    for (int a = 0; a < 3; a++)
        assert_true(f->window.lo[a] == -2 && f->window.hi[a] == 2);
    assert_int_equal(f->rows, 4);
    assert_int_equal(f->window.across, 32);
    assert_int_equal(f->window.resident, 3);
    assert_int_equal(f->window.buffers, 2);
    assert_int_equal(f->grid[0] * f->grid[1], 16 * 16);
    assert_int_equal(f->grid[2] * f->window.part, 512);
    /* a plane: one tile, more rows */
    f = form_of_text(arena, "correlate(sq, " WEIGHTS_5x5 ", 'clamp')");
    assert_int_equal(f->rows, 8);
    assert_int_equal(f->window.buffers, 1);
    /* wider values */
    f = form_of_text(arena, "correlate(d, " WEIGHTS_5x5x5 ")");
    assert_int_equal(f->rows, 2);
    /* a row: no more threads than elements */
    f = form_of_text(arena, "correlate(row, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])");
    assert_int_equal(f->threads, 64);
    assert_int_equal(f->rows, 1);
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
        cmocka_unit_test(a_thread_has_as_many_rows_as_registers_allow),
        cmocka_unit_test(tiles_hold_what_is_computed_alike),
        cmocka_unit_test(few_and_far_neighbours_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
