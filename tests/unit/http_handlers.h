/* The other half of test_http.c: what the HTTP front needs from behind it, replaced, and handlers
 * that wait, stream and fail in every way. Included once. */
#ifndef ARRAYD_TESTS_HTTP_HANDLERS_H
#define ARRAYD_TESTS_HTTP_HANDLERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "server/http/http.h"

/* --- what the front asks --- */

static enum err_code identify(struct request *req, struct principal **whose, struct http_user *ret,
                              struct err *e)
{
    (void)req, (void)whose, (void)ret, (void)e;
    return ERR_OK;
}

static enum err_code authorize(const struct request *req, struct err *e)
{
    (void)req, (void)e;
    return ERR_OK;
}

static bool lasts(struct request *req)
{
    (void)req;
    return true;
}

static enum err_code refuse(struct request *req, struct err *e)
{
    (void)req;
    return err_set(e, ERR_UNAUTHORIZED, "it does not last");
}

static void disconnected(struct principal *whose)
{
    (void)whose;
}

static void ended(struct request *req, int status, double seconds, int64_t in, int64_t out)
{
    (void)req, (void)status, (void)seconds, (void)in, (void)out;
}

/* --- handlers --- */

static void reply_text(struct request *r, const char *text)
{
    struct strb b = {0};
    strb_add(&b, text);
    http_reply_text(r, 200, "text/plain", &b);
}

static void hello(struct request *r)
{
    reply_text(r, "hello");
}

static void echo(struct request *r)
{
    struct strb b = {0};
    strb_addn(&b, r->body, r->body_len);
    http_reply_text(r, 200, "text/plain", &b);
}

static void waited(struct request *r)
{
    reply_text(r, "waited");
}

/* Wakes that are under way, so that a test can be sure that none is left. */
static _Atomic int wakes;

struct alarm {
    void (*ring)(void *what);
    void *what;
    unsigned us;
};

static void *alarm_main(void *arg)
{
    struct alarm a = *(struct alarm *)arg;
    free(arg);
    if (a.us)
        usleep(a.us);
    a.ring(a.what);
    atomic_fetch_sub(&wakes, 1);
    return NULL;
}

static void ring_later(void (*ring)(void *), void *what, unsigned us)
{
    struct alarm *a = malloc(sizeof *a);
    pthread_t t;
    *a = (struct alarm){ring, what, us};
    atomic_fetch_add(&wakes, 1);
    assert_int_equal(pthread_create(&t, NULL, alarm_main, a), 0);
    pthread_detach(t);
}

static void wake_request(void *r)
{
    http_wake(r);
}

static unsigned delay(struct request *r)
{
    const char *us = http_query(r, "us");
    return us ? (unsigned)atoi(us) : 0;
}

static void wait_then(struct request *r)
{
    unsigned us = delay(r);
    http_wait(r, waited);
    if (http_query(r, "now"))
        http_wake(r);
    else
        ring_later(wake_request, r, us);
}

static void wait_twice(struct request *r)
{
    unsigned us = delay(r);
    http_wait(r, wait_then);
    ring_later(wake_request, r, us);
}

static void offload(struct request *r)
{
    http_offload(r, http_query(r, "wait") ? wait_twice : waited);
}

static _Atomic int plans; /* begun */

static void plan(struct request *r)
{
    atomic_fetch_add(&plans, 1);
    usleep(1500000);
    waited(r);
}

/* Work on a worker that cannot be stopped, of a request that may be. */
static void plan_on_worker(struct request *r)
{
    http_may_end(r, NULL);
    http_offload_long(r, plan);
}

static void forget(struct request *r)
{
    (void)r; /* a handler's bug: the client must get an answer all the same */
}

/* A source of `n` bytes that is now and then not ready. */
struct counter {
    struct http_source src;
    struct http_sink sink;
    int64_t n, got, fail_at;
    unsigned calls, us;
    bool lazy;
};
static _Atomic int counters;

static struct counter *counter_new(struct request *r)
{
    struct counter *c = mem_calloc(1, sizeof *c);
    if (!c) {
        struct err e = ERR_INIT;
        err_oom(&e);
        http_reply_error(r, &e);
        return NULL;
    }
    const char *n = http_query(r, "n"), *fail = http_query(r, "fail");
    c->n = n ? atoll(n) : 0;
    c->fail_at = fail ? atoll(fail) : -1;
    c->lazy = http_query(r, "lazy") != NULL;
    c->us = delay(r);
    atomic_fetch_add(&counters, 1);
    return c;
}

static void counter_free(struct counter *c)
{
    atomic_fetch_sub(&counters, 1);
    mem_free(c);
}

