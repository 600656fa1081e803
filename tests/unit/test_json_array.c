/* protocol/json_array and json_body: nested lists in chunks of every size, shapes, dtypes by
 * content and by name, exactness, places of errors; create bodies with members in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/base/strb.h"
#include "protocol/json/json_array.h"
#include "protocol/json/json_body.h"
#include "protocol/number/numlist.h"
#include "protocol/number/numtext.h"

/* Reads text in chunks; `early` is told to the reader, `late` to take. */
static enum err_code read_text(const char *text, size_t chunk, int early, int late,
                               struct json_array_data *ret, struct err *e)
{
    struct json_array *r = json_array_new(early, 0);
    if (!r)
        return err_oom(e);
    enum err_code err = ERR_OK;
    size_t n = strlen(text);
    for (size_t i = 0; i < n && !err; i += chunk)
        err = json_array_feed_all(r, text + i, n - i < chunk ? n - i : chunk, e);
    if (!err)
        err = json_array_finish(r, e);
    if (!err)
        err = json_array_take(r, late, ret, e);
    json_array_free(r);
    return err;
}

/* "float64 (2, 3) [[…]]" */
static void describe(const struct json_array_data *d, struct strb *out)
{
    char shape[SHAPE_TEXT_MAX];
    struct view v;
    struct err e;
    assert_int_equal(view_contiguous(d->rank, d->shape, dtype_size(d->dtype), &v, &e), ERR_OK);
    assert_int_equal(view_size(&v), d->size);
    strb_addf(out, "%s %s ", dtype_name(d->dtype), shape_text(d->rank, d->shape, shape, 256));
    numlist_add(out, d->dtype, &v, d->data);
}

static void expect(const char *text, int early, int late, const char *want)
{
    size_t n = strlen(text);
    for (size_t chunk = 1; chunk <= n; chunk += chunk < 20 ? 1 : n - chunk ? n - chunk : 1) {
        struct json_array_data d;
        struct err e = ERR_INIT;
        struct strb b = {0};
        if (read_text(text, chunk, early, late, &d, &e))
            fail_msg("%s in %zu: %s %s", text, chunk, e.pointer, e.message);
        describe(&d, &b);
        if (strcmp(b.data, want) != 0)
            fail_msg("%s in %zu:\n got %s\nwant %s", text, chunk, b.data, want);
        mem_free(d.data);
        strb_free(&b);
    }
}

static void the_dtype_follows_the_content(void **state)
{
    (void)state;
    expect("[true,false]", -1, -1, "bool (2,) [true,false]");
    expect("[true, 2]", -1, -1, "int64 (2,) [1,2]");
    expect("[true, 2.5, false]", -1, -1, "float64 (3,) [1.0,2.5,0.0]");
    expect("[[1,2,3],[4,5,6]]", -1, -1, "int64 (2, 3) [[1,2,3],[4,5,6]]");
    expect("[1, \"NaN\", -1]", -1, -1, "float64 (3,) [1.0,\"NaN\",-1.0]");
    expect("[\"Infinity\",\"-Infinity\"]", -1, -1, "float64 (2,) [\"Infinity\",\"-Infinity\"]");
    expect("[\"\\u004eaN\"]", -1, -1, "float64 (1,) [\"NaN\"]");
    expect("[9223372036854775807,-9223372036854775808]", -1, -1,
           "int64 (2,) [9223372036854775807,-9223372036854775808]");
    expect("[1,18446744073709551615]", -1, -1, "uint64 (2,) [1,18446744073709551615]");
    expect("[-1,18446744073709551615,0.5]", -1, -1,
           "float64 (3,) [-1.0,1.8446744073709552e19,0.5]");
    expect("[9007199254740993,0.5]", -1, -1, "float64 (2,) [9007199254740992.0,0.5]");
    expect("[]", -1, -1, "float64 (0,) []");
    expect("[[],[],[]]", -1, -1, "float64 (3, 0) [[],[],[]]");
    expect(" [ [ 1.5 ] , [ -0.0 ] ] ", -1, -1, "float64 (2, 1) [[1.5],[-0.0]]");
    expect("7", -1, -1, "int64 () 7");
    expect(" -7.5 ", -1, -1, "float64 () -7.5");
    expect("true", -1, -1, "bool () true");
    expect("\"NaN\"", -1, -1, "float64 () \"NaN\"");
    expect("[1,1e39]", DT_F32, -1, "float32 (2,) [1.0,\"Infinity\"]");
}

