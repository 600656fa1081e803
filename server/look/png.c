/* A picture is looked at once and is usually made again a moment later, so that speed counts for
 * more than the last tenth of its size: the lowest level of compression, and no filters for
 * colours' numbers, whose differences mean nothing. libpng reports errors by longjmp; the only ones
 * possible here are those of memory. */
#include "server/look/png.h"

#include <png.h>
#include <setjmp.h>
#include <zlib.h>

#include "compute/base/mem.h"

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

static void put(png_structp png, png_infop info, const struct png_image *m)
{
    const int type = m->channels == 1   ? PNG_COLOR_TYPE_PALETTE
                     : m->channels == 3 ? PNG_COLOR_TYPE_RGB
                                        : PNG_COLOR_TYPE_RGB_ALPHA;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_set_compression_level(png, 1);
    png_set_compression_buffer_size(png, 1 << 16);
    png_set_compression_strategy(png, Z_RLE);
    png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
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
