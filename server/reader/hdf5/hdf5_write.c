/* Files of HDF5 as h5py would write them: dimensions that have a variable of their name are scales
 * attached to the axes, others are labels. libnetcdf opens no file where some axes of a variable
 * have scales and others none: the others get scales without elements then. Elements come in C
 * order, so that chunks are whole rows: each is complete, and compressed, before the next one
 * begins. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/fit.h"
#include "server/reader/format.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

/* Texts are UTF-8 of any length, or of their own where it is one. */
static hid_t text_type(size_t size)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    H5Tset_size(t, size);
    H5Tset_cset(t, H5T_CSET_UTF8);
    return t;
}

static void write_attr(hid_t object, const char *name, hid_t type, hid_t space, const void *data)
{
    hid_t a = hdf5_must(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT),
                        "writing the attribute", name);
    if (H5Awrite(a, type, data) < 0)
        hdf5_stop("writing the attribute", name);
    H5Aclose(a);
}

static void write_attrs(hid_t object, const struct attrs *list)
{
    for (const struct attr *a = list->first; a; a = a->next) {
        hsize_t n = (hsize_t)a->n;
        hid_t space = a->list ? H5Screate_simple(1, &n, NULL) : H5Screate(H5S_SCALAR), type;
        if (a->dtype != UNREAD) {
            type = hdf5_type_of(a->dtype);
            write_attr(object, a->name, type, space, a->data);
        } else {
            type = text_type(H5T_VARIABLE);
            write_attr(object, a->name, type, space, a->texts);
        }
        H5Tclose(type);
        H5Sclose(space);
    }
}

static bool is_coordinate(const struct variable *v)
{
    return v->rank == 1 && v->dims[0] && strcmp(v->dims[0], v->name) == 0;
}

/* The scale of an axis, or NULL. */
static const struct variable *scale_of(const struct content *c, const struct variable *v, int d)
{
    const struct variable *scale = v->dims[d] ? content_find(c, v->dims[d]) : NULL;
    return scale && is_coordinate(scale) ? scale : NULL;
}

static int count_scales(const struct content *c, const struct variable *v)
{
    int n = 0;
    for (int d = 0; d < v->rank; d++)
        n += scale_of(c, v, d) != NULL;
    return n;
}

/* Whether its axes have scales: all or none. */
static bool is_scaled(const struct content *c, const struct variable *v)
{
    return v->rank > 0 && !is_coordinate(v) && count_scales(c, v) == v->rank;
}

/* Whether a scale can have that name beside the variables, in the root. */
static bool is_free(const struct content *c, const char *name)
{
    const size_t n = strlen(name);
    bool is = n && !strchr(name, '/') && strcmp(name, ".") != 0;
    for (size_t i = 0; i < c->n_variables && is; i++) {
        const char *other = c->variables[i]->name;
        is = strncmp(other, name, n) != 0 || (other[n] && other[n] != '/');
    }
    return is;
}

/* Adds scales for the axes that have none of variables of which others have one: `own` is set in
 * them. Where a name is taken, the variable is left without. */
static void add_scales(struct content *c)
{
    const size_t n = c->n_variables;
    for (size_t i = 0; i < n; i++) {
        const struct variable *v = c->variables[i];
        bool can = count_scales(c, v) > 0;
        for (int d = 0; d < v->rank && can; d++)
            can = scale_of(c, v, d) || is_free(c, v->dims[d]);
        for (int d = 0; d < v->rank && can; d++) {
            if (scale_of(c, v, d))
                continue;
            struct variable *scale = content_add(c, v->dims[d]);
            scale->dtype = scale->from = DT_F32;
            variable_shape(c, scale, 1, &v->shape[d]);
            scale->dims[0] = v->dims[d];
            scale->own = scale;
        }
    }
}

/* A path in a file: "." is the group that it is in. */
static void check_name(const char *path)
{
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (n == 0 || (n == 1 && *path == '.'))
            stop(WIRE_UNSUPPORTED,
                 "HDF5 allows no such name: '%s'; \"name\" gives a variable another, \"coords\": "
                 "false leaves coordinates out",
                 path);
    }
}

