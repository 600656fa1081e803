/* Shapes, strides and the meaning of index strings: pure geometry, no memory behind it.
 *
 * A view is (shape, strides, offset) in elements over some buffer. Called by array, check, lower
 * and the backends. Value types, thread-safe. Element counts and byte sizes are int64 and
 * overflow-checked; every product that leaves this module fits int64 in bytes. */
#ifndef ARRAYD_LAYOUT_H
#define ARRAYD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"

#define MAX_RANK 32

struct view {
    int rank;
    int64_t shape[MAX_RANK];   /* extents, ≥ 0 */
    int64_t strides[MAX_RANK]; /* elements; may be 0 or negative */
    int64_t offset;            /* element [0,…,0], from the buffer's start, ≥ 0 */
};

/* NumPy basic indexing, as written: "1:-1, ::2, 3, None, ..." */
enum index_kind { INDEX_INT, INDEX_SLICE, INDEX_NEWAXIS, INDEX_ELLIPSIS };
struct index_item {
    enum index_kind kind;
    bool has_start, has_stop, has_step;
    int64_t start, stop, step; /* INDEX_INT: start */
};
#define INDEX_MAX_ITEMS (2 * MAX_RANK + 1)
struct index_spec {
    int n;
    struct index_item items[INDEX_MAX_ITEMS];
};

/* A contiguous C-order view of the shape. ERR_BAD_SHAPE for rank > 32, a negative extent, or more
 * than INT64_MAX bytes at `itemsize` (an extent of 0 elsewhere does not excuse an overflow). */
enum err_code view_contiguous(int rank, const int64_t *shape, size_t itemsize, struct view *ret,
                              struct err *e) must_check;

int64_t view_size(const struct view *v);       /* elements */
bool view_is_contiguous(const struct view *v); /* C order; extents 0 and 1 match any stride */
bool view_same_shape(const struct view *a, const struct view *b);

/* An index spec resolved for a shape, as a map from the result's index i to the source's: along
 * source axis k it is start[k] + step[k]·i[r] with axis[r] = k, or start[k] where no r names k. */
struct index_map {
    int rank; /* of the result */
    int64_t shape[MAX_RANK];
    int8_t axis[MAX_RANK]; /* by result axis: the source's axis, or -1 for a new one */
    int64_t start[MAX_RANK], step[MAX_RANK]; /* by source axis; step 1 for an integer index */
};

/* Errors as view_index. If the result is empty, the starts are meaningless. */
enum err_code index_resolve(int rank, const int64_t *shape, const struct index_spec *ix,
                            struct index_map *ret, struct err *e) must_check;

/* The view that NumPy's basic indexing gives. ERR_BAD_INDEX: too many indices, integer out of
 * range, step 0, two ellipses; ERR_BAD_SHAPE when the result's rank exceeds 32. */
enum err_code view_index(const struct view *v, const struct index_spec *ix, struct view *ret,
                         struct err *e) must_check;

/* As np.transpose(axes); negative axes count from the end. ERR_BAD_AXIS unless a permutation. */
enum err_code view_permute(const struct view *v, int n, const int64_t *axes, struct view *ret,
                           struct err *e) must_check;

/* The same elements in C order under another shape (one extent may be -1) without moving memory.
 * ERR_SHAPE_MISMATCH when sizes differ, ERR_NOT_A_VIEW when it would need a copy. */
enum err_code view_reshape(const struct view *v, int rank, const int64_t *shape, struct view *ret,
                           struct err *e) must_check;

/* NumPy broadcasting of one view to a shape (stride 0 along stretched axes). ERR_SHAPE_MISMATCH. */
enum err_code view_broadcast_to(const struct view *v, int rank, const int64_t *shape,
                                struct view *ret, struct err *e) must_check;

/* The same memory under another element size (bit view, as ndarray.view(dtype)): sizes equal, or
 * the last axis contiguous and rescaled. ERR_NOT_A_VIEW where NumPy refuses. */
enum err_code view_reinterpret(const struct view *v, size_t old_size, size_t new_size,
                               struct view *ret, struct err *e) must_check;

/* Broadcast of two shapes into ret_shape (MAX_RANK long). ERR_SHAPE_MISMATCH naming both. */
enum err_code shape_broadcast(int ra, const int64_t *a, int rb, const int64_t *b, int *ret_rank,
                              int64_t *ret_shape, struct err *e) must_check;

/* First and one-past-last element touched, from the buffer's start; both 0 when empty. */
void view_extent(const struct view *v, int64_t *ret_lo, int64_t *ret_hi);

/* Whether two elements of the view may share an address (stride 0, or folded strides). Conservative
 * only for shapes that no basic view can have. */
bool view_self_overlaps(const struct view *v);

/* --- padded arrays: arrays with ghosts, and arrays made congruent (with equal strides) --- */

#define ROW_ELEMENTS 16 /* interior rows begin at multiples of this */

/* The extents of a buffer for an interior and its ghosts: shape + 2·ghost, the innermost rounded up
 * to ROW_ELEMENTS. For several arrays: pass the largest shape and the largest ghosts along each
 * axis. ERR_BAD_SHAPE if a sum exceeds 64 bits. */
enum err_code padded_extents(int rank, const int64_t *shape, const int64_t *ghost,
                             int64_t *ret_padded, struct err *e) must_check;

/* The view of such an interior in a buffer of those extents. Its first element is at a multiple of
 * ROW_ELEMENTS and of `alignment` bytes (a power of two), and every row at a multiple of
 * ROW_ELEMENTS; *ret_elements: the size of the buffer. ERR_SHAPE_MISMATCH if the interior and its
 * ghosts do not fit, ERR_BAD_SHAPE unless the innermost extent is a multiple of ROW_ELEMENTS and
 * the byte count fits. */
enum err_code view_padded(int rank, const int64_t *shape, const int64_t *ghost,
                          const int64_t *padded, size_t itemsize, int64_t alignment,
                          struct view *ret, int64_t *ret_elements, struct err *e) must_check;

/* Formats a shape as "(2, 3)" into buf; returns buf. */
const char *shape_text(int rank, const int64_t *shape, char *buf, size_t n);
#define SHAPE_TEXT_MAX 256

#endif
