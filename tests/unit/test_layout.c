/* compute/layout: views against a plain enumeration of their elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compute/type/layout.h"

#define MOST 512

/* The places of a view's elements in C order; -1 when there are more than MOST. */
static int elements(const struct view *v, int64_t *out)
{
    int64_t size = view_size(v);
    if (size > MOST)
        return -1;
    for (int64_t i = 0; i < size; i++) {
        int64_t at = v->offset, rest = i;
        for (int k = v->rank - 1; k >= 0; k--) {
            at += rest % v->shape[k] * v->strides[k];
            rest /= v->shape[k];
        }
        out[i] = at;
    }
    return (int)size;
}

static uint64_t seed = 42;

static int64_t pick(int64_t lo, int64_t hi)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return lo + (int64_t)((seed >> 33) % (uint64_t)(hi - lo + 1));
}

static struct view random_contiguous(int most_rank, int64_t most_extent)
{
    int64_t shape[4];
    int rank = (int)pick(0, most_rank);
    struct view v;
    for (int k = 0; k < rank; k++)
        shape[k] = pick(pick(0, 6) ? 1 : 0, most_extent);
    assert_int_equal(view_contiguous(rank, shape, 16, &v, NULL), ERR_OK);
    return v;
}

static struct index_item random_item(void)
{
    struct index_item it = {.kind = INDEX_SLICE,
                            .has_start = pick(0, 1),
                            .has_stop = pick(0, 1),
                            .has_step = pick(0, 1),
                            .start = pick(-7, 7),
                            .stop = pick(-7, 7),
                            .step = pick(1, 3) * (pick(0, 1) ? 1 : -1)};
    switch (pick(0, 9)) {
    case 0:
        it.kind = INDEX_NEWAXIS;
        break;
    case 1:
        it.kind = INDEX_INT;
        break;
    case 2:
        it.step = pick(0, 1) ? INT64_MAX : INT64_MIN;
        break;
    case 3:
        it.start = pick(0, 1) ? INT64_MAX : INT64_MIN;
        it.stop = pick(0, 1) ? INT64_MAX : INT64_MIN;
        break;
    default:
        break;
    }
    return it;
}

/* The indices a slice takes, one by one, as the language reference tells it. */
static int slice_list(const struct index_item *it, int64_t n, int64_t *out)
{
    __int128 step = it->has_step ? it->step : 1, count = 0;
    __int128 lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n, start, stop;
    start = !it->has_start  ? (step < 0 ? hi : lo)
            : it->start < 0 ? (__int128)it->start + n
                            : it->start;
    stop = !it->has_stop ? (step < 0 ? lo : hi) : it->stop < 0 ? (__int128)it->stop + n : it->stop;
    start = start < lo ? lo : start > hi ? hi : start;
    stop = stop < lo ? lo : stop > hi ? hi : stop;
    for (__int128 i = start; step < 0 ? i > stop : i < stop; i += step)
        out[(int)count++] = (int64_t)i;
    return (int)count;
}

/* Indexing axis by axis, on element lists: an independent way to the same result. */
static void index_means_what_python_says(void **state)
{
    (void)state;
    int done = 0;
    for (int round = 0; round < 4000; round++) {
        struct view v = random_contiguous(3, 5), r;
        struct index_spec ix = {0};
        int axis = 0;
        bool fails = false;
        int64_t lists[4][16], want_shape[8];
        int counts[4], want_rank = 0;
        while (axis < v.rank && pick(0, 5)) {
            struct index_item it = random_item();
            ix.items[ix.n++] = it;
            if (it.kind == INDEX_NEWAXIS) {
                want_shape[want_rank++] = 1;
                if (ix.n > 4)
                    break;
            } else if (it.kind == INDEX_INT) {
                int64_t i = it.start < 0 ? it.start + v.shape[axis] : it.start;
                fails |= i < 0 || i >= v.shape[axis];
                lists[axis][0] = i;
                counts[axis++] = 1;
            } else {
                counts[axis] = slice_list(&it, v.shape[axis], lists[axis]);
                want_shape[want_rank++] = counts[axis];
                axis++;
            }
        }
        if (pick(0, 1))
            ix.items[ix.n++] = (struct index_item){.kind = INDEX_ELLIPSIS};
        for (; axis < v.rank; axis++) {
            counts[axis] = (int)v.shape[axis];
            want_shape[want_rank++] = v.shape[axis];
            for (int i = 0; i < counts[axis]; i++)
                lists[axis][i] = i;
        }
        enum err_code rc = view_index(&v, &ix, &r, NULL);
        assert_int_equal(rc, fails ? ERR_BAD_INDEX : ERR_OK);
        if (fails)
            continue;
        assert_int_equal(r.rank, want_rank);
        for (int k = 0; k < want_rank; k++)
            assert_int_equal(r.shape[k], want_shape[k]);
        int64_t got[MOST];
        int n = elements(&r, got), at = 0;
        int i[3] = {0};
        for (int total = n; at < total; at++) {
            int64_t place = 0;
            for (int k = 0; k < v.rank; k++)
                place += lists[k][i[k]] * v.strides[k];
            assert_int_equal(got[at], place);
            for (int k = v.rank - 1; k >= 0 && ++i[k] == counts[k]; k--)
                i[k] = 0;
        }
        assert_true(r.offset >= 0);
        done++;
    }
    assert_in_range(done, 2000, 4000);
}

