/* Metadata as JSON. */
#include "server/body/meta.h"

#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "server/body/grid_json.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/store/session.h"

void meta_put_time(struct json_writer *w, const char *key, int64_t us)
{
    char text[CLOCK_DATE_SIZE];
    clock_date_text(us, text);
    json_put_member_string(w, key, text);
}

static void put_placement(struct json_writer *w, const struct array *a)
{
    int64_t parts[MAX_RANK], rows[BACKEND_PARTS + 1], devices[BACKEND_PARTS];
    int axis = 0;
    const int n = array_divided(a, &axis, rows, devices);
    if (!n)
        return;
    for (int i = 0; i < a->view.rank; i++)
        parts[i] = i == axis ? n : 1;
    json_put_key(w, "placement");
    json_open_object(w);
    json_put_key(w, "parts");
    json_put_i64_list(w, (size_t)a->view.rank, parts);
    json_put_key(w, "rows");
    json_put_i64_list(w, (size_t)n + 1, rows);
    json_put_key(w, "devices");
    json_put_i64_list(w, (size_t)n, devices);
    json_close_object(w);
}

void meta_put(struct json_writer *w, const struct handle *h, bool brief)
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
    labels_put(w, h->labels, brief);
    if (h->view_of[0])
        json_put_member_string(w, "view_of", h->view_of);
    json_put_member_i64(w, "references", array_buffer_refs(a));
    if (h->owner)
        json_put_member_string(w, "owner", h->owner);
    json_put_member_string(w, "session", h->session);
    meta_put_time(w, "created", h->created_us);
    if (h->restored_us)
        meta_put_time(w, "restored_from", h->restored_us);
    json_put_member_bool(w, "read_only", h->read_only);
    if (h->coordinate)
        json_put_member_bool(w, "coordinate", true);
    json_put_member_string(w, "location", array_in_host_memory(a) ? "host" : "device");
    json_put_member_i64(w, "device", array_device(a));
    put_placement(w, a);
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

enum err_code meta_reserve(struct strb *ret, size_t labels, struct err *e)
{
    return strb_reserve(ret, META_MAX + labels) ? ERR_OK : err_oom(e);
}

void meta_reply_reserved(struct request *req, int status, const struct handle *h, bool located,
                         struct strb *take)
{
    struct json_writer w = JSON_WRITER(take);
    meta_put(&w, h, false);
    if (located) {
        char location[32 + ID_SIZE];
        snprintf(location, sizeof location, "/v1/arrays/%s", h->id);
        http_add_header(req, "Location", location);
    }
    http_reply_json(req, status, take);
}

