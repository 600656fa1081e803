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

#define N_OFFERS (sizeof data_offers / sizeof *data_offers)

/* data_offers, and the formats of files. */
static const enum media offers[] = {MEDIA_OCTETS, MEDIA_NPY,    MEDIA_JSON, MEDIA_PNG,
                                    MEDIA_NPZ,    MEDIA_NETCDF, MEDIA_HDF5};
#define N_ALL_OFFERS (sizeof offers / sizeof *offers)

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

/* What Accept asks for, which is no file, of what can be made of the array. A picture, the last
 * offer, has parameters of its own; where there can be none it is no offer, if another type would
 * do. */
static enum err_code negotiate(struct request *req, enum media *ret_type, struct err *e)
{
    static const char *const allowed[] = {"index", "ghost", PICTURE_QUERY, NULL};
    const char *accept = http_header(req, "Accept");
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    _cleanup_array_ struct array *a = NULL;
    enum media other;
    TRY(http_query_only(req, allowed, e));
    TRY(media_negotiate(accept, offers, N_ALL_OFFERS, ret_type, e));
    if (*ret_type == MEDIA_PNG &&
        media_negotiate(accept, data_offers, N_OFFERS - 1, &other, NULL) == ERR_OK) {
        TRY(prepare_get(req, &s, &h, &a, e));
        if (!picture_is_possible(a))
            *ret_type = other;
    }
    return picture_query(req, *ret_type, e);
}

/* Whether Accept asks for one of the formats of files rather than for what is offered else. */
static bool asks_file(struct request *req, enum media *ret_type)
{
    struct err e = ERR_INIT;
    return media_negotiate(http_header(req, "Accept"), offers, N_ALL_OFFERS, ret_type, &e) ==
               ERR_OK &&
           *ret_type >= MEDIA_NPZ;
}

/* The elements as a file of one variable. */
static void get_file(struct request *req, enum media type)
{
    static const char *const allowed[] = {"index", "ghost", "ghosts", NULL};
    struct err e = ERR_INIT;
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct array *a = NULL;
    bool ghosts;
    enum err_code code = http_query_only(req, allowed, &e);
    if (code == ERR_OK)
        code = files_keeps_ghosts(req, &ghosts, &e);
    if (code == ERR_OK && ghosts && (http_query(req, "index") || http_query(req, "ghost")))
        code = err_set(&e, ERR_BAD_QUERY, "ghosts are kept of a whole array, without index");
    if (code == ERR_OK)
        code = prepare_get(req, &s, &h, &a, &e);
    http_add_header(req, "Vary", "Accept");
    if (code != ERR_OK)
        http_reply_error(req, &e);
    else
        files_reply(req, s, &h, a, type, ghosts);
}

void data_get(struct request *req)
{
    enum media file;
    if (asks_file(req, &file)) {
        get_file(req, file);
        return;
    }
    _cleanup_use_ struct lease_use use = lease_use_open(req->server->uses);
    struct err e = ERR_INIT;
    enum media type;
    _cleanup_session_ struct session *s = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct array *a = NULL;
    http_may_end(req, NULL);
    enum err_code code = negotiate(req, &type, &e);
    if (code == ERR_OK && type == MEDIA_PNG) {
        picture_reply(req, data_get);
        return;
    }
    if (code == ERR_OK)
        code = prepare_get(req, &s, &h, &a, &e);
    if (code != ERR_OK)
        http_reply_error(req, &e);
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
