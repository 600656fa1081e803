/* The names of an array's axes, from a list of them: looked up once, so that following thousands of
 * coordinates takes no longer than reading them.
 *
 * Called by labels.c and labels_read.c. Pure; borrows the list's texts. */
#ifndef ARRAYD_SERVER_LABEL_DIMS_H
#define ARRAYD_SERVER_LABEL_DIMS_H

#include "compute/type/layout.h"
#include "protocol/json/json.h"

struct label_dims {
    const char *name[MAX_RANK]; /* by axis; NULL: it has none */
    int n;
    int sorted[MAX_RANK]; /* the n axes that have a name, by their names */
};

/* `dims`: a list of strings and nulls, or absent. Axes from MAX_RANK on are not there. */
void label_dims_read(struct label_dims *d, struct json dims);
/* −1: no axis has the name. */
int label_dims_axis(const struct label_dims *d, const char *name);

#endif
