/* POST /v1/arrays/{ref}/views: other shapes of the same memory. layout.h has the steps; here they
 * are put in the contract's order and their errors get a place. */
#include <string.h>

#include "protocol/text/index.h"
#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/labels/labels.h"

/* What has become of the array so far. */
struct steps {
    enum dtype dtype;
    struct view view;
    struct label_axes axes;
};

static enum err_code step_index(struct json v, struct steps *s, struct err *e)
{
    struct index_spec *ix = &(struct index_spec){0};
    const char *text;
    size_t n;
    struct view out;
    TRY(json_get_string(v, &text, &n, e));
    if (n == strspn(text, " \t\n\r"))
        return json_err(v, e, ERR_BAD_INDEX, "the index is empty; write '...' for the whole array");
    if (index_parse(text, n, ix, e) != ERR_OK || view_index(&s->view, ix, &out, e) != ERR_OK) {
        if (e->code == ERR_BAD_SHAPE) /* None can add more axes than an array may have */
            e->code = ERR_BAD_INDEX;
        return err_prefix(e, "/index");
    }
    label_axes_index(&s->axes, &s->view, ix);
    s->view = out;
    return ERR_OK;
}

static enum err_code step_permute(struct json v, struct steps *s, struct err *e)
{
    int64_t axes[MAX_RANK];
    size_t n;
    struct view out;
    TRY(json_get_i64_list(v, MAX_RANK, -MAX_RANK, MAX_RANK - 1, axes, &n, e));
    if (view_permute(&s->view, (int)n, axes, &out, e) != ERR_OK)
        return err_prefix(e, "/permute");
    label_axes_permute(&s->axes, axes);
    s->view = out;
    return ERR_OK;
}

static enum err_code step_reshape(struct json v, struct steps *s, struct err *e)
{
    int rank;
    int64_t shape[MAX_RANK];
    struct view out;
    TRY(json_get_shape(v, -1, &rank, shape, e));
    if (view_reshape(&s->view, rank, shape, &out, e) != ERR_OK)
        return err_prefix(e, "/reshape");
    label_axes_reshape(&s->axes, &s->view, &out);
    s->view = out;
    return ERR_OK;
}

static enum err_code step_broadcast(struct json v, struct steps *s, struct err *e)
{
    int rank;
    int64_t shape[MAX_RANK];
    struct view out, fits;
    TRY(json_get_shape(v, 0, &rank, shape, e));
    /* the size of a view that is not all in memory must still be representable */
    if (view_contiguous(rank, shape, dtype_size(s->dtype), &fits, e) != ERR_OK ||
        view_broadcast_to(&s->view, rank, shape, &out, e) != ERR_OK)
        return err_prefix(e, "/broadcast_to");
    label_axes_stretch(&s->axes, &s->view, &out);
    s->view = out;
    return ERR_OK;
}

static enum err_code step_dtype(struct json v, struct steps *s, struct err *e)
{
    enum dtype t;
    struct view out;
    TRY(json_get_dtype(v, &t, e));
    if (view_reinterpret(&s->view, dtype_size(s->dtype), dtype_size(t), &out, e) != ERR_OK)
        return err_prefix(e, "/dtype");
    label_axes_stretch(&s->axes, &s->view, &out);
    s->view = out;
    s->dtype = t;
    return ERR_OK;
}

/* The elements the view starts from: the array's, or with "ghost" its interior and ghosts. */
static enum err_code step_ghost(struct json v, const struct array *a, struct steps *s,
                                bool *ret_whole, struct err *e)
{
    *ret_whole = false;
    if (json_given(v))
        TRY(json_get_bool(v, ret_whole, e));
    if (*ret_whole) {
        grid_whole(a->grid, &a->view, &s->view);
        label_axes_stretch(&s->axes, &a->view, &s->view);
    }
    return ERR_OK;
}

static enum err_code apply(struct json body, struct steps *s, struct err *e)
{
    struct json index = json_member(body, "index"), permute = json_member(body, "permute"),
                reshape = json_member(body, "reshape"),
                broadcast = json_member(body, "broadcast_to"), type = json_member(body, "dtype");
    if (json_given(index))
        TRY(step_index(index, s, e));
    if (json_given(permute))
        TRY(step_permute(permute, s, e));
    if (json_given(reshape))
        TRY(step_reshape(reshape, s, e));
    if (json_given(broadcast))
        TRY(step_broadcast(broadcast, s, e));
    return json_given(type) ? step_dtype(type, s, e) : ERR_OK;
}

static bool changes_nothing(struct json body)
{
    static const char *const steps[] = {"index", "permute", "reshape", "broadcast_to", "dtype"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (json_present(json_member(body, steps[i])))
            return false;
    return true;
}

/* Makes the view's array; ghosts, boundary and spacing stay where the axes are the array's. */
static enum err_code make_view(struct json body, const struct handle *h, struct array **ret,
                               struct labels **ret_labels, struct err *e)
{
    struct array *a = h->array;
    struct steps s = {.dtype = a->dtype, .view = a->view};
    bool whole;
    label_axes_own(&s.axes, a->view.rank);
    TRY(step_ghost(json_member(body, "ghost"), a, &s, &whole, e));
    TRY(apply(body, &s, e));
    _cleanup_labels_ struct labels *labels = NULL;
    TRY(labels_follow(h->labels, &s.axes, &labels, e));
    struct grid *grid = NULL;
    bool keeps = a->grid && changes_nothing(body);
    if (keeps && whole && !a->grid->whole) {
        struct grid desc = *a->grid;
        desc.whole = true;
        grid = grid_new(&desc);
    } else if (keeps) {
        grid = grid_ref(a->grid);
    }
    struct array *v = keeps && !grid ? NULL
                      : keeps        ? array_view_grid(a, &s.view, grid)
                                     : array_view(a, s.dtype, &s.view);
    grid_unref(grid);
    if (!v)
        return err_oom(e);
    *ret = v;
    *ret_labels = labels;
    labels = NULL;
    return ERR_OK;
}

static enum err_code post(struct request *req, struct err *e)
{
    struct json body;
    struct handle_spec spec = {.policy = NAME_NEW};
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_array_ struct array *a = NULL;
    _cleanup_labels_ struct labels *labels = NULL;
    TRY(request_plain(req, e));
    /* a view would outlive the share */
    TRY(request_own_array(req, LEASE_READ, &s, &h, e));
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "index", "permute", "reshape", "broadcast_to", "dtype", "name",
                     "ghost"));
    TRY(make_view(body, &h, &a, &labels, e));
    TRY(meta_name(body, &spec.name, e));
    spec.view_of = h.id;
    spec.labels = labels;
    enum err_code code = meta_reply_added(req, s, &(struct handle_new){a, spec}, 1, e);
    return code == ERR_CONFLICT ? err_prefix(e, "/name") : code;
}

void array_views_post(struct request *req)
{
    request_try(req, post);
}