/* The same whether the dtype stands before or behind the data. */
static void both_ways(const char *text, enum dtype t, const char *want)
{
    expect(text, (int)t, (int)t, want);
    expect(text, (int)t, -1, want);
    expect(text, -1, (int)t, want);
}

static void values_become_the_dtype_asked_for_exactly(void **state)
{
    (void)state;
    both_ways("[1,2.0,3e2,true]", DT_I16, "int16 (4,) [1,2,300,1]");
    both_ways("[1,0,true,false]", DT_BOOL, "bool (4,) [true,false,true,false]");
    both_ways("[0,18446744073709551615,9007199254740993]", DT_U64,
              "uint64 (3,) [0,18446744073709551615,9007199254740993]");
    both_ways("[9007199254740993,1.0,-9223372036854775808]", DT_I64,
              "int64 (3,) [9007199254740993,1,-9223372036854775808]");
    both_ways("[1.0,18446744073709551615,9007199254740993]", DT_U64,
              "uint64 (3,) [1,18446744073709551615,9007199254740993]");
    both_ways("[-128,127]", DT_I8, "int8 (2,) [-128,127]");
    both_ways("[0.1,1e300,-1e-60,16777217]", DT_F32,
              "float32 (4,) [0.1,\"Infinity\",-0.0,16777216.0]");
    /* between two float32, decided beyond float64's last digit; and exactly between */
    both_ways("[1.000000059604644775390625000000000000000001,"
              "1.000000059604644775390624999999999999999999,1.000000059604644775390625]",
              DT_F32, "float32 (3,) [1.0000001,1.0,1.0]");
    both_ways("[1.00048828125000000000000001,1.00048828125,65519.999999999999999]", DT_F16,
              "float16 (3,) [1.001,1.0,65500.0]");
    both_ways("[1.0039062500000000000000001,1.00390625,0.3]", DT_BF16,
              "bfloat16 (3,) [1.01,1.0,0.3]");
    both_ways("[9223372036854775807,1]", DT_BF16, "bfloat16 (2,) [9.22e18,1.0]");
    both_ways("[9007199791611905]", DT_F32, "float32 (1,) [9007200000000000.0]");
    both_ways("[-0,9007199254740993,-0.0,-0]", DT_F64,
              "float64 (4,) [-0.0,9007199254740992.0,-0.0,-0.0]");
    both_ways("[-0,1]", DT_F32, "float32 (2,) [-0.0,1.0]");
    both_ways("[-0,true]", DT_U8, "uint8 (2,) [0,1]");
    both_ways("[true,\"NaN\"]", DT_F16, "float16 (2,) [1.0,\"NaN\"]");
    both_ways("[[1,2],[3.5,\"-Infinity\"]]", DT_C64,
              "complex64 (2,) [[1.0,2.0],[3.5,\"-Infinity\"]]");
    both_ways("[1,2]", DT_C128, "complex128 () [1.0,2.0]");
    both_ways("[]", DT_C128, "complex128 (0,) []");
    both_ways("[[],[]]", DT_C64, "complex64 (2, 0) [[],[]]");
    both_ways("[]", DT_I8, "int8 (0,) []");
    both_ways("3", DT_U8, "uint8 () 3");
}

static void thirty_two_axes_and_no_more(void **state)
{
    (void)state;
    for (int depth = 32; depth <= 40; depth++) {
        char text[100];
        memset(text, '[', (size_t)depth);
        text[depth] = '1';
        memset(text + depth + 1, ']', (size_t)depth);
        text[2 * depth + 1] = '\0';
        struct json_array_data d;
        struct err e = ERR_INIT;
        enum err_code err = read_text(text, 7, -1, -1, &d, &e);
        assert_int_equal(err, depth == 32 ? ERR_OK : ERR_BAD_SHAPE);
        if (!err) {
            assert_int_equal(d.rank, 32);
            mem_free(d.data);
        }
    }
}

