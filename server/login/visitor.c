/* Of a request's site browsers tell in two headers, neither of which a page can set. Sec-Fetch-Site
 * is sent by all of today, but only over TLS and to the machine itself; Origin everywhere, but not
 * with plain reads. SameSite=Strict alone would not do: for it all ports of a host are one site. */
#include "server/login/visitor.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/login/cookie.h"
#include "server/store/auth.h"

#define HTTPS "https://"
/* What the name of a cookie of ours consists of. */
#define COOKIE_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* A proxy may add TLS, but nothing takes it away. */
static bool is_same(struct request *req, const char *origin)
{
    const char *authority = strstr(origin, "://"), *host = http_header(req, "Host");
    if (http_is_encrypted(req) && strncasecmp(origin, HTTPS, sizeof HTTPS - 1) != 0)
        return false;
    return authority && host && !strcasecmp(authority + 3, host);
}

enum err_code visitor_same_origin(struct request *req, bool needs_sign, struct err *e)
{
    const char *site = http_header(req, "Sec-Fetch-Site"), *origin = http_header(req, "Origin");
    bool same = !needs_sign;
    if (site)
        same = !strcmp(site, "same-origin") || !strcmp(site, "none");
    else if (origin)
        same = is_same(req, origin);
    return same ? ERR_OK
                : err_set(e, ERR_FORBIDDEN,
                          "with a login, requests must come from the daemon's own page: neither "
                          "Sec-Fetch-Site nor Origin says so");
}

/* The next login that a cookie is of, whose name begins like this process's. The caller gets a
 * reference. */
static struct login *next_login(struct request *req, const char **at, size_t n_same,
                                const char **ret_key)
{
    struct logins *t = req->server->logins;
    struct login *l = NULL;
    size_t n;
    do {
        *ret_key = cookie_next_like(at, logins_cookie(t), n_same, &n);
        l = *ret_key ? logins_find(t, *ret_key, n) : NULL;
    } while (*ret_key && !l);
    return l;
}

/* A link that outlives the process has been given to browsers under the name of another. */
struct login *visitor_login(struct request *req)
{
    const char *const header = http_header(req, "Cookie"), *at = header, *key;
    if (!header || http_header(req, "Authorization"))
        return NULL;
    struct login *l = next_login(req, &at, strlen(logins_cookie(req->server->logins)), &key);
    at = header;
    return l ? l : next_login(req, &at, LOGIN_COOKIE_SAME, &key);
}

static bool changes_nothing(const struct request *req)
{
    return !strcmp(req->method, "GET") || !strcmp(req->method, "HEAD");
}

/* ERR_UNAUTHORIZED: its token or account is no longer there. */
static enum err_code enter(struct request *req, const struct login_terms *terms, struct err *e)
{
    TRY(visitor_same_origin(req, !changes_nothing(req), e));
    return auth_identify_as(req, terms->who, terms->link ? NULL : terms->token, e);
}

/* Whether the page that sent this shows another user than the one the cookie is for. All windows of
 * a browser share one login, and somebody else may have logged in since in another of them. */
static bool is_anothers(struct request *req, const struct login *l)
{
    const char *expected = http_header(req, "Arrayd-Principal");
    return expected && strcmp(expected, login_terms(l)->who->name) != 0;
}

enum err_code visitor_identify(struct request *req, struct err *e)
{
    const bool asks = auth_asks(req->server->auth);
    bool over = false;
    struct login *l = visitor_login(req);
    if (l && is_anothers(req, l)) {
        login_unref(l);
        return auth_refuse(req, "the login is another user's now", e);
    }
    if (l) {
        const enum err_code code = enter(req, login_terms(l), e);
        over = code == ERR_UNAUTHORIZED;
        if (over) /* its token may come back, the login does not */
            (void)logins_end(req->server->logins, l);
        if (code == ERR_OK)
            req->login = l; /* front.c gives it back */
        else
            login_unref(l);
        if (!over)
            return code;
    }
    if (asks && req->route->access == ACCESS_GUEST && !http_header(req, "Authorization"))
        return ERR_OK;
    return over && asks ? auth_refuse(req, "the login is over", e) : auth_identify(req, e);
}

bool visitor_lasts(struct request *req)
{
    return auth_lasts(req) && (!req->login || login_lasts(req->login));
}

enum err_code visitor_may(const struct request *req, struct err *e)
{
    const struct login_terms *terms = req->login ? login_terms(req->login) : NULL;
    const enum shown shown = req->route->shown;
    if (!terms || !terms->link || shown == SHOWN_ALWAYS)
        return ERR_OK;
    if (shown == SHOWN_NEVER || (shown == SHOWN_WHOLE && !terms->whole))
        return err_set(e, ERR_FORBIDDEN, "a read-only link does not allow this");
    if (!terms->whole && !login_names(req->login, req->param[0]))
        return err_set(e, ERR_NOT_FOUND, "this read-only link does not show '%.80s'",
                       req->param[0]);
    return ERR_OK;
}

static void set_cookie(struct request *req, const char *name, const char *key, int64_t seconds)
{
    /* the daemon may be behind a proxy that adds TLS, but browsers tell */
    const char *origin = http_header(req, "Origin");
    const bool encrypted =
        http_is_encrypted(req) || (origin && !strncasecmp(origin, HTTPS, sizeof HTTPS - 1));
    char cookie[COOKIE_MAX];
    cookie_set(name, key ? key : "", key ? seconds : 0, encrypted, cookie);
    http_add_header(req, "Set-Cookie", cookie);
}

void visitor_set_cookie(struct request *req, const char *key, int64_t seconds)
{
    set_cookie(req, logins_cookie(req->server->logins), key, seconds);
}

void visitor_forget(struct request *req)
{
    const char *own = logins_cookie(req->server->logins), *at = http_header(req, "Cookie"), *key;
    const size_t n = strlen(own);
    char name[LOGIN_COOKIE];
    visitor_set_cookie(req, NULL, 0);
    for (struct login *l = at ? next_login(req, &at, LOGIN_COOKIE_SAME, &key) : NULL; l;
         l = next_login(req, &at, LOGIN_COOKIE_SAME, &key)) {
        snprintf(name, sizeof name, "%.*s", (int)n, key - n - 1);
        if (strcmp(name, own) != 0 && strspn(name, COOKIE_NAME) == n) /* it goes into a header */
            set_cookie(req, name, NULL, 0);
        login_unref(l);
    }
}
