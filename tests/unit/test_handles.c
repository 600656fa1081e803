/* server/handles: ids, names, replacing, protection, pages, and every allocation failure. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
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

static struct array *new_array(int64_t n)
{
    struct array *a = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(engine_zeros(stream, account, DT_F32, 1, &n, &a, &e), ERR_OK);
    return a;
}

/* Adds an array of n elements; the handle without its reference. */
static struct handle add(struct handle_space *s, int64_t n, const char *name,
                         enum name_policy policy, const char *view_of)
{
    struct handle h = {0};
    struct err e = ERR_INIT;
    struct array *a = new_array(n);
    struct handle_spec spec = {.name = name, .policy = policy, .view_of = view_of};
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_OK);
    array_unref(a);
    handle_clear(&h);
    return h;
}

static enum err_code lookup(struct handle_space *s, const char *ref, struct handle *ret)
{
    struct handle h = {0};
    enum err_code r = handle_get(s, ref, &h, NULL);
    if (r == ERR_OK) {
        handle_clear(&h);
        if (ret)
            *ret = h;
    }
    return r;
}

static void finish(struct handles *t, struct handle_space *s)
{
    handle_space_close(s);
    assert_int_equal(handle_space_count(s), 0);
    handle_space_free(s);
    if (t) {
        assert_int_equal(handles_count(t), 0);
        handles_free(t);
        assert_int_equal(engine_bytes_in_use(engine), 0);
    }
}

static void ids_are_random_and_recognised(void **state)
{
    (void)state;
    char a[ID_SIZE], b[ID_SIZE];
    id_make('a', a);
    id_make('a', b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), ID_SIZE - 1);
    assert_true(id_is('a', a));
    assert_false(id_is('s', a));
    assert_false(id_is('a', ""));
    assert_false(id_is('a', "a-"));
    assert_false(id_is('a', "a-000000000000000000000"));
    assert_false(id_is('a', "a-00000000000000000000000"));
    assert_false(id_is('a', "a-000000000000000000000_"));
}

