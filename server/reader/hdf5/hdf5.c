/* HDF5 and NetCDF-4, which is HDF5 with conventions for dimensions.
 *
 * Both are read by libhdf5 itself: it can be told to follow no external link and to load no plugin,
 * and reads straight into slabs. Its caches of chunks are switched off, because pieces are cut so
 * that a chunk is read once (pieces.h); a large one would only be memory. */
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/hdf5/hdf5_int.h"
#include "server/reader/link.h"

static const unsigned char signature[8] = "\x89HDF\r\n\x1a\n";
static hid_t the_file;
static struct reader_limits the_limits;
bool hdf5_writing;

/* The innermost complaint, and whether memory was what lacked. */
struct complaint {
    bool memory;
    char text[256];
};

static herr_t complain(unsigned n, const H5E_error2_t *error, void *data)
{
    struct complaint *to = data;
    (void)n;
    to->memory = to->memory || error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC;
    if (!to->text[0] && error->desc)
        strncat(to->text, error->desc, sizeof to->text - 1);
    return 0;
}

static struct complaint complaint(void)
{
    struct complaint why = {0};
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, complain, &why);
    if (why.memory)
        stop_oom();
    if (!why.text[0])
        strcpy(why.text, "libhdf5 says no more");
    return why;
}

void hdf5_stop(const char *what, const char *name)
{
    const struct complaint why = complaint();
    const char *text = why.text;
    const char *left = name ? " '" : "", *right = name ? "'" : "";
    name = name ? name : "";
    if (hdf5_writing)
        stop_writing("%s%s%s%s failed: %s", what, left, name, right, text);
    stop(WIRE_BAD_FILE, "%s%s%s%s failed: %s", what, left, name, right, text);
}

hid_t hdf5_must(hid_t id, const char *what, const char *name)
{
    if (id < 0)
        hdf5_stop(what, name);
    return id;
}

/* A file may begin with a block of another program's, whose length is a power of two. */
static bool is(const unsigned char *head, size_t n)
{
    unsigned char at[sizeof signature];
    if (n >= sizeof signature && memcmp(head, signature, sizeof signature) == 0)
        return true;
    for (int64_t place = 512; place <= 1 << 20; place *= 2)
        if (file_read_some(at, sizeof at, place) == sizeof at &&
            memcmp(at, signature, sizeof at) == 0)
            return true;
    return false;
}

static void add_filters(struct content *c, struct variable *v, hid_t plist)
{
    static const char *const names[] = {NULL,   "deflate", "shuffle",    "fletcher32",
                                        "szip", "nbit",    "scaleoffset"};
    int n = H5Pget_nfilters(plist);
    for (int i = 0; i < n; i++) {
        unsigned flags, config, values[8] = {0};
        size_t n_values = 8;
        char name[64] = "";
        int id = (int)H5Pget_filter2(plist, (unsigned)i, &flags, &n_values, values, sizeof name - 1,
                                     name, &config);
        if (id <= 0 || id > H5Z_FILTER_SCALEOFFSET) {
            variable_unread(c, v, "it needs the filter %d (%s), and plugins are refused", id,
                            name[0] ? name : "of no name");
            continue;
        }
        if (H5Zfilter_avail(id) <= 0)
            variable_unread(c, v, "it needs the filter %s, which libhdf5 was built without",
                            names[id]);
        if (v->n_filters < (int)(sizeof v->filters / sizeof *v->filters))
            v->filters[v->n_filters++] =
                id == H5Z_FILTER_DEFLATE ? content_printf(c, "deflate %u", values[0]) : names[id];
    }
}

/* Whether hdf5_read_chunks may do what the filters do. */
static void find_codec(struct variable *v, hid_t type, hid_t plist)
{
    struct hdf5_variable *own = v->own;
    int n = H5Pget_nfilters(plist), ids[2];
    unsigned options = 0;
    if (v->dtype == UNREAD || !v->chunked || n < 1 || n > 2 || H5Tequal(type, own->memory) <= 0)
        return;
    if (H5Pget_chunk_opts(plist, &options) < 0 || options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS)
        return; /* chunks at the ends of axes have no filters */
    for (int i = 0; i < n; i++) {
        unsigned flags, config;
        size_t none = 0;
        ids[i] = (int)H5Pget_filter2(plist, (unsigned)i, &flags, &none, NULL, 0, NULL, &config);
    }
    own->deflated = ids[n - 1] == H5Z_FILTER_DEFLATE && (n == 1 || ids[0] == H5Z_FILTER_SHUFFLE);
    own->shuffled = own->deflated && n == 2;
}

