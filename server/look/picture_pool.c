/* Every pixel has a window of elements: along an axis of n elements pixel i of m has those from
 * floor(i·n/m) on, up to those of the next pixel, and at least one. Where all windows have one
 * size, they are axes of a reshaped view, and one kernel reads the array once. Otherwise rows are
 * gathered and pooled, then columns; indices are computed on the device, and those past a window's
 * end are its last, which a maximum does not see and a mean leaves out.
 *
 * An axis with fewer elements than pixels has windows of one element. It is enlarged at the end,
 * when the other axis has no more than its pixels: what lies between the array and the picture has
 * never more values than one of them. */
#include <string.h>

#include "server/look/picture_int.h"

static bool is_narrow(enum dtype t)
{
    return dtype_is_complex(t) ? t == DT_C64
                               : t != DT_F64 && dtype_size(t) < (dtype_is_real_float(t) ? 8 : 4);
}

/* What is read becomes a value behind the reading: before it, all of the array would be kept
 * converted, which may be four times as large. */
struct conversion {
    const char *before, *after;
};

static struct conversion conversion_of(const struct picture *s)
{
    const enum dtype t = s->a->dtype;
    const bool narrow = is_narrow(t);
    if (s->pool == POOL_MEAN && dtype_is_complex(t))
        return (struct conversion){"astype(abs(", narrow ? "),'float32')" : "),'float64')"};
    if (s->pool == POOL_MEAN)
        return (struct conversion){"astype(", narrow ? ",'float32')" : ",'float64')"};
    if (dtype_is_complex(t))
        return (struct conversion){"abs(", ")"};
    if (t == DT_BOOL)
        return (struct conversion){"astype(", ",'uint8')"};
    return (struct conversion){"", ""};
}

static bool reduces(const struct picture *s, int axis)
{
    return s->a->view.shape[axis] > (axis ? s->width : s->height);
}

static enum err_code windows(struct picture *s, int axis, struct err *e)
{
    struct look *l = &s->look;
    const long long from = s->a->view.shape[axis], to = axis ? s->width : s->height;
    const char *i = axis ? "xc" : "yc", *j = axis ? "xj" : "yj", c = axis ? 'x' : 'y';
    char name[3] = {c, '0'};
    TRY(look_count(l, i, to, e));
    TRY(look_count(l, j, (from + to - 1) / to, e));
    look_let(l, name, "(%s*%lld)//%lld", i, from, to);
    name[1] = '1';
    look_let(l, name, "((%s+1)*%lld)//%lld", i, from, to);
    name[1] = 'i';
    look_let(l, name, "minimum(%c0[:,None]+%s[None,:],(%c1-1)[:,None])", c, j, c);
    name[1] = 'm';
    look_let(l, name, "%c0[:,None]+%s[None,:]<%c1[:,None]", c, j, c);
    name[1] = 'n';
    look_let(l, name, "astype(%c1-%c0,'float64')", c, c);
    return ERR_OK;
}

/* *name: what has been defined so far, and then what this defines. */
static enum err_code reduce(struct picture *s, int axis, const char **name, struct err *e)
{
    struct look *l = &s->look;
    static const char *const to[] = {"r", "q"};
    const bool first = strcmp(*name, "a") == 0;
    const struct conversion k = first ? conversion_of(s) : (struct conversion){"", ""};
    const char c = axis ? 'x' : 'y';
    if (!reduces(s, axis))
        return ERR_OK;
    TRY(windows(s, axis, e));
    if (s->pool == POOL_MEAN)
        look_let(l, to[axis],
                 "sum(where(%cm[%s:,:%s%s],%stake(%s,%ci,axis=%d,mode='clip')%s,0),axis=%d)", c,
                 axis ? "None," : "", axis ? "" : ",None", s->channels > 1 ? ",None" : "", k.before,
                 *name, c, axis, k.after, axis + 1);
    else
        look_let(l, to[axis], "%s(%stake(%s,%ci,axis=%d,mode='clip')%s,axis=%d)",
                 s->pool == POOL_MAX ? "max" : "min", k.before, *name, c, axis, k.after, axis + 1);
    *name = to[axis];
    return ERR_OK;
}

