/* server/state: everything written and restored, with each allocation failing once. The files' own
 * faults are in tests/http/test_state_faults.py. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "protocol/json/json.h"
#include "server/body/function_json.h"
#include "server/config/config.h"
#include "server/http/http.h"
#include "server/server.h"
#include "server/state/state.h"
#include "server/store/auth.h"
#include "server/store/share.h"

static struct server server;
static struct config config;
static char folder[] = "/tmp/arrayd-state-XXXXXX";

/* There is no HTTP here. */

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    char *argv[] = {"arrayd", "--state-dir", folder, "--backend", "cpu", "--threads", "1", NULL};
    struct err e = ERR_INIT;
    enum config_action action;
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    ec.backend = "cpu";
    ec.device.threads = 1;
    log_set_level(LOG_ERROR);
    server.config = &config;
    return config_load(7, argv, &config, &action, &e) || engine_open(&ec, &server.engine, &e);
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    engine_close(server.engine);
    config_free(&config);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void begin(void)
{
    struct err e = ERR_INIT;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    server.shares = shares_new(10);
    assert_non_null(server.shares);
    assert_int_equal(auth_new(server.engine, &limits, NULL, &server.auth, &e), ERR_OK);
}

static void end(void)
{
    auth_free(server.auth);
    shares_free(server.shares);
}

/* Live blocks when the engine has cleaned up: it frees a released stream when the next is made. */
static int64_t settled(void)
{
    struct engine_stream *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(engine_stream_new(server.engine, 0, &s, &e), ERR_OK);
    engine_stream_unref(s);
    return mem_live();
}

static struct principal *local(void)
{
    struct principal *p = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(auth_open(server.auth, "local", &p, &e), ERR_OK);
    return p;
}

static void define(const char *text)
{
    struct err e = ERR_INIT;
    struct json doc;
    struct definition *d;
    bool replaced;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    assert_int_equal(json_parse(arena, text, strlen(text), NULL, &doc, &e), ERR_OK);
    assert_int_equal(function_json_read(&config, doc, NULL, &d, &e), ERR_OK);
    assert_int_equal(functions_define(local()->functions, d, false, &replaced, &e), ERR_OK);
}

/* A session with an array of ones to nine, a view of it under a name, and a function. */
static void make_things(void)
{
    struct err e = ERR_INIT;
    struct session *s;
    struct array *a, *v;
    struct handle h, hv;
    struct session_spec spec = {.name = "s", .ttl_s = 1000};
    struct literal one = {.kind = LIT_INT, .i = 1}, ten = {.kind = LIT_INT, .i = 10};
    struct view backwards = {.rank = 1, .shape = {3}, .strides = {-2}, .offset = 8};
    assert_int_equal(session_new(local()->sessions, &spec, &s, &e), ERR_OK);
    assert_int_equal(engine_arange(s->stream, s->account, DT_I32, &one, &ten, &one, &a, &e),
                     ERR_OK);
    assert_non_null(v = array_view(a, DT_I32, &backwards));
    assert_int_equal(handle_add(s->handles, a, &(struct handle_spec){0}, &h, NULL, &e), ERR_OK);
    struct handle_spec view = {.name = "v", .view_of = h.id};
    assert_int_equal(handle_add(s->handles, v, &view, &hv, NULL, &e), ERR_OK);
    handle_clear(&h);
    handle_clear(&hv);
    array_unref(a);
    array_unref(v);
    session_unref(s);
    define("{\"name\": \"f\", \"params\": [\"x\"], \"expr\": \"x + 1\"}");
}

static void check_things(void)
{
    struct err e = ERR_INIT;
    struct session *s[3];
    struct handle h;
    struct definition *d;
    struct download *down;
    int32_t got[3];
    bool more;
    struct principal *p = local();
    assert_int_equal(session_list(p->sessions, LIST_FROM_TOP, 3, s, &more), 2);
    assert_true(s[0]->is_default);
    assert_string_equal(s[1]->name, "s");
    assert_int_equal(handle_get(s[1]->handles, "v", &h, &e), ERR_OK);
    assert_true(h.view_of[0] && h.restored_us > 0);
    assert_int_equal(array_buffer_refs(h.array), 2);
    assert_int_equal(download_new(s[1]->stream, h.array, NULL, NULL, &down, &e), ERR_OK);
    assert_int_equal(download_pull(down, 0, got, sizeof got), sizeof got);
    assert_true(got[0] == 9 && got[1] == 7 && got[2] == 5);
    download_free(down);
    handle_clear(&h);
    assert_int_equal(functions_get(p->functions, "f", &d, &e), ERR_OK);
    function_unref(d->function);
    session_unref(s[0]);
    session_unref(s[1]);
}

