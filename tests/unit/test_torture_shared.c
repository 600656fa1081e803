/* Torture, the other half: programs and their jobs, statements, functions, shares, leases,
 * snapshots and accounts, with every allocation of a request failing once; the start of the daemon,
 * and accounts read again, likewise; and threads that cannot be had, at the start and later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

#include "compute/base/clock.h"
#include "compute/base/log.h"
#include "tests/unit/torture.h"

static const char both_accounts[] = "[ann]\nrole = operator\n[bob]\ndevice-memory = 1MiB\n";

/* --- threads that cannot be had --- */

static _Atomic int64_t thread_countdown; /* 0: off; n: the nth from now, and only that */
static _Atomic int64_t threads_refused;

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (atomic_load(&thread_countdown) > 0 && atomic_fetch_sub(&thread_countdown, 1) == 1) {
        atomic_fetch_add(&threads_refused, 1);
        return EAGAIN;
    }
    return real(t, attr, run, arg);
}

static void refuse_thread(int64_t nth)
{
    atomic_store(&threads_refused, 0);
    atomic_store(&thread_countdown, nth);
}

/* --- */

static char token[TOKEN_SIZE];
static char authorization[100];

/* The text with a token of ann's that is known here. */
static void make_accounts(struct accounts *ret)
{
    struct err e = ERR_INIT;
    uint8_t hash[TOKEN_HASH_SIZE];
    struct strb text = {0};
    token_make(token);
    token_hash(token, strlen(token), hash);
    snprintf(authorization, sizeof authorization, "Authorization: Bearer %s\r\n", token);
    assert_int_equal(accounts_add(both_accounts, "ann", ROLE_USER, hash, &text, &e), ERR_OK);
    assert_int_equal(accounts_parse(text.data, text.len, "text", ret, &e), ERR_OK);
    strb_free(&text);
}

static char folder[] = "/tmp/arrayd-torture-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static int post(const char *target, const char *body)
{
    return ask("POST", target, JSON, body, strlen(body), reply, sizeof reply - 1, &reply_len);
}

/* The first id of a kind in a list, but for this one; false if there is no other. */
static bool listed(const char *list, char kind, const char *but, char ret[ID_SIZE])
{
    char member[16];
    assert_int_equal(send_simple("GET", list), 200);
    reply[reply_len] = '\0';
    snprintf(member, sizeof member, "{\"id\":\"%c-", kind);
    for (const char *p = reply; (p = strstr(p, member)) != NULL; p += 7) {
        snprintf(ret, ID_SIZE, "%.*s", (int)strcspn(p + 7, "\""), p + 7);
        if (strcmp(ret, but) != 0)
            return true;
    }
    return false;
}

static char u_id[ID_SIZE];

/* All jobs, and what they have made. */
static void delete_jobs(void)
{
    char id[ID_SIZE], target[64];
    while (listed("/v1/jobs", 'j', "", id)) {
        snprintf(target, sizeof target, "/v1/jobs/%s", id);
        int got = send_simple("DELETE", target);
        assert_true(got == 200 || got == 204);
    }
    while (listed("/v1/arrays", 'a', u_id, id)) {
        snprintf(target, sizeof target, "/v1/arrays/%s", id);
        assert_int_equal(send_simple("DELETE", target), 204);
    }
}

/* Makes something, with the nth allocation failing, and takes it back: what was refused is not
 * there. */
static void torture_undone(const char *method, const char *target, const char *body, int status,
                           const char *undo)
{
    int64_t bytes = engine_bytes_in_use(server.engine);
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        mem_fail_after(nth, false);
        int got =
            ask(method, target, JSON, body, strlen(body), reply, sizeof reply - 1, &reply_len);
        failed = mem_failed();
        mem_fail_after(0, false);
        if (got != status && !(failed && (got == 507 || got == 0)))
            fail_msg("%s %s, allocation %d: %d %.300s", method, target, (int)nth, got, reply);
        int back = send_simple("DELETE", undo);
        if (got && back != (got == status ? 204 : 404))
            fail_msg("%s %s, allocation %d: %d, then DELETE %d", method, target, (int)nth, got,
                     back);
        settle(bytes);
    }
}

