/* The whole daemon in one process, with every allocation of a request failing once: the reply is
 * the right one, 507, or a closed connection; a request that failed has changed nothing; and
 * memory, arrays and bytes in use are back where they were. */
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
#include "compute/engine.h"
#include "protocol/npy.h"
#include "server/auth.h"
#include "server/config.h"
#include "server/metrics.h"
#include "server/room.h"
#include "server/routes.c"
#include "server/scheduler.h"
#include "server/server.h"
#include "server/turn.h"

#define JSON   "Content-Type: application/json\r\n"
#define OCTETS "Content-Type: application/octet-stream\r\n"
#define NPY    "Content-Type: application/x-npy\r\n"
#define N      1000

static struct server server;
static struct config config;
static int port;

/* memory: the device's, 0: what there is; else the daemon makes room in it. */
static void start(int64_t memory)
{
    char *const argv[] = {(char *)"arrayd", (char *)"--listen", (char *)"127.0.0.1:0",
                          (char *)"--evict", NULL};
    struct err e = ERR_INIT;
    enum config_action action;
    assert_int_equal(config_load(memory ? 4 : 3, argv, &config, &action, &e), ERR_OK);
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
                             .idle_timeout_s = 20,
                             .drain_timeout_s = 1,
                             .make_room = memory ? room_make : NULL,
                             .room_free = room_free,
                             .turn_take = turn_take,
                             .turn_leave = turn_leave};
    struct sched_config sc = {
        .n_devices = 1, .window = 10, .max_waiting = 1000, .max_waiting_all = 1000};
    server.config = &config;
    server.metrics = metrics_new();
    assert_non_null(server.metrics);
    assert_int_equal(engine_open(&ec, &server.engine, &e), ERR_OK);
    assert_int_equal(sched_new(&sc, &server.sched, &e), ERR_OK);
    limits.sched = server.sched;
    assert_int_equal(auth_new(server.engine, &limits, NULL, &server.auth, &e), ERR_OK);
    assert_int_equal(http_start(&server, &hc, &server.http, &e), ERR_OK);
    const char *const *addresses;
    assert_int_equal(http_addresses(server.http, false, &addresses), 1);
    port = atoi(strrchr(addresses[0], ':') + 1);
}

static void stop(void)
{
    http_stop(server.http);
    auth_free(server.auth);
    engine_close(server.engine);
    sched_free(server.sched);
    metrics_free(server.metrics);
    config_free(&config);
}

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
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s"
                     "Content-Length: %zu\r\n\r\n",
                     method, target, headers, n);
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
    if (!end)
        return 0;
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
        mem_fail_after(0, false);
        if (got != status && got != 507 && got != 0)
            fail_msg("%s %s, allocation %d: %d %.300s", method, target, (int)nth, got, reply);
        int gone = send_simple("DELETE", "/v1/arrays/n");
        if (got == 507 && gone != 404)
            fail_msg("%s %s, allocation %d: refused, but made", method, target, (int)nth);
        contents(now);
        if (got == 507 && memcmp(now, u, sizeof u) != 0)
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

/* Deletes all sessions but the default one; how many. */
static int delete_sessions(void)
{
    char target[64];
    for (int n = 0;; n++) {
        assert_int_equal(send_simple("GET", "/v1/sessions"), 200);
        reply[reply_len] = '\0';
        const char *other = strstr(reply, "\"default\":false");
        if (!other)
            return n;
        const char *id = NULL;
        for (const char *p = reply; (p = strstr(p, "\"id\":\"")) && p < other; p += 6)
            id = p + 6;
        assert_non_null(id);
        snprintf(target, sizeof target, "/v1/sessions/%.*s", (int)strcspn(id, "\""), id);
        assert_int_equal(send_simple("DELETE", target), 204);
    }
}

static void torture_new_sessions(void)
{
    static const char body[] = "{\"name\":\"s\",\"ttl_s\":60}";
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        mem_fail_after(nth, false);
        int got = ask("POST", "/v1/sessions", JSON, body, strlen(body), reply, sizeof reply - 1,
                      &reply_len);
        failed = mem_failed();
        mem_fail_after(0, false);
        if (got != 201 && !(failed && (got == 507 || got == 0)))
            fail_msg("a session, allocation %d: %d %.300s", (int)nth, got, reply);
        int n = delete_sessions();
        if (got)
            assert_int_equal(n, got == 201);
    }
}

