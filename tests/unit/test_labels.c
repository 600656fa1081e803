/* server/labels: what a body makes of an array's labels, which of them a view keeps, and handles'
 * share in it: counting, and every allocation failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "protocol/text/index.h"
#include "server/labels/labels_read.h"
#include "server/store/handles.h"

static struct engine *engine;
static struct engine_stream *stream;
static struct account *account;

static int set_up(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    return engine_open(&config, &engine, &e) != ERR_OK ||
           engine_stream_new(engine, 0, &stream, &e) != ERR_OK || !(account = account_new(0));
}

static int tear_down(void **state)
{
    (void)state;
    engine_stream_unref(stream);
    account_unref(account);
    engine_close(engine);
    return 0;
}

static struct array *new_array(void)
{
    struct array *a = NULL;
    struct err e = ERR_INIT;
    const int64_t n = 3;
    assert_int_equal(engine_zeros(stream, account, DT_F32, 1, &n, &a, &e), ERR_OK);
    return a;
}

/* "3x4" has this shape and its text as its id. */
static enum err_code find(void *user, const char *ref, struct label_array *ret, struct err *e)
{
    (void)user;
    *ret = (struct label_array){0};
    snprintf(ret->id, sizeof ret->id, "%s", ref);
    if (!strcmp(ref, "nobody"))
        return err_set(e, ERR_NOT_FOUND, "no array has this name");
    for (const char *p = ref; *p >= '0' && *p <= '9'; p += p[1] == 'x' ? 2 : 1)
        ret->shape[ret->rank++] = *p - '0';
    return ERR_OK;
}

static const struct label_finder finder = {find, NULL};

static struct labels_patch say(struct arena *arena, const char *text)
{
    struct err e = ERR_INIT;
    struct json body, of[LABEL_COUNT];
    struct labels_patch p;
    assert_int_equal(json_parse(arena, text, strlen(text), NULL, &body, &e), ERR_OK);
    labels_members(body, of);
    assert_int_equal(labels_read(arena, of, &finder, 1000, &p, &e), ERR_OK);
    return p;
}

static struct view shaped(int rank, const int64_t *shape)
{
    struct view v;
    struct err e = ERR_INIT;
    assert_int_equal(view_contiguous(rank, shape, 1, &v, &e), ERR_OK);
    return v;
}

static const char *text_of(const struct labels *l)
{
    static struct strb text;
    strb_free(&text);
    struct json_writer w = JSON_WRITER(&text);
    json_open_object(&w);
    labels_put(&w, l, false);
    json_close_object(&w);
    return text.data;
}

static void bodies(void **state)
{
    (void)state;
    static const struct {
        const char *old, *body, *made; /* made NULL: an error of that code, there */
        enum err_code code;
        const char *at;
    } cases[] = {
        {"{}", "{}", "{}", 0, NULL},
        {"{}", "{\"attrs\":{\"a\":1},\"dims\":[\"y\",\"x\"]}",
         "{\"attrs\":{\"a\":1},\"dims\":[\"y\",\"x\"]}", 0, NULL},
        {"{\"attrs\":{\"a\":1,\"b\":2}}", "{\"attrs\":{\"b\":null,\"c\":[1e99, -0.50]}}",
         "{\"attrs\":{\"a\":1,\"c\":[1e99,-0.50]}}", 0, NULL},
        {"{\"attrs\":{\"a\":1}}", "{\"attrs\":{\"a\":null}}", "{}", 0, NULL},
        {"{\"attrs\":{\"a\":1}}", "{\"attrs\":{}}", "{\"attrs\":{\"a\":1}}", 0, NULL},
        {"{\"units\":\"K\"}", "{\"units\":null}", "{}", 0, NULL},
        {"{\"dims\":[\"y\",\"x\"]}", "{\"dims\":[null,null]}", "{}", 0, NULL},
        {"{\"dims\":[\"y\",\"x\"]}", "{\"coords\":{\"x\":\"4\",\"t\":\"t\"}}",
         "{\"coords\":{\"x\":{\"array\":\"4\",\"dims\":[\"x\"]},"
         "\"t\":{\"array\":\"t\",\"dims\":[]}},\"dims\":[\"y\",\"x\"]}",
         0, NULL},
        {"{\"dims\":[\"y\",\"x\"]}", "{\"coords\":{\"x\":\"3\"}}", NULL, ERR_SHAPE_MISMATCH,
         "/coords/x"},
        {"{}", "{\"coords\":{\"x\":\"4\"}}", NULL, ERR_SHAPE_MISMATCH, "/coords/x"},
        {"{}", "{\"dims\":[\"x\"]}", NULL, ERR_SHAPE_MISMATCH, "/dims"},
    };
    const struct view v = shaped(2, (const int64_t[]){3, 4});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = ERR_INIT;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        _cleanup_labels_ struct labels *old = NULL, *made = NULL;
        struct labels_patch first = say(arena, cases[i].old), then = say(arena, cases[i].body);
        assert_int_equal(labels_make(NULL, &first, &v, &old, &e), ERR_OK);
        assert_int_equal(labels_make(old, &then, &v, &made, &e), cases[i].code);
        if (cases[i].made)
            assert_string_equal(text_of(made), cases[i].made);
        else
            assert_string_equal(e.pointer, cases[i].at);
    }
}

