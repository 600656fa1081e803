/* compute/dtype: promotion against NumPy's tables, literals, conversions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "compute/cpu/loops/loops.h"
#include "compute/type/dtype.h"

/* numpy.promote_types and can_cast(…, "same_kind") of NumPy 2, by dtype number; '.' where bfloat16
 * is in it. */
static const char promotion[DT_COUNT][DT_COUNT + 1] = {
    "0123456789.bcde", "11234234c9.bcde", "22234234cb.bcde", "33334334cc.ccee", "44444444cc.ccee",
    "5223456789.bcde", "633346678b.bcde", "744447778c.ccee", "8cccc8888c.ccee", "99bcc9bcc9.bcde",
    "...............", "bbbccbbccb.bcde", "cccccccccc.ccee", "dddeeddeed.dede", "eeeeeeeeee.eeee"};
static const char same_kind[DT_COUNT][DT_COUNT + 1] = {
    "1111111111.1111", "0111100001.1111", "0111100001.1111", "0111100001.1111", "0111100001.1111",
    "0111111111.1111", "0111111111.1111", "0111111111.1111", "0111111111.1111", "0000000001.1111",
    "...............", "0000000001.1111", "0000000001.1111", "0000000000.0011", "0000000000.0011"};

static void promotes_as_numpy(void **state)
{
    (void)state;
    for (int a = 0; a < DT_COUNT; a++)
        for (int b = 0; b < DT_COUNT; b++) {
            if (promotion[a][b] == '.')
                continue;
            int want = (int)(strchr("0123456789abcde", promotion[a][b]) - "0123456789abcde");
            if (dtype_promote(a, b) != want)
                fail_msg("%s with %s gives %s", dtype_name(a), dtype_name(b),
                         dtype_name(dtype_promote(a, b)));
            assert_int_equal(dtype_can_cast_same_kind(a, b), same_kind[a][b] == '1');
        }
}

static void bfloat16_promotes_as_float16(void **state)
{
    (void)state;
    for (int t = 0; t < DT_COUNT; t++) {
        enum dtype with16 = dtype_promote(DT_F16, t), with_bf = dtype_promote(t, DT_BF16);
        assert_int_equal(with_bf, dtype_promote(DT_BF16, t));
        if (t == DT_F16)
            assert_int_equal(with_bf, DT_F32);
        else if (t == DT_BF16)
            assert_int_equal(with_bf, DT_BF16);
        else
            assert_int_equal(with_bf, with16 == DT_F16 ? DT_BF16 : with16);
    }
}

static void names(void **state)
{
    (void)state;
    for (int t = 0; t < DT_COUNT; t++)
        assert_int_equal(dtype_from_name(dtype_name(t), strlen(dtype_name(t))), t);
    assert_int_equal(dtype_from_name("float", 5), -1);
    assert_int_equal(dtype_from_name("float320", 8), -1);
    assert_int_equal(dtype_from_name("", 0), -1);
    assert_string_equal(dtype_npy(DT_BF16), "V2");
    assert_int_equal(dtype_size(DT_C128), 16);
}

static struct literal lit_i(__int128 i)
{
    return (struct literal){.kind = LIT_INT, .i = i};
}

static struct literal lit_f(double d)
{
    return (struct literal){.kind = LIT_FLOAT, .re = d};
}

static void literals_are_weak(void **state)
{
    (void)state;
    struct literal i = lit_i(1), f = lit_f(0.5), b = {.kind = LIT_BOOL, .i = 1};
    struct literal z = {.kind = LIT_COMPLEX, .im = 1};
    static const struct {
        enum dtype t, with_int, with_float, with_complex;
    } rows[] = {{DT_BOOL, DT_I64, DT_F64, DT_C128},  {DT_I8, DT_I8, DT_F64, DT_C128},
                {DT_U64, DT_U64, DT_F64, DT_C128},   {DT_F16, DT_F16, DT_F16, DT_C64},
                {DT_BF16, DT_BF16, DT_BF16, DT_C64}, {DT_F32, DT_F32, DT_F32, DT_C64},
                {DT_F64, DT_F64, DT_F64, DT_C128},   {DT_C64, DT_C64, DT_C64, DT_C64}};
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        assert_int_equal(dtype_promote_literal(rows[k].t, &b), rows[k].t);
        assert_int_equal(dtype_promote_literal(rows[k].t, &i), rows[k].with_int);
        assert_int_equal(dtype_promote_literal(rows[k].t, &f), rows[k].with_float);
        assert_int_equal(dtype_promote_literal(rows[k].t, &z), rows[k].with_complex);
    }
}