static void mistakes_have_code_and_pointer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int dtype;
        enum err_code code;
        const char *pointer;
    } cases[] = {
        {"[[1,2],[3]]", -1, ERR_BAD_SHAPE, "/1"},
        {"[[1,2],[3,4,5]]", -1, ERR_BAD_SHAPE, "/1/2"},
        {"[[1,2],3]", -1, ERR_BAD_SHAPE, "/1"},
        {"[1,[2]]", -1, ERR_BAD_SHAPE, "/1"},
        {"[[],[1]]", -1, ERR_BAD_SHAPE, "/1/0"},
        {"[[],1]", -1, ERR_BAD_SHAPE, "/1"},
        {"[[[1]],[]]", -1, ERR_BAD_SHAPE, "/1"},
        {"[[1,2,3]]", DT_C64, ERR_BAD_SHAPE, "/0"},
        {"[1,null]", -1, ERR_BAD_FIELD, "/1"},
        {"[1,\"nan\"]", -1, ERR_BAD_FIELD, "/1"},
        {"[1,\"a\\u0000\"]", -1, ERR_BAD_FIELD, "/1"},
        {"[[1],[{}]]", -1, ERR_BAD_FIELD, "/1/0"},
        {"[1,300]", DT_U8, ERR_LITERAL_RANGE, "/1"},
        {"[[0],[-1]]", DT_U64, ERR_LITERAL_RANGE, "/1/0"},
        {"[0.5]", DT_I32, ERR_LITERAL_RANGE, "/0"},
        {"[2]", DT_BOOL, ERR_LITERAL_RANGE, "/0"},
        {"[\"NaN\"]", DT_I32, ERR_LITERAL_RANGE, "/0"},
        {"[1e30]", DT_I64, ERR_LITERAL_RANGE, "/0"},
        {"[18446744073709551616]", DT_U64, ERR_LITERAL_RANGE, "/0"},
        {"[1,1740918607747303.022]", DT_I64, ERR_LITERAL_RANGE, "/1"}, /* float64: an integer */
        {"[1e-400]", DT_I64, ERR_LITERAL_RANGE, "/0"},
        {"[1,1e400]", -1, ERR_LITERAL_RANGE, "/1"},
        {"[1,-1e400]", DT_F32, ERR_LITERAL_RANGE, "/1"},
        {"[1,18446744073709551616]", -1, ERR_LITERAL_RANGE, "/1"},
        {"[-1,5,9223372036854775808]", -1, ERR_LITERAL_RANGE, "/2"},
        {"[9223372036854775808,-1]", -1, ERR_LITERAL_RANGE, "/1"},
        {"", -1, ERR_BAD_JSON, ""},
        {"[", -1, ERR_BAD_JSON, ""},
        {"[1,2", -1, ERR_BAD_JSON, ""},
        {"[1,]", -1, ERR_BAD_JSON, ""},
        {"[,1]", -1, ERR_BAD_JSON, ""},
        {"[1 2]", -1, ERR_BAD_JSON, ""},
        {"[1]]", -1, ERR_BAD_JSON, ""},
        {"[1] x", -1, ERR_BAD_JSON, ""},
        {"[01]", -1, ERR_BAD_JSON, ""},
        {"[1.]", -1, ERR_BAD_JSON, ""},
        {"[-]", -1, ERR_BAD_JSON, ""},
        {"[1e+]", -1, ERR_BAD_JSON, ""},
        {"[1-2]", -1, ERR_BAD_JSON, ""},
        {"[+1]", -1, ERR_BAD_JSON, ""},
        {"[NaN]", -1, ERR_BAD_JSON, ""},
        {"[tru]", -1, ERR_BAD_JSON, ""},
        {"[nulls]", -1, ERR_BAD_JSON, ""},
        {"[\"a\nb\"]", -1, ERR_BAD_JSON, ""},
        {"[\"\xff\"]", -1, ERR_BAD_JSON, ""},
        {"\"NaN", -1, ERR_BAD_JSON, ""},
        {"\xef\xbb\xbf[1]", -1, ERR_BAD_JSON, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int late = 0; late < (cases[i].dtype < 0 ? 1 : 2); late++) {
            for (size_t chunk = 1; chunk < 30; chunk++) {
                struct json_array_data d;
                struct err e = ERR_INIT;
                enum err_code err = read_text(cases[i].text, chunk, late ? -1 : cases[i].dtype,
                                              cases[i].dtype, &d, &e);
                const char *want = late && cases[i].code == ERR_BAD_SHAPE ? "" : cases[i].pointer;
                if (err != cases[i].code || strcmp(e.pointer, want) != 0)
                    fail_msg("%s in %zu: %s at %s: %s", cases[i].text, chunk, err_name(err),
                             e.pointer, e.message);
            }
        }
    }
    assert_int_equal(mem_live(), 0);
}

