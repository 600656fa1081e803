/*
 * How arrays look: figures of their elements, and pictures. The device makes both, and only they
 * are sent. arrayd.h, which includes this, has what holds of all functions.
 */
#ifndef ARRAYD_LOOKS_H
#define ARRAYD_LOOKS_H

#include <arrayd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- figures --- */

/*
 * Figures of an array's elements or of a region's. Those of complex numbers are of their absolute
 * values. Where no element is finite, `min` and `max` have the type ARRAYD_NONE, and `mean` and
 * `std` are NaN.
 */
struct arrayd_summary {
    int64_t count;
    int64_t finite; /* of them, neither NaN nor infinite */
    int64_t nan;
    int64_t inf;
    int64_t minus_inf;
    struct arrayd_scalar min; /* of the finite ones, here and below */
    struct arrayd_scalar max;
    double mean;
    double std;
    double lo; /* the ends of the histogram */
    double hi;
    int64_t below; /* elements before its first bin, */
    int64_t above; /* behind its last */
};

ARRAYD_API int arrayd_summary(struct arrayd *client, const char *ref, const char *index,
                              struct arrayd_summary *ret_summary, struct arrayd_error *err);

/*
 * Counts elements in `bins` bins of equal width, from range[0] to range[1], or from the least to
 * the greatest with NULL. *ret_summary has the ends, and may be NULL.
 */
ARRAYD_API int arrayd_histogram(struct arrayd *client, const char *ref, const char *index,
                                const double *range, size_t bins, int64_t *ret_counts,
                                struct arrayd_summary *ret_summary, struct arrayd_error *err);

struct arrayd_percentile {
    double percent; /* the caller's, 0 to 100: which one is asked for */
    double value;   /* NaN where no element is finite */
    double error;   /* how far the value may be off */
};

/*
 * Fills in `count` percentiles. With `exact` their errors are 0, which may take the device many
 * passes over the elements.
 */
ARRAYD_API int arrayd_percentiles(struct arrayd *client, const char *ref, const char *index,
                                  bool exact, struct arrayd_percentile *percentiles, size_t count,
                                  struct arrayd_error *err);

/* --- pictures --- */

/* How a picture looks; all may be left 0. */
struct arrayd_picture {
    const char *index;      /* a region of two axes; of a third, 3 or 4 elements are colours */
    const char *cmap;       /* "viridis", ...: docs/data.md; NULL: grey */
    const double *range;    /* the values of the first and the last colour; NULL: least, greatest */
    const double *percents; /* or two percentiles instead */
    int width;              /* pixels; 0: of the elements' proportions */
    int height;             /* ... */
    const char *pool; /* "mean", "max", "min" or "nearest" of a pixel's elements; NULL: mean */
    bool bar;         /* a colour bar on the right */
};

/* Writes a picture of an array to `file` as PNG. The file stays open, and is flushed. how may be
 * NULL. */
ARRAYD_API int arrayd_save_png(struct arrayd *client, const char *ref,
                               const struct arrayd_picture *how, FILE *file,
                               struct arrayd_error *err);

/* The same of an expression's result, whose region the expression itself says; no array is made. */
ARRAYD_API int arrayd_evaluate_png(struct arrayd *client, const struct arrayd_expr *expr,
                                   const struct arrayd_picture *how, FILE *file,
                                   struct arrayd_error *err);

#ifdef __cplusplus
}
#endif
#endif