static void index_errors(void **state)
{
    (void)state;
    struct view v, r;
    struct err e = ERR_INIT;
    assert_int_equal(view_contiguous(2, (int64_t[]){4, 5}, 4, &v, &e), ERR_OK);
    struct index_spec ix = {.n = 1, .items = {{.kind = INDEX_INT, .start = 4}}};
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_INDEX);
    assert_string_equal(e.message, "index 4 is out of range for axis 0 of extent 4");
    ix.items[0].start = INT64_MIN;
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_INDEX);
    ix.items[0] = (struct index_item){.kind = INDEX_SLICE, .has_step = true};
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_INDEX);
    ix.n = 2;
    ix.items[0].kind = ix.items[1].kind = INDEX_ELLIPSIS;
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_INDEX);
    ix.n = 3;
    ix.items[0].kind = ix.items[1].kind = ix.items[2].kind = INDEX_INT;
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_INDEX);
    ix.n = 31;
    for (int k = 0; k < 31; k++)
        ix.items[k].kind = INDEX_NEWAXIS;
    assert_int_equal(view_index(&v, &ix, &r, &e), ERR_BAD_SHAPE);
}

static struct view random_view(void)
{
    for (;;) {
        struct view v = random_contiguous(4, 4);
        if (v.rank > 1 && pick(0, 1)) {
            int64_t axes[4] = {0, 1, 2, 3};
            int a = (int)pick(0, v.rank - 1), b = (int)pick(0, v.rank - 1);
            int64_t swap = axes[a];
            axes[a] = axes[b];
            axes[b] = swap - v.rank; /* one counted from the end */
            assert_int_equal(view_permute(&v, v.rank, axes, &v, NULL), ERR_OK);
        }
        struct index_spec ix = {0};
        for (int k = 0; k < v.rank && pick(0, 1); k++)
            ix.items[ix.n++] = random_item();
        if (view_index(&v, &ix, &v, NULL) == ERR_OK && v.rank <= 6)
            return v;
    }
}

static void reshape_keeps_elements(void **state)
{
    (void)state;
    int made = 0, refused = 0;
    for (int round = 0; round < 6000; round++) {
        struct view v = random_view(), r;
        int64_t size = view_size(&v), shape[4], before[MOST], after[MOST];
        int rank = (int)pick(0, 4), unknown = (int)pick(0, 4);
        int64_t left = size;
        for (int k = 0; k < rank; k++) {
            int64_t d = pick(1, 6);
            while (left && left % d)
                d--;
            shape[k] = k == rank - 1 ? left : size ? d : pick(0, 3);
            left = size ? left / shape[k] : left;
        }
        if (rank == 0 ? size != 1 : false)
            continue;
        if (unknown < rank && size)
            shape[unknown] = -1;
        if (!size && rank)
            shape[pick(0, rank - 1)] = 0;
        enum err_code rc = view_reshape(&v, rank, shape, &r, NULL);
        if (view_is_contiguous(&v) && rc)
            fail_msg("a contiguous view was not reshaped");
        if (rc == ERR_NOT_A_VIEW) {
            refused++;
            continue;
        }
        assert_int_equal(rc, ERR_OK);
        int n = elements(&v, before);
        assert_int_equal(elements(&r, after), n);
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
        made++;
    }
    assert_in_range(made, 1000, 6000);
    assert_in_range(refused, 50, 6000);
}

