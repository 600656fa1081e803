/* protocol/json: the strict scan (against cJSON where that is right), lookups, typed getters and
 * their pointers, the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <math.h>

#include "compute/base/mem.h"
#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"

static struct json parse(struct arena *a, const char *text)
{
    struct json v = {0};
    struct err e = ERR_INIT;
    if (json_parse(a, text, strlen(text), NULL, &v, &e))
        fail_msg("%s: %s", text, e.message);
    return v;
}

static const char *const good[] = {
    "null",
    " true ",
    "false",
    "0",
    "-0",
    "-1.5e+10",
    "1E400",
    "\"\"",
    "[]",
    "{}",
    "[[],{}]",
    "{\"a\":1,\"b\":[1,2,{\"c\":null}]}",
    "\"\\u00e9\\ud83d\\ude00\\n\\\"\\/\"",
    "\"\xc3\xa9\xf0\x9f\x98\x80\"",
    "\t\r\n[ 1 , 2 ]\n",
    "{\"\":0}",
    "[0.1,-0.0,123456789012345678901234567890]",
};

static void walk_against_cjson(struct json v, const cJSON *ref)
{
    switch (json_kind(v)) {
    case JSON_NULL:
        assert_true(cJSON_IsNull(ref));
        break;
    case JSON_BOOL:
        assert_true(cJSON_IsBool(ref));
        break;
    case JSON_NUMBER:
        assert_true(cJSON_IsNumber(ref));
        break;
    case JSON_STRING:
        assert_string_equal(json_text(v, NULL), ref->valuestring);
        break;
    case JSON_LIST:
    case JSON_OBJECT: {
        assert_int_equal(json_count(v), cJSON_GetArraySize(ref));
        const cJSON *r = ref->child;
        for (struct json c = json_first(v); json_present(c); c = json_next(c), r = r->next) {
            assert_non_null(r);
            if (json_kind(v) == JSON_OBJECT)
                assert_string_equal(json_key(c), r->string);
            else
                assert_null(json_key(c));
            walk_against_cjson(c, r);
        }
        assert_null(r);
        break;
    }
    case JSON_ABSENT:
        fail();
    }
}

static void good_texts_read_as_cjson_reads_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct arena *a = arena_new(0);
        cJSON *ref = cJSON_Parse(good[i]);
        assert_non_null(ref);
        walk_against_cjson(parse(a, good[i]), ref);
        cJSON_Delete(ref);
        arena_free(a);
    }
}

static void malformed_texts_are_400_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int at;
    } bad[] = {
        {"", 0},
        {" ", 1},
        {"nul", 0},
        {"01", 1},
        {"-", 1},
        {"+1", 0},
        {".5", 0},
        {"1.", 2},
        {"1e", 2},
        {"1 2", 2},
        {"[1,]", 3},
        {"[1", 2},
        {"[1}", 2},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{a:1}", 1},
        {"{\"a\":1,}", 7},
        {"'a'", 0},
        {"\"a", 2},
        {"\"\\x\"", 1},
        {"\"\\u12g4\"", 1},
        {"\"\n\"", 1},
        {"\"\xff\"", 1},
        {"\"\xc0\x80\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"\xef\xbb\xbf[]", 0},
        {"[1]]", 3},
        {"NaN", 0},
        {"[Infinity]", 1},
        {"//x\n1", 0},
        {"{\"a\":1,\"a\":2}", 7},
        {"[tru]", 1},
        {"0x10", 1},
        {"\"\xf4\x90\x80\x80\"", 1},
        {"\f1", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena *a = arena_new(0);
        struct json v;
        struct err e = ERR_INIT;
        char want[32];
        snprintf(want, sizeof want, "at byte %d", bad[i].at);
        if (json_parse(a, bad[i].text, strlen(bad[i].text), NULL, &v, &e) != ERR_BAD_JSON ||
            !strstr(e.message, want))
            fail_msg("%s: %s (%s)", bad[i].text, e.message, want);
        arena_free(a);
    }
}

static void a_nul_byte_is_malformed_and_an_escaped_one_refused(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    struct json v;
    struct err e = ERR_INIT;
    assert_int_equal(json_parse(a, "1\0", 2, NULL, &v, &e), ERR_BAD_JSON);
    assert_int_equal(json_parse(a, "\0", 1, NULL, &v, &e), ERR_BAD_JSON);
    static const char *const texts[] = {"{\"x\":[1,\"a\\u0000b\"]}", "{\"x\":[1,\"\\ud800\"]}",
                                        "{\"x\":[1,\"\\udc00\\ud800\"]}"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(json_parse(a, texts[i], strlen(texts[i]), NULL, &v, &e), ERR_BAD_FIELD);
        assert_string_equal(e.pointer, "/x/1");
    }
    const char *name = "{\"x\":{\"\\u0000\":1}}";
    assert_int_equal(json_parse(a, name, strlen(name), NULL, &v, &e), ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/x");
    arena_free(a);
}

static void depth_and_size_are_limited(void **state)
{
    (void)state;
    char text[2100];
    struct arena *a = arena_new(0);
    struct json v;
    struct err e = ERR_INIT;
    for (size_t depth = 999; depth <= 1001; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(json_parse(a, text, 2 * depth, NULL, &v, &e),
                         depth <= JSON_MAX_DEPTH ? ERR_OK : ERR_BAD_JSON);
    }
    struct json_limits few = {10, 4};
    assert_int_equal(json_parse(a, "[1,2,3]", 7, &few, &v, &e), ERR_OK);
    assert_int_equal(json_parse(a, "[1,2,3,4]", 9, &few, &v, &e), ERR_TOO_LARGE);
    arena_free(a);
}

static void duplicates_in_large_objects_are_found(void **state)
{
    (void)state;
    for (int dup = 0; dup < 2; dup++) {
        struct strb b = {0};
        strb_addc(&b, '{');
        for (int i = 0; i < 1000; i++)
            strb_addf(&b, "%s\"k%d\":{\"n\":%d}", i ? "," : "", i, i);
        if (dup)
            strb_add(&b, ",\"\\u006b500\":0");
        strb_addc(&b, '}');
        struct arena *a = arena_new(0);
        struct json v;
        struct err e = ERR_INIT;
        assert_int_equal(json_parse(a, b.data, b.len, NULL, &v, &e), dup ? ERR_BAD_JSON : ERR_OK);
        if (dup)
            assert_non_null(strstr(e.message, "\"k500\""));
        arena_free(a);
        strb_free(&b);
    }
}

static void lookups_and_pointers(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    struct err e = ERR_INIT;
    struct json v = parse(a, "{\"a/b\":{\"~\":[10,[20,{\"deep\":true}]]},\"n\":null,\"A\":1}");
    struct json deep = json_member(
        json_next(json_first(json_next(json_first(json_member(json_member(v, "a/b"), "~"))))),
        "deep");
    assert_int_equal(json_kind(deep), JSON_BOOL);
    assert_int_equal(json_err(deep, &e, ERR_BAD_FIELD, "no"), ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/a~1b/~0/1/1/deep");
    json_err_member(v, "x/y", &e, ERR_BAD_FIELD, "no");
    assert_string_equal(e.pointer, "/x~1y");
    assert_false(json_present(json_member(v, "a")));
    assert_true(json_present(json_member(v, "n")));
    assert_false(json_given(json_member(v, "n")));
    assert_int_equal(JSON_MEMBERS(v, &e, "a/b", "n", "A"), ERR_OK);
    assert_int_equal(JSON_MEMBERS(v, &e, "a/b", "A"), ERR_UNKNOWN_FIELD);
    assert_string_equal(e.pointer, "/n");
    struct json m;
    assert_int_equal(json_require(v, "q", &m, &e), ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/q");
    /* absent values answer everything */
    m = json_member(json_member(v, "no"), "no");
    assert_int_equal(json_count(m), 0);
    assert_false(json_present(json_first(m)) || json_present(json_next(m)));
    assert_null(json_text(m, NULL));
    const char *s;
    assert_int_equal(json_get_string(m, &s, NULL, &e), ERR_BAD_FIELD);
    arena_free(a);
}

