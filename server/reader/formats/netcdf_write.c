/* Writes NetCDF: version 4, or the classic format with 64-bit offsets (CDF-2, which everything
 * reads, as it does not CDF-5). What both lack becomes what xarray makes of it: bool is int8 with
 * the attribute dtype="bool"; float16 and bfloat16 are widened. Complex numbers are compound types
 * r, i in version 4, as h5py and netCDF4-python read them. */
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/fit.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

#define CLASSIC_MOST ((4ll << 30) - 4) /* bytes of a variable that others follow */

static void check(int status, const char *what, const char *name)
{
    if (status == NC_ENOMEM)
        stop_oom();
    if (status == NC_EBADNAME || status == NC_EMAXNAME)
        stop(WIRE_UNSUPPORTED,
             "NetCDF allows no such name: '%s'; \"name\" gives a variable another, \"coords\": "
             "false leaves coordinates out",
             name ? name : "");
    static const int lacks[] = {NC_ENAMEINUSE, NC_EMAXDIMS, NC_EMAXATTS, NC_EMAXVARS, NC_EUNLIMPOS,
                                NC_EUNLIMIT,   NC_EVARSIZE, NC_EDIMSIZE, NC_EBADTYPE, NC_ERANGE};
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (status == lacks[i])
            stop(WIRE_UNSUPPORTED, "NetCDF cannot hold '%s': %s", name ? name : "the arrays",
                 nc_strerror(status));
    if (status != NC_NOERR)
        stop_writing("%s%s%s%s failed: %s", what, name ? " '" : "", name ? name : "",
                     name ? "'" : "", nc_strerror(status));
}

static nc_type type_of(int file, enum dtype t)
{
    static const nc_type of[DT_COUNT] = {
        [DT_I8] = NC_BYTE,   [DT_I16] = NC_SHORT,  [DT_I32] = NC_INT,  [DT_I64] = NC_INT64,
        [DT_U8] = NC_UBYTE,  [DT_U16] = NC_USHORT, [DT_U32] = NC_UINT, [DT_U64] = NC_UINT64,
        [DT_F32] = NC_FLOAT, [DT_F64] = NC_DOUBLE};
    if (!dtype_is_complex(t))
        return of[t];
    const char *name = t == DT_C64 ? "_PFNC_FLOAT_COMPLEX_TYPE" : "_PFNC_DOUBLE_COMPLEX_TYPE";
    nc_type type, part = t == DT_C64 ? NC_FLOAT : NC_DOUBLE;
    if (nc_inq_typeid(file, name, &type) == NC_NOERR)
        return type;
    check(nc_def_compound(file, dtype_size(t), name, &type), "making the type", name);
    check(nc_insert_compound(file, type, "r", 0, part), "making the type", name);
    check(nc_insert_compound(file, type, "i", dtype_size(t) / 2, part), "making the type", name);
    return type;
}

/* Whether the classic format has a type for it. Integers past 32 bits are floats there, as long as
 * these are as exact. */
static bool is_classic(struct content *c, struct attr *a)
{
    if (a->dtype == UNREAD)
        return !a->list;
    if (!dtype_is_integer((enum dtype)a->dtype) || dtype_size((enum dtype)a->dtype) < 8)
        return true;
    for (int64_t i = 0; i < a->n; i++) {
        const struct literal l = literal_from_scalar(attr_scalar(a, i));
        if (l.i < -(1ll << 53) || l.i > 1ll << 53)
            return false;
    }
    return fit_attr(c, a, DT_F64);
}

static void put_text(int group, int id, const char *name, const char *text)
{
    check(nc_put_att_text(group, id, name, strlen(text), text), "writing the attribute", name);
}

/* What has no type in the file is its JSON text. */
static void put_json(int group, int id, const struct attr *a)
{
    _cleanup_strb_ struct strb text = {0};
    struct json_writer w = JSON_WRITER(&text);
    attr_put(&w, a);
    if (text.failed)
        stop_oom();
    put_text(group, id, a->name, text.data);
}

/* Whether a variable has an attribute. A fill value is one number of the elements' type; a number
 * that no element can be marks none, and is left out. */
static bool has_attr(const struct variable *v, const struct attr *a)
{
    if (!v || strcmp(a->name, "_FillValue") != 0 || (a->n == 1 && a->dtype == v->dtype))
        return true;
    if (a->n != 1 || a->dtype == UNREAD)
        stop(WIRE_UNSUPPORTED,
             "the attribute '_FillValue' of '%s' is not one number, as NetCDF wants it; "
             "\"labels\": false leaves all attributes out",
             v->name);
    return false;
}

