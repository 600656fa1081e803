/* PATCH /v1/arrays/{ref}: names, marks and descriptions, and where an array is stored.
 *
 * The reply waits for a move to host memory or back, so that the memory is free, or the failure
 * known; with `Prefer: respond-async` it waits only until the destination has room. The move comes
 * after every check that can refuse the request, and before all other changes, which cannot
 * fail. */
#include <string.h>

#include "compute/memory/export.h"
#include "protocol/wire/prefer.h"
#include "server/api/handlers.h"
#include "server/body/condition.h"
#include "server/body/grid_json.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/jobs/jobs.h"
#include "server/labels/labels_read.h"
#include "server/store/lease_use.h"

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
    TRY(grid_json_read(body, a->dtype, &desc, e));
    struct grid *grid = grid_new(&desc);
    struct array *b = grid ? array_view_grid(a, &a->view, grid) : NULL;
    grid_unref(grid);
    if (!b)
        return err_oom(e);
    *ret = b;
    return ERR_OK;
}

/* The changes to make once all checks have passed. */
struct patch {
    struct session *session;
    struct handle handle; /* before the change */
    const char *name;
    int read_only, host; /* 0, 1; -1: unchanged */
    bool replace, coordinate, has_coordinate;
    struct array *changed;
    struct labels_patch labels;
    enum lease_access access;
    struct strb meta;
    struct request_move move;
    bool leaves; /* the reply does not wait for the end of the move */
};

/* Every value in turn must be what the handle can have now. */
static enum err_code read_labels(struct request *req, struct json body, struct patch *p,
                                 struct err *e)
{
    _cleanup_labels_ struct labels *made = NULL;
    TRY(meta_labels(req, p->session, body, &p->labels, e));
    if (!labels_given(&p->labels))
        return ERR_OK;
    return labels_make(p->handle.labels, &p->labels, &p->handle.array->view, &made, e);
}

static enum err_code read_patch(struct json body, struct patch *p, struct err *e)
{
    struct json v = json_member(body, "read_only"), coordinate = json_member(body, "coordinate");
    bool read_only;
    TRY(JSON_MEMBERS(body, e, "name", "replace", "read_only", "location", "boundary", "spacing",
                     "attrs", "coordinate", "coords", "dims", "units"));
    if (json_kind(json_member(body, "name")) == JSON_NULL)
        p->name = "";
    else
        TRY(meta_name(body, &p->name, e));
    if (json_present(v)) {
        TRY(json_get_bool(v, &read_only, e));
        p->read_only = read_only;
    }
    v = json_member(body, "replace");
    if (json_present(v))
        TRY(json_get_bool(v, &p->replace, e));
    if (p->replace && !(p->name && p->name[0]))
        return json_err(v, e, ERR_BAD_FIELD, "replace is for an array that gets a name");
    p->has_coordinate = json_present(coordinate);
    if (p->has_coordinate)
        TRY(json_get_bool(coordinate, &p->coordinate, e));
    return meta_location(body, &p->host, e);
}

/* But for a move: renaming concerns the session alone; everything else affects the users of the
 * array. */
static enum lease_access access_of(struct json body)
{
    const size_t aside = (size_t)json_present(json_member(body, "name")) +
                         (size_t)json_present(json_member(body, "replace")) +
                         (size_t)json_present(json_member(body, "location"));
    return json_count(body) > aside ? LEASE_WRITE : LEASE_LOOK;
}

static void patch_free(void *state)
{
    struct patch *p = state;
    array_unref(p->changed);
    p->changed = NULL;
    handle_clear(&p->handle);
    session_unref(p->session);
    p->session = NULL;
    strb_free(&p->meta);
}

static void patch_failed(struct request *req, const struct err *e)
{
    patch_free(req->state);
    req->state = NULL;
    req->state_free = NULL;
    http_reply_error(req, e);
}

struct terms {
    struct condition condition;
    struct lease_claim claim;
    enum lease_access access;
    bool protects; /* makes it read-only */
};

/* The array may have been leased since it was found; a handle_guard's check. */
static enum err_code agree(void *user, const struct array *now, struct err *e)
{
    struct terms *t = user;
    TRY(condition_guard(&t->condition, now, e));
    if (now)
        TRY(lease_check(&t->claim, now, t->access, e));
    if (now && t->protects && array_written_outside(now))
        return err_set(e, ERR_LOCKED, "the array is exported for writing; end the export first");
    return ERR_OK;
}

