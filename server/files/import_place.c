/* Where the pixels of a picture lie on the earth, by the attributes of GeoTIFF's tags, and whether
 * the names of its bands are still true: see import.h. Of a part they are said anew, so that each
 * of its pixels lies where it lay.
 *
 * Tie points and scale, or a matrix, go from the picture's columns and rows to coordinates. Whole
 * numbers are corners of pixels, or with GTRasterTypeGeoKey their centres. */
#include <string.h>

#include "server/files/import.h"
#include "server/labels/labels.h"

#define RASTER_TYPE    1025 /* a key of the GeoKeyDirectory: */
#define PIXEL_IS_POINT 2
#define TIE_POINTS_MAX 512 /* more are left out */

/* What was at first + step·r is at r. */
struct line {
    double first, step;
};

static bool is_whole_axis(const struct import_piece *p, int k)
{
    return p->start[k] == 0 && p->count[k] == p->variable->shape[k] &&
           (p->step[k] == 1 || p->count[k] <= 1);
}

bool import_is_whole(const struct import_piece *p)
{
    bool whole = true;
    for (int k = 0; k < p->variable->rank; k++)
        whole &= is_whole_axis(p, k);
    return whole;
}

/* Whether some axis that is neither of rows nor of columns is not whole: its names are others. */
static bool lacks_bands(const struct import_piece *p)
{
    bool lacks = false;
    for (int k = 0; k < p->variable->rank; k++) {
        const char *name = p->variable->dims[k] ? p->variable->dims[k] : "";
        lacks |= name[0] != 'x' && name[0] != 'y' && !is_whole_axis(p, k);
    }
    return lacks;
}

bool import_is_place(const struct import_piece *p, const char *name)
{
    if (!strcmp(name, "GDAL_METADATA"))
        return lacks_bands(p);
    return (labels_is_place(name) || !strcmp(name, "GeoTransform")) &&
           (p->of_part || !import_is_whole(p));
}

static bool pixels_are_points(struct json keys)
{
    int64_t entry[4];
    int at = 0;
    for (struct json v = json_first(keys); json_present(v); v = json_next(v)) {
        if (json_get_i64(v, 0, UINT16_MAX, &entry[at], NULL) != ERR_OK)
            return false;
        at = (at + 1) % 4;
        if (at == 0 && entry[0] == RASTER_TYPE && entry[1] == 0)
            return entry[3] == PIXEL_IS_POINT;
    }
    return false;
}

/* Along the axis "x" or "y", which a picture of several may call "x_2". False: the array has none.
 */
static bool find_line(const struct import_piece *p, char axis, bool points, struct line *ret)
{
    for (int r = 0; r < p->map.rank; r++) {
        const int k = p->map.axis[r];
        const char *name = k < 0 || !p->variable->dims[k] ? "" : p->variable->dims[k];
        if (name[0] != axis || (name[1] && name[1] != '_'))
            continue;
        ret->step = p->count[k] > 1 ? (double)p->step[k] : 1;
        ret->first = (double)p->start[k] + (points ? 0 : (1 - ret->step) / 2);
        return true;
    }
    return false;
}

/* The numbers of an attribute; 0: it is absent, or has others. */
static size_t get_numbers(const struct import_piece *p, const char *name, size_t most, double *ret)
{
    const struct json list = json_member(p->variable->attrs, name);
    size_t n = 0;
    if (json_kind(list) != JSON_LIST || json_count(list) > most)
        return 0;
    for (struct json v = json_first(list); json_present(v); v = json_next(v))
        if (json_get_double(v, &ret[n++], NULL) != ERR_OK)
            return 0;
    return n;
}

static void put_numbers(struct json_writer *w, const char *name, size_t n, const double *v)
{
    json_put_key(w, name);
    json_open_list(w);
    for (size_t i = 0; i < n; i++)
        json_put_double(w, v[i]);
    json_close_list(w);
}

static void put_matrix(struct json_writer *w, const struct line *x, const struct line *y, double *m)
{
    for (double *row = m; row < m + 12; row += 4) {
        row[3] += row[0] * x->first + row[1] * y->first;
        row[0] *= x->step;
        row[1] *= y->step;
    }
    put_numbers(w, "ModelTransformation", 16, m);
}

void import_put_place(const struct import_piece *p, struct json_writer *w)
{
    double tie[6 * TIE_POINTS_MAX], scale[3], matrix[16];
    const bool points = pixels_are_points(json_member(p->variable->attrs, "GeoKeyDirectory"));
    struct line x, y;
    if (import_is_whole(p) || !find_line(p, 'x', points, &x) || !find_line(p, 'y', points, &y))
        return;
    const bool scaled = json_given(json_member(p->variable->attrs, "ModelPixelScale"));
    const size_t n_tie = get_numbers(p, "ModelTiepoint", 6 * TIE_POINTS_MAX, tie);
    if (!scaled && get_numbers(p, "ModelTransformation", 16, matrix) == 16) {
        put_matrix(w, &x, &y, matrix);
    } else if (!scaled && n_tie && n_tie % 6 == 0) { /* each is a pixel's place */
        for (double *t = tie; t < tie + n_tie; t += 6) {
            t[0] = (t[0] - x.first) / x.step;
            t[1] = (t[1] - y.first) / y.step;
        }
        put_numbers(w, "ModelTiepoint", n_tie, tie);
    } else if (n_tie == 6 && get_numbers(p, "ModelPixelScale", 3, scale) == 3) {
        if (x.step < 0 || y.step < 0) { /* scales are not negative */
            double m[16] = {[0] = scale[0],  [3] = tie[3] - tie[0] * scale[0],
                            [5] = -scale[1], [7] = tie[4] + tie[1] * scale[1],
                            [10] = scale[2], [11] = tie[5] - tie[2] * scale[2],
                            [15] = 1};
            put_matrix(w, &x, &y, m);
            return;
        }
        tie[3] += (x.first + (x.step - 1) * tie[0]) * scale[0];
        tie[4] -= (y.first + (y.step - 1) * tie[1]) * scale[1];
        scale[0] *= x.step;
        scale[1] *= y.step;
        put_numbers(w, "ModelTiepoint", 6, tie);
        put_numbers(w, "ModelPixelScale", 3, scale);
    }
}
