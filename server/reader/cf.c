/* Values are scaled in the precision of the result, as xarray does, so that both agree to the last
 * bit: float32 · float32 + float32, or all in float64; and a float32 that stays one, by numbers of
 * 64 bits, in these. A scale alone multiplies, an offset alone adds. */
#include "server/reader/cf.h"

#include <math.h>
#include <string.h>

#include "server/reader/fit.h"

static bool text_is(const struct attr *a, const char *s)
{
    return a && a->dtype == UNREAD && a->n == 1 && strcmp(a->texts[0], s) == 0;
}

static enum dtype sign_changed(enum dtype t, bool to_unsigned)
{
    if (to_unsigned && t >= DT_I8 && t <= DT_I64)
        return t + (DT_U8 - DT_I8);
    if (!to_unsigned && t >= DT_U8 && t <= DT_U64)
        return t - (DT_U8 - DT_I8);
    return t;
}

/* As xarray's _choose_float_dtype, of packed values: `scale` or `offset` may be NULL. Integers and
 * halves as a scale, which xarray takes as they are, would overflow. */
static enum dtype choose_float(enum dtype t, const struct attr *scale, const struct attr *offset)
{
    bool floats = (!scale || dtype_is_real_float(scale->dtype)) &&
                  (!offset || dtype_is_real_float(offset->dtype));
    if (scale && offset && floats && scale->dtype == offset->dtype && scale->dtype >= DT_F32)
        return dtype_is_integer(t) && dtype_size(t) == 4 ? DT_F64 : (enum dtype)scale->dtype;
    if (offset || !floats)
        return DT_F64;
    return scale->dtype >= DT_F32 ? (enum dtype)scale->dtype : DT_F32;
}

/* As xarray's maybe_promote: what holds NaN beside the elements. */
static enum dtype promote(enum dtype t)
{
    if (dtype_is_real_float(t))
        return t;
    return dtype_size(t) <= 2 ? DT_F32 : DT_F64;
}

/* A fill value as an element, of `other` sign than in the file: such fill values may be of either.
 * False: no element has this value. */
static bool as_fill(const struct attr *a, int64_t i, enum dtype raw, bool other, struct scalar *ret)
{
    struct scalar s = {.dtype = (enum dtype)a->dtype};
    size_t size = dtype_size(s.dtype);
    memcpy(s.v.raw, (const char *)a->data + (size_t)i * size, size);
    *ret = scalar_cast(s, raw);
    if (other && dtype_is_integer(s.dtype) && dtype_size(raw) == size)
        return true;
    return fit_is_same(s, *ret);
}

/* Adds the fill values of an attribute. *masks: one of them is a number, whether or not an element
 * can be that. */
static void add_fills(const struct variable *v, const struct attr *a, struct cf *ret, bool *masks)
{
    double x;
    if (!a || a->dtype == UNREAD || dtype_is_complex(a->dtype))
        return;
    for (int64_t i = 0; attr_double(a, i, &x); i++) {
        *masks |= !isnan(x);
        if (ret->n_fills < FILLS_MAX)
            ret->n_fills +=
                as_fill(a, i, ret->raw, (int)ret->raw != v->dtype, &ret->fills[ret->n_fills]);
    }
}

bool cf_plan(const struct variable *v, struct cf *ret)
{
    *ret = (struct cf){.scale = 1};
    if (v->dtype == UNREAD || v->dtype == DT_BOOL || dtype_is_complex(v->dtype))
        return false;
    const struct attr *unsign = attr_find(&v->attrs, "_Unsigned");
    ret->raw = v->dtype;
    if (text_is(unsign, "true") || text_is(unsign, "false"))
        ret->raw = sign_changed(ret->raw, text_is(unsign, "true"));
    const struct attr *scale = attr_find(&v->attrs, "scale_factor");
    const struct attr *offset = attr_find(&v->attrs, "add_offset");
    ret->has_scale = attr_double(scale, 0, &ret->scale);
    ret->has_offset = attr_double(offset, 0, &ret->offset);
    bool packed = ret->has_scale || ret->has_offset, masks = false;
    add_fills(v, attr_find(&v->attrs, "_FillValue"), ret, &masks);
    add_fills(v, attr_find(&v->attrs, "missing_value"), ret, &masks);
    for (int f = 0; f < ret->n_fills && dtype_is_real_float(ret->raw); f++)
        if (scalar_cast(ret->fills[f], DT_F64).v.f64 == 0) {
            ret->zero_is_fill = true;
            memset(ret->fills[f].v.raw, 0, dtype_size(ret->raw));
        }
    if (packed && (masks || !ret->n_fills)) /* NaN alone leaves floats what they are */
        ret->dtype =
            choose_float(ret->raw, ret->has_scale ? scale : NULL, ret->has_offset ? offset : NULL);
    else
        ret->dtype = masks ? promote(ret->raw) : ret->raw;
    ret->computed = packed || masks || ret->n_fills;
    if (!ret->computed && ret->raw == DT_I8 && text_is(attr_find(&v->attrs, "dtype"), "bool"))
        ret->dtype = DT_BOOL;
    ret->wide = ret->dtype == DT_F32 && ((ret->has_scale && scale->dtype == DT_F64) ||
                                         (ret->has_offset && offset->dtype == DT_F64));
    return ret->computed || (int)ret->dtype != v->dtype;
}

/* Whether it is the number that a fill is: the bits are the same, or both are zeros. */
static bool is_fill(const struct cf *cf, size_t size, const unsigned char *p)
{
    for (int f = 0; f < cf->n_fills; f++)
        if (memcmp(p, cf->fills[f].v.raw, size) == 0)
            return true;
    if (!cf->zero_is_fill || p[size - 1] != 0x80)
        return false;
    for (size_t i = 0; i + 1 < size; i++)
        if (p[i])
            return false;
    return true;
}

