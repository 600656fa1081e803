/* Reads TIFF and GeoTIFF: each picture but the reduced copies (overviews) is a variable, "image",
 * "image_2" and so on, of rows and columns; with bands last where the file has a pixel's samples
 * together, first where it has one plane after the other. Samples of one bit are bools, those of
 * two and four are widened; as everywhere here, they are the numbers that lie there, whatever
 * colour is meant. Blocks (strips or tiles) are the chunks; the one that was decoded last is kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/base/mem.h"
#include "server/reader/format.h"
#include "server/reader/formats/tiff_int.h"
#include "server/reader/link.h"

#define PICTURES_MAX 4096

const struct tiff_tag tiff_tags[] = {
    {33550, DT_F64, "ModelPixelScale"},     {33922, DT_F64, "ModelTiepoint"},
    {34264, DT_F64, "ModelTransformation"}, {34735, DT_U16, "GeoKeyDirectory"},
    {34736, DT_F64, "GeoDoubleParams"},     {34737, TIFF_TEXT, "GeoAsciiParams"},
    {42112, TIFF_TEXT, "GDAL_METADATA"},    {TAG_NODATA, TIFF_TEXT, "GDAL_NODATA"},
};
const int tiff_n_tags = sizeof tiff_tags / sizeof *tiff_tags;

static char complaint[512];
static bool lacks_memory; /* the library complained of that */
static TIFF *file;

struct picture {
    tdir_t directory;
    bool tiled, separate;
    bool turned;         /* the library makes RGB of the YCbCr that JPEG has */
    int64_t block[2];    /* rows and columns of one */
    int64_t size[2];     /* of the picture */
    int64_t samples;     /* of a pixel in a block */
    int64_t bytes;       /* of a block */
    int bits;            /* of a sample, where they are fewer than a byte; else 0 */
    unsigned char *data; /* the block `have` */
    unsigned char *wide; /* the same with a byte for each sample, if they are fewer */
    struct scalar none;  /* the samples of a block that is not there */
    int64_t have;
};

static int on_error(TIFF *t, void *data, const char *module, const char *fmt, va_list args)
{
    (void)t;
    (void)data;
    (void)module;
    lacks_memory = strstr(fmt, "emory"); /* in the library's own words: no file's are in there */
    vsnprintf(complaint, sizeof complaint, fmt, args);
    return 1;
}

static int on_warning(TIFF *t, void *data, const char *module, const char *fmt, va_list args)
{
    (void)t;
    (void)data;
    (void)module;
    (void)fmt;
    (void)args;
    return 1;
}

static TIFFExtendProc next_extender;

static void extend(TIFF *t)
{
    static TIFFFieldInfo fields[8];
    for (int i = 0; i < tiff_n_tags; i++) {
        const struct tiff_tag *tag = &tiff_tags[i];
        bool text = tag->dtype == TIFF_TEXT;
        fields[i] = (TIFFFieldInfo){
            tag->tag,     -1,
            -1,           text ? TIFF_ASCII : tag->dtype == DT_U16 ? TIFF_SHORT : TIFF_DOUBLE,
            FIELD_CUSTOM, 1,
            !text,        (char *)tag->name};
    }
    TIFFMergeFieldInfo(t, fields, (uint32_t)tiff_n_tags);
    if (next_extender)
        next_extender(t);
}

void tiff_stop(enum wire_error code, const char *what)
{
    if (lacks_memory)
        stop_oom();
    const char *why = complaint[0] ? complaint : "libtiff says no more";
    if (code == WIRE_IO)
        stop_writing("%s the TIFF file failed: %s", what, why);
    stop(code, "%s the TIFF file failed: %s", what, why);
}

TIFF *tiff_open(const char *mode, int64_t most)
{
    next_extender = TIFFSetTagExtender(extend);
    TIFFOpenOptions *options = must(TIFFOpenOptionsAlloc());
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, NULL);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, NULL);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)most);
    TIFF *t = TIFFFdOpenExt(WIRE_FILE, "the file", mode, options);
    TIFFOpenOptionsFree(options);
    return t;
}

static bool is(const unsigned char *head, size_t n)
{
    return n >= 8 && (memcmp(head, "II*\0", 4) == 0 || memcmp(head, "MM\0*", 4) == 0 ||
                      memcmp(head, "II+\0", 4) == 0 || memcmp(head, "MM\0+", 4) == 0);
}

static int dtype_of(uint16_t bits, uint16_t format)
{
    int log = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : bits == 64 ? 3 : -1;
    if ((bits == 1 || bits == 2 || bits == 4) && format == SAMPLEFORMAT_UINT)
        return bits == 1 ? DT_BOOL : DT_U8;
    if (format == SAMPLEFORMAT_COMPLEXIEEEFP)
        return bits == 64 ? DT_C64 : bits == 128 ? DT_C128 : UNREAD;
    if (log < 0)
        return UNREAD;
    if (format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID)
        return DT_U8 + log;
    if (format == SAMPLEFORMAT_INT)
        return DT_I8 + log;
    static const int floats[] = {UNREAD, DT_F16, DT_F32, DT_F64};
    return format == SAMPLEFORMAT_IEEEFP ? floats[log] : UNREAD;
}

