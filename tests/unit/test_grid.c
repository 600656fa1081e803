/* compute/grid and the padded half of layout: where ghosts lie, and what indices that name them
 * mean, held against a plain reading of the contract. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/type/grid.h"

static uint64_t seed = 88172645463325252u;

static int64_t below(int64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int64_t)(seed % (uint64_t)n);
}

static void padded_memory(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        int rank = (int)below(5);
        int64_t shape[MAX_RANK], ghost[MAX_RANK], padded[MAX_RANK], n, all = 1;
        struct grid g;
        struct view v, whole;
        grid_init(&g, rank);
        for (int k = 0; k < rank; k++) {
            shape[k] = 1 + below(40);
            g.ghost[k] = ghost[k] = below(shape[k] < 4 ? shape[k] + 1 : 5);
        }
        int64_t alignment = 1 << below(13), item = 1 << below(5);
        assert_int_equal(padded_extents(rank, shape, ghost, padded, NULL), ERR_OK);
        for (int k = 0; k < rank; k++) {
            assert_true(padded[k] >= shape[k] + 2 * ghost[k]);
            assert_true(k == rank - 1
                            ? padded[k] % 16 == 0 && padded[k] < shape[k] + 2 * ghost[k] + 16
                            : padded[k] == shape[k] + 2 * ghost[k]);
            padded[k] += k == rank - 1 ? 16 * below(3) : below(3);
            all *= padded[k];
        }
        assert_int_equal(
            view_padded(rank, shape, ghost, padded, (size_t)item, alignment, &v, &n, NULL), ERR_OK);
        int64_t stride = 1, lo, hi;
        for (int k = rank - 1; k >= 0; k--) {
            assert_int_equal(v.strides[k], stride);
            assert_int_equal(v.shape[k], shape[k]);
            stride *= padded[k];
        }
        assert_int_equal(v.offset % 16, 0);
        assert_int_equal(v.offset * item % alignment, 0);
        grid_whole(&g, &v, &whole);
        view_extent(&whole, &lo, &hi);
        assert_true(lo >= 0 && hi <= n && n >= all);
        g.whole = true;
        grid_interior(&g, &whole, &whole);
        assert_true(view_same_shape(&whole, &v) && whole.offset == v.offset);
    }
}

static void padding_that_does_not_fit(void **state)
{
    (void)state;
    struct view v;
    int64_t n, padded[MAX_RANK], one[] = {1, 1}, huge[] = {INT64_MAX, INT64_MAX};
    assert_int_equal(padded_extents(2, huge, one, padded, NULL), ERR_BAD_SHAPE);
    assert_int_equal(padded_extents(2, one, huge, padded, NULL), ERR_BAD_SHAPE);
    assert_int_equal(padded_extents(33, one, one, padded, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_padded(2, one, one, (int64_t[]){3, 20}, 4, 64, &v, &n, NULL),
                     ERR_BAD_SHAPE);
    assert_int_equal(view_padded(2, one, one, (int64_t[]){2, 16}, 4, 64, &v, &n, NULL),
                     ERR_SHAPE_MISMATCH);
    assert_int_equal(view_padded(2, one, one, (int64_t[]){INT64_MAX / 16, 16}, 4, 64, &v, &n, NULL),
                     ERR_BAD_SHAPE);
    assert_int_equal(view_padded(2, one, one, (int64_t[]){3, 16}, 4, 64, &v, &n, NULL), ERR_OK);
}

/* The places a slice names, one after the other; returns how many. */
static int walk(const struct index_item *it, int64_t first, int64_t last, int64_t *ret)
{
    int64_t step = it->has_step ? it->step : 1;
    int64_t from = step > 0 ? first : last, to = step > 0 ? last + 1 : first - 1;
    int n = 0;
    if (it->has_start)
        from = it->start < first  ? (step > 0 ? first : first - 1)
               : it->start > last ? (step > 0 ? last + 1 : last)
                                  : it->start;
    if (it->has_stop)
        to = it->stop < first  ? (step > 0 ? first : first - 1)
             : it->stop > last ? last + 1
                               : it->stop;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        ret[n++] = i;
    return n;
}