enum err_code meta_reply_added(struct request *req, struct session *s,
                               const struct handle_new *list, size_t n, struct err *e)
{
    bool replaced = false;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_strb_ struct strb meta = {0};
    TRY(meta_reserve(&meta, labels_size(list[n - 1].spec.labels), e));
    TRY(handle_add_all(s->handles, list, n, &h, &replaced, e));
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

/* --- labels --- */

struct coordinates {
    struct request *req;
    struct session *session;
};

static enum err_code find_coordinate(void *user, const char *ref, struct label_array *ret,
                                     struct err *e)
{
    const struct coordinates *c = user;
    _cleanup_handle_ struct handle h = {0};
    TRY(request_find(c->req, c->session, ref, &h, e));
    *ret = (struct label_array){.rank = h.array->view.rank};
    memcpy(ret->id, h.id, ID_SIZE);
    memcpy(ret->shape, h.array->view.shape, sizeof ret->shape);
    return ERR_OK;
}

static enum err_code read_labels(struct request *req, struct session *s,
                                 const struct json of[LABEL_COUNT], struct labels_patch *ret,
                                 struct err *e)
{
    struct coordinates coordinates = {req, s};
    const struct label_finder finder = {find_coordinate, &coordinates};
    return labels_read(req->arena, of, &finder, req->server->config->max_attrs, ret, e);
}

enum err_code meta_labels(struct request *req, struct session *s, struct json body,
                          struct labels_patch *ret, struct err *e)
{
    struct json of[LABEL_COUNT];
    labels_members(body, of);
    return read_labels(req, s, of, ret, e);
}

/* "lat,,lon" as ["lat", null, "lon"]. */
static void put_names(struct json_writer *w, const char *text)
{
    json_open_list(w);
    bool more = *text;
    for (const char *p = text; more;) {
        const size_t n = strcspn(p, ",");
        if (n)
            json_put_stringn(w, p, n);
        else
            json_put_null(w);
        more = p[n] == ',';
        p += n + more;
    }
    json_close_list(w);
}

static enum err_code query_value(struct request *req, enum label k, struct json *ret, struct err *e)
{
    const char *text = http_query(req, label_names[k]);
    const struct json_limits limits = request_json_limits(req);
    struct err why = ERR_INIT;
    _cleanup_strb_ struct strb own = {0};
    struct json_writer w = JSON_WRITER(&own);
    *ret = (struct json){0};
    if (!text)
        return ERR_OK;
    if (k == LABEL_DIMS)
        put_names(&w, text);
    else if (k == LABEL_UNITS)
        json_put_string(&w, text);
    else
        strb_add(&own, text);
    if (own.failed)
        return err_oom(e);
    enum err_code code =
        json_parse(req->arena, own.data ? own.data : "", own.len, &limits, ret, &why);
    if (code == ERR_BAD_JSON)
        return err_set(e, ERR_BAD_QUERY, "'%s' in the query: %s", label_names[k], why.message);
    if (code != ERR_OK)
        *e = why;
    return code;
}

enum err_code meta_labels_of_query(struct request *req, struct session *s, struct labels_patch *ret,
                                   struct err *e)
{
    struct json of[LABEL_COUNT];
    for (int k = 0; k < LABEL_COUNT; k++)
        TRY(query_value(req, (enum label)k, &of[k], e));
    enum err_code code = read_labels(req, s, of, ret, e);
    if (code != ERR_OK)
        e->pointer[0] = '\0'; /* they are not in the body */
    ret->from_query = true;
    return code;
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

enum err_code meta_placement(const struct request *req, const struct session *s, struct json body,
                             struct meta_placement *ret, struct err *e)
{
    struct json v = json_member(body, "placement"), parts;
    struct backend_device d;
    int64_t among[MAX_RANK];
    size_t n;
    if (!json_present(v))
        return ERR_OK;
    TRY(JSON_MEMBERS(v, e, "parts"));
    TRY(json_require(v, "parts", &parts, e));
    TRY(json_get_i64_list(parts, MAX_RANK, 1, INT64_MAX, among, &n, e));
    engine_device_info(req->server->engine, s->device, &d);
    bool fits = n > 0 && (among[0] == 1 || among[0] == d.n_parts);
    for (size_t i = 1; i < n; i++)
        fits &= among[i] == 1;
    if (!fits && d.n_parts)
        return json_err(parts, e, ERR_UNSUPPORTED_PLACEMENT,
                        "an array can lie on one GPU ([1]) or be divided among all %d along its "
                        "first axis ([%d, 1, …])",
                        d.n_parts, d.n_parts);
    if (!fits)
        return json_err(parts, e, ERR_UNSUPPORTED_PLACEMENT,
                        "device %d is a single one, among which nothing is divided: [1]",
                        s->device);
    *ret = (struct meta_placement){.given = true, .apart = among[0] > 1, .axes = (int)n};
    return ERR_OK;
}

enum err_code meta_placement_of_query(struct request *req, const struct session *s,
                                      struct meta_placement *ret, struct err *e)
{
    const char *text = http_query(req, "placement");
    const struct json_limits limits = request_json_limits(req);
    _cleanup_strb_ struct strb own = {0};
    struct json body;
    if (!text)
        return ERR_OK;
    strb_addf(&own, "{\"placement\":{\"parts\":[%s]}}", text);
    if (own.failed)
        return err_oom(e);
    enum err_code code = text[strspn(text, "0123456789,")] ? ERR_BAD_JSON : ERR_OK;
    if (code == ERR_OK)
        code = json_parse(req->arena, own.data, own.len, &limits, &body, e);
    if (code == ERR_OK)
        code = meta_placement(req, s, body, ret, e);
    if (code == ERR_BAD_JSON || code == ERR_BAD_FIELD)
        code = err_set(e, ERR_BAD_QUERY,
                       "placement must be a comma-separated list of numbers, such as 2,1,1");
    if (code != ERR_OK)
        e->pointer[0] = '\0'; /* it is not in the body */
    ret->from_query = true;
    return code;
}

enum err_code meta_place(const struct meta_placement *p, const struct session *s, struct array *a,
                         struct err *e)
{
    enum err_code code = ERR_OK;
    if (!p->given)
        return ERR_OK;
    if (p->axes != a->view.rank && (p->apart || p->axes > 1))
        code = err_set(e, ERR_UNSUPPORTED_PLACEMENT,
                       "'parts' needs a number for each axis: got %d for an array of rank %d",
                       p->axes, a->view.rank);
    else
        code = engine_place(s->stream, a, p->apart, e);
    if (code == ERR_UNSUPPORTED_PLACEMENT && !p->from_query)
        return err_prefix(e, "/placement/parts");
    return code;
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