/* v: whose attributes they are, or NULL. */
static void put_attrs(struct content *c, int group, int id, const struct variable *v,
                      struct attrs *list, bool classic)
{
    fit_attr_names(c, list, classic ? FIT_NETCDF : FIT_NETCDF | FIT_LIBRARY | FIT_SCALE);
    for (struct attr *a = list->first; a; a = a->next) {
        if (!has_attr(v, a))
            continue;
        if (classic && !is_classic(c, a))
            put_json(group, id, a);
        else if (a->dtype == UNREAD && !a->list)
            put_text(group, id, a->name, a->texts[0]);
        else if (a->dtype == UNREAD)
            check(nc_put_att_string(group, id, a->name, (size_t)a->n, a->texts),
                  "writing the attribute", a->name);
        else
            check(nc_put_att(group, id, a->name, type_of(group, (enum dtype)a->dtype), (size_t)a->n,
                             a->data),
                  "writing the attribute", a->name);
    }
}

/* The group of a path "a/b/name", made where it is missing; *ret_name is its last part. */
static int group_of(int file, const char *path, bool classic, const char **ret_name)
{
    int group = file;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(path, '/')) {
        char name[NC_MAX_NAME + 1];
        size_t n = (size_t)(slash - path);
        if (classic || n == 0 || n > NC_MAX_NAME)
            stop(WIRE_UNSUPPORTED, "'%s': %s", path,
                 classic ? "NetCDF's classic format has no groups" : "a group has no usable name");
        memcpy(name, path, n);
        name[n] = '\0';
        int inner;
        if (nc_inq_grp_ncid(group, name, &inner) != NC_NOERR)
            check(nc_def_grp(group, name, &inner), "making the group", name);
        group = inner;
        path = slash + 1;
    }
    *ret_name = path;
    return group;
}

/* Whether what is in the group of `path` is in sight from a variable: a group sees what lies in
 * those around it. */
static bool in_sight(const char *path, const char *variable)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    return strncmp(path, variable, n) == 0;
}

/* A name that makes no group of a dimension's path. */
static char *flat_name(const char *path)
{
    char *name = must(mem_strdup(path));
    for (char *p = name; *p; p++)
        *p = *p == '/' ? '_' : *p;
    return name;
}

/* A length of 0 is an unlimited dimension, too, of which the classic format has one, as first axis.
 */
static void check_record(int file, const struct variable *v, int d, const char *name)
{
    int unlimited = -1, same = -1;
    check(nc_inq_unlimdim(file, &unlimited), "reading dimensions", NULL);
    if (d > 0 ||
        (unlimited >= 0 && (nc_inq_dimid(file, name, &same) != NC_NOERR || same != unlimited)))
        stop(WIRE_UNSUPPORTED,
             "the axis %d of '%s' %s; NetCDF's classic format has such dimensions only as first "
             "axis, and one in a file",
             d, v->name, v->shape[d] ? "is unlimited" : "has no elements");
}

/* The dimension of an axis. One that was of a group that the variable is not in, as when the
 * variable came from there, is made beside the variable: by the last part of its name, or by all of
 * it where another dimension is called that. */
