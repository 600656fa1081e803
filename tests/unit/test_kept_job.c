/* server/kept: a job comes back from the journal with all that its program needs, or with the
 * reason why it cannot go on, or not at all. */
#pragma GCC diagnostic ignored "-Wunused-function" /* of the world, not all is needed */
#include "tests/unit/kept_world.h"

#include "server/kept/kept_job.h"
#include "tests/unit/program_text.h"

#define VALUES 1200 /* of a series of 8 bytes: three blocks */

static const char text[] = "{\"body\": [\"u = u + v\"], \"steps\": 4000}";
static const char id[] = "j-0123456789abcdefghijkl";

static struct world w;
static struct session *session;
static struct array *u, *v;
static struct handle u_handle, v_handle, kept, dropped;
static struct definition *twice;

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

/* --- what is there --- */

static double value(int64_t i)
{
    return 0.25 * (double)i;
}

static struct array *add_array(const char *name, struct handle *ret)
{
    struct err e = ERR_INIT;
    struct handle_spec spec = {.name = name};
    struct array *a = new_memory(&w, session);
    assert_int_equal(handle_add(session->handles, a, &spec, ret, NULL, &e), ERR_OK);
    return a;
}

/* A record of the job; NULL: it goes. */
static void put(enum record_kind kind, int64_t part, const void *bytes, size_t n)
{
    struct err e = ERR_INIT;
    char key[RECORD_KEY_MOST + 1];
    struct record_item x = {.kind = kind, .key = key, .value = bytes, .n = n};
    x.key_len = writer_job_key(key, "ann", id, part);
    assert_int_equal(writer_write(w.writer, &(struct record_items){&x, 1}, &e), ERR_OK);
}

static void put_text(enum record_kind kind, int64_t part, struct strb *take_b)
{
    assert_false(take_b->failed);
    put(kind, part, take_b->data, take_b->len);
    strb_free(take_b);
}

static struct program *make_program(void)
{
    static const char *const body[] = {"u = u + v[0]", NULL};
    const struct named_array arrays[] = {{"u", u}, {"v", v}, {0}};
    struct err e = ERR_INIT;
    struct program *p = NULL;
    struct program_text t = {.stream = session->stream,
                             .account = session->account,
                             .arrays = arrays,
                             .body = body,
                             .series = "x = sum(u)*0.5"};
    if (program_of_text(&t, &p, &e) != ERR_OK)
        fail_msg("%s", e.message);
    return p;
}

static void put_job(void)
{
    struct strb b = {0};
    struct json_writer writer = JSON_WRITER(&b);
    struct function *const called[] = {twice->function};
    struct function_set functions[] = {{called, 1}, {called, 1}};
    const struct body_read shared = {.id = "a-0123456789abcdefghijkl"};
    const char *const series[] = {"half"};
    struct body_target target = {0};
    memcpy(target.id, u_handle.id, ID_SIZE);
    struct program_body body = {.principal = principal(&w, 0),
                                .session = session,
                                .program = make_program(),
                                .functions = functions,
                                .n_functions = 2,
                                .claim = {.tokens = "l-mine"},
                                .targets = &target,
                                .reads = &shared,
                                .n_reads = 1,
                                .steps = 4000,
                                .record_every = 2,
                                .series = series,
                                .n_series = 1,
                                .n_snapshots = 1,
                                .text = text,
                                .text_len = strlen(text)};
    kept_put_job(&writer, &body, 7, 1234567);
    put_text(RECORD_JOB, -1, &b);
    program_free(body.program);
}

static struct kept_progress progress(void)
{
    return (struct kept_progress){.state = "running",
                                  .step = 2 * VALUES,
                                  .values = VALUES,
                                  .snapshots = 1,
                                  .ends = 1,
                                  .crashes = 2,
                                  .ran_ms = 1.001,
                                  .device_ms = 1.003,
                                  .err = ERR_INIT,
                                  .statement = -1};
}

static void put_progress(const struct kept_progress *at)
{
    struct strb b = {0};
    struct json_writer writer = JSON_WRITER(&b);
    kept_put_progress(&writer, at);
    put_text(RECORD_PROGRESS, -1, &b);
}

static void put_block(int64_t k)
{
    const int64_t block = kept_block(8), from = k * block;
    double bytes[BUFSIZ];
    assert_true(block <= BUFSIZ && block < VALUES);
    int64_t n = VALUES - from < block ? VALUES - from : block;
    for (int64_t i = 0; i < n; i++)
        bytes[i] = value(from + i);
    put(RECORD_VALUES, k, bytes, (size_t)n * 8);
}

static void put_snapshot(int64_t k, const struct handle *h)
{
    struct strb b = {0};
    struct json_writer writer = JSON_WRITER(&b);
    struct kept_snapshot s = {.name = "u", .step = 100 * (k + 1)};
    memcpy(s.id, h->id, ID_SIZE);
    kept_put_snapshot(&writer, &s);
    put_text(RECORD_SNAPSHOT, k, &b);
}

