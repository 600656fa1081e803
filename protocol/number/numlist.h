/* An array's elements as nested JSON lists, piece by piece: for `GET …/data` as JSON and for inline
 * results.
 *
 * Called by the handlers. The cursor is a plain struct without memory of its own; the elements must
 * stay until it is done. Not thread-safe. */
#ifndef ARRAYD_NUMLIST_H
#define ARRAYD_NUMLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/strb.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

#define NUMLIST_MIN 256 /* smallest buffer numlist_next works with */

struct numlist {
    enum dtype dtype;
    struct view view;
    const unsigned char *base;
    int64_t index[MAX_RANK];
    int level; /* lists open now */
    bool done;
};

/* Starts at the first element. `base` is the host address of element 0 of the view's buffer. */
void numlist_init(struct numlist *l, enum dtype dtype, const struct view *view, const void *base);

/* Writes the next piece, at most cap (≥ NUMLIST_MIN) bytes, and returns its length; 0: complete. */
size_t numlist_next(struct numlist *l, char *buf, size_t cap);

/* Length of the whole text, without storing it. */
uint64_t numlist_length(enum dtype dtype, const struct view *view, const void *base);

/* The whole text, for small arrays. One without elements but with more than NUMLIST_EMPTY_MAX bytes
 * of brackets ((2^40, 0)) fails the builder. */
#define NUMLIST_EMPTY_MAX (16u << 20)
void numlist_add(struct strb *out, enum dtype dtype, const struct view *view, const void *base);

#endif