/* Whether samples can be the number. */
static bool may_be(const struct variable *v, double number)
{
    struct scalar s = {.dtype = DT_F64, .v.f64 = number};
    return v->dtype == UNREAD || !dtype_is_integer(v->dtype) ||
           scalar_cast(scalar_cast(s, v->dtype), DT_F64).v.f64 == number;
}

static void add_attrs(struct content *c, struct variable *v)
{
    char *text;
    for (int i = 0; i < tiff_n_tags; i++) {
        const struct tiff_tag *tag = &tiff_tags[i];
        uint16_t n;
        void *data;
        if (tag->dtype != TIFF_TEXT) {
            if (TIFFGetField(file, tag->tag, &n, &data) == 1 && data)
                attr_add_numbers(c, &v->attrs, tag->name, tag->dtype, true, n, data);
        } else if (TIFFGetField(file, tag->tag, &text) == 1 && text) {
            char *end;
            double number = tag->tag == TAG_NODATA ? strtod(text, &end) : 0;
            if (tag->tag == TAG_NODATA && end != text && may_be(v, number))
                attr_add_numbers(c, &v->attrs, "_FillValue", DT_F64, false, 1, &number);
            else
                attr_add_text(c, &v->attrs, tag->name, text, strlen(text));
        }
    }
    if (TIFFGetField(file, TIFFTAG_IMAGEDESCRIPTION, &text) == 1 && text)
        attr_add_text(c, &v->attrs, "description", text, strlen(text));
}

static void name_axes(struct content *c, struct variable *v, int picture, const char *const *names)
{
    for (int d = 0; d < v->rank; d++) {
        const struct dim *dim = content_find_dim(c, names[d]);
        const char *name = names[d];
        if (dim && dim->length != v->shape[d])
            name = content_printf(c, "%s_%d", names[d], picture);
        if (!content_find_dim(c, name))
            content_add_dim(c, name, v->shape[d], false);
        v->dims[d] = name;
    }
}

static const char *codec_name(uint16_t compression)
{
    const TIFFCodec *codec = TIFFFindCODEC(compression);
    return codec ? codec->name : "of an unknown kind";
}

/* Bytes of a block's row of samples that are smaller. */
static int64_t packed_row(const struct picture *p)
{
    return (p->block[1] * p->samples * p->bits + 7) / 8;
}

