/* In stages: the elements are pooled to pixels, which stay on the device; the range is looked up
 * where it was not given; the pixels' colours, a byte or two each, are fetched; the file is
 * written. Everything after the first stage is of the pixels, which are few. Where the range is
 * given, the stages up to the colours are one expression. A worker does all of it, and the device
 * is others' once the pixels are here: a zoom asks for many pictures at once.
 *
 * A colour map's index is that of matplotlib: floor of 256 times the place in the range. NaN has no
 * colour and is transparent. The file has a palette of 256 colours; one that the picture can do
 * without is the transparent one. */
#include "server/look/picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/hash.h"
#include "compute/memory/export.h"
#include "server/body/condition.h"
#include "server/body/request.h"
#include "server/config/config.h"
#include "server/look/maps.h"
#include "server/look/picture_int.h"
#include "server/look/png.h"
#include "server/look/query.h"
#include "server/server.h"
#include "server/store/auth.h"
#include "server/work/device_turn.h"

#define USUAL_SIDE    1024      /* pixels along the longer side */
#define LARGE_PICTURE (1 << 16) /* pixels that take longer than a piece of short work */
#define NO_COLOUR     256
#define PIECE         2048 /* pixels */
#define BAR_GAP       8
#define BAR_WIDTH     16
/* a percentile of the range: in three passes of fifteen numbers, to 1/4096 of the values' range */
#define PASSES  3
#define NUMBERS 15

static void picture_free(void *state)
{
    struct picture *s = state;
    look_free(&s->look);
    array_unref(s->a);
    s->a = NULL;
    handle_clear(&s->handle);
}

/* --- the file --- */

static void add_tag(const struct picture *s)
{
    if (s->etag[0])
        http_add_header(s->look.req, "ETag", s->etag);
    http_add_header(s->look.req, "Vary", "Accept");
}

static void reply_png(struct picture *s, const struct png_image *image)
{
    struct request *req = s->look.req;
    struct strb out = {0};
    struct err e = ERR_INIT;
    char range[80];
    if (png_put(image, &out, &e) != ERR_OK) {
        strb_free(&out);
        http_reply_error(req, &e);
        return;
    }
    picture_free(s); /* here, not on the listener's thread */
    snprintf(range, sizeof range, "%.17g %.17g", s->lo, s->hi);
    http_add_header(req, "Arrayd-Range", range);
    add_tag(s);
    http_reply_text(req, 200, media_name(MEDIA_PNG), &out);
}

/* The colours' numbers with the bar, in one row after the other. */
static void fill(const struct picture *s, int64_t width, uint16_t *to)
{
    const uint16_t *from = (const uint16_t *)s->look.bytes;
    for (int64_t y = 0; y < s->height; y++, from += s->width, to += width) {
        memcpy(to, from, (size_t)s->width * sizeof *to);
        for (int64_t x = s->width; x < width; x++)
            to[x] = x < s->width + BAR_GAP ? NO_COLOUR : (uint16_t)(255 - y * 256 / s->height);
    }
}

/* How far apart two colours are: the most of their red, green and blue. */
static int apart(uint32_t a, uint32_t b)
{
    int most = 0;
    for (int shift = 0; shift < 24; shift += 8) {
        const int d = abs((int)(a >> shift & 255) - (int)(b >> shift & 255));
        most = d > most ? d : most;
    }
    return most;
}

static uint32_t between(uint32_t a, uint32_t b)
{
    uint32_t c = 0;
    for (int shift = 0; shift < 24; shift += 8)
        c |= ((a >> shift & 255) + (b >> shift & 255)) / 2 << shift;
    return c;
}

/* A colour that the pixels do not use. Where they use all, the two neighbours that are the nearest
 * become one between them, which in every map is within 1 of 255 of both. */
static int spare(const bool *used, uint32_t *colours, uint16_t *numbers, size_t n)
{
    int k = 255, nearest = 0;
    while (k >= 0 && used[k])
        k--;
    if (k >= 0)
        return k;
    for (k = 1; k < 255; k++)
        if (apart(colours[k], colours[k + 1]) < apart(colours[nearest], colours[nearest + 1]))
            nearest = k;
    colours[nearest] = between(colours[nearest], colours[nearest + 1]);
    for (size_t i = 0; i < n; i++)
        numbers[i] = numbers[i] == nearest + 1 ? (uint16_t)nearest : numbers[i];
    return nearest + 1;
}

/* Makes the pixels, a byte each, in the numbers' place (piece by piece, as loops that write where
 * they read are not vectorised); the number of the transparent colour, or −1 without one. */
