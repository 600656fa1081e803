/* server/session and auth: lifetimes, expiry, limits, the default session, allocation failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "server/http/http.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/session_int.h"
#include "server/work/scheduler.h"

static struct server server;
static struct principal *who;

/* The one thing that session.c asks of http.c. */
static const char *session_header;
const char *http_header(struct request *req, const char *name)
{
    (void)req;
    assert_string_equal(name, "Arrayd-Session");
    return session_header;
}

/* And auth.c. */
void http_add_header(struct request *req, const char *name, const char *value)
{
    (void)req, (void)name, (void)value;
}

void http_peer_name(const struct request *req, char ret[HTTP_PEER_SIZE])
{
    (void)req;
    strcpy(ret, "unix");
}

static int set_up(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    struct err e = ERR_INIT;
    return engine_open(&config, &server.engine, &e) != ERR_OK;
}

static int tear_down(void **state)
{
    (void)state;
    engine_close(server.engine);
    return 0;
}

static void begin_with(const struct session_limits *limits)
{
    struct err e = ERR_INIT;
    assert_int_equal(auth_new(server.engine, limits, NULL, &server.auth, &e), ERR_OK);
    struct request req = {.server = &server};
    assert_int_equal(auth_identify(&req, &e), ERR_OK);
    who = req.principal;
    assert_non_null(who);
    assert_int_equal(auth_sessions(server.auth), 1);
}

static void begin(uint32_t max_sessions, int64_t session_memory)
{
    begin_with(&(struct session_limits){
        .max_sessions = max_sessions, .max_arrays = 10, .session_memory = session_memory});
}

static void end(void)
{
    auth_free(server.auth);
    assert_int_equal(engine_bytes_in_use(server.engine), 0);
}

static struct session *make(const struct session_spec *spec)
{
    struct session *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(session_new(who->sessions, spec, &s, &e), ERR_OK);
    return s;
}

static void put_array(struct session *s, int64_t n, enum err_code want)
{
    struct array *a = NULL;
    struct handle h = {0};
    struct err e = ERR_INIT;
    enum err_code r = engine_zeros(s->stream, s->account, DT_U8, 1, &n, &a, &e);
    if (r == ERR_OK)
        r = handle_add(s->handles, a, &(struct handle_spec){0}, &h, NULL, &e);
    assert_int_equal(r, want);
    handle_clear(&h);
    array_unref(a);
}

static bool exists(const char *id)
{
    struct session *s = NULL;
    struct err e = ERR_INIT;
    if (session_get(who->sessions, id, false, &s, &e) != ERR_OK) {
        assert_int_equal(e.code, ERR_NOT_FOUND);
        return false;
    }
    session_unref(s);
    return true;
}

