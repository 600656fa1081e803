/* Sorted by insertion: there are at most MAX_RANK of them. */
#include "server/labels/label_dims.h"

#include <string.h>

/* How many names are less than this one. */
static int before(const struct label_dims *d, const char *name)
{
    int lo = 0, hi = d->n;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (strcmp(d->name[d->sorted[mid]], name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void label_dims_read(struct label_dims *d, struct json dims)
{
    *d = (struct label_dims){0};
    struct json x = json_first(dims);
    for (int k = 0; k < MAX_RANK && json_present(x); x = json_next(x), k++) {
        const char *name = json_text(x, &(size_t){0});
        if (!name)
            continue;
        const int i = before(d, name);
        memmove(d->sorted + i + 1, d->sorted + i, (size_t)(d->n - i) * sizeof *d->sorted);
        d->sorted[i] = k;
        d->name[k] = name;
        d->n++;
    }
}

int label_dims_axis(const struct label_dims *d, const char *name)
{
    const int i = before(d, name);
    return i < d->n && !strcmp(d->name[d->sorted[i]], name) ? d->sorted[i] : -1;
}
