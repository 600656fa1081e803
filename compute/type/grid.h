/* What an array knows of itself as a grid: ghost widths, boundary conditions, spacing, padding.
 *
 * A description only; the cells are elements of the array's buffer around its view. An array that
 * has none of it has no grid (NULL). Filled in by server/, kept by arrays and their bindings, read
 * by the checker (modes `ghost` and `array`) and ghost.c. Immutable once grid_new has made it and
 * reference-counted, so that it may be shared by threads; a change makes a new one. */
#ifndef ARRAYD_GRID_H
#define ARRAYD_GRID_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

#define GRID_ALIGNMENT     64 /* unless one is given */
#define GRID_MAX_ALIGNMENT 4096

/* What lies behind a face. With φ_k the k-th cell before it (1: at the face) the k-th ghost is
 *   FACE_DIRICHLET  2·value − φ_k
 *   FACE_NEUMANN    φ_k ∓ (2k−1)·spacing·value: − on the low face, + on the high one
 *   FACE_PERIODIC   the wrapped cell; both faces of an axis have it or neither
 *   FACE_NONE       what was written there; reading past it is the edge cell */
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

/* Spacing 1, the default alignment, and nothing else. */
void grid_init(struct grid *g, int rank);
/* A description to keep, with one reference. NULL without memory. */
struct grid *grid_new(const struct grid *description);
struct grid *grid_ref(struct grid *g); /* NULL allowed; returns g */
void grid_unref(struct grid *g);       /* NULL allowed */

bool grid_has_ghosts(const struct grid *g); /* NULL allowed */
/* The alignment of an array with view v, of elements of so many bytes: what its grid has (NULL: the
 * default) or, of a part of an array, what is left of that. */
int64_t grid_alignment(const struct grid *g, const struct view *v, size_t itemsize);
/* Nothing that an array without a grid has not. */
bool grid_is_plain(const struct grid *g);

/* ERR_GHOST_WIDTH at "/ghost/k" unless every width is at most the interior's extent there. */
enum err_code grid_check_ghosts(const struct grid *g, const int64_t *shape,
                                struct err *e) must_check;

/* What ghosts of an array of type t are computed in: integers and bools in float64. */
enum dtype face_dtype(enum dtype t);
/* What factors of a distance are computed in, before they become of type t: float64, complex128. */
enum dtype face_wide(enum dtype t);
/* factor · value of the face, as type t. */
struct scalar face_constant(const struct face *f, double factor, enum dtype t);
/* The spacing along an axis, as type t. */
struct scalar grid_spacing(const struct grid *g, int axis, enum dtype t);

/* Views of an array with view v: of its interior and ghosts, and of its interior alone. g may be
 * NULL. */
void grid_whole(const struct grid *g, const struct view *v, struct view *ret);
void grid_interior(const struct grid *g, const struct view *v, struct view *ret);

/* The elements that ?ghost=1&index= names, as a view of v's buffer: axis k has the indices
 * −ghost[k] … n+ghost[k]−1, an open end is the ghost end, slices clip. ERR_BAD_INDEX as
 * view_index, and for None and '...'. */
enum err_code grid_index(const struct grid *g, const struct view *v, const struct index_spec *ix,
                         struct view *ret, struct err *e) must_check;

#endif