static enum err_code save(struct err *e)
{
    struct state *t = NULL;
    struct state_report report;
    enum err_code r = state_open(&server, &t, e);
    if (r == ERR_OK)
        r = state_save(t, &report, e);
    if (r == ERR_OK)
        assert_true(report.arrays == 2 && report.left_out == 0 && report.bytes > 36);
    state_close(t);
    return r;
}

static enum err_code restore(struct err *e)
{
    struct state *t = NULL;
    enum err_code r = state_open(&server, &t, e);
    if (r == ERR_OK)
        r = state_restore(t, e);
    state_close(t);
    return r;
}

static void pointer(char *ret, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/current", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(ret, (int)size, f));
    fclose(f);
}

static int count_snapshots(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *x; (x = readdir(d));)
        n += strncmp(x->d_name, "snapshot-", 9) == 0;
    closedir(d);
    return n;
}

static void there_and_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    begin();
    assert_int_equal(restore(&e), ERR_OK); /* of nothing */
    make_things();
    assert_int_equal(save(&e), ERR_OK);
    end();
    begin();
    assert_int_equal(restore(&e), ERR_OK);
    check_things();
    end();
}

/* A write that fails leaves the snapshot before, and nothing else. */
static void failing_allocations_of_a_save(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char before[128], after[128];
    begin();
    assert_int_equal(restore(&e), ERR_OK);
    int64_t nth, live = settled();
    pointer(before, sizeof before);
    for (nth = 1;; nth++) {
        mem_fail_after(nth, false);
        enum err_code r = save(&e);
        int64_t failed = mem_failed();
        mem_fail_after(0, false);
        assert_int_equal(settled(), live);
        assert_int_equal(count_snapshots(), 1);
        if (!failed) {
            assert_int_equal(r, ERR_OK);
            break;
        }
        pointer(after, sizeof after);
        if (r != ERR_OK) {
            assert_int_equal(r, ERR_OUT_OF_MEMORY);
            assert_string_equal(after, before);
        }
        memcpy(before, after, sizeof before);
    }
    assert_true(nth > 20);
    end();
}

/* A restore that fails is an error, and what it has made goes with the tables. One that lacks only
 * an array's own memory passes that over, and the state still has it. */
static void failing_allocations_of_a_restore(void **state)
{
    (void)state;
    int64_t nth, passed = 0, live = settled();
    for (nth = 1;; nth++) {
        struct err e = ERR_INIT;
        begin();
        mem_fail_after(nth, false);
        enum err_code r = restore(&e);
        int64_t failed = mem_failed();
        mem_fail_after(0, false);
        assert_int_equal(r, e.code);
        if (r != ERR_OK)
            assert_int_equal(r, ERR_OUT_OF_MEMORY);
        else if (failed && handles_count(local()->handles) == 0)
            passed++;
        else
            check_things();
        end();
        assert_int_equal(settled(), live);
        if (!failed)
            break;
    }
    assert_true(nth > 40 && passed > 0 && passed < 5);
}

/* The same with --state-ignore: but for a snapshot that is fine, it starts anew and puts it aside.
 */
static void put_aside(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    config.state_ignore = true;
    begin();
    assert_int_equal(restore(&e), ERR_OK);
    check_things();
    end();
    char path[64];
    snprintf(path, sizeof path, "%s/current", folder);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs("more\n", f) > 0 && fclose(f) == 0);
    begin();
    assert_int_equal(restore(&e), ERR_OK);
    assert_int_equal(handles_count(local()->handles), 0);
    assert_int_equal(count_snapshots(), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(failing_allocations_of_a_save),
        cmocka_unit_test(failing_allocations_of_a_restore),
        cmocka_unit_test(put_aside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