static void put_all(void)
{
    const struct kept_progress at = progress();
    put_job();
    put_progress(&at);
    for (int64_t k = 0; k * kept_block(8) < VALUES; k++)
        put_block(k);
    put_snapshot(0, &kept);
    put_snapshot(1, &dropped);
}

static void open_all(void)
{
    struct err e = ERR_INIT;
    struct json d;
    static const char twice_text[] =
        "{\"name\": \"twice\", \"params\": [\"x\"], \"expr\": \"2*x\"}";
    _cleanup_arena_ struct arena *arena = arena_new(0);
    seed = 1; /* with it u is of numbers, not of truth values */
    open_world(&w, 16 << 20);
    assert_int_equal(session_get(principal(&w, 0)->sessions, SESSION_DEFAULT, false, &session, &e),
                     ERR_OK);
    u = add_array("u", &u_handle);
    assert_true(u->dtype == DT_U8);
    v = add_array("v", &v_handle);
    array_unref(add_array("kept", &kept));
    array_unref(add_array("dropped", &dropped));
    assert_int_equal(json_parse(arena, twice_text, strlen(twice_text), NULL, &d, &e), ERR_OK);
    assert_int_equal(function_json_read(&config, d, NULL, &twice, &e), ERR_OK);
    put_all();
}

static void close_all(void)
{
    struct handle *const handles[] = {&u_handle, &v_handle, &kept, &dropped};
    for (int i = 0; i < 4; i++)
        handle_clear(handles[i]);
    array_unref(u);
    array_unref(v);
    function_unref(twice->function);
    session_unref(session);
    drop_unused(&w, true);
    close_world(&w);
}

/* --- what comes back --- */

static int64_t fail_from, failed; /* the allocation that fails; 0: none. How many have */

struct found {
    struct world *to;
    int jobs;
    enum err_code lost;
    int64_t values;
};

static void expect_names(const struct kept_job *j)
{
    assert_int_equal(j->past.n_names, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct past_name *x = &j->past.names[i];
        struct array *was = i ? v : u;
        assert_string_equal(x->name, i ? "v" : "u");
        assert_string_equal(x->id, i ? "a-0123456789abcdefghijkl" : u_handle.id);
        assert_true(x->shared == (i == 1) && x->array->dtype == was->dtype);
        assert_true(x->array->view.shape[0] == was->view.shape[0]);
    }
}

static enum err_code found_job(void *user, const struct kept_job *j, struct err *e)
{
    struct found *f = ((struct adopter *)user)->found;
    struct definition *d;
    struct handle h;
    f->jobs++;
    f->lost = j->lost.code;
    f->values = j->at.values;
    assert_string_equal(j->id, id);
    assert_true(j->seq == 7 && j->created_us == 1234567 && j->steps == 4000);
    assert_true(j->record_every == 2 && j->takes_snapshots && j->principal == principal(f->to, 0));
    assert_string_equal(j->session->id, session->id);
    assert_true(j->text_len == strlen(text) && !strcmp(j->text, text));
    assert_string_equal(j->past.lease, "l-mine");
    assert_true(j->n_series == 1 && j->series->dtype == DT_F64 && !strcmp(j->series->name, "half"));
    for (int64_t i = 0; i < j->at.values; i++)
        assert_true(((const double *)j->series->bytes)[i] == value(i));
    assert_true(j->at.snapshots == 1 && j->snapshots->step == 100);
    assert_string_equal(j->snapshots->id, kept.id);
    if (!fail_from) { /* else it may have been passed over */
        assert_int_equal(handle_get_id(j->principal->handles, kept.id, &h, e), ERR_OK);
        handle_clear(&h);
    }
    assert_false(handle_exists(j->principal->handles, dropped.id));
    if (j->lost.code != ERR_OK || !strcmp(j->at.state, "done"))
        return ERR_OK;
    expect_names(j);
    if (functions_get(j->past.functions, "twice", &d, e) != ERR_OK)
        fail_msg("%s", e->message);
    function_unref(d->function);
    return ERR_OK;
}

static enum err_code recover(bool doubtful, struct found *ret, struct recover_report *report,
                             struct err *e)
{
    static struct world to;
    open_world(&to, 16 << 20);
    *ret = (struct found){.to = &to};
    memcpy(chunks_before, chunks, sizeof chunks);
    struct adopter t = {.to = &to, .found = ret};
    const struct recover_config rc = {
        .server = &to.s, .adopt = adopt, .job = found_job, .user = &t};
    assert_int_equal(engine_stream_new(engine, 0, &t.stream, e), ERR_OK);
    if (fail_from)
        mem_fail_after(fail_from, false);
    enum err_code code = recover_all(&rc, w.journal, doubtful, report, e);
    failed = mem_failed();
    mem_fail_after(fail_from = 0, false);
    engine_stream_unref(t.stream);
    close_world(&to);
    memcpy(chunks, chunks_before, sizeof chunks);
    return code;
}