/* A million ids as they are made, and as many that differ from a real one in a character. */
static void guesses_find_nothing(void **state)
{
    (void)state;
    static const char digit[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    enum { ARRAYS = 1000, GUESSES = 1000000 };
    struct handles *t = handles_new(ARRAYS);
    struct handle_space *s = handle_space_new(t, "s-one");
    char real[100][ID_SIZE], id[ID_SIZE];
    int hits = 0;
    for (int i = 0; i < ARRAYS; i++) {
        struct handle h = add(s, 1, NULL, NAME_NEW, NULL);
        memcpy(real[i % 100], h.id, ID_SIZE);
    }
    for (int i = 0; i < GUESSES; i++) {
        id_make('a', id);
        hits += lookup(s, id, NULL) == ERR_OK;
        memcpy(id, real[i % 100], ID_SIZE);
        char *at = &id[2 + i / 100 % (ID_SIZE - 3)], was = *at;
        *at = digit[i / 2300 % 62];
        hits += *at != was && lookup(s, id, NULL) == ERR_OK;
    }
    assert_int_equal(hits, 0);
    assert_int_equal(lookup(s, real[0], NULL), ERR_OK);
    finish(t, s);
}

static void names_are_checked(void **state)
{
    (void)state;
    char longest[NAME_SIZE], longer[NAME_SIZE + 1];
    memset(longest, 'x', sizeof longest);
    longest[NAME_SIZE - 1] = '\0';
    memset(longer, 'x', sizeof longer);
    longer[NAME_SIZE] = '\0';
    static const char *const good[] = {"u", "_", "A9", "__x", "u_1"};
    static const char *const bad[] = {"", "9u", "a-b", "a b", "u.", "\xc3\xa4", "u\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(name_check(good[i], NULL), ERR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(name_check(bad[i], NULL), ERR_BAD_NAME);
    assert_int_equal(name_check(longest, NULL), ERR_OK);
    assert_int_equal(name_check(longer, NULL), ERR_BAD_NAME);
}

static void ids_cross_sessions_and_names_do_not(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s1 = handle_space_new(t, "s-1"), *s2 = handle_space_new(t, "s-2");
    struct handle u = add(s1, 4, "u", NAME_NEW, NULL), got;
    assert_string_equal(u.name, "u");
    assert_string_equal(u.session, "s-1");
    assert_int_equal(lookup(s1, "u", &got), ERR_OK);
    assert_string_equal(got.id, u.id);
    assert_int_equal(lookup(s2, u.id, &got), ERR_OK);
    assert_string_equal(got.session, "s-1");
    assert_int_equal(lookup(s2, "u", NULL), ERR_NOT_FOUND);
    add(s2, 8, "u", NAME_NEW, NULL);
    assert_int_equal(lookup(s2, "u", &got), ERR_OK);
    assert_string_not_equal(got.id, u.id);
    assert_int_equal(lookup(s1, "", NULL), ERR_NOT_FOUND);
    assert_int_equal(lookup(s1, "a-0000000000000000000000", NULL), ERR_NOT_FOUND);

    /* another principal: the id does not exist */
    struct handles *other = handles_new(100);
    struct handle_space *s3 = handle_space_new(other, "s-3");
    struct err mine = ERR_INIT, missing = ERR_INIT;
    struct handle h;
    assert_int_equal(handle_get(s3, u.id, &h, &mine), ERR_NOT_FOUND);
    assert_int_equal(handle_get(s1, "a-0000000000000000000000", &h, &missing), ERR_NOT_FOUND);
    assert_int_equal(strlen(mine.message), strlen(missing.message));
    finish(NULL, s3);
    handles_free(other);
    finish(NULL, s2);
    finish(t, s1);
}

static void taken_names_conflict_or_are_replaced(void **state)
{
    (void)state;
    struct handles *t = handles_new(2);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct handle u = add(s, 4, "u", NAME_NEW, NULL), h = {0};
    struct err e = ERR_INIT;
    struct array *a = new_array(7);
    bool replaced = false;
    struct handle_spec spec = {.name = "u", .policy = NAME_NEW};
    assert_int_equal(handle_check_name(s, "u", NAME_NEW, &e), ERR_CONFLICT);
    assert_int_equal(handle_check_name(s, "v", NAME_NEW, &e), ERR_OK);
    assert_int_equal(handle_check_name(s, "v-", NAME_NEW, &e), ERR_BAD_NAME);
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_CONFLICT);
    spec.policy = NAME_REPLACE;

    assert_int_equal(handle_update(s, "u", &(struct handle_change){.read_only = 1}, NULL, &h, &e),
                     ERR_OK);
    assert_true(h.read_only);
    handle_clear(&h);
    assert_int_equal(handle_check_name(s, "u", NAME_REPLACE, &e), ERR_READ_ONLY);
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_READ_ONLY);
    assert_int_equal(handle_remove(s, "u", NULL, &e), ERR_READ_ONLY);
    assert_int_equal(handle_update(s, u.id, &(struct handle_change){.read_only = 0}, NULL, &h, &e),
                     ERR_OK);
    handle_clear(&h);

    /* the table may be full: one goes, one comes */
    add(s, 1, NULL, NAME_NEW, NULL);
    assert_int_equal(handle_add(s, a, &(struct handle_spec){0}, &h, NULL, &e), ERR_QUOTA);
    assert_int_equal(handle_add(s, a, &spec, &h, &replaced, &e), ERR_OK);
    assert_true(replaced);
    assert_string_equal(h.name, "u");
    assert_string_not_equal(h.id, u.id);
    assert_ptr_equal(h.array, a);
    handle_clear(&h);
    assert_int_equal(lookup(s, u.id, NULL), ERR_NOT_FOUND);
    assert_int_equal(handle_space_count(s), 2);
    array_unref(a);
    finish(t, s);
}

