/* .npy files, whose only variable is called "array". */
#include <sys/stat.h>

#include "server/reader/format.h"
#include "server/reader/formats/linear.h"
#include "server/reader/link.h"

static bool is(const unsigned char *head, size_t n)
{
    return n >= NPY_MAGIC_LEN && npy_is_magic(head, n);
}

static void read_bytes(struct linear *l, int64_t offset, void *to, size_t n)
{
    (void)l;
    file_read(to, n, offset);
}

static struct content *open_file(const struct reader_limits *limits)
{
    (void)limits;
    struct content *c = content_new();
    struct linear *l = must(arena_alloc(c->arena, sizeof *l));
    struct stat st;
    if (fstat(WIRE_FILE, &st) != 0)
        stop_reading();
    c->format = "npy";
    l->read = read_bytes;
    struct variable *v = linear_open(c, l, "array", st.st_size);
    v->at = l->head.big_endian || l->head.fortran_order ? 0 : l->data;
    return c;
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    linear_read(v->own, r, to);
}

const struct format format_npy = {is, open_file, read_region};

void npy_write(struct content *c)
{
    if (c->n_variables != 1)
        stop(WIRE_UNSUPPORTED, "an .npy file holds one array, not %zu", c->n_variables);
    const struct variable *v = c->variables[0];
    char head[NPY_WRITE_MAX];
    size_t size = dtype_size(v->dtype), at = npy_write_header(v->dtype, v->rank, v->shape, head);
    file_write(head, at, 0);
    write_begin(v);
    for (int64_t left = v->nbytes / (int64_t)size, n; left > 0; left -= n) {
        const unsigned char *p = write_pull(left, &n);
        file_write(p, (size_t)n * size, (int64_t)at);
        at += (size_t)n * size;
    }
}
