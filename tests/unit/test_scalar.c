/* compute/kernels/scalar/scalar.h: conversions of halves over all their values, Philox against
 * Random123's published vectors, and the integer rules at their edges. The operations at large are
 * held against the golden tables by test_loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "compute/kernels/scalar/scalar.h"

/* The value of a binary float with `mant` mantissa bits, by the definition. */
static double by_definition(unsigned h, int mant, int bias)
{
    int exp_bits = 15 - mant;
    int e = (int)(h >> mant) & ((1 << exp_bits) - 1);
    double m = h & ((1u << mant) - 1);
    double v;
    if (e == (1 << exp_bits) - 1)
        v = m != 0 ? NAN : INFINITY;
    else if (e == 0)
        v = ldexp(m, 1 - bias - mant);
    else
        v = ldexp(m + (double)(1 << mant), e - bias - mant);
    return h & 0x8000 ? -v : v;
}

static void halves_convert_exactly_and_back(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        double d = by_definition(h, 10, 15);
        float f = ar_f16_to_f32((ar_f16)h);
        assert_true(isnan(d) ? isnan(f) : (double)f == d && !signbit(f) == !signbit(d));
        unsigned quiet = isnan(d) ? h | 0x200 : h;
        assert_int_equal(ar_f32_to_f16(f), quiet);
        assert_int_equal(ar_f64_to_f16((double)f), quiet);
        d = by_definition(h, 7, 127);
        f = ar_bf16_to_f32((ar_bf16)h);
        assert_true(isnan(d) ? isnan(f) : (double)f == d && !signbit(f) == !signbit(d));
        quiet = isnan(d) ? h | 0x40 : h;
        assert_int_equal(ar_f32_to_bf16(f), quiet);
        assert_int_equal(ar_f64_to_bf16((double)f), quiet);
    }
}

/* Halfway between neighbours goes to the even one, a hair beside it to the nearer. */
static void halves_round_once_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        double a = by_definition(h, 10, 15);
        double b = h + 1 == 0x7c00 ? 65536.0 : by_definition(h + 1, 10, 15);
        double mid = (a + b) / 2;
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(ar_f64_to_f16(mid), even);
        assert_int_equal(ar_f32_to_f16((float)mid), even);
        assert_int_equal(ar_f64_to_f16(nextafter(mid, 0)), h);
        assert_int_equal(ar_f64_to_f16(nextafter(mid, INFINITY)), h + 1);
        assert_int_equal(ar_f32_to_f16(nextafterf((float)mid, 0)), h);
        assert_int_equal(ar_f64_to_f16(-nextafter(mid, INFINITY)), 0x8000 | (h + 1));
    }
    for (unsigned h = 0; h < 0x7f80; h++) {
        double a = by_definition(h, 7, 127);
        double b = h + 1 == 0x7f80 ? 0x1p128 : by_definition(h + 1, 7, 127);
        double mid = (a + b) / 2;
        unsigned even = h & 1 ? h + 1 : h;
        assert_int_equal(ar_f64_to_bf16(mid), even);
        assert_int_equal(ar_f32_to_bf16((float)mid), even);
        assert_int_equal(ar_f64_to_bf16(nextafter(mid, 0)), h);
        assert_int_equal(ar_f64_to_bf16(nextafter(mid, INFINITY)), h + 1);
    }
}

static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        struct ar_philox counter;
        ar_u32 key[2], want[4];
    } vectors[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct ar_philox r =
            ar_philox4x32(vectors[i].counter, vectors[i].key[0], vectors[i].key[1]);
        assert_memory_equal(r.w, vectors[i].want, sizeof r.w);
    }
}

static void distributions_stay_in_their_ranges(void **state)
{
    (void)state;
    struct ar_philox least = {{0, 0, 0, 0}}, most = {{~0u, ~0u, ~0u, ~0u}};
    assert_true(ar_uniform_F32(least) == 0 && ar_uniform_F32(most) < 1);
    assert_true(ar_uniform_F64(least) == 0 && ar_uniform_F64(most) < 1);
    assert_true(ar_uniform_open(0, 0) > 0 && ar_uniform_open(~0u, ~0u) == 1);
    assert_int_equal((ar_i64)ar_integers(least, (ar_u64)-5, 9), -5);
    assert_int_equal((ar_i64)ar_integers(most, (ar_u64)-5, 9), 8);
    assert_int_equal((ar_i64)ar_integers(most, (ar_u64)INT64_MIN, INT64_MAX), INT64_MAX - 1);
    assert_true(isfinite(ar_normal_F64(least)) && isfinite(ar_normal_F64(most)));
    assert_true(ar_mulhi_U64(~0ul, ~0ul) == ~0ul - 1);
    /* cosines of whole turns' quarters are exact */
    assert_true(ar_cos_turn(0) == 1 && ar_cos_turn(0.5) == -1 && ar_cos_turn(1) == 1);
    assert_true(ar_cos_turn(0.25) == 0 && ar_cos_turn(0.75) == 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < 20000; i++) {
        double z = ar_normal_F64(ar_philox(99, i));
        sum += z, squares += z * z;
    }
    assert_true(fabs(sum / 20000) < 0.03 && fabs(squares / 20000 - 1) < 0.04);
}

