/* The request "write": the variables' bytes come in slabs, in whose middle an element or a variable
 * may end, and are given to the format as whole elements of the dtype that it writes. */
#include <stdio.h>
#include <string.h>

#include "server/reader/fit.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

#define WIDENED    8192 /* elements that are converted at a time */
#define LINE_CHUNK 512  /* elements, at least, of a line that is to grow */

static struct {
    const struct variable *v;
    int64_t left; /* elements of it */
    const unsigned char *p;
    size_t n; /* bytes left of the slab */
    bool begun;
    union value element; /* which began in one slab and ends in another */
    unsigned char widened[WIDENED * 8];
    int phony_dims; /* names of dimensions that are tried, or taken */
} self;

static const char *const formats[] = {
#define X(id, name) name,
    WIRE_FORMATS(X)
#undef X
};

static void parse_dims(struct content *c, struct variable *v, struct json dims)
{
    struct err e = ERR_INIT;
    if (!json_given(dims))
        return;
    if ((int)json_count(dims) != v->rank)
        stop(WIRE_BAD_REQUEST, "'%s' has %d axes, but another number of dims", v->name, v->rank);
    int d = 0;
    for (struct json name = json_first(dims); json_present(name); name = json_next(name), d++) {
        const char *text;
        if (!json_given(name))
            continue;
        if (json_get_string(name, &text, NULL, &e) != ERR_OK)
            stop(WIRE_BAD_REQUEST, "dims of '%s': %s", v->name, e.message);
        for (int before = 0; before < d; before++)
            if (v->dims[before] && strcmp(v->dims[before], text) == 0)
                stop(WIRE_BAD_REQUEST, "'%s' has two axes called '%s'", v->name, text);
        struct dim *dim = content_find_dim(c, text);
        if (!dim)
            content_add_dim(c, text, v->shape[d], false);
        else if (dim->length != v->shape[d])
            stop(WIRE_BAD_REQUEST, "the dimension '%s' has %lld elements and, in '%s', %lld", text,
                 (long long)dim->length, v->name, (long long)v->shape[d]);
        v->dims[d] = content_text(c, text, strlen(text));
    }
}

static void set_shape(struct content *c, struct variable *v, int rank, const int64_t *shape)
{
    variable_shape(c, v, rank, shape);
    if (v->why)
        stop(WIRE_BAD_REQUEST, "'%s' cannot be written: %s", v->name, v->why);
}

static void parse_variable(struct content *c, struct json request)
{
    struct err e = ERR_INIT;
    const char *name;
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
    if (json_get_string(json_member(request, "name"), &name, NULL, &e) != ERR_OK ||
        json_get_dtype(json_member(request, "dtype"), &dtype, &e) != ERR_OK ||
        json_get_shape(json_member(request, "shape"), 0, &rank, shape, &e) != ERR_OK)
        stop(WIRE_BAD_REQUEST, "write: %s", e.message);
    if (content_find(c, name))
        stop(WIRE_BAD_REQUEST, "two variables are called '%s'", name);
    struct variable *v = content_add(c, name);
    v->dtype = v->from = (int)dtype;
    set_shape(c, v, rank, shape);
    parse_dims(c, v, json_member(request, "dims"));
    attrs_parse(c, json_member(request, "attrs"), &v->attrs);
    fit_attrs(c, &v->attrs, v->dtype);
}

static bool has_axis(const struct variable *v, const char *name)
{
    for (int d = 0; d < v->rank; d++)
        if (v->dims[d] && strcmp(v->dims[d], name) == 0)
            return true;
    return false;
}

/* An unlimited dimension of NetCDF is as long as what is written along it: one that only empty
 * variables lie on keeps its length by having no other. */
static bool can_grow(const struct content *c, const struct dim *dim)
{
    bool can = dim->length == 0;
    for (size_t i = 0; i < c->n_variables; i++)
        can = can || (c->variables[i]->nbytes && has_axis(c->variables[i], dim->name));
    return can;
}

static void parse_unlimited(const struct content *c, struct json names)
{
    for (struct json name = json_first(names); json_present(name); name = json_next(name)) {
        const char *text;
        struct err e = ERR_INIT;
        struct dim *dim =
            json_get_string(name, &text, NULL, &e) == ERR_OK ? content_find_dim(c, text) : NULL;
        if (!dim)
            stop(WIRE_BAD_REQUEST, "no axis has the name of an unlimited dimension");
        dim->unlimited = can_grow(c, dim);
    }
}

