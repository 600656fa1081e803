/* POST /v1/layouts and POST /v1/arrays/{ref}/fill_ghost. */
#include <string.h>

#include "server/api/handlers.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/labels/labels.h"
#include "server/server.h"

/* --- layouts --- */

struct layout {
    size_t n; /* arrays */
    int rank; /* of each */
    int64_t (*shape)[MAX_RANK];
    int64_t (*ghost)[MAX_RANK];
    int64_t padded[MAX_RANK];
    struct view view; /* of the padded extents */
};

static enum err_code read_shapes(struct request *req, struct json v, struct layout *l,
                                 struct err *e)
{
    size_t i = 0;
    if (json_kind(v) != JSON_LIST || json_count(v) == 0)
        return json_err(v, e, ERR_BAD_FIELD, "shapes must be a list of at least one shape");
    l->n = json_count(v);
    l->shape = arena_alloc_array(req->arena, l->n, sizeof *l->shape);
    l->ghost = arena_alloc_array(req->arena, l->n, sizeof *l->ghost);
    if (!l->shape || !l->ghost)
        return err_oom(e);
    for (struct json x = json_first(v); json_present(x); x = json_next(x), i++) {
        int rank;
        TRY(json_get_shape(x, 0, &rank, l->shape[i], e));
        if (i > 0 && rank != l->rank)
            return json_err(x, e, ERR_SHAPE_MISMATCH, "all shapes must have the same rank");
        l->rank = rank;
    }
    return ERR_OK;
}

static enum err_code read_ghosts(struct json v, struct layout *l, struct err *e)
{
    size_t i = 0, n;
    if (!json_present(v))
        return ERR_OK;
    if (json_kind(v) != JSON_LIST)
        return json_err(v, e, ERR_BAD_FIELD,
                        "ghosts must be a list with the widths for each shape");
    if (json_count(v) != l->n)
        return json_err(v, e, ERR_SHAPE_MISMATCH,
                        "there are %zu shapes but %zu lists of ghost widths", l->n, json_count(v));
    for (struct json x = json_first(v); json_present(x); x = json_next(x), i++) {
        TRY(json_get_i64_list(x, MAX_RANK, 0, INT64_MAX / 4, l->ghost[i], &n, e));
        if (n != (size_t)l->rank)
            return json_err(x, e, ERR_SHAPE_MISMATCH,
                            "there are %zu ghost widths for a shape of rank %d", n, l->rank);
        int k = 0;
        for (struct json w = json_first(x); json_present(w); w = json_next(w), k++)
            if (l->ghost[i][k] > l->shape[i][k])
                return json_err(w, e, ERR_GHOST_WIDTH,
                                "%lld ghost cells on axis %d of extent %lld: there can be no more "
                                "than the extent",
                                (long long)l->ghost[i][k], k, (long long)l->shape[i][k]);
    }
    return ERR_OK;
}

static enum err_code common_extents(struct layout *l, struct err *e)
{
    int64_t shape[MAX_RANK] = {0}, ghost[MAX_RANK] = {0};
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < l->rank; k++) {
            if (l->shape[i][k] > shape[k])
                shape[k] = l->shape[i][k];
            if (l->ghost[i][k] > ghost[k])
                ghost[k] = l->ghost[i][k];
        }
    if (padded_extents(l->rank, shape, ghost, l->padded, e) != ERR_OK ||
        view_contiguous(l->rank, l->padded, 1, &l->view, e) != ERR_OK)
        return err_prefix(e, "/shapes");
    return ERR_OK;
}

static void put_layout(struct json_writer *w, const struct layout *l)
{
    json_open_object(w);
    json_put_key(w, "padded");
    json_put_i64_list(w, (size_t)l->rank, l->padded);
    json_put_key(w, "strides");
    json_put_i64_list(w, (size_t)l->rank, l->view.strides);
    json_put_key(w, "pads");
    json_open_list(w);
    for (size_t i = 0; i < l->n; i++) {
        int64_t pad[MAX_RANK];
        for (int k = 0; k < l->rank; k++)
            pad[k] = l->padded[k] - (l->shape[i][k] + 2 * l->ghost[i][k]);
        json_put_i64_list(w, (size_t)l->rank, pad);
    }
    json_close_list(w);
    json_close_object(w);
}

static enum err_code lay_out(struct request *req, struct err *e)
{
    struct json body, shapes;
    struct layout l = {0};
    TRY(request_plain(req, e));
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "shapes", "ghosts"));
    TRY(json_require(body, "shapes", &shapes, e));
    TRY(read_shapes(req, shapes, &l, e));
    TRY(read_ghosts(json_member(body, "ghosts"), &l, e));
    TRY(common_extents(&l, e));
    struct strb out = {0};
    struct json_writer w = JSON_WRITER(&out);
    put_layout(&w, &l);
    http_reply_json(req, 200, &out);
    return ERR_OK;
}

void layouts_post(struct request *req)
{
    request_try(req, lay_out);
}

/* --- fill_ghost --- */

static enum err_code fill_ghost(struct request *req, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct json body;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb meta = {0};
    TRY(request_plain(req, e));
    TRY(request_array(req, LEASE_WRITE, &s, &h, e));
    TRY(request_body(req, true, &body, e));
    if (json_present(body))
        TRY(json_check_members(body, NULL, 0, e));
    TRY(handle_writable(&h, e));
    TRY(meta_reserve(&meta, labels_size(h.labels), e));
    TRY(engine_fill_ghost(s->stream, s->account, h.array, request_work_done, NULL, e));
    meta_reply_reserved(req, 200, &h, false, &meta);
    return ERR_OK;
}

void array_fill_ghost(struct request *req)
{
    request_try(req, fill_ghost);
}
