/* protocol/numtext and numlist: shortest printing and exact reading, against libc; nested lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "compute/base/mem.h"
#include "protocol/number/numlist.h"
#include "protocol/number/numtext.h"

static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Significant digits of a number's text, without zeros around them. */
static int significant(const char *text, char *digits)
{
    int n = 0, kept = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' && (n > 0 || *text != '0'))
            digits[n++] = *text;
    for (int i = 0; i < n; i++)
        if (digits[i] != '0')
            kept = i + 1;
    digits[kept] = '\0';
    return kept;
}

/* v's text reads back, and no shorter one does. */
static void check_f64(double v)
{
    char buf[NUMTEXT_MAX + 1], ref[64], a[64], b[64];
    size_t n = numtext_f64(v, buf);
    assert_true(n < NUMTEXT_MAX);
    buf[n] = '\0';
    double back = strtod(buf, NULL), mine = numtext_parse_f64(buf, n);
    if (memcmp(&back, &v, 8) != 0 || memcmp(&mine, &v, 8) != 0)
        fail_msg("%a as %s reads %a (libc), %a", v, buf, back, mine);
    int p = 1;
    for (; p < 17; p++) {
        snprintf(ref, sizeof ref, "%.*e", p - 1, v);
        if (strtod(ref, NULL) == v)
            break;
    }
    snprintf(ref, sizeof ref, "%.*e", p - 1, v);
    int sa = significant(buf, a), sb = significant(ref, b);
    if (sa > sb)
        fail_msg("%s is longer than %s", buf, ref);
}

static void check_f32(float v)
{
    char buf[NUMTEXT_MAX + 1], ref[64], a[64], b[64];
    size_t n = numtext_f32(v, buf);
    buf[n] = '\0';
    float back = strtof(buf, NULL), mine = (float)numtext_parse_odd(buf, n);
    if (memcmp(&back, &v, 4) != 0 || memcmp(&mine, &v, 4) != 0)
        fail_msg("%a as %s reads %a (libc), %a", v, buf, back, mine);
    int p = 1;
    for (; p < 9; p++) {
        snprintf(ref, sizeof ref, "%.*e", p - 1, v);
        if (strtof(ref, NULL) == v)
            break;
    }
    snprintf(ref, sizeof ref, "%.*e", p - 1, v);
    if (significant(buf, a) > significant(ref, b))
        fail_msg("%s is longer than %s", buf, ref);
}

static void random_floats_print_short_and_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t r = next_random();
        double d;
        float f;
        memcpy(&d, &r, 8);
        if (isfinite(d))
            check_f64(d);
        check_f64((double)(r >> 11) * 0x1p-53);
        check_f64((double)(int64_t)(r % 2000003) / 1000 - 1000);
        check_f64(ldexp(1, (int)(r % 2098) - 1074)); /* powers of two: the lower gap is half */
        memcpy(&f, &r, 4);
        if (isfinite(f))
            check_f32(f);
        check_f32(ldexpf(1, (int)(r % 277) - 149));
        check_f32((float)(r >> 40) * 0x1p-24f);
    }
}

static void halves_print_short_and_read_back(void **state)
{
    (void)state;
    char buf[NUMTEXT_MAX];
    for (unsigned bits = 0; bits < 65536; bits++) {
        size_t n = numtext_f16((uint16_t)bits, buf);
        if (buf[n - 1] != 'N' && buf[n - 1] != 'y') {
            assert_int_equal(numtext_round_f16(numtext_parse_odd(buf, n)), bits);
            assert_true(n <= 11);
        }
        n = numtext_bf16((uint16_t)bits, buf);
        if (buf[n - 1] != 'N' && buf[n - 1] != 'y')
            assert_int_equal(numtext_round_bf16(numtext_parse_odd(buf, n)), bits);
    }
    assert_int_equal(numtext_round_f16(65519.999), 0x7BFF);
    assert_int_equal(numtext_round_f16(65520), 0x7C00);
    assert_int_equal(numtext_round_f16(-1e300), 0xFC00);
    assert_int_equal(numtext_round_f16(0x1p-25), 0);
    assert_int_equal(numtext_round_f16(0x1.8p-25), 1);
    assert_int_equal(numtext_round_f16(0x1.ffcp-15), 0x0400);
    assert_int_equal(numtext_round_bf16(-0.0), 0x8000);
    assert_int_equal(numtext_round_bf16(1.00390625), 0x3F80); /* half to even */
    assert_true((numtext_round_bf16(NAN) & 0x7FFF) > 0x7F80);
    assert_true((numtext_round_f16(NAN) & 0x7FFF) > 0x7C00);
}

