/* /v1/arrays/{ref}/shares and /lease: which other principals may use an array, and exclusive use
 * for some time. */
#include <stddef.h>

#include "protocol/json/json_writer.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/exports/export.h"
#include "server/http/wakeup.h"
#include "server/jobs/jobs.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/lease.h"
#include "server/store/lease_use.h"
#include "server/store/share.h"

#define LEASE_TTL 60 /* seconds, unless the request gives another */

static enum err_code read_lease(const struct request *req, struct json body, bool *ret_write,
                                double *ret_ttl, struct err *e)
{
    struct json ttl = json_member(body, "ttl_s");
    double max = req->server->config->max_lease_ttl;
    *ret_ttl = max < LEASE_TTL ? max : LEASE_TTL;
    TRY(JSON_MEMBERS(body, e, "mode", "ttl_s"));
    TRY(meta_access(body, "mode", ret_write, e));
    if (!json_present(ttl))
        return ERR_OK;
    TRY(json_get_double(ttl, ret_ttl, e));
    if (!(*ret_ttl > 0) || *ret_ttl > max)
        return json_err(ttl, e, ERR_BAD_FIELD,
                        "ttl_s must be a number of seconds greater than 0, up to %.15g", max);
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

/* Ends the principal's leases and exports that its rights no longer cover. Outside host memory that
 * includes exports for reading, since their holder could write. Memory that it has mapped stays
 * mapped, but is no longer the array's. */
static void end_leases(struct request *req, struct array *a, const struct principal *who,
                       bool reading)
{
    lease_end(req->server->leases, a, who, reading);
    bool all = reading || !engine_in_host_memory(req->server->engine);
    if (req->server->exports)
        exports_revoke(req->server->exports, array_buffer_id(a), who, all);
    exports_forget(req->server->engine, a); /* which a previous process may have exported */
}

/* If the share is revoked, or the array replaced, while a lease on it is taken, the lease ends,
 * whichever comes first. */
static enum err_code still_there(struct request *req, const struct handle *had,
                                 const struct lease *taken, bool *ret_reads, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    *ret_reads = false;
    TRY(request_array(req, LEASE_LOOK, &s, &h, e));
    *ret_reads = true;
    if (taken->write)
        TRY(handle_writable(&h, e));
    if (array_buffer_id(h.array) != array_buffer_id(had->array))
        return handle_changed(e);
    return ERR_OK;
}

static void give_back(struct request *req, const struct handle *had, const struct lease *taken,
                      bool reads)
{
    struct lease_claim claim = {req->server->leases, taken->token, req->principal};
    struct err none = ERR_INIT; /* it may have ended already */
    char export[ID_SIZE];
    if (had->shared)
        end_leases(req, had->array, req->principal, !reads);
    else
        (void)!lease_give(&claim, had->array, export, &none);
}

/* A lease that has been taken, while the request waits for uses that began before it. */
struct lease_request {
    struct wakeup wakeup;
    struct lease_settling settling;
    struct lease lease;
    bool again;
    struct strb out;
};

static void lease_request_free(void *state)
{
    struct lease_request *x = state;
    strb_free(&x->out);
}

static void settled(struct lease_settling *s)
{
    struct lease_request *x =
        (struct lease_request *)((char *)s - offsetof(struct lease_request, settling));
    wakeup_ring(&x->wakeup);
}

static void lease_taken(struct request *req)
{
    struct lease_request *x = req->state;
    struct json_writer w = JSON_WRITER(&x->out);
    put_lease(&w, &x->lease);
    http_reply_json(req, x->again ? 200 : 201, &x->out);
}

static enum err_code begin_lease(struct request *req, struct lease_request *x, struct err *e)
{
    struct json body;
    struct lease_claim claim = request_claim(req);
    bool write, reads;
    double ttl;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_plain(req, e));
    TRY(request_array(req, LEASE_LOOK, &s, &h, e));
    TRY(request_body(req, false, &body, e));
    TRY(read_lease(req, body, &write, &ttl, e));
    if (write)
        TRY(handle_writable(&h, e));
    if (!strb_reserve(&x->out, LEASE_JSON_MAX))
        return err_oom(e);
    TRY(lease_take(&claim, h.array, write, ttl, &x->lease, &x->again, e));
    enum err_code code = still_there(req, &h, &x->lease, &reads, e);
    if (code != ERR_OK)
        give_back(req, &h, &x->lease, reads);
    return code;
}