static void renaming(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s1 = handle_space_new(t, "s-1"), *s2 = handle_space_new(t, "s-2");
    struct handle u = add(s1, 4, "u", NAME_NEW, NULL), h;
    add(s1, 4, "v", NAME_NEW, NULL);
    struct err e = ERR_INIT;
    assert_int_equal(
        handle_update(s1, "u", &(struct handle_change){.name = "v", .read_only = -1}, NULL, &h, &e),
        ERR_CONFLICT);
    assert_int_equal(handle_update(s1, "u", &(struct handle_change){.name = "v w", .read_only = -1},
                                   NULL, &h, &e),
                     ERR_BAD_NAME);
    assert_int_equal(
        handle_update(s1, "u", &(struct handle_change){.name = "v", .read_only = 1}, NULL, &h, &e),
        ERR_CONFLICT);
    assert_int_equal(lookup(s1, "u", &h), ERR_OK);
    assert_false(h.read_only);
    assert_int_equal(
        handle_update(s1, "u", &(struct handle_change){.name = "u", .read_only = -1}, NULL, &h, &e),
        ERR_OK);
    handle_clear(&h);
    /* from another session, by id: the name is one of the owner's */
    assert_int_equal(handle_update(s2, u.id, &(struct handle_change){.name = "w", .read_only = -1},
                                   NULL, &h, &e),
                     ERR_OK);
    handle_clear(&h);
    assert_int_equal(lookup(s1, "u", NULL), ERR_NOT_FOUND);
    assert_int_equal(lookup(s2, "w", NULL), ERR_NOT_FOUND);
    assert_int_equal(lookup(s1, "w", &h), ERR_OK);
    assert_string_equal(h.id, u.id);
    assert_int_equal(
        handle_update(s1, "w", &(struct handle_change){.name = "", .read_only = -1}, NULL, &h, &e),
        ERR_OK);
    handle_clear(&h);
    assert_int_equal(lookup(s1, "w", NULL), ERR_NOT_FOUND);
    assert_int_equal(lookup(s1, u.id, &h), ERR_OK);
    assert_string_equal(h.name, "");
    finish(NULL, s2);
    finish(t, s1);
}

static enum err_code refuse(void *user, const struct array *now, struct err *e)
{
    assert_ptr_equal(now, user);
    return err_set(e, ERR_LOCKED, "not now");
}

static void views_know_their_origin_and_are_protected_with_it(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct handle u = add(s, 4, "u", NAME_NEW, NULL), h = {0};
    struct handle v = add(s, 4, "v", NAME_NEW, u.id);
    struct handle w = add(s, 4, "w", NAME_NEW, v.id);
    struct err e = ERR_INIT;
    assert_string_equal(u.view_of, "");
    assert_string_equal(v.view_of, u.id);
    assert_string_equal(w.view_of, v.id);
    assert_int_equal(handle_update(s, "u", &(struct handle_change){.read_only = 1}, NULL, &h, &e),
                     ERR_OK);
    handle_clear(&h);
    assert_int_equal(lookup(s, "v", &h), ERR_OK);
    assert_true(h.read_only);
    assert_int_equal(lookup(s, "w", &h), ERR_OK);
    assert_true(h.read_only);
    struct array *a = new_array(1);
    struct handle before = {0};
    assert_int_equal(handle_get(s, "w", &before, &e), ERR_OK);
    assert_int_equal(handle_set_array(s, w.id, before.array, a, NULL, &h, &e), ERR_READ_ONLY);
    /* a view of a read-only array can go, and what was made from it stays protected */
    assert_int_equal(handle_remove(s, "v", NULL, &e), ERR_OK);
    assert_int_equal(lookup(s, "w", &h), ERR_OK);
    assert_true(h.read_only);
    assert_string_equal(h.view_of, "");
    assert_int_equal(handle_update(s, "u", &(struct handle_change){.read_only = 0}, NULL, &h, &e),
                     ERR_OK);
    handle_clear(&h);
    assert_int_equal(lookup(s, "w", &h), ERR_OK);
    assert_false(h.read_only);

    assert_int_equal(handle_set_array(s, w.id, a, a, NULL, &h, &e), ERR_CONFLICT);
    const struct handle_guard no = {refuse, before.array};
    assert_int_equal(handle_set_array(s, w.id, before.array, a, &no, &h, &e), ERR_LOCKED);
    assert_int_equal(handle_get(s, "w", &h, &e), ERR_OK);
    assert_ptr_equal(h.array, before.array);
    handle_clear(&h);
    assert_int_equal(handle_set_array(s, w.id, before.array, a, NULL, &h, &e), ERR_OK);
    assert_ptr_equal(h.array, a);
    handle_clear(&h);
    handle_clear(&before);
    array_unref(a);
    finish(t, s);
}