static int squeeze(uint16_t *numbers, size_t n, uint32_t *colours)
{
    unsigned char *pixels = (unsigned char *)numbers, piece[PIECE];
    uint16_t all = 0;
    bool used[NO_COLOUR + 1] = {0};
    int transparent = -1;
    for (size_t i = 0; i < n; i++)
        all |= numbers[i];
    if (all & NO_COLOUR) {
        for (size_t i = 0; i < n; i++)
            used[numbers[i]] = true;
        transparent = spare(used, colours, numbers, n);
    }
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        for (size_t i = 0; i < k; i++)
            piece[i] =
                (unsigned char)(numbers[at + i] == NO_COLOUR ? transparent : numbers[at + i]);
        memcpy(pixels + at, piece, k);
    }
    return transparent;
}

static void write_coloured(struct picture *s)
{
    struct request *req = s->look.req;
    const int64_t width = s->width + (s->bar ? BAR_GAP + BAR_WIDTH : 0);
    const size_t n = (size_t)(width * s->height);
    uint16_t *with_bar = s->bar ? arena_alloc_array(req->arena, n, sizeof *with_bar) : NULL;
    uint16_t *numbers = s->bar ? with_bar : (uint16_t *)s->look.bytes;
    uint32_t colours[256];
    if (!numbers) {
        struct err e = ERR_INIT;
        err_oom(&e);
        http_reply_error(req, &e);
        return;
    }
    if (with_bar)
        fill(s, width, with_bar);
    memcpy(colours, map_colours[s->map], sizeof colours);
    const int transparent = squeeze(numbers, n, colours);
    const struct png_image image = {width,   s->height,  1, (const unsigned char *)numbers,
                                    colours, transparent};
    reply_png(s, &image);
}

static void write_file(struct request *req)
{
    struct picture *s = req->state;
    const struct png_image own = {s->width,      s->height,           s->channels,
                                  s->look.bytes, map_colours[s->map], -1};
    if (s->channels == 1 && !s->whole)
        write_coloured(s);
    else
        reply_png(s, &own);
}

static void coloured(struct look *l)
{
    const struct picture *s = (struct picture *)l;
    device_turn_leave(l->req);
    (s->width * s->height >= LARGE_PICTURE ? http_offload_long : http_offload)(l->req, write_file);
}

/* --- the colours --- */

static void colour(struct picture *s)
{
    struct look *l = &s->look;
    if (!s->given)
        look_clear(l);
    look_let(l, "d", "astype(p,'float64')");
    if (isfinite(s->hi - s->lo))
        look_let(l, "t", "(d-%.17g)/%.17g", s->lo, s->hi - s->lo);
    else /* the range is beyond float64's */
        look_let(l, "t", "(d*0.5-%.17g)/%.17g", s->lo * 0.5, s->hi * 0.5 - s->lo * 0.5);
    if (s->channels > 1)
        look_run(l, "astype(where(isnan(d),0,clip(floor(t*255+0.5),0,255)),'uint8')", coloured);
    else {
        if (s->hi > s->lo)
            look_let(l, "n", "clip(floor(t*256),0,255)");
        else
            look_let(l, "n", "where(d>%.17g,255,0)", s->lo);
        look_run(l, s->whole ? "astype(n,'uint8')" : "astype(where(isnan(d),256,n),'uint16')",
                 coloured);
    }
}

/* --- the range --- */

static void search(struct picture *s);

/* Fifteen numbers divide an end's interval; the first of which at least rank + 1 values are no
 * greater is the end of the next, smaller one. */
static void counted(struct look *l)
{
    struct picture *s = (struct picture *)l;
    const int64_t *counts = (const int64_t *)l->bytes;
    for (int k = 0; k < 2; k++) {
        struct picture_end *x = &s->ends[k];
        const double from = x->least, step = (x->most - x->least) / (NUMBERS + 1);
        int i = 0;
        while (i < NUMBERS && (double)counts[k * NUMBERS + i] - s->minus_inf <= x->rank)
            i++;
        x->least = from + i * step;
        x->most = i < NUMBERS ? from + (i + 1) * step : x->most;
    }
    search(s);
}

