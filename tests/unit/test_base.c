/* compute/base: errors, arena, string builder, allocator with fault injection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/base/mem.h"
#include "compute/base/strb.h"

static void err_has_status_name_place(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(err_field(&e, ERR_BAD_SHAPE, "/0", "extent %d", -1), ERR_BAD_SHAPE);
    assert_int_equal(err_prefix(&e, "/shape"), ERR_BAD_SHAPE);
    assert_string_equal(e.pointer, "/shape/0");
    assert_string_equal(e.message, "extent -1");
    assert_int_equal(err_status(ERR_INLINE_TOO_LARGE), 422);
    assert_int_equal(err_status(ERR_TOO_LARGE), 413);
    assert_string_equal(err_name(ERR_INLINE_TOO_LARGE), err_name(ERR_TOO_LARGE));
    for (int c = 1; c < ERR_COUNT; c++) {
        assert_in_range(err_status(c), 400, 599);
        assert_true(strlen(err_title(c)) > 0);
    }
}

static void long_message_is_cut_at_a_character(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char text[4000];
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    text[sizeof text - 2] = '\0';
    err_set(&e, ERR_INTERNAL, "%s", text);
    assert_int_equal(strlen(e.message) % 2, 0);
}

static void utf8_is_what_the_standard_says(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, length;
    } cases[] = {
        {"", 0, 0},
        {"a", 1, 1},
        {"\x7F", 1, 1},
        {"\xC2\x80", 2, 2},
        {"\xE2\x82\xAC", 3, 3},
        {"\xF0\x9F\x98\x80", 4, 4},
        {"\xF4\x8F\xBF\xBF", 4, 4},
        {"\xE2\x82\xAC", 2, 0}, /* the rest lies behind the end */
        {"\xE2\x82", 4, 0},     /* a NUL ends it */
        {"\x80", 1, 0},         /* begins inside a character */
        {"\xC1\xBF", 2, 0},     /* longer than need be, of each length */
        {"\xE0\x9F\xBF", 3, 0},
        {"\xF0\x8F\xBF\xBF", 4, 0},
        {"\xED\xA0\x80", 3, 0},     /* half a surrogate pair */
        {"\xF4\x90\x80\x80", 4, 0}, /* beyond U+10FFFF */
        {"\xF5\x80\x80\x80", 4, 0},
        {"\xE2(\xAC", 3, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(utf8_length(cases[i].bytes, cases[i].n), cases[i].length);
        assert_int_equal(utf8_valid(cases[i].bytes, cases[i].n), !cases[i].n || cases[i].length);
    }
    assert_true(utf8_valid("a\xC3\xA4\xE2\x82\xAC", 6));
    assert_false(utf8_valid("a\xC3\xA4\xE2\x82\xAC", 5));
}

static void arena_respects_cap_and_zeroes(void **state)
{
    (void)state;
    struct arena *a = arena_new(100000);
    assert_non_null(a);
    size_t n = 0;
    unsigned char *p;
    while ((p = arena_alloc(a, 1000))) {
        for (int i = 0; i < 1000; i++)
            assert_int_equal(p[i], 0);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0xff, 1000);
        n++;
    }
    assert_in_range(n, 98, 100);
    assert_null(arena_alloc_array(a, SIZE_MAX, 8));
    arena_free(a);
}

static void strb_grows_and_fails_sticky(void **state)
{
    (void)state;
    struct strb b = {0};
    for (int i = 0; i < 1000; i++)
        strb_addf(&b, "%d,", i);
    strb_add_i64(&b, INT64_MIN);
    strb_add_u64(&b, UINT64_MAX);
    assert_false(b.failed);
    assert_non_null(strstr(b.data, "999,-922337203685477580818446744073709551615"));
    mem_fail_after(1, false);
    char big[100000];
    memset(big, 'x', sizeof big);
    strb_addn(&b, big, sizeof big);
    assert_true(b.failed);
    mem_fail_after(0, false);
    strb_add(&b, "y");
    assert_null(strb_take(&b, NULL));
    assert_int_equal(mem_live(), 0);
}

static void fault_injection_counts(void **state)
{
    (void)state;
    mem_fail_after(2, false);
    void *a = mem_alloc(1), *b = mem_alloc(1), *c = mem_alloc(1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal(mem_failed(), 1);
    mem_fail_after(1, true);
    assert_null(mem_alloc(1));
    assert_null(mem_alloc(1));
    mem_fail_after(0, false);
    mem_free(a);
    mem_free(c);
    assert_int_equal(mem_live(), 0);
    assert_null(mem_reallocarray(NULL, SIZE_MAX, 2));
}

static void copying_away_copies(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 4160, 70000};
    static unsigned char from[70100], to[70200];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t shift = 0; shift < 66; shift += 13) {
            size_t n = sizes[k];
            memset(to, 0xEE, sizeof to);
            mem_copy_away(to + 64 + shift, from + shift, n);
            assert_memory_equal(to + 64 + shift, from + shift, n);
            assert_int_equal(to[63 + shift], 0xEE);
            assert_int_equal(to[64 + shift + n], 0xEE);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copying_away_copies),
        cmocka_unit_test(err_has_status_name_place),
        cmocka_unit_test(long_message_is_cut_at_a_character),
        cmocka_unit_test(utf8_is_what_the_standard_says),
        cmocka_unit_test(arena_respects_cap_and_zeroes),
        cmocka_unit_test(strb_grows_and_fails_sticky),
        cmocka_unit_test(fault_injection_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