static void sizes_are_limited(void **state)
{
    (void)state;
    struct json_array *r = json_array_new(DT_F64, 80);
    struct err e = ERR_INIT;
    assert_int_equal(json_array_feed_all(r, "[1,2,3,4,5,6,7,8,9,10", 21, &e), ERR_OK);
    assert_int_equal(json_array_feed_all(r, ",11 ", 4, &e), ERR_QUOTA);
    json_array_free(r);
    r = json_array_new(-1, 0);
    enum err_code err = json_array_feed_all(r, "[1.", 3, &e);
    for (int i = 0; i < 100000 && !err; i++)
        err = json_array_feed_all(r, "0000", 4, &e);
    assert_int_equal(err, ERR_TOO_LARGE);
    json_array_free(r);
}

/* Reads a create body in chunks of `chunk`; describes what it found. */
static enum err_code read_body(const char *text, size_t chunk, struct strb *out, struct err *e)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json_body_limits limits = {.max_text = 200};
    struct json_body *b = json_body_new(&limits);
    struct json_array *data = NULL;
    struct json doc;
    size_t n = strlen(text);
    if (!b || !arena) {
        json_body_free(b);
        return err_oom(e);
    }
    enum err_code err = ERR_OK;
    for (size_t i = 0; i < n && !err; i += chunk)
        err = json_body_feed(b, text + i, n - i < chunk ? n - i : chunk, e);
    if (!err)
        err = json_body_finish(b, arena, &doc, &data, e);
    if (!err) {
        for (struct json c = json_first(doc); json_present(c); c = json_next(c))
            strb_addf(out, "%s:%d ", json_key(c) ? json_key(c) : "-", (int)json_kind(c));
        enum dtype t;
        int want = -1;
        if (json_given(json_member(doc, "dtype"))) {
            err = json_get_dtype(json_member(doc, "dtype"), &t, e);
            want = (int)t;
        }
        struct json_array_data d;
        if (!err && data)
            err = json_array_take(data, want, &d, e);
        if (!err && data) {
            describe(&d, out);
            mem_free(d.data);
        }
    }
    json_body_free(b);
    return err;
}

