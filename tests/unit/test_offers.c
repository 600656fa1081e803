/* Exports without HTTP: every allocation of one failing once, and ends that come at every moment.
 * Each time nothing stays: no lease, no memory, no descriptor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "server/api/routes.c"
#include "server/exports/export.h"
#include "server/exports/export_socket.h"
#include "server/store/lease_use.h"
#include "server/store/session.h"
#include "tests/descriptors.h"

static char folder[] = "/tmp/arrayd-offers-XXXXXX";
static char path[64], fd_path[80];
static struct engine *engine;
static struct handles *handles;
static struct account *account;
static struct sessions *sessions;
static struct session *session;
static struct leases *leases;
static struct lease_uses *uses;
static struct export_socket *listening;
static struct exports *exports;
static struct array *array;

static int set_up(void **state)
{
    static const _Atomic uint32_t weight = 1;
    struct err e = ERR_INIT;
    (void)state;
    log_set_level(LOG_ERROR);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "unix:%s/s", folder);
    snprintf(fd_path, sizeof fd_path, "%s.fd", path + 5);
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 1;
    config.device.shareable = true;
    config.device.shareable_least = 1 << 20;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    const char *const listen[] = {"127.0.0.1:7411", path};
    struct export_socket_config sc = {
        .listen = listen, .n_listen = 2, .mode = 0600, .timeout = 10, .max_connections = 8};
    assert_int_equal(engine_open(&config, &engine, &e), ERR_OK);
    handles = handles_new(10);
    account = account_new(0);
    leases = leases_new(10);
    uses = lease_uses_new();
    assert_int_equal(sessions_new(engine, &limits, handles, account, &weight, &sessions, &e),
                     ERR_OK);
    assert_int_equal(session_get(sessions, SESSION_DEFAULT, true, &session, &e), ERR_OK);
    assert_int_equal(export_socket_open(&sc, &listening, &e), ERR_OK);
    struct exports_config ec = {.engine = engine,
                                .leases = leases,
                                .uses = uses,
                                .timeout = 10,
                                .max = 4,
                                .changed = export_socket_wake,
                                .user = listening};
    exports = exports_new(&ec);
    assert_int_equal(export_socket_start(listening, exports, &e), ERR_OK);
    int64_t shape[] = {1000};
    assert_int_equal(engine_zeros(session->stream, session->account, DT_F32, 1, shape, &array, &e),
                     ERR_OK);
    return 0;
}

static int tear_down(void **state)
{
    const _Atomic bool hurry = true;
    (void)state;
    array_unref(array);
    export_socket_stop(listening, 0, &hurry);
    exports_free(exports);
    export_socket_free(listening);
    session_unref(session);
    sessions_free(sessions);
    handles_free(handles);
    account_unref(account);
    leases_free(leases);
    lease_uses_free(uses);
    assert_true(engine_close(engine));
    assert_int_equal(access(fd_path, F_OK), -1);
    assert_int_equal(mem_live(), 0);
    return rmdir(folder);
}

static void woken(void *user)
{
    atomic_store((_Atomic bool *)user, true);
}

/* Whether a descriptor came for it; the connection is closed, with its end in order or without. */
static bool present(const char *token, bool orderly)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval t = {.tv_sec = 20};
    char line[64], said[512];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {said, sizeof said};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    strcpy(a.sun_path, fd_path);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = -1;
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof a), 0);
    int n = snprintf(line, sizeof line, "%s\n", token);
    assert_int_equal(send(s, line, (size_t)n, MSG_NOSIGNAL), n);
    ssize_t got = recvmsg(s, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (fd >= 0 && orderly) {
        shutdown(s, SHUT_WR);
        assert_int_equal(recv(s, said, 1, 0), 0);
    }
    close(s);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Nothing is left of it. */
static void over(void)
{
    struct lease_claim claim = {.table = leases};
    struct err e = ERR_INIT;
    char lease[ID_SIZE];
    for (int i = 0; i < 20000 && exports_count(exports, NULL) > 0; i++)
        usleep(1000);
    assert_int_equal(exports_count(exports, NULL), 0);
    assert_int_equal(lease_pin(&claim, array, NULL, true, lease, &e), ERR_OK);
    lease_unpin(leases, array_buffer_id(array), lease);
}

/* How far one comes: ERR_OK where its token was good for something. */
static enum err_code export_it(bool write, bool orderly, bool *ret_presented)
{
    struct lease_claim claim = {.table = leases};
    struct err e = ERR_INIT;
    struct offer *o;
    struct offered offered;
    _Atomic bool awake = false;
    *ret_presented = false;
    enum err_code r = offer_new(exports, &claim, array, NULL, write, true, geteuid(), &o, &e);
    if (r != ERR_OK)
        return r;
    offer_ask(o, woken, (void *)&awake);
    while (!atomic_load(&awake))
        usleep(100);
    r = offer_open(o, &offered, &e);
    if (r == ERR_OK) {
        *ret_presented = present(offered.token, orderly);
        if (!*ret_presented)
            exports_end(exports, offered.lease); /* it has no memory to say so */
    }
    offer_close(o);
    return r;
}

static void every_allocation_fails(void **state)
{
    bool presented;
    (void)state;
    assert_int_equal(export_it(true, true, &presented), ERR_OK); /* it is moved, once */
    assert_true(presented);
    over();
    int files = descriptors();
    for (int i = 0; i < 100; i++) { /* the socket of the first may still be open */
        usleep(1000);
        files = descriptors() < files ? descriptors() : files;
    }
    for (int64_t failed = 1, nth = 1; failed; nth++) {
        mem_fail_after(nth, false);
        enum err_code r = export_it(nth % 2, nth % 3, &presented);
        failed = mem_failed();
        mem_fail_after(0, false);
        if (r != ERR_OK && !(failed && r == ERR_OUT_OF_MEMORY))
            fail_msg("allocation %d: %s", (int)nth, err_name(r));
        assert_true(presented || failed);
        over();
        assert_true(nth < 1000);
    }
    for (int write = 0; write <= 1; write++) /* what a move that failed has left is moved to */
        assert_int_equal(export_it(write, true, &presented), ERR_OK);
    over();
    for (int i = 0; i < 1000 && descriptors() != files; i++)
        usleep(1000);
    assert_int_equal(descriptors(), files);
}

/* Ended by another before it is asked for, before it is opened, and when it is. */
static void ends_in_between(void **state)
{
    struct lease_claim claim = {.table = leases};
    (void)state;
    for (int when = 0; when < 4; when++) {
        struct err e = ERR_INIT;
        struct offer *o;
        struct offered offered;
        _Atomic bool awake = false;
        assert_int_equal(offer_new(exports, &claim, array, NULL, true, true, geteuid(), &o, &e),
                         ERR_OK);
        struct lease_use use = lease_use_open(when == 1 ? uses : NULL); /* it has to wait */
        if (when == 0)
            exports_revoke(exports, array_buffer_id(array), NULL, false);
        offer_ask(o, woken, (void *)&awake);
        if (when == 1)
            exports_revoke(exports, array_buffer_id(array), NULL, false);
        lease_use_close(&use);
        while (!atomic_load(&awake))
            usleep(100);
        if (when == 2)
            exports_revoke(exports, array_buffer_id(array), NULL, true);
        enum err_code r = offer_open(o, &offered, &e);
        assert_int_equal(r, when == 3 ? ERR_OK : ERR_CONFLICT);
        if (when == 3) {
            char token[ID_SIZE];
            strcpy(token, offered.token);
            exports_revoke(exports, array_buffer_id(array), NULL, false);
            assert_false(present(token, true));
        }
        offer_close(o);
        over();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(ends_in_between),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
