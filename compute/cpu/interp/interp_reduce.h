/* What the two kinds of reduction share: how a box's points map to outputs, and where these are
 * stored; the accumulators' memory. Private to compute/cpu/interp: interp_reduce_plan.c's functions
 * for interp_reduce.c and interp_arg.c, and the latter's for the former. */
#ifndef ARRAYD_CPU_INTERP_REDUCE_H
#define ARRAYD_CPU_INTERP_REDUCE_H

#include "compute/cpu/interp/interp_units.h"

#define WIDE_LANES 256 /* few lanes are widened to about this many */
#define CHAIN      512 /* rows added to one accumulator */

static inline bool is_reduced(const struct interp_run *r, int axis)
{
    return r->k->outputs[0].axes >> axis & 1;
}

/* The number of kept outer points, reduced points and lanes of a box of extents `ext`. */
void interp_reduce_sizes(const struct interp_run *r, const int64_t *ext, int64_t *outer,
                         int64_t *reduced, int64_t *lanes);
/* The address of kept point number `kept` of a box with this corner and these extents, and how many
 * further ones follow at a constant stride. */
char *interp_reduce_at(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                       int64_t kept, int64_t *ret_run, int64_t *ret_stride);
/* Stores n results: those of the kept points from number `kept` on of the box at `lo`; `move` bytes
 * further (interp_scratch.moves). */
void interp_reduce_write(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                         int64_t kept, const char *values, int64_t n, int64_t move);

/* Bytes of accumulators, `lanes` each, that are merged pairwise as they are completed: of one, and
 * of all that `rows` rows need. */
size_t interp_tower_step(const struct interp_run *r, size_t lanes);
size_t interp_tower_bytes(const struct interp_run *r, size_t lanes, int64_t rows);

/* For argmax and argmin (interp_arg.c). INNER: a state begins; takes in n values, the first of them
 * at point f; gives its index, an int64_t. OUTER: runs unit i of a box or a group. Finishes the
 * run. */
void interp_arg_start(void *state);
void interp_arg_take(const struct interp_run *r, const struct bound *b, void *state,
                     const char *values, int64_t f, int64_t n);
void interp_arg_end(const void *state, void *ret);
void interp_arg_outer(struct interp_run *r, int64_t at, int64_t i, struct interp_scratch *s);
void interp_arg_finish(struct interp_run *r);

#endif
