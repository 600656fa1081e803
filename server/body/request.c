/* What handlers share: negotiation, bodies, pages, references. */
#include <inttypes.h>
#include <stdlib.h>

#include "compute/base/log.h"
#include "protocol/wire/media.h"
#include "server/api/handlers.h"
#include "server/config.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/store/share.h"

enum err_code handler_accepts_json(struct request *req, struct err *e)
{
    static const enum media offer[] = {MEDIA_JSON};
    enum media chosen;
    return media_negotiate(http_header(req, "Accept"), offer, 1, &chosen, e);
}

enum err_code handler_plain(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    enum err_code r = http_query_only(req, none, e);
    return r == ERR_OK ? handler_accepts_json(req, e) : r;
}

void *handler_begin(struct request *req, size_t size, void (*release)(void *state))
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

struct json_limits handler_json_limits(const struct request *req)
{
    const struct config *c = req->server->config;
    return (struct json_limits){
        .max_depth = (uint32_t)c->max_json_depth,
        .max_nodes = (uint32_t)c->max_json_values,
    };
}

enum err_code handler_body(struct request *req, bool optional, struct json *ret, struct err *e)
{
    *ret = (struct json){0};
    if (optional && req->body_len == 0)
        return ERR_OK;
    enum err_code r = media_require_json(http_header(req, "Content-Type"), e);
    struct json_limits limits = handler_json_limits(req);
    struct json doc;
    if (r != ERR_OK || (r = json_parse(req->arena, req->body, req->body_len, &limits, &doc, e)))
        return r;
    if (json_kind(doc) != JSON_OBJECT)
        return json_err(doc, e, ERR_BAD_FIELD, "the body must be a JSON object");
    *ret = doc;
    return ERR_OK;
}

/* A lost device is told once, by lost.c; and work that was given up has no array any more. */
void handler_work_done(void *user, enum err_code result, double device_ms)
{
    (void)user, (void)device_ms;
    if (result != ERR_OK && result != ERR_DEVICE_LOST && result != ERR_NOT_FOUND)
        log_event(LOG_WARN, "work that was to write to an array failed after its reply", "code",
                  err_name(result), NULL);
}

/* All of `s` as a decimal number up to `max`. */
static bool decimal(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (max - (uint64_t)(*s - '0')) / 10)
            return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *ret = v;
    return true;
}

enum err_code handler_page(struct request *req, struct page *ret, struct err *e)
{
    static const char *const allowed[] = {"limit", "after", NULL};
    enum err_code r = http_query_only(req, allowed, e);
    if (r != ERR_OK)
        return r;
    uint64_t limit = LIST_LIMIT;
    const char *text = http_query(req, "limit");
    if (text && (!decimal(text, LIST_MAX, &limit) || limit == 0))
        return err_set(e, ERR_BAD_FIELD, "'limit' must be an integer from 1 to %d", LIST_MAX);
    struct page page = {.after = LIST_FROM_TOP, .limit = (size_t)limit};
    text = http_query(req, "after");
    if (text && !decimal(text, UINT64_MAX, &page.after))
        return err_set(e, ERR_BAD_FIELD, "'after' must be the 'next' of the page before");
    *ret = page;
    return ERR_OK;
}

struct lease_claim handler_claim(struct request *req)
{
    return (struct lease_claim){req->server->leases, http_header(req, "Arrayd-Lease"),
                                req->principal};
}

enum err_code handler_leased(struct request *req, const struct array *a, enum lease_access access,
                             struct err *e)
{
    struct lease_claim claim = handler_claim(req);
    return lease_check(&claim, a, access, e);
}

struct array_scope handler_scope(const struct request *req, const struct session *s)
{
    return (struct array_scope){req->server->shares, req->principal, s->handles};
}

enum err_code handler_find(struct request *req, struct session *s, const char *ref,
                           struct handle *ret, struct err *e)
{
    struct array_scope scope = handler_scope(req, s);
    return share_get(&scope, ref, ret, e);
}

enum err_code handler_owned(const struct handle *h, struct err *e)
{
    return h->shared ? err_set(e, ERR_FORBIDDEN, "only the array's owner can do that") : ERR_OK;
}

static enum err_code find_array(struct request *req, bool own, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h, struct err *e)
{
    struct session *s;
    enum err_code r = session_of(req, &s, e);
    if (r != ERR_OK)
        return r;
    r = handler_find(req, s, req->param[0], ret_h, e);
    if (r == ERR_OK) {
        r = own ? handler_owned(ret_h, e) : ERR_OK;
        if (r == ERR_OK)
            r = handler_leased(req, ret_h->array, access, e);
        if (r != ERR_OK)
            handle_clear(ret_h);
    }
    if (r != ERR_OK) {
        session_unref(s);
        return r;
    }
    *ret_s = s;
    return ERR_OK;
}

enum err_code handler_array(struct request *req, enum lease_access access, struct session **ret_s,
                            struct handle *ret_h, struct err *e)
{
    return find_array(req, false, access, ret_s, ret_h, e);
}

enum err_code handler_own_array(struct request *req, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h, struct err *e)
{
    return find_array(req, true, access, ret_s, ret_h, e);
}

enum err_code handler_writable(const struct handle *h, struct err *e)
{
    if (!h->read_only)
        return ERR_OK;
    if (h->reads_of)
        return err_set(e, ERR_FORBIDDEN, "the array is %s's, who shares it with you for reading",
                       h->reads_of);
    return err_set(e, ERR_READ_ONLY, "the array '%s' is read-only", h->name[0] ? h->name : h->id);
}

enum err_code handler_name(struct json body, const char **ret, struct err *e)
{
    struct json v = json_member(body, "name");
    const char *name = NULL;
    if (json_given(v)) {
        enum err_code r = json_get_string(v, &name, NULL, e);
        if (r != ERR_OK)
            return r;
        if ((r = name_check(name, e)) != ERR_OK)
            return err_prefix(e, "/name");
    }
    *ret = name;
    return ERR_OK;
}

enum err_code handler_location(struct json body, int *ret_host, struct err *e)
{
    struct json v = json_member(body, "location");
    bool host = json_equals(v, "host");
    if (!json_present(v))
        return ERR_OK;
    if (!host && !json_equals(v, "device"))
        return json_err(v, e, ERR_BAD_FIELD, "location is \"device\" or \"host\"");
    *ret_host = host;
    return ERR_OK;
}