static void texts_have_this_form(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {0.0001, "0.0001"},
        {0.00001, "1e-5"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e16"},
        {1e22, "1e22"},
        {1e23, "1e23"},
        {1.5e300, "1.5e300"},
        {5e-324, "5e-324"},
        {123456.789, "123456.789"},
        {9007199254740993.0, "9007199254740992.0"},
        {1.7976931348623157e308, "1.7976931348623157e308"},
        {NAN, "NaN"},
        {-INFINITY, "-Infinity"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[NUMTEXT_MAX + 1];
        buf[numtext_f64(cases[i].v, buf)] = '\0';
        assert_string_equal(buf, cases[i].text);
    }
    char buf[NUMTEXT_ELEM_MAX + 1];
    buf[numtext_i64(INT64_MIN, buf)] = '\0';
    assert_string_equal(buf, "-9223372036854775808");
    buf[numtext_u64(UINT64_MAX, buf)] = '\0';
    assert_string_equal(buf, "18446744073709551615");
    for (uint64_t p = 1, i = 0; i < 20; i++, p *= 10) {
        char ref[32];
        for (uint64_t v = p - 1; v <= p + 1; v++) {
            buf[numtext_u64(v, buf)] = '\0';
            snprintf(ref, sizeof ref, "%llu", (unsigned long long)v);
            assert_string_equal(buf, ref);
        }
    }
    double c[2] = {-INFINITY, -2.2250738585072014e-308};
    buf[numtext_elem(DT_C128, c, buf)] = '\0';
    assert_string_equal(buf, "[\"-Infinity\",-2.2250738585072014e-308]");
    buf[numtext_elem(DT_BOOL, "\1", buf)] = '\0';
    assert_string_equal(buf, "true");
}

static void any_decimal_reads_as_libc_reads_it(void **state)
{
    (void)state;
    char text[1400];
    for (int i = 0; i < 20000; i++) {
        uint64_t r = next_random();
        double d;
        memcpy(&d, &r, 8);
        if (!isfinite(d))
            continue;
        snprintf(text, sizeof text, "%.*e", (int)(next_random() % 30), d);
        double want = strtod(text, NULL), got = numtext_parse_f64(text, strlen(text));
        if (memcmp(&want, &got, 8) != 0)
            fail_msg("%s", text);
        float wf = strtof(text, NULL), gf = (float)numtext_parse_odd(text, strlen(text));
        if (memcmp(&wf, &gf, 4) != 0)
            fail_msg("%s", text);
        /* on and just beside the midpoint of two floats */
        float lo = ldexpf((float)(r >> 41), (int)(r % 100) - 70), hi = nextafterf(lo, INFINITY);
        snprintf(text, sizeof text, "%.*f", (int)(140 + r % 3), ((double)lo + (double)hi) / 2);
        if (r & 8)
            strcat(text, r & 4 ? "0000000000000001" : "0");
        wf = strtof(text, NULL);
        gf = (float)numtext_parse_odd(text, strlen(text));
        if (memcmp(&wf, &gf, 4) != 0)
            fail_msg("%s", text);
    }
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0e99999999999999999999",
        "1e-400",
        "1e400",
        "-1e99999999999999999999999",
        "1e-99999999999999999999999",
        "9007199254740993",
        "9007199254740992.99999999999999999999999999999999",
        "2.4703282292062327208e-324",
        "2.4703282292062328e-324",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "2.2250738585072011e-308",
        "4503599627370496.5",
        "4503599627370497.5",
        "8.5",
        ".5",
        "5.",
        "123456789012345678901234567890",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double want = strtod(texts[i], NULL), got = numtext_parse_f64(texts[i], strlen(texts[i]));
        if (memcmp(&want, &got, 8) != 0)
            fail_msg("%s: %a %a", texts[i], want, got);
    }
    /* zeros that only move the point */
    memset(text, '0', 1200);
    text[1] = '.';
    strcpy(text + 1200, "1e1199");
    assert_true(numtext_parse_f64(text, strlen(text)) == 1);
    /* a midpoint of doubles decided by the 1,000th digit */
    strcpy(text, "1.00000000000000011102230246251565404236316680908203125");
    size_t n = strlen(text);
    memset(text + n, '0', 1000);
    text[n + 1000] = '\0';
    assert_true(numtext_parse_f64(text, n + 1000) == 1);
    text[n + 999] = '1';
    assert_true(numtext_parse_f64(text, n + 1000) == 1 + 0x1p-52);
}