static void a_name_stays_where_a_coordinate_lies(void **state)
{
    (void)state;
    const struct view v = shaped(1, (const int64_t[]){4});
    struct err e = ERR_INIT;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *old = NULL, *made = NULL;
    struct labels_patch p = say(arena, "{\"dims\":[\"x\"],\"coords\":{\"c\":"
                                       "{\"array\":\"4\",\"dims\":[\"x\"]}}}");
    assert_int_equal(labels_make(NULL, &p, &v, &old, &e), ERR_OK);
    p = say(arena, "{\"dims\":[\"y\"]}");
    assert_int_equal(labels_make(old, &p, &v, &made, &e), ERR_SHAPE_MISMATCH);
    assert_string_equal(e.pointer, "/dims");
    p = say(arena, "{\"dims\":[\"y\"],\"coords\":{\"c\":null}}");
    assert_int_equal(labels_make(old, &p, &v, &made, &e), ERR_OK);
    assert_string_equal(text_of(made), "{\"dims\":[\"y\"]}");
}

/* One that is above its limit, which has been lowered, may become smaller. */
static void sizes(void **state)
{
    (void)state;
    const struct view v = shaped(0, NULL);
    struct err e = ERR_INIT;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *old = NULL, *made = NULL, *less = NULL;
    struct labels_patch p = say(arena, "{\"attrs\":{\"a\":\"12345678\",\"b\":1}}");
    p.most = 30;
    assert_int_equal(labels_make(NULL, &p, &v, &old, &e), ERR_INLINE_TOO_LARGE);
    assert_string_equal(e.pointer, "/attrs");
    p.most = 31;
    assert_int_equal(labels_make(NULL, &p, &v, &old, &e), ERR_OK);
    assert_int_equal(labels_size(old), 31);
    p = say(arena, "{\"attrs\":{\"c\":1}}");
    p.most = 10;
    assert_int_equal(labels_make(old, &p, &v, &made, &e), ERR_INLINE_TOO_LARGE);
    p = say(arena, "{\"attrs\":{\"b\":null}}");
    p.most = 10;
    assert_int_equal(labels_make(old, &p, &v, &less, &e), ERR_OK);
    assert_int_equal(labels_size(NULL), 0);
}

