/* POST /v1/arrays/{ref}/views: other shapes of the same memory. The steps are layout.h's; here
 * they are put in the contract's order and their errors get a place. */
#include <string.h>

#include "protocol/index.h"
#include "server/handlers.h"
#include "server/meta.h"

static enum err_code step_index(struct json v, struct view *view, struct err *e)
{
    struct index_spec *ix = &(struct index_spec){0};
    const char *text;
    size_t n;
    struct view out;
    enum err_code r = json_get_string(v, &text, &n, e);
    if (r != ERR_OK)
        return r;
    if (n == strspn(text, " \t\n\r"))
        return json_err(v, e, ERR_BAD_INDEX, "the index is empty; '...' is the whole array");
    if ((r = index_parse(text, n, ix, e)) != ERR_OK ||
        (r = view_index(view, ix, &out, e)) != ERR_OK) {
        if (r == ERR_BAD_SHAPE) /* more axes than an array can have, by way of None */
            e->code = r = ERR_BAD_INDEX;
        return err_prefix(e, "/index");
    }
    *view = out;
    return ERR_OK;
}

static enum err_code step_permute(struct json v, struct view *view, struct err *e)
{
    int64_t axes[MAX_RANK];
    size_t n;
    struct view out;
    enum err_code r = json_get_i64_list(v, MAX_RANK, -MAX_RANK, MAX_RANK - 1, axes, &n, e);
    if (r != ERR_OK)
        return r;
    if ((r = view_permute(view, (int)n, axes, &out, e)) != ERR_OK)
        return err_prefix(e, "/permute");
    *view = out;
    return ERR_OK;
}

static enum err_code step_reshape(struct json v, struct view *view, struct err *e)
{
    int rank;
    int64_t shape[MAX_RANK];
    struct view out;
    enum err_code r = json_get_shape(v, -1, &rank, shape, e);
    if (r != ERR_OK)
        return r;
    if ((r = view_reshape(view, rank, shape, &out, e)) != ERR_OK)
        return err_prefix(e, "/reshape");
    *view = out;
    return ERR_OK;
}

static enum err_code step_broadcast(struct json v, enum dtype dtype, struct view *view,
                                    struct err *e)
{
    int rank;
    int64_t shape[MAX_RANK];
    struct view out, fits;
    enum err_code r = json_get_shape(v, 0, &rank, shape, e);
    if (r != ERR_OK)
        return r;
    /* the size of what does not exist in memory must still be a size */
    if ((r = view_contiguous(rank, shape, dtype_size(dtype), &fits, e)) != ERR_OK ||
        (r = view_broadcast_to(view, rank, shape, &out, e)) != ERR_OK)
        return err_prefix(e, "/broadcast_to");
    *view = out;
    return ERR_OK;
}

static enum err_code step_dtype(struct json v, enum dtype *dtype, struct view *view, struct err *e)
{
    enum dtype t;
    struct view out;
    enum err_code r = json_get_dtype(v, &t, e);
    if (r != ERR_OK)
        return r;
    if ((r = view_reinterpret(view, dtype_size(*dtype), dtype_size(t), &out, e)) != ERR_OK)
        return err_prefix(e, "/dtype");
    *view = out;
    *dtype = t;
    return ERR_OK;
}

static enum err_code apply(struct json body, enum dtype *dtype, struct view *view, struct err *e)
{
    struct json v = json_member(body, "ghost");
    enum err_code r = ERR_OK;
    bool ghost = false;
    if (json_present(v) && (r = json_get_bool(v, &ghost, e)) != ERR_OK)
        return r;
    if (ghost)
        return json_err(v, e, ERR_BAD_FIELD, "ghost cells are not available in this version");
    if (json_present(v = json_member(body, "index")))
        r = step_index(v, view, e);
    if (r == ERR_OK && json_present(v = json_member(body, "permute")))
        r = step_permute(v, view, e);
    if (r == ERR_OK && json_present(v = json_member(body, "reshape")))
        r = step_reshape(v, view, e);
    if (r == ERR_OK && json_present(v = json_member(body, "broadcast_to")))
        r = step_broadcast(v, *dtype, view, e);
    if (r == ERR_OK && json_present(v = json_member(body, "dtype")))
        r = step_dtype(v, dtype, view, e);
    return r;
}

void array_views_post(struct request *req)
{
    struct err e = ERR_INIT;
    struct json body;
    const char *name = NULL;
    enum dtype dtype;
    struct view view;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0}, made = {0};
    _cleanup_array_ struct array *a = NULL;
    _cleanup_strb_ struct strb meta = {0};
    enum err_code r = handler_plain(req, &e);
    if (r == ERR_OK && (r = handler_array(req, &s, &h, &e)) == ERR_OK &&
        (r = handler_body(req, false, &body, &e)) == ERR_OK &&
        (r = JSON_MEMBERS(body, &e, "index", "permute", "reshape", "broadcast_to", "dtype", "name",
                          "ghost")) == ERR_OK) {
        dtype = h.array->dtype;
        view = h.array->view;
        if ((r = apply(body, &dtype, &view, &e)) == ERR_OK)
            r = handler_name(body, &name, &e);
    }
    if (r == ERR_OK)
        r = meta_reserve(&meta, &e);
    if (r == ERR_OK && !(a = array_view(h.array, dtype, &view)))
        r = err_oom(&e);
    if (r == ERR_OK) {
        struct handle_spec spec = {.name = name, .policy = NAME_NEW, .view_of = h.id};
        r = handle_add(s->handles, a, &spec, &made, NULL, &e);
        if (r == ERR_CONFLICT)
            err_prefix(&e, "/name");
    }
    if (r != ERR_OK)
        http_reply_error(req, &e);
    else
        meta_reply_reserved(req, 201, &made, true, &meta);
}
