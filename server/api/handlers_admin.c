/* /v1/admin: everybody's sessions, jobs, arrays and principals, for operators: lists of them, and
 * their ends.
 *
 * Numbers in order of creation are a principal's own, so a place in a list of all is the
 * principal's number and the entry's number together. Lists and ends are on a worker: the leases
 * and shares of a thousand arrays are looked up, or thousands of arrays released. */
#include "server/admin/audit.h"
#include "server/admin/ends.h"
#include "server/admin/put.h"
#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/request.h"
#include "server/jobs/jobs.h"
#include "server/login/logins.h"
#include "server/store/auth.h"

#define PRINCIPAL_JSON_MAX 4096

#define SEQ_BITS 44 /* a hundred thousand a second for five years */
#define SEQ_MOST (((uint64_t)1 << SEQ_BITS) - 1)

/* --- what several principals have --- */

/* An entry of such a list. */
struct others {
    struct server *server;
    struct principal *owner;
    uint64_t seq;
    struct session *session; /* one of the two */
    struct handle array;
};

/* Up to `limit` entries of the principal's after that number. */
typedef size_t list_fn(struct principal *p, uint64_t after, size_t limit, struct others *ret,
                       bool *ret_more);

static enum err_code page_of_all(struct request *req, struct page *page, struct others *ret,
                                 list_fn *list)
{
    struct auth *a = req->server->auth;
    const uint64_t number = page->after >> SEQ_BITS;
    struct principal *p = auth_next(a, number ? number - 1 : 0);
    for (; p && !page->more; p = auth_next(a, p->number)) {
        if (!atomic_load(&p->open))
            continue;
        const uint64_t after = p->number == number ? page->after & SEQ_MOST : LIST_FROM_TOP;
        const size_t n = list(p, after, page->limit - page->n, ret + page->n, &page->more);
        for (size_t i = 0; i < n; i++) {
            ret[page->n + i].server = req->server;
            ret[page->n + i].owner = p;
        }
        page->n += n;
    }
    return ERR_OK;
}

static uint64_t number_of(const void *entry)
{
    const struct others *x = entry;
    return x->owner->number << SEQ_BITS | (x->seq & SEQ_MOST);
}

/* --- sessions --- */

static size_t list_sessions(struct principal *p, uint64_t after, size_t limit, struct others *ret,
                            bool *ret_more)
{
    size_t n = 0;
    *ret_more = true;
    while (n < limit && *ret_more &&
           session_list(p->sessions, after, 1, &ret[n].session, ret_more) == 1) {
        after = ret[n].seq = ret[n].session->seq;
        n++;
    }
    if (n == 0 && *ret_more) /* no more than a look whether there is one */
        (void)session_list(p->sessions, after, 0, NULL, ret_more);
    return n;
}

static enum err_code get_sessions(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    return page_of_all(req, page, ret, list_sessions);
}

static void put_session(struct json_writer *w, const void *entry)
{
    const struct others *x = entry;
    put_others_session(w, x->owner, x->session);
}

static void release_session(void *entry)
{
    session_unref(((struct others *)entry)->session);
}

static void reply_sessions(struct request *req)
{
    static const struct list list = {
        "sessions", sizeof(struct others), get_sessions, put_session, number_of, release_session,
    };
    list_reply(req, &list);
}

void admin_sessions_get(struct request *req)
{
    http_offload_long(req, reply_sessions);
}

/* --- arrays --- */

static void take_array(void *user, const struct handle *h)
{
    struct others **to = user;
    (*to)->array = *h;
    (*to)++->seq = h->seq;
}

static size_t list_arrays(struct principal *p, uint64_t after, size_t limit, struct others *ret,
                          bool *ret_more)
{
    return handle_list_all(p->handles, after, limit, take_array, &ret, ret_more);
}

static enum err_code get_arrays(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    return page_of_all(req, page, ret, list_arrays);
}

static void put_array(struct json_writer *w, const void *entry)
{
    const struct others *x = entry;
    put_others_array(w, x->server, x->owner->name, &x->array);
}

static void release_array(void *entry)
{
    handle_clear(&((struct others *)entry)->array);
}

static void reply_arrays(struct request *req)
{
    static const struct list list = {
        "arrays",  sizeof(struct others), get_arrays,     put_array,
        number_of, release_array,         .tagged = true,
    };
    list_reply(req, &list);
}

void admin_arrays_get(struct request *req)
{
    http_offload_long(req, reply_arrays);
}

/* --- jobs --- */

