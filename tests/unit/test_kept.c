/* server/kept: what clients have comes back from the journal, whatever of that is damaged: as it
 * was, or not at all. */
#include "tests/unit/kept_world.h"

static int set_up(void **state)
{
    (void)state;
    char *argv[] = {"arrayd", "--backend", "cpu", "--threads", "1", NULL};
    struct err e = ERR_INIT;
    enum config_action action;
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    ec.backend = "cpu";
    ec.device.threads = 1;
    log_set_level(LOG_ERROR);
    return config_load(5, argv, &config, &action, &e) || engine_open(&ec, &engine, &e);
}

static int tear_down(void **state)
{
    (void)state;
    engine_close(engine);
    config_free(&config);
    return 0;
}

/* Recovers from the journal, as often as asked for one after the other, and compares. */
static void compare(struct journal *from, const char *wanted, int times)
{
    struct world w;
    struct err e = ERR_INIT;
    struct recover_report report;
    open_world(&w, 16 << 20);
    assert_int_equal(recover_world(&w, from, false, &report, &e), ERR_OK);
    assert_int_equal(report.passed_over, 0);
    char *got = dump_world(&w, false);
    assert_string_equal(got, wanted);
    mem_free(got);
    if (times > 1)
        compare(w.journal, wanted, times - 1);
    close_world(&w);
}

static void there_and_back(void **state)
{
    (void)state;
    struct world w;
    for (int round = 0; round < 10; round++) {
        seed = (uint64_t)round + 1;
        open_world(&w, 16 << 20);
        for (int pause = 0; pause < 4; pause++) {
            live(&w, 150);
            char *wanted = dump_world(&w, false);
            memcpy(chunks_before, chunks, sizeof chunks);
            compare(w.journal, wanted, 2);
            memcpy(chunks, chunks_before, sizeof chunks);
            mem_free(wanted);
        }
        drop_unused(&w, true);
        close_world(&w);
    }
}

/* The journal's log with some bytes changed, in other memory. */
static int damaged_copy(struct journal *j, int flips)
{
    struct journal_figures f;
    journal_figures(j, &f);
    const size_t n = (size_t)f.bytes + 4096;
    int to = memfd_create("damaged", MFD_CLOEXEC);
    char *bytes = mem_alloc(n);
    assert_non_null(bytes);
    assert_true(pread(journal_fd(j), bytes, n, 0) == (ssize_t)n);
    while (flips-- > 0)
        bytes[100 + chance((uint32_t)f.bytes)] ^= (char)(1 << chance(8));
    assert_true(write(to, bytes, n) == (ssize_t)n);
    mem_free(bytes);
    return to;
}

/* Each line is one of `all`, but for default sessions made anew. */
static void lines_are_among(char *got, char *all)
{
    for (char *line = got, *end; *line; line = end + 1) {
        assert_non_null(end = strchr(line, '\n'));
        *end = '\0';
        if (!strstr(all, line) && !strstr(line, "\"default\":true"))
            fail_msg("%s", line);
    }
}

static void damage_is_passed_over(void **state)
{
    (void)state;
    struct world w, to;
    struct err e = ERR_INIT;
    int64_t arrays = 0, passed_over = 0;
    seed = 99;
    open_world(&w, 16 << 20);
    live(&w, 200);
    char *all = dump_world(&w, true);
    memcpy(chunks_before, chunks, sizeof chunks);
    for (int i = 0; i < 200; i++) {
        struct journal *from;
        struct journal_damage damage;
        struct recover_report report;
        int fd = damaged_copy(w.journal, 1 + i % 3 * 10);
        assert_int_equal(journal_read(fd, &from, &damage, &e), ERR_OK);
        open_world(&to, 16 << 20);
        assert_int_equal(recover_world(&to, from, damage.missing, &report, &e), ERR_OK);
        char *got = dump_world(&to, true);
        if (!damage.missing)
            lines_are_among(got, all);
        mem_free(got);
        arrays += report.arrays;
        passed_over += report.passed_over;
        close_world(&to);
        journal_close(from);
        memcpy(chunks, chunks_before, sizeof chunks);
    }
    assert_true(arrays > 2000 && passed_over > 100);
    mem_free(all);
    drop_unused(&w, true);
    close_world(&w);
}

