/* Regions cut into pieces, runs and boxes, against walking over every element. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/reader/pieces.h"

#define MOST 4096

static unsigned state = 1;

static int64_t below(int64_t n)
{
    state = state * 1664525 + 1013904223;
    return (int64_t)(state >> 8) % n;
}

/* The elements of a region of a shape, in C order, as places in the file. */
static int64_t walk(const struct region *r, const int64_t *shape, int64_t *ret)
{
    int64_t n = region_size(r);
    for (int64_t k = 0; k < n; k++) {
        int64_t rest = k, place = 0, stride = 1;
        for (int d = r->rank - 1; d >= 0; d--) {
            place += (r->start[d] + rest % r->count[d] * r->step[d]) * stride;
            rest /= r->count[d];
            stride *= shape[d];
        }
        ret[k] = place;
    }
    return n;
}

static void random_region(struct region *r, int64_t *shape, int64_t *chunks)
{
    r->rank = (int)below(5);
    for (int d = 0; d < r->rank; d++) {
        shape[d] = 1 + below(7);
        chunks[d] = 1 + below(5);
        r->step[d] = 1 + below(3);
        r->start[d] = below(shape[d] + 1);
        int64_t most = r->start[d] == shape[d] ? 0 : (shape[d] - r->start[d] - 1) / r->step[d] + 1;
        r->count[d] = below(10) ? (most ? 1 + below(most) : 0) : below(most + 1);
    }
}

/* Which chunk an element lies in. */
static int64_t chunk_of(int rank, const int64_t *shape, const int64_t *chunks, int64_t place)
{
    int64_t chunk = 0, scale = 1;
    for (int d = rank - 1; d >= 0; d--) {
        chunk += place % shape[d] / chunks[d] * scale;
        scale *= (shape[d] + chunks[d] - 1) / chunks[d];
        place /= shape[d];
    }
    return chunk;
}

static void test_pieces(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20000; round++) {
        struct region r, piece;
        int64_t shape[MAX_RANK], chunks[MAX_RANK], whole[MOST], part[MOST], at = 0, again, n;
        int touched[MOST] = {0}, last[MOST];
        memset(last, -1, sizeof last);
        random_region(&r, shape, chunks);
        int64_t size = walk(&r, shape, whole), elem = 1ll << below(4),
                budget = elem * (1 + below(60));
        struct pieces pieces;
        pieces_plan(&r, below(4) ? chunks : NULL, elem, budget, &pieces, &again);
        for (int k = 0; pieces_next(&pieces, &piece, &n); k++) {
            assert_true(n > 0 && n * elem <= budget);
            assert_int_equal(walk(&piece, shape, part), n);
            assert_true(at + n <= size);
            assert_memory_equal(part, whole + at, (size_t)n * sizeof *part);
            at += n;
            for (int64_t i = 0; i < n && pieces.chunk > 1; i++) {
                int64_t chunk = chunk_of(r.rank, shape, chunks, part[i]);
                touched[chunk] += last[chunk] != k;
                last[chunk] = k;
                if (again == 1)
                    assert_int_equal(touched[chunk], 1);
            }
        }
        assert_int_equal(at, size);
        assert_false(pieces_next(&pieces, &piece, &n));
    }
}

static void test_runs(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20000; round++) {
        struct region r;
        int64_t shape[MAX_RANK], chunks[MAX_RANK], whole[MOST], at = 0;
        random_region(&r, shape, chunks);
        int64_t size = walk(&r, shape, whole);
        struct runs runs;
        struct run run;
        runs_begin(&r, shape, &runs);
        while (runs_next(&runs, &run)) {
            assert_true(run.count > 0 && at + run.count <= size);
            for (int64_t i = 0; i < run.count; i++)
                assert_int_equal(run.first + i * run.step, whole[at + i]);
            at += run.count;
        }
        assert_int_equal(at, size);
    }
}

static void test_spans(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20000; round++) {
        struct region r, box;
        int64_t shape[MAX_RANK], chunks[MAX_RANK], size = 1, part[MOST];
        random_region(&r, shape, chunks);
        for (int d = 0; d < r.rank; d++)
            size *= shape[d];
        int64_t at = below(size), end = at + below(size - at + 1), seen = at;
        int boxes = 0;
        while (span_next(r.rank, shape, &at, end, &box)) {
            int64_t n = walk(&box, shape, part);
            assert_int_equal(at, seen + n);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(part[i], seen + i);
            seen = at;
            boxes++;
        }
        assert_int_equal(seen, end);
        assert_true(boxes <= 2 * r.rank + 1);
    }
}

static void test_chunk_rows(void **unused)
{
    (void)unused;
    int64_t rows[3];
    chunk_rows(3, (int64_t[]){100, 1000, 1000}, 4, 1 << 20, rows);
    assert_memory_equal(rows, ((int64_t[]){1, 262, 1000}), sizeof rows);
    chunk_rows(3, (int64_t[]){100, 10, 10}, 4, 1 << 20, rows);
    assert_memory_equal(rows, ((int64_t[]){100, 10, 10}), sizeof rows);
    chunk_rows(2, (int64_t[]){0, INT64_MAX}, 8, 1 << 20, rows);
    assert_memory_equal(rows, ((int64_t[]){1, 131072}), 2 * sizeof *rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_chunk_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