/* Where the elements of a contiguous dataset lie. */
static void find_elements(struct variable *v, hid_t dataset, hid_t type)
{
    const struct hdf5_variable *own = v->own;
    if (v->dtype == UNREAD || v->nbytes <= 0 || H5Tequal(type, own->memory) <= 0 ||
        H5Dget_storage_size(dataset) != (hsize_t)v->nbytes)
        return;
    haddr_t at = H5Dget_offset(dataset);
    if (at != HADDR_UNDEF && at <= INT64_MAX - (haddr_t)v->nbytes)
        v->at = (int64_t)at;
}

static void add_layout(struct content *c, struct variable *v, hid_t dataset, hid_t type)
{
    hid_t plist = hdf5_must(H5Dget_create_plist(dataset), "reading", v->name);
    H5D_layout_t layout = H5Pget_layout(plist);
    hsize_t chunks[H5S_MAX_RANK];
    if (layout == H5D_VIRTUAL)
        variable_unread(c, v, "virtual datasets are refused: its elements lie in other files");
    else if (H5Pget_external_count(plist) != 0)
        variable_unread(c, v, "external storage is refused: its elements lie in other files");
    if (layout == H5D_CHUNKED && H5Pget_chunk(plist, v->rank, chunks) == v->rank) {
        v->chunked = v->rank > 0;
        for (int d = 0; d < v->rank; d++)
            v->chunks[d] = chunks[d] ? (int64_t)chunks[d] : 1;
    }
    add_filters(c, v, plist);
    find_codec(v, type, plist);
    if (layout == H5D_CONTIGUOUS)
        find_elements(v, dataset, type);
    H5Pclose(plist);
}

/* A grid mapping is often one, for the sake of its attributes. */
static bool is_character(hid_t type)
{
    return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
           H5Tget_size(type) == 1;
}

static void add_dataset(struct content *c, hid_t dataset, const char *name, unsigned long long at)
{
    struct variable *v = content_add(c, name);
    struct hdf5_variable *own = v->own = must(arena_alloc(c->arena, sizeof *own));
    own->path = content_text(c, name, strlen(name));
    own->address = at;
    own->memory = -1;
    char class[32] = "";
    own->scale = hdf5_attr_text(dataset, "CLASS", class, sizeof class) &&
                 strcmp(class, "DIMENSION_SCALE") == 0;
    hid_t type = hdf5_must(H5Dget_type(dataset), "reading the type of", name);
    hid_t space = hdf5_must(H5Dget_space(dataset), "reading the shape of", name);
    const char *why;
    int dtype = hdf5_type(c, type, &own->memory, &v->stored, &why);
    v->dtype = dtype;
    hsize_t extents[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, extents, NULL);
    int64_t shape[H5S_MAX_RANK];
    if (rank < 0)
        hdf5_stop("reading the shape of", name);
    for (int d = 0; d < rank; d++)
        shape[d] = extents[d] > INT64_MAX ? -1 : (int64_t)extents[d];
    variable_shape(c, v, rank, shape);
    memcpy(own->extents, v->shape, sizeof own->extents);
    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        variable_unread(c, v, "it is empty (of a null dataspace)");
    if (rank == 0 && !v->why && is_character(type)) {
        own->memory = H5Tcopy(type);
        v->dtype = DT_U8;
        v->nbytes = 1;
        v->stored = "a character";
    } else if (why) {
        variable_unread(c, v, "%s", why);
    }
    add_layout(c, v, dataset, type);
    hdf5_attrs(c, dataset, &v->attrs);
    if (H5Tget_class(type) == H5T_ENUM && v->dtype != UNREAD && v->dtype != DT_BOOL)
        hdf5_flags(c, type, (enum dtype)v->dtype, &v->attrs);
    H5Tclose(type);
    H5Sclose(space);
}

static herr_t visit(hid_t root, const char *name, const H5L_info_t *link, void *data)
{
    struct content *c = data;
    if (link->type != H5L_TYPE_HARD && link->type != H5L_TYPE_SOFT) {
        struct variable *v = content_add(c, name);
        variable_unread(c, v, "%s are refused",
                        link->type == H5L_TYPE_EXTERNAL
                            ? "external links, which lead to other files,"
                            : "links of other programs' kinds");
        return 0;
    }
    hid_t object = H5Oopen(root, name, H5P_DEFAULT);
    if (object < 0 && link->type == H5L_TYPE_HARD) {
        const struct complaint why = complaint();
        variable_unread(c, content_add(c, name),
                        "it is damaged, or made by a newer library than the one here: %s",
                        why.text);
        return 0;
    }
    if (object < 0) {
        variable_unread(c, content_add(c, name), "it is a link that leads to nothing in this file");
        return 0;
    }
    H5O_info_t info;
    if (H5Iget_type(object) == H5I_DATASET) {
        hdf5_must(H5Oget_info2(object, &info, H5O_INFO_BASIC), "reading", name);
        add_dataset(c, object, name, info.addr);
    }
    H5Oclose(object);
    return 0;
}