static void ghost_indices(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 4; n++)
        for (int64_t width = 0; width <= n && width < 3; width++)
            for (int code = 0; code < 10 * 10 * 7; code++) {
                int64_t start = code % 10 - 4, stop = code / 10 % 10 - 4, step = code / 100 - 3;
                struct index_item it = {.kind = INDEX_SLICE,
                                        .has_start = start < 5,
                                        .has_stop = stop < 5,
                                        .has_step = step != 0,
                                        .start = start,
                                        .stop = stop,
                                        .step = step};
                struct index_spec ix = {.n = 1, .items = {it}};
                struct view v = {.rank = 1, .shape = {n}, .strides = {1}, .offset = 100}, r;
                struct grid g;
                int64_t want[16];
                grid_init(&g, 1);
                g.ghost[0] = width;
                int count = walk(&it, -width, n + width - 1, want);
                assert_int_equal(grid_index(&g, &v, &ix, &r, NULL), ERR_OK);
                assert_int_equal(r.shape[0], count);
                for (int i = 0; i < count; i++)
                    assert_int_equal(r.offset + i * r.strides[0], 100 + want[i]);
                ix.items[0] = (struct index_item){.kind = INDEX_INT, .start = start};
                bool there = start >= -width && start < n + width;
                assert_int_equal(grid_index(&g, &v, &ix, &r, NULL), there ? ERR_OK : ERR_BAD_INDEX);
                if (there)
                    assert_int_equal(r.offset, 100 + start);
            }
}

static void ghost_indices_refused(void **state)
{
    (void)state;
    struct view v = {.rank = 1, .shape = {3}, .strides = {1}}, r;
    struct index_spec many = {.n = 2, .items = {{.kind = INDEX_SLICE}, {.kind = INDEX_SLICE}}};
    struct index_spec none = {.n = 1, .items = {{.kind = INDEX_NEWAXIS}}};
    struct index_spec dots = {.n = 1, .items = {{.kind = INDEX_ELLIPSIS}}};
    struct index_spec far = {.n = 1,
                             .items = {{.kind = INDEX_SLICE,
                                        .has_start = true,
                                        .has_stop = true,
                                        .start = INT64_MIN,
                                        .stop = INT64_MAX}}};
    assert_int_equal(grid_index(NULL, &v, &many, &r, NULL), ERR_BAD_INDEX);
    assert_int_equal(grid_index(NULL, &v, &none, &r, NULL), ERR_BAD_INDEX);
    assert_int_equal(grid_index(NULL, &v, &dots, &r, NULL), ERR_BAD_INDEX);
    assert_int_equal(grid_index(NULL, &v, &far, &r, NULL), ERR_OK);
    assert_int_equal(r.shape[0], 3);
}

static void descriptions(void **state)
{
    (void)state;
    struct grid g;
    struct err e = ERR_INIT;
    grid_init(&g, 2);
    assert_true(grid_is_plain(&g));
    g.alignment = 4096;
    assert_false(grid_is_plain(&g));
    const struct view at_0 = {.rank = 2}, at_72 = {.rank = 2, .offset = 9};
    assert_int_equal(grid_alignment(&g, &at_0, 8), 4096);
    assert_int_equal(grid_alignment(&g, &at_72, 8), 8);
    assert_int_equal(grid_alignment(NULL, &at_0, 8), GRID_ALIGNMENT);
    g.alignment = GRID_ALIGNMENT;
    g.ghost[1] = 3;
    assert_false(grid_is_plain(&g));
    assert_true(grid_has_ghosts(&g) && !grid_has_ghosts(NULL));
    assert_int_equal(grid_check_ghosts(&g, (int64_t[]){0, 2}, &e), ERR_GHOST_WIDTH);
    assert_string_equal(e.pointer, "/ghost/1");
    assert_int_equal(grid_check_ghosts(&g, (int64_t[]){0, 3}, &e), ERR_OK);
    struct grid *kept = grid_new(&g);
    assert_int_equal(grid_ref(kept)->ghost[1], 3);
    grid_unref(kept);
    grid_unref(kept);
    mem_fail_after(1, true);
    assert_null(grid_new(&g));
    mem_fail_after(0, false);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padded_memory), cmocka_unit_test(padding_that_does_not_fit),
        cmocka_unit_test(ghost_indices), cmocka_unit_test(ghost_indices_refused),
        cmocka_unit_test(descriptions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