static enum err_code get_jobs(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    page->n = jobs_list(req->server->jobs, NULL, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_job(struct json_writer *w, const void *entry)
{
    put_others_job(w, *(struct user_job *const *)entry);
}

static uint64_t number_of_job(const void *entry)
{
    return job_seq(*(struct user_job *const *)entry);
}

static void release_job(void *entry)
{
    job_unref(*(struct user_job **)entry);
}

static void reply_jobs(struct request *req)
{
    static const struct list list = {
        "jobs", sizeof(struct user_job *), get_jobs, put_job, number_of_job, release_job,
    };
    list_reply(req, &list);
}

void admin_jobs_get(struct request *req)
{
    http_offload_long(req, reply_jobs);
}

/* --- principals --- */

static enum err_code get_principals(struct request *req, struct page *page, void *ret,
                                    struct err *e)
{
    struct others *to = ret;
    struct principal *p = auth_next(req->server->auth, page->after);
    (void)e;
    for (; p && page->n < page->limit; p = auth_next(req->server->auth, p->number))
        to[page->n++] = (struct others){.server = req->server, .owner = p};
    page->more = p != NULL;
    return ERR_OK;
}

static void put_principal(struct json_writer *w, const void *entry)
{
    const struct others *x = entry;
    put_others_principal(w, x->server, x->owner);
}

static uint64_t number_of_principal(const void *entry)
{
    return ((const struct others *)entry)->owner->number;
}

static void keep(void *entry)
{
    (void)entry; /* principals are not counted */
}

static void reply_principals(struct request *req)
{
    static const struct list list = {
        "principals",  sizeof(struct others), get_principals,
        put_principal, number_of_principal,   keep,
    };
    list_reply(req, &list);
}

void admin_principals_get(struct request *req)
{
    http_offload_long(req, reply_principals);
}

/* --- ends --- */

static enum err_code no_query(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    return http_query_only(req, none, e);
}

static void answer(struct request *req, const char *action, const char *owner, struct err *e)
{
    audit_did(req->server->audit, req, action, e->code, "%s%s%.80s", owner ? owner : "",
              owner ? "/" : "", req->param[0]);
    if (e->code == ERR_OK)
        http_reply_empty(req, 204);
    else
        http_reply_error(req, e);
}

static void array_ends(struct request *req)
{
    const char *owner = NULL;
    struct err e = ERR_INIT;
    if (no_query(req, &e) == ERR_OK && end_array(req->server, req->param[0], &owner, &e) == ERR_OK)
        e = (struct err)ERR_INIT;
    answer(req, "delete_array", owner, &e);
}

static void session_ends(struct request *req)
{
    const char *owner = NULL;
    struct err e = ERR_INIT;
    if (no_query(req, &e) == ERR_OK &&
        end_session(req->server, req->param[0], &owner, &e) == ERR_OK)
        e = (struct err)ERR_INIT;
    answer(req, "delete_session", owner, &e);
}

static void principal_ends(struct request *req)
{
    struct err e = ERR_INIT;
    if (no_query(req, &e) == ERR_OK)
        (void)!end_principal(req->server, req->principal, req->param[0], &e);
    logins_sweep(req->server->logins);
    answer(req, "delete_principal", NULL, &e);
}

void admin_array_delete(struct request *req)
{
    http_offload_long(req, array_ends);
}

void admin_session_delete(struct request *req)
{
    http_offload_long(req, session_ends);
}

void admin_principal_delete(struct request *req)
{
    http_offload_long(req, principal_ends);
}

/* --- settings --- */

/* null: the accounts file's again; 0: no quota. */
static enum err_code read_settings(struct json body, struct setting_wishes *ret, struct err *e)
{
    const struct json quotas = json_member(body, "quotas");
    TRY(JSON_MEMBERS(body, e, "weight", "quotas"));
    if (json_present(quotas))
        TRY(JSON_MEMBERS(quotas, e, "device_memory", "host_memory", "request_memory", "arrays",
                         "sessions", "requests", "connections", "body"));
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct json v = json_member(i ? quotas : body, setting_name(i));
        ret->given[i] = json_present(v);
        ret->of[i].set = json_given(v);
        if (ret->of[i].set)
            TRY(json_get_i64(v, !i, setting_most(i), &ret->of[i].value, e));
    }
    return ERR_OK;
}

static enum err_code change(struct request *req, struct strb *out, struct strb *said, struct err *e)
{
    struct json body;
    struct principal *p;
    struct setting_wishes w = {0};
    TRY(request_plain(req, e));
    TRY(request_body(req, false, &body, e));
    TRY(read_settings(body, &w, e));
    if (!strb_reserve(out, PRINCIPAL_JSON_MAX))
        return err_oom(e);
    TRY(auth_open(req->server->auth, req->param[0], &p, e));
    TRY(auth_change(req->server->auth, p, &w, e));
    for (size_t i = 0; i < SETTINGS; i++)
        if (w.given[i] && w.of[i].set)
            strb_addf(said, " %s=%lld", setting_name(i), (long long)w.of[i].value);
        else if (w.given[i])
            strb_addf(said, " %s=accounts", setting_name(i));
    struct json_writer json = JSON_WRITER(out);
    put_others_principal(&json, req->server, p);
    return ERR_OK;
}

void admin_principal_patch(struct request *req)
{
    struct err e = ERR_INIT;
    _cleanup_strb_ struct strb out = {0}, said = {0};
    const enum err_code code = change(req, &out, &said, &e);
    audit_did(req->server->audit, req, "set_principal", code, "%.80s%s", req->param[0],
              said.len && !said.failed ? said.data : "");
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_json(req, 200, &out);
}

/* --- the audit --- */

static enum err_code get_audit(struct request *req, struct page *page, void *ret, struct err *e)
{
    (void)e;
    page->n = audit_list(req->server->audit, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *entry)
{
    audit_put(w, entry);
}

static uint64_t number_of_entry(const void *entry)
{
    return ((const struct audit_entry *)entry)->number;
}

void admin_audit_get(struct request *req)
{
    static const struct list list = {
        "entries", sizeof(struct audit_entry), get_audit, put_entry, number_of_entry, keep,
    };
    list_reply(req, &list);
}
