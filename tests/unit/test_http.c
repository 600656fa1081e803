/* The HTTP front with handlers of the test's own: every way of waiting, streaming and failing, by
 * several clients at once, with clients that leave in the middle, and with every allocation failing
 * once. The parts behind it (engine, principals) are replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "server/http/http.h"
#include "server/server.h"
#include "tests/unit/http_handlers.h"

/* --- a daemon and a client --- */

static struct server server;
static int port;

static const char *const listen_on[] = {"127.0.0.1:0"};
static const struct http_config config = {
    .listen = listen_on,
    .n_listen = 1,
    .max_header_bytes = 8192,
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
    .drain_timeout_s = 0.5,
};

static double stuck_s = 60;

static enum err_code start(void)
{
    struct err e = ERR_INIT;
    struct http_config c = config;
    c.stuck_s = stuck_s;
    memset(&server, 0, sizeof server);
    TRY(http_start(&server, &c, &calls, &server.http, &e));
    const char *const *addresses;
    assert_int_equal(http_addresses(server.http, false, &addresses), 1);
    port = atoi(strrchr(addresses[0], ':') + 1);
    return ERR_OK;
}

static void stop(void)
{
    assert_true(http_stop(server.http));
    while (atomic_load(&wakes))
        usleep(100);
    assert_int_equal(atomic_load(&counters), 0);
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval t = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static bool send_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Sends a request with `body` (may be NULL) and reads the reply up to the close. Returns the
 * status (0: the connection was closed without one) and the body. */
static int ask(const char *method, const char *target, const char *body, size_t n, char *ret_body,
               size_t cap, size_t *ret_n)
{
    char head[512];
    int fd = dial();
    snprintf(
        head, sizeof head,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
        method, target, n);
    if (send_all(fd, head, strlen(head)) && n)
        send_all(fd, body, n);
    static _Thread_local char raw[1 << 20];
    size_t len = 0;
    for (ssize_t k; len < sizeof raw - 1 && (k = recv(fd, raw + len, sizeof raw - 1 - len, 0)) > 0;)
        len += (size_t)k;
    raw[len] = '\0';
    close(fd);
    char *end = strstr(raw, "\r\n\r\n");
    *ret_n = 0;
    if (!end)
        return 0;
    size_t body_len = len - (size_t)(end + 4 - raw);
    if (body_len > cap)
        body_len = cap;
    memcpy(ret_body, end + 4, body_len);
    *ret_n = body_len;
    return atoi(raw + 9);
}

static void expect(const char *method, const char *target, const char *body, size_t n, int status,
                   const char *wanted)
{
    static _Thread_local char got[1 << 20];
    size_t len;
    int s = ask(method, target, body, n, got, sizeof got - 1, &len);
    got[len] = '\0';
    if (s != status || (wanted && strcmp(got, wanted) != 0))
        fail_msg("%s %s: %d %.200s", method, target, s, got);
}

static char *letters(size_t n)
{
    char *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    p[n] = '\0';
    return p;
}

/* --- tests --- */

static void every_way_of_replying(void **state)
{
    (void)state;
    int64_t live = mem_live();
    assert_int_equal(start(), ERR_OK);
    char *text = letters(300000);
    expect("GET", "/hello", NULL, 0, 200, "hello");
    expect("POST", "/echo", text, 500, 200, NULL);
    char *some = letters(5000);
    expect("POST", "/echo", some, 5000, 200, some); /* by a worker */
    expect("POST", "/echo", text, 300000, 200, text);
    expect("GET", "/wait?now=1", NULL, 0, 200, "waited");
    expect("GET", "/wait", NULL, 0, 200, "waited");
    expect("GET", "/wait?us=20000", NULL, 0, 200, "waited");
    expect("GET", "/twice/x/y?us=1000", NULL, 0, 200, "waited");
    expect("GET", "/offload", NULL, 0, 200, "waited");
    expect("GET", "/offload?wait=1&us=1000", NULL, 0, 200, "waited");
    expect("GET", "/forget", NULL, 0, 500, NULL);
    expect("GET", "/source?n=300000", NULL, 0, 200, text);
    expect("GET", "/source?n=300000&lazy=1", NULL, 0, 200, text);
    expect("GET", "/source?n=0", NULL, 0, 200, "");
    expect("PUT", "/sink", text, 300000, 200, "300000");
    expect("PUT", "/sink?lazy=1", text, 300000, 200, "300000");
    expect("PUT", "/later?us=1000", text, 300000, 200, "300000");
    expect("PUT", "/sink", NULL, 0, 200, "0");
    expect("PUT", "/sink?fail=1", text, 300000, 422, NULL);
    expect("PUT", "/sink?fail=200000&us=1000", text, 300000, 422, NULL);
    expect("PUT", "/sink?fail=1&us=100", text, 1, 422, NULL);
    expect("GET", "/nothing", text, 300000, 404, NULL);
    expect("PUT", "/hello", text, 300000, 405, NULL);
    expect("GET", "/twice/x", NULL, 0, 404, NULL);
    expect("GET", "/twice//y", NULL, 0, 404, NULL);

    /* a client that closes its sending side still gets what it asked for */
    static const char *const patient[] = {"/hello", "/wait?us=20000", "/twice/a/b?us=20000",
                                          "/offload?wait=1&us=20000", "/source?n=5&lazy=1"};
    for (size_t i = 0; i < sizeof patient / sizeof *patient; i++) {
        char line[256], reply[1024];
        int fd = dial();
        snprintf(line, sizeof line, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", patient[i]);
        send_all(fd, line, strlen(line));
        usleep(i % 2 ? 1000 : 0);
        shutdown(fd, SHUT_WR);
        ssize_t k = recv(fd, reply, sizeof reply, MSG_WAITALL);
        assert_true(k > 12);
        assert_memory_equal(reply, "HTTP/1.1 200", 12);
        close(fd);
    }

    /* a source that breaks: the client sees a short body, never a wrong one */
    char got[64];
    size_t n;
    ask("GET", "/source?n=50000&fail=20000", NULL, 0, got, sizeof got, &n);
    assert_memory_equal(got, text, n);
    free(some);
    free(text);
    stop();
    assert_int_equal(mem_live(), live);
}

static void *rude_client(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    static const char *const targets[] = {
        "GET /wait?us=3000",
        "GET /offload?wait=1&us=2000",
        "GET /source?n=5000000&lazy=1",
        "GET /twice/a/b?us=500",
        "PUT /sink?lazy=1",
        "PUT /sink?fail=10&us=1000",
        "PUT /later?us=1000&lazy=1",
        "GET /hello",
        "PUT /nothing",
    };
    char *text = letters(200000), head[256];
    for (int i = 0; i < 60; i++) {
        const char *target = targets[rand_r(&seed) % (sizeof targets / sizeof *targets)];
        size_t n = *target == 'P' ? 200000 : 0;
        int fd = dial();
        snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                 target, n);
        send_all(fd, head, strlen(head));
        send_all(fd, text, n ? (size_t)rand_r(&seed) % n : 0);
        usleep((unsigned)rand_r(&seed) % 3000);
        if (rand_r(&seed) % 2) {
            struct linger l = {.l_onoff = 1};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        }
        close(fd);
    }
    free(text);
    return NULL;
}

static void *polite_client(void *arg)
{
    (void)arg;
    char *text = letters(50000);
    for (int i = 0; i < 40; i++) {
        expect("GET", "/wait?us=300", NULL, 0, 200, "waited");
        expect("GET", "/source?n=50000&lazy=1", NULL, 0, 200, text);
        expect("PUT", "/sink?lazy=1", text, 50000, 200, "50000");
        expect("POST", "/echo", text, 50000, 200, text);
    }
    free(text);
    return NULL;
}

static void clients_that_leave_harm_nobody(void **state)
{
    (void)state;
    int64_t live = mem_live();
    assert_int_equal(start(), ERR_OK);
    pthread_t t[8];
    for (uintptr_t i = 0; i < 8; i++)
        assert_int_equal(
            pthread_create(&t[i], NULL, i < 6 ? rude_client : polite_client, (void *)(i + 1)), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    struct http_gauges g;
    for (int i = 0; i < 500; i++) {
        http_gauges(server.http, &g);
        if (!g.connections)
            break;
        usleep(10000);
    }
    assert_int_equal(g.connections, 0);
    assert_int_equal(g.in_flight, 0);
    assert_int_equal(g.suspended, 0);
    stop();
    assert_int_equal(mem_live(), live);
}

static void stops_while_everything_is_going_on(void **state)
{
    (void)state;
    int64_t live = mem_live();
    for (int round = 0; round < 3; round++) {
        assert_int_equal(start(), ERR_OK);
        static const char *const targets[] = {
            "GET /wait?us=900000",
            "GET /offload?wait=1&us=400000",
            "GET /source?n=100000000&lazy=1",
            "PUT /sink?lazy=1",
            "PUT /later?us=700000",
            "PUT /nothing",
            "GET /hello",
        };
        int fds[64];
        for (int i = 0; i < 64; i++) {
            char head[256];
            fds[i] = dial();
            snprintf(head, sizeof head,
                     "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", targets[i % 7],
                     i % 7 >= 3 && i % 7 <= 5 ? 100000 : 0);
            send_all(fds[i], head, i % 13 == 12 ? strlen(head) / 2 : strlen(head));
        }
        if (round)
            usleep(50000);
        stop();
        for (int i = 0; i < 64; i++)
            close(fds[i]);
        assert_int_equal(mem_live(), live);
    }
}

/* Work that does not end is left to the caller; what is queued behind it is not begun any more. */
static void stops_without_what_does_not_end(void **state)
{
    (void)state;
    int64_t live = mem_live();
    int fds[6];
    stuck_s = 0.2;
    assert_int_equal(start(), ERR_OK);
    for (int i = 0; i < 6; i++) {
        static const char head[] = "GET /plan HTTP/1.1\r\nHost: localhost\r\n\r\n";
        fds[i] = dial();
        send_all(fds[i], head, strlen(head));
    }
    while (!atomic_load(&plans))
        usleep(1000);
    assert_false(http_stop(server.http));
    while (!http_stop(server.http))
        ;
    assert_int_equal(atomic_load(&plans), 1);
    for (int i = 0; i < 6; i++)
        close(fds[i]);
    assert_int_equal(mem_live(), live);
    stuck_s = 60;
}

static void survives_memory_failures(void **state)
{
    (void)state;
    int64_t live = mem_live();
    for (int64_t nth = 1;; nth++) { /* the start */
        mem_fail_after(nth, false);
        enum err_code rc = start();
        int64_t failed = mem_failed();
        mem_fail_after(0, false);
        if (!rc)
            stop();
        assert_int_equal(mem_live(), live);
        if (!failed)
            break;
        assert_int_equal(rc, ERR_OUT_OF_MEMORY);
    }
    static const struct {
        const char *method, *target;
        size_t n;
        int status;
    } cases[] = {
        {"GET", "/hello", 0, 200},       {"POST", "/echo?x=1", 20000, 200},
        {"GET", "/wait?us=100", 0, 200}, {"GET", "/offload?wait=1&us=100", 0, 200},
        {"GET", "/twice/a/b", 0, 200},   {"GET", "/source?n=30000", 0, 200},
        {"PUT", "/sink", 20000, 200},    {"PUT", "/sink?fail=10", 20000, 422},
        {"GET", "/nothing", 0, 404},     {"PUT", "/hello", 0, 405},
    };
    assert_int_equal(start(), ERR_OK);
    char *text = letters(20000);
    static char got[1 << 16];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int64_t failed = 1;
        for (int64_t nth = 1; failed; nth++) {
            size_t n;
            mem_fail_after(nth, false);
            int s = ask(cases[c].method, cases[c].target, text, cases[c].n, got, sizeof got, &n);
            failed = mem_failed();
            mem_fail_after(0, false);
            if (s != cases[c].status && !(failed && (s == 0 || s == 507 || s == 200)))
                fail_msg("%s %s with allocation %d refused: %d", cases[c].method, cases[c].target,
                         (int)nth, s);
        }
        expect(cases[c].method, cases[c].target, text, cases[c].n, cases[c].status, NULL);
    }
    free(text);
    stop();
    assert_int_equal(mem_live(), live);
}

static void says_when_to_retry_without_memory(void **state)
{
    (void)state;
    static const char request[] = "GET /starve HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char raw[4096];
    assert_int_equal(start(), ERR_OK);
    int fd = dial();
    assert_true(send_all(fd, request, strlen(request)));
    ssize_t n = recv(fd, raw, sizeof raw - 1, 0);
    assert_true(n > 0);
    raw[n] = '\0';
    assert_non_null(strstr(raw, "HTTP/1.1 429 "));
    assert_non_null(strstr(raw, "\r\nRetry-After: 7\r\n"));
    close(fd);
    stop();
}

static void a_lost_device_is_remembered(void **state)
{
    (void)state;
    assert_int_equal(start(), ERR_OK);
    assert_false(atomic_load(&server.device_lost));
    expect("GET", "/lose", NULL, 0, 503, NULL);
    assert_true(atomic_load(&server.device_lost)); /* what /readyz looks at */
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_of_replying),
        cmocka_unit_test(clients_that_leave_harm_nobody),
        cmocka_unit_test(stops_while_everything_is_going_on),
        cmocka_unit_test(stops_without_what_does_not_end),
        cmocka_unit_test(says_when_to_retry_without_memory),
        cmocka_unit_test(a_lost_device_is_remembered),
        cmocka_unit_test(survives_memory_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
