/* Two or three additions, subtractions and multiplications (and one division, first) of one float
 * type in one pass, which the interpreter uses for chains: the values in between stay in processor
 * registers. No contraction: the bits are those of the single loops.
 *
 * Called by interp_chain.c. Constant tables; thread-safe. */
#ifndef ARRAYD_CPU_FUSED_H
#define ARRAYD_CPU_FUSED_H

#include "compute/cpu/loops/loops.h"

/* acc = args[0] first args[1] */
enum fused_first {
    FUSED_FIRST_ADD,
    FUSED_FIRST_SUB,
    FUSED_FIRST_MUL,
    FUSED_FIRST_DIV,
    FUSED_FIRSTS
};
/* acc = acc + x, acc − x, x − acc, acc · x */
enum fused_step { FUSED_ADD, FUSED_SUB, FUSED_RSUB, FUSED_MUL, FUSED_STEPS };

struct fused_table {
    loop_fn *two[2][FUSED_FIRSTS][FUSED_STEPS]; /* float32, float64 */
    loop_fn *three[2][FUSED_FIRSTS][FUSED_STEPS][FUSED_STEPS];
};

/* The loop over 3 (third < 0) or 4 arguments. t is float32 or float64. */
loop_fn *fused_loop(enum dtype t, enum fused_first first, enum fused_step second, int third);

void fused_fill_baseline(struct fused_table *t);
void fused_fill_avx2(struct fused_table *t);
void fused_fill_avx512(struct fused_table *t);

#endif