void request_write(struct json request)
{
    struct content *c = content_new();
    struct err e = ERR_INIT;
    const char *name;
    int64_t deflate = 0;
    struct json level = json_member(request, "deflate");
    if (json_get_string(json_member(request, "format"), &name, NULL, &e) != ERR_OK ||
        (json_given(level) && json_get_i64(level, 0, 9, &deflate, &e) != ERR_OK))
        stop(WIRE_BAD_REQUEST, "write: %s", e.message);
    attrs_parse(c, json_member(request, "attrs"), &c->attrs);
    fit_attrs(c, &c->attrs, UNREAD);
    struct json variables = json_member(request, "variables");
    for (struct json v = json_first(variables); json_present(v); v = json_next(v))
        parse_variable(c, v);
    parse_unlimited(c, json_member(request, "unlimited"));
    int format = 0;
    while (format < WIRE_FORMAT_COUNT && strcmp(formats[format], name) != 0)
        format++;
    switch (format) {
    case WIRE_FORMAT_NETCDF4:
        netcdf_write(c, (int)deflate, false);
        break;
    case WIRE_FORMAT_NETCDF3:
        netcdf_write(c, (int)deflate, true);
        break;
    case WIRE_FORMAT_HDF5:
        hdf5_write(c, (int)deflate);
        break;
    case WIRE_FORMAT_NPZ:
        npz_write(c, (int)deflate);
        break;
    case WIRE_FORMAT_NPY:
        npy_write(c);
        break;
    case WIRE_FORMAT_TIFF:
        tiff_write(c, (int)deflate);
        break;
    case WIRE_FORMAT_PNG:
        png_write(c, (int)deflate);
        break;
    default:
        stop(WIRE_UNSUPPORTED, "files of the format '%s' are not written", name);
    }
    if (self.n > 0 || self.left > 0)
        stop(WIRE_BAD_REQUEST, "the variables have another size than the bytes that came");
    if (!self.begun)
        write_begin(NULL);
    link_taken();
    link_done();
}

static const char *phony_dim(struct content *c, const struct variable *v, int64_t length)
{
    const size_t n = strlen(WIRE_PHONY_DIM);
    for (const struct dim *d = c->dims; d; d = d->next)
        if (d->length == length && strncmp(d->name, WIRE_PHONY_DIM, n) == 0 &&
            !has_axis(v, d->name))
            return d->name;
    for (;; self.phony_dims++) {
        const char *name = content_printf(c, WIRE_PHONY_DIM "%d", self.phony_dims);
        if (content_find_dim(c, name))
            continue;
        content_add_dim(c, name, length, false);
        return name;
    }
}

void write_name_axes(struct content *c, bool all)
{
    for (size_t i = 0; i < c->n_variables; i++) {
        struct variable *v = c->variables[i];
        bool any = all;
        for (int d = 0; d < v->rank; d++)
            any = any || v->dims[d];
        for (int d = 0; d < v->rank && any; d++)
            if (!v->dims[d])
                v->dims[d] = phony_dim(c, v, v->shape[d]);
    }
}

bool write_grows(const struct content *c, const struct variable *v, int d)
{
    const struct dim *dim = v->dims[d] ? content_find_dim(c, v->dims[d]) : NULL;
    return dim && dim->unlimited;
}

void write_chunks(struct content *c, bool deflate)
{
    for (size_t i = 0; i < c->n_variables; i++) {
        struct variable *v = c->variables[i];
        v->chunked = deflate && v->rank && v->nbytes;
        for (int d = 0; d < v->rank; d++)
            v->chunked = v->chunked || write_grows(c, v, d);
        chunk_rows(v->rank, v->shape, (int64_t)dtype_size(v->dtype), WRITE_CHUNK, v->chunks);
        if (v->rank == 1 && write_grows(c, v, 0) && v->chunks[0] < LINE_CHUNK)
            v->chunks[0] = LINE_CHUNK;
    }
}

/* The type whose bits are written as those of `dtype`: an unsigned one's are a signed one's. */
static enum dtype bits_of(const struct variable *v, enum dtype dtype)
{
    const bool as_signed =
        dtype_kind((enum dtype)v->from) == KIND_UINT && dtype_kind(dtype) == KIND_INT;
    return as_signed ? dtype + (DT_U8 - DT_I8) : dtype;
}

/* Leaves of a list the numbers that are still the same in type t. */
static void keep_those_of(struct attr *a, enum dtype t)
{
    const size_t size = dtype_size((enum dtype)a->dtype);
    int64_t kept = 0;
    for (int64_t i = 0; i < a->n; i++) {
        const struct scalar s = attr_scalar(a, i);
        if (fit_is_same(s, scalar_cast(s, t)))
            memcpy((unsigned char *)a->data + (size_t)kept++ * size, s.v.raw, size);
    }
    a->n = kept;
}

/* Gives an attribute the type of the elements in the file. False: no element can be that number,
 * but among those in the file it would be taken for another one, or for a fill value. */
