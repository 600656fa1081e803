/* Coordinates that go with the last array that has them: server/labels/label_uses and its use by
 * server/store/handles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/labels/labels_read.h"
#include "server/store/handles.h"

static struct engine *engine;
static struct engine_stream *stream;
static struct account *account;
static struct array *array;

static int set_up(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    const int64_t n = 3;
    return engine_open(&config, &engine, &e) != ERR_OK ||
           engine_stream_new(engine, 0, &stream, &e) != ERR_OK || !(account = account_new(0)) ||
           engine_zeros(stream, account, DT_F32, 1, &n, &array, &e) != ERR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    array_unref(array);
    engine_stream_unref(stream);
    account_unref(account);
    engine_close(engine);
    return 0;
}

/* Labels with these coordinates, and a text that looks like one; NULL ends the list. */
static struct labels *having(const char *const *ids)
{
    char text[1000], *p = text;
    struct labels *l;
    struct err e = ERR_INIT;
    p += sprintf(
        p, "{\"\\\"array\\\":\\\"a-0123456789012345678901\":{\"array\":\"short\",\"dims\":[]}");
    for (int i = 0; ids[i]; i++)
        p += sprintf(p, ",\"c%d\":{\"array\":\"%s\",\"dims\":[\"x\"]}", i, ids[i]);
    p += sprintf(p, "}");
    const struct label_text of[LABEL_COUNT] = {[LABEL_COORDS] = {text, (size_t)(p - text)}};
    assert_int_equal(labels_new(of, &l, &e), ERR_OK);
    return l;
}

/* An array with these as coordinates (NULL: none), or one that is a coordinate itself. */
static struct handle add(struct handle_space *s, const char *name, bool coordinate,
                         const char *const *ids)
{
    struct handle h;
    struct err e = ERR_INIT;
    _cleanup_labels_ struct labels *l = ids ? having(ids) : NULL;
    const struct handle_spec spec = {
        .name = name, .policy = NAME_REPLACE, .coordinate = coordinate, .labels = l};
    assert_int_equal(handle_add(s, array, &spec, &h, NULL, &e), ERR_OK);
    assert_int_equal(h.coordinate, coordinate && !name);
    handle_clear(&h);
    return h;
}

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

static void removed(struct handle_space *s, const char *ref)
{
    struct err e = ERR_INIT;
    assert_int_equal(handle_remove(s, ref, NULL, &e), ERR_OK);
}

static void end(struct handles *t, struct handle_space *s)
{
    handle_space_close(s);
    handle_space_free(s);
    assert_int_equal(handles_count(t), 0);
    handles_free(t);
}

static void they_go_with_the_last_one(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    const struct handle x = add(s, NULL, true, NULL), y = add(s, NULL, true, WITH(x.id));
    const struct handle plain = add(s, NULL, false, NULL);
    add(s, "u", false, WITH(x.id, y.id, plain.id));
    add(s, "v", false, WITH(y.id, y.id));
    removed(s, "u");
    assert_true(handle_exists(t, x.id) && handle_exists(t, y.id));
    add(s, "v", false, NULL); /* in its place */
    assert_false(handle_exists(t, y.id) || handle_exists(t, x.id));
    assert_true(handle_exists(t, plain.id));
    assert_int_equal(handles_count(t), 2);
    const struct handle z = add(s, NULL, true, NULL);
    const struct handle w = add(s, NULL, false, WITH(z.id));
    removed(s, z.id); /* before the one that has it */
    removed(s, w.id);
    end(t, s);
}

