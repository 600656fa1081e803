/* An array's description as a grid: ghost widths, boundary conditions, spacing, padding.
 *
 * Only a description; the cells are elements of the array's buffer around its view. An array
 * without any of these has no grid (NULL). Filled in by server/, kept by arrays and their bindings,
 * used by the checker (modes `ghost` and `array`) and ghost.c. Immutable once grid_new has made it
 * and reference-counted, so that threads may share it; to change it, make a new one. */
#ifndef ARRAYD_GRID_H
#define ARRAYD_GRID_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

#define GRID_ALIGNMENT     64 /* the default */
#define GRID_MAX_ALIGNMENT 4096

/* What lies behind a face. With φ_k the k-th cell before it (1: at the face) the k-th ghost is
 *   FACE_DIRICHLET  2·value − φ_k
 *   FACE_NEUMANN    φ_k ∓ (2k−1)·spacing·value: − on the low face, + on the high one
 *   FACE_PERIODIC   the wrapped cell; both faces of an axis have it or neither
 *   FACE_NONE       what was written there; mode `array` reads the edge cell instead */
enum face_type { FACE_NONE, FACE_DIRICHLET, FACE_NEUMANN, FACE_PERIODIC };
enum { FACE_LOW, FACE_HIGH };
struct face {
    enum face_type type;
    double re, im; /* value; im is 0 unless the array is complex */
};

struct grid {
    _Atomic uint32_t refs;
    int rank;
    bool has_boundary; /* one was given; else every face is FACE_NONE */
    bool is_padded;    /* storage has extents `padded` */
    bool whole;        /* the array's elements are interior and ghosts: its shape counts both */
    int64_t alignment; /* bytes, a power of two: of the interior's place in the storage */
    int64_t ghost[MAX_RANK];
    int64_t padded[MAX_RANK];
    double spacing[MAX_RANK];
    struct face face[MAX_RANK][2];
};

/* Sets spacing 1, the default alignment, and nothing else. */
void grid_init(struct grid *g, int rank);
/* Copies a description, with one reference. NULL without memory. */
struct grid *grid_new(const struct grid *description);
struct grid *grid_ref(struct grid *g); /* NULL allowed; returns g */
void grid_unref(struct grid *g);       /* NULL allowed */

bool grid_has_ghosts(const struct grid *g); /* NULL allowed */
/* The alignment of an array with view v and elements of `itemsize` bytes: its grid's (NULL: the
 * default) or, for a part of an array, the alignment that the part still has. */
int64_t grid_alignment(const struct grid *g, const struct view *v, size_t itemsize);
/* Whether the grid says nothing that an array without a grid lacks. */
bool grid_is_plain(const struct grid *g);

/* ERR_GHOST_WIDTH at "/ghost/k" unless every width is at most the interior's extent there. */
enum err_code grid_check_ghosts(const struct grid *g, const int64_t *shape,
                                struct err *e) must_check;

/* The dtype in which ghosts of an array of type t are computed: float64 for integers and bools. */
enum dtype face_dtype(enum dtype t);
/* The dtype of factors with a distance, before conversion to t: float64 or complex128. */
enum dtype face_wide(enum dtype t);
/* factor · value of the face, as type t. */
struct scalar face_constant(const struct face *f, double factor, enum dtype t);
/* The spacing along an axis, as type t. */
struct scalar grid_spacing(const struct grid *g, int axis, enum dtype t);

/* Views for an array with view v: its interior with ghosts, and its interior alone. g may be NULL.
 */
void grid_whole(const struct grid *g, const struct view *v, struct view *ret);
void grid_interior(const struct grid *g, const struct view *v, struct view *ret);

/* The elements that ?ghost=1&index= names, as a view of v's buffer: axis k has the indices
 * −ghost[k] … n+ghost[k]−1, an open end is the ghost end, slices clip. ERR_BAD_INDEX as view_index,
 * and for None and '...'. */
enum err_code grid_index(const struct grid *g, const struct view *v, const struct index_spec *ix,
                         struct view *ret, struct err *e) must_check;

#endif
