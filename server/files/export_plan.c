/* What the body of an export asks for: see export.h. */
#include <string.h>
#include <strings.h>

#include "compute/base/mem.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/files/export.h"
#include "server/labels/labels.h"

static const char *const names[WIRE_FORMAT_COUNT] = {
#define X(id, name) name,
    WIRE_FORMATS(X)
#undef X
};

static const struct {
    const char *suffix;
    enum wire_format format;
} suffixes[] = {
    {".nc", WIRE_FORMAT_NETCDF4},  {".nc4", WIRE_FORMAT_NETCDF4}, {".nc3", WIRE_FORMAT_NETCDF3},
    {".cdf", WIRE_FORMAT_NETCDF3}, {".h5", WIRE_FORMAT_HDF5},     {".hdf5", WIRE_FORMAT_HDF5},
    {".npz", WIRE_FORMAT_NPZ},     {".npy", WIRE_FORMAT_NPY},     {".tif", WIRE_FORMAT_TIFF},
    {".tiff", WIRE_FORMAT_TIFF},   {".png", WIRE_FORMAT_PNG},
};
#define N_SUFFIXES (sizeof suffixes / sizeof *suffixes)

const char *export_format_name(enum wire_format f)
{
    return names[f];
}

static bool has_dimensions(enum wire_format f)
{
    return f == WIRE_FORMAT_NETCDF4 || f == WIRE_FORMAT_NETCDF3 || f == WIRE_FORMAT_HDF5;
}

static bool holds_several(enum wire_format f)
{
    return has_dimensions(f) || f == WIRE_FORMAT_NPZ;
}

static enum err_code find_format(struct export_task *x, struct json body, struct err *e)
{
    const struct json v = json_member(body, "format");
    const size_t len = x->path ? strlen(x->path) : 0;
    const char *name = NULL;
    if (json_given(v))
        TRY(json_get_string(v, &name, NULL, e));
    for (int f = 0; name && f < WIRE_FORMAT_COUNT; f++)
        if (!strcmp(names[f], name)) {
            x->format = f;
            return ERR_OK;
        }
    for (size_t i = 0; !name && i < N_SUFFIXES; i++) {
        const size_t n = strlen(suffixes[i].suffix);
        if (len > n && !strcasecmp(x->path + len - n, suffixes[i].suffix)) {
            x->format = suffixes[i].format;
            return ERR_OK;
        }
    }
    return json_err_member(body, "format", e, ERR_BAD_FIELD,
                           "format is netcdf4, netcdf3, hdf5, npz, npy, tiff or png%s",
                           x->path ? ", by default the one that the path's suffix says" : "");
}

/* --- arrays --- */

struct export_piece *export_find(const struct export_task *x, const char *name)
{
    const struct export_name *found;
    HASH_FIND_STR(x->by_name, name, found);
    return found ? &x->pieces[found->piece] : NULL;
}

static enum err_code add_name(struct export_task *x, const char *name, struct json at,
                              struct err *e)
{
    if (export_find(x, name)) {
        const char *fmt = "two arrays would be the variable '%.100s'";
        return json_present(at) ? json_err(at, e, ERR_CONFLICT, fmt, name)
                                : err_set(e, ERR_CONFLICT, fmt, name);
    }
    struct export_name *n = arena_alloc(x->arena, sizeof *n);
    if (!n)
        return err_oom(e);
    *n = (struct export_name){.name = name, .piece = x->n_pieces};
    HASH_ADD_KEYPTR(hh, x->by_name, n->name, strlen(n->name), n);
    return n->hh.tbl ? ERR_OK : err_oom(e);
}

/* Interior and ghosts as elements, of an array whose elements are the interior. */
static enum err_code take_ghosts(struct array **a, struct err *e)
{
    struct view whole;
    struct grid desc;
    if (!grid_has_ghosts((*a)->grid) || (*a)->grid->whole)
        return ERR_OK;
    grid_whole((*a)->grid, &(*a)->view, &whole);
    desc = *(*a)->grid;
    desc.whole = true;
    struct grid *grid = grid_new(&desc);
    struct array *with = grid ? array_view_grid(*a, &whole, grid) : NULL;
    grid_unref(grid);
    if (!with)
        return err_oom(e);
    array_unref(*a);
    *a = with;
    return ERR_OK;
}