static bool cast_attr(struct content *c, const struct variable *v, struct attr *a, enum dtype dtype)
{
    const enum dtype of = v->from == DT_BOOL ? DT_BOOL : bits_of(v, dtype);
    if (of == dtype || a->n == 0) {
        (void)fit_attr(c, a, dtype);
        return true;
    }
    if (strcmp(a->name, "missing_value") == 0)
        keep_those_of(a, of);
    if (a->n && fit_attr(c, a, of)) {
        a->dtype = (int)dtype; /* of the same bits */
        return true;
    }
    return a->n && !fit_attr(c, a, dtype);
}

static void cast_attrs(struct content *c, struct variable *v, enum dtype dtype)
{
    struct attr *next;
    const struct attrs all = v->attrs;
    v->attrs = (struct attrs){.end = &v->attrs.first};
    for (struct attr *a = all.first; a; a = next) {
        next = a->next;
        if (a->dtype == UNREAD || !attr_is_like_elements(a->name) || cast_attr(c, v, a, dtype)) {
            a->next = NULL;
            *v->attrs.end = a;
            v->attrs.end = &a->next;
            v->attrs.n++;
        }
    }
}

void write_as(struct content *c, struct variable *v, enum dtype dtype)
{
    cast_attrs(c, v, dtype);
    v->dtype = (int)dtype;
    set_shape(c, v, v->rank, v->shape);
    if (v->from == DT_BOOL && !attr_find(&v->attrs, "dtype"))
        attr_add_text(c, &v->attrs, "dtype", "bool", 4);
    if (bits_of(v, dtype) != dtype && !attr_find(&v->attrs, "_Unsigned"))
        attr_add_text(c, &v->attrs, "_Unsigned", "true", 4);
}

void write_begin(const struct variable *v)
{
    if (!self.begun) {
        _cleanup_strb_ struct strb text = {0};
        strb_add(&text, "{\"ready\":true}");
        link_send(&text);
        self.begun = true;
    }
    if (self.left > 0)
        stop(WIRE_BAD_REQUEST, "a variable was not written to its end");
    self.v = v;
    self.left = v ? v->nbytes / (int64_t)dtype_size(v->dtype) : 0;
}

/* Elements of self.v->from: whole ones of a slab, or one that two slabs share. */
static const unsigned char *pull_whole(int64_t most, int64_t *ret_n)
{
    size_t size = dtype_size(self.v->from), have = 0;
    if (self.n == 0)
        self.p = link_pull(&self.n);
    while (self.n < size || have > 0) {
        size_t used = self.n < size - have ? self.n : size - have;
        memcpy(self.element.raw + have, self.p, used);
        have += used;
        self.p += used;
        self.n -= used;
        if (have == size) {
            *ret_n = 1;
            return self.element.raw;
        }
        self.p = link_pull(&self.n);
    }
    int64_t n = (int64_t)(self.n / size);
    *ret_n = n < most ? n : most;
    const unsigned char *p = self.p;
    self.p += (size_t)*ret_n * size;
    self.n -= (size_t)*ret_n * size;
    return p;
}

/* An integer of 64 bits is written as one of 32, if it is one. */
static void check_narrow(const unsigned char *p)
{
    int64_t x;
    memcpy(&x, p, sizeof x);
    if (self.v->from == DT_I64 ? x == (int32_t)x : x == (uint32_t)x)
        return;
    char text[32];
    snprintf(text, sizeof text, self.v->from == DT_I64 ? "%lld" : "%llu", (long long)x);
    stop(WIRE_UNSUPPORTED,
         "'%s' has the value %s: integers of netcdf3 have 32 bits; netcdf4 holds it", self.v->name,
         text);
}

const unsigned char *write_pull(int64_t most, int64_t *ret_n)
{
    const enum dtype as = bits_of(self.v, (enum dtype)self.v->dtype);
    bool same = (int)as == self.v->from;
    const unsigned char *p = pull_whole(same || most < WIDENED ? most : WIDENED, ret_n);
    self.left -= *ret_n;
    if (same)
        return p;
    size_t in = dtype_size(self.v->from), out = dtype_size(self.v->dtype);
    bool narrow = dtype_is_integer((enum dtype)self.v->from) && out < in;
    for (int64_t i = 0; i < *ret_n; i++) {
        if (narrow)
            check_narrow(p + (size_t)i * in);
        struct scalar s = {.dtype = (enum dtype)self.v->from};
        memcpy(s.v.raw, p + (size_t)i * in, in);
        s = scalar_cast(s, as);
        memcpy(self.widened + (size_t)i * out, s.v.raw, out);
    }
    return self.widened;
}
