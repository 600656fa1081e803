/* Writes TIFF: one picture in strips, as BigTIFF where it is large. The attributes by which tiff.c
 * names GeoTIFF's and GDAL's tags are written back as those. */
#include <stdio.h>
#include <string.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/formats/tiff_int.h"
#include "server/reader/link.h"

#define STRIP_BYTES (1 << 20)
#define CLASSIC_MAX (4000ll << 20) /* offsets of 32 bits, less what the tags take */

static uint16_t format_of(enum dtype t)
{
    switch (dtype_kind(t)) {
    case KIND_INT:
        return SAMPLEFORMAT_INT;
    case KIND_FLOAT:
        return SAMPLEFORMAT_IEEEFP;
    case KIND_COMPLEX:
        return SAMPLEFORMAT_COMPLEXIEEEFP;
    default:
        return SAMPLEFORMAT_UINT;
    }
}

static void put_attrs(TIFF *t, const struct attrs *list)
{
    char nodata[64];
    double number;
    if (attr_double(attr_find(list, "_FillValue"), 0, &number)) {
        snprintf(nodata, sizeof nodata, "%.17g", number);
        TIFFSetField(t, TAG_NODATA, nodata);
    }
    for (int i = 0; i < tiff_n_tags; i++) {
        const struct tiff_tag *tag = &tiff_tags[i];
        const struct attr *a = attr_find(list, tag->name);
        if (!a || a->n < 1 || a->n > 65535 || (a->dtype == UNREAD) != (tag->dtype == TIFF_TEXT))
            continue;
        if (a->dtype == UNREAD) {
            TIFFSetField(t, tag->tag, a->texts[0]);
            continue;
        }
        _cleanup_free_ unsigned char *data = must_array((size_t)a->n, 8);
        size_t out = dtype_size(tag->dtype);
        for (int64_t k = 0; k < a->n; k++) {
            struct scalar s = scalar_cast(attr_scalar(a, k), (enum dtype)tag->dtype);
            memcpy(data + (size_t)k * out, s.v.raw, out);
        }
        TIFFSetField(t, tag->tag, (int)a->n, data);
    }
    const struct attr *text = attr_find(list, "description");
    if (text && text->dtype == UNREAD && text->n == 1)
        TIFFSetField(t, TIFFTAG_IMAGEDESCRIPTION, text->texts[0]);
}

static bool is_band(const char *dim)
{
    return dim && strcmp(dim, "band") == 0;
}

void tiff_write(struct content *c, int deflate)
{
    if (c->n_variables != 1)
        stop(WIRE_UNSUPPORTED, "a TIFF file is written of one array, not %zu", c->n_variables);
    struct variable *v = c->variables[0];
    if (v->dtype == DT_BOOL)
        write_as(c, v, DT_U8);
    else if (v->dtype == DT_BF16)
        write_as(c, v, DT_F32);
    const bool several = v->rank == 3;
    bool pixels = several && !is_band(v->dims[0]) && (is_band(v->dims[2]) || v->shape[2] <= 4);
    bool planes = several && !pixels;
    int64_t height = v->rank < 2 ? 0 : v->shape[planes ? 1 : 0];
    int64_t width = v->rank < 2 ? 0 : v->shape[planes ? 2 : 1];
    int64_t samples = planes ? v->shape[0] : pixels ? v->shape[2] : 1;
    if (v->rank < 2 || v->rank > 3 || v->nbytes == 0)
        stop(WIRE_UNSUPPORTED, "a TIFF file holds [rows, columns], [rows, columns, bands] or "
                               "[bands, rows, columns], none of them 0");
    if (height > INT32_MAX || width > INT32_MAX || samples > UINT16_MAX)
        stop(WIRE_UNSUPPORTED,
             "a TIFF file holds at most %d rows and columns, and %d bands; this would have %lld "
             "rows, %lld columns and %lld bands",
             INT32_MAX, UINT16_MAX, (long long)height, (long long)width, (long long)samples);
    size_t size = dtype_size(v->dtype);
    int64_t row = width * (planes ? 1 : samples) * (int64_t)size;
    int64_t rows = row > STRIP_BYTES ? 1 : STRIP_BYTES / row;
    rows = rows < height ? rows : height;
    if (row > INT32_MAX)
        stop(WIRE_UNSUPPORTED, "a row of the picture is larger than 2 GiB");
    TIFF *t = tiff_open(v->nbytes > CLASSIC_MAX ? "w8m" : "wm", INT64_MAX);
    if (!t)
        tiff_stop(WIRE_IO, "making");
    TIFFSetField(t, TIFFTAG_IMAGEWIDTH, (uint32_t)width);
    TIFFSetField(t, TIFFTAG_IMAGELENGTH, (uint32_t)height);
    TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, (uint16_t)(8 * size));
    TIFFSetField(t, TIFFTAG_SAMPLEFORMAT, format_of(v->dtype));
    TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, (uint16_t)samples);
    TIFFSetField(t, TIFFTAG_PLANARCONFIG, planes ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    TIFFSetField(t, TIFFTAG_ROWSPERSTRIP, (uint32_t)rows);
    bool colours = pixels && v->dtype == DT_U8 && samples >= 3 && samples <= 4;
    TIFFSetField(t, TIFFTAG_PHOTOMETRIC, colours ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK);
    int more = (int)samples - (colours ? 3 : 1);
    if (more > 0) {
        _cleanup_free_ uint16_t *kinds = must_array((size_t)more, sizeof *kinds);
        kinds[0] = colours ? EXTRASAMPLE_UNASSALPHA : EXTRASAMPLE_UNSPECIFIED;
        TIFFSetField(t, TIFFTAG_EXTRASAMPLES, (uint16_t)more, kinds);
    }
    TIFFSetField(t, TIFFTAG_COMPRESSION, deflate ? COMPRESSION_ADOBE_DEFLATE : COMPRESSION_NONE);
    if (deflate)
        TIFFSetField(t, TIFFTAG_ZIPQUALITY, deflate);
    put_attrs(t, &v->attrs);
    write_begin(v);
    _cleanup_free_ unsigned char *strip = must_alloc((size_t)(rows * row));
    uint32_t number = 0;
    for (int64_t plane = 0; plane < (planes ? samples : 1); plane++) {
        for (int64_t y = 0; y < height; y += rows) {
            size_t bytes = (size_t)((height - y < rows ? height - y : rows) * row);
            for (size_t have = 0; have < bytes;) {
                int64_t n;
                const unsigned char *p = write_pull((int64_t)((bytes - have) / size), &n);
                memcpy(strip + have, p, (size_t)n * size);
                have += (size_t)n * size;
            }
            if (TIFFWriteEncodedStrip(t, number++, strip, (tmsize_t)bytes) < 0)
                tiff_stop(WIRE_IO, "writing");
        }
    }
    if (!TIFFWriteDirectory(t) || !TIFFFlush(t))
        tiff_stop(WIRE_IO, "writing");
    TIFFClose(t);
}
