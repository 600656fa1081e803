/* A picture is looked at once and is usually made again a moment later, so that speed counts for
 * more than the last tenth of its size. Rows are differences to the left, without a search for
 * repetitions. Some rows tell what these are: where runs of equal ones are few, looking for them
 * costs more than it saves, and noise is not compressed at all. libpng reports errors by longjmp;
 * the only ones possible here are those of memory. */
#include "server/look/png.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <zlib.h>

#include "compute/base/mem.h"

#define SAMPLES    64   /* rows, about */
#define RUN        4    /* equal differences */
#define RUNS       0.25 /* if so many of them are in runs, beyond a run's first three, runs pay */
#define NOISE_BITS 7.0  /* of information in a difference: compression would save an eighth */

static void *allocate(png_structp png, png_alloc_size_t size)
{
    (void)png;
    return mem_alloc(size);
}

static void release(png_structp png, void *p)
{
    (void)png;
    mem_free(p);
}

static void write_out(png_structp png, png_bytep bytes, size_t n)
{
    struct strb *out = png_get_io_ptr(png);
    strb_addn(out, (const char *)bytes, n);
    if (out->failed)
        png_error(png, "out of memory");
}

static void flush(png_structp png)
{
    (void)png;
}

static void failed(png_structp png, const char *why)
{
    (void)why;
    png_longjmp(png, 1);
}

static void warned(png_structp png, const char *why)
{
    (void)png, (void)why;
}

static void put_palette(png_structp png, png_infop info, const struct png_image *m)
{
    png_color colours[256];
    png_byte alpha[256];
    for (int i = 0; i < 256; i++) {
        const uint32_t c = m->palette[i];
        colours[i] =
            (png_color){(png_byte)(c >> 16), (png_byte)(c >> 8 & 255), (png_byte)(c & 255)};
        alpha[i] = i == m->transparent ? 0 : 255;
    }
    png_set_PLTE(png, info, colours, 256);
    if (m->transparent >= 0)
        png_set_tRNS(png, info, alpha, m->transparent + 1, NULL);
}

/* --- how it is compressed --- */

struct statistics {
    int64_t counts[256];
    int64_t n, in_runs;
};

static void add_row(struct statistics *s, const unsigned char *row, int64_t n, int channels)
{
    int run = 0, last = -1;
    for (int64_t i = 0; i < n; i++) {
        const int d = (row[i] - (i < channels ? 0 : row[i - channels])) & 255;
        run = d == last ? run + 1 : 1;
        s->in_runs += run >= RUN;
        s->counts[d]++;
        last = d;
    }
    s->n += n;
}

static double information(const struct statistics *s)
{
    double bits = 0;
    for (int i = 0; i < 256; i++)
        if (s->counts[i])
            bits += (double)s->counts[i] * log2((double)s->n / (double)s->counts[i]);
    return bits / (double)s->n;
}

static void choose(png_structp png, const struct png_image *m)
{
    const int64_t n = m->width * m->channels;
    const int64_t step = m->height / SAMPLES | 1; /* odd: what is drawn often repeats in 8 or 16 */
    struct statistics s = {0};
    for (int64_t y = 0; y < m->height; y += step)
        add_row(&s, m->pixels + y * n, n, m->channels);
    const bool runs = (double)s.in_runs >= RUNS * (double)s.n;
    const bool noise = !runs && information(&s) > NOISE_BITS;
    png_set_compression_level(png, noise ? Z_NO_COMPRESSION : Z_BEST_SPEED);
    png_set_compression_strategy(png, runs ? Z_RLE : Z_HUFFMAN_ONLY);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, noise ? PNG_FILTER_NONE : PNG_FILTER_SUB);
}

static void put(png_structp png, png_infop info, const struct png_image *m)
{
    const int type = m->channels == 1   ? PNG_COLOR_TYPE_PALETTE
                     : m->channels == 3 ? PNG_COLOR_TYPE_RGB
                                        : PNG_COLOR_TYPE_RGB_ALPHA;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_set_compression_buffer_size(png, 1 << 16);
    choose(png, m);
    png_set_IHDR(png, info, (png_uint_32)m->width, (png_uint_32)m->height, 8, type,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (m->channels == 1)
        put_palette(png, info, m);
    png_write_info(png, info);
    for (int64_t y = 0; y < m->height; y++)
        png_write_row(png, m->pixels + y * m->width * m->channels);
    png_write_end(png, info);
}

enum err_code png_put(const struct png_image *image, struct strb *out, struct err *e)
{
    png_structp png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, NULL, failed, warned, NULL,
                                                allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    volatile bool whole = false;
    if (info && !setjmp(png_jmpbuf(png))) {
        png_set_write_fn(png, out, write_out, flush);
        put(png, info, image);
        whole = true;
    }
    if (png)
        png_destroy_write_struct(&png, &info);
    return whole ? ERR_OK : err_oom(e);
}