/* Steps of a view of a (2, 3, 4); the axes that are expected, * after those that are whole. */
static void axes_follow_an_index(void **state)
{
    (void)state;
    static const struct {
        const char *index, *axes;
    } cases[] = {
        {"...", "0*1*2*"},        {"1", "1*2*"},
        {":, 0", "0*2*"},         {"..., -1", "0*1*"},
        {"None", "-0*1*2*"},      {"0:2, None, 0:3", "0*-1*2*"},
        {"1:, ::-1, ::2", "012"}, {":, :, 0:9", "0*1*2*"},
        {"1:2, 2", "02*"},        {"0, 0, 0", ""},
        {"..., None", "0*1*2*-"},
    };
    const struct view v = shaped(3, (const int64_t[]){2, 3, 4});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct index_spec ix = {0};
        struct label_axes a;
        struct err e = ERR_INIT;
        char got[64], *p = got;
        label_axes_own(&a, 3);
        assert_int_equal(index_parse(cases[i].index, strlen(cases[i].index), &ix, &e), ERR_OK);
        label_axes_index(&a, &v, &ix);
        for (int k = 0; k < a.n; k++) {
            *p++ = a.from[k] < 0 ? '-' : (char)('0' + a.from[k]);
            if (a.whole[k])
                *p++ = '*';
        }
        *p = '\0';
        assert_string_equal(got, cases[i].axes);
    }
}

static void what_follows(void **state)
{
    (void)state;
    const struct view v = shaped(2, (const int64_t[]){3, 4});
    struct err e = ERR_INIT;
    struct label_axes a;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *l = NULL, *m = NULL, *same = NULL, *other = NULL, *grown = NULL;
    struct labels_patch p = say(arena, "{\"dims\":[\"y\",\"x\"],\"units\":\"K\",\"coords\":{"
                                       "\"y\":\"3\",\"x\":\"4\",\"t\":\"\"}}");
    assert_int_equal(labels_make(NULL, &p, &v, &l, &e), ERR_OK);
    label_axes_own(&a, 2);
    assert_int_equal(labels_follow(l, &a, &same, &e), ERR_OK);
    assert_string_equal(text_of(same), "{\"coords\":{\"y\":{\"array\":\"3\",\"dims\":[\"y\"]},"
                                       "\"x\":{\"array\":\"4\",\"dims\":[\"x\"]},"
                                       "\"t\":{\"array\":\"\",\"dims\":[]}},"
                                       "\"dims\":[\"y\",\"x\"],\"units\":\"K\"}");
    a = (struct label_axes){.n = 3, .from = {1, -1, 0}, .whole = {true, false, false}};
    assert_int_equal(labels_follow(l, &a, &m, &e), ERR_OK);
    assert_string_equal(text_of(m), "{\"coords\":{\"x\":{\"array\":\"4\",\"dims\":[\"x\"]},"
                                    "\"t\":{\"array\":\"\",\"dims\":[]}},"
                                    "\"dims\":[\"x\",null,\"y\"],\"units\":\"K\"}");
    const struct view line = shaped(1, (const int64_t[]){12}),
                      wide = shaped(2, (const int64_t[]){3, 9});
    assert_int_equal(labels_resize(l, &v, &line, &other, &e), ERR_OK);
    assert_string_equal(text_of(other),
                        "{\"coords\":{\"t\":{\"array\":\"\",\"dims\":[]}},\"units\":\"K\"}");
    assert_int_equal(labels_resize(l, &v, &wide, &grown, &e), ERR_OK);
    assert_non_null(strstr(text_of(grown), "\"dims\":[\"y\",\"x\"]"));
    assert_null(strstr(text_of(grown), "\"4\""));
}

#define AXES   32
#define COORDS 300

/* The least processor time of a few tries. */
static double least(void (*work)(void *user), void *user)
{
    double best = 1e9;
    for (int i = 0; i < 7; i++) {
        const clock_t from = clock();
        work(user);
        const double t = (double)(clock() - from) / CLOCKS_PER_SEC;
        best = t < best ? t : best;
    }
    return best;
}

static void restore(void *user)
{
    struct err e = ERR_INIT;
    struct json v;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *l = NULL;
    assert_int_equal(json_parse(arena, user, strlen(user), NULL, &v, &e), ERR_OK);
    assert_int_equal(labels_restore(v, &l, &e), ERR_OK);
}

