/* A token, or the key of a read-only link, becomes a cookie; and who one is.
 *
 * A link's cookie has the link's own key: it needs no login of its own, and ends with the link,
 * whoever has opened it. Its holder cannot end it by logging out, only forget it. */
#include "server/login/login.h"

#include "server/admin/audit.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/login/links.h"
#include "server/login/visitor.h"
#include "server/store/auth.h"

/* `p` NULL: nobody. `terms` NULL: not by a login. */
static void reply_who(struct request *req, const struct principal *p,
                      const struct login_terms *terms)
{
    const char *role = p && terms && terms->link ? "viewer"
                       : p                       ? role_name(atomic_load(&p->role))
                                                 : NULL;
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    json_open_object(&w);
    json_put_member_bool(&w, "required", auth_asks(req->server->auth));
    json_put_member_string(&w, "principal", p ? p->name : NULL);
    json_put_member_string(&w, "role", role);
    if (terms)
        meta_put_time(&w, "expires", terms->expires_us);
    else
        json_put_member_string(&w, "expires", NULL);
    link_put_refs(&w, terms);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

static enum err_code read_key(struct request *req, const char **ret_token, const char **ret_link,
                              struct err *e)
{
    struct json body, token, link;
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "token", "link"));
    token = json_member(body, "token");
    link = json_member(body, "link");
    *ret_token = *ret_link = NULL;
    if (json_present(token) == json_present(link))
        return json_err(body, e, ERR_BAD_FIELD, "give either token or link");
    return json_present(token) ? json_get_string(token, ret_token, NULL, e)
                               : json_get_string(link, ret_link, NULL, e);
}

static int64_t seconds_left(const struct login_terms *terms)
{
    const int64_t left = (terms->expires_us - clock_date_us()) / 1000000;
    return left > 0 ? left : 1;
}

void login_told(struct request *req, const struct login_terms *terms, const struct principal *who,
                enum audit_access action)
{
    char until[CLOCK_DATE_SIZE];
    clock_date_text(terms->expires_us, until);
    audit_access(req->server->audit, req, terms->who, who, action, ERR_OK, "%s/%s until %s",
                 terms->who->name, terms->id, until);
}

static enum err_code by_token(struct request *req, const char *token, struct err *e)
{
    struct login_terms terms = {0};
    struct login *l = NULL;
    char key[LOGIN_KEY_LEN + 1];
    if (!auth_asks(req->server->auth))
        return err_set(e, ERR_CONFLICT, "this daemon has no accounts, and needs no login");
    TRY(auth_find_token(req, token, &terms.who, e));
    memcpy(terms.token, req->token, sizeof terms.token);
    char gone[ID_SIZE];
    TRY(logins_add(req->server->logins, &terms, req->server->config->login_lifetime, key, &l, gone,
                   e));
    if (*gone)
        audit_access(req->server->audit, req, terms.who, terms.who, ACCESS_END_LOGIN, ERR_OK,
                     "%s, for a newer one", gone);
    login_told(req, login_terms(l), terms.who, ACCESS_LOGIN);
    visitor_set_cookie(req, key, seconds_left(login_terms(l)));
    reply_who(req, terms.who, login_terms(l));
    login_unref(l);
    return ERR_OK;
}

/* Ends the login that the request came with; a link is not the visitor's to end. */
static void end_own(struct request *req)
{
    struct login *l = visitor_login(req);
    const struct login_terms *terms = l ? login_terms(l) : NULL;
    if (l && !terms->link && logins_end(req->server->logins, l))
        audit_access(req->server->audit, req, terms->who, terms->who, ACCESS_LOGOUT, ERR_OK, "%s",
                     terms->id);
    login_unref(l);
}

static enum err_code by_link(struct request *req, const char *key, struct err *e)
{
    struct login *l = logins_find(req->server->logins, key, strlen(key));
    const struct login_terms *terms = l ? login_terms(l) : NULL;
    if (terms && terms->link && !atomic_load(&terms->who->gone)) {
        end_own(req); /* its cookie is lost: nobody could end it */
        login_told(req, terms, NULL, ACCESS_OPEN_LINK);
        visitor_set_cookie(req, key, seconds_left(terms));
        reply_who(req, terms->who, terms);
        login_unref(l);
        return ERR_OK;
    }
    login_unref(l);
    return auth_refuse(req, "the link is unknown, or over", e);
}

static enum err_code log_in(struct request *req, struct err *e)
{
    const char *token, *link = NULL;
    TRY(request_plain(req, e));
    enum err_code code = visitor_same_origin(req, false, e);
    if (code == ERR_OK) {
        TRY(read_key(req, &token, &link, e));
        code = token ? by_token(req, token, e) : by_link(req, link, e);
    }
    if (code == ERR_UNAUTHORIZED || code == ERR_FORBIDDEN)
        audit_refused(req->server->audit, req, link ? AUDIT_LINK : AUDIT_LOGIN, code);
    if (code == ERR_UNAUTHORIZED) /* as for a wrong token in a header */
        http_last(req);
    return code;
}

void login_post(struct request *req)
{
    request_try(req, log_in);
}

static enum err_code who_is_it(struct request *req, struct err *e)
{
    TRY(request_plain(req, e));
    reply_who(req, req->principal, req->login ? login_terms(req->login) : NULL);
    return ERR_OK;
}

void login_get(struct request *req)
{
    request_try(req, who_is_it);
}

static enum err_code log_out(struct request *req, struct err *e)
{
    static const char *const none[] = {NULL};
    TRY(http_query_only(req, none, e));
    TRY(visitor_same_origin(req, false, e));
    end_own(req);
    visitor_forget(req);
    http_reply_empty(req, 204);
    return ERR_OK;
}

void logout_post(struct request *req)
{
    request_try(req, log_out);
}

/* --- all of a principal's --- */

static void end_all(struct request *req, const struct principal *whose)
{
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    const size_t n = logins_end_all(req->server->logins, whose);
    audit_access(req->server->audit, req, whose, req->principal, ACCESS_END_LOGINS, ERR_OK,
                 "%s: %zu", whose->name, n);
    json_open_object(&w);
    json_put_member_i64(&w, "ended", (int64_t)n);
    json_close_object(&w);
    http_reply_json(req, 200, &out);
}

static enum err_code end_own_logins(struct request *req, struct err *e)
{
    TRY(request_plain(req, e));
    if (req->login)
        visitor_set_cookie(req, NULL, 0);
    end_all(req, req->principal);
    return ERR_OK;
}

void logins_delete(struct request *req)
{
    request_try(req, end_own_logins);
}

static enum err_code end_others_logins(struct request *req, struct err *e)
{
    TRY(request_plain(req, e));
    const struct principal *p = auth_find(req->server->auth, req->param[0]);
    if (!p)
        return err_set(e, ERR_NOT_FOUND, "there is no principal '%.80s'", req->param[0]);
    end_all(req, p);
    return ERR_OK;
}

void admin_logins_delete(struct request *req)
{
    request_try(req, end_others_logins);
}
