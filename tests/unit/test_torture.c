/* The whole daemon in one process, with every allocation of a request failing once: the reply is
 * the right one, 507, or a closed connection; a request that failed has changed nothing; and
 * memory, arrays and bytes in use are back where they were. */
#include "tests/unit/torture.h"

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
    torture_delete("/v1/links", "{\"expires_s\":60,\"arrays\":[\"u\"]}");
    torture_new_sessions();
    torture_json("/v1/links", "{\"expires_s\":60,\"arrays\":[\"u\"]}", "*/*", 201);
    static const char *const looks[] = {"/",
                                        "/v1/login",
                                        "/v1/links",
                                        "/v1/arrays",
                                        "/v1/arrays/u",
                                        "/v1/info",
                                        "/v1/sessions",
                                        "/v1/sessions/default",
                                        "/metrics"};
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

/* A stream up to its first event: its status, 0 without a reply; *ret_told: there was one. */
static int listen_to(const char *target, bool *ret_told)
{
    static char raw[1 << 16];
    char head[256];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval t = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int k = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target);
    assert_int_equal(send(fd, head, (size_t)k, MSG_NOSIGNAL), k);
    size_t len = 0;
    const char *body = NULL;
    int status = 0;
    *ret_told = false;
    for (ssize_t got; !*ret_told && (!status || status == 200) && len < sizeof raw - 1 &&
                      (got = recv(fd, raw + len, sizeof raw - 1 - len, 0)) > 0;) {
        raw[len += (size_t)got] = '\0';
        body = strstr(raw, "\r\n\r\n");
        status = body ? atoi(raw + 9) : 0;
        *ret_told = body && strstr(body, "data: ") && strstr(body, "\n\n");
    }
    const struct linger reset = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    return status;
}

/* That a client has gone is seen some moments later: waits until no more than so many are left. */
static void streams_end(int64_t most)
{
    struct http_gauges g;
    do {
        usleep(1000);
        http_gauges(server.http, &g);
    } while (g.connections > most);
}

static void torture_stream(const char *target)
{
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        bool told;
        mem_fail_after(nth, false);
        int got = listen_to(target, &told);
        failed = mem_failed();
        mem_fail_after(0, false);
        streams_end(50);
        if (!(got == 200 && told) && !(failed && (got == 200 || got == 507 || got == 0)))
            fail_msg("%s, allocation %d: %d", target, (int)nth, got);
    }
}

static void torture_streams(void)
{
    static const char made[] = "{\"name\":\"m\",\"shape\":[20,30],\"fill\":2}";
    assert_int_equal(
        ask("POST", "/v1/arrays", JSON, made, strlen(made), reply, sizeof reply - 1, &reply_len),
        201);
    torture_stream("/v1/events");
    torture_stream("/v1/arrays/m/events");
    torture_stream("/v1/arrays/m/events?frames=true&cmap=magma&percentiles=1,99");
    streams_end(0);
    assert_int_equal(send_simple("DELETE", "/v1/arrays/m"), 204);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    int64_t live = mem_live();
    start(0);
    put_u();
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
    torture_streams();
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
    put_u();
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