static hid_t create(struct content *c, hid_t file, struct variable *v, int deflate)
{
    check_name(v->name);
    hsize_t shape[MAX_RANK], most[MAX_RANK], chunks[MAX_RANK];
    bool grows = false;
    for (int d = 0; d < v->rank; d++) {
        grows = grows || write_grows(c, v, d);
        shape[d] = (hsize_t)v->shape[d];
        most[d] = write_grows(c, v, d) ? H5S_UNLIMITED : shape[d];
        chunks[d] = (hsize_t)v->chunks[d];
    }
    hid_t space = v->rank ? H5Screate_simple(v->rank, shape, most) : H5Screate(H5S_SCALAR);
    hid_t type = hdf5_type_of(v->dtype), plist = H5Pcreate(H5P_DATASET_CREATE);
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_char_encoding(links, H5T_CSET_UTF8);
    H5Pset_obj_track_times(plist, false);
    const struct attr *fill = attr_find(&v->attrs, "_FillValue");
    if (!grows)
        H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER);
    else if (fill && fill->n == 1 && fill->dtype == v->dtype)
        H5Pset_fill_value(plist, type, fill->data);
    if (v->chunked)
        H5Pset_chunk(plist, v->rank, chunks);
    if (v->chunked && deflate) {
        H5Pset_shuffle(plist);
        H5Pset_deflate(plist, (unsigned)deflate);
    }
    hid_t dataset = hdf5_must(H5Dcreate2(file, v->name, type, space, links, plist, H5P_DEFAULT),
                              "making", v->name);
    H5Pclose(links);
    H5Pclose(plist);
    H5Tclose(type);
    H5Sclose(space);
    fit_attr_names(c, &v->attrs, FIT_LIBRARY | (is_coordinate(v) ? FIT_SCALE : 0));
    write_attrs(dataset, &v->attrs);
    return dataset;
}

/* CLASS and NAME make a scale; DIMENSION_LIST of the others and REFERENCE_LIST of the scale are how
 * both find each other. */
static void mark_scale(struct content *c, hid_t dataset, const struct variable *v)
{
    const char *name =
        v->own ? content_printf(c, HDF5_NO_VARIABLE ".%10lld", (long long)v->shape[0]) : v->name;
    hid_t space = H5Screate(H5S_SCALAR), type = text_type(16), other = text_type(strlen(name) + 1);
    H5Tset_cset(type, H5T_CSET_ASCII);
    write_attr(dataset, "CLASS", type, space, "DIMENSION_SCALE");
    write_attr(dataset, "NAME", other, space, name);
    H5Tclose(type);
    H5Tclose(other);
    H5Sclose(space);
}

struct back { /* an element of REFERENCE_LIST */
    hobj_ref_t dataset;
    int axis;
};

static void list_users(hid_t file, struct content *c, const struct variable *scale)
{
    struct back *users = must_array(c->n_variables * MAX_RANK, sizeof *users);
    hsize_t n = 0;
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct variable *v = c->variables[i];
        for (int d = 0; d < v->rank && v->dims[0]; d++) {
            if (strcmp(v->dims[d], scale->name) != 0 || !is_scaled(c, v))
                continue;
            users[n].axis = d;
            if (H5Rcreate(&users[n++].dataset, file, v->name, H5R_OBJECT, -1) < 0)
                hdf5_stop("naming the axes of", v->name);
        }
    }
    hid_t dataset = hdf5_must(H5Dopen2(file, scale->name, H5P_DEFAULT), "opening", scale->name);
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof *users);
    H5Tinsert(type, "dataset", HOFFSET(struct back, dataset), H5T_STD_REF_OBJ);
    H5Tinsert(type, "dimension", HOFFSET(struct back, axis), H5T_NATIVE_INT);
    if (n > 0) {
        hid_t space = H5Screate_simple(1, &n, NULL);
        write_attr(dataset, "REFERENCE_LIST", type, space, users);
        H5Sclose(space);
    }
    H5Tclose(type);
    H5Dclose(dataset);
    mem_free(users);
}

static void name_axes(hid_t file, struct content *c, const struct variable *v)
{
    if (v->rank == 0 || !v->dims[0] || is_coordinate(v))
        return;
    hid_t dataset = hdf5_must(H5Dopen2(file, v->name, H5P_DEFAULT), "opening", v->name);
    hvl_t lists[MAX_RANK] = {{0}};
    hobj_ref_t refs[MAX_RANK];
    const char *labels[MAX_RANK];
    const bool scaled = is_scaled(c, v);
    for (int d = 0; d < v->rank; d++) {
        labels[d] = v->dims[d];
        if (scaled && H5Rcreate(&refs[d], file, v->dims[d], H5R_OBJECT, -1) < 0)
            hdf5_stop("naming the axes of", v->name);
        lists[d] = (hvl_t){1, &refs[d]};
    }
    hsize_t n = (hsize_t)v->rank;
    hid_t space = H5Screate_simple(1, &n, NULL), text = text_type(H5T_VARIABLE);
    hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
    if (scaled)
        write_attr(dataset, "DIMENSION_LIST", type, space, lists);
    write_attr(dataset, "DIMENSION_LABELS", text, space, labels);
    H5Tclose(type);
    H5Tclose(text);
    H5Sclose(space);
    H5Dclose(dataset);
}

