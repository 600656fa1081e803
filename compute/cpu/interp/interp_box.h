/* How a run is cut into boxes, and the geometry of one: see interp_run.h. Private to
 * compute/cpu/interp. Pure, except interp_cut, which belongs to planning. */
#ifndef ARRAYD_CPU_INTERP_BOX_H
#define ARRAYD_CPU_INTERP_BOX_H

#include "compute/cpu/interp/interp_run.h"

struct geometry {
    int nd;
    int64_t ext[MAX_RANK];
    int64_t points;
    int64_t *at; /* operand → address, index value or inside flag at the box's corner */
    int64_t *st; /* operand · nd + d → step along dimension d, in bytes (INDEX: in value) */
    /* MODE_TILE: the register-inner and the other dimension of tiles, and their sizes */
    int p, q;
    int64_t tp, tq, n_tiles;
};

/* Points of a tile. The longer its rows, the better memory is used that has them far apart; but the
 * registers of a program are to stay in a core's caches. */
static inline int64_t interp_tile_points(const struct interp_run *r)
{
    return r->n_live <= 8 ? 4096 : 1024;
}

/* Whether the operand's elements lie one after the other in the order of the axes. */
bool interp_is_dense(const struct interp_run *r, const struct operand *o);

/* Corner and extents (by iteration axis) of a box. */
void interp_box(const struct interp_run *r, int64_t box, int64_t *lo, int64_t *ext);

/* Fills `g` for a box; g->at and g->st have room for n_operands and n_operands · rank. `overrun`:
 * merges the two fastest axes as if the box held the whole extent of the fastest; false then means
 * that the operands do not allow it. `work` has room for run->ctx.coords · 2. */
bool interp_geometry(const struct interp_run *r, const int64_t *lo, const int64_t *ext,
                     bool overrun, struct geometry *g, int64_t *work);
/* The number of int64s that at, st and work need together. */
size_t interp_geometry_words(const struct interp_run *r);

/* A point's coordinates in every used context; false flags go to inside[ctx] unless NULL. */
void interp_coords(const struct interp_run *r, const int64_t *point, int64_t *coords,
                   bool *ret_inside);
/* An operand's address, value or flag at those coordinates. */
int64_t interp_operand_at(const struct interp_run *r, const struct operand *o,
                          const int64_t *coords, const bool *inside);

/* Sets the normalised offsets, the cuts and pointwise; false without memory. */
bool interp_cut(struct interp_run *r);

/* Which of n parts (boxes or groups) a unit belongs to. */
int64_t interp_part(const struct interp_run *r, int64_t n, int64_t unit);

#endif