/* A sum becomes a mean. */
static const char *divide(struct picture *s, const char *name)
{
    const bool rows = reduces(s, 0), columns = reduces(s, 1);
    const char *more = s->channels > 1 ? ",None" : "";
    if (rows && columns)
        look_let(&s->look, "m", "%s/(yn[:,None%s]*xn[None,:%s])", name, more, more);
    else if (rows)
        look_let(&s->look, "m", "%s/yn[:,None%s]", name, more);
    else if (columns)
        look_let(&s->look, "m", "%s/xn[None,:%s]", name, more);
    return rows || columns ? "m" : name;
}

static enum err_code enlarge(struct picture *s, int axis, const char **name, struct err *e)
{
    static const char *const to[] = {"f", "g"}, *const counts[] = {"yc", "xc"};
    const int64_t from = s->a->view.shape[axis], pixels = axis ? s->width : s->height;
    if (from >= pixels)
        return ERR_OK;
    TRY(look_count(&s->look, counts[axis], pixels, e));
    look_let(&s->look, to[axis], "take(%s,(%s*%lld)//%lld,axis=%d,mode='clip')", *name,
             counts[axis], (long long)from, (long long)pixels, axis);
    *name = to[axis];
    return ERR_OK;
}

static enum err_code gathered(struct picture *s, struct err *e)
{
    const struct conversion k = conversion_of(s);
    const char *name = "a";
    for (int axis = 0; axis < 2; axis++)
        TRY(reduce(s, axis, &name, e));
    if (s->pool == POOL_MEAN)
        name = divide(s, name);
    for (int axis = 0; axis < 2; axis++)
        TRY(enlarge(s, axis, &name, e));
    if (reduces(s, 0) || reduces(s, 1))
        look_let(&s->look, "v", "%s", name);
    else
        look_let(&s->look, "v", "%s%s%s", k.before, name, k.after);
    return ERR_OK;
}

/* The element in the middle of each window. */
static enum err_code nearest(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    static const char *const to[] = {"r", "q"}, *const counts[] = {"yc", "xc"};
    const int64_t *n = s->a->view.shape, pixels[] = {s->height, s->width};
    const int first = n[0] < s->height; /* columns, where rows are enlarged */
    const struct conversion c = conversion_of(s);
    const char *name = "a";
    for (int k = 0; k < 2; k++) {
        const int axis = k ? !first : first;
        TRY(look_count(l, counts[axis], pixels[axis], e));
        look_let(l, to[axis], "take(%s,((2*%s+1)*%lld)//%lld,axis=%d,mode='clip')", name,
                 counts[axis], (long long)n[axis], 2 * (long long)pixels[axis], axis);
        name = to[axis];
    }
    look_let(l, "v", "%s%s%s", c.before, name, c.after);
    return ERR_OK;
}

enum err_code picture_pool(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    const int64_t *n = s->a->view.shape, h = s->height, w = s->width;
    const bool narrow = is_narrow(s->a->dtype), even = n[0] % h == 0 && n[1] % w == 0;
    const long long f = n[0] / h, g = n[1] / w;
    static const char *const functions[] = {"mean", "max", "min"};
    const struct conversion k = conversion_of(s);
    if (n[0] == h && n[1] == w)
        look_let(l, "v", "%sa%s", k.before, k.after);
    else if (even && s->pool == POOL_NEAREST)
        look_let(l, "v", "%sa[%lld::%lld,%lld::%lld]%s", k.before, f / 2, f, g / 2, g, k.after);
    else if (even)
        look_let(l, "v", "%s(%sreshape(a,[%lld,%lld,%lld,%lld%s])%s,[1,3])", functions[s->pool],
                 k.before, (long long)h, f, (long long)w, g,
                 s->channels == 3   ? ",3"
                 : s->channels == 4 ? ",4"
                                    : "",
                 k.after);
    else
        TRY(s->pool == POOL_NEAREST ? nearest(s, e) : gathered(s, e));
    const char *p = narrow ? "astype(v,'float32')" : "astype(v,'float64')";
    if (s->given) {
        look_let(l, "p", "%s", p);
        return ERR_OK;
    }
    TRY(look_keep(l, "p", p, e));
    look_clear(l);
    return ERR_OK;
}
