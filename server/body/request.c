/* Negotiation, bodies, references: a few lines each, for some twenty handlers. */
#include "server/body/request.h"

#include "compute/backend.h"
#include "compute/base/log.h"
#include "protocol/wire/media.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/store/auth.h"

enum err_code request_accepts_json(struct request *req, struct err *e)
{
    static const enum media offer[] = {MEDIA_JSON};
    enum media chosen;
    return media_negotiate(http_header(req, "Accept"), offer, 1, &chosen, e);
}

enum err_code request_plain(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    TRY(http_query_only(req, none, e));
    return request_accepts_json(req, e);
}

void request_try(struct request *req, enum err_code (*f)(struct request *req, struct err *e))
{
    struct err e = ERR_INIT;
    if (f(req, &e) != ERR_OK)
        http_reply_error(req, &e);
}

void *request_begin(struct request *req, size_t size, void (*release)(void *state))
{
    void *state = arena_alloc(req->arena, size);
    struct err e = ERR_INIT;
    if (state) {
        req->state = state;
        req->state_free = release;
    } else {
        err_oom(&e);
        http_reply_error(req, &e);
    }
    return state;
}

struct json_limits request_json_limits(const struct request *req)
{
    const struct config *c = req->server->config;
    return (struct json_limits){
        .max_depth = (uint32_t)c->max_json_depth,
        .max_nodes = (uint32_t)c->max_json_values,
    };
}

enum err_code request_body(struct request *req, bool optional, struct json *ret, struct err *e)
{
    *ret = (struct json){0};
    if (optional && req->body_len == 0)
        return ERR_OK;
    struct json_limits limits = request_json_limits(req);
    struct json doc;
    TRY(media_require_json(http_header(req, "Content-Type"), e));
    TRY(json_parse(req->arena, req->body, req->body_len, &limits, &doc, e));
    if (json_kind(doc) != JSON_OBJECT)
        return json_err(doc, e, ERR_BAD_FIELD, "the body must be a JSON object");
    *ret = doc;
    return ERR_OK;
}

/* lost.c logs a lost device, once; and work that was given up has no array any more. */
const char *request_tiers(unsigned tiers)
{
    static const char *const words[] = {
        [TIER_INTERPRETED] = "interpreted",
        [TIER_COMPILED] = "compiled",
        [TIER_INTERPRETED | TIER_COMPILED] = "both",
    };
    return words[tiers];
}

void request_work_done(void *user, enum err_code result, double device_ms)
{
    (void)user, (void)device_ms;
    if (result != ERR_OK && result != ERR_DEVICE_LOST && result != ERR_NOT_FOUND)
        log_event(LOG_WARN,
                  "work that writes to an array failed after its request had been answered", "code",
                  err_name(result), NULL);
}

static void move_done(void *user, enum err_code result, double device_ms)
{
    struct request_move *m = user;
    m->device_ms = device_ms;
    atomic_store(&m->result, result);
    wakeup_ring(&m->wakeup);
}

enum err_code request_move(struct request *req, struct request_move *m, struct engine_stream *s,
                           struct array *a, bool to_host, handler_fn *then, struct err *e)
{
    wakeup_init(&m->wakeup, req);
    TRY(engine_move(s, a, to_host, move_done, m, e));
    wakeup_wait(&m->wakeup, then);
    return ERR_OK;
}

enum err_code request_moved(struct request *req, const struct request_move *m, struct err *e)
{
    const enum err_code code = (enum err_code)atomic_load(&m->result);
    req->t_device = m->device_ms;
    return code == ERR_OK ? ERR_OK
                          : err_set(e, code, "the array could not be moved: %s", err_title(code));
}

struct lease_claim request_claim(struct request *req)
{
    return (struct lease_claim){req->server->leases, http_header(req, "Arrayd-Lease"),
                                req->principal};
}

enum err_code request_leased(struct request *req, const struct array *a, enum lease_access access,
                             struct err *e)
{
    struct lease_claim claim = request_claim(req);
    return lease_check(&claim, a, access, e);
}

struct array_scope request_scope(const struct request *req, const struct session *s)
{
    return (struct array_scope){req->by_link ? NULL : req->server->shares, req->principal,
                                s->handles};
}

enum err_code request_find(struct request *req, struct session *s, const char *ref,
                           struct handle *ret, struct err *e)
{
    struct array_scope scope = request_scope(req, s);
    return share_get(&scope, ref, ret, e);
}

static enum err_code find_array(struct request *req, bool own, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(session_of(req, &s, e));
    TRY(request_find(req, s, req->param[0], &h, e));
    if (own)
        TRY(handle_owned(&h, e));
    TRY(request_leased(req, h.array, access, e));
    *ret_s = s;
    *ret_h = h;
    s = NULL;
    h = (struct handle){0};
    return ERR_OK;
}

enum err_code request_array(struct request *req, enum lease_access access, struct session **ret_s,
                            struct handle *ret_h, struct err *e)
{
    return find_array(req, false, access, ret_s, ret_h, e);
}

enum err_code request_own_array(struct request *req, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h, struct err *e)
{
    return find_array(req, true, access, ret_s, ret_h, e);
}