/* Makes something and deletes it with the nth allocation failing: it is gone, or all there. */
static void torture_delete(const char *made_at, const char *body)
{
    int64_t bytes = engine_bytes_in_use(server.engine), arrays = auth_arrays(server.auth);
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        char target[64];
        assert_int_equal(
            ask("POST", made_at, JSON, body, strlen(body), reply, sizeof reply - 1, &reply_len),
            201);
        reply[reply_len] = '\0';
        const char *id = strstr(reply, "\"id\":\"") + 6;
        snprintf(target, sizeof target, "%s/%.*s", made_at, (int)strcspn(id, "\""), id);
        mem_fail_after(nth, false);
        int got = send_simple("DELETE", target);
        failed = mem_failed();
        mem_fail_after(0, false);
        if (got != 204 && !(failed && (got == 507 || got == 0)))
            fail_msg("DELETE %s, allocation %d: %d", made_at, (int)nth, got);
        int again = send_simple("DELETE", target);
        assert_true(got == 204 ? again == 404 : again == 204 || (got == 0 && again == 404));
        settle(bytes);
        assert_int_equal(auth_arrays(server.auth), arrays);
    }
}

static void torture_json(const char *target, const char *body, const char *accept, int status)
{
    char headers[200];
    snprintf(headers, sizeof headers, JSON "Accept: %s\r\n", accept);
    torture("POST", target, headers, body, strlen(body), status);
}

/* Arrays and sessions as things: made, looked at, changed, deleted. `u` stays. */
static void torture_objects(void)
{
    static const char *const made[] = {
        "{\"name\":\"n\",\"shape\":[30,40]}",
        "{\"name\":\"n\",\"shape\":[7],\"fill\":2.5,\"dtype\":\"float16\"}",
        "{\"name\":\"n\",\"data\":[[1,2],[3,4]],\"dtype\":\"complex64\"}",
        "{\"name\":\"n\",\"data\":[true,false]}",
        "{\"name\":\"n\",\"arange\":{\"stop\":100}}",
        "{\"name\":\"n\",\"linspace\":{\"start\":0,\"stop\":1}}",
        "{\"name\":\"n\",\"eye\":{\"n\":9}}",
        "{\"name\":\"n\",\"shape\":[50],\"random\":{\"distribution\":\"normal\",\"seed\":1}}",
        "{\"name\":\"n\",\"like\":\"u\"}",
    };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        torture_json("/v1/arrays", made[i], "*/*", 201);
    torture_json("/v1/arrays/u/views", "{\"index\":\"::2\",\"reshape\":[10,-1],\"name\":\"n\"}",
                 "*/*", 201);
    torture_json("/v1/arrays/u/views", "{\"index\":\"1:-1\",\"dtype\":\"int32\",\"name\":\"n\"}",
                 "*/*", 201);
    torture_json("/v1/arrays/u/copy", "{\"name\":\"n\"}", "*/*", 201);
    torture_json("/v1/arrays/u/resize", "{\"shape\":[10,100]}", "*/*", 200);
    torture_json("/v1/arrays/u/resize", "{\"shape\":[1000]}", "*/*", 200);
    static const char patch[] = "{\"name\":\"u\",\"read_only\":false}";
    torture("PATCH", "/v1/arrays/u", JSON, patch, strlen(patch), 200);
    static const char twin[] = "{\"name\":\"twin\",\"like\":\"u\"}";
    assert_int_equal(
        ask("POST", "/v1/arrays", JSON, twin, strlen(twin), reply, sizeof reply - 1, &reply_len),
        201);
    torture_json("/v1/arrays/u/swap", "{\"with\":\"twin\"}", "*/*", 200);
    assert_int_equal(send_simple("DELETE", "/v1/arrays/twin"), 204);
    torture_delete("/v1/arrays", "{\"shape\":[10],\"name\":\"d\"}");
    torture_delete("/v1/sessions", "{}");
    torture_new_sessions();
    static const char *const looks[] = {"/v1/arrays",   "/v1/arrays/u",         "/v1/info",
                                        "/v1/sessions", "/v1/sessions/default", "/metrics"};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        torture("GET", looks[i], "", NULL, 0, 200);
    torture("POST", "/v1/sessions/default/sync", "", NULL, 0, 200);
}

/* `u` in host memory, and on its way there and back. */
static void torture_moves(void)
{
    static const char out[] = "{\"location\":\"host\"}", back[] = "{\"location\":\"device\"}";
    float other[N] = {1};
    location = "device";
    torture("PATCH", "/v1/arrays/u", JSON, out, strlen(out), 200);
    location = "host";
    torture("PATCH", "/v1/arrays/u", JSON, back, strlen(back), 200);
    torture("GET", "/v1/arrays/u/data", "", NULL, 0, 200);
    torture_json("/v1/evaluate", "{\"expr\":\"u*2 + u\",\"name\":\"n\"}", "*/*", 201);
    torture_json("/v1/evaluate", "{\"expr\":\"sum(u)\"}", "*/*", 200);
    torture_json("/v1/evaluate", "{\"expr\":\"2*u\",\"out\":\"u\"}", "*/*", 200);
    torture_json("/v1/evaluate", "{\"expr\":\"u[::-1]\",\"out\":\"u\"}", "*/*", 200);
    torture_json("/v1/evaluate", "{\"expr\":\"1.5\",\"out\":\"u\",\"index\":\"5:\"}", "*/*", 200);
    torture_json("/v1/evaluate",
                 "{\"expr\":\"take(u, astype(u*0, 'int64') + 1000)\",\"out\":\"u\"}", "*/*", 422);
    torture("PUT", "/v1/arrays/u/data", OCTETS, other, sizeof other, 204);
    torture("PUT", "/v1/arrays/u/data?index=::-2", OCTETS, other, sizeof other / 2, 204);
    torture_json("/v1/arrays/u/copy", "{\"name\":\"n\"}", "*/*", 201);
    location = "device";
    place();
    location = NULL;
}