static void search(struct picture *s)
{
    struct look *l = &s->look;
    _cleanup_strb_ struct strb text = {0};
    if (s->passes++ == PASSES) {
        s->lo = s->has_lo ? s->lo : s->ends[0].most;
        s->hi = s->has_hi ? s->hi : s->ends[1].most;
        colour(s);
        return;
    }
    look_clear(l);
    look_let(l, "d", "astype(p,'float64')");
    for (int k = 0; k < 2; k++)
        for (int i = 1; i <= NUMBERS; i++) {
            const struct picture_end *x = &s->ends[k];
            strb_addf(&text, "%scount_nonzero(d<=%.17g)", text.len ? "," : "stack([",
                      x->least + i * ((x->most - x->least) / (NUMBERS + 1)));
        }
    strb_add(&text, "])");
    strb_addc(&text, '\0');
    look_run(l, text.failed ? NULL : text.data, counted);
}

static void ranged(struct look *l)
{
    struct picture *s = (struct picture *)l;
    const double *v = (const double *)l->bytes;
    const bool any = v[2] > 0;
    const double least = any ? v[0] : 0, most = any ? v[1] : 1;
    s->minus_inf = v[3];
    s->whole = v[4] == 0 && !s->bar;
    if (any && s->n_percents && isfinite(most - least)) {
        for (int k = 0; k < 2; k++)
            s->ends[k] = (struct picture_end){s->percents[k] / 100 * (v[2] - 1), least, most};
        search(s);
        return;
    }
    s->lo = s->has_lo ? s->lo : least;
    s->hi = s->has_hi ? s->hi : most;
    colour(s);
}

static void begin_now(struct request *req)
{
    struct picture *s = req->state;
    struct look *l = &s->look;
    struct err e = ERR_INIT;
    look_name(l, "a", array_ref(s->a));
    s->given = s->channels > 1 || (s->has_lo && s->has_hi);
    if (picture_pool(s, &e) != ERR_OK) {
        http_reply_error(l->req, &e);
        return;
    }
    if (s->given) {
        colour(s);
        return;
    }
    look_let(l, "f", "isfinite(p)");
    look_run(l,
             "astype(stack([astype(min(where(f,p,inf)),'float64'),"
             "astype(max(where(f,p,-inf)),'float64'),astype(count_nonzero(f),'float64'),"
             "astype(count_nonzero(p==-inf),'float64'),astype(count_nonzero(isnan(p)),'float64')]),"
             "'float64')",
             ranged);
}

static void begin(struct picture *s)
{
    http_offload(s->look.req, begin_now);
}

/* --- the request --- */

enum err_code picture_query(const struct request *req, enum media type, struct err *e)
{
    static const char *const keys[] = {PICTURE_QUERY};
    for (size_t i = 0; type != MEDIA_PNG && i < sizeof keys / sizeof *keys; i++)
        if (http_query(req, keys[i]))
            return err_set(e, ERR_BAD_FIELD, "%s is for pictures: ask for one by Accept: image/png",
                           keys[i]);
    return ERR_OK;
}

/* What the elements can be: one value a pixel, or three or four; 0: there is no picture of them. */
static int channels_of(const struct array *a)
{
    const struct view *v = &a->view;
    const int64_t last = v->rank == 3 ? v->shape[2] : 0;
    const int channels = v->rank == 2 ? 1 : last == 3 || last == 4 ? (int)last : 0;
    return view_size(v) == 0 || (channels > 1 && dtype_is_complex(a->dtype)) ? 0 : channels;
}

bool picture_is_possible(const struct array *a)
{
    return channels_of(a) > 0;
}

static enum err_code find_channels(struct picture *s, struct err *e)
{
    s->channels = channels_of(s->a);
    if (s->channels)
        return ERR_OK;
    return err_set(e, ERR_NOT_ACCEPTABLE,
                   "a picture is of two axes, or of three whose last has 3 or 4 real colours, with "
                   "at least one element: select them by index");
}

static enum err_code no_map(const struct picture *s, const struct request *req, struct err *e)
{
    static const char *const keys[] = {"cmap", "bar", "percentiles"};
    for (size_t i = 0; s->channels > 1 && i < sizeof keys / sizeof *keys; i++)
        if (http_query(req, keys[i]))
            return err_set(e, ERR_BAD_FIELD, "%s is for arrays of two axes: this has colours",
                           keys[i]);
    return ERR_OK;
}

static int64_t scaled(int64_t n, int64_t to, int64_t of, int64_t most)
{
    const double v = floor((double)n * (double)to / (double)of + 0.5);
    return v < 1 ? 1 : v > (double)most ? most : (int64_t)v;
}

