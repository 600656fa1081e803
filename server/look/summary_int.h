/* Shared by summary.c (the request, one expression, the reply) and summary_exact.c (the search for
 * percentiles). */
#ifndef ARRAYD_SERVER_SUMMARY_INT_H
#define ARRAYD_SERVER_SUMMARY_INT_H

#include "server/body/condition.h"
#include "server/look/look.h"
#include "server/store/handles.h"

/* One of the two elements, in order of size, that a percentile lies between. It is the least whose
 * key is `least` or more of which at least rank + 1 elements are no greater. */
struct summary_search {
    double rank;
    uint64_t least, most; /* keys: the order of the values */
};

struct summary {
    struct look look;
    struct handle handle;
    struct array *a;  /* the selected elements */
    enum dtype dtype; /* of the values: for complex numbers their absolute values' */
    uint64_t version;
    char etag[ETAG_MAX]; /* "": none */

    /* the query */
    int64_t bins;
    double lo, hi;
    bool has_lo, has_hi, exact;
    double *percents;
    size_t n_percents;

    /* what the pass found */
    int lanes, lane_bits; /* bins that one sum counts */
    double finite, nan, inf, minus_inf, mean, std, below, above;
    struct scalar least, most;
    double *counts;
    double *values, *errors; /* by percentile */

    struct summary_search *searches; /* two for each percentile */
    size_t n_searches;
    uint64_t *asked; /* the keys of this pass */
    size_t n_asked;
};

void summary_write(struct summary *s);
/* Fills `values`, then calls summary_write. */
void summary_search(struct summary *s);

#endif
