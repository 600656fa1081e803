/* Reads NetCDF's classic formats (CDF-1, -2 and -5); NetCDF-4 is read by the module for HDF5.
 *
 * libnetcdf takes what lies beyond a file's end as zeros. Therefore what the header promises is
 * held against the file's length first. Its strided reads take an element at a time, so that rows
 * are read whole and thinned out here. */
#include <netcdf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

#define ROW_MOST (64 << 10) /* read at a time where there are steps */

static int file;

/* Names are copied without regard to their length. Those of a bad file are as long as the memory
 * that was left when the library read them, so that this is more than that. */
static char *name_room;
static size_t name_bytes;

static void reserve_names(const struct reader_limits *limits)
{
    name_bytes = (size_t)limits->memory / 8 * 5;
    name_room = mmap(NULL, name_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (name_room == MAP_FAILED)
        stop_oom();
}

/* What was copied there. */
static const char *taken_name(struct content *c)
{
    if (memchr(name_room, '\0', NC_MAX_NAME + 1) == NULL)
        stop(WIRE_BAD_FILE, "the header has a name of more than %d bytes", NC_MAX_NAME);
    return content_name(c, name_room);
}

static void check(int status, const char *what, const char *name)
{
    if (status == NC_ENOMEM)
        stop_oom();
    if (status != NC_NOERR)
        stop(WIRE_BAD_FILE, "%s%s%s%s failed: %s", what, name ? " '" : "", name ? name : "",
             name ? "'" : "", nc_strerror(status));
}

static bool is(const unsigned char *head, size_t n)
{
    return n >= 4 && memcmp(head, "CDF", 3) == 0 && (head[3] == 1 || head[3] == 2 || head[3] == 5);
}

static int dtype_of(nc_type type)
{
    static const int of[] = {
        [NC_BYTE] = DT_I8,   [NC_CHAR] = UNREAD,   [NC_SHORT] = DT_I16, [NC_INT] = DT_I32,
        [NC_FLOAT] = DT_F32, [NC_DOUBLE] = DT_F64, [NC_UBYTE] = DT_U8,  [NC_USHORT] = DT_U16,
        [NC_UINT] = DT_U32,  [NC_INT64] = DT_I64,  [NC_UINT64] = DT_U64};
    return type >= NC_BYTE && type <= NC_UINT64 ? of[type] : UNREAD;
}

static int64_t padded(int64_t n)
{
    return (n + 3) / 4 * 4;
}

/* Adds a variable's attributes (NC_GLOBAL: the file's); returns their bytes in a header whose
 * counts have `word` bytes. */
static int64_t add_attrs(struct content *c, int variable, int n, int64_t word, struct attrs *ret)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        nc_type type;
        size_t count;
        check(nc_inq_attname(file, variable, i, name_room), "reading attributes", NULL);
        const char *name = taken_name(c);
        check(nc_inq_att(file, variable, name, &type, &count), "reading the attribute", name);
        int dtype = dtype_of(type);
        int64_t size = type == NC_CHAR || dtype == UNREAD ? 1 : (int64_t)dtype_size(dtype);
        if (count > (size_t)INT32_MAX)
            stop(WIRE_BAD_FILE, "the attribute '%s' has %zu values", name, count);
        bytes += 2 * word + 4 + padded((int64_t)strlen(name)) + padded((int64_t)count * size);
        if ((int64_t)count * size > ATTR_BYTES_MAX)
            continue;
        _cleanup_free_ char *data = must_array(count + 1, (size_t)size);
        check(nc_get_att(file, variable, name, data), "reading the attribute", name);
        if (type == NC_CHAR)
            attr_add_text(c, ret, name, data, count);
        else if (dtype != UNREAD)
            attr_add_numbers(c, ret, name, dtype, count != 1, (int64_t)count, data);
    }
    return bytes;
}

/* What the file must have at least: header, variables, records. */
struct extent {
    int64_t bytes, record, records;
    int64_t bare;  /* of the last variable in a record, without padding */
    int n_records; /* variables in a record */
};

static void grow(struct extent *e, const struct variable *v, nc_type type, bool record)
{
    int64_t bytes = type == NC_CHAR || v->dtype == UNREAD ? 1 : (int64_t)dtype_size(v->dtype);
    for (int d = record ? 1 : 0; d < v->rank; d++)
        if (__builtin_mul_overflow(bytes, v->shape[d], &bytes) || bytes > INT64_MAX / 2)
            stop(WIRE_BAD_FILE, "the shape of '%s' is out of range", v->name);
    int64_t *to = record ? &e->record : &e->bytes;
    if (__builtin_add_overflow(*to, padded(bytes), to))
        stop(WIRE_BAD_FILE, "the shape of '%s' is out of range", v->name);
    e->n_records += record;
    e->bare = record ? bytes : e->bare;
}

static void check_extent(const struct extent *e)
{
    struct stat st;
    int64_t need = 0;
    if (fstat(WIRE_FILE, &st) != 0)
        stop_reading();
    /* one variable's records have no padding; that at the end of the file may lack */
    int64_t record = e->n_records == 1 ? e->bare : e->record, slack = 3;
    if (__builtin_mul_overflow(record, e->records, &need) ||
        __builtin_add_overflow(need, e->bytes, &need) || need - slack > st.st_size)
        stop(WIRE_BAD_FILE, "the file is cut off: it has %lld bytes, but its header says %lld",
             (long long)st.st_size, (long long)need);
}

