/* Where the axes of a view come from, followed through the steps that make it.
 *
 * Called by the handlers of views and by labels.c. Pure; thread-safe. */
#ifndef ARRAYD_SERVER_LABEL_AXES_H
#define ARRAYD_SERVER_LABEL_AXES_H

#include <stdbool.h>

#include "compute/type/layout.h"

struct label_axes {
    int n;
    int from[MAX_RANK];   /* the array's axis, −1: none of them */
    bool whole[MAX_RANK]; /* with the same elements in the same order */
};

/* The array's own axes. */
void label_axes_own(struct label_axes *a, int rank);
/* One step each, which has turned a view of shape `was` into another. */
void label_axes_index(struct label_axes *a, const struct view *was, const struct index_spec *ix);
void label_axes_permute(struct label_axes *a, const int64_t *order);
/* The axes stay, perhaps with other extents, in front of which there may be new ones. */
void label_axes_stretch(struct label_axes *a, const struct view *was, const struct view *is);
/* Axes of another shape are new ones. */
void label_axes_reshape(struct label_axes *a, const struct view *was, const struct view *is);

#endif