static int dim_of(const struct content *c, int file, const struct variable *v, int d, bool classic,
                  const int *before)
{
    const bool grows = write_grows(c, v, d);
    const char *path = v->dims[d], *name, *own;
    _cleanup_free_ char *flat = NULL;
    if (classic && (v->shape[d] == 0 || grows))
        check_record(file, v, d, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    bool moved = classic || !in_sight(path, v->name);
    int group =
        moved ? group_of(file, v->name, classic, &own) : group_of(file, path, classic, &name);
    int dim;
    if (moved)
        name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (;;) {
        size_t length;
        if (nc_inq_dimid(group, name, &dim) != NC_NOERR)
            break;
        check(nc_inq_dimlen(group, dim, &length), "reading the dimension", name);
        bool taken = false; /* by another axis, of another group's dimension */
        for (int k = 0; k < d; k++)
            taken = taken || before[k] == dim;
        if ((grows || length == (size_t)v->shape[d]) && !taken)
            return dim;
        if (!moved || flat)
            break;
        name = flat = flat_name(path);
    }
    /* a length of 0 would make it unlimited, which has no elements yet either */
    check(nc_def_dim(group, name, grows ? NC_UNLIMITED : (size_t)v->shape[d], &dim),
          "making the dimension", name);
    return dim;
}

static void dims_of(const struct content *c, int file, const struct variable *v, bool classic,
                    int *ret)
{
    for (int d = 0; d < v->rank; d++)
        ret[d] = dim_of(c, file, v, d, classic, ret);
}

struct place {
    int group, id;
};

/* Whether others may append to it: a length of 0 is an unlimited dimension, too. */
static bool grows(const struct content *c, const struct variable *v)
{
    bool any = false;
    for (int d = 0; d < v->rank; d++)
        any = any || v->shape[d] == 0 || write_grows(c, v, d);
    return any;
}

static struct place define(struct content *c, int file, struct variable *v, bool classic,
                           int deflate)
{
    const char *name;
    struct place at;
    int dims[MAX_RANK];
    at.group = group_of(file, v->name, classic, &name);
    dims_of(c, file, v, classic, dims);
    nc_type type = type_of(file, v->dtype);
    check(nc_def_var(at.group, name, type, v->rank, dims, &at.id), "making", v->name);
    if (!classic && v->chunked) {
        size_t chunks[MAX_RANK];
        for (int d = 0; d < v->rank; d++)
            chunks[d] = (size_t)v->chunks[d];
        check(nc_def_var_chunking(at.group, at.id, NC_CHUNKED, chunks), "making", v->name);
        if (deflate)
            check(nc_def_var_deflate(at.group, at.id, 1, 1, deflate), "making", v->name);
    }
    if (!classic && grows(c, v)) /* what is not appended to it is missing then */
        check(nc_def_var_fill(at.group, at.id, NC_FILL, NULL), "making", v->name);
    put_attrs(c, at.group, at.id, v, &v->attrs, classic);
    return at;
}

static void put_elements(struct place at, const struct variable *v)
{
    write_begin(v);
    int64_t size = v->nbytes / (int64_t)dtype_size(v->dtype), n;
    for (int64_t i = 0; i < size;) {
        const unsigned char *p = write_pull(size - i, &n);
        struct region box;
        for (int64_t end = i + n; span_next(v->rank, v->shape, &i, end, &box);) {
            size_t start[MAX_RANK], count[MAX_RANK];
            for (int d = 0; d < v->rank; d++) {
                start[d] = (size_t)box.start[d];
                count[d] = (size_t)box.count[d];
            }
            check(nc_put_vara(at.group, at.id, start, count, p), "writing", v->name);
            p += (size_t)region_size(&box) * dtype_size(v->dtype);
        }
    }
}

/* The type that elements have in the file. Neither format has halves or bool; the classic one has
 * no integers but signed ones of up to 32 bits. */
static enum dtype stored_as(const struct variable *v, bool classic)
{
    static const enum dtype of[] = {[DT_I64] = DT_I32, [DT_U8] = DT_I8,   [DT_U16] = DT_I16,
                                    [DT_U32] = DT_I32, [DT_U64] = DT_I32, [DT_BOOL] = DT_I8};
    const enum dtype t = (enum dtype)v->dtype;
    if (classic && dtype_is_complex(t))
        stop(WIRE_UNSUPPORTED, "'%s' is complex, which NetCDF's classic format does not have",
             v->name);
    if (dtype_is_half(t))
        return DT_F32;
    return t == DT_BOOL || (classic && (t == DT_I64 || dtype_kind(t) == KIND_UINT)) ? of[t] : t;
}

/* The classic format has one variable past 4 GiB, or that has as much in a record, after all
 * others: its number, or n. */
static size_t find_large(const struct content *c)
{
    size_t large = c->n_variables;
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct variable *v = c->variables[i];
        const bool records = v->rank && v->shape[0] && write_grows(c, v, 0);
        if (v->nbytes / (records ? v->shape[0] : 1) <= CLASSIC_MOST)
            continue;
        if (large < c->n_variables)
            stop(WIRE_UNSUPPORTED,
                 "'%s' and '%s' have more than 4 GiB each, of which netcdf3 has one in a file; "
                 "netcdf4 holds them",
                 c->variables[large]->name, v->name);
        large = i;
    }
    return large;
}

void netcdf_write(struct content *c, int deflate, bool classic)
{
    for (size_t i = 0; i < c->n_variables; i++) {
        const enum dtype t = stored_as(c->variables[i], classic);
        if ((int)t != c->variables[i]->dtype)
            write_as(c, c->variables[i], t);
    }
    write_name_axes(c, true);
    fit_dim_names(c);
    write_chunks(c, deflate > 0);
    const size_t large = classic ? find_large(c) : c->n_variables;
    int file, mode = classic ? NC_64BIT_OFFSET : NC_NETCDF4, before;
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1); /* nobody else has the file */
    nc_set_chunk_cache(4 * WRITE_CHUNK, 521, 1.0f);
    check(nc_create(WIRE_PATH, NC_CLOBBER | mode, &file), "making the file", NULL);
    check(nc_set_fill(file, NC_NOFILL, &before), "making the file", NULL);
    put_attrs(c, file, NC_GLOBAL, NULL, &c->attrs, classic);
    struct place *places = must_array(c->n_variables + 1, sizeof *places);
    int dims[MAX_RANK]; /* all before any variable, which may be called as another's */
    for (size_t i = 0; i < c->n_variables; i++)
        dims_of(c, file, c->variables[i], classic, dims);
    for (size_t i = 0; i < c->n_variables; i++)
        if (i != large)
            places[i] = define(c, file, c->variables[i], classic, deflate);
    if (large < c->n_variables)
        places[large] = define(c, file, c->variables[large], classic, deflate);
    check(nc_enddef(file), "writing the header", NULL);
    bool apart = !classic && deflate; /* by hdf5_write_elements, which compresses on all threads */
    for (size_t i = 0; i < c->n_variables && !apart; i++)
        put_elements(places[i], c->variables[i]);
    mem_free(places);
    check(nc_close(file), "closing the file", NULL);
    if (apart)
        hdf5_write_elements(c, deflate);
}