static void literals_must_fit(void **state)
{
    (void)state;
    struct scalar s;
    struct err e = ERR_INIT;
    for (int t = DT_I8; t <= DT_U64; t++) {
        int bits = 8 * (int)dtype_size(t);
        bool is_signed = dtype_kind(t) == KIND_INT;
        __int128 lo = is_signed ? -((__int128)1 << (bits - 1)) : 0;
        __int128 hi = ((__int128)1 << (bits - is_signed)) - 1;
        struct literal edges[] = {lit_i(lo), lit_i(hi), lit_i(lo - 1), lit_i(hi + 1)};
        for (int k = 0; k < 4; k++) {
            enum err_code rc = scalar_from_literal(t, &edges[k], &s, &e);
            assert_int_equal(rc, k < 2 ? ERR_OK : ERR_LITERAL_RANGE);
            if (k < 2)
                assert_true(literal_from_scalar(s).i == edges[k].i);
        }
    }
    struct literal half = lit_f(0.5), big = lit_f(1e300), two = lit_i(2);
    struct literal z = {.kind = LIT_COMPLEX, .re = 1, .im = 2};
    assert_int_equal(scalar_from_literal(DT_I32, &half, &s, &e), ERR_LITERAL_RANGE);
    assert_string_equal(e.message, "0.5 does not fit int32");
    assert_int_equal(scalar_from_literal(DT_BOOL, &two, &s, &e), ERR_LITERAL_RANGE);
    struct literal whole = lit_f(-3.0), large = lit_f(300.0), nan = lit_f(NAN),
                   inf = lit_f(INFINITY);
    assert_int_equal(scalar_from_literal(DT_I8, &whole, &s, &e), ERR_OK);
    assert_int_equal(s.v.i8, -3);
    assert_int_equal(scalar_from_literal(DT_U8, &whole, &s, &e), ERR_LITERAL_RANGE);
    assert_int_equal(scalar_from_literal(DT_U8, &large, &s, &e), ERR_LITERAL_RANGE);
    assert_int_equal(scalar_from_literal(DT_I64, &nan, &s, &e), ERR_LITERAL_RANGE);
    assert_int_equal(scalar_from_literal(DT_I64, &inf, &s, &e), ERR_LITERAL_RANGE);
    assert_int_equal(scalar_from_literal(DT_F64, &z, &s, &e), ERR_LITERAL_RANGE);
    assert_int_equal(scalar_from_literal(DT_F32, &big, &s, &e), ERR_OK);
    assert_true(isinf(s.v.f32));
    assert_int_equal(scalar_from_literal(DT_F16, &two, &s, &e), ERR_OK);
    assert_int_equal(s.v.u16, 0x4000);
    enum dtype t;
    struct literal u = lit_i((__int128)UINT64_MAX), over = lit_i((__int128)UINT64_MAX + 1);
    assert_int_equal(dtype_of_literal(&u, &t, &e), ERR_OK);
    assert_int_equal(t, DT_U64);
    assert_int_equal(dtype_of_literal(&over, &t, &e), ERR_LITERAL_RANGE);
    assert_string_equal(e.message, "18446744073709551616 fits neither int64 nor uint64");
}

/* scalar_cast says what the CPU's loops do, for all pairs of types. */
static void casts_as_the_loops(void **state)
{
    (void)state;
    static const double values[] = {0,     -0.0,   1,     -1,     0.5,    -0.5,  1.5,    2.5,
                                    127,   128,    -128,  -129,   255,    256,   65504,  65519,
                                    65520, 65535,  1e-8,  6e-8,   3e-8,   1e-40, 2.9e-8, 1e30,
                                    -1e30, 3.4e38, 1e300, -1e300, 1e-310, 4e9,   9.3e18, 1.9e19};
    for (int from = 0; from < DT_COUNT; from++)
        for (int to = 0; to < DT_COUNT; to++)
            for (size_t k = 0; k < sizeof values / sizeof values[0] + 3; k++) {
                static const double special[] = {NAN, INFINITY, -INFINITY};
                size_t n = sizeof values / sizeof values[0];
                struct scalar x = {.dtype = DT_C128};
                x.v.c128[0] = k < n ? values[k] : special[k - n];
                x.v.c128[1] = k % 2 ? 0.25 : 0;
                x = scalar_cast(x, from);
                union value want = {0};
                loop_cast(from, to)(&want, (const void *[]){&x.v}, 1);
                struct scalar got = scalar_cast(x, to);
                assert_int_equal(got.dtype, to);
                struct scalar w = {.dtype = to, .v = want};
                struct literal lw = literal_from_scalar(w), lg = literal_from_scalar(got);
                bool nan = lw.kind >= LIT_FLOAT && isnan(lw.re);
                if (nan ? !isnan(lg.re) : memcmp(want.raw, got.v.raw, dtype_size(to)) != 0)
                    fail_msg("%s → %s of %.17g: %.17g, loops %.17g", dtype_name(from),
                             dtype_name(to), literal_from_scalar(x).re, lg.re, lw.re);
            }
}

static void halves_survive_float64(void **state)
{
    (void)state;
    for (int t = DT_F16; t <= DT_BF16; t++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            struct scalar h = {.dtype = t, .v.u16 = (uint16_t)bits};
            struct scalar d = scalar_cast(h, DT_F64), back = scalar_cast(d, t);
            if (isnan(d.v.f64))
                assert_true(isnan(scalar_cast(back, DT_F64).v.f64));
            else
                assert_int_equal(back.v.u16, bits);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promotes_as_numpy),
        cmocka_unit_test(bfloat16_promotes_as_float16),
        cmocka_unit_test(names),
        cmocka_unit_test(literals_are_weak),
        cmocka_unit_test(literals_must_fit),
        cmocka_unit_test(casts_as_the_loops),
        cmocka_unit_test(halves_survive_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