static void integers_are_exact_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code err;
        int64_t v;
    } cases[] = {
        {"9007199254740992", ERR_OK, 9007199254740992},
        {"9007199254740993", ERR_INEXACT_NUMBER, 0},
        {"-9007199254740993", ERR_INEXACT_NUMBER, 0},
        {"\"9007199254740993\"", ERR_OK, 9007199254740993},
        {"\"-9223372036854775808\"", ERR_OK, INT64_MIN},
        {"\"9223372036854775808\"", ERR_BAD_FIELD, 0},
        {"\"12\"", ERR_BAD_FIELD, 0},
        {"1e400", ERR_INEXACT_NUMBER, 0},
        {"123456789012345678901234567890123456789012345678901234567890", ERR_INEXACT_NUMBER, 0},
        {"2.0", ERR_OK, 2},
        {"2e3", ERR_OK, 2000},
        {"2.5", ERR_BAD_FIELD, 0},
        {"-0", ERR_OK, 0},
        {"true", ERR_BAD_FIELD, 0},
        {"[1]", ERR_BAD_FIELD, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new(0);
        struct err e = ERR_INIT;
        int64_t v = 0;
        assert_int_equal(json_get_i64(parse(a, cases[i].text), INT64_MIN, INT64_MAX, &v, &e),
                         cases[i].err);
        assert_int_equal(v, cases[i].v);
        arena_free(a);
    }
    struct arena *a = arena_new(0);
    struct err e = ERR_INIT;
    int64_t v, list[4];
    uint64_t u;
    size_t n;
    int rank;
    int64_t shape[MAX_RANK];
    assert_int_equal(json_get_i64(parse(a, "11"), 0, 10, &v, &e), ERR_BAD_FIELD);
    static const char *const large[] = {"1e18", "-1e18", "1e400", "9007199254740993",
                                        "\"9007199254740993\""};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(json_get_i64(parse(a, large[i]), 1, (int64_t)1 << 53, &v, &e),
                         *large[i] == '"' ? ERR_BAD_FIELD : ERR_INEXACT_NUMBER);
        assert_string_equal(e.message, "an integer from 1 to 9007199254740992 was expected here");
    }
    assert_int_equal(json_get_u64(parse(a, "\"18446744073709551615\""), &u, &e), ERR_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(json_get_u64(parse(a, "-1"), &u, &e), ERR_BAD_FIELD);
    assert_int_equal(json_get_i64_list(parse(a, "[1,2,3]"), 4, 0, 9, list, &n, &e), ERR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(list[2], 3);
    assert_int_equal(json_get_i64_list(parse(a, "[1,2,30]"), 4, 0, 9, list, &n, &e), ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/2");
    assert_int_equal(json_get_i64_list(parse(a, "[1,2,3,4,5]"), 4, 0, 9, list, &n, &e),
                     ERR_BAD_FIELD);
    assert_int_equal(json_get_shape(parse(a, "[4,0,5]"), 0, &rank, shape, &e), ERR_OK);
    assert_int_equal(rank, 3);
    assert_int_equal(json_get_shape(parse(a, "[4,-1]"), 0, &rank, shape, &e), ERR_BAD_SHAPE);
    assert_string_equal(e.pointer, "/1");
    assert_int_equal(json_get_shape(parse(a, "[4,-1]"), -1, &rank, shape, &e), ERR_OK);
    assert_int_equal(json_get_shape(parse(a, "[4,\"x\"]"), 0, &rank, shape, &e), ERR_BAD_SHAPE);
    assert_int_equal(json_get_shape(parse(a, "4"), 0, &rank, shape, &e), ERR_BAD_SHAPE);
    assert_int_equal(json_get_shape(parse(a, "[9007199254740993]"), 0, &rank, shape, &e),
                     ERR_INEXACT_NUMBER);
    enum dtype t;
    assert_int_equal(json_get_dtype(parse(a, "\"bfloat16\""), &t, &e), ERR_OK);
    assert_int_equal(t, DT_BF16);
    assert_int_equal(json_get_dtype(parse(a, "\"float\""), &t, &e), ERR_BAD_DTYPE);
    assert_int_equal(json_get_dtype(parse(a, "5"), &t, &e), ERR_BAD_DTYPE);
    arena_free(a);
}

static void literals(void **state)
{
    (void)state;
    struct arena *a = arena_new(0);
    struct err e = ERR_INIT;
    struct literal l;
    double d;
    assert_int_equal(json_get_literal(parse(a, "true"), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_BOOL && l.i == 1);
    assert_int_equal(json_get_literal(parse(a, "-3"), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_INT && l.i == -3);
    assert_int_equal(json_get_literal(parse(a, "3.0"), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_FLOAT && l.re == 3);
    assert_int_equal(json_get_literal(parse(a, "\"18446744073709551616\""), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_INT && l.i == (__int128)1 << 64);
    assert_int_equal(json_get_literal(parse(a, "\"-Infinity\""), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_FLOAT && l.re == -INFINITY);
    assert_int_equal(json_get_literal(parse(a, "[1,\"NaN\"]"), &l, &e), ERR_OK);
    assert_true(l.kind == LIT_COMPLEX && l.re == 1 && isnan(l.im));
    assert_int_equal(json_get_literal(parse(a, "[1,\"x\"]"), &l, &e), ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/1");
    assert_int_equal(json_get_literal(parse(a, "[1]"), &l, &e), ERR_BAD_FIELD);
    assert_int_equal(json_get_literal(parse(a, "null"), &l, &e), ERR_BAD_FIELD);
    assert_int_equal(json_get_literal(parse(a, "\"1e5\""), &l, &e), ERR_BAD_FIELD);
    assert_int_equal(json_get_literal(parse(a, "9007199254740993"), &l, &e), ERR_INEXACT_NUMBER);
    assert_non_null(strstr(e.message, "\"9007199254740993\""));
    assert_int_equal(json_get_double(parse(a, "1e999"), &d, &e), ERR_LITERAL_RANGE);
    assert_non_null(strstr(e.message, "\"Infinity\""));
    assert_int_equal(json_get_literal(parse(a, "-1e999"), &l, &e), ERR_LITERAL_RANGE);
    assert_int_equal(json_get_double(parse(a, "10000000000000000"), &d, &e), ERR_INEXACT_NUMBER);
    assert_int_equal(json_get_double(parse(a, "1e16"), &d, &e), ERR_OK);
    assert_true(d == 1e16);
    arena_free(a);
}

static void writer_escapes_and_separates(void **state)
{
    (void)state;
    struct strb b = {0};
    struct json_writer w = JSON_WRITER(&b);
    int64_t list[] = {1, -2};
    struct scalar s = {.dtype = DT_C64, .v.c64 = {1.5f, -INFINITY}};
    json_open_object(&w);
    json_put_member_string(&w, "a\"b", "x\n\x01\\\x7f\xc3\xa9\xff");
    json_put_key(&w, "l");
    json_open_list(&w);
    json_put_i64(&w, INT64_MIN);
    json_put_u64(&w, UINT64_MAX);
    json_open_object(&w);
    json_close_object(&w);
    json_put_i64_list(&w, 2, list);
    json_put_double(&w, NAN);
    json_put_scalar(&w, &s);
    json_close_list(&w);
    json_put_member_bool(&w, "t", true);
    json_put_member_double(&w, "d", 0.1);
    json_put_member_string(&w, "n", NULL);
    json_close_object(&w);
    assert_string_equal(b.data, "{\"a\\\"b\":\"x\\n\\u0001\\\\\\u007f\xc3\xa9\xef\xbf\xbd\","
                                "\"l\":[-9223372036854775808,18446744073709551615,{},[1,-2],"
                                "\"NaN\",[1.5,\"-Infinity\"]],\"t\":true,\"d\":0.1,\"n\":null}");
    struct arena *a = arena_new(0);
    parse(a, b.data);
    arena_free(a);
    strb_free(&b);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct strb b = {0};
    strb_addc(&b, '{');
    for (int i = 0; i < 400; i++)
        strb_addf(&b, "%s\"k%d\":[%d]", i ? "," : "", i, i);
    strb_addc(&b, '}');
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct err e = ERR_INIT;
        struct json v;
        mem_fail_after(n, n % 2);
        struct arena *a = arena_new(0);
        enum err_code err = a ? json_parse(a, b.data, b.len, NULL, &v, &e) : ERR_OUT_OF_MEMORY;
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        arena_free(a);
        assert_int_equal(mem_live(), before);
        assert_int_equal(err, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        if (!failed)
            break;
    }
    strb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_read_as_cjson_reads_them),
        cmocka_unit_test(malformed_texts_are_400_with_their_place),
        cmocka_unit_test(a_nul_byte_is_malformed_and_an_escaped_one_refused),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(duplicates_in_large_objects_are_found),
        cmocka_unit_test(lookups_and_pointers),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(literals),
        cmocka_unit_test(writer_escapes_and_separates),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