static struct array *add_array(struct world *w, const char *name, struct handle *ret)
{
    struct err e = ERR_INIT;
    struct session *s;
    struct handle_spec spec = {.name = name};
    assert_int_equal(session_get(principal(w, 0)->sessions, SESSION_DEFAULT, false, &s, &e),
                     ERR_OK);
    struct array *a = new_memory(w, s);
    assert_int_equal(handle_add(s->handles, a, &spec, ret, NULL, &e), ERR_OK);
    session_unref(s);
    return a;
}

static void remove_array(struct world *w, struct handle *take_h)
{
    struct err e = ERR_INIT;
    struct session *s;
    assert_int_equal(session_get(principal(w, 0)->sessions, SESSION_DEFAULT, false, &s, &e),
                     ERR_OK);
    assert_int_equal(handle_remove(s->handles, take_h->id, NULL, &e), ERR_OK);
    handle_clear(take_h);
    session_unref(s);
}

static enum err_code may_write(struct world *w, const char *id, const char *tokens)
{
    struct err e = ERR_INIT;
    struct lease_claim claim = {w->s.leases, tokens, principal(w, 0)};
    _cleanup_handle_ struct handle h = {0};
    assert_int_equal(handle_get_id(principal(w, 0)->handles, id, &h, &e), ERR_OK);
    return lease_check(&claim, h.array, LEASE_WRITE, &e);
}

static struct setting_changes changes_of(struct world *w, uint32_t number)
{
    struct user file;
    struct setting_changes c;
    auth_changes(w->s.auth, principal(w, number), &file, &c);
    return c;
}

/* What an operator has changed is changed in the next process, as long as the accounts say what
 * they said; a principal that is gone leaves nothing. */
static void settings_go_on(void **state)
{
    (void)state;
    struct world w, to;
    struct err e = ERR_INIT;
    struct recover_report report;
    struct quotas may, has;
    const struct setting_wishes wishes = {.given = {true, false, false, false, true},
                                          .of = {{true, 7, 0}, [4] = {true, 3, 0}}};
    const struct setting_wishes none = {.given = {true, true, true, true, true}};
    open_world(&w, 16 << 20);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(auth_change(w.s.auth, principal(&w, i), &wishes, &e), ERR_OK);
    assert_int_equal(auth_change(w.s.auth, principal(&w, 1), &none, &e), ERR_OK);
    open_world(&to, 16 << 20);
    assert_int_equal(recover_world(&to, w.journal, false, &report, &e), ERR_OK);
    struct principal *p = principal(&to, 0);
    auth_quotas(to.s.auth, p, &may, &has);
    assert_true(atomic_load(&p->weight) == 7 && may.arrays == 3 && may.body == 0);
    struct setting_changes c = changes_of(&to, 0);
    assert_true(c.of[0].set && c.of[0].file == 1 && c.of[4].set && !c.of[1].set);
    c = changes_of(&to, 1);
    assert_false(changes_any(&c));
    c = changes_of(&to, 0);
    c.of[0].file = 2; /* as if another file had been read then */
    auth_restore_changes(to.s.auth, p, &c);
    assert_true(atomic_load(&p->weight) == 1);
    c = changes_of(&to, 0);
    assert_true(!c.of[0].set && c.of[4].set);
    assert_true(journal_has(to.journal, RECORD_SETTINGS, "ann/", 4));
    assert_int_equal(auth_end(to.s.auth, p, &e), ERR_OK);
    assert_false(journal_has(to.journal, RECORD_SETTINGS, "ann/", 4));
    assert_int_equal(auth_end(to.s.auth, p, &e), ERR_NOT_FOUND);
    assert_int_equal(auth_change(to.s.auth, p, &wishes, &e), ERR_NOT_FOUND);
    close_world(&to);
    close_world(&w);
}

