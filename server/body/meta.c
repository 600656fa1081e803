/* Metadata as JSON. */
#include "server/body/meta.h"

#include <stdio.h>

#include "compute/base/clock.h"
#include "server/body/grid_json.h"
#include "server/store/session.h"

void meta_put_time(struct json_writer *w, const char *key, int64_t us)
{
    char text[CLOCK_DATE_SIZE];
    clock_date_text(us, text);
    json_put_member_string(w, key, text);
}

void meta_put(struct json_writer *w, const struct handle *h)
{
    const struct array *a = h->array;
    int rank = a->view.rank;
    json_open_object(w);
    json_put_member_string(w, "id", h->id);
    json_put_member_string(w, "name", h->name[0] ? h->name : NULL);
    json_put_member_string(w, "dtype", dtype_name(a->dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)rank, a->view.shape);
    json_put_key(w, "strides");
    json_put_i64_list(w, (size_t)rank, a->view.strides);
    json_put_member_i64(w, "offset", a->view.offset);
    json_put_member_i64(w, "size", view_size(&a->view));
    json_put_member_i64(w, "nbytes", array_nbytes(a));
    json_put_member_i64(w, "itemsize", (int64_t)dtype_size(a->dtype));
    json_put_member_i64(w, "alignment", grid_alignment(a->grid, &a->view, dtype_size(a->dtype)));
    grid_json_put(w, a->grid, rank);
    if (h->view_of[0])
        json_put_member_string(w, "view_of", h->view_of);
    json_put_member_i64(w, "references", array_buffer_refs(a));
    json_put_member_string(w, "session", h->session);
    meta_put_time(w, "created", h->created_us);
    if (h->restored_us)
        meta_put_time(w, "restored_from", h->restored_us);
    json_put_member_bool(w, "read_only", h->read_only);
    json_put_member_string(w, "location", array_in_host_memory(a) ? "host" : "device");
    json_put_member_i64(w, "device", array_device(a));
    json_close_object(w);
}

void meta_put_session(struct json_writer *w, const struct session *s)
{
    json_open_object(w);
    json_put_member_string(w, "id", s->id);
    json_put_member_string(w, "name", s->name[0] ? s->name : NULL);
    json_put_member_bool(w, "default", s->is_default);
    if (s->ttl_s > 0) {
        json_put_member_double(w, "ttl_s", s->ttl_s);
    } else {
        json_put_key(w, "ttl_s");
        json_put_null(w);
    }
    if (s->memory_limit) {
        json_put_member_i64(w, "memory_limit", s->memory_limit);
    } else {
        json_put_key(w, "memory_limit");
        json_put_null(w);
    }
    json_put_member_i64(w, "device", s->device);
    meta_put_time(w, "created", s->created_us);
    json_put_member_i64(w, "bytes_in_use", account_used(s->account));
    json_put_member_i64(w, "arrays", handle_space_count(s->handles));
    json_put_member_double(w, "device_s", (double)account_device_ns(s->account) * 1e-9);
    json_close_object(w);
}

#define META_MAX 16384 /* enough for any array: 64 faces with complex values */

enum err_code meta_reserve(struct strb *ret, struct err *e)
{
    return strb_reserve(ret, META_MAX) ? ERR_OK : err_oom(e);
}

void meta_reply_reserved(struct request *req, int status, const struct handle *h, bool located,
                         struct strb *take)
{
    struct json_writer w = JSON_WRITER(take);
    meta_put(&w, h);
    if (located) {
        char location[32 + ID_SIZE];
        snprintf(location, sizeof location, "/v1/arrays/%s", h->id);
        http_add_header(req, "Location", location);
    }
    http_reply_json(req, status, take);
}

enum err_code meta_reply_added(struct request *req, struct session *s, struct array *a,
                               const struct handle_spec *spec, struct err *e)
{
    bool replaced = false;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb meta = {0};
    TRY(meta_reserve(&meta, e));
    TRY(handle_add(s->handles, a, spec, &h, &replaced, e));
    meta_reply_reserved(req, replaced ? 200 : 201, &h, true, &meta);
    return ERR_OK;
}

void meta_reply(struct request *req, int status, const struct handle *h)
{
    struct strb out = {0};
    meta_reply_reserved(req, status, h, status == 201, &out);
}

/* --- reading --- */

enum err_code meta_name(struct json body, const char **ret, struct err *e)
{
    struct json v = json_member(body, "name");
    *ret = NULL;
    if (!json_given(v))
        return ERR_OK;
    TRY(json_get_string(v, ret, NULL, e));
    return name_check(*ret, e) == ERR_OK ? ERR_OK : err_prefix(e, "/name");
}

enum err_code meta_access(struct json body, const char *name, bool *ret_write, struct err *e)
{
    struct json v;
    TRY(json_require(body, name, &v, e));
    *ret_write = json_equals(v, "write");
    if (!*ret_write && !json_equals(v, "read"))
        return json_err(v, e, ERR_BAD_FIELD, "%s must be \"read\" or \"write\"", name);
    return ERR_OK;
}

enum err_code meta_location(struct json body, int *ret_host, struct err *e)
{
    struct json v = json_member(body, "location");
    bool host = json_equals(v, "host");
    if (!json_present(v))
        return ERR_OK;
    if (!host && !json_equals(v, "device"))
        return json_err(v, e, ERR_BAD_FIELD, "location must be \"device\" or \"host\"");
    *ret_host = host;
    return ERR_OK;
}
