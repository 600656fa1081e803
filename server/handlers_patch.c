/* PATCH /v1/arrays/{ref}: names, marks and descriptions, and where an array lives.
 *
 * A move to host memory or back is waited for, so that memory is free, or the failure known, when
 * the reply comes. It comes first, after everything that can be refused has been looked at; then
 * the handler runs once more for the rest. */
#include <string.h>

#include "server/condition.h"
#include "server/gate.h"
#include "server/grid_json.h"
#include "server/handlers.h"
#include "server/meta.h"

/* The array under its new boundary and spacing; *ret stays NULL where the body has neither. */
static enum err_code read_grid(struct json body, struct array *a, struct array **ret, struct err *e)
{
    if (!json_present(json_member(body, "boundary")) && !json_present(json_member(body, "spacing")))
        return ERR_OK;
    struct grid desc;
    if (a->grid)
        desc = *a->grid;
    else
        grid_init(&desc, a->view.rank);
    enum err_code r = grid_json_read(body, a->dtype, &desc, e);
    if (r != ERR_OK)
        return r;
    struct grid *grid = grid_new(&desc);
    struct array *b = grid ? array_view_grid(a, &a->view, grid) : NULL;
    grid_unref(grid);
    if (!b)
        return err_oom(e);
    *ret = b;
    return ERR_OK;
}

/* ret_read_only, ret_host: 0, 1, or as they were. */
static enum err_code read_patch(struct json body, const char **ret_name, int *ret_read_only,
                                int *ret_host, struct err *e)
{
    const char *name = NULL;
    int read_only = -1;
    struct json v;
    enum err_code r = JSON_MEMBERS(body, e, "name", "read_only", "location", "boundary", "spacing");
    if (r != ERR_OK)
        return r;
    if (json_kind(json_member(body, "name")) == JSON_NULL)
        name = "";
    else if ((r = handler_name(body, &name, e)) != ERR_OK)
        return r;
    if (json_present(v = json_member(body, "read_only"))) {
        bool b;
        if ((r = json_get_bool(v, &b, e)) != ERR_OK)
            return r;
        read_only = b;
    }
    bool host = json_equals(v = json_member(body, "location"), "host");
    if (json_present(v) && !host && !json_equals(v, "device"))
        return json_err(v, e, ERR_BAD_FIELD, "location is \"device\" or \"host\"");
    if (json_present(v))
        *ret_host = host;
    *ret_name = name;
    *ret_read_only = read_only;
    return ERR_OK;
}

/* A name is the session's business; all else is felt by who uses the array. */
static bool changes_use(struct json body)
{
    return json_count(body) > (json_present(json_member(body, "name")) ? 1 : 0);
}

/* --- a move --- */

struct move {
    struct gate gate;
    struct session *session; /* a reference each, while it is under way */
    struct array *array;
    bool host, over;
    _Atomic int result; /* enum err_code */
};

static void move_free(void *state)
{
    struct move *m = state;
    array_unref(m->array);
    session_unref(m->session);
    m->array = NULL;
    m->session = NULL;
}

static void move_done(void *user, enum err_code result, double device_ms)
{
    struct move *m = user;
    (void)device_ms;
    atomic_store(&m->result, result);
    gate_wake(&m->gate);
}

static void move_failed(struct request *req, const struct err *e)
{
    move_free(req->state);
    req->state = NULL;
    http_reply_error(req, e);
}

/* The array is where it was to be: the rest of the patch follows. */
static void moved(struct request *req)
{
    struct move *m = req->state;
    struct err e = ERR_INIT;
    enum err_code r = (enum err_code)atomic_load(&m->result);
    if (r != ERR_OK) {
        err_set(&e, r, "the array could not be moved: %s", err_title(r));
        move_failed(req, &e);
        return;
    }
    m->over = true;
    move_free(m);
    array_patch(req);
}

static void begin_move(struct request *req)
{
    struct move *m = req->state;
    struct err e = ERR_INIT;
    gate_arm(&m->gate);
    if (engine_move(m->session->stream, m->array, m->host, move_done, m, &e) != ERR_OK)
        move_failed(req, &e);
    else
        gate_wait(&m->gate, moved);
}

/* What handle_update would say, which comes after a move. */
static enum err_code may_rename(struct session *s, const struct handle *h, const char *name,
                                struct err *e)
{
    if (!name || !name[0] || !strcmp(name, h->name))
        return ERR_OK;
    enum err_code r = handle_check_name(s->handles, name, NAME_NEW, e);
    return r == ERR_OK ? r : err_prefix(e, "/name");
}

/* Where the array has to be moved first, it is (*ret), and the request goes on later. Memory is
 * pinned for it, which takes long. */
static enum err_code move_first(struct request *req, struct session *s, const struct handle *h,
                                int host, bool *ret, struct err *e)
{
    struct move *m = req->state;
    if (host < 0 || (m && m->over) || array_in_host_memory(h->array) == host)
        return ERR_OK;
    m = arena_alloc(req->arena, sizeof *m);
    if (!m)
        return err_oom(e);
    m->session = session_ref(s);
    m->array = array_ref(h->array);
    m->host = host;
    gate_init(&m->gate, req);
    req->state = m;
    req->state_free = move_free;
    http_offload_long(req, begin_move);
    *ret = true;
    return ERR_OK;
}

void array_patch(struct request *req)
{
    struct err e = ERR_INIT;
    struct json body;
    const char *name = NULL;
    int read_only = -1, host = -1;
    bool under_way = false;
    struct condition condition = condition_of(req);
    struct handle_guard guard = {condition_guard, &condition};
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0}, after = {0};
    _cleanup_array_ struct array *changed = NULL;
    _cleanup_strb_ struct strb meta = {0};
    enum err_code r = handler_plain(req, &e);
    if (r == ERR_OK && (r = handler_own_array(req, LEASE_LOOK, &s, &h, &e)) == ERR_OK &&
        (r = handler_body(req, false, &body, &e)) == ERR_OK &&
        (r = read_patch(body, &name, &read_only, &host, &e)) == ERR_OK &&
        (r = handler_leased(req, h.array, changes_use(body) ? LEASE_WRITE : LEASE_LOOK, &e)) ==
            ERR_OK &&
        (r = read_grid(body, h.array, &changed, &e)) == ERR_OK &&
        (r = condition_guard(&condition, h.array, &e)) == ERR_OK &&
        (r = may_rename(s, &h, name, &e)) == ERR_OK && (r = meta_reserve(&meta, &e)) == ERR_OK &&
        (r = move_first(req, s, &h, host, &under_way, &e)) == ERR_OK && !under_way) {
        struct handle_change change = {
            .name = name, .read_only = read_only, .old = h.array, .array = changed};
        r = handle_update(s->handles, h.id, &change, &guard, &after, &e);
        if (r == ERR_CONFLICT && name)
            err_prefix(&e, "/name");
    }
    if (r != ERR_OK)
        http_reply_error(req, &e);
    if (r != ERR_OK || under_way)
        return;
    /* what it was is no reference to the buffer any more */
    handle_clear(&h);
    array_unref(changed);
    changed = NULL;
    meta_reply_reserved(req, 200, &after, false, &meta);
}