static void reshape_cases(void **state)
{
    (void)state;
    struct view v, t, r;
    assert_int_equal(view_contiguous(2, (int64_t[]){4, 6}, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_permute(&v, 2, (int64_t[]){1, 0}, &t, NULL), ERR_OK);
    assert_int_equal(view_reshape(&t, 1, (int64_t[]){24}, &r, NULL), ERR_NOT_A_VIEW);
    assert_int_equal(view_reshape(&t, 4, (int64_t[]){2, 3, 2, 2}, &r, NULL), ERR_OK);
    assert_int_equal(r.strides[0], 3);
    assert_int_equal(r.strides[2], 12);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){5, -1}, &r, NULL), ERR_SHAPE_MISMATCH);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){5, 5}, &r, NULL), ERR_SHAPE_MISMATCH);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){-1, -1}, &r, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){-2, 12}, &r, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_reshape(&v, 33, (int64_t[33]){0}, &r, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(2, (int64_t[]){0, 6}, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){3, -1}, &r, NULL), ERR_OK);
    assert_int_equal(r.shape[1], 0);
    assert_int_equal(view_reshape(&v, 2, (int64_t[]){0, -1}, &r, NULL), ERR_SHAPE_MISMATCH);
}

static void overlap_is_found(void **state)
{
    (void)state;
    int overlapping = 0;
    for (int round = 0; round < 4000; round++) {
        struct view v = random_view();
        if (pick(0, 3) == 0 && v.rank < 4) {
            int64_t shape[8] = {pick(1, 3)};
            memcpy(shape + 1, v.shape, (size_t)v.rank * sizeof *shape);
            assert_int_equal(view_broadcast_to(&v, v.rank + 1, shape, &v, NULL), ERR_OK);
        }
        int64_t at[MOST], lo, hi, least = INT64_MAX, most = -1;
        int n = elements(&v, at);
        bool twice = false;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i && !twice; j++)
                twice = at[i] == at[j];
            least = at[i] < least ? at[i] : least;
            most = at[i] > most ? at[i] : most;
        }
        assert_int_equal(view_self_overlaps(&v), twice);
        view_extent(&v, &lo, &hi);
        assert_int_equal(lo, n ? least : 0);
        assert_int_equal(hi, n ? most + 1 : 0);
        overlapping += twice;
    }
    assert_in_range(overlapping, 100, 3900);
}

