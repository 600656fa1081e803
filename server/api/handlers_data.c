/* GET and PUT /v1/arrays/{ref}/data: selects the elements and the format; data_*.c transfer the
 * bytes. */
#include <string.h>

#include "protocol/wire/media.h"
#include "server/api/handlers.h"
#include "server/body/condition.h"
#include "server/body/data.h"
#include "server/body/request.h"
#include "server/files/files.h"
#include "server/look/look.h"
#include "server/look/picture.h"
#include "server/look/summary.h"

/* PUT's ?dtype= converts nothing: it says what raw .npy elements (|V2) are, or repeats the array's.
 */
static enum err_code check_dtype(struct request *req, const struct array *a, struct err *e)
{
    const char *text = http_query(req, "dtype");
    if (!text)
        return ERR_OK;
    enum dtype t;
    TRY(dtype_read(text, strlen(text), &t, e));
    if (t != a->dtype)
        return err_set(e, ERR_DTYPE_MISMATCH,
                       "the array has dtype %s, but the data is declared as %s",
                       dtype_name(a->dtype), dtype_name(t));
    return ERR_OK;
}

/* *ret_a: the selected elements of *ret_h. */
static enum err_code prepare_get(struct request *req, struct session **ret_s, struct handle *ret_h,
                                 struct array **ret_a, struct err *e)
{
    struct view v;
    TRY(request_array(req, LEASE_READ, ret_s, ret_h, e));
    TRY(look_region(req, ret_h->array, &v, e));
    *ret_a = array_view(ret_h->array, ret_h->array->dtype, &v);
    return *ret_a ? ERR_OK : err_oom(e);
}

#define OFFERS(x) x, sizeof(x) / sizeof *(x)

/* What Accept asks for, of what can be made of the array: where there can be no picture, it is no
 * offer, if another type would do. */
static enum err_code choose(struct request *req, enum media *ret, struct err *e)
{
    static const enum media offers[] = {MEDIA_OCTETS, MEDIA_NPY,    MEDIA_JSON, MEDIA_PNG,
                                        MEDIA_NPZ,    MEDIA_NETCDF, MEDIA_HDF5};
    static const enum media others[] = {MEDIA_OCTETS, MEDIA_NPY,    MEDIA_JSON,
                                        MEDIA_NPZ,    MEDIA_NETCDF, MEDIA_HDF5};
    const char *accept = http_header(req, "Accept");
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_array_ struct array *a = NULL;
    enum media other;
    TRY(media_negotiate(accept, OFFERS(offers), ret, e));
    if (*ret != MEDIA_PNG || media_negotiate(accept, OFFERS(others), &other, NULL) != ERR_OK)
        return ERR_OK;
    TRY(prepare_get(req, &s, &h, &a, e));
    if (!picture_is_possible(a))
        *ret = other;
    return ERR_OK;
}

static bool is_file(enum media type)
{
    return type >= MEDIA_NPZ;
}

/* Each representation has parameters of its own. */
static enum err_code read_query(struct request *req, enum media type, bool *ret_ghosts,
                                struct err *e)
{
    static const char *const allowed[] = {"index", "ghost", PICTURE_QUERY, NULL};
    static const char *const of_file[] = {"index", "ghost", "ghosts", NULL};
    *ret_ghosts = false;
    TRY(http_query_only(req, is_file(type) ? of_file : allowed, e));
    if (!is_file(type))
        return picture_query(req, type, e);
    TRY(files_keeps_ghosts(req, ret_ghosts, e));
    return *ret_ghosts && (http_query(req, "index") || http_query(req, "ghost"))
               ? err_set(e, ERR_BAD_QUERY, "ghosts are kept of a whole array, without index")
               : ERR_OK;
}

void data_get(struct request *req)
{
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct err e = ERR_INIT;
    enum media type;
    bool ghosts;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct array *a = NULL;
    enum err_code code = choose(req, &type, &e);
    const bool file = code == ERR_OK && is_file(type); /* which is not given up when it is begun */
    if (!file)
        http_may_end(req, NULL);
    if (code == ERR_OK)
        code = read_query(req, type, &ghosts, &e);
    if (code == ERR_OK && type == MEDIA_PNG) {
        picture_reply(req, data_get);
        return;
    }
    if (code == ERR_OK)
        code = prepare_get(req, &s, &h, &a, &e);
    if (file)
        http_add_header(req, "Vary", "Accept");
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else if (file)
        files_reply(req, s, &h, a, type, ghosts);
    else
        data_reply(req, s->stream, a, type, &h);
}

static enum err_code put(struct request *req, struct err *e)
{
    static const char *const allowed[] = {"index", "ghost", "dtype", NULL};
    static const char *const of_file[] = {"index",  "ghost",  "dtype", "variable",
                                          "decode", "ghosts", NULL};
    enum data_format format = DATA_OCTETS;
    enum media type;
    const bool file = files_is_body(req, &type);
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct view region;
    struct condition condition = condition_of(req);
    TRY(http_query_only(req, file ? of_file : allowed, e));
    if (!file)
        TRY(data_format_of(req, &format, e));
    TRY(request_array(req, LEASE_WRITE, &s, &h, e));
    TRY(handle_writable(&h, e));
    TRY(check_dtype(req, h.array, e));
    TRY(look_region(req, h.array, &region, e));
    TRY(condition_check(&condition, h.array, &region, e));
    if (file && view_self_overlaps(&region))
        return err_set(e, ERR_OVERLAP, "elements of the target overlap in memory");
    if (file)
        files_accept_into(req, s, &h, &region, type);
    else
        data_accept_into(req, s, &h, &region, format);
    s = NULL; /* both are taken */
    h = (struct handle){0};
    return ERR_OK;
}

void data_put(struct request *req)
{
    request_try(req, put);
}

void summary_get(struct request *req)
{
    summary_reply(req);
}