static void torture_leases(void)
{
    static const char body[] = "{\"mode\":\"write\",\"ttl_s\":0.2}";
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        char header[100] = "";
        double begun = clock_ms();
        mem_fail_after(nth, false);
        int got = post("/v1/arrays/u/lease", body);
        failed = mem_failed();
        mem_fail_after(0, false);
        if (got != 201 && !(failed && (got == 507 || got == 0)))
            fail_msg("a lease, allocation %d: %d %.300s", (int)nth, got, reply);
        reply[reply_len] = '\0';
        const char *made = got == 201 ? strstr(reply, "\"token\":\"") + 9 : NULL;
        if (made)
            snprintf(header, sizeof header, "Arrayd-Lease: %.*s\r\n", (int)strcspn(made, "\""),
                     made);
        if (!got)
            usleep(250000); /* there may be one */
        int back = ask("DELETE", "/v1/arrays/u/lease", header, NULL, 0, reply, sizeof reply - 1,
                       &reply_len);
        if (back != (made ? 204 : 404)) /* or it has expired */
            assert_true(back == 404 && clock_ms() - begun >= 200);
    }
}

static void torture_programs(void)
{
    static const char *const programs[] = {
        "{\"body\":[\"u = u*2 + 1\"],\"steps\":3,\"record\":{\"m\":\"max(u)\"}}",
        "{\"body\":[\"t = u - mean(u)\",\"u[1:-1] = t[:-2] + t[2:]\"],\"steps\":4,"
        "\"until\":\"max(u) > 1e9\",\"until_every\":2,\"stop_on_nan\":true}",
        "{\"body\":[\"a = f(a)\"],\"bind\":{\"a\":\"u\"},\"steps\":2,\"snapshot\":{\"a\":1}}",
    };
    tidy = delete_jobs;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        torture_json("/v1/programs?wait=1", programs[i], "*/*", 200);
    torture_json("/v1/explain", programs[0], "*/*", 200);
    torture_json("/v1/evaluate",
                 "{\"statements\":[\"a = u + 1\",\"u = a*2\",\"b = sum(u)\"],"
                 "\"results\":[\"b\",\"a\"],\"inline\":true}",
                 "*/*", 200);
    tidy = NULL;
    static const char grid[] = "{\"name\":\"g\",\"data\":[1.5,2,3],\"ghost\":[1],\"boundary\":"
                               "[\"periodic\"]}";
    assert_int_equal(post("/v1/arrays", grid), 201);
#define FILLS "[\"fill_ghost(g)\",\"g += shift(g, [1], 'ghost')\"]"
    torture_json("/v1/explain", "{\"body\":" FILLS ",\"steps\":3}", "*/*", 200);
    torture_json("/v1/evaluate", "{\"statements\":" FILLS "}", "*/*", 200);
#undef FILLS
    assert_int_equal(send_simple("DELETE", "/v1/arrays/g"), 204);

    /* looked at, watched, stopped and resumed */
    char path[64], watched[80], resumed[80];
    assert_int_equal(post("/v1/programs?wait=1", programs[0]), 200);
    reply[reply_len] = '\0';
    const char *id = strstr(reply, "\"id\":\"") + 6;
    snprintf(path, sizeof path, "/v1/jobs/%.*s", (int)strcspn(id, "\""), id);
    snprintf(watched, sizeof watched, "%s/events", path);
    snprintf(resumed, sizeof resumed, "%s/resume", path);
    restore();
    torture("GET", "/v1/jobs", "", NULL, 0, 200);
    torture("GET", path, "", NULL, 0, 200);
    torture("GET", watched, "", NULL, 0, 200);
    torture("POST", resumed, "", NULL, 0, 409); /* it is done */
    delete_jobs();
}