static void overflow_is_refused(void **state)
{
    (void)state;
    struct view v;
    const int64_t big = (int64_t)1 << 32;
    assert_int_equal(view_contiguous(2, (int64_t[]){big, big}, 1, &v, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(3, (int64_t[]){big, big, 0}, 1, &v, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(1, (int64_t[]){INT64_MAX}, 1, &v, NULL), ERR_OK);
    assert_int_equal(view_contiguous(1, (int64_t[]){INT64_MAX}, 2, &v, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(1, (int64_t[]){-1}, 1, &v, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(33, (int64_t[33]){0}, 1, &v, NULL), ERR_BAD_SHAPE);
    int64_t out[MAX_RANK];
    int rank;
    int64_t col[] = {big, 1}, row[] = {1, big};
    assert_int_equal(shape_broadcast(2, col, 2, row, &rank, out, NULL), ERR_BAD_SHAPE);
    assert_int_equal(view_contiguous(0, NULL, 16, &v, NULL), ERR_OK);
    assert_int_equal(view_broadcast_to(&v, 2, (int64_t[]){big, big}, &v, NULL), ERR_BAD_SHAPE);
}

static void broadcasting(void **state)
{
    (void)state;
    int64_t out[MAX_RANK];
    int rank;
    struct err e = ERR_INIT;
    assert_int_equal(shape_broadcast(2, (int64_t[]){4, 1}, 1, (int64_t[]){5}, &rank, out, &e), 0);
    assert_int_equal(rank, 2);
    assert_int_equal(out[0], 4);
    assert_int_equal(out[1], 5);
    assert_int_equal(shape_broadcast(1, (int64_t[]){0}, 1, (int64_t[]){1}, &rank, out, &e), 0);
    assert_int_equal(out[0], 0);
    assert_int_equal(shape_broadcast(1, (int64_t[]){3}, 2, (int64_t[]){3, 4}, &rank, out, &e),
                     ERR_SHAPE_MISMATCH);
    assert_string_equal(e.message, "shapes (3,) and (3, 4) do not broadcast together");
    struct view v, r;
    assert_int_equal(view_contiguous(2, (int64_t[]){3, 1}, 4, &v, &e), ERR_OK);
    assert_int_equal(view_broadcast_to(&v, 3, (int64_t[]){2, 3, 4}, &r, &e), ERR_OK);
    assert_int_equal(r.strides[0], 0);
    assert_int_equal(r.strides[1], 1);
    assert_int_equal(r.strides[2], 0);
    assert_int_equal(view_broadcast_to(&v, 1, (int64_t[]){3}, &r, &e), ERR_SHAPE_MISMATCH);
    assert_int_equal(view_broadcast_to(&v, 2, (int64_t[]){1, 1}, &r, &e), ERR_SHAPE_MISMATCH);
}

static void permutations(void **state)
{
    (void)state;
    struct view v, r;
    assert_int_equal(view_contiguous(3, (int64_t[]){2, 3, 4}, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_permute(&v, 3, (int64_t[]){2, -3, 1}, &r, NULL), ERR_OK);
    assert_int_equal(r.shape[0], 4);
    assert_int_equal(r.strides[0], 1);
    assert_int_equal(r.shape[1], 2);
    assert_int_equal(view_permute(&v, 3, (int64_t[]){0, 0, 1}, &r, NULL), ERR_BAD_AXIS);
    assert_int_equal(view_permute(&v, 3, (int64_t[]){0, 1, 3}, &r, NULL), ERR_BAD_AXIS);
    assert_int_equal(view_permute(&v, 2, (int64_t[]){0, 1}, &r, NULL), ERR_BAD_AXIS);
    assert_int_equal(view_permute(&v, 3, (int64_t[]){0, 1, INT64_MIN}, &r, NULL), ERR_BAD_AXIS);
}

static void bit_views(void **state)
{
    (void)state;
    struct view v, r;
    assert_int_equal(view_contiguous(2, (int64_t[]){4, 6}, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_reinterpret(&v, 4, 8, &r, NULL), ERR_OK);
    assert_int_equal(r.shape[1], 3);
    assert_int_equal(r.strides[0], 3);
    assert_int_equal(view_reinterpret(&v, 4, 1, &r, NULL), ERR_OK);
    assert_int_equal(r.shape[1], 24);
    assert_int_equal(r.strides[0], 24);
    assert_int_equal(view_reinterpret(&v, 4, 16, &r, NULL), ERR_NOT_A_VIEW);
    struct index_spec odd = {
        .n = 2,
        .items = {
            {.kind = INDEX_SLICE},
            {.kind = INDEX_SLICE, .has_start = true, .start = 1, .has_stop = true, .stop = 5}}};
    assert_int_equal(view_index(&v, &odd, &r, NULL), ERR_OK);
    assert_int_equal(view_reinterpret(&r, 4, 8, &r, NULL), ERR_NOT_A_VIEW); /* offset 1 */
    assert_int_equal(view_permute(&v, 2, (int64_t[]){1, 0}, &r, NULL), ERR_OK);
    assert_int_equal(view_reinterpret(&r, 4, 8, &r, NULL), ERR_NOT_A_VIEW);
    assert_int_equal(view_contiguous(0, NULL, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_reinterpret(&v, 4, 8, &r, NULL), ERR_NOT_A_VIEW);
    assert_int_equal(view_reinterpret(&v, 4, 4, &r, NULL), ERR_OK);
}

static void shape_texts(void **state)
{
    (void)state;
    char buf[SHAPE_TEXT_MAX], tiny[6];
    assert_string_equal(shape_text(0, NULL, buf, sizeof buf), "()");
    assert_string_equal(shape_text(1, (int64_t[]){3}, buf, sizeof buf), "(3,)");
    assert_string_equal(shape_text(2, (int64_t[]){2, 3}, buf, sizeof buf), "(2, 3)");
    int64_t huge[32];
    for (int k = 0; k < 32; k++)
        huge[k] = INT64_MAX;
    assert_in_range(strlen(shape_text(32, huge, buf, sizeof buf)), 1, sizeof buf - 1);
    assert_string_equal(shape_text(3, (int64_t[]){10, 20, 30}, tiny, sizeof tiny), "(10, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(index_means_what_python_says),
        cmocka_unit_test(index_errors),
        cmocka_unit_test(reshape_keeps_elements),
        cmocka_unit_test(reshape_cases),
        cmocka_unit_test(overlap_is_found),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(permutations),
        cmocka_unit_test(bit_views),
        cmocka_unit_test(shape_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