/* The record may come from another version. */
static void settings_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"weight\":[0,1]}",     "{\"weight\":[1001,1]}",
                                      "{\"weight\":[1]}",       "{\"weight\":[1,2,3]}",
                                      "{\"arrays\":[-1,0]}",    "{\"arrays\":[1,-1]}",
                                      "{\"arrays\":[\"1\",0]}", "{\"body\":7}"};
    struct setting_changes c;
    struct err e = ERR_INIT;
    struct json v;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_parse(arena, bad[i], strlen(bad[i]), NULL, &v, &e), ERR_OK);
        assert_int_not_equal(kept_read_settings(v, &c, &e), ERR_OK);
    }
    static const char good[] = "{\"hours\":[1,2],\"arrays\":[0,5]}";
    assert_int_equal(json_parse(arena, good, strlen(good), NULL, &v, &e), ERR_OK);
    assert_int_equal(kept_read_settings(v, &c, &e), ERR_OK);
    assert_true(c.of[4].set && c.of[4].value == 0 && c.of[4].file == 5 && !c.of[0].set);
}

/* Device time of both months: the present one's, and that of the one before the clock was set. */
static void months_go_on(void **state)
{
    (void)state;
    struct world w, to;
    struct err e = ERR_INIT;
    struct recover_report report;
    struct account_months m;
    open_world(&w, 16 << 20);
    struct account *a = principal(&w, 0)->account;
    account_months(a, &m);
    m.now.device_ns = 150000000;
    m.other = (struct account_month){197001, 7000};
    account_restore_months(a, &m);
    open_world(&to, 16 << 20);
    assert_int_equal(recover_world(&to, w.journal, false, &report, &e), ERR_OK);
    account_months(principal(&to, 0)->account, &m);
    assert_true(m.now.device_ns == 150000000);
    assert_true(m.other.month == 197001 && m.other.device_ns == 7000);
    close_world(&to);
    close_world(&w);
}

/* Leases bind the same holders, shares the same principals; an export's lease goes on only if the
 * export does. */
