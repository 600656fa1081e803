/* /v1/links: read-only links, for a colleague or a projector.
 *
 * The key is in the address's fragment, which browsers keep to themselves: it is in no log, neither
 * the daemon's nor a proxy's, and in no Referer. The page takes it from there and logs in with it.
 * A link shows arrays and jobs by their ids, which are never used again, so it cannot come to show
 * another array that has got the name. */
#include "server/login/links.h"

#include <stdio.h>
#include <string.h>

#include "server/admin/audit.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/jobs/jobs.h"
#include "server/login/login.h"
#include "server/store/auth.h"

#define ADDRESS       "/#link=%s"
#define LINK_JSON_MAX (512 + LINK_REFS_MAX * (ID_SIZE + 3))

static void put_list(struct json_writer *w, const char *name, char prefix,
                     const struct login_terms *terms)
{
    json_put_key(w, name);
    if (!terms || !terms->link || terms->whole) {
        json_put_null(w);
        return;
    }
    json_open_list(w);
    for (size_t i = 0; i < terms->n_refs; i++)
        if (id_is(prefix, terms->refs[i]))
            json_put_string(w, terms->refs[i]);
    json_close_list(w);
}

void link_put_refs(struct json_writer *w, const struct login_terms *terms)
{
    put_list(w, "arrays", 'a', terms);
    put_list(w, "jobs", 'j', terms);
}

/* `key` NULL: it is known to those who have the address only. */
static void put_link(struct json_writer *w, const struct login_terms *terms, const char *key)
{
    char url[sizeof ADDRESS + LOGIN_KEY_LEN];
    json_open_object(w);
    json_put_member_string(w, "id", terms->id);
    if (key) {
        snprintf(url, sizeof url, ADDRESS, key);
        json_put_member_string(w, "url", url);
    }
    meta_put_time(w, "created", terms->created_us);
    meta_put_time(w, "expires", terms->expires_us);
    link_put_refs(w, terms);
    json_close_object(w);
}

/* --- POST --- */

struct wishes {
    struct session *session;
    struct login_terms terms;
    char refs[LINK_REFS_MAX][ID_SIZE];
};

/* The id of an array or a job of the caller's own. What another user shares is not the caller's to
 * pass on. */
static enum err_code find_array(struct request *req, struct session *s, const char *ref,
                                char ret[ID_SIZE], struct err *e)
{
    _cleanup_handle_ struct handle h = {0};
    TRY(request_find(req, s, ref, &h, e));
    TRY(handle_owned(&h, e));
    memcpy(ret, h.id, ID_SIZE);
    return ERR_OK;
}

static enum err_code find_job(struct request *req, struct session *s, const char *ref,
                              char ret[ID_SIZE], struct err *e)
{
    (void)s;
    struct user_job *j;
    TRY(jobs_find(req->server->jobs, req->principal, ref, &j, e));
    snprintf(ret, ID_SIZE, "%s", job_id(j));
    job_unref(j);
    return ERR_OK;
}

static enum err_code read_refs(struct request *req, struct json list, struct wishes *w,
                               enum err_code (*find)(struct request *req, struct session *s,
                                                     const char *ref, char ret[ID_SIZE],
                                                     struct err *e),
                               struct err *e)
{
    const char *ref;
    if (!json_given(list))
        return ERR_OK;
    if (json_kind(list) != JSON_LIST)
        return json_err(list, e, ERR_BAD_FIELD, "give a list");
    for (struct json c = json_first(list); json_present(c); c = json_next(c)) {
        struct err why = ERR_INIT;
        TRY(json_get_string(c, &ref, NULL, e));
        if (w->terms.n_refs == LINK_REFS_MAX)
            return json_err(c, e, ERR_BAD_FIELD, "a link shows at most %d arrays and jobs",
                            LINK_REFS_MAX);
        const enum err_code code = find(req, w->session, ref, w->refs[w->terms.n_refs], &why);
        if (code != ERR_OK)
            return json_err(c, e, code, "%s", why.message);
        w->terms.n_refs++;
    }
    return ERR_OK;
}