static void integers_never_fault(void **state)
{
    (void)state;
    assert_int_equal(ar_FLOOR_DIVIDE_I32(INT32_MIN, -1), INT32_MIN);
    assert_int_equal(ar_FLOOR_DIVIDE_I64(INT64_MIN, -1), INT64_MIN);
    assert_int_equal(ar_REMAINDER_I64(INT64_MIN, -1), 0);
    assert_int_equal(ar_FMOD_I64(INT64_MIN, -1), 0);
    assert_int_equal(ar_FLOOR_DIVIDE_I8(-128, -1), -128);
    assert_int_equal(ar_FLOOR_DIVIDE_I64(7, 0), 0);
    assert_int_equal(ar_REMAINDER_U64(7, 0), 0);
    assert_int_equal(ar_FLOOR_DIVIDE_I32(-7, 2), -4);
    assert_int_equal(ar_REMAINDER_I32(-7, 2), 1);
    assert_int_equal(ar_FMOD_I32(-7, 2), -1);
    assert_int_equal(ar_BITWISE_LEFT_SHIFT_I32(1, 32), 0);
    assert_int_equal(ar_BITWISE_LEFT_SHIFT_I32(1, -1), 0);
    assert_int_equal(ar_BITWISE_RIGHT_SHIFT_I32(-5, 99), -1);
    assert_int_equal(ar_BITWISE_RIGHT_SHIFT_I32(-5, -1), -1);
    assert_int_equal(ar_BITWISE_RIGHT_SHIFT_U32(5, 32), 0);
    assert_int_equal(ar_POW_I32(-1, -3), -1);
    assert_int_equal(ar_POW_I32(0, -3), 0);
    assert_int_equal(ar_POW_U8(2, 200), 0);
    assert_int_equal(ar_cast_F64_I8(NAN), 0);
    assert_int_equal(ar_cast_F64_I64(1e300), INT64_MAX);
    assert_int_equal(ar_cast_F32_U8(-3.5f), 0);
    assert_int_equal(ar_cast_F32_I32(-2147483904.0f), INT32_MIN);
    assert_int_equal(ar_cast_F64_BOOL(NAN), 1);
    /* every pair of 8-bit integers, divided by way of float32 */
    for (int a = -128; a < 128; a++)
        for (int b = -128; b < 128; b++) {
            int q = b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
            assert_int_equal(ar_FLOOR_DIVIDE_I8((ar_i8)a, (ar_i8)b), (int8_t)q);
            assert_int_equal(ar_REMAINDER_I8((ar_i8)a, (ar_i8)b), b == 0 ? 0 : a - q * b);
        }
}

/* Division of 16 and 32 bits by way of floats is exact at its worst: just below an integer. */
static void integer_quotients_are_exact(void **state)
{
    (void)state;
    for (unsigned b = 1; b < 65536; b += 7)
        for (unsigned q = 1; q * b <= 65535; q += 1 + q / 3) {
            assert_int_equal(ar_FLOOR_DIVIDE_U16((ar_u16)(q * b), (ar_u16)b), q);
            assert_int_equal(ar_FLOOR_DIVIDE_U16((ar_u16)(q * b - 1), (ar_u16)b), q - 1);
        }
    for (uint64_t b = 1; b < 0x100000000; b = b * 5 / 4 + 1)
        for (uint64_t q = 1; q * b < 0x100000000; q = q * 5 / 4 + 1) {
            assert_int_equal(ar_FLOOR_DIVIDE_U32((ar_u32)(q * b), (ar_u32)b), q);
            assert_int_equal(ar_FLOOR_DIVIDE_U32((ar_u32)(q * b - 1), (ar_u32)b), q - 1);
        }
}

static double ulps_apart(double got, double want)
{
    return fabs(got - want) / (nextafter(fabs(want), INFINITY) - fabs(want));
}

