/* Axes are followed by the same rules as their elements (layout.h). An axis that a reshape may have
 * kept is not looked for: with extents that occur twice that would be a guess. */
#include "server/labels/label_axes.h"

void label_axes_own(struct label_axes *a, int rank)
{
    a->n = rank;
    for (int k = 0; k < rank; k++) {
        a->from[k] = k;
        a->whole[k] = true;
    }
}

static void new_axis(struct label_axes *a, int k)
{
    a->from[k] = -1;
    a->whole[k] = false;
}

void label_axes_index(struct label_axes *a, const struct view *was, const struct index_spec *ix)
{
    const struct label_axes old = *a;
    struct index_map map;
    struct err e = ERR_INIT;
    if (index_resolve(was->rank, was->shape, ix, &map, &e) != ERR_OK)
        return; /* the caller has resolved it before */
    a->n = map.rank;
    for (int r = 0; r < map.rank; r++) {
        const int k = map.axis[r];
        if (k < 0) {
            new_axis(a, r);
            continue;
        }
        a->from[r] = old.from[k];
        a->whole[r] = old.whole[k] && map.shape[r] == was->shape[k] &&
                      (map.step[k] == 1 || map.shape[r] <= 1);
    }
}

void label_axes_permute(struct label_axes *a, const int64_t *order)
{
    const struct label_axes old = *a;
    for (int r = 0; r < a->n; r++) {
        const int k = (int)(order[r] < 0 ? order[r] + a->n : order[r]);
        a->from[r] = old.from[k];
        a->whole[r] = old.whole[k];
    }
}

void label_axes_stretch(struct label_axes *a, const struct view *was, const struct view *is)
{
    const struct label_axes old = *a;
    const int more = is->rank - was->rank;
    a->n = is->rank;
    for (int r = 0; r < is->rank; r++) {
        const int k = r - more;
        if (k < 0) {
            new_axis(a, r);
            continue;
        }
        a->from[r] = old.from[k];
        a->whole[r] = old.whole[k] && was->shape[k] == is->shape[r];
    }
}

void label_axes_reshape(struct label_axes *a, const struct view *was, const struct view *is)
{
    if (view_same_shape(was, is))
        return;
    a->n = is->rank;
    for (int r = 0; r < is->rank; r++)
        new_axis(a, r);
}
