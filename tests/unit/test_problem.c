/* protocol/problem: errors as application/problem+json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "protocol/json/json.h"
#include "protocol/wire/problem.h"

static void place_appears_where_there_is_one(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strb b = {0};
    err_set(&e, ERR_NOT_FOUND, "no array \"%s\"", "x\n");
    problem_write(&e, &b);
    assert_string_equal(
        b.data, "{\"type\":\"urn:arrayd:problem:not_found\",\"title\":\"Not found\","
                "\"status\":404,\"code\":\"not_found\",\"detail\":\"no array \\\"x\\n\\\"\"}");
    strb_reset(&b);
    err_at(&e, ERR_UNKNOWN_NAME, 0, "who?");
    err_prefix(&e, "/expr");
    problem_write(&e, &b);
    assert_non_null(strstr(b.data, "\"pointer\":\"/expr\",\"offset\":0}"));
    strb_free(&b);
}

static void every_code_makes_valid_json(void **state)
{
    (void)state;
    for (int c = 1; c < ERR_COUNT; c++) {
        struct err e = ERR_INIT;
        struct strb b = {0};
        struct json doc;
        int64_t status;
        err_set(&e, (enum err_code)c, "text");
        problem_write(&e, &b);
        struct arena *a = arena_new(0);
        assert_int_equal(json_parse(a, b.data, b.len, NULL, &doc, &e), ERR_OK);
        assert_int_equal(json_get_i64(json_member(doc, "status"), 400, 599, &status, &e), ERR_OK);
        assert_int_equal(status, err_status((enum err_code)c));
        assert_true(json_equals(json_member(doc, "code"), err_name((enum err_code)c)));
        arena_free(a);
        strb_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_appears_where_there_is_one),
        cmocka_unit_test(every_code_makes_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
