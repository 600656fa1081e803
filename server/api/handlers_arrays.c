/* /v1/arrays: lists, metadata, names, and what happens to whole arrays (resize, copy, swap). */
#include <stdio.h>
#include <string.h>

#include "server/api/handlers.h"
#include "server/api/list.h"
#include "server/body/condition.h"
#include "server/body/grid_json.h"
#include "server/body/meta.h"
#include "server/body/request.h"
#include "server/server.h"

static enum err_code get_page(struct request *req, struct page *page, void *ret, struct err *e)
{
    _cleanup_session_ struct session *s = NULL;
    TRY(session_of(req, &s, e));
    page->n = handle_list(s->handles, page->after, page->limit, ret, &page->more);
    return ERR_OK;
}

static void put_entry(struct json_writer *w, const void *handle)
{
    meta_put(w, handle);
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
        "arrays", sizeof(struct handle), get_page, put_entry, number_of, release,
    };
    list_reply(req, &list);
}

void array_get(struct request *req)
{
    struct err e = ERR_INIT;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    if (request_plain(req, &e) != ERR_OK || request_array(req, LEASE_LOOK, &s, &h, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        meta_reply(req, 200, &h);
}

void array_delete(struct request *req)
{
    static const char *const none[] = {NULL};
    struct err e = ERR_INIT;
    struct condition condition = condition_of(req);
    struct handle_guard guard = {condition_guard, &condition};
    _cleanup_session_ struct session *s = NULL;
    struct handle h = {0};
    enum err_code r = http_query_only(req, none, &e);
    if (r == ERR_OK)
        r = request_own_array(req, LEASE_WRITE, &s, &h, &e);
    handle_clear(&h); /* its memory is to go with the handle */
    if (r != ERR_OK || handle_remove(s->handles, req->param[0], &guard, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        http_reply_empty(req, 204);
}

/* --- resize --- */

/* The array that takes the old one's place: the same elements where there are as many, else zeros.
 * Ghosts, boundary and spacing stay; what padding there is, is the new shape's own. */
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
    _cleanup_array_ struct array *whole = NULL, *reshaped = NULL;
    struct view v;
    enum err_code r = ERR_OK;
    if (view_is_contiguous(&a->view))
        whole = array_view(a, a->dtype, &a->view);
    else
        r = engine_compact(s->stream, s->account, a, &whole, e);
    if (r == ERR_OK && !whole)
        r = err_oom(e);
    if (r == ERR_OK)
        r = view_reshape(&whole->view, shape->rank, shape->shape, &v, e);
    if (r != ERR_OK)
        return r;
    if (!(reshaped = array_view(whole, a->dtype, &v)))
        return err_oom(e);
    return engine_embed(s->stream, s->account, reshaped, desc, ret, e);
}

static enum err_code read_resize(struct json body, const struct array *a, struct view *ret,
                                 struct err *e)
{
    struct json v;
    int rank;
    int64_t shape[MAX_RANK];
    enum err_code r = JSON_MEMBERS(body, e, "shape");
    if (r != ERR_OK || (r = json_require(body, "shape", &v, e)) != ERR_OK ||
        (r = json_get_shape(v, 0, &rank, shape, e)) != ERR_OK)
        return r;
    r = view_contiguous(rank, shape, dtype_size(a->dtype), ret, e);
    if (r == ERR_OK && a->grid && rank != a->view.rank)
        r = err_set(e, ERR_SHAPE_MISMATCH,
                    "the array's ghosts, boundary and spacing are those of %d axes, the shape has "
                    "%d",
                    a->view.rank, rank);
    if (r == ERR_OK && a->grid && a->grid->whole)
        r = err_set(e, ERR_SHAPE_MISMATCH, "a view of interior and ghosts cannot be resized");
    if (r == ERR_OK && a->grid && (r = grid_check_ghosts(a->grid, shape, e)) != ERR_OK)
        e->pointer[0] = '\0'; /* it is the shape that does not fit */
    return r == ERR_OK ? r : err_prefix(e, "/shape");
}

/* Whoever has a lease since we looked keeps his memory; a handle_guard's check. */
static enum err_code may_take_place(void *user, const struct array *now, struct err *e)
{
    return lease_check(user, now, LEASE_PLACE, e);
}

void array_resize(struct request *req)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct err e = ERR_INIT;
    struct json body;
    struct view shape;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0}, after = {0};
    _cleanup_array_ struct array *fresh = NULL;
    _cleanup_strb_ struct strb meta = {0};
    struct lease_claim claim = request_claim(req);
    struct handle_guard guard = {may_take_place, &claim};
    enum err_code r = request_plain(req, &e);
    if (r == ERR_OK && (r = request_own_array(req, LEASE_PLACE, &s, &h, &e)) == ERR_OK &&
        (r = request_body(req, false, &body, &e)) == ERR_OK &&
        (r = read_resize(body, h.array, &shape, &e)) == ERR_OK &&
        (r = handle_writable(&h, &e)) == ERR_OK && array_buffer_shared(h.array))
        r = err_set(&e, ERR_CONFLICT, "the array cannot be resized while views of it exist");
    if (r == ERR_OK && (r = meta_reserve(&meta, &e)) == ERR_OK &&
        (r = resized(s, h.array, &shape, &fresh, &e)) == ERR_OK) {
        array_take_place(fresh, h.array);
        r = handle_set_array(s->handles, h.id, h.array, fresh, &guard, &after, &e);
    }
    if (r != ERR_OK) {
        http_reply_error(req, &e);
        return;
    }
    /* let go of the old memory before the reply tells the number of references */
    handle_clear(&h);
    meta_reply_reserved(req, 200, &after, false, &meta);
}

/* --- copy --- */

void array_copy(struct request *req)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct err e = ERR_INIT;
    struct json body;
    const char *name = NULL;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0}, made = {0};
    _cleanup_array_ struct array *copy = NULL;
    _cleanup_strb_ struct strb meta = {0};
    enum err_code r = request_plain(req, &e);
    if (r == ERR_OK && (r = request_array(req, LEASE_READ, &s, &h, &e)) == ERR_OK)
        r = request_body(req, true, &body, &e);
    if (r == ERR_OK && json_present(body) && (r = JSON_MEMBERS(body, &e, "name")) == ERR_OK &&
        (r = meta_name(body, &name, &e)) == ERR_OK && name &&
        (r = handle_check_name(s->handles, name, NAME_NEW, &e)) != ERR_OK)
        err_prefix(&e, "/name");
    if (r == ERR_OK && (r = meta_reserve(&meta, &e)) == ERR_OK &&
        (r = engine_copy(s->stream, s->account, h.array, &copy, &e)) == ERR_OK) {
        struct handle_spec spec = {.name = name, .policy = NAME_NEW};
        r = handle_add(s->handles, copy, &spec, &made, NULL, &e);
    }
    if (r != ERR_OK)
        http_reply_error(req, &e);
    else
        meta_reply_reserved(req, 201, &made, true, &meta);
}