static void leases_and_shares_go_on(void **state)
{
    (void)state;
    struct world w, to;
    struct err e = ERR_INIT;
    struct handle h[5], found;
    struct array *a[5];
    struct lease lease, brief;
    struct recover_report report;
    char ended[ID_SIZE];
    bool again;
    open_world(&w, 16 << 20);
    for (int i = 0; i < 5; i++)
        a[i] = add_array(&w, NULL, &h[i]);
    struct lease_claim claim = {w.s.leases, NULL, principal(&w, 0)};
    assert_int_equal(lease_take(&claim, a[0], true, HOUR, &lease, &again, &e), ERR_OK);
    assert_int_equal(lease_take(&claim, a[1], true, 0.001, &brief, &again, &e), ERR_OK);
    assert_int_equal(lease_pin(&claim, a[2], NULL, true, living_export, &e), ERR_OK);
    assert_int_equal(lease_pin(&claim, a[3], NULL, true, ended, &e), ERR_OK);
    assert_int_equal(lease_pin(&claim, a[4], other_array, false, orphaned_export, &e), ERR_OK);
    remove_array(&w, &h[4]);
    assert_int_equal(
        share_give(w.s.shares, principal(&w, 0), h[0].id, principal(&w, 1), true, &again, &e),
        ERR_OK);
    usleep(2000);
    for (int doubtful = 0; doubtful < 2; doubtful++) {
        open_world(&to, 16 << 20);
        memcpy(chunks_before, chunks, sizeof chunks);
        assert_int_equal(recover_world(&to, w.journal, doubtful, &report, &e), ERR_OK);
        assert_int_equal(report.arrays, 4);
        assert_int_equal(report.leases, 4); /* one of them is over */
        assert_int_equal(may_write(&to, h[0].id, NULL), ERR_LOCKED);
        assert_int_equal(may_write(&to, h[0].id, lease.token), ERR_OK);
        assert_int_equal(may_write(&to, h[1].id, NULL), ERR_OK);
        assert_int_equal(may_write(&to, h[2].id, NULL), ERR_LOCKED);
        assert_int_equal(may_write(&to, h[3].id, NULL), ERR_OK);
        assert_int_equal(share_lasts(to.s.shares, h[0].id, principal(&to, 1), false), !doubtful);
        assert_int_equal(handle_get_id(principal(&to, 0)->handles, h[2].id, &found, &e), ERR_OK);
        lease_unpin(to.s.leases, array_buffer_id(found.array), living_export);
        assert_true(array_same_buffer(found.array, exported_again[0]));
        handle_clear(&found);
        assert_int_equal(array_nbytes(exported_again[1]), array_nbytes(a[4]));
        assert_true(account_used(principal(&to, 0)->account) >= array_nbytes(a[4]));
        lease_unpin(to.s.leases, array_buffer_id(exported_again[1]), orphaned_export);
        for (int i = 0; i < 2; i++)
            array_unref(exported_again[i]);
        assert_int_equal(may_write(&to, h[2].id, NULL), ERR_OK);
        close_world(&to);
        memcpy(chunks, chunks_before, sizeof chunks);
    }
    lease_unpin(w.s.leases, array_buffer_id(a[2]), living_export);
    lease_unpin(w.s.leases, array_buffer_id(a[3]), ended);
    lease_unpin(w.s.leases, array_buffer_id(a[4]), orphaned_export);
    for (int i = 0; i < 4; i++)
        handle_clear(&h[i]);
    for (int i = 0; i < 5; i++)
        array_unref(a[i]);
    drop_unused(&w, true);
    close_world(&w);
}

/* Takes the last byte, which nobody asked for; and gives it back. */
#define FILL 8
#define FULL ((size_t)2 << 20) /* the smallest log */

static void write_fill(struct world *w, size_t bytes, enum err_code wanted)
{
    char *value = mem_calloc(1, bytes + 1);
    struct err e = ERR_INIT;
    struct record_item x = {RECORD_VALUES, "fill/1", 6, value, bytes};
    assert_int_equal(journal_write(w->journal, &x, 1, &e), wanted);
    mem_free(value);
}

static void fill_journal(struct world *w)
{
    struct journal_figures f;
    journal_figures(w->journal, &f);
    size_t n = FULL / 2 - (size_t)f.live;
    const struct record_item x = {RECORD_VALUES, "fill/1", 6, "", 0};
    n = (n - record_size(&x, 1)) / FILL * FILL;
    write_fill(w, n + FILL, ERR_OUT_OF_MEMORY);
    write_fill(w, n, ERR_OK);
}

static void fill_journal_no_more(struct world *w)
{
    struct err e = ERR_INIT;
    struct record_item x = {RECORD_VALUES, "fill/1", 6, NULL, 0};
    assert_int_equal(journal_write(w->journal, &x, 1, &e), ERR_OK);
}

/* A full journal refuses what would be added or may grow, before it does; changes that keep their
 * size and removals go on. */