/* Width and height: of what was given, and the elements' proportions. */
static enum err_code read_size(struct picture *s, const struct request *req, struct err *e)
{
    const int64_t most = req->server->config->max_picture, h = s->a->view.shape[0],
                  w = s->a->view.shape[1], longer = h > w ? h : w;
    const int64_t usual = most < USUAL_SIDE ? most : USUAL_SIDE,
                  side = longer < usual ? longer : usual;
    TRY(query_whole(req, "width", 1, most, &s->width, e));
    TRY(query_whole(req, "height", 1, most, &s->height, e));
    if (!s->width && !s->height) {
        s->width = scaled(w, side, longer, most);
        s->height = scaled(h, side, longer, most);
    } else if (!s->width) {
        s->width = scaled(w, s->height, h, most);
    } else if (!s->height) {
        s->height = scaled(h, s->width, w, most);
    }
    return ERR_OK;
}

/* The range of colours does not depend on the pixels. */
static enum err_code colours_range(struct picture *s, struct err *e)
{
    const double full = dtype_is_real_float(s->a->dtype) || s->a->dtype == DT_BOOL ? 1 : 255;
    s->lo = s->has_lo ? s->lo : 0;
    s->hi = s->has_hi ? s->hi : full;
    if (s->lo >= s->hi)
        return err_set(e, ERR_BAD_FIELD,
                       "lo must be less than hi: of these colours they are 0 and %g where they are "
                       "not given",
                       full);
    return ERR_OK;
}

static enum err_code read_query(struct picture *s, const struct request *req, struct err *e)
{
    static const char *const pools[] = {"mean", "max", "min", "nearest", NULL};
    TRY(no_map(s, req, e));
    TRY(query_choice(req, "cmap", map_names, &s->map, e));
    TRY(query_choice(req, "pool", pools, &s->pool, e));
    TRY(query_range(req, &s->lo, &s->has_lo, &s->hi, &s->has_hi, e));
    if (s->channels > 1)
        TRY(colours_range(s, e));
    TRY(query_list(req, "percentiles", 0, 100, 2, s->percents, &s->n_percents, e));
    if (s->n_percents && (s->n_percents < 2 || s->percents[0] >= s->percents[1]))
        return err_set(e, ERR_BAD_FIELD, "percentiles must be two numbers, the lower first");
    TRY(query_flag(req, "bar", &s->bar, e));
    return read_size(s, req, e);
}

/* *ret_ended: the condition has ended the request. */
static enum err_code conditions(struct picture *s, bool *ret_ended, struct err *e)
{
    struct request *req = s->look.req;
    const double query[] = {s->map, s->pool,       (double)s->width, (double)s->height,
                            s->lo,  s->hi,         s->has_lo,        s->has_hi,
                            s->bar, s->n_percents, s->percents[0],   s->percents[1]};
    if (!array_written_outside(s->a))
        etag_derived(s->a->dtype, &s->a->view, array_version(s->a), query, sizeof query, 'p',
                     s->etag);
    return condition_read(req, s->etag, ret_ended, e);
}

static enum err_code prepare(struct request *req, struct picture *s, struct err *e)
{
    struct session *session = NULL;
    struct view v;
    TRY(look_array(req, &session, &s->handle, e));
    look_init(&s->look, req, session);
    s->look.of = &s->handle;
    TRY(look_region(req, s->handle.array, &v, e));
    s->a = array_view(s->handle.array, s->handle.array->dtype, &v);
    if (!s->a)
        return err_oom(e);
    TRY(find_channels(s, e));
    return read_query(s, req, e);
}

enum err_code picture_check(struct request *req, struct err *e)
{
    struct picture s = {0};
    const enum err_code code = prepare(req, &s, e);
    picture_free(&s);
    return code;
}

void picture_reply(struct request *req, handler_fn *again)
{
    struct err e = ERR_INIT;
    bool ended = false;
    if (!look_turn(req, again))
        return;
    struct picture *s = request_begin(req, sizeof *s, picture_free);
    if (!s)
        return;
    http_may_end(req, NULL);
    if (prepare(req, s, &e) != ERR_OK || conditions(s, &ended, &e) != ERR_OK) {
        http_reply_error(req, &e);
    } else if (ended) {
        add_tag(s);
        http_reply_empty(req, 304);
    } else {
        begin(s);
    }
}

void picture_of(struct request *req, struct session *session, struct array *take_a)
{
    struct err e = ERR_INIT;
    _cleanup_array_ struct array *a = take_a;
    struct picture *s = request_begin(req, sizeof *s, picture_free);
    if (!s)
        return;
    look_init(&s->look, req, session_ref(session));
    s->a = a;
    a = NULL;
    look_measure(&s->look, s->a);
    if (find_channels(s, &e) != ERR_OK || read_query(s, req, &e) != ERR_OK)
        http_reply_error(req, &e);
    else
        begin(s);
}
