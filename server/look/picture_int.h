/* Shared by picture.c (the request and its stages) and picture_pool.c (from elements to pixels). */
#ifndef ARRAYD_SERVER_PICTURE_INT_H
#define ARRAYD_SERVER_PICTURE_INT_H

#include "server/body/condition.h"
#include "server/look/look.h"
#include "server/store/handles.h"

enum pool { POOL_MEAN, POOL_MAX, POOL_MIN, POOL_NEAREST };

/* The end of the range that is searched for as a percentile. */
struct picture_end {
    double rank, least, most;
};

struct picture {
    struct look look;
    struct handle handle; /* array NULL: of a result */
    struct array *a;      /* the selected elements */
    int channels;         /* 1: by the colour map, 3 and 4: the array's own */

    /* the query */
    int map, pool;
    int64_t width, height;
    double lo, hi, percents[2];
    bool has_lo, has_hi, bar;
    bool given; /* the range does not depend on the pixels */
    bool whole; /* as was seen with the range, no pixel is without a colour: they are a byte each */
    size_t n_percents;

    struct picture_end ends[2];
    double minus_inf;
    int passes;
    char etag[ETAG_MAX]; /* "": none */
};

/* The pixels' values as the look's p: (height, width) or (height, width, channels), float32 or
 * float64. An array, unless the next expression that is run is the only one that needs them. */
enum err_code picture_pool(struct picture *s, struct err *e) must_check;

#endif
