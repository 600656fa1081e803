/* What a principal may do with a request once it is known, by its role and its quotas; and what all
 * of them have together. */
#include <stdatomic.h>
#include <string.h>

#include "server/http/http.h"
#include "server/store/auth.h"

enum err_code auth_refuse(struct request *req, const char *why, struct err *e)
{
    http_add_header(req, "WWW-Authenticate", "Bearer realm=\"arrayd\", error=\"invalid_token\"");
    return err_set(e, ERR_UNAUTHORIZED, "%s", why);
}

enum err_code auth_count(const struct request *req, _Atomic int64_t *n, int64_t most,
                         const char *what, const char *quota, struct err *e)
{
    /* a link's visitors leave one for its owner, who could else not end it */
    int64_t now = atomic_fetch_add(n, 1) + 1;
    if (!most || now + req->by_link <= most)
        return ERR_OK;
    atomic_fetch_sub(n, 1);
    return err_set(e, ERR_QUOTA, "%lld %s already, the most allowed (quota %s)", (long long)most,
                   what, quota);
}

void auth_identify_again(struct request *req, const struct request *of)
{
    req->principal = of->principal;
    req->by_link = of->by_link;
    memcpy(req->token, of->token, sizeof req->token);
    atomic_store(&req->edition, atomic_load(&of->edition));
    atomic_fetch_add(&req->principal->requests, 1);
}

void auth_leave(struct principal *p)
{
    atomic_fetch_sub(&p->requests, 1);
}

enum err_code auth_connect(const struct request *req, struct principal **whose, struct err *e)
{
    struct principal *p = req->principal;
    if (*whose == p)
        return ERR_OK;
    auth_disconnect(*whose);
    *whose = NULL;
    enum err_code code = auth_count(req, &p->connections, atomic_load(&p->max_connections),
                                    "connections are open", "connections", e);
    if (code == ERR_OK)
        *whose = p;
    return code;
}

void auth_disconnect(struct principal *whose)
{
    if (whose)
        atomic_fetch_sub(&whose->connections, 1);
}

enum err_code auth_role(const struct request *req, struct err *e)
{
    if (req->route->access != ACCESS_OPERATOR || !req->principal ||
        atomic_load(&req->principal->role) == ROLE_OPERATOR)
        return ERR_OK;
    return err_set(e, ERR_FORBIDDEN, "only operators may do this, and '%s' is not one",
                   req->principal->name);
}

int64_t auth_max_body(const struct principal *p)
{
    return atomic_load(&p->max_body);
}

static void add_sessions(void *sum, struct principal *p)
{
    *(int64_t *)sum += sessions_count(p->sessions);
}

int64_t auth_sessions(struct auth *a)
{
    int64_t n = 0;
    auth_each(a, add_sessions, &n);
    return n;
}

static void add_arrays(void *sum, struct principal *p)
{
    *(int64_t *)sum += handles_count(p->handles);
}

int64_t auth_arrays(struct auth *a)
{
    int64_t n = 0;
    auth_each(a, add_arrays, &n);
    return n;
}

static void tell_rest_of_month(void *user, struct principal *p)
{
    (void)user;
    account_tell(p->account);
}

void auth_tell_months(struct auth *a)
{
    auth_each(a, tell_rest_of_month, NULL);
}