void array_lease_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct lease_request *x = request_begin(req, sizeof *x, lease_request_free);
    if (!x)
        return;
    x->settling.done = settled;
    wakeup_init(&x->wakeup, req);
    if (begin_lease(req, x, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    jobs_settle(req->server->jobs); /* programs do not write from here on */
    wakeup_arm(&x->wakeup);
    lease_uses_settle(req->server->uses, &x->settling); /* nor do uses that began before */
    wakeup_wait(&x->wakeup, lease_taken);
}

static enum err_code end_lease(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    struct lease_claim claim = request_claim(req);
    char exported[ID_SIZE];
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(http_query_only(req, none, e));
    TRY(request_array(req, LEASE_LOOK, &s, &h, e));
    TRY(lease_give(&claim, h.array, exported, e));
    if (exported[0])
        exports_end(req->server->exports, exported);
    http_reply_empty(req, 204);
    return ERR_OK;
}

void array_lease_delete(struct request *req)
{
    request_try(req, end_lease);
}

/* --- shares --- */

static enum err_code read_share(const struct request *req, struct json body,
                                const struct principal **ret, bool *ret_write, struct err *e)
{
    struct json who;
    const char *name;
    TRY(JSON_MEMBERS(body, e, "principal", "access"));
    TRY(json_require(body, "principal", &who, e));
    TRY(json_get_string(who, &name, NULL, e));
    TRY(meta_access(body, "access", ret_write, e));
    *ret = auth_find(req->server->auth, name);
    if (!*ret)
        return json_err(who, e, ERR_NOT_FOUND, "there is no principal '%.80s'", name);
    if (*ret == req->principal)
        return json_err(who, e, ERR_BAD_FIELD, "you own the array already");
    return ERR_OK;
}

static void put_share(void *user, const char *who, bool write)
{
    struct json_writer *w = user;
    json_open_object(w);
    json_put_member_string(w, "principal", who);
    json_put_member_string(w, "access", write ? "write" : "read");
    json_close_object(w);
}

#define SHARE_JSON_MAX 1024

static enum err_code give_share(struct request *req, struct err *e)
{
    struct json body;
    const struct principal *who;
    bool write, again;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb out = {0};
    TRY(request_plain(req, e));
    TRY(request_own_array(req, LEASE_LOOK, &s, &h, e));
    TRY(request_body(req, false, &body, e));
    TRY(read_share(req, body, &who, &write, e));
    if (!strb_reserve(&out, SHARE_JSON_MAX))
        return err_oom(e);
    TRY(share_give(req->server->shares, req->principal, h.id, who, write, &again, e));
    if (!write)
        end_leases(req, h.array, who, false);
    jobs_settle(req->server->jobs);
    struct json_writer w = JSON_WRITER(&out);
    put_share(&w, who->name, write);
    http_reply_json(req, again ? 200 : 201, &out);
    return ERR_OK;
}

void array_share_post(struct request *req)
{
    request_try(req, give_share);
}

static enum err_code list_shares(struct request *req, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_plain(req, e));
    TRY(request_own_array(req, LEASE_LOOK, &s, &h, e));
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_key(&w, "shares");
    json_open_list(&w);
    share_each(req->server->shares, h.id, put_share, &w);
    json_close_list(&w);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
    return ERR_OK;
}

void array_share_list(struct request *req)
{
    request_try(req, list_shares);
}

static enum err_code take_share_back(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(http_query_only(req, none, e));
    TRY(request_own_array(req, LEASE_LOOK, &s, &h, e));
    TRY(share_take_back(req->server->shares, h.id, req->param[1], e));
    const struct principal *who = auth_find(req->server->auth, req->param[1]);
    if (who)
        end_leases(req, h.array, who, true);
    jobs_settle(req->server->jobs);
    http_reply_empty(req, 204);
    return ERR_OK;
}

void array_share_delete(struct request *req)
{
    request_try(req, take_share_back);
}
