/* Which variables arrays become: see export.h. Names of axes become dimensions, units an attribute,
 * and coordinates that lie on one axis, of the same name, variables of their own. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/files/export.h"
#include "server/labels/labels.h"

static const struct {
    const char *suffix, *format;
} suffixes[] = {
    {".nc", "netcdf4"}, {".nc4", "netcdf4"}, {".nc3", "netcdf3"}, {".cdf", "netcdf3"},
    {".h5", "hdf5"},    {".hdf5", "hdf5"},   {".npz", "npz"},     {".npy", "npy"},
    {".tif", "tiff"},   {".tiff", "tiff"},   {".png", "png"},
};
#define N_SUFFIXES (sizeof suffixes / sizeof *suffixes)

static enum err_code find_format(struct export_task *x, struct json body, struct err *e)
{
    const struct json v = json_member(body, "format");
    const size_t len = x->path ? strlen(x->path) : 0;
    if (json_given(v)) {
        TRY(json_get_string(v, &x->format, NULL, e));
        for (size_t i = 0; i < N_SUFFIXES; i++)
            if (!strcmp(suffixes[i].format, x->format))
                return ERR_OK;
    }
    for (size_t i = 0; !json_given(v) && i < N_SUFFIXES; i++) {
        const size_t n = strlen(suffixes[i].suffix);
        if (len > n && !strcasecmp(x->path + len - n, suffixes[i].suffix)) {
            x->format = suffixes[i].format;
            return ERR_OK;
        }
    }
    return json_err_member(
        body, "format", e, ERR_BAD_FIELD,
        "format is netcdf4, netcdf3, hdf5, npz, npy, tiff or png, by default the "
        "one that the path's suffix says");
}

/* --- arrays --- */

enum err_code export_add(struct export_task *x, struct request *req, struct handle *h,
                         const char *name, const char *coordinate, struct err *e)
{
    TRY(request_leased(req, h->array, LEASE_READ, e));
    if (arena_grow(x->arena, (void **)&x->pieces, &x->cap_pieces, x->n_pieces, sizeof *x->pieces))
        return err_oom(e);
    struct export_piece *p = &x->pieces[x->n_pieces];
    *p = (struct export_piece){.name = name, .coordinate = coordinate};
    if (h->shared)
        memcpy(p->shared, h->id, ID_SIZE);
    p->array = h->array;
    p->labels = h->labels;
    h->array = NULL;
    h->labels = NULL;
    p->nbytes = array_nbytes(p->array);
    x->n_pieces++;
    return __builtin_add_overflow(x->nbytes, p->nbytes, &x->nbytes)
               ? err_set(e, ERR_INLINE_TOO_LARGE, "the arrays have more than 2^63 bytes together")
               : ERR_OK;
}

static const struct export_piece *find_piece(const struct export_task *x, const char *name)
{
    for (size_t i = 0; i < x->n_pieces; i++)
        if (!strcmp(x->pieces[i].name, name))
            return &x->pieces[i];
    return NULL;
}

static bool is_variable(const char *name)
{
    bool good = *name && strlen(name) <= 256;
    for (const unsigned char *p = (const unsigned char *)name; *p && good; p++)
        good = *p >= ' ' && *p != 0x7F && *p != '/';
    return good;
}

static enum err_code read_array(struct export_task *x, struct request *req, struct session *s,
                                struct json v, struct err *e)
{
    const char *ref, *name = NULL;
    _cleanup_handle_ struct handle h = {0};
    struct err why = ERR_INIT;
    struct json of = v;
    if (json_kind(v) != JSON_STRING) {
        TRY(JSON_MEMBERS(v, e, "array", "name"));
        TRY(json_require(v, "array", &of, e));
        if (json_given(json_member(v, "name")))
            TRY(json_get_string(json_member(v, "name"), &name, NULL, e));
    }
    TRY(json_get_string(of, &ref, NULL, e));
    if (request_find(req, s, ref, &h, &why) != ERR_OK)
        return json_err(of, e, why.code, "%s", why.message);
    if (!name)
        name = arena_strndup(x->arena, h.name[0] ? h.name : ref, strlen(h.name[0] ? h.name : ref));
    if (!name)
        return err_oom(e);
    if (!is_variable(name))
        return json_err(v, e, ERR_BAD_NAME,
                        "a variable's name has 1 to 256 bytes, no control characters and no '/'");
    if (find_piece(x, name))
        return json_err(v, e, ERR_CONFLICT, "two arrays would be the variable '%.100s'", name);
    return export_add(x, req, &h, name, NULL, e);
}

/* Those that are there and the request may read; others are only named. */
static enum err_code read_coordinates(struct export_task *x, struct request *req, struct session *s,
                                      size_t i, struct err *e)
{
    const struct labels *l = x->pieces[i].labels;
    struct json coords;
    if (!l || !l->of[LABEL_COORDS].n)
        return ERR_OK;
    TRY(json_parse(x->arena, l->of[LABEL_COORDS].text, l->of[LABEL_COORDS].n, NULL, &coords, e));
    for (struct json c = json_first(coords); json_present(c); c = json_next(c)) {
        const char *dim = json_key(c), *id;
        const struct json dims = json_member(c, "dims");
        _cleanup_handle_ struct handle h = {0};
        struct err why = ERR_INIT;
        if (json_count(dims) != 1 || !json_equals(json_first(dims), dim) || find_piece(x, dim) ||
            !is_variable(dim) ||
            json_get_string(json_member(c, "array"), &id, NULL, &why) != ERR_OK ||
            request_find(req, s, id, &h, &why) != ERR_OK || h.array->view.rank != 1)
            continue;
        TRY(export_add(x, req, &h, dim, dim, e));
    }
    return ERR_OK;
}