/* All types are known to the compiler in each case, so that its loops have no calls. */
#define SCALE(to_t, from_t, in_t)                                                                  \
    do {                                                                                           \
        const in_t scale = (in_t)cf->scale, offset = (in_t)cf->offset;                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from_t x;                                                                              \
            memcpy(&x, p + (size_t)i * sizeof x, sizeof x);                                        \
            to_t y = (to_t)x;                                                                      \
            if (cf->has_scale)                                                                     \
                y = (to_t)(y * scale);                                                             \
            if (cf->has_offset)                                                                    \
                y = (to_t)(y + offset);                                                            \
            if (is_fill(cf, sizeof x, p + (size_t)i * sizeof x))                                   \
                y = (to_t)NAN;                                                                     \
            memcpy(q + (size_t)i * sizeof y, &y, sizeof y);                                        \
        }                                                                                          \
    } while (0)

#define FROM(to_t)                                                                                 \
    switch (cf->raw) {                                                                             \
    case DT_I8:                                                                                    \
        SCALE(to_t, int8_t, to_t);                                                                 \
        return;                                                                                    \
    case DT_I16:                                                                                   \
        SCALE(to_t, int16_t, to_t);                                                                \
        return;                                                                                    \
    case DT_I32:                                                                                   \
        SCALE(to_t, int32_t, to_t);                                                                \
        return;                                                                                    \
    case DT_I64:                                                                                   \
        SCALE(to_t, int64_t, to_t);                                                                \
        return;                                                                                    \
    case DT_U8:                                                                                    \
        SCALE(to_t, uint8_t, to_t);                                                                \
        return;                                                                                    \
    case DT_U16:                                                                                   \
        SCALE(to_t, uint16_t, to_t);                                                               \
        return;                                                                                    \
    case DT_U32:                                                                                   \
        SCALE(to_t, uint32_t, to_t);                                                               \
        return;                                                                                    \
    case DT_U64:                                                                                   \
        SCALE(to_t, uint64_t, to_t);                                                               \
        return;                                                                                    \
    case DT_F32:                                                                                   \
        SCALE(to_t, float, to_t);                                                                  \
        return;                                                                                    \
    case DT_F64:                                                                                   \
        SCALE(to_t, double, to_t);                                                                 \
        return;                                                                                    \
    default:                                                                                       \
        break;                                                                                     \
    }

/* Halves, which C has no type for. Doubles are wide enough for what is rounded after each step to
 * be what floats give. */
static void decode_slowly(const struct cf *cf, int64_t n, const unsigned char *p, unsigned char *q)
{
    size_t in = dtype_size(cf->raw), out = dtype_size(cf->dtype);
    for (int64_t i = 0; i < n; i++) {
        struct scalar x = {.dtype = cf->raw}, y;
        memcpy(x.v.raw, p + (size_t)i * in, in);
        y = scalar_cast(scalar_cast(x, cf->dtype), DT_F64);
        if (cf->has_scale)
            y.v.f64 *= cf->scale;
        y = scalar_cast(scalar_cast(y, cf->dtype), DT_F64);
        if (cf->has_offset)
            y.v.f64 += cf->offset;
        if (is_fill(cf, in, p + (size_t)i * in))
            y.v.f64 = NAN;
        y = scalar_cast(y, cf->dtype);
        memcpy(q + (size_t)i * out, y.v.raw, out);
    }
}

void cf_decode(const struct cf *cf, int64_t n, const void *from, void *to)
{
    const unsigned char *p = from;
    unsigned char *q = to;
    if (!cf->computed) { /* the bytes stay; a bool is 0 or 1 */
        size_t bytes = (size_t)n * dtype_size(cf->raw);
        memcpy(q, p, bytes);
        for (size_t i = 0; cf->dtype == DT_BOOL && i < bytes; i++)
            q[i] = q[i] != 0;
        return;
    }
    if (cf->wide && cf->raw == DT_F32) {
        SCALE(float, float, double);
        return;
    }
    if (cf->dtype == DT_F32) {
        FROM(float)
    } else if (cf->dtype == DT_F64) {
        FROM(double)
    }
    decode_slowly(cf, n, p, q);
}

/* Attributes that have the stored elements' type: of the sign that the elements get. */
static void describe_attrs(struct json_writer *w, const struct variable *v, enum dtype raw)
{
    json_put_key(w, "attrs");
    json_open_object(w);
    for (const struct attr *a = v->attrs.first; a; a = a->next) {
        struct attr other = *a;
        other.dtype = (int)raw;
        if (a->dtype != v->dtype || !attr_is_like_elements(a->name))
            continue;
        json_put_key(w, a->name);
        attr_put(w, &other);
    }
    json_close_object(w);
}

void cf_describe(struct json_writer *w, const struct variable *v, const struct cf *cf)
{
    json_put_key(w, "decoded");
    json_open_object(w);
    json_put_member_string(w, "dtype", dtype_name(cf->dtype));
    if (cf->has_scale)
        json_put_member_double(w, "scale", cf->scale);
    if (cf->has_offset)
        json_put_member_double(w, "offset", cf->offset);
    if (cf->n_fills) {
        json_put_key(w, "fill");
        json_open_list(w);
        for (int f = 0; f < cf->n_fills; f++)
            json_put_scalar(w, &cf->fills[f]);
        json_close_list(w);
    }
    if ((int)cf->raw != v->dtype)
        describe_attrs(w, v, cf->raw);
    json_close_object(w);
}
