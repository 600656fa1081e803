/* compute/cpu/interp/rows: pieces copied between strided memory and packed blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/cpu/interp/rows.h"

#define MOST  21 /* rows of a piece, and elements of one */
#define ROUND 4  /* elements between two rows, at most */

static unsigned seed = 1;

static int64_t random_below(int64_t n)
{
    seed = seed * 1103515245U + 12345U;
    return (int64_t)(seed >> 8) % n;
}

/* A piece within memory of its own size, so that a checker sees what lies outside it. */
struct piece {
    int64_t np, nq, sp, sq;
    size_t item, bytes;
    char *memory, *first; /* where [0][0] is */
};

/* Along one axis the elements follow one another, or nearly; along the other lie the rows. Either
 * way. */
static struct piece random_piece(size_t item)
{
    struct piece x = {.np = 1 + random_below(MOST), .nq = 1 + random_below(MOST), .item = item};
    const bool along_q = random_below(2);
    const int64_t n = along_q ? x.nq : x.np;
    int64_t near = 1 + (random_below(3) == 0), far = near * n + random_below(ROUND);
    near *= (random_below(4) ? 1 : -1) * (int64_t)item;
    far *= (random_below(4) ? 1 : -1) * (int64_t)item;
    x.sp = along_q ? far : near;
    x.sq = along_q ? near : far;
    const int64_t p = (x.np - 1) * x.sp, q = (x.nq - 1) * x.sq;
    const int64_t least = (p < 0 ? p : 0) + (q < 0 ? q : 0);
    const int64_t most = (p > 0 ? p : 0) + (q > 0 ? q : 0);
    x.bytes = (size_t)(most - least) + item;
    x.memory = malloc(x.bytes);
    assert_non_null(x.memory);
    x.first = x.memory - least;
    return x;
}

static char *at(const struct piece *x, int64_t p, int64_t q)
{
    return x->first + p * x->sp + q * x->sq;
}

static void pieces_are_gathered_and_scattered(void **state)
{
    static const size_t items[] = {1, 2, 4, 8, 16};
    (void)state;
    for (int k = 0; k < 20000; k++) {
        struct piece x = random_piece(items[k % 5]);
        const size_t packed = (size_t)(x.np * x.nq) * x.item;
        char *block = malloc(packed), *before = malloc(x.bytes);
        assert_true(block && before);
        for (size_t i = 0; i < x.bytes; i++)
            x.memory[i] = (char)random_below(256);
        memcpy(before, x.memory, x.bytes);

        rows_gather(block, x.first, x.item, x.np, x.sp, x.nq, x.sq);
        assert_memory_equal(before, x.memory, x.bytes);
        for (int64_t q = 0; q < x.nq; q++)
            for (int64_t p = 0; p < x.np; p++)
                assert_memory_equal(block + (size_t)(q * x.np + p) * x.item, at(&x, p, q), x.item);

        for (size_t i = 0; i < packed; i++)
            block[i] = (char)~block[i];
        rows_scatter(x.first, x.item, x.np, x.sp, x.nq, x.sq, block);
        for (int64_t q = 0; q < x.nq; q++)
            for (int64_t p = 0; p < x.np; p++) {
                assert_memory_equal(block + (size_t)(q * x.np + p) * x.item, at(&x, p, q), x.item);
                for (size_t i = 0; i < x.item; i++)
                    at(&x, p, q)[i] = (char)~at(&x, p, q)[i];
            }
        assert_memory_equal(before, x.memory, x.bytes); /* nothing beside them */
        free(before);
        free(block);
        free(x.memory);
    }
}

static void one_value_fills_a_block(void **state)
{
    (void)state;
    const uint32_t row[3] = {7, 8, 9};
    uint32_t block[6];
    rows_gather(block, (const char *)row, 4, 2, 0, 3, 4);
    const uint32_t want[6] = {7, 7, 8, 8, 9, 9};
    assert_memory_equal(block, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_gathered_and_scattered),
        cmocka_unit_test(one_value_fills_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
