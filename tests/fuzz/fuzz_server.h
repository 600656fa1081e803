/* A server without HTTP for targets that read what clients send: one principal, some arrays of a
 * few elements, a function. Included once by each of these targets. */
#ifndef ARRAYD_FUZZ_SERVER_H
#define ARRAYD_FUZZ_SERVER_H

#include <string.h>

#include "compute/base/log.h"
#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "protocol/json/json.h"
#include "server/body/function_json.h"
#include "server/config/config.h"
#include "server/http/http_impl.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/share.h"
#include "tests/fuzz/fuzz.h"

static struct server server;
static struct config config;

#define MUST(call) FUZZ_CHECK((call) == ERR_OK)

/* Small enough that no input makes the machine swap. */
static void open_server(void)
{
    char *const argv[] = {(char *)"arrayd", (char *)"--memory-limit",
                          (char *)"128KiB", (char *)"--max-statements",
                          (char *)"16",     (char *)"--max-nodes",
                          (char *)"300",    (char *)"--max-nesting",
                          (char *)"50",     NULL};
    struct err e = ERR_INIT;
    enum config_action action;
    struct engine_config ec = ENGINE_CONFIG_DEFAULT;
    struct session_limits limits = SESSION_LIMITS_DEFAULT;
    log_set_level(LOG_ERROR);
    MUST(config_load(9, argv, &config, &action, &e));
    ec.backend = "cpu";
    ec.device.threads = 1;
    ec.device.inline_elements = INT32_MAX; /* what is done is done when the call returns */
    ec.device.memory_limit = config.memory_limit;
    MUST(engine_open(&ec, &server.engine, &e));
    server.config = &config;
    FUZZ_CHECK((server.shares = shares_new(10)) != NULL);
    MUST(auth_new(server.engine, &limits, NULL, &server.auth, &e));
}

static struct principal *principal(void)
{
    struct principal *p = NULL;
    struct err e = ERR_INIT;
    MUST(auth_open(server.auth, "local", &p, &e));
    return p;
}

static inline struct session *default_session(void)
{
    struct session *s = NULL;
    struct err e = ERR_INIT;
    MUST(session_get(principal()->sessions, SESSION_DEFAULT, false, &s, &e));
    return s;
}

/* Zeros under a name. */
static inline void put_zeros(struct session *s, const char *name, enum dtype t, int rank,
                             const int64_t *shape)
{
    struct err e = ERR_INIT;
    struct array *a;
    struct handle h = {0};
    MUST(engine_zeros_grid(s->stream, s->account, t, rank, shape, NULL, &a, &e));
    MUST(handle_add(s->handles, a, &(struct handle_spec){.name = name}, &h, NULL, &e));
    handle_clear(&h);
    array_unref(a);
}

/* u, v, w of 8 × 6 float32; m of 5 bool; n of 3 × 3 × 3 int32; c of 4 complex64; f(x) = x + 1. */
static inline void furnish(void)
{
    static const char definition[] = "{\"name\":\"f\",\"params\":[\"x\"],\"expr\":\"x + 1\"}";
    struct session *s = default_session();
    struct err e = ERR_INIT;
    struct json doc;
    struct definition *d;
    bool replaced;
    _cleanup_arena_ struct arena *arena = arena_new(0);
    put_zeros(s, "u", DT_F32, 2, (const int64_t[]){8, 6});
    put_zeros(s, "v", DT_F32, 2, (const int64_t[]){8, 6});
    put_zeros(s, "w", DT_F32, 2, (const int64_t[]){8, 6});
    put_zeros(s, "m", DT_BOOL, 1, (const int64_t[]){5});
    put_zeros(s, "n", DT_I32, 3, (const int64_t[]){3, 3, 3});
    put_zeros(s, "c", DT_C64, 1, (const int64_t[]){4});
    session_unref(s);
    MUST(json_parse(arena, definition, strlen(definition), NULL, &doc, &e));
    MUST(function_json_read(&config, doc, NULL, &d, &e));
    MUST(functions_define(principal()->functions, d, false, &replaced, &e));
}

#endif
