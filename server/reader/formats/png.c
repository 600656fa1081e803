/* PNG pictures: one variable, "image", of rows, columns and, if there are several, channels.
 *
 * Palettes become their colours and samples below eight bits are widened, as other readers of
 * pictures do. A transparent colour makes one more channel, a transparent grey is the fill value.
 * Rows come in order, so that a region above what was read begins the file anew; interlaced
 * pictures are decoded whole. Errors of libpng end the process at once. */
#include <png.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/link.h"

struct picture {
    int64_t memory;
    png_structp png;
    png_infop info;
    int64_t place; /* in the file */
    int64_t row;   /* the next one */
    size_t bytes;  /* of a row */
    bool interlaced;
    int32_t transparent; /* a grey, −1 */
    unsigned char *rows; /* one, or all of an interlaced picture */
};

static bool is(const unsigned char *head, size_t n)
{
    return n >= 8 && png_sig_cmp(head, 0, 8) == 0;
}

_Noreturn static void on_error(png_structp png, png_const_charp text)
{
    (void)png;
    stop(WIRE_BAD_FILE, "the PNG file cannot be read: %s", text);
}

_Noreturn static void on_write_error(png_structp png, png_const_charp text)
{
    (void)png;
    stop_writing("writing the PNG file failed: %s", text);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* So that a lack of memory is not one of the library's errors. */
static png_voidp take(png_structp png, png_alloc_size_t n)
{
    (void)png;
    return must_alloc(n);
}

static void give(png_structp png, png_voidp p)
{
    (void)png;
    mem_free(p);
}

static void on_read(png_structp png, png_bytep to, png_size_t n)
{
    struct picture *p = png_get_io_ptr(png);
    file_read(to, n, p->place);
    p->place += (int64_t)n;
}

static void begin_grey(struct picture *p)
{
    png_color_16p grey;
    int bits = png_get_bit_depth(p->png, p->info), most = (1 << bits) - 1;
    png_set_expand_gray_1_2_4_to_8(p->png);
    if (png_get_tRNS(p->png, p->info, NULL, NULL, &grey))
        p->transparent = (grey->gray & most) * (bits < 8 ? 255 / most : 1);
}

static void begin(struct picture *p)
{
    if (p->png)
        png_destroy_read_struct(&p->png, &p->info, NULL);
    p->place = p->row = 0;
    p->png = must(png_create_read_struct_2(PNG_LIBPNG_VER_STRING, NULL, on_error, on_warning, NULL,
                                           take, give));
    p->info = must(png_create_info_struct(p->png));
    png_set_read_fn(p->png, p, on_read);
    png_set_chunk_malloc_max(p->png, 8 << 20);
    png_read_info(p->png, p->info);
    p->transparent = -1;
    if (png_get_color_type(p->png, p->info) == PNG_COLOR_TYPE_GRAY)
        begin_grey(p);
    else
        png_set_expand(p->png);
    png_set_swap(p->png);
    p->interlaced = png_set_interlace_handling(p->png) > 1;
    png_read_update_info(p->png, p->info);
    p->bytes = png_get_rowbytes(p->png, p->info);
}

static void add_texts(struct content *c, struct picture *p)
{
    png_textp texts;
    int n = 0;
    png_get_text(p->png, p->info, &texts, &n);
    for (int i = 0; i < n; i++)
        if (texts[i].text)
            attr_add_text(c, &c->attrs, texts[i].key, texts[i].text, strlen(texts[i].text));
}

static struct content *open_file(const struct reader_limits *limits)
{
    struct content *c = content_new();
    struct picture *p = must(arena_alloc(c->arena, sizeof *p));
    p->memory = limits->memory;
    c->format = "png";
    begin(p);
    struct variable *v = content_add(c, "image");
    int64_t shape[3] = {png_get_image_height(p->png, p->info), png_get_image_width(p->png, p->info),
                        png_get_channels(p->png, p->info)};
    v->own = p;
    v->dtype = png_get_bit_depth(p->png, p->info) == 16 ? DT_U16 : DT_U8;
    v->stored = p->interlaced ? "interlaced" : NULL;
    int rank = shape[2] > 1 ? 3 : 2;
    variable_shape(c, v, rank, shape);
    static const char *const dims[] = {"y", "x", "band"};
    for (int d = 0; d < rank; d++) {
        content_add_dim(c, dims[d], shape[d], false);
        v->dims[d] = dims[d];
    }
    v->filters[v->n_filters++] = "deflate";
    if (p->transparent >= 0)
        attr_add_numbers(c, &v->attrs, "_FillValue", DT_I32, false, 1, &p->transparent);
    add_texts(c, p);
    return c;
}

/* A row, which stays until the next call. That may be of the same one: where rows are larger than
 * pieces. */
static const unsigned char *row_of(struct picture *p, int64_t row, int64_t height)
{
    if (p->interlaced && !p->rows) {
        if ((int64_t)p->bytes * height > p->memory / 2)
            stop(WIRE_TOO_LARGE, "an interlaced picture is decoded whole, and this one is larger "
                                 "than the memory for it");
        begin(p);
        p->rows = must_alloc(p->bytes * (size_t)height);
        png_bytep *rows = must_array((size_t)height, sizeof *rows);
        for (int64_t i = 0; i < height; i++)
            rows[i] = p->rows + (size_t)i * p->bytes;
        png_read_image(p->png, rows);
        mem_free(rows);
    }
    if (p->interlaced)
        return p->rows + (size_t)row * p->bytes;
    if (!p->rows)
        p->rows = must_alloc(p->bytes);
    if (row + 1 == p->row)
        return p->rows;
    if (row < p->row)
        begin(p);
    for (; p->row <= row; p->row++)
        png_read_row(p->png, p->rows, NULL);
    if (p->row == height)
        png_read_end(p->png, NULL); /* compares the last checksums */
    return p->rows;
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    struct picture *p = v->own;
    size_t size = dtype_size(v->dtype);
    /* within a row */
    struct region columns = {.rank = v->rank - 1};
    for (int d = 1; d < v->rank; d++) {
        columns.start[d - 1] = r->start[d];
        columns.count[d - 1] = r->count[d];
        columns.step[d - 1] = r->step[d];
    }
    unsigned char *q = to;
    for (int64_t i = 0; i < r->count[0]; i++) {
        const unsigned char *row = row_of(p, r->start[0] + i * r->step[0], v->shape[0]);
        struct runs runs;
        struct run run;
        runs_begin(&columns, v->shape + 1, &runs);
        while (runs_next(&runs, &run))
            for (int64_t k = 0; k < run.count; k++, q += size)
                memcpy(q, row + (size_t)(run.first + k * run.step) * size, size);
    }
}

const struct format format_png = {is, open_file, read_region};

static void on_write(png_structp png, png_bytep from, png_size_t n)
{
    int64_t *at = png_get_io_ptr(png);
    file_write(from, n, *at);
    *at += (int64_t)n;
}

static void on_flush(png_structp png)
{
    (void)png;
}

void png_write(struct content *c, int deflate)
{
    static const int colours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                  PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    if (c->n_variables != 1)
        stop(WIRE_UNSUPPORTED, "a PNG file holds one array, not %zu", c->n_variables);
    struct variable *v = c->variables[0];
    int64_t channels = v->rank == 3 ? v->shape[2] : 1;
    if (v->dtype == DT_BOOL)
        write_as(c, v, DT_U8);
    if ((v->dtype != DT_U8 && v->dtype != DT_U16) || v->rank < 2 || v->rank > 3 || channels < 1 ||
        channels > 4 || v->nbytes == 0 || v->shape[0] > 1000000 || v->shape[1] > 1000000)
        stop(WIRE_UNSUPPORTED, "a PNG file holds uint8 or uint16 of the shape [rows, columns] or "
                               "[rows, columns, 1 to 4 channels], each at most 1000000");
    png_structp png =
        must(png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, on_write_error, on_warning));
    png_infop info = must(png_create_info_struct(png));
    int64_t at = 0;
    png_set_write_fn(png, &at, on_write, on_flush);
    png_set_IHDR(png, info, (png_uint_32)v->shape[1], (png_uint_32)v->shape[0],
                 v->dtype == DT_U16 ? 16 : 8, colours[channels - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, deflate);
    write_begin(v);
    png_write_info(png, info);
    png_set_swap(png);
    size_t size = dtype_size(v->dtype), bytes = (size_t)(v->shape[1] * channels) * size;
    _cleanup_free_ unsigned char *row = must_alloc(bytes);
    for (int64_t y = 0; y < v->shape[0]; y++) {
        for (size_t have = 0; have < bytes;) {
            int64_t n;
            const unsigned char *p = write_pull((int64_t)((bytes - have) / size), &n);
            memcpy(row + have, p, (size_t)n * size);
            have += (size_t)n * size;
        }
        png_write_row(png, row);
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}
