/* What the kernel cache remembers of texts that do not compile, over the stub of NVRTC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/gpu/code/kcache.h"
#include "tests/unit/nvrtc_stub.h"

static int64_t live_before;

static int set_up(void **state)
{
    (void)state;
    memset(&stub, 0, sizeof stub);
    live_before = mem_live();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return mem_live() == live_before && stub.programs == 0 ? 0 : -1;
}

static struct kcache *open_cache_for(int64_t refusal_ms)
{
    struct kcache_config config = {.max_entries = 4, .refusal_ms = refusal_ms};
    struct kcache *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(kcache_new(&config, &stub_nvrtc, &c, &e), ERR_OK);
    return c;
}

static struct kcache *open_cache(void)
{
    return open_cache_for(0);
}

/* What compiling the text comes to. */
static enum err_code try_text(struct kcache *c, const char *source)
{
    struct kcache_entry *entry = NULL;
    enum kcache_how how;
    struct err e = ERR_INIT;
    enum err_code code = kcache_get(c, "sm_90", source, false, &entry, &how, &e);
    assert_int_equal(code, e.code);
    kcache_unref(entry);
    return code;
}

static uint64_t refusal_of(struct kcache *c, const char *source)
{
    struct code_key key = kcache_key(c, "sm_90", source, false);
    return kcache_refusal(c, &key);
}

static void a_refusal_is_forgotten_in_time(void **state)
{
    (void)state;
    struct kcache *c = open_cache_for(40);
    uint64_t first = 0, second = 0;
    int times = 0;
    do { /* until it is looked at in time */
        assert_int_equal(try_text(c, "FAIL"), ERR_INTERNAL);
        assert_int_equal(stub.compiles, ++times);
        first = refusal_of(c, "FAIL");
        usleep(50000);
        assert_int_equal(refusal_of(c, "FAIL"), 0);
        assert_true(times < 100);
    } while (!first);
    do {
        usleep(50000);
        assert_int_equal(try_text(c, "FAIL"), ERR_INTERNAL);
        assert_int_equal(stub.compiles, ++times);
        second = refusal_of(c, "FAIL");
        assert_true(times < 100);
    } while (!second);
    assert_true(second > first);
    kcache_free(c);
}

static void only_a_refusal_is_remembered(void **state)
{
    (void)state;
    struct kcache *c = open_cache();
    stub.compile_code = NVRTC_ERROR_OUT_OF_MEMORY;
    assert_int_equal(try_text(c, "a text"), ERR_OUT_OF_MEMORY);
    stub.compile_code = 0;
    assert_int_equal(refusal_of(c, "a text"), 0);
    assert_int_equal(try_text(c, "a text"), ERR_OK);
    kcache_free(c);
}

static void refusals_are_few(void **state)
{
    (void)state;
    struct kcache *c = open_cache();
    char text[32], why[KCACHE_REASON];
    for (int i = 0; i < 70; i++) {
        snprintf(text, sizeof text, "FAIL %d", i);
        assert_int_equal(try_text(c, text), ERR_INTERNAL);
        assert_int_equal(refusal_of(c, text), i + 1);
    }
    assert_int_equal(refusal_of(c, "FAIL 0"), 0);
    assert_int_equal(refusal_of(c, "FAIL 6"), 7);
    kcache_reason(c, 1, why);
    assert_string_equal(why, "");
    kcache_reason(c, 0, why);
    assert_string_equal(why, "");
    kcache_reason(c, 7, why);
    assert_string_not_equal(why, "");
    kcache_free(c);
}

static void a_reason_is_brief_and_names_no_folder(void **state)
{
    (void)state;
    struct kcache *c = open_cache();
    char why[KCACHE_REASON], log[2000];
    stub.log = "/home/somebody/build/kernel.cu(7): error: a / b is not \"/etc/x/y.h\"\n"
               "      ^\n\n  third line\nfourth line\nfifth line\n";
    assert_int_equal(try_text(c, "FAIL"), ERR_INTERNAL);
    kcache_reason(c, refusal_of(c, "FAIL"), why);
    assert_non_null(strstr(why, "sm_90"));
    assert_non_null(
        strstr(why, ": /kernel.cu(7): error: a / b is not \"/y.h\"; ^; third line; fourth"));
    assert_null(strstr(why, "home"));
    assert_null(strstr(why, "fifth"));
    assert_null(strchr(why, '\n'));
    memset(log, 'x', sizeof log);
    log[sizeof log - 1] = '\0';
    stub.log = log;
    assert_int_equal(try_text(c, "FAIL more"), ERR_INTERNAL);
    kcache_reason(c, refusal_of(c, "FAIL more"), why);
    assert_true(strlen(why) > 300);
    kcache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refusal_is_forgotten_in_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_refusal_is_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals_are_few, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reason_is_brief_and_names_no_folder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