enum err_code export_add(struct export_task *x, struct request *req, struct handle *h,
                         const char *name, struct json at, struct err *e)
{
    TRY(request_leased(req, h->array, LEASE_READ, e));
    if (x->ghosts)
        TRY(take_ghosts(&h->array, e));
    if (arena_grow(x->arena, (void **)&x->pieces, &x->cap_pieces, x->n_pieces, sizeof *x->pieces))
        return err_oom(e);
    TRY(add_name(x, name, at, e));
    struct export_piece *p = &x->pieces[x->n_pieces];
    *p = (struct export_piece){.name = name, .at = at, .shared = h->shared, .asked_for = true};
    memcpy(p->id, h->id, ID_SIZE);
    p->array = h->array;
    p->labels = x->labels ? h->labels : NULL;
    h->array = NULL;
    if (x->labels)
        h->labels = NULL;
    p->nbytes = array_nbytes(p->array);
    x->n_pieces++;
    x->told += (int64_t)labels_size(p->labels);
    if (p->labels && p->labels->of[LABEL_DIMS].n)
        TRY(json_parse(x->arena, p->labels->of[LABEL_DIMS].text, p->labels->of[LABEL_DIMS].n, NULL,
                       &p->dims, e));
    return __builtin_add_overflow(x->nbytes, p->nbytes, &x->nbytes)
               ? err_set(e, ERR_INLINE_TOO_LARGE, "the arrays have more than 2^63 bytes together")
               : ERR_OK;
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
    if (!export_is_name(name))
        return json_err(v, e, ERR_BAD_NAME,
                        "a variable's name has 1 to 256 bytes, no control characters and no '/'");
    return export_add(x, req, &h, name, v, e);
}

/* Where the file is to be. */
static enum err_code read_place(struct export_task *x, struct json body, struct err *e)
{
    const char *folder;
    struct json v;
    TRY(JSON_MEMBERS(body, e, "folder", "path", "arrays", "format", "overwrite", "coords", "labels",
                     "ghosts", "deflate", "attrs", "unlimited"));
    TRY(json_require(body, "folder", &v, e));
    TRY(json_get_string(v, &folder, NULL, e));
    TRY(folders_find(x->server->files->folders, folder, &x->folder, e));
    if (x->folder->read_only)
        return json_err(v, e, ERR_READ_ONLY, "the folder '%s' is read-only", folder);
    TRY(json_require(body, "path", &v, e));
    TRY(json_get_string(v, &x->path, NULL, e));
    if (file_path_check(x->path, e) != ERR_OK)
        return err_prefix(e, "/path");
    return files_get_bool(body, "overwrite", &x->overwrite, e);
}

static enum err_code read_unlimited(struct export_task *x, struct json v, struct err *e)
{
    const char *name;
    struct export_dim *d;
    if (!json_given(v))
        return ERR_OK;
    if (json_kind(v) != JSON_LIST || (json_count(v) && !has_dimensions(x->format)))
        return json_err(v, e, ERR_BAD_FIELD,
                        "unlimited is a list of names of axes, for NetCDF and HDF5");
    for (struct json y = json_first(v); json_present(y); y = json_next(y)) {
        TRY(json_get_string(y, &name, NULL, e));
        HASH_FIND_STR(x->dims, name, d);
        if (!d)
            return json_err(y, e, ERR_UNKNOWN_NAME, "no axis in the file is called '%.100s'", name);
    }
    x->unlimited = v;
    return ERR_OK;
}

enum err_code export_read(struct export_task *x, struct request *req, struct session *s,
                          struct json body, struct err *e)
{
    struct json v;
    if (x->most) /* a bundle */
        TRY(JSON_MEMBERS(body, e, "arrays", "format", "coords", "labels", "ghosts", "deflate",
                         "attrs", "unlimited"));
    else
        TRY(read_place(x, body, e));
    TRY(find_format(x, body, e));
    TRY(files_get_bool(body, "coords", &x->coords, e));
    TRY(files_get_bool(body, "labels", &x->labels, e));
    TRY(files_get_ghosts(json_member(body, "ghosts"), &x->ghosts, e));
    x->coords &= x->labels && holds_several(x->format);
    v = json_member(body, "deflate");
    if (json_given(v))
        TRY(json_get_i64(v, 0, 9, &x->deflate, e));
    x->attrs = json_member(body, "attrs");
    TRY(export_check_attrs(x->attrs, e));
    TRY(json_require(body, "arrays", &v, e));
    if (json_kind(v) != JSON_LIST || !json_count(v))
        return json_err(v, e, ERR_BAD_FIELD, "arrays must be a list with at least one");
    for (struct json y = json_first(v); json_present(y); y = json_next(y))
        TRY(read_array(x, req, s, y, e));
    if (x->coords)
        TRY(export_coordinates(x, req, s, x->n_pieces, e));
    TRY(export_dimensions(x, e));
    return read_unlimited(x, json_member(body, "unlimited"), e);
}