static struct content *open_file(const struct reader_limits *limits)
{
    struct content *c = content_new();
    int n_dims, n_variables, n_attrs, unlimited, format;
    c->format = "netcdf3";
    reserve_names(limits);
    check(nc_open(WIRE_PATH, NC_NOWRITE, &file), "opening the file", NULL);
    check(nc_inq(file, &n_dims, &n_variables, &n_attrs, &unlimited), "reading the header", NULL);
    check(nc_inq_format(file, &format), "reading the header", NULL);
    int64_t word = format == NC_FORMAT_CDF5 ? 8 : 4, begin = format == NC_FORMAT_CLASSIC ? 4 : 8;
    struct extent e = {.bytes = 4 + word + 3 * (4 + word)};
    for (int i = 0; i < n_dims; i++) {
        size_t length;
        check(nc_inq_dim(file, i, name_room, &length), "reading dimensions", NULL);
        const char *name = taken_name(c);
        content_add_dim(c, name, (int64_t)length, i == unlimited);
        e.bytes += 2 * word + padded((int64_t)strlen(name));
        if (i == unlimited)
            e.records = (int64_t)length;
    }
    e.bytes += add_attrs(c, NC_GLOBAL, n_attrs, word, &c->attrs);
    for (int i = 0; i < n_variables; i++) {
        nc_type type;
        int rank;
        int64_t shape[MAX_RANK];
        check(nc_inq_varndims(file, i, &rank), "reading variables", NULL);
        _cleanup_free_ int *dims = must_array((size_t)rank + 1, sizeof *dims);
        check(nc_inq_var(file, i, name_room, &type, &rank, dims, &n_attrs), "reading variables",
              NULL);
        const char *name = taken_name(c);
        struct variable *v = content_add(c, name);
        v->own = (void *)(intptr_t)i;
        /* a grid mapping is often a character, for the sake of its attributes */
        v->dtype = type == NC_CHAR && rank == 0 ? DT_U8 : dtype_of(type);
        v->stored = type == NC_CHAR ? (rank == 0 ? "a character" : "texts")
                                    : content_printf(c, "%s%s", dtype_name(v->dtype),
                                                     dtype_size(v->dtype) > 1 ? " big-endian" : "");
        const char *names[MAX_RANK];
        for (int d = 0; d < rank && d < MAX_RANK; d++) {
            size_t length;
            check(nc_inq_dim(file, dims[d], name_room, &length), "reading dimensions", NULL);
            shape[d] = (int64_t)length;
            names[d] = taken_name(c);
        }
        variable_shape(c, v, rank, shape);
        for (int d = 0; d < v->rank; d++)
            v->dims[d] = names[d];
        if (v->dtype == UNREAD)
            variable_unread(c, v, "texts are not read");
        e.bytes += 4 * word + 8 + begin + word * (int64_t)rank + padded((int64_t)strlen(name));
        e.bytes += add_attrs(c, i, n_attrs, word, &v->attrs);
        grow(&e, v, type, rank > 0 && dims[0] == unlimited);
    }
    check_extent(&e);
    munmap(name_room, name_bytes);
    return c;
}

/* A row along the last axis, which has a step. */
static void read_row(const struct variable *v, size_t *start, size_t *count, int64_t n,
                     int64_t step, unsigned char *row, unsigned char *to)
{
    int last = v->rank - 1;
    size_t size = dtype_size(v->dtype), first = start[last];
    int64_t most = (ROW_MOST - 1) / step + 1;
    for (int64_t i = 0; i < n;) {
        int64_t take = n - i < most ? n - i : most;
        start[last] = first + (size_t)(i * step);
        count[last] = (size_t)((take - 1) * step + 1);
        check(nc_get_vara(file, (int)(intptr_t)v->own, start, count, row), "reading", v->name);
        for (int64_t k = 0; k < take; k++, to += size)
            memcpy(to, row + (size_t)(k * step) * size, size);
        i += take;
    }
    start[last] = first;
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    size_t start[MAX_RANK], count[MAX_RANK], size = dtype_size(v->dtype);
    int first = 0; /* axes from here on are read at once: none but, perhaps, the last has a step */
    for (int d = 0; d < r->rank; d++) {
        start[d] = (size_t)r->start[d];
        count[d] = (size_t)r->count[d];
        if (r->step[d] != 1)
            first = d + 1 < r->rank ? d + 1 : d;
    }
    bool thin = r->rank > 0 && r->step[r->rank - 1] != 1;
    _cleanup_free_ unsigned char *row = thin ? must_alloc(ROW_MOST * size) : NULL;
    int64_t i[MAX_RANK] = {0}, each = 1;
    for (int d = first; d < r->rank; d++)
        each *= r->count[d];
    int64_t steps = region_size(r) / (each ? each : 1);
    for (int64_t k = 0; k < steps; k++) {
        for (int d = 0; d < first; d++) {
            start[d] = (size_t)(r->start[d] + i[d] * r->step[d]);
            count[d] = 1;
        }
        if (thin)
            read_row(v, start, count, each, r->step[first], row, to);
        else
            check(nc_get_vara(file, (int)(intptr_t)v->own, start, count, to), "reading", v->name);
        to = (unsigned char *)to + (size_t)each * size;
        for (int d = first - 1; d >= 0 && ++i[d] == r->count[d]; d--)
            i[d] = 0;
    }
}

const struct format format_netcdf = {is, open_file, read_region};