/* Where the file is to be. */
static enum err_code read_place(struct export_task *x, struct json body, struct err *e)
{
    const char *folder;
    struct json v;
    TRY(JSON_MEMBERS(body, e, "folder", "path", "arrays", "format", "overwrite", "coords",
                     "deflate", "attrs"));
    TRY(json_require(body, "folder", &v, e));
    TRY(json_get_string(v, &folder, NULL, e));
    TRY(folders_find(x->server->files->folders, folder, &x->folder, e));
    if (x->folder->read_only)
        return json_err(v, e, ERR_READ_ONLY, "the folder '%s' is read-only", folder);
    TRY(json_require(body, "path", &v, e));
    TRY(json_get_string(v, &x->path, NULL, e));
    if (file_path_check(x->path, e) != ERR_OK)
        return err_prefix(e, "/path");
    v = json_member(body, "overwrite");
    if (json_given(v))
        TRY(json_get_bool(v, &x->overwrite, e));
    return ERR_OK;
}

enum err_code export_read(struct export_task *x, struct request *req, struct session *s,
                          struct json body, struct err *e)
{
    struct json v;
    x->coords = true;
    if (x->most) /* a bundle */
        TRY(JSON_MEMBERS(body, e, "arrays", "format", "coords", "deflate", "attrs"));
    else
        TRY(read_place(x, body, e));
    TRY(find_format(x, body, e));
    v = json_member(body, "coords");
    if (json_given(v))
        TRY(json_get_bool(v, &x->coords, e));
    v = json_member(body, "deflate");
    if (json_given(v))
        TRY(json_get_i64(v, 0, 9, &x->deflate, e));
    x->attrs = json_member(body, "attrs");
    if (json_given(x->attrs) && json_kind(x->attrs) != JSON_OBJECT)
        return json_err(x->attrs, e, ERR_BAD_FIELD, "attrs must be an object");
    TRY(json_require(body, "arrays", &v, e));
    if (json_kind(v) != JSON_LIST || !json_count(v))
        return json_err(v, e, ERR_BAD_FIELD, "arrays must be a list with at least one");
    for (struct json y = json_first(v); json_present(y); y = json_next(y))
        TRY(read_array(x, req, s, y, e));
    const size_t asked = x->n_pieces;
    for (size_t i = 0; x->coords && i < asked; i++)
        TRY(read_coordinates(x, req, s, i, e));
    return ERR_OK;
}

/* --- variables --- */

static enum err_code parse_label(const struct export_task *x, const struct export_piece *p,
                                 enum label which, struct json *ret, struct err *e)
{
    *ret = (struct json){0};
    if (!p->labels || !p->labels->of[which].n)
        return ERR_OK;
    return json_parse(x->arena, p->labels->of[which].text, p->labels->of[which].n, NULL, ret, e);
}

/* An axis without a name is its own dimension. */
static void put_dims(const struct export_piece *p, struct json dims, struct json_writer *w)
{
    json_put_key(w, "dims");
    if (p->coordinate) {
        json_open_list(w);
        json_put_string(w, p->coordinate);
        json_close_list(w);
        return;
    }
    if (!json_present(dims)) {
        json_put_null(w);
        return;
    }
    int k = 0;
    json_open_list(w);
    for (struct json d = json_first(dims); json_present(d); d = json_next(d), k++) {
        char name[320];
        snprintf(name, sizeof name, "%.256s_dim_%d", p->name, k);
        if (json_kind(d) == JSON_STRING)
            json_put_value(w, d);
        else
            json_put_string(w, name);
    }
    json_close_list(w);
}

enum err_code export_put_variable(const struct export_task *x, const struct export_piece *p,
                                  struct json_writer *w, struct err *e)
{
    struct json attrs, dims, units;
    TRY(parse_label(x, p, LABEL_ATTRS, &attrs, e));
    TRY(parse_label(x, p, LABEL_DIMS, &dims, e));
    TRY(parse_label(x, p, LABEL_UNITS, &units, e));
    json_open_object(w);
    json_put_member_string(w, "name", p->name);
    json_put_member_string(w, "dtype", dtype_name(p->array->dtype));
    json_put_key(w, "shape");
    json_put_i64_list(w, (size_t)p->array->view.rank, p->array->view.shape);
    put_dims(p, dims, w);
    json_put_key(w, "attrs");
    json_open_object(w);
    for (struct json a = json_first(attrs); json_present(a); a = json_next(a))
        if (!json_given(units) || strcmp(json_key(a), "units") != 0) {
            json_put_key(w, json_key(a));
            json_put_value(w, a);
        }
    if (json_given(units)) {
        json_put_key(w, "units");
        json_put_value(w, units);
    }
    json_close_object(w);
    json_close_object(w);
    return ERR_OK;
}
