/* /v1/sessions: making, listing, deleting sessions, and waiting for their work. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "compute/base/mem.h"
#include "protocol/json/json_writer.h"
#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/store/auth.h"

#define SESSION_MAX 1024 /* bytes of a session's JSON */

/* `take` may have its room reserved, so that this cannot fail. */
static void reply_session(struct request *req, int status, const struct session *s,
                          struct strb *take)
{
    struct json_writer w = JSON_WRITER(take);
    meta_put_session(&w, s);
    if (status == 201) {
        char location[32 + ID_SIZE];
        snprintf(location, sizeof location, "/v1/sessions/%s", s->id);
        http_add_header(req, "Location", location);
    }
    http_reply_json(req, status, take);
}

static enum err_code read_spec(struct json body, struct session_spec *ret, struct err *e)
{
    struct json ttl = json_member(body, "ttl_s"), memory = json_member(body, "memory_limit"),
                device = json_member(body, "device");
    int64_t i;
    *ret = (struct session_spec){.device = SESSION_ANY_DEVICE};
    if (!json_present(body))
        return ERR_OK;
    TRY(JSON_MEMBERS(body, e, "name", "ttl_s", "memory_limit", "device"));
    TRY(meta_name(body, &ret->name, e));
    if (json_present(ttl)) {
        TRY(json_get_double(ttl, &ret->ttl_s, e));
        if (!(ret->ttl_s > 0) || isinf(ret->ttl_s))
            return json_err(ttl, e, ERR_BAD_FIELD,
                            "ttl_s must be a number of seconds greater than 0");
    }
    if (json_present(memory))
        TRY(json_get_i64(memory, 1, INT64_MAX, &ret->memory_limit, e));
    if (json_equals(device, "mesh")) {
        ret->device = SESSION_MESH;
    } else if (json_kind(device) == JSON_STRING) {
        return json_err(device, e, ERR_BAD_FIELD, "device is a device's number or \"mesh\"");
    } else if (json_present(device)) {
        TRY(json_get_i64(device, 0, INT32_MAX, &i, e));
        ret->device = (int)i;
    }
    return ERR_OK;
}

static enum err_code make(struct request *req, struct err *e)
{
    struct json body;
    struct session_spec spec;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_strb_ struct strb out = {0};
    TRY(request_plain(req, e));
    TRY(request_body(req, true, &body, e));
    TRY(read_spec(body, &spec, e));
    if (!strb_reserve(&out, SESSION_MAX))
        return err_oom(e);
    enum err_code code = session_new(req->principal->sessions, &spec, &s, e);
    if (code == ERR_UNAUTHORIZED)
        auth_refuse(req, "the account was removed", e);
    if (code != ERR_OK)
        return code;
    reply_session(req, 201, s, &out);
    return ERR_OK;
}

void session_post(struct request *req)
{
    request_try(req, make);
}

static enum err_code get_page(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    page->n = session_list(req->principal->sessions, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *entry)
{
    meta_put_session(w, *(struct session *const *)entry);
}

static uint64_t number_of(const void *entry)
{
    return (*(struct session *const *)entry)->seq;
}

static void release(void *entry)
{
    session_unref(*(struct session **)entry);
}

void session_list_get(struct request *req)
{
    static const struct list list = {
        "sessions", sizeof(struct session *), get_page, put_entry, number_of, release,
    };
    list_reply(req, &list);
}

void session_one_get(struct request *req)
{
    struct err e = ERR_INIT;
    _cleanup_session_ struct session *s = NULL;
    if (request_plain(req, &e) != ERR_OK ||
        session_get(req->principal->sessions, req->param[0], false, &s, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        reply_session(req, 200, s, &(struct strb){0});
}

/* Nobody loses an array it has leased; a handle_guard's check. */
static enum err_code may_go(void *user, const struct array *now, struct err *e)
{
    struct err why = ERR_INIT;
    if (lease_check(user, now, LEASE_WRITE, &why) == ERR_OK)
        return ERR_OK;
    return err_set(e, why.code, "an array of the session cannot be deleted: %s", why.message);
}

void session_one_delete(struct request *req)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    struct lease_claim claim = request_claim(req);
    struct handle_guard guard = {may_go, &claim};
    if (http_query_only(req, none, &e) != ERR_OK ||
        session_delete(req->principal->sessions, req->param[0], &guard, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_empty(req, 204);
}

/* --- sync --- */

/* The engine calls back in any case, perhaps after the request has ended: the last
 * reference releases it. */
struct sync {
    _Atomic int refs;
    pthread_mutex_t lock;    /* held while the request is woken */
    struct request *req;     /* NULL: the request has ended */
    struct session *session; /* the request's reference */
    size_t left;             /* streams that still have work; under the lock, like the next two */
    enum err_code result;
    double device_ms;
};

static void sync_unref(struct sync *y)
{
    if (atomic_fetch_sub(&y->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&y->lock);
    mem_free(y);
}

static void sync_free(void *state)
{
    struct sync *y = state;
    pthread_mutex_lock(&y->lock);
    y->req = NULL;
    pthread_mutex_unlock(&y->lock);
    session_unref(y->session);
    sync_unref(y);
}

static void sync_done(void *user, enum err_code result, double device_ms)
{
    struct sync *y = user;
    pthread_mutex_lock(&y->lock);
    y->result = y->result == ERR_OK ? result : y->result;
    y->device_ms = device_ms > y->device_ms ? device_ms : y->device_ms;
    if (--y->left == 0 && y->req)
        http_wake(y->req);
    pthread_mutex_unlock(&y->lock);
    sync_unref(y);
}

static void sync_reply(struct request *req)
{
    const struct sync *y = req->state;
    req->t_device = y->device_ms;
    if (y->result == ERR_OK) {
        reply_session(req, 200, y->session, &(struct strb){0});
        return;
    }
    struct err e = ERR_INIT;
    err_set(&e, y->result, "the session's work did not finish");
    http_reply_error(req, &e);
}

void session_sync_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct session *s;
    if (request_plain(req, &e) != ERR_OK ||
        session_get(req->principal->sessions, req->param[0], true, &s, &e) != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    struct sync *y = mem_calloc(1, sizeof *y);
    if (!y) {
        session_unref(s);
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    struct engine_stream *streams[SESSION_STREAMS];
    y->left = session_streams(s, streams);
    atomic_init(&y->refs, 1 + (uint32_t)y->left);
    pthread_mutex_init(&y->lock, NULL); /* cannot fail here */
    y->req = req;
    y->session = s;
    req->state = y;
    req->state_free = sync_free;
    http_may_end(req, NULL);
    http_wait(req, sync_reply);
    for (size_t i = 0, n = y->left; i < n; i++)
        engine_sync(streams[i], sync_done, y);
}
