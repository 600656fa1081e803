/* server/condition: which lists name a tag, and what a condition says of an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/body/condition.h"
#include "server/store/handles.h"

/* what the library is linked with; no request is made here */

static void lists(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        bool strong, weak;
    } cases[] = {
        {"\"t\"", true, true},
        {" \t\"t\" ", true, true},
        {"\"a\", \"t\"", true, true},
        {"\"a\",,\"t\"", true, true},
        {"W/\"t\"", false, true},
        {"W/\"a\", W/\"t\"", false, true},
        {"W/\"t\", \"t\"", true, true},
        {"*", true, true},
        {" * ", true, true},
        {"\"a\", *", false, false},
        {"* , \"a\"", false, false},
        {"", false, false},
        {",", false, false},
        {"t", false, false},
        {"\"t", false, false},
        {"\"t \"", false, false},
        {"\"tt\"", false, false},
        {"w/\"t\"", false, false},
        {"a, \"t\"", false, false},
        {"\"a,\"t\"", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%s\n", cases[i].list);
        assert_int_equal(etag_listed(cases[i].list, "\"t\"", true), cases[i].strong);
        assert_int_equal(etag_listed(cases[i].list, "\"t\"", false), cases[i].weak);
    }
}

static void tags(void **state)
{
    (void)state;
    struct view v, w;
    char a[ETAG_MAX], b[ETAG_MAX];
    assert_int_equal(view_contiguous(2, (int64_t[]){2, 3}, 4, &v, NULL), ERR_OK);
    assert_int_equal(view_contiguous(2, (int64_t[]){3, 2}, 4, &w, NULL), ERR_OK);
    etag_make(DT_F32, &v, 7, MEDIA_OCTETS, a);
    etag_make(DT_F32, &v, 7, MEDIA_OCTETS, b);
    assert_string_equal(a, b);
    etag_make(DT_F32, &v, 8, MEDIA_OCTETS, b);
    assert_string_not_equal(a, b);
    etag_make(DT_I32, &v, 7, MEDIA_OCTETS, b);
    assert_string_not_equal(a, b);
    etag_make(DT_F32, &w, 7, MEDIA_OCTETS, b);
    assert_string_not_equal(a, b);
    etag_make(DT_F32, &v, 7, MEDIA_NPY, b);
    assert_string_not_equal(a, b);
    etag_make(DT_F32, &v, UINT64_MAX, MEDIA_JSON, b);
    assert_int_equal(b[strlen(b) - 1], '"');
}

static void missing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct condition c = {0};
    assert_int_equal(condition_guard(&c, NULL, &e), ERR_OK);
    c = (struct condition){.match = "*"};
    assert_int_equal(condition_guard(&c, NULL, &e), ERR_PRECONDITION_FAILED);
    c = (struct condition){.match = "\"x\""};
    assert_int_equal(condition_guard(&c, NULL, &e), ERR_PRECONDITION_FAILED);
    c = (struct condition){.none_match = "*"};
    assert_int_equal(condition_guard(&c, NULL, &e), ERR_OK);
}

/* What handles.c asks, and when. */
struct asked {
    int n;
    const struct array *now;
    enum err_code answer;
};

static enum err_code note(void *user, const struct array *now, struct err *e)
{
    struct asked *a = user;
    a->n++;
    a->now = now;
    return a->answer ? err_set(e, a->answer, "no") : ERR_OK;
}

static void guards(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    struct engine *engine;
    struct engine_stream *stream;
    struct account *account = account_new(0);
    assert_int_equal(engine_open(&config, &engine, &e), ERR_OK);
    assert_int_equal(engine_stream_new(engine, 0, &stream, &e), ERR_OK);
    struct handles *t = handles_new(10);
    struct handle_space *s = handle_space_new(t, "s");
    struct array *a = NULL, *b = NULL;
    assert_int_equal(engine_zeros(stream, account, DT_F32, 1, (int64_t[]){3}, &a, &e), ERR_OK);
    assert_int_equal(engine_zeros(stream, account, DT_F32, 1, (int64_t[]){3}, &b, &e), ERR_OK);

    struct asked asked = {.answer = ERR_PRECONDITION_FAILED};
    struct handle_guard guard = {note, &asked};
    struct handle_spec spec = {.name = "u", .policy = NAME_REPLACE, .guard = &guard};
    struct handle h = {0};
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_PRECONDITION_FAILED);
    assert_true(asked.n == 1 && !asked.now && handles_count(t) == 0);
    asked.answer = ERR_OK;
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_OK);
    handle_clear(&h);
    asked.answer = ERR_PRECONDITION_FAILED;
    assert_int_equal(handle_add(s, b, &spec, &h, NULL, &e), ERR_PRECONDITION_FAILED);
    assert_ptr_equal(asked.now, a);
    assert_int_equal(
        handle_update(s, "u", &(struct handle_change){.name = "v", .read_only = 1}, &guard, &h, &e),
        ERR_PRECONDITION_FAILED);
    assert_int_equal(handle_remove(s, "u", &guard, &e), ERR_PRECONDITION_FAILED);
    assert_int_equal(asked.n, 5);
    assert_int_equal(handle_get(s, "u", &h, &e), ERR_OK);
    assert_true(h.array == a && !h.read_only);
    handle_clear(&h);
    /* nothing there, or protected: that is the answer, and nobody is asked */
    assert_int_equal(handle_remove(s, "v", &guard, &e), ERR_NOT_FOUND);
    assert_int_equal(handle_update(s, "u", &(struct handle_change){.read_only = 1}, NULL, &h, &e),
                     ERR_OK);
    handle_clear(&h);
    assert_int_equal(handle_remove(s, "u", &guard, &e), ERR_READ_ONLY);
    assert_int_equal(handle_add(s, b, &spec, &h, NULL, &e), ERR_READ_ONLY);
    assert_int_equal(asked.n, 5);

    /* the real thing */
    char tag[ETAG_MAX];
    etag_make(a->dtype, &a->view, array_version(a), MEDIA_NPY, tag);
    struct condition c = {.match = tag};
    assert_int_equal(condition_guard(&c, a, &e), ERR_OK);
    assert_int_equal(condition_guard(&c, b, &e), ERR_PRECONDITION_FAILED);
    c = (struct condition){.none_match = tag};
    assert_int_equal(condition_guard(&c, a, &e), ERR_PRECONDITION_FAILED);
    assert_int_equal(condition_guard(&c, b, &e), ERR_OK);

    handle_space_close(s);
    handle_space_free(s);
    handles_free(t);
    array_unref(a);
    array_unref(b);
    engine_stream_unref(stream);
    account_unref(account);
    engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(tags),
        cmocka_unit_test(missing),
        cmocka_unit_test(guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
