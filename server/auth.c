/* Principals: the one local user. */
#include "server/auth.h"

#include <string.h>

#include "compute/base/mem.h"
#include "server/http.h"
#include "server/server.h"

struct auth {
    struct principal local;
};

enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       struct auth **ret, struct err *e)
{
    struct auth *a = mem_calloc(1, sizeof *a);
    if (!a)
        return err_oom(e);
    a->local.name = "local";
    a->local.handles = handles_new(limits->max_arrays);
    a->local.functions = functions_new(limits->max_functions);
    enum err_code r = a->local.handles && a->local.functions ? ERR_OK : err_oom(e);
    if (r == ERR_OK)
        r = sessions_new(engine, limits, a->local.handles, &a->local.sessions, e);
    if (r != ERR_OK) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return ERR_OK;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    sessions_free(a->local.sessions);
    handles_free(a->local.handles);
    functions_free(a->local.functions);
    mem_free(a);
}

enum err_code auth_identify(struct request *req, struct err *e)
{
    (void)e; /* nobody is refused while there is one principal */
    req->principal = &req->server->auth->local;
    return ERR_OK;
}

struct principal *auth_find(struct auth *a, const char *name)
{
    return strcmp(name, a->local.name) == 0 ? &a->local : NULL;
}

int64_t auth_sessions(struct auth *a)
{
    return sessions_count(a->local.sessions);
}

int64_t auth_arrays(struct auth *a)
{
    return handles_count(a->local.handles);
}