static void full(void **state)
{
    (void)state;
    struct world w;
    struct err e = ERR_INIT;
    struct strb text = {0};
    struct handle h, first;
    char name[20];
    int n = 0;
    open_world(&w, 0); /* the smallest there is */
    struct array *a = add_array(&w, "first", &first);
    struct session *s;
    assert_int_equal(session_get(principal(&w, 0)->sessions, SESSION_DEFAULT, false, &s, &e),
                     ERR_OK);
    for (;; n++) {
        struct handle_spec spec = {.view_of = first.id};
        if (handle_add(s->handles, a, &spec, &h, NULL, &e) != ERR_OK)
            break;
        handle_clear(&h);
    }
    assert_int_equal(e.code, ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(e.message, "journal-size"));
    assert_true(n > 1000 && handles_count(principal(&w, 0)->handles) == n + 1);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "longer_%d", i);
        struct handle_change change = {.name = name, .read_only = -1};
        struct handle_spec spec = {.name = "first", .policy = NAME_REPLACE};
        assert_int_equal(handle_update(s->handles, first.id, &change, NULL, &h, &e),
                         ERR_OUT_OF_MEMORY);
        assert_int_equal(handle_add(s->handles, a, &spec, &h, NULL, &e), ERR_OUT_OF_MEMORY);
        change = (struct handle_change){.name = i % 2 ? "" : NULL, .read_only = i % 2};
        assert_int_equal(handle_update(s->handles, i ? first.id : "first", &change, NULL, &h, &e),
                         ERR_OK);
        handle_clear(&h);
    }
    fill_journal(&w);
    struct kept_memory m = {.number = array_memory_id(a), .bytes = INT64_MAX, .device = INT32_MAX};
    m.at = m.was = (struct kept_place){
        .chunk = UINT64_MAX >> 1, .cell = UINT64_MAX >> 1, .offset = INT64_MAX, .exported = false};
    assert_int_equal(writer_placed(w.writer, &m, 1, NULL, &e), ERR_OK);
    m.number = UINT64_MAX; /* one more does not fit */
    assert_int_equal(writer_placed(w.writer, &m, 1, NULL, &e), ERR_OUT_OF_MEMORY);
    writer_metrics(w.writer, &text);
    assert_non_null(strstr(text.data, "\narrayd_journal_refused_total 1\n"));
    strb_free(&text);
    fill_journal_no_more(&w);
    assert_int_equal(session_delete(principal(&w, 0)->sessions, SESSION_DEFAULT, NULL, &e), ERR_OK);
    struct journal_figures f;
    journal_figures(w.journal, &f);
    assert_true(f.keys == 2 && f.live < 2000); /* the new default session, and a memory */
    session_unref(s);
    handle_clear(&first);
    array_unref(a);
    drop_unused(&w, true);
    close_world(&w);
}

/* Live blocks when the engine has cleaned up: it frees a released stream when the next is made. */
static int64_t settled(void)
{
    struct engine_stream *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(engine_stream_new(engine, 0, &s, &e), ERR_OK);
    engine_stream_unref(s);
    return mem_live();
}

/* Without memory the restore fails, for another process to try again, or passes over an array. */
static void failing_allocations(void **state)
{
    (void)state;
    struct world w, to;
    int64_t refused = 0;
    seed = 7;
    open_world(&w, 16 << 20);
    live(&w, 60);
    memcpy(chunks_before, chunks, sizeof chunks);
    const int64_t before = settled();
    for (int64_t nth = 1;; nth += 1 + nth / 40) {
        struct err e = ERR_INIT;
        struct recover_report report;
        open_world(&to, 16 << 20);
        mem_fail_after(nth, false);
        enum err_code code = recover_world(&to, w.journal, false, &report, &e);
        const int64_t failed = mem_failed();
        mem_fail_after(0, false);
        if (code != ERR_OK)
            assert_true(code == ERR_OUT_OF_MEMORY && e.code == code && failed);
        refused += code != ERR_OK;
        close_world(&to);
        memcpy(chunks, chunks_before, sizeof chunks);
        assert_int_equal(settled(), before);
        if (!failed)
            break;
    }
    assert_true(refused > 20);
    drop_unused(&w, true);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(damage_is_passed_over),
        cmocka_unit_test(leases_and_shares_go_on),
        cmocka_unit_test(settings_go_on),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(full),
        cmocka_unit_test(months_go_on),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
