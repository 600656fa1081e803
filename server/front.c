/* One short function for each call. None has state of its own. */
#include "server/front.h"

#include <string.h>

#include "compute/base/log.h"
#include "compute/base/strb.h"
#include "compute/culprit/culprit.h"
#include "compute/engine/engine.h"
#include "server/admin/audit.h"
#include "server/api/handlers.h"
#include "server/api/metrics.h"
#include "server/keeper/hold.h"
#include "server/login/visitor.h"
#include "server/lost.h"
#include "server/store/auth.h"
#include "server/store/session.h"
#include "server/work/asker.h"
#include "server/work/device_turn.h"
#include "server/work/memory_pressure.h"
#include "server/work/memory_retry.h"

#define STUCK_S 30.0 /* at the end: how long to wait for work that cannot be cancelled */

static enum err_code identify(struct request *req, struct principal **whose, struct http_user *ret,
                              struct err *e)
{
    enum err_code code = visitor_identify(req, e);
    if (code == ERR_UNAUTHORIZED && http_header(req, "Authorization"))
        audit_refused(req->server->audit, req, AUDIT_LOGIN, code);
    struct principal *p = req->principal;
    if (code != ERR_OK || !p)
        return code;
    *ret = (struct http_user){.name = p->name,
                              .memory = p->memory,
                              .max_body = auth_max_body(p),
                              .weight = &p->weight,
                              .worked = &p->worked};
    return auth_connect(req, whose, e);
}

static void repeat(struct request *req, const struct request *of)
{
    auth_identify_again(req, of);
    req->login = of->login ? login_ref(of->login) : NULL;
}

static enum err_code authorize(const struct request *req, struct err *e)
{
    TRY(visitor_may(req, e));
    enum err_code code = auth_role(req, e);
    if (code == ERR_FORBIDDEN)
        audit_refused(req->server->audit, req, AUDIT_FORBIDDEN, code);
    return code;
}

static enum err_code refuse(struct request *req, struct err *e)
{
    return auth_refuse(req, req->login ? "the login is over" : "the request's token was revoked",
                       e);
}

static void ended(struct request *req, int status, double seconds, int64_t in, int64_t out)
{
    metrics_request(req->server->metrics, req->route, req->principal, status, seconds, in, out);
    if (req->principal)
        auth_leave(req->principal);
}

static void release(struct request *req)
{
    if (req->pressure)
        memory_pressure_free(req->pressure);
    device_turn_leave(req); /* for requests that ended without a reply */
    asker_unref(req->asker);
    login_unref(req->login);
}

static void poll_device(struct server *s)
{
    engine_poll(s->engine);
}

static void explain(const struct request *req, struct err *e)
{
    if (e->code == ERR_DEVICE_LOST)
        lost_explain(req->server->lost, req->asker, e);
    else
        memory_explain(req->server->engine, req->server->config->evict, e);
}

static void session_release(void *session)
{
    session_unref(session);
}

/* Queues for the turn of the session's stream; the session does not expire while the request waits.
 * Without a session the request proceeds, and its handler reports the error. */
