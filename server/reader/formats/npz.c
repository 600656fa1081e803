/* .npz files: a zip of .npy files, one a variable.
 *
 * An entry is a stream, which is skipped forward and begun anew where a region lies before what was
 * read. The one that is read is open, and no other. At its end libzip compares its checksum.
 * Written, libzip asks for the bytes of one entry after the other, and writes through a source of
 * ours, because it would otherwise make a temporary file beside the one it was told. */
#include <string.h>
#include <unistd.h>
#include <zip.h>
#include <zlib.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/formats/linear.h"
#include "server/reader/link.h"

static zip_t *archive;
static struct entry *current; /* the one that is open */

struct entry {
    struct linear linear; /* first: linear_read gives this back */
    zip_uint64_t index;
    int64_t total, at;
    zip_file_t *open;
};

static bool is(const unsigned char *head, size_t n)
{
    return n >= 4 && (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0);
}

_Noreturn static void fail(zip_error_t *e, const char *name)
{
    int code = zip_error_code_zip(e);
    if (code == ZIP_ER_MEMORY || (code == ZIP_ER_ZLIB && zip_error_code_system(e) == Z_MEM_ERROR))
        stop_oom();
    stop(WIRE_BAD_FILE, "'%s' cannot be read from the zip file: %s", name, zip_error_strerror(e));
}

static void pass(struct entry *e, void *to, size_t n)
{
    zip_int64_t done = zip_fread(e->open, to, n);
    if (done < 0)
        fail(zip_file_get_error(e->open), e->linear.name);
    if ((size_t)done < n)
        stop(WIRE_BAD_FILE, "'%s' ends early in the zip file", e->linear.name);
    e->at += done;
}

static void entry_close(struct entry *e)
{
    if (e->open)
        zip_fclose(e->open);
    mem_free(e->linear.bytes);
    e->open = NULL;
    e->linear.bytes = NULL;
    e->linear.n = 0;
    current = NULL;
}

static void take_turn(struct entry *e)
{
    if (current && current != e)
        entry_close(current);
    current = e;
}

static bool is_unsupported(zip_error_t *e)
{
    int code = zip_error_code_zip(e);
    return code == ZIP_ER_ENCRNOTSUPP || code == ZIP_ER_COMPNOTSUPP || code == ZIP_ER_NOPASSWD;
}

/* False: it needs what libzip lacks. */
static bool entry_open(struct entry *e, const char *name)
{
    take_turn(e);
    e->at = 0;
    e->open = zip_fopen_index(archive, e->index, 0);
    if (!e->open && !is_unsupported(zip_get_error(archive)))
        fail(zip_get_error(archive), name);
    return e->open;
}

static void read_bytes(struct linear *l, int64_t offset, void *to, size_t n)
{
    struct entry *e = (struct entry *)l;
    if (e->open && offset < e->at) {
        zip_fclose(e->open);
        e->open = NULL;
    }
    if (!e->open && !entry_open(e, l->name))
        fail(zip_get_error(archive), l->name);
    while (e->at < offset) {
        unsigned char skipped[16384];
        int64_t left = offset - e->at;
        pass(e, skipped, left < (int64_t)sizeof skipped ? (size_t)left : sizeof skipped);
    }
    pass(e, to, n);
    unsigned char more;
    if (e->at == e->total && zip_fread(e->open, &more, 1) < 0)
        fail(zip_file_get_error(e->open), l->name);
}

static struct content *open_file(const struct reader_limits *limits)
{
    (void)limits;
    struct content *c = content_new();
    int code = 0, fd = dup(WIRE_FILE);
    c->format = "npz";
    archive = fd < 0 ? NULL : zip_fdopen(fd, ZIP_CHECKCONS, &code);
    if (!archive) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        if (code == ZIP_ER_MEMORY)
            stop_oom();
        stop(WIRE_BAD_FILE, "the zip file cannot be opened: %s", zip_error_strerror(&error));
    }
    zip_int64_t n = zip_get_num_entries(archive, 0);
    for (zip_int64_t i = 0; i < n; i++) {
        zip_stat_t st;
        if (zip_stat_index(archive, (zip_uint64_t)i, 0, &st) != 0)
            fail(zip_get_error(archive), "an entry");
        size_t length = st.name ? strlen(st.name) : 0;
        if (length < 4 || strcmp(st.name + length - 4, ".npy") != 0)
            continue; /* of another program */
        if (!(st.valid & ZIP_STAT_SIZE) || st.size > INT64_MAX)
            stop(WIRE_BAD_FILE, "'%s' has no size in the zip file", st.name);
        struct entry *e = must(arena_alloc(c->arena, sizeof *e));
        e->linear.read = read_bytes;
        e->index = (zip_uint64_t)i;
        e->total = (int64_t)st.size;
        const char *name = content_text(c, st.name, length - 4);
        if (!entry_open(e, name)) {
            variable_unread(c, content_add(c, name), "%s",
                            zip_error_strerror(zip_get_error(archive)));
            continue;
        }
        struct variable *v = linear_open(c, &e->linear, name, e->total);
        if (st.comp_method == ZIP_CM_DEFLATE)
            v->filters[v->n_filters++] = "deflate";
        entry_close(e); /* many may be listed */
    }
    return c;
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    struct entry *e = v->own;
    take_turn(e);
    if (!e->linear.bytes)
        e->linear.bytes = must_alloc(LINEAR_WINDOW);
    linear_read(&e->linear, r, to);
}