static void follow(void *user)
{
    struct err e = ERR_INIT;
    struct label_axes a;
    _cleanup_labels_ struct labels *l = NULL;
    label_axes_own(&a, AXES);
    assert_int_equal(labels_follow(user, &a, &l, &e), ERR_OK);
    assert_int_equal(labels_size(l), labels_size(user));
}

/* A few dozen bytes ask for a view, and all that its array has is read again for them. */
static void many_coordinates_take_no_longer_than_reading_them(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct json v;
    _cleanup_strb_ struct strb names = {0}, text = {0};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *l = NULL;
    for (int k = 0; k < AXES; k++)
        strb_addf(&names, "%s\"%c\"", k ? "," : "", (char)(k < 26 ? 'a' + k : 'A' + k - 26));
    strb_addf(&text, "{\"dims\":[%s],\"coords\":{", names.data);
    for (int i = 0; i < COORDS; i++)
        strb_addf(&text, "%s\"c%d\":{\"array\":\"a-1\",\"dims\":[%s]}", i ? "," : "", i,
                  names.data);
    strb_addf(&text, "}}");
    assert_int_equal(json_parse(arena, text.data, text.len, NULL, &v, &e), ERR_OK);
    assert_int_equal(labels_restore(v, &l, &e), ERR_OK);
    assert_true(least(follow, l) < 4 * least(restore, text.data));
}

/* From another process, perhaps of another version: whatever is there does no harm. */
static void restored(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "{\"attrs\":{\"a\":[1,null,1.50]},\"dims\":[\"x\",null],\"units\":\"\\u001b\"}"};
    static const char *const odd[] = {
        "{\"dims\":[]}", "{\"dims\":[1,{},\"x\",[]],\"coords\":{\"a\":1,\"b\":{\"dims\":7},"
                         "\"c\":{\"dims\":[3,\"q\"]}}}"};
    static const char *const bad[] = {"{\"dims\":3}", "{\"units\":[]}", "{\"attrs\":null}",
                                      "{\"coords\":\"x\"}"};
    for (size_t i = 0; i < 8; i++) {
        const char *text = i < 2 ? texts[i] : i < 4 ? odd[i - 2] : bad[i - 4];
        struct err e = ERR_INIT;
        struct json v;
        struct label_axes a = {.n = 3, .from = {2, -1, 31}, .whole = {true}};
        _cleanup_arena_ struct arena *arena = arena_new(0);
        _cleanup_labels_ struct labels *l = NULL, *m = NULL, *made = NULL;
        assert_int_equal(json_parse(arena, text, strlen(text), NULL, &v, &e), ERR_OK);
        assert_int_equal(labels_restore(v, &l, &e), i < 4 ? ERR_OK : ERR_STATE);
        if (i < 2)
            assert_string_equal(text_of(l), text);
        if (i >= 4)
            continue;
        assert_int_equal(labels_follow(l, &a, &m, &e), ERR_OK);
        struct labels_patch p = say(arena, "{\"dims\":null,\"coords\":null}");
        const struct view one = shaped(1, (const int64_t[]){2});
        assert_int_equal(labels_make(l, &p, &one, &made, &e), ERR_OK);
    }
}

