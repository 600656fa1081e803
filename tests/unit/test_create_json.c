/* server/create_json: which creator a body means, its defaults, places of mistakes, and every
 * allocation failure on the way to an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/body/create_json.h"

static struct engine *engine;
static struct handles *table;
static struct session session; /* only what creators use of one */

static int set_up(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    if (engine_open(&config, &engine, &e) != ERR_OK ||
        engine_stream_new(engine, 0, &session.stream, &e) != ERR_OK)
        return 1;
    session.account = account_new(1 << 20);
    table = handles_new(10);
    session.handles = handle_space_new(table, "s-1");
    return !session.account || !table || !session.handles;
}

static int tear_down(void **state)
{
    (void)state;
    handle_space_close(session.handles);
    handle_space_free(session.handles);
    handles_free(table);
    account_unref(session.account);
    engine_stream_unref(session.stream);
    engine_close(engine);
    return 0;
}

static enum err_code read_spec(const char *text, bool has_data, struct create_spec *ret,
                               struct err *e)
{
    _cleanup_arena_ struct arena *arena = arena_new(0);
    struct json doc;
    if (!arena)
        return err_oom(e);
    enum err_code r = json_parse(arena, text, strlen(text), NULL, &doc, e);
    const struct array_scope from = {.space = session.handles};
    return r ? r : create_spec_read(doc, has_data, &from, ret, e);
}

static struct create_spec good(const char *text)
{
    struct create_spec s;
    struct err e = ERR_INIT;
    if (read_spec(text, false, &s, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.message);
    return s;
}

static void creators_and_their_defaults(void **state)
{
    (void)state;
    struct create_spec s = good("{\"shape\":[2,3]}");
    assert_int_equal(s.creator, CREATE_ZEROS);
    assert_int_equal(s.dtype, DT_F64);
    assert_int_equal(s.rank, 2);
    s = good("{\"shape\":[],\"fill\":true}");
    assert_int_equal(s.creator, CREATE_FILL);
    assert_int_equal(s.dtype, DT_BOOL);
    assert_int_equal(s.fill.v.b, 1);
    s = good("{\"shape\":[1],\"fill\":\"18446744073709551615\"}");
    assert_int_equal(s.dtype, DT_U64);
    assert_true(s.fill.v.u64 == UINT64_MAX);
    s = good("{\"arange\":{\"stop\":3}}");
    assert_int_equal(s.creator, CREATE_ARANGE);
    assert_int_equal(s.dtype, DT_I64);
    assert_true(s.start.i == 0 && s.step.i == 1 && s.stop.i == 3);
    s = good("{\"arange\":{\"stop\":3.0}}");
    assert_int_equal(s.dtype, DT_F64);
    s = good("{\"linspace\":{\"start\":0,\"stop\":1}}");
    assert_int_equal(s.num, 50);
    assert_true(s.endpoint);
    assert_int_equal(s.dtype, DT_F64);
    s = good("{\"eye\":{\"n\":4}}");
    assert_true(s.n == 4 && s.m == 4 && s.k == 0);
    s = good("{\"shape\":[1],\"random\":{\"distribution\":\"integers\",\"seed\":1,\"high\":9}}");
    assert_int_equal(s.dtype, DT_I64);
    assert_true(s.random.has_high && !s.random.has_low);
    struct err e = ERR_INIT;
    assert_int_equal(read_spec("{\"data\":null}", true, &s, &e), ERR_OK);
    assert_int_equal(s.creator, CREATE_DATA);
    assert_int_equal(s.dtype, -1);
}

static void mistakes_have_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *pointer;
    } bad[] = {
        {"{}", ERR_BAD_FIELD, "/shape"},
        {"{\"shape\":[1],\"color\":1}", ERR_UNKNOWN_FIELD, "/color"},
        {"{\"shape\":[1],\"ghost\":[2]}", ERR_GHOST_WIDTH, "/ghost/0"},
        {"{\"shape\":[1],\"ghost\":[1,1]}", ERR_SHAPE_MISMATCH, "/ghost"},
        {"{\"shape\":[1],\"boundary\":[[{\"type\":\"periodic\"},{\"type\":\"none\"}]]}",
         ERR_BAD_BOUNDARY, "/boundary/0"},
        {"{\"shape\":[1],\"spacing\":[0]}", ERR_BAD_FIELD, "/spacing/0"},
        {"{\"shape\":[1],\"alignment\":8192}", ERR_BAD_FIELD, "/alignment"},
        {"{\"shape\":[1],\"dtype\":\"f4\"}", ERR_BAD_DTYPE, "/dtype"},
        {"{\"shape\":[1],\"fill\":1,\"eye\":{\"n\":1}}", ERR_BAD_FIELD, "/eye"},
        {"{\"shape\":[1],\"fill\":300,\"dtype\":\"uint8\"}", ERR_LITERAL_RANGE, "/fill"},
        {"{\"shape\":[1],\"fill\":[1,2]}", ERR_BAD_FIELD, "/fill"},
        {"{\"fill\":1}", ERR_BAD_FIELD, "/shape"},
        {"{\"arange\":{}}", ERR_BAD_FIELD, "/arange/stop"},
        {"{\"like\":\"nothing\"}", ERR_NOT_FOUND, "/like"},
        {"{\"linspace\":{\"start\":0,\"stop\":true}}", ERR_BAD_FIELD, "/linspace/stop"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct create_spec s;
        struct err e = ERR_INIT;
        assert_int_equal(read_spec(bad[i].text, false, &s, &e), bad[i].code);
        assert_string_equal(e.pointer, bad[i].pointer);
        assert_true(e.message[0]);
    }
}