static bool turn_take(struct request *req, handler_fn *then)
{
    struct session *s = NULL;
    struct err e = ERR_INIT;
    if (device_turn_asked(req))
        return true;
    if (culprits_admit(req->server->culprits, req->principal->name, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return false;
    }
    if (session_of(req, &s, &e) != ERR_OK)
        return true;
    if (s->lane)
        return device_turn_take(req, s->lane, session_release, s, then);
    session_unref(s);
    return true;
}

struct http_calls front_calls(void)
{
    return (struct http_calls){
        .routes = route_table,
        .n_routes = route_count,
        .identify = identify,
        .repeat = repeat,
        .authorize = authorize,
        .lasts = visitor_lasts,
        .refuse = refuse,
        .disconnected = auth_disconnect,
        .ended = ended,
        .release = release,
        .works_for = asker_request,
        .poll = poll_device,
        .retry = memory_pressure_repeat,
        .explain = explain,
        .turn_take = turn_take,
        .turn_leave = device_turn_leave,
    };
}

static int take_socket(void *user, const char *name)
{
    return hold_take(user, name);
}

static enum err_code put_socket(void *user, const char *name, int fd, struct err *e)
{
    return hold_put(user, name, fd, e);
}

static void drop_socket(void *user, const char *name)
{
    hold_drop(user, name);
}

static const char *next_socket(void *user)
{
    return hold_next(user, HTTP_SOCKETS);
}

enum err_code front_start(const struct config *c, struct server *s, struct err *e)
{
    struct http_calls calls = front_calls();
    struct http_config hc = {
        .listen = (const char *const *)c->listen.items,
        .n_listen = c->listen.n,
        .admin_listen = (const char *const *)c->admin_listen.items,
        .n_admin_listen = c->admin_listen.n,
        .accounts = c->accounts != NULL,
        .unix_mode = (int)c->unix_mode,
        .log_requests = c->log_requests,
        .max_header_bytes = (size_t)c->max_header,
        .header_timeout_s = c->header_timeout,
        .body_idle_timeout_s = c->body_timeout,
        .min_body_rate = c->min_body_rate,
        .max_ignored_body = c->max_ignored_body,
        .max_unread_body = c->max_unread_body,
        .unread_body_s = c->unread_body_timeout,
        .body_rate_window_s = c->body_rate_window,
        .max_json_body = (size_t)c->max_json_body,
        .max_request_memory = c->max_request_memory,
        .offload_bytes = (size_t)c->offload_body,
        .max_connections = (size_t)c->max_connections,
        .max_connections_per_address = (size_t)c->max_connections_per_address,
        .workers = (int)c->workers,
        .idle_timeout_s = c->idle_timeout,
        .allowed_hosts = (const char *const *)c->allowed_host.items,
        .n_allowed_hosts = c->allowed_host.n,
        .cors_origins = (const char *const *)c->cors_origin.items,
        .n_cors_origins = c->cors_origin.n,
        .tls_cert = c->tls_cert,
        .tls_key = c->tls_key,
        .max_wait_s = c->max_wait,
        .drain_timeout_s = c->drain_timeout,
        .stuck_s = STUCK_S,
        .device_name = strcmp(engine_backend(s->engine), "cuda") ? "cpu" : "gpu",
        .spin_us = engine_in_host_memory(s->engine) ? 0 : c->spin,
    };
    if (s->hold)
        hc.keep = (struct http_keep){take_socket, put_socket, drop_socket, next_socket, s->hold};
    return http_start(s, &hc, &calls, &s->http, e);
}

static void add_addresses(const struct server *s, bool admin, struct strb *out)
{
    const char *const *addresses;
    size_t n = http_addresses(s->http, admin, &addresses);
    for (size_t i = 0; i < n; i++)
        strb_addf(out, "%s%s", i ? "," : "", addresses[i]);
}

/* The GPUs that it consists of. */
static void add_mesh(const struct engine *g, struct strb *out)
{
    struct backend_device d = {0};
    if (engine_mesh(g) >= 0)
        engine_device_info(g, engine_mesh(g), &d);
    for (int i = 0; i < d.n_parts; i++)
        strb_addf(out, "%s%d", i ? "," : "", d.parts[i]);
}

void front_log(const struct server *s)
{
    _cleanup_strb_ struct strb listen = {0}, admin = {0}, mesh = {0};
    add_addresses(s, false, &listen);
    add_addresses(s, true, &admin);
    add_mesh(s->engine, &mesh);
    log_event(LOG_INFO, "ready", "listen", listen.failed ? "?" : listen.data, "admin_listen",
              admin.len && !admin.failed ? admin.data : "", "backend", engine_backend(s->engine),
              "mesh",
              mesh.failed ? "?"
              : mesh.len  ? mesh.data
                          : "",
              "note", engine_note(s->engine), "version", ARRAYD_VERSION, NULL);
}