static struct content *open_file(const struct reader_limits *limits)
{
    the_limits = *limits;
    struct content *c = content_new();
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0 ||
        H5Lunregister(H5L_TYPE_EXTERNAL) < 0)
        hdf5_stop("preparing libhdf5", NULL);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_cache(access, 0, 1, 0, 1.0);
    H5Pset_file_locking(access, false, true);
    the_file = hdf5_must(H5Fopen(WIRE_PATH, H5F_ACC_RDONLY, access), "opening the file", NULL);
    H5Pclose(access);
    c->own = &the_file;
    c->format = "hdf5";
    if (H5Aexists(the_file, "_NCProperties") > 0 || H5Aexists(the_file, "_nc3_strict") > 0)
        c->format = "netcdf4";
    hid_t root = hdf5_must(H5Gopen2(the_file, "/", H5P_DEFAULT), "opening the root group", NULL);
    hid_t plist = H5Gget_create_plist(root);
    unsigned order = 0;
    H5Pget_link_creation_order(plist, &order);
    H5Pclose(plist);
    if (H5Lvisit(root, order & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME,
                 H5_ITER_INC, visit, c) < 0)
        hdf5_stop("listing the file", NULL);
    hdf5_attrs(c, root, &c->attrs);
    hdf5_dims(c, the_file);
    H5Gclose(root);
    return c;
}

/* Elements beyond a dataset's end are its fill value. */
static void fill(hid_t dataset, const struct variable *v, int64_t n, unsigned char *to)
{
    const struct hdf5_variable *own = v->own;
    size_t size = dtype_size(v->dtype);
    unsigned char value[16] = {0};
    hid_t plist = H5Dget_create_plist(dataset);
    H5D_fill_value_t defined;
    if (plist >= 0 && H5Pfill_value_defined(plist, &defined) >= 0 &&
        defined != H5D_FILL_VALUE_UNDEFINED)
        H5Pget_fill_value(plist, own->memory, value);
    H5Pclose(plist);
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * size, value, size);
}

void hdf5_read_box(hid_t dataset, const struct variable *v, const struct region *r,
                   const int64_t *first, const int64_t *count, void *to)
{
    const struct hdf5_variable *own = v->own;
    hid_t space = hdf5_must(H5Dget_space(dataset), "reading the shape of", v->name);
    hid_t memory = H5S_ALL;
    hsize_t start[MAX_RANK], step[MAX_RANK], n[MAX_RANK], place[MAX_RANK], whole[MAX_RANK];
    for (int d = 0; d < r->rank; d++) {
        start[d] = (hsize_t)(r->start[d] + first[d] * r->step[d]);
        step[d] = (hsize_t)r->step[d];
        n[d] = (hsize_t)count[d];
        place[d] = (hsize_t)first[d];
        whole[d] = (hsize_t)r->count[d];
    }
    if (r->rank > 0) {
        memory = hdf5_must(H5Screate_simple(r->rank, whole, NULL), "reading", v->name);
        if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start, step, n, NULL) < 0 ||
            H5Sselect_hyperslab(memory, H5S_SELECT_SET, place, NULL, n, NULL) < 0)
            hdf5_stop("reading", v->name);
    }
    if (H5Dread(dataset, own->memory, memory, r->rank ? space : H5S_ALL, H5P_DEFAULT, to) < 0)
        hdf5_stop("reading", v->name);
    if (memory != H5S_ALL)
        H5Sclose(memory);
    H5Sclose(space);
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    const struct hdf5_variable *own = v->own;
    hid_t dataset = hdf5_must(H5Dopen2(the_file, own->path, H5P_DEFAULT), "opening", v->name);
    int64_t zero[MAX_RANK] = {0}, count[MAX_RANK];
    bool nothing = false;
    for (int d = 0; d < r->rank; d++) {
        int64_t left = own->extents[d] - r->start[d];
        int64_t there = left <= 0 ? 0 : (left - 1) / r->step[d] + 1;
        count[d] = there < r->count[d] ? there : r->count[d];
        nothing = nothing || count[d] == 0;
    }
    if (own->shorter)
        fill(dataset, v, region_size(r), to);
    if (!nothing && !hdf5_read_chunks(dataset, v, r, to, &the_limits))
        hdf5_read_box(dataset, v, r, zero, count, to);
    H5Dclose(dataset);
    if (v->dtype == DT_BOOL) /* a bad file's enum holds anything */
        for (int64_t i = 0, n = region_size(r); i < n; i++)
            ((unsigned char *)to)[i] = ((unsigned char *)to)[i] != 0;
}

const struct format format_hdf5 = {is, open_file, read_region};
