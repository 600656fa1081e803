/* Runs a box's program on one block. Private to compute/cpu/interp. */
#ifndef ARRAYD_CPU_INTERP_EVAL_H
#define ARRAYD_CPU_INTERP_EVAL_H

#include "compute/cpu/interp/interp_bind.h"

struct block {
    int64_t n;
    int64_t c[MAX_RANK]; /* the first point */
    int64_t np, nq;      /* the tile's extents; nq = 0: linear */
};

/* The coordinates of point f. */
void interp_locate(const struct bound *b, int64_t f, struct block *ret);
/* An operand's address (or index value) at c. */
int64_t interp_address(const struct bound *b, uint32_t o, const int64_t *c);
/* Evaluates the program on a block; b->ptr[alias[node]] then holds each output's values. `direct`:
 * outputs are written straight to their places where possible (CLASS_DIRECT and computed). */
void interp_eval(struct bound *b, const struct block *blk, bool direct);
/* Stores a block of the only output's values from `from` to their places. */
void interp_put(const struct bound *b, const struct block *blk, char *from);
/* Whether the run should be abandoned. */
bool interp_ask(const struct interp_run *r);
/* The same; asks only after some tenths of a millisecond of interp_eval's work, of which a unit may
 * have less. */
#define ASK_COST (1 << 18)
static inline bool interp_over(struct bound *b)
{
    struct interp_watch *w = b->run->watch;
    if (!w)
        return false;
    if (atomic_load_explicit(&w->is_over, memory_order_relaxed))
        return true;
    if (b->unasked < ASK_COST)
        return false;
    b->unasked = 0;
    return interp_ask(b->run);
}
/* Partial results merged between two calls of interp_ask. */
#define ASK_PARTIALS 1024

/* How many points from f the next block may take, at most `left`. */
int64_t interp_block_size(const struct bound *b, int64_t f, int64_t left);
/* How many points shorter the block should be, so that the next block of the first output begins on
 * a cache line, and with it most of what is read beside it. */
int64_t interp_block_over(const struct bound *b, const struct block *blk);

/* Runs points [f, end), or tiles [from, to), of a storing kernel. */
void interp_store_range(struct bound *b, int64_t f, int64_t end);
void interp_store_tiles(struct bound *b, int64_t from, int64_t to);

#endif
