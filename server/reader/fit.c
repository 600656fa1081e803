/* Numbers are cast, and looked at again: what is not the same number has not fitted. */
#include "server/reader/fit.h"

#include <math.h>
#include <string.h>

#include "server/reader/link.h"

/* Whether a number is still itself after scalar_cast. Not even the nearest float is, where that is
 * an infinity. */
static bool survives(struct scalar from, struct scalar to)
{
    const struct literal a = literal_from_scalar(from), b = literal_from_scalar(to);
    if (b.kind == LIT_FLOAT)
        return !isinf(b.re) || (a.kind == LIT_FLOAT && isinf(a.re));
    if (a.kind == LIT_FLOAT) /* saturated, if it is larger than any integer here */
        return fabs(a.re) < 0x1p65 && (double)(__int128)a.re == a.re && (__int128)a.re == b.i;
    return a.i == b.i;
}

bool fit_attr(struct content *c, struct attr *a, enum dtype t)
{
    const size_t size = dtype_size(t);
    unsigned char *data = must(arena_alloc(c->arena, (size_t)a->n * size + 1));
    for (int64_t i = 0; i < a->n; i++) {
        const struct scalar from = attr_scalar(a, i), to = scalar_cast(from, t);
        if (!survives(from, to))
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