static void the_given_shape_must_be_the_made_one(void **state)
{
    (void)state;
    struct create_spec s = good("{\"arange\":{\"stop\":3},\"shape\":[4]}");
    struct array *a = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(create_spec_run(&s, &session, &a, &e), ERR_SHAPE_MISMATCH);
    assert_string_equal(e.pointer, "/shape");
    assert_null(a);
    assert_int_equal(create_spec_shape(&s, 1, (int64_t[]){4}, &e), ERR_OK);
    assert_int_equal(create_spec_shape(&s, 2, (int64_t[]){4, 1}, &e), ERR_SHAPE_MISMATCH);
    s = good("{\"shape\":[1048577],\"dtype\":\"uint8\"}");
    assert_int_equal(create_spec_run(&s, &session, &a, &e), ERR_QUOTA);
}

static void every_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    static const char *const text[] = {
        "{\"shape\":[4]}",
        "{\"shape\":[4],\"fill\":2}",
        "{\"arange\":{\"stop\":9}}",
        "{\"linspace\":{\"start\":0,\"stop\":1}}",
        "{\"eye\":{\"n\":3}}",
        "{\"shape\":[4],\"random\":{\"distribution\":\"normal\",\"seed\":1}}",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        enum err_code r = ERR_OUT_OF_MEMORY;
        int64_t nth;
        for (nth = 1; r != ERR_OK; nth++) {
            struct create_spec s;
            struct array *a = NULL;
            struct err e = ERR_INIT;
            mem_fail_after(nth, false);
            r = read_spec(text[i], false, &s, &e);
            if (r == ERR_OK)
                r = create_spec_run(&s, &session, &a, &e);
            mem_fail_after(0, false);
            if (r != ERR_OK)
                assert_int_equal(r, ERR_OUT_OF_MEMORY);
            array_unref(a);
            while (engine_jobs_in_flight(engine)) /* work in flight holds memory */
                ;
            assert_int_equal(engine_bytes_in_use(engine), 0);
            assert_int_equal(account_used(session.account), 0);
        }
        assert_true(nth > 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creators_and_their_defaults),
        cmocka_unit_test(mistakes_have_a_place),
        cmocka_unit_test(the_given_shape_must_be_the_made_one),
        cmocka_unit_test(every_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
