/* /healthz, /readyz, /v1/info and /openapi.json: what the daemon is and what it can do.
 *
 * The contract is compiled in (embed.c), so that the daemon serves the same text its tests checked.
 * The lists of operations come from the compiler's tables. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/engine/engine.h"
#include "compute/lang/func.h"
#include "compute/type/op.h"
#include "protocol/json/json_writer.h"
#include "server/admin/put.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/keeper/hold.h"
#include "server/server.h"
#include "server/state/state.h"
#include "server/store/auth.h"

extern const char openapi_json[];
extern const unsigned long openapi_json_len;

static void reply_status(struct request *req, const char *status)
{
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_member_string(&w, "status", status);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

/* Probes send any Accept header and only look at the status. */
static enum err_code no_query(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    return http_query_only(req, none, e);
}

void service_healthz(struct request *req)
{
    struct err e = ERR_INIT;
    if (no_query(req, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        reply_status(req, "ok");
}

void service_readyz(struct request *req)
{
    struct err e = ERR_INIT;
    if (no_query(req, &e) != ERR_OK)
        http_reply_error(req, &e);
    else if (atomic_load(&req->server->draining)) {
        err_draining(&e);
        http_reply_error(req, &e);
    } else if (atomic_load(&req->server->device_lost)) {
        const char *why = atomic_load(&req->server->lost_reason);
        err_set(&e, ERR_DEVICE_LOST, "the device is lost%s%s", why ? ": " : "", why ? why : "");
        http_reply_error(req, &e);
    } else {
        reply_status(req, "ready");
    }
}

static void put_limit(void *user, const char *name, double value)
{
    struct json_writer *w = user;
    if (value == (double)(int64_t)value)
        json_put_member_i64(w, name, (int64_t)value);
    else
        json_put_member_double(w, name, value);
}

static const char *rule_text(enum op_rule rule)
{
    switch (rule) {
    case RULE_SAME:
        return "promoted";
    case RULE_NOBOOL:
        return "promoted, no bools";
    case RULE_BOOL_I8:
        return "promoted, bools in int8";
    case RULE_FLOAT:
        return "promoted, integers and bools in float64";
    case RULE_INTEGRAL:
        return "bools and integers, promoted";
    case RULE_SHIFT:
        return "integers, promoted, bools in int8";
    case RULE_TRUTH:
        return "each operand as bool";
    case RULE_COMPARE:
        return "compared in the promoted type";
    }
    return "";
}

static void put_operations(struct json_writer *w)
{
    static const char *const result[] = {"same", "bool", "real"};
    json_open_list(w);
    for (int i = 0; i < OP_COUNT; i++) {
        const struct op_info *op = &op_table[i];
        char kinds[5];
        int n = 0;
        for (int k = 0; k < 4; k++)
            if (op->kinds & (1 << k))
                kinds[n++] = "bifc"[k];
        kinds[n] = '\0';
        json_open_object(w);
        json_put_member_string(w, "name", op->name);
        json_put_member_i64(w, "arity", op->nargs);
        json_put_member_string(w, "rule", rule_text(op->rule));
        json_put_member_string(w, "result", result[op->result]);
        json_put_member_string(w, "kinds", kinds);
        json_close_object(w);
    }
    for (int i = 0; i < FUNC_COUNT; i++) {
        const struct func_info *f = &func_table[i];
        json_open_object(w);
        json_put_member_string(w, "name", f->name);
        json_put_key(w, "arity");
        if (f->least == f->most)
            json_put_i64(w, f->least);
        else
            json_put_i64_list(w, 2, (const int64_t[]){f->least, f->most});
        json_put_member_string(w, "rule", f->rule);
        json_put_member_string(w, "signature", f->signature);
        json_close_object(w);
    }
    json_close_list(w);
}

static void put_state(struct json_writer *w, const struct state *state)
{
    int64_t restored = state ? state_restored_us(state) : 0;
    json_put_key(w, "state");
    json_open_object(w);
    json_put_member_bool(w, "kept", state != NULL);
    if (restored)
        meta_put_time(w, "restored_from", restored);
    else
        json_put_member_string(w, "restored_from", NULL);
    json_close_object(w);
}

/* Which limit the principal's new arrays are beyond; "": none. */
static const char *beyond_limit(const struct server *s, const struct principal *p, char *room,
                                size_t n)
{
    const char *limit = engine_keep_limit(s->engine);
    const char *share = limit ? NULL : engine_keep_share(s->engine, p->account);
    if (limit)
        snprintf(room, n, "new arrays do not: the limit %s is reached", limit);
    else if (share)
        snprintf(room, n, "new arrays do not: a user may have as much of %s as is free", share);
    return room;
}

static void put_process(struct json_writer *w, const struct server *s, const struct principal *p)
{
    json_put_key(w, "process");
    json_open_object(w);
    json_put_member_i64(w, "pid", getpid());
    meta_put_time(w, "started", s->started_us);
    json_put_member_bool(w, "keeper", s->hold != NULL);
    json_put_member_i64(w, "restarts", hold_restarts(s->hold));
    char limit[80] = "";
    const char *why = s->keep_problem ? s->keep_problem : beyond_limit(s, p, limit, sizeof limit);
    json_put_member_bool(w, "keeps_arrays", !*why);
    json_put_member_string(w, "keeps_arrays_problem", why);
    json_close_object(w);
}

static void put_parts(struct json_writer *w, const struct backend_device *d)
{
    json_put_key(w, "parts");
    json_open_list(w);
    for (int i = 0; i < d->n_parts; i++)
        json_put_i64(w, d->parts[i]);
    json_close_list(w);
}

static void put_default_device(struct json_writer *w, const char *text)
{
    if (*text >= '0' && *text <= '9')
        json_put_member_i64(w, "default_device", atoi(text));
    else
        json_put_member_string(w, "default_device", text);
}

void service_info(struct request *req)
{
    struct err e = ERR_INIT;
    if (request_plain(req, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct engine *g = req->server->engine;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_member_string(&w, "version", ARRAYD_VERSION);
    json_put_member_string(&w, "backend", engine_backend(g));
    json_put_member_string(&w, "note", engine_note(g));
    json_put_key(&w, "devices");
    json_open_list(&w);
    for (int i = 0; i < engine_device_count(g); i++) {
        struct backend_device d;
        engine_device_info(g, i, &d);
        json_open_object(&w);
        json_put_member_i64(&w, "index", d.index);
        json_put_member_string(&w, "name", d.name);
        json_put_member_i64(&w, "memory", d.memory_total);
        json_put_member_i64(&w, "free", d.memory_free);
        json_put_member_i64(&w, "kept", d.memory_kept);
        json_put_member_i64(&w, "used", d.memory_used);
        if (d.n_parts)
            put_parts(&w, &d);
        json_close_object(&w);
    }
    json_close_list(&w);
    json_put_member_i64(&w, "bytes_in_use", engine_bytes_in_use(g));
    json_put_member_i64(&w, "host_bytes_in_use", engine_host_bytes(g));
    put_default_device(&w, req->server->config->default_device);
    json_put_member_bool(&w, "evict", req->server->config->evict);
    json_put_member_bool(&w, "export", req->server->exports != NULL);
    json_put_key(&w, "principal");
    json_open_object(&w);
    put_principal_members(&w, req->server, req->principal);
    json_close_object(&w);
    put_state(&w, req->server->state);
    put_process(&w, req->server, req->principal);
    json_put_key(&w, "limits");
    json_open_object(&w);
    req->server->config->each_limit(req->server->config, put_limit, &w);
    json_close_object(&w);
    json_put_key(&w, "dtypes");
    json_open_list(&w);
    for (int i = 0; i < DT_COUNT; i++)
        json_put_string(&w, dtype_name((enum dtype)i));
    json_close_list(&w);
    json_put_key(&w, "operations");
    put_operations(&w);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

void service_openapi(struct request *req)
{
    struct err e = ERR_INIT;
    if (request_plain(req, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct strb out = {0};
    strb_addn(&out, openapi_json, openapi_json_len);
    http_reply_json(req, 200, &out);
}