static void integers_up_to_127_bits(void **state)
{
    (void)state;
    __int128 v;
    const char *max = "170141183460469231731687303715884105727";
    assert_true(numtext_parse_int(max, strlen(max), &v));
    assert_true(v == (__int128)(~(unsigned __int128)0 >> 1));
    assert_true(numtext_parse_int("-12", 3, &v) && v == -12);
    assert_false(numtext_parse_int("170141183460469231731687303715884105728", 39, &v));
    assert_false(numtext_parse_int("9999999999999999999999999999999999999999999", 43, &v));
}

static void check_list(enum dtype t, struct view v, const void *base, const char *want)
{
    struct strb b = {0};
    numlist_add(&b, t, &v, base);
    assert_string_equal(b.data, want);
    assert_int_equal(numlist_length(t, &v, base), strlen(want));
    strb_free(&b);
}

static void lists_follow_the_view(void **state)
{
    (void)state;
    int16_t a[24];
    for (int i = 0; i < 24; i++)
        a[i] = (int16_t)i;
    check_list(DT_I16, (struct view){.offset = 7}, a, "7");
    check_list(DT_I16, (struct view){1, {3}, {-2}, 5}, a, "[5,3,1]");
    check_list(DT_I16, (struct view){2, {2, 3}, {1, 4}, 0}, a, "[[0,4,8],[1,5,9]]");
    check_list(DT_I16, (struct view){3, {1, 2, 1}, {0, 6, 1}, 1}, a, "[[[1],[7]]]");
    check_list(DT_I16, (struct view){2, {2, 2}, {0, 0}, 3}, a, "[[3,3],[3,3]]");
    check_list(DT_I16, (struct view){1, {0}, {1}, 0}, a, "[]");
    check_list(DT_I16, (struct view){2, {3, 0}, {0, 1}, 0}, a, "[[],[],[]]");
    check_list(DT_I16, (struct view){3, {2, 2, 0}, {0, 0, 1}, 0}, a, "[[[],[]],[[],[]]]");
    check_list(DT_I16, (struct view){3, {2, 0, 5}, {0, 0, 1}, 0}, a, "[[],[]]");
    float c[4] = {1, -2, NAN, 0.5f};
    check_list(DT_C64, (struct view){1, {2}, {1}, 0}, c, "[[1.0,-2.0],[\"NaN\",0.5]]");
    struct view huge = {3, {1ll << 40, 1ll << 20, 0}, {0, 0, 0}, 0};
    assert_true(numlist_length(DT_I8, &huge, a) > 1ull << 60);
    struct strb b = {0};
    numlist_add(&b, DT_I8, &huge, a);
    assert_true(b.failed);
    strb_free(&b);
}

static void pieces_of_any_size_make_the_same_text(void **state)
{
    (void)state;
    double a[720];
    for (int i = 0; i < 720; i++)
        a[i] = i % 7 ? i * 0.37 - 100 : INFINITY;
    struct view v = {.rank = 32, .offset = 719};
    int64_t stride = -1;
    for (int d = 31; d >= 0; d--) {
        v.shape[d] = d == 31 ? 5 : d == 17 ? 12 : d == 3 ? 12 : 1;
        v.strides[d] = stride;
        stride *= v.shape[d];
    }
    struct strb whole = {0};
    numlist_add(&whole, DT_F64, &v, a);
    for (size_t cap = NUMLIST_MIN; cap < 1000; cap += 37) {
        struct strb b = {0};
        struct numlist l;
        char buf[1000];
        size_t n;
        numlist_init(&l, DT_F64, &v, a);
        while ((n = numlist_next(&l, buf, cap))) {
            assert_true(n <= cap);
            strb_addn(&b, buf, n);
        }
        assert_string_equal(b.data, whole.data);
        strb_free(&b);
    }
    strb_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_floats_print_short_and_read_back),
        cmocka_unit_test(halves_print_short_and_read_back),
        cmocka_unit_test(texts_have_this_form),
        cmocka_unit_test(any_decimal_reads_as_libc_reads_it),
        cmocka_unit_test(integers_up_to_127_bits),
        cmocka_unit_test(lists_follow_the_view),
        cmocka_unit_test(pieces_of_any_size_make_the_same_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