/* Of all handles together, in whatever way they come and go. */
static void labels_are_counted(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1"), *s2 = handle_space_new(t, "s-2");
    struct array *a = new_array();
    struct err e = ERR_INIT;
    struct handle h = {0};
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *labels = NULL;
    struct labels_patch some = say(arena, "{\"units\":\"12345678\"}"), none = say(arena, "{}"),
                        gone = say(arena, "{\"units\":null}");
    assert_int_equal(labels_make(NULL, &some, &a->view, &labels, &e), ERR_OK);
    const int64_t n = (int64_t)labels_size(labels);
    assert_int_equal(n, strlen("\"units\":\"12345678\","));
    handles_limit_labels(t, 2 * n);
    struct handle_spec spec = {.name = "u", .policy = NAME_REPLACE, .labels = labels};
    for (int i = 0; i < 3; i++) { /* each in place of the one before */
        assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_OK);
        assert_ptr_equal(h.labels, labels);
        handle_clear(&h);
    }
    spec.name = NULL;
    assert_int_equal(handle_add(s2, a, &spec, &h, NULL, &e), ERR_OK);
    handle_clear(&h);
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_QUOTA);
    spec = (struct handle_spec){.name = "v"};
    struct handle plain = {0};
    assert_int_equal(handle_add(s, a, &spec, &plain, NULL, &e), ERR_OK);
    handle_clear(&plain);
    spec = (struct handle_spec){.labels = labels};
    struct handle_change change = {.read_only = -1, .labels = &some};
    assert_int_equal(handle_update(s, plain.id, &change, NULL, &h, &e), ERR_QUOTA);
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    change.labels = &none;
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_OK);
    assert_int_equal(labels_size(h.labels), n);
    handle_clear(&h);
    change.labels = &gone;
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_OK);
    assert_null(h.labels);
    handle_clear(&h);
    change.labels = &some;
    assert_int_equal(handle_update(s, plain.id, &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    assert_int_equal(handle_remove(s, plain.id, NULL, &e), ERR_OK);
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    handle_space_close(s2);
    handle_space_free(s2);
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_OK);
    handle_clear(&h);
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_QUOTA);
    array_unref(a);
    handle_space_close(s);
    handle_space_free(s);
    handles_free(t);
    assert_int_equal(atomic_load(&labels->refs), 1);
}

static void every_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct array *a = new_array(), *b = new_array();
    int failures = 0;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    _cleanup_labels_ struct labels *labels = NULL;
    struct labels_patch patch =
        say(arena, "{\"units\":\"K\",\"attrs\":{\"a\":[1]},\"dims\":[\"x\"],"
                   "\"coords\":{\"x\":\"3\"}}");
    struct err e = ERR_INIT;
    assert_int_equal(labels_make(NULL, &patch, &a->view, &labels, &e), ERR_OK);
    const struct handle_spec spec = {.name = "u", .policy = NAME_REPLACE, .labels = labels};
    for (int i = 0; i < 9; i++) { /* so that the tables need not grow */
        struct handle h = {0};
        const struct handle_spec plain = {.name = i ? NULL : "w"};
        assert_int_equal(handle_add(s, a, &plain, &h, NULL, &e), ERR_OK);
        handle_clear(&h);
    }
    for (int round = 0; round < 3; round++)
        for (int64_t nth = 1;; nth++) {
            const int64_t live = mem_live();
            struct handle h = {0};
            struct arena *own = arena_new(0); /* a change is made in its request's */
            struct labels_patch again = patch;
            again.arena = own;
            const struct handle_change change = {.name = "v", .read_only = -1, .labels = &again};
            mem_fail_after(nth, false);
            enum err_code code = round == 0   ? handle_add(s, a, &spec, &h, NULL, &e)
                                 : round == 1 ? handle_update(s, "u", &change, NULL, &h, &e)
                                              : handle_set_array(s, "v", a, b, NULL, &h, &e);
            mem_fail_after(0, false);
            arena_free(own);
            handle_clear(&h);
            if (code == ERR_OK)
                break;
            failures++;
            assert_int_equal(code, ERR_OUT_OF_MEMORY);
            assert_int_equal(mem_live(), live);
            assert_int_equal(atomic_load(&labels->refs), 1 + (round == 1));
        }
    assert_true(failures >= 6);
    array_unref(a);
    array_unref(b);
    handle_space_close(s);
    handle_space_free(s);
    handles_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies),
        cmocka_unit_test(a_name_stays_where_a_coordinate_lies),
        cmocka_unit_test(sizes),
        cmocka_unit_test(axes_follow_an_index),
        cmocka_unit_test(what_follows),
        cmocka_unit_test(many_coordinates_take_no_longer_than_reading_them),
        cmocka_unit_test(restored),
        cmocka_unit_test(labels_are_counted),
        cmocka_unit_test(every_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