static void bodies_are_split_wherever_they_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *want; /* the description, or the pointer or a word of the message */
    } cases[] = {
        {"{\"dtype\":\"int8\",\"data\":[1,2]}", ERR_OK, "dtype:4 data:1 int8 (2,) [1,2]"},
        {"{\"data\":[1,2],\"dtype\":\"int8\"}", ERR_OK, "data:1 dtype:4 int8 (2,) [1,2]"},
        {" { \"shape\" : [2] , \"d\\u0061ta\" : [ 1.5 , 2 ] , \"name\" : \"a]}\\\"\" } ", ERR_OK,
         "shape:5 data:1 name:4 float64 (2,) [1.5,2.0]"},
        {"{\"data\":5}", ERR_OK, "data:1 int64 () 5"},
        {"{\"data\": true , \"dtype\":null}", ERR_OK, "data:1 dtype:1 bool () true"},
        {"{\"x\":{\"data\":[\"a\",{}]},\"fill\":3}", ERR_OK, "x:6 fill:3 "},
        {"[{\"data\":1}]", ERR_OK, "-:6 "},
        {"{\"x\":\"data\"}", ERR_OK, "x:4 "},
        {"{}", ERR_OK, ""},
        {"7", ERR_OK, ""},
        {"{\"data\":[1,2],\"data\":[3]}", ERR_BAD_JSON, "twice"},
        {"{\"data\":[[1],[2,3]]}", ERR_BAD_SHAPE, "/data/1/1"},
        {"{\"dtype\":\"uint8\",\"data\":[1,300]}", ERR_LITERAL_RANGE, "/data/1"},
        {"{\"dtype\":\"uint9\",\"data\":[1,300]}", ERR_BAD_DTYPE, "/dtype"},
        {"{\"data\":[1,2],}", ERR_BAD_JSON, "byte 14"},
        {"{\"data\":[1,2]x}", ERR_BAD_JSON, "byte 13"},
        {"{\"data\":[1,2] 3}", ERR_BAD_JSON, "byte 14"},
        {"{\"data\":1x}", ERR_BAD_JSON, "byte 9"},
        {"{\"data\":[1,2]", ERR_BAD_JSON, "byte 13"},
        {"{\"data\":[1,2", ERR_BAD_JSON, "byte 12"},
        {"{\"data\":", ERR_BAD_JSON, "byte 8"},
        {"{\"data\":}", ERR_BAD_JSON, "byte 8"},
        {"{\"a\" \"data\":[1]}", ERR_BAD_JSON, "byte 4"},
        {"{,\"data\":[1]}", ERR_BAD_JSON, "byte"},
        {"{\"a\":\"data\":[1]}", ERR_BAD_JSON, "byte"},
        {"", ERR_BAD_JSON, "byte 0"},
        {"]]]{\"data\":1}", ERR_BAD_JSON, "byte 0"},
        {"{\"x\":\"0123456789012345678901234567890123456789012345678901234567890123456789"
         "01234567890123456789012345678901234567890123456789012345678901234567890123456789"
         "0123456789012345678901234567890123456789012345678901234567890123456789\"}",
         ERR_TOO_LARGE, "200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t chunk = 1; chunk < 60; chunk++) {
            struct err e = ERR_INIT;
            struct strb b = {0};
            enum err_code err = read_body(cases[i].text, chunk, &b, &e);
            if (err != cases[i].code)
                fail_msg("%s in %zu: %s: %s", cases[i].text, chunk, err_name(err), e.message);
            if (!err)
                assert_string_equal(b.data ? b.data : "", cases[i].want);
            else if (*cases[i].want == '/')
                assert_string_equal(e.pointer, cases[i].want);
            else if (!strstr(e.message, cases[i].want))
                fail_msg("%s in %zu: %s", cases[i].text, chunk, e.message);
            strb_free(&b);
        }
    }
    assert_int_equal(mem_live(), 0);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct strb text = {0};
    strb_add(&text, "{\"name\":\"x\",\"data\":[true");
    for (int i = 0; i < 200; i++)
        strb_addf(&text, ",%d", i);
    strb_add(&text, ",9007199254740993,\"NaN\",1.5],\"dtype\":\"float32\"}");
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct err e = ERR_INIT;
        struct strb out = {0};
        mem_fail_after(n, n % 2);
        enum err_code err = read_body(text.data, 64, &out, &e);
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        bool lost = out.failed;
        strb_free(&out);
        assert_int_equal(mem_live(), before);
        assert_true(err == ERR_OUT_OF_MEMORY || (err == ERR_OK && (!failed || lost)));
        if (!failed)
            break;
    }
    strb_free(&text);
}

static void random_numbers_come_back(void **state)
{
    (void)state;
    struct strb text = {0};
    uint64_t seed = 1234567;
    static double want[20000];
    strb_addc(&text, '[');
    for (int i = 0; i < 20000; i++) {
        char buf[NUMTEXT_MAX];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        want[i] = (double)(int64_t)seed * 0x1p-60;
        if (i)
            strb_addc(&text, ',');
        strb_addn(&text, buf, numtext_f64(want[i], buf));
    }
    strb_addc(&text, ']');
    for (size_t chunk = 1000; chunk < 10000; chunk += 3333) {
        struct json_array_data d;
        struct err e = ERR_INIT;
        assert_int_equal(read_text(text.data, chunk, -1, -1, &d, &e), ERR_OK);
        assert_int_equal(d.size, 20000);
        assert_memory_equal(d.data, want, sizeof want);
        mem_free(d.data);
    }
    strb_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dtype_follows_the_content),
        cmocka_unit_test(values_become_the_dtype_asked_for_exactly),
        cmocka_unit_test(thirty_two_axes_and_no_more),
        cmocka_unit_test(mistakes_have_code_and_pointer),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(bodies_are_split_wherever_they_are_cut),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(random_numbers_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
