/* Values are scaled in the precision of the result, as xarray does, so that both agree to the last
 * bit: float32 · float32 + float32, or all in float64. A scale alone multiplies, an offset alone
 * adds. */
#include "server/reader/cf.h"

#include <math.h>
#include <string.h>

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

/* As xarray's _choose_float_dtype. `scale` and `offset` may be NULL. */
static enum dtype choose_float(enum dtype t, const struct attr *scale, const struct attr *offset)
{
    bool floats = (!scale || dtype_is_real_float(scale->dtype)) &&
                  (!offset || dtype_is_real_float(offset->dtype));
    if (scale && offset && floats && scale->dtype == offset->dtype && scale->dtype >= DT_F32)
        return dtype_is_integer(t) && dtype_size(t) == 4 ? DT_F64 : (enum dtype)scale->dtype;
    if (offset || !floats)
        return DT_F64;
    if (scale)
        return scale->dtype >= DT_F32 ? (enum dtype)scale->dtype : DT_F32;
    if (dtype_is_real_float(t))
        return t;
    return dtype_size(t) <= 2 ? DT_F32 : DT_F64;
}

/* A fill value as an element; of the other sign with _Unsigned, whose fill values may be of either.
 * False: no element has this value. */
static bool as_fill(const struct attr *a, int64_t i, enum dtype raw, struct scalar *ret)
{
    struct scalar s = {.dtype = (enum dtype)a->dtype};
    size_t size = dtype_size(s.dtype);
    memcpy(s.v.raw, (const char *)a->data + (size_t)i * size, size);
    *ret = scalar_cast(s, raw);
    if (dtype_is_integer(raw) && dtype_is_integer(s.dtype) && dtype_size(raw) == size)
        return true;
    struct scalar wide = scalar_cast(*ret, DT_F64), wanted = scalar_cast(s, DT_F64);
    if (dtype_is_real_float(raw)) /* 1e20 as a double means the float32 next to it */
        return true;
    return wide.v.f64 == wanted.v.f64;
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
    static const char *const fills[] = {"_FillValue", "missing_value"};
    for (int f = 0; f < 2; f++) {
        const struct attr *a = attr_find(&v->attrs, fills[f]);
        if (!a || a->dtype == UNREAD || dtype_is_complex(a->dtype))
            continue;
        for (int64_t i = 0; i < a->n && ret->n_fills < FILLS_MAX; i++)
            ret->n_fills += as_fill(a, i, ret->raw, &ret->fills[ret->n_fills]);
    }
    for (int f = 0; f < ret->n_fills && dtype_is_real_float(ret->raw); f++)
        if (scalar_cast(ret->fills[f], DT_F64).v.f64 == 0) {
            ret->zero_is_fill = true;
            memset(ret->fills[f].v.raw, 0, dtype_size(ret->raw));
        }
    ret->scaled = ret->has_scale || ret->has_offset;
    if (ret->scaled || ret->n_fills) {
        ret->dtype =
            choose_float(ret->raw, ret->has_scale ? scale : NULL, ret->has_offset ? offset : NULL);
        return true;
    }
    ret->dtype = ret->raw;
    if (ret->raw == DT_I8 && text_is(attr_find(&v->attrs, "dtype"), "bool"))
        ret->dtype = DT_BOOL;
    return (int)ret->dtype != v->dtype;
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

/* Both types are known to the compiler in each case, so that its loops have no calls. */
#define SCALE(to_t, from_t)                                                                        \
    do {                                                                                           \
        const to_t scale = (to_t)cf->scale, offset = (to_t)cf->offset;                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from_t x;                                                                              \
            memcpy(&x, p + (size_t)i * sizeof x, sizeof x);                                        \
            to_t y = (to_t)x;                                                                      \
            if (cf->has_scale)                                                                     \
                y *= scale;                                                                        \
            if (cf->has_offset)                                                                    \
                y += offset;                                                                       \
            if (is_fill(cf, sizeof x, p + (size_t)i * sizeof x))                                   \
                y = (to_t)NAN;                                                                     \
            memcpy(q + (size_t)i * sizeof y, &y, sizeof y);                                        \
        }                                                                                          \
    } while (0)

#define FROM(to_t)                                                                                 \
    switch (cf->raw) {                                                                             \
    case DT_I8:                                                                                    \
        SCALE(to_t, int8_t);                                                                       \
        return;                                                                                    \
    case DT_I16:                                                                                   \
        SCALE(to_t, int16_t);                                                                      \
        return;                                                                                    \
    case DT_I32:                                                                                   \
        SCALE(to_t, int32_t);                                                                      \
        return;                                                                                    \
    case DT_I64:                                                                                   \
        SCALE(to_t, int64_t);                                                                      \
        return;                                                                                    \
    case DT_U8:                                                                                    \
        SCALE(to_t, uint8_t);                                                                      \
        return;                                                                                    \
    case DT_U16:                                                                                   \
        SCALE(to_t, uint16_t);                                                                     \
        return;                                                                                    \
    case DT_U32:                                                                                   \
        SCALE(to_t, uint32_t);                                                                     \
        return;                                                                                    \
    case DT_U64:                                                                                   \
        SCALE(to_t, uint64_t);                                                                     \
        return;                                                                                    \
    case DT_F32:                                                                                   \
        SCALE(to_t, float);                                                                        \
        return;                                                                                    \
    case DT_F64:                                                                                   \
        SCALE(to_t, double);                                                                       \
        return;                                                                                    \
    default:                                                                                       \
        break;                                                                                     \
    }

/* Halves, which C has no type for. */
static void decode_slowly(const struct cf *cf, int64_t n, const unsigned char *p, unsigned char *q)
{
    size_t in = dtype_size(cf->raw), out = dtype_size(cf->dtype);
    for (int64_t i = 0; i < n; i++) {
        struct scalar s = {.dtype = cf->raw};
        memcpy(s.v.raw, p + (size_t)i * in, in);
        struct scalar y = scalar_cast(s, DT_F64);
        if (is_fill(cf, in, p + (size_t)i * in))
            y.v.f64 = NAN;
        y.v.f64 = y.v.f64 * cf->scale + cf->offset;
        y = scalar_cast(y, cf->dtype);
        memcpy(q + (size_t)i * out, y.v.raw, out);
    }
}

void cf_decode(const struct cf *cf, int64_t n, const void *from, void *to)
{
    const unsigned char *p = from;
    unsigned char *q = to;
    if (!cf->scaled && !cf->n_fills) { /* the bytes stay; a bool is 0 or 1 */
        size_t bytes = (size_t)n * dtype_size(cf->raw);
        memcpy(q, p, bytes);
        for (size_t i = 0; cf->dtype == DT_BOOL && i < bytes; i++)
            q[i] = q[i] != 0;
        return;
    }
    if (cf->dtype == DT_F32) {
        FROM(float)
    } else if (cf->dtype == DT_F64) {
        FROM(double)
    }
    decode_slowly(cf, n, p, q);
}

void cf_describe(struct json_writer *w, const struct cf *cf)
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
    json_close_object(w);
}