static void pages_are_in_order_and_outlive_their_cursor(void **state)
{
    (void)state;
    enum { N = 500 };
    struct handles *t = handles_new(N);
    struct handle_space *s = handle_space_new(t, "s-1");
    static char ids[N][ID_SIZE];
    struct handle page[7];
    struct err e = ERR_INIT;
    for (int i = 0; i < N; i++)
        memcpy(ids[i], add(s, 0, NULL, NAME_NEW, NULL).id, ID_SIZE);
    /* two of three go, enough for the order to be compacted */
    for (int i = 0; i < N; i++)
        if (i % 3)
            assert_int_equal(handle_remove(s, ids[i], NULL, &e), ERR_OK);
    assert_int_equal(handle_space_count(s), (N + 2) / 3);
    uint64_t after = LIST_FROM_TOP;
    int at = 0;
    bool more = true;
    while (more) {
        size_t n = handle_list(s, after, 7, page, &more);
        assert_true(n > 0);
        for (size_t i = 0; i < n; i++, at += 3) {
            assert_string_equal(page[i].id, ids[at]);
            handle_clear(&page[i]);
        }
        after = page[n - 1].seq;
        assert_int_equal(handle_remove(s, page[n - 1].id, NULL, &e), ERR_OK); /* the cursor's own */
    }
    assert_true(at >= N);
    assert_int_equal(handle_list(s, after, 7, page, &more), 0);
    assert_false(more);
    finish(t, s);
}

static void count_array(void *user, const struct handle *h)
{
    uint64_t *last = user; /* in order */
    assert_true(h->seq > *last);
    *last = h->seq;
    array_unref(h->array);
}

static void all_sessions_are_one_list(void **state)
{
    (void)state;
    struct handles *t = handles_new(50);
    struct handle_space *s[2] = {handle_space_new(t, "s-1"), handle_space_new(t, "s-2")};
    uint64_t after = LIST_FROM_TOP;
    size_t n = 0;
    bool more = true;
    for (int i = 0; i < 20; i++)
        (void)add(s[i % 2], 0, NULL, NAME_NEW, NULL);
    while (more)
        n += handle_list_all(t, after, 7, count_array, &after, &more);
    assert_int_equal(n, 20);
    assert_int_equal(handle_list_all(t, LIST_FROM_TOP, 0, count_array, &after, &more), 0);
    assert_true(more);
    assert_int_equal(handle_list_all(t, after, 0, count_array, &after, &more), 0);
    assert_false(more);
    finish(NULL, s[0]);
    finish(t, s[1]);
}