#define OF(p, field) ((struct counter *)((char *)(p)-offsetof(struct counter, field)))

static int64_t source_pull(struct http_source *src, int64_t offset, char *buf, size_t n)
{
    struct counter *c = OF(src, src);
    assert_int_equal(offset, c->got);
    if (c->fail_at >= 0 && offset >= c->fail_at)
        return -1;
    if (c->lazy && c->calls++ % 3 == 0) {
        http_source_wake(src); /* before the front has suspended */
        return 0;
    }
    if (n > 10000)
        n = 10000;
    for (size_t i = 0; i < n; i++)
        buf[i] = (char)('a' + (offset + (int64_t)i) % 26);
    c->got += (int64_t)n;
    return (int64_t)n;
}

static void source_free(struct http_source *src)
{
    counter_free(OF(src, src));
}

static void source(struct request *r)
{
    struct counter *c = counter_new(r);
    if (!c)
        return;
    c->src = (struct http_source){.pull = source_pull, .free = source_free};
    http_reply_source(r, 200, "application/octet-stream", c->n, &c->src);
}

static size_t sink_push(struct http_sink *sink, const char *bytes, size_t n, bool *ret_failed)
{
    struct counter *c = OF(sink, sink);
    if (c->lazy && c->calls++ % 3 == 0) {
        http_sink_wake(sink);
        return 0;
    }
    if (c->lazy && n > 1000)
        n = 1000;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 'a' + (c->got + (int64_t)i) % 26) {
            *ret_failed = true;
            return n;
        }
    c->got += (int64_t)n;
    *ret_failed = c->fail_at >= 0 && c->got >= c->fail_at;
    return n;
}

static void sink_refuse(struct request *r)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_LENGTH_MISMATCH, "the sink did not like it");
    http_reply_error(r, &e);
}

static void sink_end(struct http_sink *sink, struct request *r)
{
    struct counter *c = OF(sink, sink);
    char text[32];
    bool failed = c->fail_at >= 0 && c->got >= c->fail_at;
    unsigned us = c->us;
    snprintf(text, sizeof text, "%lld", (long long)c->got);
    counter_free(c);
    if (!failed) {
        reply_text(r, text);
    } else if (us) {
        http_wait(r, sink_refuse);
        ring_later(wake_request, r, us);
    } else {
        sink_refuse(r);
    }
}

static void sink_abort(struct http_sink *sink)
{
    counter_free(OF(sink, sink));
}

static void accept_body(struct request *r)
{
    struct counter *c = counter_new(r);
    if (!c)
        return;
    c->sink = (struct http_sink){.push = sink_push, .end = sink_end, .abort = sink_abort};
    http_accept_body(r, &c->sink);
}

static void accept_later(struct request *r)
{
    http_wait(r, accept_body);
    ring_later(wake_request, r, delay(r));
}

static void lose_device(struct request *r)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_DEVICE_LOST, "it fell off the bus");
    http_reply_error(r, &e);
}

/* Refuses when it has taken all memory that the request may have. */
static void starve(struct request *r)
{
    struct err e = ERR_INIT;
    for (size_t n = 1 << 20; n; n /= 2)
        while (arena_alloc(r->arena, n))
            ;
    err_set(&e, ERR_QUOTA, "no memory is left");
    e.retry_s = 7;
    http_reply_error(r, &e);
}

static const struct route routes[] = {
    {"GET", "/starve", BODY_NONE, starve, "/starve"},
    {"GET", "/lose", BODY_NONE, lose_device, "/lose"},
    {"GET", "/hello", BODY_NONE, hello, "/hello"},
    {"POST", "/echo", BODY_BUFFERED, echo, "/echo"},
    {"GET", "/wait", BODY_NONE, wait_then, "/wait"},
    {"GET", "/twice/{a}/{b}", BODY_NONE, wait_twice, "/twice"},
    {"GET", "/offload", BODY_NONE, offload, "/offload"},
    {"GET", "/forget", BODY_NONE, forget, "/forget"},
    {"GET", "/plan", BODY_NONE, plan_on_worker, "/plan"},
    {"GET", "/source", BODY_NONE, source, "/source"},
    {"PUT", "/sink", BODY_STREAM, accept_body, "/sink"},
    {"PUT", "/later", BODY_STREAM, accept_later, "/later"},
};

static const struct http_calls calls = {
    .routes = routes,
    .n_routes = sizeof routes / sizeof *routes,
    .identify = identify,
    .authorize = authorize,
    .lasts = lasts,
    .refuse = refuse,
    .disconnected = disconnected,
    .ended = ended,
};

#endif
