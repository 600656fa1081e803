/* protocol/index: index strings in both settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "protocol/text/index.h"

static void good_strings_print_canonically(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
    } cases[] = {
        {"", ""},
        {"  ", ""},
        {"3", "3"},
        {" - 3 ", "-3"},
        {"+3", "3"},
        {"1:-1, ::2, 3, None, ...", "1:-1, ::2, 3, None, ..."},
        {"1 : -1 ,:: 2,", "1:-1, ::2"},
        {":", ":"},
        {"::", ":"},
        {"::-1", "::-1"},
        {"None:None:None", ":"},
        {"None:3", ":3"},
        {"...,0", "..., 0"},
        {"007", "7"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775807:", "9223372036854775807:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct index_spec spec, again;
        struct err e = ERR_INIT;
        struct strb b = {0};
        if (index_parse(cases[i].text, strlen(cases[i].text), &spec, &e))
            fail_msg("%s: %s", cases[i].text, e.message);
        index_print(&spec, &b);
        assert_string_equal(b.data ? b.data : "", cases[i].canonical);
        assert_int_equal(index_parse(b.data ? b.data : "", b.len, &again, &e), ERR_OK);
        assert_memory_equal(&spec, &again, sizeof spec);
        strb_free(&b);
    }
}

static void items_have_their_parts(void **state)
{
    (void)state;
    struct index_spec s;
    assert_int_equal(index_parse("-4:,:5,::0x", 11, &s, NULL), ERR_BAD_INDEX);
    assert_int_equal(index_parse("-4:,:5,::7,2,None", 17, &s, NULL), ERR_OK);
    assert_int_equal(s.n, 5);
    assert_true(s.items[0].kind == INDEX_SLICE && s.items[0].has_start && !s.items[0].has_stop &&
                s.items[0].start == -4);
    assert_true(s.items[1].has_stop && s.items[1].stop == 5 && !s.items[1].has_start);
    assert_true(s.items[2].has_step && s.items[2].step == 7);
    assert_true(s.items[3].kind == INDEX_INT && s.items[3].start == 2);
    assert_true(s.items[4].kind == INDEX_NEWAXIS);
}

static void bad_strings_tell_where(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long offset;
    } cases[] = {
        {"a", 0},
        {"1,,2", 2},
        {",", 0},
        {"1.5", 0},
        {"1:2:3:4", 5},
        {"..", 0},
        {"....", 3},
        {"None1", 0},
        {"1 2", 2},
        {"1:x", 2},
        {"0x10", 0},
        {"::0", 0},
        {"1]", 1},
        {"[1]", 0},
        {"-", 1},
        {"--1", 1},
        {"True", 0},
        {"1e3", 0},
        {"\xc3\xa9", 0},
        {"1, \xc3\xa9", 3},
        {"9223372036854775808", 0},
        {"0,-9223372036854775809", 2},
        {"99999999999999999999999999", 0},
        {"1:2:3 4", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct index_spec spec;
        struct err e = ERR_INIT;
        if (index_parse(cases[i].text, strlen(cases[i].text), &spec, &e) != ERR_BAD_INDEX ||
            e.offset != cases[i].offset)
            fail_msg("%s: at %ld: %s", cases[i].text, e.offset, e.message);
    }
    struct index_spec spec;
    assert_int_equal(index_parse("1\0", 2, &spec, NULL), ERR_BAD_INDEX);
}

static void as_many_items_as_there_is_room_for(void **state)
{
    (void)state;
    char text[2 * INDEX_MAX_ITEMS + 4];
    for (int i = 0; i <= INDEX_MAX_ITEMS; i++)
        memcpy(text + 2 * i, "0,", 2);
    struct index_spec spec;
    assert_int_equal(index_parse(text, 2 * INDEX_MAX_ITEMS, &spec, NULL), ERR_OK);
    assert_int_equal(spec.n, INDEX_MAX_ITEMS);
    assert_int_equal(index_parse(text, 2 * INDEX_MAX_ITEMS + 1, &spec, NULL), ERR_BAD_INDEX);
}

static void scanning_stops_at_the_bracket(void **state)
{
    (void)state;
    struct index_spec spec;
    size_t used;
    struct err e = ERR_INIT;
    assert_int_equal(index_scan("1, 2 ] + x[3]", 13, &spec, &used, &e), ERR_OK);
    assert_int_equal(used, 5);
    assert_int_equal(spec.n, 2);
    assert_int_equal(index_scan("]", 1, &spec, &used, &e), ERR_BAD_INDEX);
    assert_int_equal(index_scan("", 0, &spec, &used, &e), ERR_BAD_INDEX);
    assert_int_equal(index_scan("1,2", 3, &spec, &used, &e), ERR_BAD_INDEX);
    assert_int_equal(e.offset, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_strings_print_canonically),
        cmocka_unit_test(items_have_their_parts),
        cmocka_unit_test(bad_strings_tell_where),
        cmocka_unit_test(as_many_items_as_there_is_room_for),
        cmocka_unit_test(scanning_stops_at_the_bracket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
