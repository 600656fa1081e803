/* What the torture tests share: the whole daemon in one process, requests to it, and the loop in
 * which each allocation of a request fails once. Included once by each of them. */
#ifndef ARRAYD_TESTS_TORTURE_H
#define ARRAYD_TESTS_TORTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "protocol/wire/npy.h"
#include "server/api/metrics.h"
#include "server/api/routes.c"
#include "server/config/config.h"
#include "server/front.h"
#include "server/jobs/jobs.h"
#include "server/login/logins.h"
#include "server/server.h"
#include "server/state/state.h"
#include "server/store/auth.h"
#include "server/store/lease.h"
#include "server/store/lease_use.h"
#include "server/store/share.h"
#include "server/work/scheduler.h"

#define JSON   "Content-Type: application/json\r\n"
#define OCTETS "Content-Type: application/octet-stream\r\n"
#define NPY    "Content-Type: application/x-npy\r\n"
#define N      1000

static struct server server;
static struct config config;
static int port;
static const char *extra_headers = ""; /* of every request */

/* What start_with has made, all or the part of it before something failed. */
static void stop(void)
{
    if (server.http) {
        sched_open(server.sched);
        jobs_stop(server.jobs);
        state_stop(server.state);
        http_stop(server.http);
    }
    assert_true(jobs_free(server.jobs));
    state_close(server.state);
    if (server.auth)
        auth_free(server.auth);
    lease_uses_free(server.uses);
    logins_free(server.logins);
    leases_free(server.leases);
    shares_free(server.shares);
    if (server.engine)
        engine_close(server.engine);
    if (server.sched)
        sched_free(server.sched);
    if (server.metrics)
        metrics_free(server.metrics);
    culprits_close(server.culprits);
    config_free(&config);
    server = (struct server){0};
}

/* memory: the device's, 0: what there is; else the daemon makes room in it. accounts: NULL: none.
 * state_dir: NULL: none. */
static enum err_code start_with(int64_t memory, const struct accounts *accounts,
                                const char *state_dir, struct err *e)
{
    char *argv[] = {(char *)"arrayd",
                    (char *)"--listen",
                    (char *)"127.0.0.1:0",
                    (char *)"--kernel-cache",
                    (char *)"none",
                    NULL,
                    NULL,
                    NULL,
                    NULL};
    int argc = 5;
    if (memory)
        argv[argc++] = (char *)"--evict";
    if (state_dir) {
        argv[argc++] = (char *)"--state-dir";
        argv[argc++] = (char *)state_dir;
    }
    enum config_action action;
    struct jobs_config jc = {.max_jobs = 10, .retention = 1000, .slice = 1, .stop_timeout = 1};
    enum err_code c = config_load(argc, argv, &config, &action, e);
    if (c)
        return c;
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    ec.backend = "cpu";
    ec.device.threads = 2;
    ec.device.memory_limit = memory;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    struct http_config hc = {.listen = (const char *const *)config.listen.items,
                             .n_listen = config.listen.n,
                             .max_header_bytes = 65536,
                             .max_ignored_body = 65536,
                             .max_unread_body = 64 << 20,
                             .unread_body_s = 2,
                             .header_timeout_s = 20,
                             .body_idle_timeout_s = 20,
                             .body_rate_window_s = 30,
                             .max_json_body = 1 << 20,
                             .offload_bytes = 1000,
                             .max_connections = 100,
                             .workers = 2,
                             .device_name = "cpu",
                             .idle_timeout_s = 20,
                             .drain_timeout_s = 1,
                             .stuck_s = 60};
    struct http_calls calls = front_calls();
    calls.retry = memory ? calls.retry : NULL;
    struct sched_config sc = {
        .n_devices = 1, .window = 10, .max_waiting = 1000, .max_waiting_all = 1000};
    server.config = &config;
    if (!(server.metrics = metrics_new(route_table, route_count)) ||
        !(server.logins = logins_new(1000, 1000)) || !(server.leases = leases_new(1000)) ||
        !(server.shares = shares_new(1000)) || !(server.uses = lease_uses_new()) ||
        !(server.culprits = culprits_open(false, -1)))
        return err_oom(e);
    ec.device.culprits = server.culprits;
    if ((c = engine_open(&ec, &server.engine, e)) != ERR_OK ||
        (c = sched_new(&sc, &server.sched, e)) != ERR_OK)
        return c;
    limits.sched = jc.sched = server.sched;
    jc.uses = server.uses;
    jc.engine = server.engine;
    if ((c = auth_new(server.engine, &limits, accounts, &server.auth, e)) != ERR_OK ||
        (c = jobs_new(&jc, &server.jobs, e)) != ERR_OK ||
        (c = state_open(&server, &server.state, e)) != ERR_OK ||
        (server.state && (c = state_restore(server.state, e)) != ERR_OK) ||
        (c = http_start(&server, &hc, &calls, &server.http, e)) != ERR_OK)
        return c;
    const char *const *addresses;
    assert_int_equal(http_addresses(server.http, false, &addresses), 1);
    port = atoi(strrchr(addresses[0], ':') + 1);
    return ERR_OK;
}

static inline void start(int64_t memory)
{
    struct err e = ERR_INIT;
    assert_int_equal(start_with(memory, NULL, NULL, &e), ERR_OK);
}

