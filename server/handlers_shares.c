/* /v1/arrays/{ref}/lease: who may use an array for some time. */
#include "protocol/json_writer.h"
#include "server/config.h"
#include "server/handlers.h"
#include "server/lease.h"
#include "server/meta.h"
#include "server/server.h"

#define LEASE_TTL 60 /* seconds, unless the request says */

static enum err_code read_lease(const struct request *req, struct json body, bool *ret_write,
                                double *ret_ttl, struct err *e)
{
    struct json v;
    double max = req->server->config->max_lease_ttl;
    *ret_ttl = max < LEASE_TTL ? max : LEASE_TTL;
    enum err_code r = JSON_MEMBERS(body, e, "mode", "ttl_s");
    if (r != ERR_OK || (r = json_require(body, "mode", &v, e)) != ERR_OK)
        return r;
    *ret_write = json_equals(v, "write");
    if (!*ret_write && !json_equals(v, "read"))
        return json_err(v, e, ERR_BAD_FIELD, "mode is \"read\" or \"write\"");
    if (!json_present(v = json_member(body, "ttl_s")))
        return ERR_OK;
    if ((r = json_get_double(v, ret_ttl, e)) != ERR_OK)
        return r;
    if (!(*ret_ttl > 0) || *ret_ttl > max)
        return json_err(v, e, ERR_BAD_FIELD, "ttl_s must be seconds above 0, up to %g", max);
    return ERR_OK;
}

static void put_lease(struct json_writer *w, const struct lease *l)
{
    json_open_object(w);
    json_put_member_string(w, "token", l->token);
    json_put_member_string(w, "mode", l->write ? "write" : "read");
    meta_put_time(w, "expires", l->expires_us);
    json_close_object(w);
}

#define LEASE_JSON_MAX 256

void array_lease_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct json body;
    struct lease_claim claim = handler_claim(req);
    struct lease lease;
    bool write, again;
    double ttl;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb out = {0};
    enum err_code r = handler_plain(req, &e);
    if (r == ERR_OK && (r = handler_array(req, LEASE_LOOK, &s, &h, &e)) == ERR_OK &&
        (r = handler_body(req, false, &body, &e)) == ERR_OK &&
        (r = read_lease(req, body, &write, &ttl, &e)) == ERR_OK && write)
        r = handler_writable(&h, &e);
    if (r == ERR_OK && !strb_reserve(&out, LEASE_JSON_MAX))
        r = err_oom(&e);
    if (r == ERR_OK)
        r = lease_take(&claim, h.array, write, ttl, &lease, &again, &e);
    if (r != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct json_writer w = JSON_WRITER(&out);
    put_lease(&w, &lease);
    http_reply_json(req, again ? 200 : 201, &out);
}

void array_lease_delete(struct request *req)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    struct lease_claim claim = handler_claim(req);
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    enum err_code r = http_query_only(req, none, &e);
    if (r == ERR_OK && (r = handler_array(req, LEASE_LOOK, &s, &h, &e)) == ERR_OK)
        r = lease_give(&claim, h.array, &e);
    if (r != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_empty(req, 204);
}