#define FACES                                                                                      \
    "[[{\"type\":\"dirichlet\",\"value\":1},{\"type\":\"neumann\",\"value\":2}],\"periodic\"]"

static void torture_grids(void)
{
    static const char *const made[] = {
        "{\"name\":\"n\",\"shape\":[3,4],\"ghost\":[1,2],\"boundary\":" FACES "}",
        "{\"name\":\"n\",\"data\":[[1,2],[3,4]],\"ghost\":[1,1],\"spacing\":[0.5,2]}",
        "{\"name\":\"n\",\"shape\":[2,2],\"fill\":1,\"congruent_to\":\"g\"}",
        "{\"name\":\"n\",\"like\":\"g\"}",
    };
    static const char grid[] = "{\"name\":\"g\",\"shape\":[6,7],\"fill\":1.5,\"ghost\":[1,1],"
                               "\"boundary\":" FACES "}";
    assert_int_equal(
        ask("POST", "/v1/arrays", JSON, grid, strlen(grid), reply, sizeof reply - 1, &reply_len),
        201);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        torture_json("/v1/arrays", made[i], "*/*", 201);
    torture_json("/v1/arrays/g/copy", "{\"name\":\"n\"}", "*/*", 201);
    torture_json("/v1/arrays/g/views", "{\"ghost\":true,\"name\":\"n\"}", "*/*", 201);
    torture_json("/v1/arrays/g/fill_ghost", "{}", "*/*", 200);
    torture("GET", "/v1/arrays/g/data?ghost=1&index=-1:,0", "", NULL, 0, 200);
    torture_json("/v1/evaluate", "{\"expr\":\"laplacian(g*2, boundary='ghost')\",\"name\":\"n\"}",
                 "*/*", 201);
    torture_json("/v1/evaluate", "{\"expr\":\"shift(g, [1, -1], 'array')\",\"name\":\"n\"}", "*/*",
                 201);
    torture_json("/v1/layouts", "{\"shapes\":[[3,4],[4,3]],\"ghosts\":[[1,1],[0,0]]}", "*/*", 200);
    static const char patch[] = "{\"boundary\":" FACES ",\"spacing\":[2,3]}";
    torture("PATCH", "/v1/arrays/g", JSON, patch, strlen(patch), 200);
    torture_json("/v1/arrays/g/resize", "{\"shape\":[6,7]}", "*/*", 200);
    assert_int_equal(send_simple("DELETE", "/v1/arrays/g"), 204);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    int64_t live = mem_live();
    start(0);
    for (int i = 0; i < N; i++)
        u[i] = (float)i / 3;
    assert_int_equal(ask("POST", "/v1/arrays?dtype=float32&shape=1000&name=u", OCTETS, u, sizeof u,
                         reply, sizeof reply - 1, &reply_len),
                     201);
    int64_t bytes = engine_bytes_in_use(server.engine);

    /* uploads */
    torture("POST", "/v1/arrays?dtype=float32&shape=1000&name=n", OCTETS, u, sizeof u, 201);
    torture("POST", "/v1/arrays?dtype=float32&shape=1000&name=n", "", u, sizeof u, 201);
    torture("POST", "/v1/arrays?dtype=bool&shape=4000&name=n", OCTETS, u, sizeof u, 201);
    char npy[NPY_WRITE_MAX + sizeof u];
    const int64_t shape[] = {N};
    size_t head = npy_write_header(DT_F32, 1, shape, npy);
    memcpy(npy + head, u, sizeof u);
    torture("POST", "/v1/arrays?name=n", NPY, npy, head + sizeof u, 201);
    *(char *)memchr(npy, '<', head) = '>';
    torture("POST", "/v1/arrays?name=n", NPY, npy, head + sizeof u, 201);
    float other[N] = {1};
    torture("PUT", "/v1/arrays/u/data", OCTETS, other, sizeof other, 204);
    torture("PUT", "/v1/arrays/u/data?index=::-2", OCTETS, other, sizeof other / 2, 204);
    torture("PUT", "/v1/arrays/u/data?index=:3", JSON, "[1, 2.5, 1e3]", 13, 204);

    /* downloads */
    torture("GET", "/v1/arrays/u/data", "", NULL, 0, 200);
    torture("GET", "/v1/arrays/u/data?index=::-3", "Accept: application/x-npy\r\n", NULL, 0, 200);
    torture("GET", "/v1/arrays/u/data", "Accept: application/json\r\n", NULL, 0, 200);
    torture("GET", "/v1/arrays/u/data", "Range: bytes=10-20\r\n", NULL, 0, 206);

    /* expressions */
    torture_json("/v1/evaluate", "{\"expr\":\"u*2\",\"inline\":true}", "*/*", 200);
    torture_json("/v1/evaluate", "{\"expr\":\"sum(exp(u)) + k\",\"bind\":{\"k\":[1,2]}}", "*/*",
                 200);
    torture_json("/v1/evaluate",
                 "{\"expr\":\"u - m\",\"let\":[[\"m\",\"mean(u)\"]],\"name\":\"n\"}", "*/*", 201);
    torture_json("/v1/evaluate", "{\"expr\":\"v[::-1]\",\"bind\":{\"v\":\"u\"},\"out\":\"u\"}",
                 "*/*", 200);
    torture_json("/v1/evaluate",
                 "{\"tree\":{\"op\":\"shift\",\"args\":[\"u\",[1]],\"boundary\":\"wrap\"}}",
                 "application/x-npy", 200);
    torture_json("/v1/evaluate", "{\"expr\":\"take(u, astype(u*0, 'int64') + 1)\",\"inline\":true}",
                 "*/*", 200);
    torture_json("/v1/evaluate",
                 "{\"expr\":\"take(u, astype(u*0, 'int64') + 1000)\",\"out\":\"u\"}", "*/*", 422);
    torture_json("/v1/evaluate", "{\"expr\":\"concat([u[1:], u[:1]*2])\",\"out\":\"u\"}", "*/*",
                 200);
    torture_json("/v1/explain",
                 "{\"expr\":\"take(u, [1, 0, 2]) + take(u, astype(u[:3], 'int8'))\"}", "*/*", 200);
    torture_json("/v1/explain", "{\"expr\":\"where(u > 1, u, laplacian(u)) / max(u)\"}", "*/*",
                 200);
    settle(bytes);
    torture_objects();
    torture_moves();
    torture_grids();
    settle(bytes);

    /* past the first block: streamed, and counted first as JSON */
    static const char big[] = "{\"name\":\"big\",\"shape\":[50000],\"dtype\":\"int32\"}";
    assert_int_equal(
        ask("POST", "/v1/arrays", JSON, big, strlen(big), reply, sizeof reply - 1, &reply_len),
        201);
    torture("GET", "/v1/arrays/big/data", "", NULL, 0, 200);
    torture("GET", "/v1/arrays/big/data", "Accept: application/json\r\n", NULL, 0, 200);
    torture_json("/v1/evaluate", "{\"expr\":\"big + 1\",\"inline\":true}", "*/*", 200);
    stop();
    assert_int_equal(mem_live(), live);
}