static bool job_made; /* the last reply had the place of a job */

/* Status (0: closed without a reply); the body into ret. */
static int ask(const char *method, const char *target, const char *headers, const void *body,
               size_t n, char *ret, size_t cap, size_t *ret_n)
{
    char head[1024];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval t = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int k = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s"
                     "Content-Length: %zu\r\n\r\n",
                     method, target, extra_headers, headers, n);
    if (send(fd, head, (size_t)k, MSG_NOSIGNAL) == k && n)
        while (n) {
            ssize_t sent = send(fd, body, n, MSG_NOSIGNAL);
            if (sent <= 0)
                break;
            body = (const char *)body + sent;
            n -= (size_t)sent;
        }
    static char raw[2 << 20];
    size_t len = 0;
    for (ssize_t got;
         len < sizeof raw - 1 && (got = recv(fd, raw + len, sizeof raw - 1 - len, 0)) > 0;)
        len += (size_t)got;
    close(fd);
    raw[len] = '\0';
    char *end = strstr(raw, "\r\n\r\n");
    *ret_n = 0;
    job_made = false;
    if (!end)
        return 0;
    const char *place = strstr(raw, "\r\nLocation: /v1/jobs/");
    job_made = place && place < end;
    size_t m = len - (size_t)(end + 4 - raw);
    *ret_n = m < cap ? m : cap;
    memcpy(ret, end + 4, *ret_n);
    return atoi(raw + 9);
}

static char reply[(2 << 20) + 1]; /* with a NUL where a test puts one */
static size_t reply_len;

static int send_simple(const char *method, const char *target)
{
    return ask(method, target, "", NULL, 0, reply, sizeof reply - 1, &reply_len);
}

static void settle(int64_t bytes)
{
    for (int i = 0; i < 2000 && engine_bytes_in_use(server.engine) != bytes; i++)
        usleep(1000);
    assert_int_equal(engine_bytes_in_use(server.engine), bytes);
}

static float u[N];

static void contents(float *ret)
{
    assert_int_equal(send_simple("GET", "/v1/arrays/u/data"), 200);
    assert_int_equal(reply_len, sizeof u);
    memcpy(ret, reply, sizeof u);
}

static void restore(void)
{
    assert_int_equal(
        ask("PUT", "/v1/arrays/u/data", OCTETS, u, sizeof u, reply, sizeof reply - 1, &reply_len),
        204);
}

static inline void put_u(void)
{
    for (int i = 0; i < N; i++)
        u[i] = (float)i / 3;
    assert_int_equal(ask("POST", "/v1/arrays?dtype=float32&shape=1000&name=u", OCTETS, u, sizeof u,
                         reply, sizeof reply - 1, &reply_len),
                     201);
}

static const char *location; /* where `u` is before each request; NULL: wherever */

static void place(void)
{
    char body[64];
    int n = snprintf(body, sizeof body, "{\"location\":\"%s\"}", location);
    assert_int_equal(
        ask("PATCH", "/v1/arrays/u", JSON, body, (size_t)n, reply, sizeof reply - 1, &reply_len),
        200);
}

static void is_placed(void)
{
    char member[64];
    snprintf(member, sizeof member, "\"location\":\"%s\"", location);
    assert_int_equal(send_simple("GET", "/v1/arrays/u"), 200);
    reply[reply_len] = '\0';
    assert_non_null(strstr(reply, member));
}

static void (*tidy)(void); /* run after each try; NULL: nothing */

/* Sends the request until no allocation fails any more. */
static void torture(const char *method, const char *target, const char *headers, const void *body,
                    size_t n, int status)
{
    if (location)
        place();
    int64_t bytes = engine_bytes_in_use(server.engine), arrays = auth_arrays(server.auth);
    float now[N];
    for (int64_t nth = 1;; nth++) {
        mem_fail_after(nth, false);
        int got = ask(method, target, headers, body, n, reply, sizeof reply - 1, &reply_len);
        int64_t failed = mem_failed();
        const bool made = job_made; /* and may have run: what failed is to say so */
        mem_fail_after(0, false);
        if (tidy)
            tidy();
        if (got != status && got != 507 && got != 0)
            fail_msg("%s %s, allocation %d: %d %.300s", method, target, (int)nth, got, reply);
        int gone = send_simple("DELETE", "/v1/arrays/n");
        if (got == 507 && gone != 404)
            fail_msg("%s %s, allocation %d: refused, but made", method, target, (int)nth);
        contents(now);
        if (got == 507 && !made && memcmp(now, u, sizeof u) != 0)
            fail_msg("%s %s %.*s, allocation %d: refused, but written", method, target,
                     (int)(n < 100 ? n : 0), (const char *)body, (int)nth);
        if (got == 507 && location && !strcmp(method, "PATCH"))
            is_placed();
        if (memcmp(now, u, sizeof u) != 0)
            restore();
        if (location)
            place();
        settle(bytes);
        assert_int_equal(auth_arrays(server.auth), arrays);
        if (!failed) {
            assert_int_equal(got, status);
            break;
        }
        assert_true(nth < 5000);
    }
}

static void torture_json(const char *target, const char *body, const char *accept, int status)
{
    char headers[200];
    snprintf(headers, sizeof headers, JSON "Accept: %s\r\n", accept);
    torture("POST", target, headers, body, strlen(body), status);
}

#endif