static void sleep_s(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

static void the_default_session(void **state)
{
    (void)state;
    begin(3, 0);
    struct session *d, *again;
    struct err e = ERR_INIT;
    char id[ID_SIZE];
    assert_int_equal(session_get(who->sessions, SESSION_DEFAULT, true, &d, &e), ERR_OK);
    assert_int_equal(session_get(who->sessions, d->id, true, &again, &e), ERR_OK);
    assert_ptr_equal(d, again);
    assert_true(d->is_default);
    assert_string_equal(d->name, SESSION_DEFAULT);
    session_unref(again);
    put_array(d, 1000, ERR_OK);
    memcpy(id, d->id, ID_SIZE);
    session_unref(d);

    /* deleted: emptied, and there is another one */
    assert_int_equal(session_delete(who->sessions, SESSION_DEFAULT, NULL, &e), ERR_OK);
    assert_false(exists(id));
    assert_int_equal(engine_bytes_in_use(server.engine), 0);
    assert_int_equal(session_get(who->sessions, SESSION_DEFAULT, true, &d, &e), ERR_OK);
    assert_string_not_equal(d->id, id);
    assert_int_equal(handle_space_count(d->handles), 0);
    assert_int_equal(sessions_count(who->sessions), 1);
    session_unref(d);
    end();
}

static void requests_name_their_session(void **state)
{
    (void)state;
    begin(3, 0);
    struct request req = {.server = &server, .principal = who};
    struct session *own = make(&(struct session_spec){0}), *s = NULL;
    struct err e = ERR_INIT;
    session_header = NULL;
    assert_int_equal(session_of(&req, &s, &e), ERR_OK);
    assert_true(s->is_default);
    session_unref(s);
    session_header = own->id;
    assert_int_equal(session_of(&req, &s, &e), ERR_OK);
    assert_ptr_equal(s, own);
    session_unref(s);
    static const char *const bad[] = {"",
                                      "s-",
                                      "s-0000000000000000000000",
                                      "a-0000000000000000000000",
                                      "Default",
                                      "default, default"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        session_header = bad[i];
        assert_int_equal(session_of(&req, &s, &e), ERR_NOT_FOUND);
    }
    session_header = NULL;
    session_unref(own);
    end();
}

static void a_deleted_session_lives_until_its_requests_end(void **state)
{
    (void)state;
    begin(3, 0);
    struct session *s = make(&(struct session_spec){.name = "batch"});
    char id[ID_SIZE];
    memcpy(id, s->id, ID_SIZE);
    put_array(s, 1000, ERR_OK);
    assert_int_equal(auth_arrays(server.auth), 1);
    struct err e = ERR_INIT;
    assert_int_equal(session_delete(who->sessions, id, NULL, &e), ERR_OK);
    assert_int_equal(session_delete(who->sessions, id, NULL, &e), ERR_NOT_FOUND);
    assert_false(exists(id));
    assert_int_equal(engine_bytes_in_use(server.engine), 0);
    put_array(s, 10, ERR_NOT_FOUND); /* the stream still works, but nothing is kept */
    assert_int_equal(auth_arrays(server.auth), 0);
    session_unref(s);
    end();
}

static void limits(void **state)
{
    (void)state;
    begin(2, 1000);
    struct err e = ERR_INIT;
    struct session *a = make(&(struct session_spec){.memory_limit = 500});
    struct session *b = make(&(struct session_spec){.memory_limit = 5000}), *c = NULL;
    assert_int_equal(session_new(who->sessions, &(struct session_spec){0}, &c, &e), ERR_QUOTA);
    assert_int_equal(session_new(who->sessions, &(struct session_spec){.device = 99}, &c, &e),
                     ERR_BAD_FIELD);
    assert_string_equal(e.pointer, "/device");
    assert_int_equal(a->memory_limit, 500);
    assert_int_equal(b->memory_limit, 1000); /* the daemon's limit is above the client's wish */
    put_array(a, 501, ERR_QUOTA);
    put_array(a, 300, ERR_OK);
    put_array(a, 300, ERR_QUOTA);
    put_array(b, 900, ERR_OK);
    assert_int_equal(session_delete(who->sessions, a->id, NULL, &e), ERR_OK);
    c = make(&(struct session_spec){0});
    session_unref(a);
    session_unref(b);
    session_unref(c);
    end();
}

static void expiry(void **state)
{
    (void)state;
    begin(5, 0);
    struct session *s = make(&(struct session_spec){.ttl_s = 0.2}), *held;
    char id[ID_SIZE];
    struct err e = ERR_INIT;
    memcpy(id, s->id, ID_SIZE);
    put_array(s, 100, ERR_OK);
    held = s;
    sleep_s(0.35);
    assert_true(exists(id)); /* a request holds it */
    double used = clock_ms();
    session_unref(held);
    enum err_code r = session_get(who->sessions, id, true, &s, &e);
    assert_true(r == ERR_OK || clock_ms() - used >= 200);
    if (!r) {
        used = clock_ms();
        session_unref(s);
    }
    sleep_s(0.1);
    assert_true(exists(id) || clock_ms() - used >= 200); /* touched */
    sleep_s(0.15);
    assert_false(exists(id)); /* looking does not touch */
    /* the sweeper comes by itself */
    for (int i = 0; i < 1000 && sessions_count(who->sessions) > 1; i++)
        sleep_s(0.02);
    assert_int_equal(sessions_count(who->sessions), 1);
    assert_int_equal(engine_bytes_in_use(server.engine), 0);
    assert_true(sessions_sweep(who->sessions) < 0);
    s = make(&(struct session_spec){.ttl_s = 100});
    session_unref(s);
    double left = sessions_sweep(who->sessions);
    assert_true(left > 90 && left <= 100);
    end();
}

static void lists(void **state)
{
    (void)state;
    begin(10, 0);
    char ids[5][ID_SIZE];
    for (int i = 0; i < 5; i++) {
        struct session *s = make(&(struct session_spec){0});
        memcpy(ids[i], s->id, ID_SIZE);
        session_unref(s);
    }
    struct session *page[3];
    bool more;
    assert_int_equal(session_list(who->sessions, LIST_FROM_TOP, 3, page, &more), 3);
    assert_true(more);
    assert_true(page[0]->is_default);
    assert_string_equal(page[2]->id, ids[1]);
    uint64_t after = page[2]->seq;
    for (int i = 0; i < 3; i++)
        session_unref(page[i]);
    assert_int_equal(session_list(who->sessions, after, 3, page, &more), 3);
    assert_false(more);
    assert_string_equal(page[0]->id, ids[2]);
    for (int i = 0; i < 3; i++)
        session_unref(page[i]);
    end();
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

/* Of an account that is gone: a request that was let in before finds nothing and leaves nothing. */
static void closed_for_good(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct session *held, *s = NULL;
    struct handle h;
    begin(10, 0);
    assert_int_equal(session_get(who->sessions, SESSION_DEFAULT, true, &held, &e), ERR_OK);
    session_unref(make(&(struct session_spec){.name = "other"}));
    int64_t shape[] = {4};
    struct array *a;
    assert_int_equal(engine_zeros(held->stream, held->account, DT_U8, 1, shape, &a, &e), ERR_OK);
    sessions_close(who->sessions);
    sessions_close(who->sessions);
    assert_int_equal(sessions_count(who->sessions), 0);
    assert_int_equal(session_get(who->sessions, SESSION_DEFAULT, true, &s, &e), ERR_NOT_FOUND);
    assert_int_equal(session_new(who->sessions, &(struct session_spec){0}, &s, &e),
                     ERR_UNAUTHORIZED);
    assert_int_equal(session_delete(who->sessions, SESSION_DEFAULT, NULL, &e), ERR_NOT_FOUND);
    struct handle_spec spec = {.policy = NAME_NEW};
    assert_int_equal(handle_add(held->handles, a, &spec, &h, NULL, &e), ERR_NOT_FOUND);
    array_unref(a);
    session_unref(held);
    end();
}

static void failing_allocations(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct session_limits l = SESSION_LIMITS_DEFAULT;
    int64_t nth, live = settled();
    for (nth = 1;; nth++) {
        mem_fail_after(nth, false);
        enum err_code r = auth_new(server.engine, &l, NULL, &server.auth, &e);
        mem_fail_after(0, false);
        if (r == ERR_OK)
            break;
        assert_int_equal(r, ERR_OUT_OF_MEMORY);
        assert_int_equal(settled(), live);
    }
    assert_true(nth > 4);
    auth_free(server.auth);
    begin(10, 0);
    for (nth = 1;; nth++) {
        struct session *s = NULL;
        live = settled();
        mem_fail_after(nth, false);
        enum err_code r = session_new(who->sessions, &(struct session_spec){0}, &s, &e);
        mem_fail_after(0, false);
        if (r == ERR_OK) {
            session_unref(s);
            break;
        }
        assert_int_equal(settled(), live);
        assert_int_equal(sessions_count(who->sessions), 1);
    }
    assert_true(nth > 3);
    for (nth = 1;; nth++) {
        live = settled();
        mem_fail_after(nth, false);
        enum err_code r = session_delete(who->sessions, SESSION_DEFAULT, NULL, &e);
        mem_fail_after(0, false);
        assert_true(exists(SESSION_DEFAULT));
        if (r == ERR_OK)
            break;
        assert_int_equal(settled(), live);
    }
    end();
}

/* By the linker in the place of the one without __wrap_: whether the scheduler is asked while the
 * table's lock is held. It calls jobs with its own held, and they look sessions up with theirs. */
static int looked, looked_with_lock;
bool __wrap_sched_lane_is_busy(const struct sched_lane *l);
bool __wrap_sched_lane_is_busy(const struct sched_lane *l)
{
    (void)l;
    bool is_free = pthread_mutex_trylock(&who->sessions->lock) == 0;
    if (is_free)
        pthread_mutex_unlock(&who->sessions->lock);
    looked++;
    looked_with_lock += !is_free;
    return true;
}

/* Each connection has a stream that it keeps, until there are as many as there may be. */
static void connections_of_the_default_session(void **state)
{
    (void)state;
    const struct sched_config config = {.n_devices = 1, .window = 10, .max_waiting = 10};
    struct session *s[SESSION_STREAMS + 2];
    struct session_limits limits = {.max_sessions = 2, .max_arrays = 10};
    struct err e = ERR_INIT;
    assert_int_equal(sched_new(&config, &limits.sched, &e), ERR_OK);
    begin_with(&limits);
    struct request req = {.server = &server, .principal = who};
    session_header = NULL;
    for (uint64_t k = 0; k < SESSION_STREAMS + 2; k++) {
        for (int again = 0; again < 2; again++) {
            req.connection = k + 1;
            assert_int_equal(session_of(&req, &s[k], &e), ERR_OK);
            session_unref(s[k]);
        }
        bool is_other = true;
        for (uint64_t i = 0; i < k; i++)
            is_other &= s[k]->stream != s[i]->stream;
        assert_int_equal(is_other, k < SESSION_STREAMS);
    }
    assert_true(looked > 0);
    assert_int_equal(looked_with_lock, 0);
    end();
    sched_free(limits.sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_session),
        cmocka_unit_test(requests_name_their_session),
        cmocka_unit_test(a_deleted_session_lives_until_its_requests_end),
        cmocka_unit_test(limits),
        cmocka_unit_test(expiry),
        cmocka_unit_test(lists),
        cmocka_unit_test(connections_of_the_default_session),
        cmocka_unit_test(closed_for_good),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
