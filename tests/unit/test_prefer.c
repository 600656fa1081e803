/* protocol/prefer: the header Prefer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "protocol/wire/prefer.h"

static void waits(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        int64_t want;
    } cases[] = {
        {NULL, -1},
        {"", -1},
        {" , ,", -1},
        {"wait=10", 10},
        {"WAIT = 10", 10},
        {"wait=\"10\"", 10},
        {"wait=0", 0},
        {"wait=007", 7},
        {"wait=10; x=y", 10},
        {"wait=10;", 10},
        {"respond-async, wait=10", 10},
        {"respond-async;wait=3, wait=10", 10},
        {"x=\"a, wait=3\", wait=10", 10},
        {"x=\"a\\\", wait=3\", wait=10", 10},
        {"x=\"never closed, wait=3", -1},
        {"wait=10, wait=20", 10},
        {"wait=x, wait=20", -1}, /* the first one counts */
        {"wait=99999999999999999999999", PREFER_WAIT_MAX},
        {"wait", -1},
        {"wait=", -1},
        {"wait=-1", -1},
        {"wait=+1", -1},
        {"wait=1.5", -1},
        {"wait=1s", -1},
        {"wait=1 2", -1},
        {"wait=\"1", -1},
        {"waits=10", -1},
        {"await=10", -1},
        {"=10", -1},
        {"\"wait=10\"", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t got = prefer_wait(cases[i].value);
        if (got != cases[i].want)
            fail_msg("%s: %lld", cases[i].value, (long long)got);
    }
}

static void not_waiting_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool async;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"wait=10", false},
        {"respond-async", true},
        {"Respond-Async ; x=1", true},
        {"wait=10, respond-async", true},
        {"x=\"respond-async\"", false},
        {"respond-asynchronously", false},
        {"respond", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (prefer_async(cases[i].value) != cases[i].async)
            fail_msg("%s", cases[i].value);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits),
        cmocka_unit_test(not_waiting_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
