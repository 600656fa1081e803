/* server/login/cookie: what a Cookie header says, however it is written; and Set-Cookie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/login/cookie.h"

/* The values of `a` in a header, each in brackets. */
static const char *values(const char *header)
{
    static char text[512];
    size_t n, k = 0;
    text[0] = '\0';
    for (const char *v; (v = cookie_next(&header, "a", &n));)
        k += (size_t)snprintf(text + k, sizeof text - k, "[%.*s]", (int)n, v);
    assert_int_equal(*header, '\0');
    return text;
}

/* Names of one length, and how much of them is the same. */
static void alike(void **state)
{
    (void)state;
    const char *const header = "ab1=x; ab2=y; ac3=z; ab=v; ab=4=w; ab45=u; bb1=t", *at = header;
    const char *const found[] = {"ab1=x;", "ab2=y;"};
    size_t n;
    for (size_t i = 0; i < 2; i++) {
        const char *v = cookie_next_like(&at, "ab0", 2, &n);
        assert_true(v && n == 1 && !strncmp(v - 4, found[i], 6));
    }
    assert_null(cookie_next_like(&at, "ab0", 2, &n));
    at = header;
    assert_null(cookie_next_like(&at, "ab0", 3, &n));
}

static void headers(void **state)
{
    (void)state;
    static const struct {
        const char *header, *values;
    } cases[] = {
        {"", ""},
        {"a=1", "[1]"},
        {"a=", "[]"},
        {"a", ""},
        {"=", ""},
        {";", ""},
        {"; ;;  ; ", ""},
        {"b=1; a=2", "[2]"},
        {"b=1;a=2;c=3", "[2]"},
        {"a=1; b=2; a=3", "[1][3]"},
        {"a=1;a=;a=1", "[1][][1]"},
        {"  a=1 \t", "[1]"},
        {"\t a=1\t ;\t a=2", "[1][2]"},
        {"a=1=2", "[1=2]"},
        {"a==", "[=]"},
        {"a=\"1\"", "[\"1\"]"},
        {"a=1 2", "[1 2]"},
        {"a= 1", "[ 1]"},
        {"a =1", ""},
        {"A=1", ""},
        {"aa=1", ""},
        {"ba=1", ""},
        {"b=a=1", ""},
        {"b=1, a=2", "[2]"}, /* two headers that became one */
        {"a=1, a=2", "[1][2]"},
        {"b=1,a=2", ""},
        {"a=1,2,; a=,, a=3,", "[1,2,][,][3,]"},
        {"$a=1", ""},
        {"b=\"x; a=1; y\"", "[1]"}, /* quotes have no meaning, as in RFC 6265 */
        {"a=\xc3\xa9; b", "[\xc3\xa9]"},
        {"a=1;", "[1]"},
        {"a=1;;a=2", "[1][2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(values(cases[i].header), cases[i].values);
}

static void names(void **state)
{
    (void)state;
    const char *at = "arrayd-x=1; arrayd-xy=2; arrayd-=3; arrayd-y=4", *v;
    size_t n;
    v = cookie_next(&at, "arrayd-y", &n);
    assert_true(v && n == 1 && *v == '4');
    assert_null(cookie_next(&at, "arrayd-y", &n));
}

static void settings(void **state)
{
    (void)state;
    char text[COOKIE_MAX], longest[100];
    cookie_set("arrayd-x", "key", 43200, false, text);
    assert_string_equal(text, "arrayd-x=key; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
    cookie_set("arrayd-x", "", 0, true, text);
    assert_string_equal(text, "arrayd-x=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure");
    memset(longest, 'k', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cookie_set(longest, longest, INT64_MAX, true, text);
    assert_string_equal(text + strlen(text) - 32, "; HttpOnly; SameSite=Strict; Secure" + 3);
    assert_int_equal(strcspn(text, ";"), 64 + 1 + 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        cmocka_unit_test(alike),
        cmocka_unit_test(names),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