static struct found recovered(bool doubtful, int64_t passed_over)
{
    struct found f;
    struct err e = ERR_INIT;
    struct recover_report report;
    assert_int_equal(recover(doubtful, &f, &report, &e), ERR_OK);
    assert_true(report.passed_over == passed_over && report.jobs == f.jobs);
    return f;
}

static void there_and_back(void **state)
{
    (void)state;
    open_all();
    struct found f = recovered(false, 0);
    assert_true(f.jobs == 1 && f.lost == ERR_OK && f.values == VALUES);
    f = recovered(true, 0);
    assert_true(f.jobs == 1 && f.lost == ERR_STATE && f.values == VALUES);
    close_all();
}

/* Of one that has ended nothing is asked that only its program would need. */
static void what_is_gone(void **state)
{
    (void)state;
    struct kept_progress at = progress();
    open_all();
    put(RECORD_VALUES, 1, NULL, 0);
    struct found f = recovered(false, 0);
    assert_true(f.jobs == 1 && f.lost == ERR_STATE && f.values == 0);
    put_block(1);
    chunks[1].owner ^= 1 << 20; /* v's memory */
    f = recovered(false, 1);
    assert_true(f.jobs == 1 && f.lost == ERR_STATE && f.values == VALUES);
    strcpy(at.state, "done");
    put_progress(&at);
    f = recovered(false, 1);
    chunks[1].owner ^= 1 << 20;
    assert_true(f.jobs == 1 && f.lost == ERR_OK && f.values == VALUES);
    put(RECORD_SNAPSHOT, 0, NULL, 0);
    assert_int_equal(recovered(false, 1).jobs, 0);
    put_snapshot(0, &kept);
    assert_int_equal(recovered(false, 0).jobs, 1);
    for (int64_t *n = &at.step; n <= &at.snapshots; n++) { /* no such number can be */
        *n += 1 << 20;
        put_progress(&at);
        assert_int_equal(recovered(false, 1).jobs, 0);
        *n -= 1 << 20;
    }
    put(RECORD_PROGRESS, -1, NULL, 0);
    assert_int_equal(recovered(false, 1).jobs, 0);
    close_all();
}

static void every_error(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int code = ERR_OK; code < ERR_COUNT; code++) {
        struct kept_progress at = progress(), got;
        struct strb b = {0};
        struct json_writer writer = JSON_WRITER(&b);
        struct json d;
        _cleanup_arena_ struct arena *arena = arena_new(0);
        at.err = (struct err){.code = (enum err_code)code, .offset = code % 3 - 1};
        strcpy(at.err.message, code ? "\"why\"" : "");
        strcpy(at.err.pointer, code % 2 ? "/body/1" : "");
        at.failed_in = code ? code : 0;
        at.statement = code ? code % 4 - 1 : -1;
        at.until = code % 2;
        at.copies = code % 3;
        at.behind = code % 5;
        kept_put_progress(&writer, &at);
        assert_int_equal(json_parse(arena, b.data, b.len, NULL, &d, &e), ERR_OK);
        assert_int_equal(kept_read_progress(d, &got, &e), ERR_OK);
        if (!code)
            got.err.offset = at.err.offset;
        assert_string_equal(got.state, at.state);
        assert_string_equal(got.err.message, at.err.message);
        assert_string_equal(got.err.pointer, at.err.pointer);
        assert_true(got.err.code == at.err.code && got.err.offset == at.err.offset);
        assert_true(got.step == at.step && got.values == at.values && got.ends == at.ends);
        assert_true(got.snapshots == at.snapshots && got.crashes == at.crashes);
        assert_true(got.failed_in == at.failed_in && got.statement == at.statement);
        assert_true(got.until == at.until && got.copies == at.copies && got.behind == at.behind);
        assert_true(got.ran_ms == at.ran_ms && got.device_ms == at.device_ms);
        strb_free(&b);
    }
}

static int64_t settled(void)
{
    struct engine_stream *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(engine_stream_new(engine, 0, &s, &e), ERR_OK);
    engine_stream_unref(s);
    return mem_live();
}

static void failing_allocations(void **state)
{
    (void)state;
    int64_t refused = 0;
    open_all();
    const int64_t before = settled();
    for (int64_t nth = 1;; nth++) {
        struct err e = ERR_INIT;
        struct found f;
        struct recover_report report;
        fail_from = nth;
        enum err_code code = recover(false, &f, &report, &e);
        if (code != ERR_OK)
            assert_true(code == ERR_OUT_OF_MEMORY && failed);
        refused += code != ERR_OK;
        assert_int_equal(settled(), before);
        if (!failed)
            break;
    }
    assert_true(refused > 20);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(what_is_gone),
        cmocka_unit_test(every_error),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