/* What devices run; here held against values made with mpmath, also at the zeros, and against the C
 * library's lgamma, which is good to 5 ulp. */
static void lgamma_of_devices_is_good_below_minus_two(void **state)
{
    (void)state;
    static const double known[][2] = {
        {-2.0000000000000004, 0x1.1542457337d43p+5},
        {-2.4570247382208006, 0x1.0323b6d1fe86dp-54},
        {-2.5, -0x1.ccbf9f5ed0f16p-5},
        {-2.625, -0x1.e15351cbe648ep-4},
        {-2.7476826467274127, 0x1.8fb8530ba7689p-53},
        {-3.141592653589793, 0x1.fe5e672b2793ap-7},
        {-3.955294284858598, -0x1.ddc0336980b58p-52},
        {-5.008218168788999, -0x1.ee3cc54ee4663p-25},
        {-9.999999724411042, -0x1.da76f06c124e5p-15},
        {-10.5, -0x1.e4b670d05976ap+3},
        {-15.000000000000764, 0x1.2ed7d82bf7333p-10},
        {-19.999999999999996, -0x1.2210ceec73124p+3},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(ulps_apart(ar_lgamma_minus_F64(known[i][0]), known[i][1]) <= 7);
    int sign;
    uint64_t r = 1;
    for (int i = 0; i < 200000; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        double x = -2 - (double)(r >> 11) * 0x1p-53 * 18;
        if (i % 2) /* near an integer, where the zeros are */
            x = rint(x) + (x - rint(x)) * exp2(-(double)(r & 31));
        if (x < -2 && x > -20 && x != rint(x) &&
            ulps_apart(ar_lgamma_minus_F64(x), lgamma_r(x, &sign)) > 12)
            fail_msg("%a: %a, not %a", x, ar_lgamma_minus_F64(x), lgamma_r(x, &sign));
    }
    for (int n = 3; n < 20; n++)
        assert_true(ar_lgamma_minus_F64(-n) == INFINITY);
}

/* A NaN's sign says nothing: it must not reach a zero's. */
static void quotients_do_not_depend_on_the_sign_of_a_nan(void **state)
{
    (void)state;
    const double inf = INFINITY;
    for (int k = 0; k < 2; k++) {
        double nan = copysign(NAN, k ? -1.0 : 1.0);
        ar_c128 q = ar_DIVIDE_C128((ar_c128){1, 0}, (ar_c128){-inf, nan});
        assert_true(q.re == 0 && signbit(q.re));
        assert_true(q.im == 0 && signbit(q.im));
        ar_c64 r = ar_RECIPROCAL_C64((ar_c64){-INFINITY, (float)nan});
        assert_true(r.im == 0 && signbit(r.im));
        q = ar_DIVIDE_C128((ar_c128){inf, nan}, (ar_c128){0, 2});
        assert_true(isnan(q.re) || q.re == 0);
        assert_true(q.im == -inf);
    }
}

/* kernels/forms/half.cuh's quotient, whose reciprocal is a device's: one or two units beside. Of
 * the values only the digits matter, and by how much the result is subnormal. */
static void quotients_of_halves_need_no_exact_reciprocal(void **state)
{
    (void)state;
    int wrong = 0;
    for (unsigned b = 0x3c00; b < 0x4000; b++)
        for (unsigned a = 0x400; a < 26u << 10; a++) {
            /* down to half of the smallest subnormal */
            const float x = ldexpf(ar_f16_to_f32((ar_f16)(0x3c00 | (a & 0x3ff))), -((int)a >> 10)),
                        y = ar_f16_to_f32((ar_f16)b), exact = 1 / y;
            const ar_f16 want = ar_f32_to_f16(x / y);
            for (int ulps = -2; ulps <= 2; ulps++) {
                const float r = ar_from_bits_F32(ar_bits_F32(exact) + (unsigned)ulps), q = x * r;
                wrong += ar_f32_to_f16(fmaf(fmaf(-q, y, x), r, q)) != want;
            }
        }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_convert_exactly_and_back),
        cmocka_unit_test(halves_round_once_to_nearest_even),
        cmocka_unit_test(quotients_of_halves_need_no_exact_reciprocal),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(distributions_stay_in_their_ranges),
        cmocka_unit_test(integers_never_fault),
        cmocka_unit_test(integer_quotients_are_exact),
        cmocka_unit_test(quotients_do_not_depend_on_the_sign_of_a_nan),
        cmocka_unit_test(lgamma_of_devices_is_good_below_minus_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