static void apply(struct request *req)
{
    struct patch *p = req->state;
    struct err e = ERR_INIT;
    struct terms terms = {.condition = condition_of(req),
                          .claim = request_claim(req),
                          .access = p->access,
                          .protects = p->read_only > 0};
    struct handle_guard guard = {agree, &terms};
    struct handle_change change = {.name = p->name,
                                   .replace = p->replace,
                                   .read_only = p->read_only,
                                   .old = p->handle.array,
                                   .array = p->changed,
                                   .labels = labels_given(&p->labels) ? &p->labels : NULL,
                                   .coordinate = p->has_coordinate ? &p->coordinate : NULL};
    _cleanup_handle_ struct handle after = {0};
    enum err_code code =
        handle_update(p->session->handles, p->handle.id, &change, &guard, &after, &e);
    if (code != ERR_OK) {
        patch_failed(req, &e);
        return;
    }
    if (p->read_only == 1)
        jobs_settle(req->server->jobs);
    /* drop the old reference to the buffer */
    handle_clear(&p->handle);
    array_unref(p->changed);
    p->changed = NULL;
    if (p->leaves)
        http_add_header(req, "Preference-Applied", "respond-async");
    meta_reply_reserved(req, p->leaves ? 202 : 200, &after, false, &p->meta);
}

/* --- a move --- */

static void moved(struct request *req)
{
    struct patch *p = req->state;
    struct err e = ERR_INIT;
    if (request_moved(req, &p->move, &e) == ERR_OK)
        apply(req);
    else
        patch_failed(req, &e);
}

static enum err_code move(struct request *req, struct patch *p, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    TRY(request_leased(req, p->handle.array, LEASE_PLACE, e));
    if (!p->leaves)
        return request_move(req, &p->move, p->session->stream, p->handle.array, p->host, moved, e);
    TRY(engine_move(p->session->stream, p->handle.array, p->host, request_work_done, NULL, e));
    apply(req);
    return ERR_OK;
}

static void begin_move(struct request *req)
{
    struct patch *p = req->state;
    struct err e = ERR_INIT;
    p->leaves = prefer_async(http_header(req, "Prefer"));
    if (move(req, p, &e) != ERR_OK)
        patch_failed(req, &e);
}

/* --- the request --- */

/* The errors of handle_update, which runs only after a move. */
static enum err_code may_rename(struct request *req, const struct patch *p, struct err *e)
{
    struct handle_space *s = p->session->handles;
    _cleanup_handle_ struct handle old = {0};
    if (!p->name || !p->name[0] || !strcmp(p->name, p->handle.name))
        return ERR_OK;
    enum err_code code = handle_check_name(s, p->name, p->replace ? NAME_REPLACE : NAME_NEW, e);
    if (code == ERR_OK && p->replace && handle_get(s, p->name, &old, NULL) == ERR_OK)
        code = lease_guard(req->server->leases, old.array, e);
    return code == ERR_OK ? ERR_OK : err_prefix(e, "/name");
}

static enum err_code check(struct request *req, struct patch *p, struct err *e)
{
    struct json body;
    struct condition condition = condition_of(req);
    TRY(request_plain(req, e));
    TRY(request_own_array(req, LEASE_LOOK, &p->session, &p->handle, e));
    TRY(request_body(req, false, &body, e));
    TRY(read_patch(body, p, e));
    p->access = access_of(body);
    TRY(request_leased(req, p->handle.array, p->host < 0 ? p->access : LEASE_PLACE, e));
    TRY(read_grid(body, p->handle.array, &p->changed, e));
    TRY(read_labels(req, body, p, e));
    TRY(condition_guard(&condition, p->handle.array, e));
    TRY(may_rename(req, p, e));
    if (p->coordinate)
        TRY(handle_check_coordinate(p->session->handles, p->handle.id, p->name, e));
    const size_t more = labels_given(&p->labels) ? (size_t)req->server->config->max_attrs : 0;
    return meta_reserve(&p->meta, labels_size(p->handle.labels) + more, e);
}

void array_patch(struct request *req)
{
    struct err e = ERR_INIT;
    struct patch *p = request_begin(req, sizeof *p, patch_free);
    if (!p)
        return;
    p->read_only = p->host = -1;
    if (check(req, p, &e) != ERR_OK)
        patch_failed(req, &e);
    else if (p->host >= 0 && array_in_host_memory(p->handle.array) != p->host)
        http_offload_long(req, begin_move); /* slow: the move pins memory */
    else
        apply(req);
}
