/* Every pixel has a window of elements: along an axis of n elements pixel i of m has those from
 * floor(i·n/m) on, up to those of the next pixel, and at least one. Where all windows have one
 * size, they are axes of a reshaped view, and one kernel reads the array once. Otherwise rows are
 * gathered and pooled, then columns; indices are computed on the device, and those past a window's
 * end are its last, which a maximum does not see and a mean leaves out. */
#include "server/look/picture_int.h"

static bool is_narrow(enum dtype t)
{
    return dtype_is_complex(t) ? t == DT_C64
                               : t != DT_F64 && dtype_size(t) < (dtype_is_real_float(t) ? 8 : 4);
}

static enum err_code windows(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    const int64_t *n = s->a->view.shape;
    const int64_t m[2] = {s->height, s->width};
    static const char *const counts[2] = {"yc", "xc"}, *const inner[2] = {"yj", "xj"};
    for (int k = 0; k < 2; k++) {
        const long long from = n[k], to = m[k];
        const char *i = counts[k], *j = inner[k], c = k ? 'x' : 'y';
        char name[3] = {c, '0'};
        TRY(look_count(l, i, to, e));
        TRY(look_count(l, j, (from + to - 1) / to, e));
        look_let(l, name, "(%s*%lld)//%lld", i, from, to);
        name[1] = '1';
        look_let(l, name, "maximum(((%s+1)*%lld)//%lld,%c0+1)", i, from, to, c);
        name[1] = 'i';
        look_let(l, name, "minimum(%c0[:,None]+%s[None,:],(%c1-1)[:,None])", c, j, c);
        name[1] = 'm';
        look_let(l, name, "%c0[:,None]+%s[None,:]<%c1[:,None]", c, j, c);
        name[1] = 'n';
        look_let(l, name, "astype(%c1-%c0,'float64')", c, c);
    }
    return ERR_OK;
}

static enum err_code gathered(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    const bool colours = s->channels > 1;
    TRY(windows(s, e));
    if (s->pool == POOL_MEAN) {
        look_let(l, "d", is_narrow(s->a->dtype) ? "astype(x,'float32')" : "astype(x,'float64')");
        look_let(l, "r", "sum(where(ym[:,:,None%s],take(d,yi,axis=0,mode='clip'),0),axis=1)",
                 colours ? ",None" : "");
        look_let(l, "q", "sum(where(xm[None,:,:%s],take(r,xi,axis=1,mode='clip'),0),axis=2)",
                 colours ? ",None" : "");
        look_let(l, "v", "q/%s",
                 colours ? "(yn[:,None,None]*xn[None,:,None])" : "(yn[:,None]*xn[None,:])");
    } else {
        const char *f = s->pool == POOL_MAX ? "max" : "min";
        look_let(l, "r", "%s(take(x,yi,axis=0,mode='clip'),axis=1)", f);
        look_let(l, "v", "%s(take(r,xi,axis=1,mode='clip'),axis=2)", f);
    }
    return ERR_OK;
}

/* The element in the middle of each window. */
static enum err_code nearest(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    const int64_t *n = s->a->view.shape;
    TRY(look_count(l, "yc", s->height, e));
    TRY(look_count(l, "xc", s->width, e));
    look_let(l, "r", "take(x,((2*yc+1)*%lld)//%lld,axis=0,mode='clip')", (long long)n[0],
             2 * (long long)s->height);
    look_let(l, "v", "take(r,((2*xc+1)*%lld)//%lld,axis=1,mode='clip')", (long long)n[1],
             2 * (long long)s->width);
    return ERR_OK;
}

enum err_code picture_pool(struct picture *s, struct err *e)
{
    struct look *l = &s->look;
    const int64_t *n = s->a->view.shape, h = s->height, w = s->width;
    const bool narrow = is_narrow(s->a->dtype), even = n[0] % h == 0 && n[1] % w == 0;
    const long long f = n[0] / h, g = n[1] / w;
    static const char *const functions[] = {"mean", "max", "min"};
    look_let(l, "x",
             dtype_is_complex(s->a->dtype) ? "abs(a)"
             : s->a->dtype == DT_BOOL      ? "astype(a,'uint8')"
                                           : "a");
    if (n[0] == h && n[1] == w)
        look_let(l, "v", "x");
    else if (even && s->pool == POOL_NEAREST)
        look_let(l, "v", "x[%lld::%lld,%lld::%lld]", f / 2, f, g / 2, g);
    else if (even)
        look_let(l, "v", "%s(reshape(%s,[%lld,%lld,%lld,%lld%s]),[1,3])", functions[s->pool],
                 s->pool != POOL_MEAN ? "x"
                 : narrow             ? "astype(x,'float32')"
                                      : "astype(x,'float64')",
                 (long long)h, f, (long long)w, g,
                 s->channels == 3   ? ",3"
                 : s->channels == 4 ? ",4"
                                    : "");
    else
        TRY(s->pool == POOL_NEAREST ? nearest(s, e) : gathered(s, e));
    TRY(look_keep(l, "p", narrow ? "astype(v,'float32')" : "astype(v,'float64')", e));
    look_clear(l);
    return ERR_OK;
}
