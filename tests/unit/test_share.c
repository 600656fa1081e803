/* Shares between two principals: what the other finds, and when he finds it no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/store/auth.h"
#include "server/store/share.h"

static struct engine *engine;
static struct principal ann = {.name = "ann"}, bob = {.name = "bob"};
static struct handle_space *her_space, *his_space;

static int set_up(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    if (engine_open(&config, &engine, &e) != ERR_OK)
        return -1;
    ann.handles = handles_new(10);
    bob.handles = handles_new(10);
    her_space = handle_space_new(ann.handles, "s-ann");
    his_space = handle_space_new(bob.handles, "s-bob");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    handle_space_close(her_space);
    handle_space_close(his_space);
    handle_space_free(her_space);
    handle_space_free(his_space);
    handles_free(ann.handles);
    handles_free(bob.handles);
    return engine_close(engine) ? 0 : -1;
}

/* ann's array; its id */
static void make(char id[ID_SIZE])
{
    struct err e = ERR_INIT;
    struct engine_stream *s;
    struct account *account = account_new(0);
    struct array *a;
    struct handle h;
    assert_int_equal(engine_stream_new(engine, 0, &s, &e), ERR_OK);
    assert_int_equal(engine_zeros(s, account, DT_U8, 1, &(int64_t){4}, &a, &e), ERR_OK);
    struct handle_spec spec = {.name = "u", .policy = NAME_REPLACE};
    assert_int_equal(handle_add(her_space, a, &spec, &h, NULL, &e), ERR_OK);
    memcpy(id, h.id, ID_SIZE);
    handle_clear(&h);
    array_unref(a);
    account_unref(account);
    engine_stream_unref(s);
}

/* What bob gets for it: -1 nothing, 0 to read, 1 to write. */
static int his(struct shares *t, const char *ref)
{
    struct handle h;
    struct err e = ERR_INIT;
    if (share_get(&(struct array_scope){t, &bob, his_space}, ref, &h, &e) != ERR_OK) {
        assert_int_equal(e.code, ERR_NOT_FOUND);
        return -1;
    }
    assert_int_equal(e.code, ERR_OK);
    assert_true(h.shared);
    handle_clear(&h);
    return !h.read_only;
}

static void list(void *user, const char *who, bool write)
{
    char *text = user;
    sprintf(text + strlen(text), "%s:%s ", who, write ? "write" : "read");
}

static void given_and_taken_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct shares *t = shares_new(5);
    char id[ID_SIZE], text[64] = "";
    bool again;
    make(id);
    assert_int_equal(his(t, id), -1);
    assert_int_equal(his(NULL, id), -1);
    assert_int_equal(share_give(t, &ann, id, &bob, false, &again, &e), ERR_OK);
    assert_false(again);
    assert_int_equal(his(t, id), 0);
    assert_int_equal(his(t, "u"), -1); /* a name is the session's */
    assert_int_equal(share_give(t, &ann, id, &bob, true, &again, &e), ERR_OK);
    assert_true(again);
    assert_int_equal(his(t, id), 1);
    share_each(t, id, list, text);
    assert_string_equal(text, "bob:write ");
    struct handle h;
    assert_int_equal(share_get(&(struct array_scope){t, &ann, her_space}, id, &h, &e), ERR_OK);
    assert_false(h.shared);
    handle_clear(&h);
    /* a read-only array stays one */
    struct handle_change change = {.read_only = 1};
    assert_int_equal(handle_update(her_space, id, &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    assert_int_equal(his(t, id), 0);
    change.read_only = 0;
    assert_int_equal(handle_update(her_space, id, &change, NULL, &h, &e), ERR_OK);
    handle_clear(&h);
    /* what changes the handle does not find it */
    assert_int_equal(handle_remove(his_space, id, NULL, &e), ERR_NOT_FOUND);
    assert_int_equal(share_take_back(t, id, "eve", &e), ERR_NOT_FOUND);
    assert_int_equal(share_take_back(t, id, "bob", &e), ERR_OK);
    assert_int_equal(his(t, id), -1);
    assert_int_equal(share_take_back(t, id, "bob", &e), ERR_NOT_FOUND);
    shares_free(t);
}

static void void_when_the_array_goes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct shares *t = shares_new(2);
    char id[3][ID_SIZE];
    bool again;
    for (int i = 0; i < 2; i++) {
        make(id[i]); /* the one before is replaced */
        assert_int_equal(share_give(t, &ann, id[i], &bob, true, &again, &e), ERR_OK);
    }
    assert_int_equal(his(t, id[0]), -1);
    assert_int_equal(his(t, id[1]), 1);
    assert_int_equal(share_give(t, &ann, id[1], &ann, true, &again, &e), ERR_OK); /* swept */
    assert_int_equal(share_give(t, &ann, "a-x", &bob, true, &again, &e), ERR_QUOTA);
    assert_int_equal(share_give(t, &bob, "a-x", &ann, true, &again, &e), ERR_OK); /* his own */
    atomic_store(&bob.gone, true);
    assert_int_equal(his(t, id[1]), -1); /* he is another now */
    assert_int_equal(share_give(t, &ann, "a-x", &bob, true, &again, &e), ERR_OK);
    shares_free(t);
}

static void every_allocation_fails(void **state)
{
    (void)state;
    char id[ID_SIZE];
    make(id);
    int64_t before = mem_live();
    for (int64_t nth = 1;; nth++) {
        struct err e = ERR_INIT;
        bool again;
        mem_fail_after(nth, false);
        struct shares *t = shares_new(5);
        enum err_code r = t ? share_give(t, &ann, id, &bob, true, &again, &e) : ERR_OUT_OF_MEMORY;
        bool failed = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_int_equal(r, failed ? ERR_OUT_OF_MEMORY : ERR_OK);
        shares_free(t);
        assert_int_equal(mem_live(), before);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_and_taken_back),
        cmocka_unit_test(void_when_the_array_goes),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