/* --- swap --- */

void array_swap(struct request *req)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct err e = ERR_INIT;
    struct json body, v;
    const char *ref;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle a = {0}, b = {0};
    _cleanup_strb_ struct strb meta = {0};
    enum err_code r = request_plain(req, &e);
    if (r == ERR_OK && (r = request_own_array(req, LEASE_UNDO, &s, &a, &e)) == ERR_OK &&
        (r = request_body(req, false, &body, &e)) == ERR_OK &&
        (r = JSON_MEMBERS(body, &e, "with")) == ERR_OK &&
        (r = json_require(body, "with", &v, &e)) == ERR_OK &&
        (r = json_get_string(v, &ref, NULL, &e)) == ERR_OK &&
        (r = request_find(req, s, ref, &b, &e)) != ERR_OK)
        err_prefix(&e, "/with");
    if (r == ERR_OK && ((r = handle_owned(&b, &e)) != ERR_OK ||
                        (r = request_leased(req, b.array, LEASE_UNDO, &e)) != ERR_OK))
        err_prefix(&e, "/with");
    if (r == ERR_OK && (r = handle_writable(&a, &e)) == ERR_OK &&
        (r = handle_writable(&b, &e)) != ERR_OK)
        err_prefix(&e, "/with");
    if (r == ERR_OK)
        r = meta_reserve(&meta, &e);
    if (r == ERR_OK && (r = engine_swap(s->stream, a.array, b.array, &e)) != ERR_OK &&
        !e.pointer[0])
        err_prefix(&e, "/with");
    if (r != ERR_OK)
        http_reply_error(req, &e);
    else
        meta_reply_reserved(req, 200, &a, false, &meta);
}