static void write_elements(hid_t dataset, const struct variable *v, int deflate)
{
    write_begin(v);
    if (deflate && v->chunked) {
        hdf5_write_chunks(dataset, v, deflate);
        return;
    }
    hid_t type = hdf5_type_of(v->dtype);
    hid_t space = hdf5_must(H5Dget_space(dataset), "writing", v->name);
    int64_t size = v->nbytes / (int64_t)dtype_size(v->dtype), n;
    for (int64_t at = 0; at < size;) {
        const unsigned char *p = write_pull(size - at, &n);
        struct region box;
        for (int64_t end = at + n; span_next(v->rank, v->shape, &at, end, &box);) {
            hsize_t start[MAX_RANK], count[MAX_RANK], elements = (hsize_t)region_size(&box);
            for (int d = 0; d < v->rank; d++) {
                start[d] = (hsize_t)box.start[d];
                count[d] = (hsize_t)box.count[d];
            }
            hid_t memory = H5Screate_simple(1, &elements, NULL);
            if ((v->rank &&
                 H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) ||
                H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, p) < 0)
                hdf5_stop("writing", v->name);
            H5Sclose(memory);
            p += elements * dtype_size(v->dtype);
        }
    }
    H5Sclose(space);
    H5Tclose(type);
}

static hid_t prepare(void)
{
    hdf5_writing = true;
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0)
        hdf5_stop("preparing libhdf5", NULL);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_cache(access, 0, 521, 4 * WRITE_CHUNK, 1.0);
    H5Pset_file_locking(access, false, true);
    return access;
}

/* libnetcdf calls a variable otherwise that has the name of a dimension and is not its coordinate.
 */
static hid_t open_netcdf(struct content *c, hid_t file, const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    const char *other = content_printf(c, "%.*s_nc4_non_coord_%s", (int)(last - name), name, last);
    return hdf5_must(
        H5Dopen2(file, H5Lexists(file, other, H5P_DEFAULT) > 0 ? other : name, H5P_DEFAULT),
        "opening", name);
}

void hdf5_write_elements(struct content *c, int deflate)
{
    hid_t access = prepare();
    hid_t file = hdf5_must(H5Fopen(WIRE_PATH, H5F_ACC_RDWR, access), "opening the file", NULL);
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct variable *v = c->variables[i];
        hid_t dataset = open_netcdf(c, file, v->name);
        hsize_t shape[MAX_RANK];
        for (int d = 0; d < v->rank; d++)
            shape[d] = (hsize_t)v->shape[d];
        if (v->chunked && H5Dset_extent(dataset, shape) < 0) /* an unlimited one is 0 so far */
            hdf5_stop("writing", v->name);
        write_elements(dataset, v, deflate);
        H5Dclose(dataset);
    }
    H5Pclose(access);
    if (H5Fclose(file) < 0)
        hdf5_stop("closing the file", NULL);
}

void hdf5_write(struct content *c, int deflate)
{
    hid_t access = prepare(), without_times = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(without_times, false);
    /* attributes past 64 KiB need the format of 1.8 */
    H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110);
    hid_t file = hdf5_must(H5Fcreate(WIRE_PATH, H5F_ACC_TRUNC, without_times, access),
                           "making the file", NULL);
    write_name_axes(c, false);
    add_scales(c);
    write_chunks(c, deflate > 0);
    fit_attr_names(c, &c->attrs, FIT_LIBRARY);
    write_attrs(file, &c->attrs);
    hid_t *datasets = must_array(c->n_variables + 1, sizeof *datasets);
    for (size_t i = 0; i < c->n_variables; i++) {
        datasets[i] = create(c, file, c->variables[i], deflate);
        if (is_coordinate(c->variables[i]))
            mark_scale(c, datasets[i], c->variables[i]);
    }
    for (size_t i = 0; i < c->n_variables; i++) {
        name_axes(file, c, c->variables[i]);
        if (is_coordinate(c->variables[i]))
            list_users(file, c, c->variables[i]);
    }
    for (size_t i = 0; i < c->n_variables; i++) {
        if (!c->variables[i]->own)
            write_elements(datasets[i], c->variables[i], deflate);
        H5Dclose(datasets[i]);
    }
    mem_free(datasets);
    H5Pclose(access);
    H5Pclose(without_times);
    if (H5Fclose(file) < 0)
        hdf5_stop("closing the file", NULL);
}
