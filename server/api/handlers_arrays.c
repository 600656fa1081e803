/* /v1/arrays: lists, metadata, names, and operations on whole arrays (resize, copy, swap). */
#include <stdio.h>
#include <string.h>

#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/condition.h"
#include "server/body/grid_json.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/labels/labels.h"
#include "server/look/query.h"
#include "server/server.h"
#include "server/store/share.h"

static enum err_code get_page(struct request *req, struct page *page, void *ret, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    bool shared = false;
    TRY(query_flag(req, "shared", &shared, e));
    TRY(session_of(req, &s, e));
    const struct array_scope scope = request_scope(req, s);
    if (shared && scope.shares)
        page->n = share_list(scope.shares, scope.who, page->after, page->limit, ret, &page->more);
    if (shared) /* who came by a link sees none */
        return ERR_OK;
    page->n = handle_list(s->handles, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *handle)
{
    meta_put(w, handle, true);
}

static uint64_t number_of(const void *handle)
{
    return ((const struct handle *)handle)->seq;
}

static void release(void *handle)
{
    handle_clear(handle);
}

void array_list_get(struct request *req)
{
    static const struct list list = {
        "arrays", sizeof(struct handle), get_page, put_entry, number_of, release, "shared",
    };
    list_reply(req, &list);
}

static enum err_code get(struct request *req, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_plain(req, e));
    TRY(request_array(req, LEASE_LOOK, &s, &h, e));
    meta_reply(req, 200, &h);
    return ERR_OK;
}

void array_get(struct request *req)
{
    request_try(req, get);
}

static enum err_code remove_array(struct request *req, struct err *e)
{
    static const char *const query[] = {"coordinate", NULL};
    struct condition condition = condition_of(req);
    struct handle_guard guard = {condition_guard, &condition};
    _cleanup_session_ struct session *s = NULL;
    struct handle h = {0};
    TRY(http_query_only(req, query, e));
    const char *coordinate = http_query(req, "coordinate");
    if (coordinate && strcmp(coordinate, "keep") != 0)
        return err_set(e, ERR_BAD_QUERY, "coordinate must be keep");
    TRY(request_own_array(req, LEASE_WRITE, &s, &h, e));
    handle_clear(&h); /* its memory is freed with the handle */
    if (coordinate)
        TRY(handle_let_go(s->handles, req->param[0], &guard, e));
    else
        TRY(handle_remove(s->handles, req->param[0], &guard, e));
    http_reply_empty(req, 204);
    return ERR_OK;
}

void array_delete(struct request *req)
{
    request_try(req, remove_array);
}

/* --- resize --- */

/* The array that replaces the old one: the same elements as far as there are any, then zeros.
 * Ghosts, boundary and spacing stay; padding is the new shape's own. */
static enum err_code resized(struct session *s, struct array *a, const struct view *shape,
                             struct array **ret, struct err *e)
{
    struct grid *desc = NULL, own;
    if (a->grid) {
        own = *a->grid;
        own.is_padded = false;
        desc = &own;
    }
    if (view_size(shape) != view_size(&a->view))
        return engine_zeros_grid(s->stream, s->account, a->dtype, shape->rank, shape->shape, desc,
                                 ret, e);
    _cleanup_array_ struct array *whole = NULL;
    struct view v;
    if (view_is_contiguous(&a->view))
        whole = array_view(a, a->dtype, &a->view);
    else
        TRY(engine_compact(s->stream, s->account, a, &whole, e));
    if (!whole)
        return err_oom(e);
    TRY(view_reshape(&whole->view, shape->rank, shape->shape, &v, e));
    _cleanup_array_ struct array *reshaped = array_view(whole, a->dtype, &v);
    if (!reshaped)
        return err_oom(e);
    return engine_embed(s->stream, s->account, reshaped, desc, ret, e);
}

static enum err_code check_shape(const struct array *a, int rank, const int64_t *shape,
                                 struct view *ret, struct err *e)
{
    const struct grid *g = a->grid;
    TRY(view_contiguous(rank, shape, dtype_size(a->dtype), ret, e));
    if (g && rank != a->view.rank)
        return err_set(
            e, ERR_SHAPE_MISMATCH,
            "the array's ghosts, boundary and spacing are for %d axes, but the shape has %d",
            a->view.rank, rank);
    if (g && g->whole)
        return err_set(e, ERR_SHAPE_MISMATCH, "a view that includes ghosts cannot be resized");
    if (g && grid_check_ghosts(g, shape, e) != ERR_OK) {
        e->pointer[0] = '\0'; /* the error is about the shape, not about a member */
        return e->code;
    }
    return ERR_OK;
}