static enum err_code read_link(struct request *req, struct json body, struct wishes *w,
                               double *ret_seconds, struct err *e)
{
    const double most = req->server->config->max_link_lifetime;
    const struct json arrays = json_member(body, "arrays"), jobs = json_member(body, "jobs");
    struct json seconds;
    TRY(JSON_MEMBERS(body, e, "expires_s", "arrays", "jobs"));
    TRY(json_require(body, "expires_s", &seconds, e));
    TRY(json_get_double(seconds, ret_seconds, e));
    if (!(*ret_seconds > 0) || *ret_seconds > most)
        return json_err(seconds, e, ERR_BAD_FIELD,
                        "expires_s must be a number of seconds greater than 0, up to %.15g", most);
    w->terms.link = true;
    w->terms.whole = !json_given(arrays) && !json_given(jobs);
    w->terms.refs = (const char(*)[ID_SIZE])w->refs;
    TRY(read_refs(req, arrays, w, find_array, e));
    TRY(read_refs(req, jobs, w, find_job, e));
    if (!w->terms.whole && !w->terms.n_refs)
        return json_err(body, e, ERR_BAD_FIELD,
                        "a link must show something; without arrays and jobs it shows everything");
    return ERR_OK;
}

static enum err_code make_link(struct request *req, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    char key[LOGIN_KEY_LEN + 1];
    struct wishes w = {.terms.who = req->principal};
    struct login *l = NULL;
    struct json body;
    double seconds;
    char none[ID_SIZE]; /* no link ends for another */
    _cleanup_strb_ struct strb out = {0};
    TRY(request_plain(req, e));
    TRY(request_body(req, false, &body, e));
    TRY(session_of(req, &s, e));
    w.session = s;
    TRY(read_link(req, body, &w, &seconds, e));
    if (!strb_reserve(&out, LINK_JSON_MAX)) /* no link is made without telling its key */
        return err_oom(e);
    TRY(logins_add(req->server->logins, &w.terms, seconds, key, &l, none, e));
    login_told(req, login_terms(l), req->principal, ACCESS_MAKE_LINK);
    struct json_writer j = JSON_WRITER(&out);
    put_link(&j, login_terms(l), key);
    login_unref(l);
    http_reply_json(req, 201, &out);
    return ERR_OK;
}

static enum err_code try_link(struct request *req, struct err *e)
{
    const enum err_code code = make_link(req, e);
    if (code != ERR_OK)
        audit_access(req->server->audit, req, req->principal, req->principal, ACCESS_MAKE_LINK,
                     code, "%s", "");
    return code;
}

void link_post(struct request *req)
{
    request_try(req, try_link);
}

/* --- GET and DELETE --- */

static void put_known(void *w, const struct login_terms *terms)
{
    put_link(w, terms, NULL);
}

static enum err_code list_links(struct request *req, struct err *e)
{
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    TRY(request_plain(req, e));
    json_open_object(&w);
    json_put_key(&w, "links");
    json_open_list(&w);
    logins_each_link(req->server->logins, req->principal, put_known, &w);
    json_close_list(&w);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
    return ERR_OK;
}

void link_list_get(struct request *req)
{
    request_try(req, list_links);
}

static enum err_code end_link(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    TRY(http_query_only(req, none, e));
    const enum err_code code =
        logins_end_link(req->server->logins, req->principal, req->param[0], e);
    audit_access(req->server->audit, req, req->principal, req->principal, ACCESS_END_LINK, code,
                 "%s/%s", req->principal->name, id_is('v', req->param[0]) ? req->param[0] : "");
    TRY(code);
    http_reply_empty(req, 204);
    return ERR_OK;
}

void link_delete(struct request *req)
{
    request_try(req, end_link);
}