static void a_name_or_a_mark_keeps_them(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    const struct handle x = add(s, NULL, true, NULL), y = add(s, NULL, true, NULL);
    struct handle h;
    struct err e = ERR_INIT;
    add(s, "u", false, WITH(x.id, y.id));
    struct handle_change change = {.name = "lat", .read_only = -1};
    assert_int_equal(handle_update(s, x.id, &change, NULL, &h, &e), ERR_OK);
    assert_false(h.coordinate);
    handle_clear(&h);
    change = (struct handle_change){.read_only = 1};
    assert_int_equal(handle_update(s, y.id, &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    removed(s, "u");
    assert_true(handle_exists(t, x.id) && handle_exists(t, y.id));
    change.read_only = 0; /* it has stayed, and stays */
    assert_int_equal(handle_update(s, y.id, &change, NULL, &h, &e), ERR_OK);
    assert_false(h.coordinate);
    handle_clear(&h);
    handles_drop_coordinates(t);
    assert_true(handle_exists(t, y.id));
    end(t, s);
}

/* Of arrays that are not there, too. */
static void others_have_them(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    const struct handle x = add(s, NULL, true, NULL);
    struct err e = ERR_INIT;
    _cleanup_labels_ struct labels *l = having(WITH(x.id));
    assert_int_equal(handles_keep_coordinates(t, l, &e), ERR_OK);
    add(s, "u", false, WITH(x.id));
    removed(s, "u");
    handles_drop_coordinates(t);
    assert_true(handle_exists(t, x.id));
    end(t, s);
}

static void one_is_made_of_another(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    const struct handle x = add(s, NULL, false, NULL), y = add(s, NULL, true, NULL);
    struct handle h;
    struct err e = ERR_INIT;
    const bool yes = true, no = false;
    struct handle_change change = {.read_only = -1, .coordinate = &yes};
    assert_int_equal(handle_check_coordinate(s, x.id, NULL, &e), ERR_CONFLICT);
    assert_int_equal(handle_update(s, x.id, &change, NULL, &h, &e), ERR_CONFLICT);
    assert_string_equal(e.pointer, "/coordinate");
    add(s, "u", false, WITH(x.id, y.id));
    assert_int_equal(handle_check_coordinate(s, "u", NULL, &e), ERR_CONFLICT);
    assert_int_equal(handle_check_coordinate(s, x.id, "lat", &e), ERR_CONFLICT);
    assert_int_equal(handle_check_coordinate(s, x.id, NULL, &e), ERR_OK);
    assert_int_equal(handle_update(s, x.id, &change, NULL, &h, &e), ERR_OK);
    assert_true(h.coordinate);
    handle_clear(&h);
    change.coordinate = &no;
    assert_int_equal(handle_update(s, y.id, &change, NULL, &h, &e), ERR_OK);
    assert_false(h.coordinate);
    handle_clear(&h);
    removed(s, "u");
    assert_false(handle_exists(t, x.id));
    assert_true(handle_exists(t, y.id));
    end(t, s);
}

static void labels_change(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    const struct handle x = add(s, NULL, true, NULL), y = add(s, NULL, true, NULL);
    struct handle h;
    struct err e = ERR_INIT;
    add(s, "u", false, WITH(x.id, y.id));
    add(s, "taken", false, NULL);
    static const char text[] = "{\"coords\":{\"c1\":null}}";
    struct json body, of[LABEL_COUNT];
    struct labels_patch patch;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    assert_int_equal(json_parse(arena, text, strlen(text), NULL, &body, &e), ERR_OK);
    labels_members(body, of);
    assert_int_equal(labels_read(arena, of, NULL, 1000, &patch, &e), ERR_OK);
    struct handle_change change = {.name = "taken", .read_only = -1, .labels = &patch};
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_CONFLICT);
    assert_true(handle_exists(t, y.id));
    change.name = NULL;
    assert_int_equal(handle_update(s, "u", &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    assert_true(handle_exists(t, x.id));
    assert_false(handle_exists(t, y.id));
    end(t, s);
}

/* Another session's, which has one of this, and the other way round. */
static void sessions_end(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1"), *o = handle_space_new(t, "s-2");
    const struct handle x = add(s, NULL, true, NULL), y = add(o, NULL, true, NULL);
    add(s, "u", false, WITH(y.id, x.id));
    add(o, "u", false, WITH(x.id));
    handle_space_close(s);
    handle_space_free(s);
    assert_false(handle_exists(t, x.id) || handle_exists(t, y.id));
    assert_int_equal(handles_count(t), 1);
    end(t, o);
}

/* As another process finds them: the array before its coordinate. */
static void they_are_restored(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct err e = ERR_INIT;
    struct handle_image x = {.array = array, .coordinate = true, .seq = 2};
    struct handle_image u = {.array = array, .name = "u", .seq = 1};
    id_make('a', x.id);
    id_make('a', u.id);
    u.labels = having(WITH(x.id));
    assert_int_equal(handle_restore(s, &u, &e), ERR_OK);
    assert_int_equal(handle_restore(s, &x, &e), ERR_OK);
    labels_unref(u.labels);
    struct handle_image y = {
        .array = array, .coordinate = true, .seq = 3}; /* whose array is lost */
    id_make('a', y.id);
    assert_int_equal(handle_restore(s, &y, &e), ERR_OK);
    handles_drop_coordinates(t);
    assert_true(handle_exists(t, x.id));
    assert_int_equal(handles_count(t), 2);
    removed(s, "u");
    assert_int_equal(handles_count(t), 0);
    end(t, s);
}

static void every_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct err e = ERR_INIT;
    char ids[2][ID_SIZE];
    id_make('a', ids[0]);
    id_make('a', ids[1]);
    _cleanup_labels_ struct labels *l = having(WITH(ids[0], ids[1]));
    const struct handle_new list[] = {{array, {.name = "u", .labels = l}},
                                      {array, {.id = ids[0], .coordinate = true}},
                                      {array, {.id = ids[1], .coordinate = true}}};
    int failures = 0;
    for (int64_t nth = 1;; nth++) {
        const int64_t live = mem_live();
        mem_fail_after(nth, false);
        const enum err_code code = handle_add_all(s, list, 3, NULL, NULL, &e);
        mem_fail_after(0, false);
        if (code == ERR_OK)
            break;
        failures++;
        assert_int_equal(code, ERR_OUT_OF_MEMORY);
        assert_int_equal(handles_count(t), 0);
        assert_true(nth < 4 || mem_live() <= live + 1024); /* the order of a session stays */
    }
    assert_true(failures > 6);
    removed(s, "u");
    assert_int_equal(handles_count(t), 0);
    end(t, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_go_with_the_last_one),
        cmocka_unit_test(a_name_or_a_mark_keeps_them),
        cmocka_unit_test(others_have_them),
        cmocka_unit_test(one_is_made_of_another),
        cmocka_unit_test(labels_change),
        cmocka_unit_test(sessions_end),
        cmocka_unit_test(they_are_restored),
        cmocka_unit_test(every_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