static void add_picture(struct content *c, int number, int64_t most)
{
    uint32_t width = 0, height = 0, rows = 0, columns = 0;
    uint16_t bits, format, samples, planar, compression, photometric = 0;
    TIFFGetField(file, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(file, TIFFTAG_IMAGELENGTH, &height);
    TIFFGetFieldDefaulted(file, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(file, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(file, TIFFTAG_PLANARCONFIG, &planar);
    TIFFGetFieldDefaulted(file, TIFFTAG_COMPRESSION, &compression);
    TIFFGetField(file, TIFFTAG_PHOTOMETRIC, &photometric);
    struct variable *v =
        content_add(c, number == 1 ? "image" : content_printf(c, "image_%d", number));
    struct picture *p = v->own = must(arena_alloc(c->arena, sizeof *p));
    v->dtype = dtype_of(bits, format);
    if (v->dtype == UNREAD)
        variable_unread(c, v, "samples of %d bits of the kind %d are not read", bits, format);
    p->turned = compression == COMPRESSION_JPEG && photometric == PHOTOMETRIC_YCBCR;
    if (p->turned)
        TIFFSetField(file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    else if (photometric == PHOTOMETRIC_YCBCR)
        variable_unread(c, v, "colours as YCbCr are read from JPEG compression alone");
    p->directory = TIFFCurrentDirectory(file);
    p->tiled = TIFFIsTiled(file) != 0;
    p->separate = planar == PLANARCONFIG_SEPARATE && samples > 1;
    p->samples = p->separate ? 1 : samples;
    p->have = -1;
    if (p->tiled) {
        TIFFGetField(file, TIFFTAG_TILELENGTH, &rows);
        TIFFGetField(file, TIFFTAG_TILEWIDTH, &columns);
    } else {
        TIFFGetFieldDefaulted(file, TIFFTAG_ROWSPERSTRIP, &rows);
        columns = width;
    }
    p->size[0] = height;
    p->size[1] = width;
    p->block[0] = !p->tiled && rows > height ? height : rows;
    p->block[1] = columns;
    if (!width || !height || !samples || p->block[0] <= 0 || p->block[1] <= 0)
        stop(WIRE_BAD_FILE, "a picture of the TIFF file has no extent");
    p->bytes = p->tiled ? TIFFTileSize64(file) : TIFFStripSize64(file);
    int64_t shape[3] = {height, width, samples}, planes[3] = {samples, height, width};
    int64_t blocks[3] = {p->block[0], p->block[1], samples},
            planar_blocks[3] = {1, p->block[0], p->block[1]};
    static const char *const names[] = {"y", "x", "band"}, *const planar_names[] = {"band", "y",
                                                                                    "x"};
    p->bits = bits < 8 ? bits : 0;
    if (v->dtype != UNREAD) {
        int64_t row, need, size = (int64_t)dtype_size(v->dtype);
        bool fits = !__builtin_mul_overflow(p->block[1] * p->samples, size, &row) &&
                    !__builtin_mul_overflow(row, p->block[0], &need);
        if (!fits || p->bytes != (p->bits ? packed_row(p) * p->block[0] : need))
            variable_unread(c, v, "its blocks have another size than its samples");
        else if (need > most)
            variable_unread(c, v, "its blocks are larger than the memory for them");
    }
    if (compression != COMPRESSION_NONE && !TIFFIsCODECConfigured(compression))
        variable_unread(c, v, "libtiff was built without its compression, %s",
                        codec_name(compression));
    variable_shape(c, v, samples > 1 ? 3 : 2, p->separate ? planes : shape);
    v->chunked = true;
    memcpy(v->chunks, p->separate ? planar_blocks : blocks, sizeof blocks);
    name_axes(c, v, number, p->separate ? planar_names : names);
    if (compression != COMPRESSION_NONE)
        v->filters[v->n_filters++] = content_printf(c, "%s", codec_name(compression));
    add_attrs(c, v);
    if (v->dtype != UNREAD) {
        struct scalar none = {.dtype = DT_F64};
        attr_double(attr_find(&v->attrs, "_FillValue"), 0, &none.v.f64);
        p->none = scalar_cast(none, v->dtype);
    }
}

static struct content *open_file(const struct reader_limits *limits)
{
    struct content *c = content_new();
    c->format = "tiff";
    file = tiff_open("rm", limits->memory / 4);
    if (!file)
        tiff_stop(WIRE_BAD_FILE, "opening");
    for (int n = 0;;) {
        uint32_t kind = 0;
        TIFFGetField(file, TIFFTAG_SUBFILETYPE, &kind);
        if (!(kind & FILETYPE_REDUCEDIMAGE)) {
            if (++n > PICTURES_MAX)
                stop(WIRE_TOO_LARGE, "the TIFF file has more than %d pictures", PICTURES_MAX);
            add_picture(c, n, limits->memory / 4);
        }
        if (TIFFLastDirectory(file))
            return c;
        if (!TIFFReadDirectory(file)) /* there is one, which cannot be read */
            tiff_stop(WIRE_BAD_FILE, "reading the next picture of");
    }
}

/* Whether the file has the block: GDAL leaves out those without data. */
static bool is_there(uint32_t number)
{
    return TIFFGetStrileOffset(file, number) || TIFFGetStrileByteCount(file, number);
}

/* That the file holds the whole block: libtiff's own error is of scanline 4294967295. */
static void check_block(uint32_t number)
{
    struct stat st;
    uint64_t at = TIFFGetStrileOffset(file, number), n = TIFFGetStrileByteCount(file, number);
    if (fstat(WIRE_FILE, &st) != 0)
        stop_reading();
    if (at > (uint64_t)st.st_size || n > (uint64_t)st.st_size - at)
        stop(WIRE_BAD_FILE,
             "the file is cut off: it has %lld bytes, and a block of a picture lies behind them",
             (long long)st.st_size);
}

/* The highest bits are the first sample's; each row begins with a byte of its own. */
static void widen(struct picture *p)
{
    int64_t samples = p->block[1] * p->samples, row = packed_row(p);
    unsigned char *to = p->wide;
    for (int64_t y = 0; y < p->block[0]; y++) {
        const unsigned char *from = p->data + (size_t)(y * row);
        for (int64_t k = 0; k < samples; k++) {
            int64_t bit = k * p->bits;
            *to++ =
                (unsigned char)(from[bit / 8] >> (8 - p->bits - bit % 8) & ((1 << p->bits) - 1));
        }
    }
}

static void decode_block(struct picture *p, uint32_t number, int64_t rows)
{
    check_block(number);
    tmsize_t got = p->tiled ? TIFFReadEncodedTile(file, number, p->data, p->bytes)
                            : TIFFReadEncodedStrip(file, number, p->data, p->bytes);
    int64_t need = p->tiled || rows > p->block[0] ? p->bytes : p->bytes / p->block[0] * rows;
    if (got < need)
        tiff_stop(WIRE_BAD_FILE, "reading");
    if (p->bits)
        widen(p);
}

static void fill_block(struct picture *p)
{
    int64_t n = p->block[0] * p->block[1] * p->samples;
    size_t size = dtype_size(p->none.dtype);
    unsigned char *to = p->bits ? p->wide : p->data;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * size, p->none.v.raw, size);
}

static void load_block(struct picture *p, int64_t plane, int64_t by, int64_t bx)
{
    if (TIFFCurrentDirectory(file) != p->directory && !TIFFSetDirectory(file, p->directory))
        tiff_stop(WIRE_BAD_FILE, "reading");
    if (p->turned) /* the library forgets it with the directory */
        TIFFSetField(file, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    uint16_t sample = (uint16_t)plane;
    uint32_t y = (uint32_t)(by * p->block[0]), x = (uint32_t)(bx * p->block[1]);
    int64_t number =
        p->tiled ? TIFFComputeTile(file, x, y, 0, sample) : TIFFComputeStrip(file, y, sample);
    if (number == p->have)
        return;
    if (!p->data)
        p->data = must_array((size_t)p->bytes, 1);
    if (!p->wide && p->bits)
        p->wide = must_array((size_t)(p->block[0] * p->block[1] * p->samples), 1);
    p->have = -1;
    if (is_there((uint32_t)number))
        decode_block(p, (uint32_t)number, p->size[0] - by * p->block[0]);
    else
        fill_block(p);
    p->have = number;
}

/* The first i with start + i·step ≥ at. */
static int64_t reach(int64_t start, int64_t step, int64_t at)
{
    return at <= start ? 0 : (at - start + step - 1) / step;
}

/* The part of a plane's region that lies in one block. `r` is of rows, columns, samples. */
static void copy_block(const struct picture *p, const struct region *r, int64_t by, int64_t bx,
                       size_t size, unsigned char *to)
{
    int64_t top = by * p->block[0], left = bx * p->block[1];
    int64_t i0 = reach(r->start[0], r->step[0], top);
    int64_t i1 = reach(r->start[0], r->step[0], top + p->block[0]);
    int64_t j0 = reach(r->start[1], r->step[1], left);
    int64_t j1 = reach(r->start[1], r->step[1], left + p->block[1]);
    i1 = i1 < r->count[0] ? i1 : r->count[0];
    j1 = j1 < r->count[1] ? j1 : r->count[1];
    bool whole = r->step[1] == 1 && r->count[2] == p->samples;
    for (int64_t i = i0; i < i1; i++) {
        const unsigned char *row =
            (p->bits ? p->wide : p->data) +
            (size_t)((r->start[0] + i * r->step[0] - top) * p->block[1] * p->samples) * size;
        unsigned char *q = to + (size_t)((i * r->count[1] + j0) * r->count[2]) * size;
        if (whole) {
            memcpy(q, row + (size_t)((r->start[1] + j0 - left) * p->samples) * size,
                   (size_t)((j1 - j0) * p->samples) * size);
            continue;
        }
        for (int64_t j = j0; j < j1; j++) {
            const unsigned char *pixel =
                row + (size_t)((r->start[1] + j * r->step[1] - left) * p->samples) * size;
            for (int64_t b = 0; b < r->count[2]; b++, q += size)
                memcpy(q, pixel + (size_t)(r->start[2] + b * r->step[2]) * size, size);
        }
    }
}

static void read_region(struct content *c, struct variable *v, const struct region *r, void *to)
{
    (void)c;
    struct picture *p = v->own;
    size_t size = dtype_size(v->dtype);
    int y = p->separate ? 1 : 0;
    struct region plane = {3, {0}, {1, 1, 1}, {1, 1, 1}};
    for (int d = 0; d < 3 && y + d < r->rank; d++) {
        plane.start[d] = r->start[y + d];
        plane.count[d] = r->count[y + d];
        plane.step[d] = r->step[y + d];
    }
    int64_t planes = p->separate ? r->count[0] : 1;
    int64_t last[2];
    for (int d = 0; d < 2; d++)
        last[d] = (plane.start[d] + (plane.count[d] - 1) * plane.step[d]) / p->block[d];
    for (int64_t s = 0; s < planes; s++) {
        int64_t sample = p->separate ? r->start[0] + s * r->step[0] : 0;
        for (int64_t by = plane.start[0] / p->block[0]; by <= last[0]; by++) {
            for (int64_t bx = plane.start[1] / p->block[1]; bx <= last[1]; bx++) {
                load_block(p, sample, by, bx);
                copy_block(p, &plane, by, bx, size,
                           (unsigned char *)to + (size_t)(s * region_size(&plane)) * size);
            }
        }
    }
}

const struct format format_tiff = {is, open_file, read_region};
