/* Numbers are cast, and looked at again: what is not the same number has not fitted. Of a float the
 * nearest will do, but in fill values, which would mark other elements then. Names get underscores,
 * until nothing else has them. */
#include "server/reader/fit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/reader/link.h"

/* --- types --- */

/* Whether a number that has gone through decimal text means this float: that is so if the float,
 * printed with some number of digits, reads as that number. 1e20 means the float32 next to it; no
 * float32 is meant by 16777217 or 1e-60. */
static bool says(double number, double as_float)
{
    char text[32];
    bool same = number == as_float || (isnan(number) && isnan(as_float));
    for (int digits = 1; digits <= DBL_DECIMAL_DIG && !same; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, as_float);
        same = strtod(text, NULL) == number;
    }
    return same;
}

bool fit_is_same(struct scalar from, struct scalar to)
{
    const struct literal a = literal_from_scalar(from), b = literal_from_scalar(to);
    if (b.kind == LIT_FLOAT && a.kind == LIT_FLOAT)
        return says(a.re, b.re);
    if (b.kind == LIT_FLOAT)
        return (__int128)(double)a.i == a.i && says((double)a.i, b.re);
    if (a.kind == LIT_FLOAT) /* saturated, if it is larger than any integer here */
        return fabs(a.re) < 0x1p65 && (double)(__int128)a.re == a.re && (__int128)a.re == b.i;
    return a.i == b.i;
}

/* Whether a number can be the float nearest to it, which it cannot where that is an infinity. */
static bool is_near(struct scalar from, struct scalar to)
{
    const struct literal a = literal_from_scalar(from), b = literal_from_scalar(to);
    return !isinf(b.re) || (a.kind == LIT_FLOAT && isinf(a.re));
}

static bool is_fill(const struct attr *a)
{
    return strcmp(a->name, "_FillValue") == 0 || strcmp(a->name, "missing_value") == 0;
}

bool fit_attr(struct content *c, struct attr *a, enum dtype t)
{
    const size_t size = dtype_size(t);
    const bool near = dtype_is_real_float(t) && !is_fill(a);
    unsigned char *data = must(arena_alloc(c->arena, (size_t)a->n * size + 1));
    for (int64_t i = 0; i < a->n; i++) {
        const struct scalar from = attr_scalar(a, i), to = scalar_cast(from, t);
        if (!(near ? is_near : fit_is_same)(from, to))
            return false;
        memcpy(data + (size_t)i * size, to.v.raw, size);
    }
    a->dtype = (int)t;
    a->data = data;
    return true;
}

void fit_attrs(struct content *c, struct attrs *list, int elements)
{
    const bool numbers = elements != UNREAD && elements != DT_BOOL && elements != DT_BF16 &&
                         !dtype_is_complex((enum dtype)elements);
    for (struct attr *a = list->first; a; a = a->next) {
        if (a->dtype == UNREAD ||
            (numbers && attr_is_like_elements(a->name) && fit_attr(c, a, (enum dtype)elements)))
            continue;
        if (dtype_is_integer((enum dtype)a->dtype))
            (void)fit_attr(c, a, DT_I32);
    }
}

/* --- names --- */

bool fit_is_taken(const char *name, int rules)
{
    static const char *const names[] = {"CLASS",
                                        "NAME",
                                        "DIMENSION_LIST",
                                        "REFERENCE_LIST",
                                        "DIMENSION_LABELS",
                                        "_Netcdf4Dimid",
                                        "_Netcdf4Coordinates",
                                        "_nc3_strict",
                                        "_NCProperties",
                                        "_Format",
                                        "_IsNetcdf4",
                                        "_SuperblockVersion",
                                        "_Codecs"};
    /* the first two are for scales */
    for (size_t i = rules & FIT_SCALE ? 0 : 2; i < sizeof names / sizeof *names; i++)
        if (rules & FIT_LIBRARY && strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool is_word(unsigned char x)
{
    return x >= 0x80 || x == '_' || (x >= '0' && x <= '9') || ((x | 32) >= 'a' && (x | 32) <= 'z');
}

/* NetCDF's names begin with a letter, a digit or an underscore, have no '/', and do not end with a
 * space. */
static char *netcdf_name(struct content *c, const char *name)
{
    const size_t n = strlen(name);
    char *fit = content_text(c, name, n);
    for (char *slash = strchr(fit, '/'); slash; slash = strchr(slash, '/'))
        *slash = '_';
    if (n && !is_word((unsigned char)fit[0]))
        fit[0] = '_';
    if (n && fit[n - 1] == ' ')
        fit[n - 1] = '_';
    return fit;
}

void fit_attr_names(struct content *c, struct attrs *list, int rules)
{
    for (struct attr *a = list->first; a; a = a->next) {
        const char *name = rules & FIT_NETCDF ? netcdf_name(c, a->name) : a->name;
        if (fit_is_taken(name, rules))
            name = content_printf(c, "%s_", name);
        while (strcmp(name, a->name) != 0 && attr_find(list, name))
            name = content_printf(c, "%s_", name);
        a->name = name;
    }
}

/* What was called as a dimension still is. */
static void rename_dim(struct content *c, struct dim *dim, const char *name)
{
    for (size_t i = 0; i < c->n_variables; i++) {
        struct variable *v = c->variables[i];
        bool on = false;
        for (int d = 0; d < v->rank; d++)
            if (strcmp(v->dims[d], dim->name) == 0) {
                v->dims[d] = name;
                on = true;
            }
        if (on && strcmp(v->name, dim->name) == 0 && !content_find(c, name))
            v->name = name;
    }
    dim->name = name;
}

void fit_dim_names(struct content *c)
{
    for (struct dim *dim = c->dims; dim; dim = dim->next) {
        const char *slash = strrchr(dim->name, '/'), *last = slash ? slash + 1 : dim->name;
        const char *name = netcdf_name(c, last);
        if (strcmp(name, last) == 0)
            continue;
        name = content_printf(c, "%.*s%s", (int)(last - dim->name), dim->name, name);
        while (content_find_dim(c, name))
            name = content_printf(c, "%s_", name);
        rename_dim(c, dim, name);
    }
}
