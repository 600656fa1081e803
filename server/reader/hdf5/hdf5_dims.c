/* Dimensions in HDF5 are datasets, called scales, to which other datasets refer from their axes; in
 * NetCDF-4 each dimension is one, and one that has no variable of its name says so in its attribute
 * NAME. Axes without scales are called by their labels if they have some. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

#define RENAMED "_nc4_non_coord_" /* a variable called as a dimension that is not its own */

/* Whether the attribute holds a list for each axis (or any axis), whose type is as it should be. */
static bool axis_lists(hid_t dataset, const char *name, int rank, H5T_class_t element, hid_t *ret_a,
                       hid_t *ret_space)
{
    if (H5Aexists(dataset, name) <= 0)
        return false;
    hid_t a = H5Aopen(dataset, name, H5P_DEFAULT);
    hid_t type = a < 0 ? -1 : H5Aget_type(a), base = -1;
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    bool ok = type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == rank;
    if (ok && element == H5T_STRING) {
        ok = H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0;
    } else if (ok) {
        ok = H5Tget_class(type) == H5T_VLEN;
        base = ok ? H5Tget_super(type) : -1;
        ok = base >= 0 && H5Tequal(base, H5T_STD_REF_OBJ) > 0;
    }
    H5Tclose(base);
    H5Tclose(type);
    if (ok) {
        *ret_a = a;
        *ret_space = space;
    } else {
        H5Sclose(space);
        H5Aclose(a);
    }
    return ok;
}

static struct variable *scale_at(const struct content *c, unsigned long long address)
{
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct hdf5_variable *own = c->variables[i]->own;
        if (own && own->scale && own->address == address)
            return c->variables[i];
    }
    return NULL;
}

/* The dimension's name is the scale's, by its first name in the file. */
static void dims_from_scales(struct content *c, struct variable *v, hid_t dataset)
{
    hid_t a, space;
    if (v->rank == 0 || !axis_lists(dataset, "DIMENSION_LIST", v->rank, H5T_REFERENCE, &a, &space))
        return;
    hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
    hvl_t lists[MAX_RANK] = {{0}};
    if (H5Aread(a, type, lists) >= 0) {
        for (int d = 0; d < v->rank; d++) {
            hid_t scale = lists[d].len == 0
                              ? -1
                              : H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, lists[d].p);
            H5O_info_t info;
            if (scale >= 0 && H5Oget_info2(scale, &info, H5O_INFO_BASIC) >= 0) {
                const struct variable *of = scale_at(c, info.addr);
                v->dims[d] = of ? of->name : NULL;
            }
            H5Oclose(scale);
        }
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(a);
}

static void dims_from_labels(struct content *c, struct variable *v, hid_t dataset)
{
    hid_t a, space;
    if (v->rank == 0 || !axis_lists(dataset, "DIMENSION_LABELS", v->rank, H5T_STRING, &a, &space))
        return;
    hid_t type = H5Aget_type(a);
    char *labels[MAX_RANK] = {0};
    if (H5Aread(a, type, labels) >= 0) {
        for (int d = 0; d < v->rank; d++) {
            const char *name = labels[d] ? content_name(c, labels[d]) : "";
            const struct dim *same = content_find_dim(c, name);
            bool fits = !v->dims[d] && name[0] && (!same || same->length == v->shape[d]);
            for (int other = 0; fits && other < v->rank; other++)
                fits = !v->dims[other] || strcmp(v->dims[other], name) != 0;
            if (!fits)
                continue;
            if (!same)
                content_add_dim(c, name, v->shape[d], false);
            v->dims[d] = name;
        }
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, labels);
    }
    H5Tclose(type);
    H5Sclose(space);
    H5Aclose(a);
}

/* A scale with several axes has no list of scales: NetCDF-4 writes the numbers of its dimensions.
 */
static void dims_from_numbers(struct content *c, struct variable *v, hid_t dataset)
{
    const struct hdf5_variable *own = v->own;
    int64_t numbers[MAX_RANK];
    if (v->rank < 2 || v->dims[0] || !own->scale || H5Aexists(dataset, "_Netcdf4Coordinates") <= 0)
        return;
    hid_t a = H5Aopen(dataset, "_Netcdf4Coordinates", H5P_DEFAULT);
    hid_t space = a < 0 ? -1 : H5Aget_space(a);
    bool ok = space >= 0 && H5Sget_simple_extent_npoints(space) == v->rank &&
              H5Aread(a, H5T_NATIVE_INT64, numbers) >= 0;
    const char *names[MAX_RANK] = {0};
    for (int d = 0; ok && d < v->rank; d++) {
        for (size_t i = 0; i < c->n_variables && !names[d]; i++) {
            const struct hdf5_variable *other = c->variables[i]->own;
            if (other && other->scale && other->number == numbers[d])
                names[d] = c->variables[i]->name;
        }
        ok = names[d] != NULL;
    }
    if (ok)
        memcpy(v->dims, names, sizeof names);
    H5Sclose(space);
    H5Aclose(a);
}

