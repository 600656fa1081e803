/* How a region of a variable is cut into pieces that are read one after another, and how a piece is
 * found in a file whose elements lie one after another.
 *
 * Called by read and by the formats. Pure functions over value types. */
#ifndef ARRAYD_READER_PIECES_H
#define ARRAYD_READER_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/type/layout.h"

/* Elements start + i·step, 0 ≤ i < count, along each axis. */
struct region {
    int rank;
    int64_t start[MAX_RANK], count[MAX_RANK], step[MAX_RANK];
};

/* A region is read in C order: axes before `axis` one index after another, along `axis` up to
 * `rows` at a time, axes after it whole. So each piece is contiguous in the result. */
struct pieces {
    struct region of;
    int axis;
    int64_t rows;
    int64_t chunk;        /* along axis: pieces end where a chunk ends, if there is such an end */
    int64_t at[MAX_RANK]; /* where the next piece begins */
    bool ended;
};

/* Pieces of at most `budget` bytes, or of one element. `chunks` (NULL: none) are the extents in
 * which the file is stored, each of which is best read once. *ret_again (unless NULL) says how
 * often a chunk is read at most. */
void pieces_plan(const struct region *of, const int64_t *chunks, int64_t elem, int64_t budget,
                 struct pieces *ret, int64_t *ret_again);

/* The next piece as a region of the variable, and its elements; false when there is none. */
bool pieces_next(struct pieces *p, struct region *ret, int64_t *ret_size);

int64_t region_size(const struct region *r);

/* The runs of a region in a variable of this shape whose elements lie in C order: for each, the
 * first element and how many follow one another in the file, `step` apart. Ascending. */
struct runs {
    struct region of;
    int64_t strides[MAX_RANK];
    int64_t i[MAX_RANK];
    int inner; /* axes from here on are one run */
    bool ended;
};
struct run {
    int64_t first, count, step; /* of the file, in elements */
};
void runs_begin(const struct region *of, const int64_t *shape, struct runs *ret);
bool runs_next(struct runs *r, struct run *ret);

/* Chunks of about `bytes` for elements of `elem` bytes that are written in C order: whole rows, so
 * that one after the other is complete. No extent is 0. */
void chunk_rows(int rank, const int64_t *shape, int64_t elem, int64_t bytes, int64_t *ret);

/* Consecutive elements [*at, end) of an array of this shape as boxes, one a call: the first box is
 * as large as one can be. Advances *at by the box's elements; false at the end. */
bool span_next(int rank, const int64_t *shape, int64_t *at, int64_t end, struct region *ret);

#endif