/* SIGHUP's work: with no memory for it, everything stays as it was. */
static void torture_accounts(void)
{
    struct err e = ERR_INIT;
    struct accounts a;
    char before[sizeof authorization];
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        memcpy(before, authorization, sizeof before);
        make_accounts(&a);
        mem_fail_after(nth, false);
        enum err_code c = auth_apply(server.auth, &a, &e);
        failed = mem_failed();
        mem_fail_after(0, false);
        accounts_free(&a);
        assert_true(c == ERR_OK || (failed && c == ERR_OUT_OF_MEMORY));
        if (c != ERR_OK)
            memcpy(authorization, before, sizeof before);
        assert_int_equal(send_simple("GET", "/v1/arrays/u"), 200);
    }
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct accounts a;
    struct err e = ERR_INIT;
    make_accounts(&a);
    assert_int_equal(start_with(0, &a, folder, &e), ERR_OK);
    accounts_free(&a);
    extra_headers = authorization;
    put_u();
    assert_true(listed("/v1/arrays", 'a', "", u_id));
    int64_t bytes = engine_bytes_in_use(server.engine);
    torture_undone("PUT", "/v1/functions/h", "{\"params\":[\"x\"],\"expr\":\"x*2\"}", 201,
                   "/v1/functions/h");
    assert_int_equal(
        post("/v1/functions", "{\"name\":\"f\",\"params\":[\"x\"],\"expr\":\"x*0.5 + 1\"}"), 201);
    torture("GET", "/v1/functions", "", NULL, 0, 200);
    torture_json("/v1/evaluate", "{\"expr\":\"f(f(u))\",\"name\":\"n\"}", "*/*", 201);
    torture_undone("POST", "/v1/arrays/u/shares", "{\"principal\":\"bob\",\"access\":\"read\"}",
                   201, "/v1/arrays/u/shares/bob");
    torture("GET", "/v1/arrays/u/shares", "", NULL, 0, 200);
    torture_leases();
    torture_programs();
    location = "host"; /* from where a program fetches it */
    torture_json("/v1/programs?wait=1", "{\"body\":[\"u = u*2 + 1\"],\"steps\":3}", "*/*", 200);
    location = "device";
    place();
    location = NULL;
    torture("GET", "/v1/info", "", NULL, 0, 200);
    torture("GET", "/metrics", "", NULL, 0, 200);
    torture("POST", "/v1/snapshot", "", NULL, 0, 200);
    torture_accounts();
    settle(bytes);
    stop();

    /* what was written with so little memory is all there */
    make_accounts(&a);
    assert_int_equal(start_with(0, &a, folder, &e), ERR_OK);
    accounts_free(&a);
    float now[N];
    contents(now);
    assert_memory_equal(now, u, sizeof u);
    stop();
    extra_headers = "";
    assert_int_equal(mem_live(), live);
}

/* Starts it until nothing fails any more; each time something does, it says what, and nothing of
 * it stays. */
static void try_starts(void (*arm)(int64_t nth), bool (*failed)(void))
{
    struct accounts a;
    make_accounts(&a);
    int64_t live = mem_live();
    for (int64_t nth = 1;; nth++) {
        struct err e = ERR_INIT;
        arm(nth);
        enum err_code c = start_with(0, &a, folder, &e);
        bool again = failed();
        arm(0);
        if (c != ERR_OK) {
            assert_true(again && e.code == c && *e.message);
        } else {
            extra_headers = authorization;
            assert_int_equal(send_simple("GET", "/v1/info"), 200);
            extra_headers = "";
        }
        stop();
        if (mem_live() != live)
            fail_msg("failure %d of the start: %d blocks stay", (int)nth, (int)(mem_live() - live));
        if (!again)
            break;
        assert_true(nth < 5000);
    }
    accounts_free(&a);
}

static void fail_allocation(int64_t nth)
{
    mem_fail_after(nth, false);
}

static bool allocation_failed(void)
{
    return mem_failed() > 0;
}

static bool thread_failed(void)
{
    return atomic_load(&threads_refused) > 0;
}

static void the_start_fails(void **state)
{
    (void)state;
    try_starts(fail_allocation, allocation_failed);
    try_starts(refuse_thread, thread_failed);
}

/* A thread that cannot be had later: the request that needs it is refused, and the next one has it.
 */
static void no_threads(void **state)
{
    (void)state;
    struct accounts a;
    struct err e = ERR_INIT;
    int64_t live = mem_live();
    make_accounts(&a);
    assert_int_equal(start_with(0, &a, folder, &e), ERR_OK);
    accounts_free(&a);
    extra_headers = authorization;
    refuse_thread(1);
    int got = send_simple("GET", "/v1/arrays"); /* the first of a principal: his sessions' thread */
    if (thread_failed())
        assert_true(got == 503 || got == 507);
    refuse_thread(0);
    assert_int_equal(send_simple("GET", "/v1/arrays"), 200);
    refuse_thread(1);
    got = send_simple("POST", "/v1/snapshot");
    assert_true(thread_failed() && (got == 503 || got == 507));
    refuse_thread(0);
    assert_int_equal(send_simple("POST", "/v1/snapshot"), 200);
    stop();
    extra_headers = "";
    assert_int_equal(mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(the_start_fails),
        cmocka_unit_test(no_threads),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