/* The device holds `u` and nothing else: room has to be made for what comes. */
static void every_allocation_for_room_fails_once(void **state)
{
    (void)state;
    int64_t live = mem_live();
    start(sizeof u + 500);
    assert_int_equal(ask("POST", "/v1/arrays?dtype=float32&shape=1000&name=u", OCTETS, u, sizeof u,
                         reply, sizeof reply - 1, &reply_len),
                     201);
    location = "device";
    char npy[NPY_WRITE_MAX + sizeof u];
    const int64_t shape[] = {N};
    size_t head = npy_write_header(DT_F32, 1, shape, npy);
    memcpy(npy + head, u, sizeof u);
    torture("POST", "/v1/arrays?name=n", NPY, npy, head + sizeof u, 201);
    torture("POST", "/v1/arrays?dtype=float32&shape=1000&name=n", OCTETS, u, sizeof u, 201);
    torture("POST", "/v1/arrays?dtype=float32&shape=1000&name=n", "", u, sizeof u, 201);
    torture_json("/v1/arrays", "{\"name\":\"n\",\"shape\":[500]}", "*/*", 201);
    torture_json("/v1/arrays", "{\"name\":\"n\",\"arange\":{\"stop\":500}}", "*/*", 201);
    static char data[4096] = "{\"name\":\"n\",\"ghost\":[1],\"data\":[0";
    while (strlen(data) < 700)
        strcat(data, ",1.5");
    strcat(data, "]}");
    torture_json("/v1/arrays", data, "*/*", 201);
    torture_json("/v1/evaluate", "{\"tree\":1.5,\"dtype\":\"float64\"}", "*/*", 200);
    location = NULL;
    stop();
    assert_int_equal(mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(every_allocation_for_room_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
