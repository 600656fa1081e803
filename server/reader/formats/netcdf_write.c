/* Writes NetCDF: version 4, or the classic format (64-bit offsets; CDF-5 where the types or a
 * variable's size need it). What both lack becomes what xarray makes of it: bool is int8 with the
 * attribute dtype="bool"; float16 and bfloat16 are widened. Complex numbers are compound types r, i
 * in version 4, as h5py and netCDF4-python read them. */
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

static void check(int status, const char *what, const char *name)
{
    if (status == NC_ENOMEM)
        stop_oom();
    if (status == NC_EBADNAME || status == NC_EMAXNAME)
        stop(WIRE_UNSUPPORTED, "NetCDF allows no such name: '%s'", name ? name : "");
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

/* v: whose attribute it is, or NULL. Integers become int32 in the classic format, floats if that is
 * too small for them. */
static void put_numbers(int group, int id, const struct variable *v, const struct attr *a,
                        bool classic)
{
    enum dtype to = (enum dtype)a->dtype;
    size_t in = dtype_size(a->dtype);
    if (v && attr_is_like_elements(a->name) && !dtype_is_complex(v->dtype)) {
        to = (enum dtype)v->dtype;
    } else if (dtype_is_complex(to)) {
        stop(WIRE_UNSUPPORTED, "the attribute '%s' is complex", a->name);
    } else if (classic && dtype_is_integer(to)) {
        to = DT_I32;
        for (int64_t i = 0; i < a->n; i++) {
            struct scalar s = {.dtype = (enum dtype)a->dtype}, wide, narrow;
            memcpy(s.v.raw, (const char *)a->data + (size_t)i * in, in);
            wide = scalar_cast(s, DT_F64);
            narrow = scalar_cast(scalar_cast(s, DT_I32), DT_F64);
            to = wide.v.f64 == narrow.v.f64 ? to : DT_F64;
        }
    }
    size_t out = dtype_size(to);
    _cleanup_free_ unsigned char *data = must_array((size_t)a->n + 1, out);
    for (int64_t i = 0; i < a->n; i++) {
        struct scalar s = {.dtype = (enum dtype)a->dtype};
        memcpy(s.v.raw, (const char *)a->data + (size_t)i * in, in);
        s = scalar_cast(s, to);
        memcpy(data + (size_t)i * out, s.v.raw, out);
    }
    check(nc_put_att(group, id, a->name, type_of(group, to), (size_t)a->n, data),
          "writing the attribute", a->name);
}

static void put_attrs(int group, int id, const struct variable *v, const struct attrs *list,
                      bool classic)
{
    for (const struct attr *a = list->first; a; a = a->next) {
        if (a->dtype != UNREAD)
            put_numbers(group, id, v, a, classic);
        else if (!a->list)
            check(nc_put_att_text(group, id, a->name, strlen(a->texts[0]), a->texts[0]),
                  "writing the attribute", a->name);
        else if (classic)
            stop(WIRE_UNSUPPORTED,
                 "the attribute '%s' is a list of texts, which NetCDF's classic "
                 "format does not have",
                 a->name);
        else
            check(nc_put_att_string(group, id, a->name, (size_t)a->n, a->texts),
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

/* A length of 0 is an unlimited dimension, of which the classic format has one, as first axis. */
static void check_empty(int file, const struct variable *v, int d, const char *name)
{
    int unlimited = -1, same = -1;
    check(nc_inq_unlimdim(file, &unlimited), "reading dimensions", NULL);
    if (d > 0 ||
        (unlimited >= 0 && (nc_inq_dimid(file, name, &same) != NC_NOERR || same != unlimited)))
        stop(WIRE_UNSUPPORTED,
             "the axis %d of '%s' has no elements; NetCDF's classic format has such dimensions "
             "only as first axis, and one in a file",
             d, v->name);
}

/* The dimension of an axis. One that was of a group that the variable is not in, as when the
 * variable came from there, is made beside the variable: by the last part of its name, or by all of
 * it where another dimension is called that. */
static int dim_of(int file, const struct variable *v, int d, bool classic, const int *before)
{
    char made[64];
    const char *path = v->dims[0] ? v->dims[d] : made, *name, *own;
    _cleanup_free_ char *flat = NULL;
    snprintf(made, sizeof made, "dim_%lld", (long long)v->shape[d]);
    if (classic && v->shape[d] == 0)
        check_empty(file, v, d, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
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
            taken = taken || (v->dims[0] && before[k] == dim);
        if (length == (size_t)v->shape[d] && !taken)
            return dim;
        if (!moved || flat)
            break;
        name = flat = flat_name(path);
    }
    /* a length of 0 would make it unlimited, which has no elements yet either */
    check(nc_def_dim(group, name, (size_t)v->shape[d], &dim), "making the dimension", name);
    return dim;
}

struct place {
    int group, id;
};

static struct place define(int file, const struct variable *v, bool classic, int deflate)
{
    const char *name;
    struct place at;
    int dims[MAX_RANK];
    at.group = group_of(file, v->name, classic, &name);
    for (int d = 0; d < v->rank; d++)
        dims[d] = dim_of(file, v, d, classic, dims);
    nc_type type = type_of(file, v->dtype);
    check(nc_def_var(at.group, name, type, v->rank, dims, &at.id), "making", v->name);
    if (!classic && deflate && v->rank && v->nbytes) {
        int64_t rows[MAX_RANK];
        size_t chunks[MAX_RANK];
        chunk_rows(v->rank, v->shape, (int64_t)dtype_size(v->dtype), WRITE_CHUNK, rows);
        for (int d = 0; d < v->rank; d++)
            chunks[d] = (size_t)rows[d];
        check(nc_def_var_chunking(at.group, at.id, NC_CHUNKED, chunks), "making", v->name);
        check(nc_def_var_deflate(at.group, at.id, 1, 1, deflate), "making", v->name);
    }
    put_attrs(at.group, at.id, v, &v->attrs, classic);
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

void netcdf_write(struct content *c, int deflate, bool classic)
{
    bool wide = false;
    for (size_t i = 0; i < c->n_variables; i++) {
        struct variable *v = c->variables[i];
        if (v->dtype == DT_BOOL)
            write_as(c, v, DT_I8);
        else if (dtype_is_half(v->dtype))
            write_as(c, v, DT_F32);
        if (classic && dtype_is_complex(v->dtype))
            stop(WIRE_UNSUPPORTED, "'%s' is complex, which NetCDF's classic format does not have",
                 v->name);
        wide = wide || v->dtype == DT_I64 || dtype_kind(v->dtype) == KIND_UINT ||
               v->nbytes > INT32_MAX;
    }
    int file, mode = classic ? (wide ? NC_64BIT_DATA : NC_64BIT_OFFSET) : NC_NETCDF4, before;
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1); /* nobody else has the file */
    nc_set_chunk_cache(4 * WRITE_CHUNK, 521, 1.0f);
    check(nc_create(WIRE_PATH, NC_CLOBBER | mode, &file), "making the file", NULL);
    check(nc_set_fill(file, NC_NOFILL, &before), "making the file", NULL);
    put_attrs(file, NC_GLOBAL, NULL, &c->attrs, classic);
    struct place *places = must_array(c->n_variables + 1, sizeof *places);
    for (size_t i = 0; i < c->n_variables; i++)
        places[i] = define(file, c->variables[i], classic, deflate);
    check(nc_enddef(file), "writing the header", NULL);
    bool apart = !classic && deflate; /* by hdf5_write_elements, which compresses on all threads */
    for (size_t i = 0; i < c->n_variables && !apart; i++)
        put_elements(places[i], c->variables[i]);
    mem_free(places);
    check(nc_close(file), "closing the file", NULL);
    if (apart)
        hdf5_write_elements(c, deflate);
}
