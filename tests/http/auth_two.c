/* server/auth.h for the tests of sharing: two principals, of whom the header Test-Principal names
 * one. Linked in the place of server/auth.c. */
#include <stdlib.h>
#include <string.h>

#include "server/auth.h"
#include "server/http.h"
#include "server/server.h"

struct auth {
    struct principal who[2];
};

static enum err_code principal_open(struct principal *p, const char *name, struct engine *engine,
                                    const struct session_limits *limits, struct err *e)
{
    p->name = name;
    p->handles = handles_new(limits->max_arrays);
    p->functions = functions_new(limits->max_functions);
    if (!p->handles || !p->functions)
        return err_oom(e);
    return sessions_new(engine, limits, p->handles, &p->sessions, e);
}

enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       struct auth **ret, struct err *e)
{
    struct auth *a = calloc(1, sizeof *a);
    enum err_code r = a ? principal_open(&a->who[0], "ann", engine, limits, e) : err_oom(e);
    if (r == ERR_OK)
        r = principal_open(&a->who[1], "bob", engine, limits, e);
    if (r != ERR_OK) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return ERR_OK;
}

void auth_free(struct auth *a)
{
    for (int i = 0; a && i < 2; i++) {
        sessions_free(a->who[i].sessions);
        handles_free(a->who[i].handles);
        functions_free(a->who[i].functions);
    }
    free(a);
}

enum err_code auth_identify(struct request *req, struct err *e)
{
    const char *name = http_header(req, "Test-Principal");
    struct principal *p = auth_find(req->server->auth, name ? name : "ann");
    if (!p)
        return err_set(e, ERR_UNAUTHORIZED, "nobody is called %s", name);
    req->principal = p;
    return ERR_OK;
}

struct principal *auth_find(struct auth *a, const char *name)
{
    for (int i = 0; i < 2; i++)
        if (!strcmp(name, a->who[i].name))
            return &a->who[i];
    return NULL;
}

int64_t auth_sessions(struct auth *a)
{
    return sessions_count(a->who[0].sessions) + sessions_count(a->who[1].sessions);
}

int64_t auth_arrays(struct auth *a)
{
    return handles_count(a->who[0].handles) + handles_count(a->who[1].handles);
}