static enum err_code read_resize(struct json body, const struct array *a, struct view *ret,
                                 struct err *e)
{
    struct json v;
    int rank;
    int64_t shape[MAX_RANK];
    TRY(JSON_MEMBERS(body, e, "shape"));
    TRY(json_require(body, "shape", &v, e));
    TRY(json_get_shape(v, 0, &rank, shape, e));
    return check_shape(a, rank, shape, ret, e) == ERR_OK ? ERR_OK : err_prefix(e, "/shape");
}

/* Refuses if another client has leased the array since it was found; a handle_guard's check. */
static enum err_code may_take_place(void *user, const struct array *now, struct err *e)
{
    return lease_check(user, now, LEASE_PLACE, e);
}

static enum err_code resize(struct request *req, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct json body;
    struct view shape;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0}, after = {0};
    _cleanup_array_ struct array *fresh = NULL;
    _cleanup_strb_ struct strb meta = {0};
    struct lease_claim claim = request_claim(req);
    struct handle_guard guard = {may_take_place, &claim};
    TRY(request_plain(req, e));
    TRY(request_own_array(req, LEASE_PLACE, &s, &h, e));
    TRY(request_body(req, false, &body, e));
    TRY(read_resize(body, h.array, &shape, e));
    TRY(handle_writable(&h, e));
    if (array_buffer_shared(h.array))
        return err_set(e, ERR_CONFLICT, "the array cannot be resized while views of it exist");
    TRY(meta_reserve(&meta, labels_size(h.labels), e));
    TRY(resized(s, h.array, &shape, &fresh, e));
    array_take_place(fresh, h.array);
    TRY(handle_set_array(s->handles, h.id, h.array, fresh, &guard, &after, e));
    /* free the old memory before the reply reports the number of references */
    handle_clear(&h);
    meta_reply_reserved(req, 200, &after, false, &meta);
    return ERR_OK;
}

void array_resize(struct request *req)
{
    request_try(req, resize);
}

/* --- copy --- */

static enum err_code read_copy(struct session *s, struct json body, const char **ret_name,
                               struct err *e)
{
    *ret_name = NULL;
    if (!json_present(body))
        return ERR_OK;
    TRY(JSON_MEMBERS(body, e, "name"));
    TRY(meta_name(body, ret_name, e));
    if (*ret_name && handle_check_name(s->handles, *ret_name, NAME_NEW, e) != ERR_OK)
        return err_prefix(e, "/name");
    return ERR_OK;
}

static enum err_code copy(struct request *req, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct json body;
    struct handle_spec spec = {.policy = NAME_NEW};
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_array_ struct array *a = NULL;
    struct session *there;
    TRY(request_plain(req, e));
    TRY(request_array(req, LEASE_READ, &s, &h, e));
    TRY(request_body(req, true, &body, e));
    TRY(read_copy(s, body, &spec.name, e));
    TRY(session_on(s, array_device(h.array), &there, e));
    TRY(engine_copy_across(s->stream, there->stream, s->account, h.array, &a, e));
    spec.labels = h.labels;
    return meta_reply_added(req, s, &(struct handle_new){a, spec}, 1, e);
}

void array_copy(struct request *req)
{
    request_try(req, copy);
}

/* --- swap --- */

/* Finds the other array; errors are at "with". */
static enum err_code find_other(struct request *req, struct session *s, const char *ref,
                                struct handle *ret, struct err *e)
{
    TRY(request_find(req, s, ref, ret, e));
    TRY(handle_owned(ret, e));
    return request_leased(req, ret->array, LEASE_UNDO, e);
}

static enum err_code swap(struct request *req, struct err *e)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct json body, v;
    const char *ref;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle a = {0}, b = {0};
    _cleanup_strb_ struct strb meta = {0};
    TRY(request_plain(req, e));
    TRY(request_own_array(req, LEASE_UNDO, &s, &a, e));
    TRY(request_body(req, false, &body, e));
    TRY(JSON_MEMBERS(body, e, "with"));
    TRY(json_require(body, "with", &v, e));
    TRY(json_get_string(v, &ref, NULL, e));
    if (find_other(req, s, ref, &b, e) != ERR_OK)
        return err_prefix(e, "/with");
    TRY(handle_writable(&a, e));
    if (handle_writable(&b, e) != ERR_OK)
        return err_prefix(e, "/with");
    TRY(meta_reserve(&meta, labels_size(a.labels), e));
    if (engine_swap(s->stream, a.array, b.array, e) != ERR_OK)
        return err_prefix(e, "/with");
    meta_reply_reserved(req, 200, &a, false, &meta);
    return ERR_OK;
}

void array_swap(struct request *req)
{
    request_try(req, swap);
}