static void a_sealed_session_keeps_what_it_has(void **state)
{
    (void)state;
    struct handles *t = handles_new(10);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct handle u = add(s, 4, "u", NAME_NEW, NULL), now = {0}, h = {0};
    struct array *a = new_array(8);
    const struct handle_spec spec = {.policy = NAME_NEW};
    struct err e = ERR_INIT;
    assert_int_equal(handle_get(s, "u", &now, &e), ERR_OK);
    handle_space_seal(s, true);
    handle_space_seal(s, true); /* by two operators, */
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_NOT_FOUND);
    assert_int_equal(handle_set_array(s, u.id, now.array, a, NULL, &h, &e), ERR_NOT_FOUND);
    assert_int_equal(lookup(s, "u", NULL), ERR_OK);
    handle_space_seal(s, false); /* of whom one fails */
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_NOT_FOUND);
    handle_space_seal(s, false);
    assert_int_equal(handle_set_array(s, u.id, now.array, a, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    handle_clear(&now);
    array_unref(a);
    finish(t, s);
}

static void a_closed_session_takes_nothing(void **state)
{
    (void)state;
    struct handles *t = handles_new(10);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct handle u = add(s, 4, "u", NAME_NEW, NULL), h;
    struct err e = ERR_INIT;
    handle_space_close(s);
    assert_int_equal(lookup(s, u.id, NULL), ERR_NOT_FOUND);
    struct array *a = new_array(1);
    struct handle_spec spec = {.name = "u"};
    assert_int_equal(handle_add(s, a, &spec, &h, NULL, &e), ERR_NOT_FOUND);
    array_unref(a);
    handle_space_free(s);
    handles_free(t);
}

static void every_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    struct handles *t = handles_new(100);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct array *a = new_array(3);
    struct handle u = {0};
    for (int i = 0; i < 9; i++) /* the order vector is to grow on the way */
        u = add(s, 4, i ? NULL : "u", NAME_NEW, NULL);
    assert_int_equal(lookup(s, "u", &u), ERR_OK);
    uint32_t refs = atomic_load(&a->refs);
    int failures = 0;
    for (int round = 0; round < 3; round++) {
        struct handle_spec spec = {.name = round == 0 ? "w" : "u", .policy = NAME_REPLACE};
        for (int64_t nth = 1;; nth++) {
            int64_t live = mem_live(), count = handles_count(t);
            struct handle h = {0};
            struct err e = ERR_INIT;
            mem_fail_after(nth, round == 2);
            enum err_code r =
                round < 2
                    ? handle_add(s, a, &spec, &h, NULL, &e)
                    : handle_update(s, "u", &(struct handle_change){.name = "x", .read_only = 1},
                                    NULL, &h, &e);
            mem_fail_after(0, false);
            if (r == ERR_OK) {
                handle_clear(&h);
                break;
            }
            failures++;
            assert_int_equal(r, ERR_OUT_OF_MEMORY);
            assert_int_equal(mem_live(), live);
            assert_int_equal(handles_count(t), count);
            assert_int_equal(atomic_load(&a->refs), refs + (round > 0) + (round > 1));
            assert_int_equal(lookup(s, "u", &h), ERR_OK);
            assert_false(h.read_only);
            if (round < 2)
                assert_string_equal(h.id, u.id);
        }
    }
    assert_true(failures >= 3);
    mem_fail_after(1, true);
    assert_null(handles_new(1));
    assert_null(handle_space_new(t, "s-2"));
    mem_fail_after(0, false);
    array_unref(a);
    finish(t, s);
}

static enum err_code refuse_to_lose(void *user, const struct array *now, struct err *e)
{
    (void)user;
    return now ? err_set(e, ERR_LOCKED, "it is leased") : ERR_OK;
}

/* One that replaces, one that is new, one without a name: refused, or without memory at any
 * allocation, nobody has lost or got anything. */