/* What a scale says of itself; it names a dimension if it has one axis at least. */
static void add_scale(struct content *c, struct variable *v, hid_t dataset)
{
    struct hdf5_variable *own = v->own;
    char name[sizeof HDF5_NO_VARIABLE] = "";
    own->alone =
        hdf5_attr_text(dataset, "NAME", name, sizeof name) && strcmp(name, HDF5_NO_VARIABLE) == 0;
    own->number = -1;
    hid_t a = H5Aexists(dataset, "_Netcdf4Dimid") > 0
                  ? H5Aopen(dataset, "_Netcdf4Dimid", H5P_DEFAULT)
                  : -1;
    hid_t one = a < 0 ? -1 : H5Aget_space(a);
    if (one >= 0 && H5Sget_simple_extent_npoints(one) == 1 &&
        H5Aread(a, H5T_NATIVE_INT64, &own->number) >= 0)
        c->format = "netcdf4";
    H5Sclose(one);
    H5Aclose(a);
    hsize_t most[H5S_MAX_RANK] = {0};
    hid_t space = H5Dget_space(dataset);
    if (v->rank > 0 && space >= 0 && H5Sget_simple_extent_dims(space, NULL, most) > 0)
        content_add_dim(c, v->name, v->shape[0], most[0] == H5S_UNLIMITED);
    if (v->rank == 1)
        v->dims[0] = v->name;
    H5Sclose(space);
}

/* A variable reaches as far as its unlimited dimensions do. Of others, scale and axis must have one
 * length, or the axis has no name. */
static void fit_shape(struct content *c, struct variable *v)
{
    struct hdf5_variable *own = v->own;
    int64_t shape[MAX_RANK];
    for (int d = 0; d < v->rank; d++) {
        const struct dim *dim = v->dims[d] ? content_find_dim(c, v->dims[d]) : NULL;
        shape[d] = v->shape[d];
        if (dim && dim->unlimited && dim->length > shape[d]) {
            shape[d] = dim->length;
            own->shorter = true;
        } else if (!dim || dim->length != shape[d]) {
            v->dims[d] = NULL;
        }
    }
    if (own->shorter) {
        variable_shape(c, v, v->rank, shape);
        v->at = 0;
    }
}

/* The name of a variable that NetCDF-4 had to rename, because a dimension has it. */
static const char *plain_name(struct content *c, const char *name)
{
    const char *last = strrchr(name, '/');
    last = last ? last + 1 : name;
    if (strncmp(last, RENAMED, sizeof RENAMED - 1) != 0)
        return name;
    return content_printf(c, "%.*s%s", (int)(last - name), name, last + sizeof RENAMED - 1);
}

static void for_datasets(struct content *c, hid_t file, bool scales,
                         void (*what)(struct content *, struct variable *, hid_t))
{
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct hdf5_variable *own = c->variables[i]->own;
        if (!own || own->scale != scales)
            continue;
        hid_t dataset = hdf5_must(H5Dopen2(file, own->path, H5P_DEFAULT), "opening", own->path);
        what(c, c->variables[i], dataset);
        H5Dclose(dataset);
    }
}

static void add_dims(struct content *c, struct variable *v, hid_t dataset)
{
    dims_from_scales(c, v, dataset);
    dims_from_labels(c, v, dataset);
}

void hdf5_dims(struct content *c, hid_t file)
{
    for_datasets(c, file, true, add_scale);
    for_datasets(c, file, true, dims_from_numbers);
    for_datasets(c, file, false, add_dims);
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct variable *v = c->variables[i];
        for (int d = 0; d < v->rank; d++) {
            struct dim *dim = v->dims[d] ? content_find_dim(c, v->dims[d]) : NULL;
            if (dim && dim->unlimited && dim->length < v->shape[d])
                dim->length = v->shape[d];
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < c->n_variables; i++) {
        struct variable *v = c->variables[i];
        const struct hdf5_variable *own = v->own;
        if (own && own->alone)
            continue;
        if (own) {
            fit_shape(c, v);
            v->name = plain_name(c, v->name);
        }
        c->variables[kept++] = v;
    }
    c->n_variables = kept;
}
