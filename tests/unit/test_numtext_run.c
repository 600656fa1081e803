/* protocol/numtext_run: many float32 at once read exactly as one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "protocol/number/numtext.h"

#define MOST 4096

static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void check(const float *v, size_t n)
{
    static char run[MOST * NUMTEXT_RUN_ELEM + NUMTEXT_ELEM_MAX], single[MOST * NUMTEXT_ELEM_MAX];
    size_t len = numtext_f32_run(v, n, run), want = 0;
    for (size_t i = 0; i < n; i++) {
        want += numtext_elem(DT_F32, &v[i], single + want);
        if (i + 1 < n)
            single[want++] = ',';
    }
    assert_int_equal(len, want);
    assert_memory_equal(run, single, want);
}

static void any_bits(void **state)
{
    (void)state;
    static float v[MOST];
    for (int round = 0; round < 60; round++) {
        for (size_t i = 0; i < MOST; i++)
            v[i] = from_bits((uint32_t)next_random());
        check(v, MOST);
    }
}

static void numbers_of_the_fast_kind(void **state)
{
    (void)state;
    static float v[MOST];
    const uint32_t low = 0x38000000, high = 0x4F000000; /* 3e-5 to 2e9 */
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < MOST; i++) {
            uint64_t r = next_random();
            v[i] = from_bits((low + (uint32_t)(r % (high - low))) | (uint32_t)(r >> 63) << 31);
        }
        check(v, MOST);
    }
}

static void short_decimals(void **state)
{
    (void)state;
    static float v[MOST];
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < MOST; i++) {
            uint64_t r = next_random();
            double power = 1;
            for (uint64_t k = r >> 32 & 15; k; k--)
                power *= 10;
            v[i] = (float)((double)(r % 100000) / power) * (r >> 60 & 1 ? -1 : 1);
        }
        check(v, MOST);
    }
}

static void edges_of_the_range(void **state)
{
    (void)state;
    static float v[MOST];
    static const uint32_t around[] = {0x38D1B718, 0x4E6E6B28, 0x7F800000, 0x00000000, 0x00800000,
                                      0x3F800000, 0x4B800000, 0x4CBEBC20, 0x41200000, 0x7FC00000};
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
        for (size_t i = 0; i < MOST; i++)
            v[i] = from_bits(around[k] - MOST / 2 + (uint32_t)i);
        check(v, MOST);
    }
}

static void every_length(void **state)
{
    (void)state;
    float v[200];
    for (size_t i = 0; i < 200; i++)
        v[i] = (float)i / 7;
    for (size_t n = 0; n <= 200; n++)
        check(v, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bits),       cmocka_unit_test(numbers_of_the_fast_kind),
        cmocka_unit_test(short_decimals), cmocka_unit_test(edges_of_the_range),
        cmocka_unit_test(every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
