/* Where a new array goes: session and name, checked before its bytes come and again (by handle_add)
 * when they are there. */
#include "server/body/create.h"

#include <string.h>

#include "server/body/meta.h"
#include "server/server.h"

/* The array that has the name now may be replaced; a handle_guard's check. */
static enum err_code may_replace(void *user, const struct array *now, struct err *e)
{
    struct create_target *t = user;
    TRY(lease_guard(t->leases, now, e));
    return condition_guard(&t->condition, now, e);
}

/* Before the body is taken: who cannot win need not send it. */
static enum err_code check_replace(struct create_target *t, struct err *e)
{
    _cleanup_handle_ struct handle now = {0};
    bool there = handle_get(t->session->handles, t->name, &now, NULL) == ERR_OK;
    return may_replace(t, there ? now.array : NULL, e);
}

static enum err_code read_target(struct request *req, struct create_target *t, const char *name,
                                 struct err *e)
{
    TRY(session_of(req, &t->session, e));
    if (name && create_target_name(t, name, e) != ERR_OK) {
        e->pointer[0] = '\0'; /* the name is not in the body */
        return e->code;
    }
    if (!t->put)
        return ERR_OK;
    t->condition = condition_of(req);
    t->leases = req->server->leases;
    return check_replace(t, e);
}

enum err_code create_target_init(struct request *req, struct create_target *ret, struct err *e)
{
    struct create_target t = {.put = strcmp(req->method, "PUT") == 0};
    const char *query = http_query(req, "name");
    if (t.put && query)
        return err_set(e, ERR_BAD_FIELD, "the path names the array, so 'name' must not be given");
    enum err_code code = read_target(req, &t, t.put ? req->param[0] : query, e);
    if (code != ERR_OK) {
        session_unref(t.session);
        return code;
    }
    *ret = t;
    return ERR_OK;
}

enum err_code create_target_name(struct create_target *t, const char *name, struct err *e)
{
    if (t->put && t->name[0]) {
        if (strcmp(name, t->name) == 0)
            return ERR_OK;
        return err_field(e, ERR_BAD_FIELD, "/name", "the path names the array '%s'", t->name);
    }
    enum err_code code =
        handle_check_name(t->session->handles, name, t->put ? NAME_REPLACE : NAME_NEW, e);
    if (code != ERR_OK)
        return err_prefix(e, "/name");
    memcpy(t->name, name, strlen(name) + 1);
    return ERR_OK;
}

void create_target_clear(struct create_target *t)
{
    session_unref(t->session);
    t->session = NULL;
}

void create_reply(struct request *req, struct create_target *take_t, struct array *take_array)
{
    struct err e = ERR_INIT;
    bool replaced = false;
    struct handle_guard guard = {may_replace, take_t};
    struct handle_spec spec = {.name = take_t->name[0] ? take_t->name : NULL,
                               .policy = take_t->put ? NAME_REPLACE : NAME_NEW,
                               .guard = take_t->put ? &guard : NULL};
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb meta = {0};
    if (meta_reserve(&meta, &e) != ERR_OK ||
        handle_add(take_t->session->handles, take_array, &spec, &h, &replaced, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        meta_reply_reserved(req, replaced ? 200 : 201, &h, true, &meta);
    array_unref(take_array);
    create_target_clear(take_t);
}