static void several_are_added_or_none(void **state)
{
    (void)state;
    struct handles *t = handles_new(4);
    struct handle_space *s = handle_space_new(t, "s-1");
    struct handle u = add(s, 4, "u", NAME_NEW, NULL), v = add(s, 4, "v", NAME_NEW, NULL), h;
    struct array *a = new_array(3);
    const struct handle_guard guard = {refuse_to_lose, NULL};
    struct handle_new list[] = {{a, {.name = "u", .policy = NAME_REPLACE}},
                                {a, {.name = NULL}},
                                {a, {.name = "w", .policy = NAME_REPLACE}},
                                {a, {.name = "v", .policy = NAME_REPLACE}}};
    struct err e = ERR_INIT;
    const uint32_t refs = atomic_load(&a->refs);
    list[3].spec.guard = &guard;
    assert_int_equal(handle_add_all(s, list, 4, NULL, NULL, &e), ERR_LOCKED);
    list[3].spec.guard = NULL;
    list[3].spec.policy = NAME_NEW;
    assert_int_equal(handle_add_all(s, list, 4, NULL, NULL, &e), ERR_CONFLICT);
    list[3].spec.policy = NAME_REPLACE;
    handles_set_max(t, 3);
    assert_int_equal(handle_add_all(s, list, 4, NULL, NULL, &e), ERR_QUOTA);
    handles_set_max(t, 4);
    for (int64_t nth = 1;; nth++) {
        const int64_t live = mem_live();
        e = (struct err)ERR_INIT;
        mem_fail_after(nth, false);
        const enum err_code r = handle_add_all(s, list, 4, NULL, NULL, &e);
        mem_fail_after(0, false);
        if (r == ERR_OK)
            break;
        assert_int_equal(r, ERR_OUT_OF_MEMORY);
        assert_int_equal(mem_live(), live);
        assert_int_equal(handles_count(t), 2);
        assert_int_equal(atomic_load(&a->refs), refs);
        assert_int_equal(lookup(s, "u", &h), ERR_OK);
        assert_string_equal(h.id, u.id);
        assert_int_equal(lookup(s, "v", &h), ERR_OK);
        assert_string_equal(h.id, v.id);
    }
    assert_int_equal(handles_count(t), 4);
    assert_int_equal(atomic_load(&a->refs), refs + 4);
    assert_int_equal(lookup(s, u.id, NULL), ERR_NOT_FOUND);
    assert_int_equal(lookup(s, "w", &h), ERR_OK);
    array_unref(a);
    finish(t, s);
}

/* Threads that add, look up, rename and remove at once; meant for the thread sanitizer. */
static void *hammer(void *arg)
{
    struct handle_space *s = arg;
    struct array *a = new_array(2);
    for (int i = 0; i < 300; i++) {
        struct handle h = {0}, g = {0};
        struct err e = ERR_INIT;
        char name[16];
        snprintf(name, sizeof name, "n%d", i % 5);
        struct handle_spec spec = {.name = name, .policy = NAME_REPLACE};
        if (handle_add(s, a, &spec, &h, NULL, &e) == ERR_OK) {
            if (handle_get(s, name, &g, &e) == ERR_OK)
                handle_clear(&g);
            if (handle_update(s, h.id, &(struct handle_change){.name = "shared", .read_only = -1},
                              NULL, &g, &e) == ERR_OK)
                handle_clear(&g);
            if (i % 3 && handle_remove(s, h.id, NULL, &e) != ERR_OK)
                assert_int_equal(e.code, ERR_NOT_FOUND);
            handle_clear(&h);
        }
    }
    array_unref(a);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct handles *t = handles_new(50);
    struct handle_space *s = handle_space_new(t, "s-1");
    pthread_t th[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&th[i], NULL, hammer, s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(th[i], NULL);
    assert_true(handles_count(t) <= 50);
    finish(t, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_random_and_recognised),
        cmocka_unit_test(guesses_find_nothing),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(ids_cross_sessions_and_names_do_not),
        cmocka_unit_test(taken_names_conflict_or_are_replaced),
        cmocka_unit_test(renaming),
        cmocka_unit_test(views_know_their_origin_and_are_protected_with_it),
        cmocka_unit_test(pages_are_in_order_and_outlive_their_cursor),
        cmocka_unit_test(all_sessions_are_one_list),
        cmocka_unit_test(a_sealed_session_keeps_what_it_has),
        cmocka_unit_test(a_closed_session_takes_nothing),
        cmocka_unit_test(every_failed_allocation_changes_nothing),
        cmocka_unit_test(several_are_added_or_none),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