const struct format format_npz = {is, open_file, read_region};

/* An entry's bytes: header, then elements. */
struct wanted {
    const struct variable *v;
    char head[NPY_WRITE_MAX];
    size_t head_n, head_at;
    int64_t left; /* elements */
    const unsigned char *p;
    size_t n; /* bytes of p */
    zip_error_t error;
};

static zip_int64_t give(struct wanted *w, unsigned char *to, size_t n)
{
    size_t done = 0, size = dtype_size(w->v->dtype);
    while (done < n) {
        size_t take = w->head_n - w->head_at;
        if (take > 0) {
            take = take < n - done ? take : n - done;
            memcpy(to + done, w->head + w->head_at, take);
            w->head_at += take;
            done += take;
            continue;
        }
        if (w->n == 0) {
            int64_t got;
            if (w->left == 0)
                break;
            w->p = write_pull(w->left, &got);
            w->n = (size_t)got * size;
            w->left -= got;
        }
        take = w->n < n - done ? w->n : n - done;
        memcpy(to + done, w->p, take);
        w->p += take;
        w->n -= take;
        done += take;
    }
    return (zip_int64_t)done;
}

static zip_int64_t on_entry(void *state, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    struct wanted *w = state;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
    case ZIP_SOURCE_OPEN:
        w->head_n = npy_write_header(w->v->dtype, w->v->rank, w->v->shape, w->head);
        w->left = w->v->nbytes / (int64_t)dtype_size(w->v->dtype);
        write_begin(w->v);
        return 0;
    case ZIP_SOURCE_READ:
        return give(w, data, n);
    case ZIP_SOURCE_STAT: {
        zip_stat_t *st = data;
        char head[NPY_WRITE_MAX];
        zip_stat_init(st);
        st->valid = ZIP_STAT_SIZE | ZIP_STAT_MTIME; /* of 1980, as NumPy has it */
        st->mtime = 0;
        st->size = npy_write_header(w->v->dtype, w->v->rank, w->v->shape, head) +
                   (zip_uint64_t)w->v->nbytes;
        return sizeof *st;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&w->error, data, n);
    default:
        return 0;
    }
}

/* The file itself, written from its beginning on. */
struct target {
    int64_t at, end;
    zip_error_t error;
};

static zip_int64_t target_write(struct target *t, const unsigned char *p, size_t n)
{
    file_write(p, n, t->at);
    t->at += (int64_t)n;
    t->end = t->at > t->end ? t->at : t->end;
    return (zip_int64_t)n;
}

static zip_int64_t on_target(void *state, void *data, zip_uint64_t n, zip_source_cmd_t command)
{
    struct target *t = state;
    switch (command) {
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
    case ZIP_SOURCE_STAT:
        zip_stat_init(data);
        return sizeof(zip_stat_t);
    case ZIP_SOURCE_WRITE:
        return target_write(t, data, n);
    case ZIP_SOURCE_TELL_WRITE:
        return t->at;
    case ZIP_SOURCE_SEEK_WRITE: {
        zip_int64_t to = zip_source_seek_compute_offset((zip_uint64_t)t->at, (zip_uint64_t)t->end,
                                                        data, n, &t->error);
        t->at = to < 0 ? t->at : to;
        return to < 0 ? -1 : 0;
    }
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&t->error, data, n);
    default:
        return 0;
    }
}

void npz_write(struct content *c, int deflate)
{
    zip_error_t error;
    struct target *t = must_array(1, sizeof *t);
    zip_error_init(&error);
    zip_source_t *target = zip_source_function_create(on_target, t, &error);
    archive = target ? zip_open_from_source(target, ZIP_CREATE | ZIP_TRUNCATE, &error) : NULL;
    if (!archive)
        stop_writing("the zip file cannot be made: %s", zip_error_strerror(&error));
    for (size_t i = 0; i < c->n_variables; i++) {
        const struct variable *v = c->variables[i];
        struct wanted *w = must_array(1, sizeof *w);
        w->v = v;
        zip_source_t *entry = zip_source_function(archive, on_entry, w);
        zip_int64_t at = entry ? zip_file_add(archive, content_printf(c, "%s.npy", v->name), entry,
                                              ZIP_FL_ENC_UTF_8)
                               : -1;
        if (at < 0 || zip_set_file_compression(archive, (zip_uint64_t)at,
                                               deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE,
                                               (zip_uint32_t)deflate) != 0)
            stop(WIRE_UNSUPPORTED, "'%s' cannot be put into a zip file: %s", v->name,
                 zip_strerror(archive));
    }
    if (zip_close(archive) != 0)
        stop_writing("writing the zip file failed: %s", zip_strerror(archive));
}
