/* Two or three additions, subtractions and multiplications (and one division, first) of one float
 * type in one pass, which the interpreter uses for chains: the values in between stay in processor
 * registers. And sums of many weighted terms in one pass, as stencils and windows are. No
 * contraction: the bits are those of the single loops.
 *
 * Called by interp_chain.c and interp_sum.c. Constant tables; thread-safe. */
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

/* out[i] = terms[0][i] · weights[0] + terms[1][i] · weights[1] + …, added in this order, n_terms
 * ≥ 2. The weights are values of the type. `out` may be one of the terms. */
typedef void sum_fn(void *out, const void *const *terms, const double *weights, size_t n_terms,
                    size_t n);

struct fused_table {
    sum_fn *sum[2];                             /* float32, float64 */
    loop_fn *two[2][FUSED_FIRSTS][FUSED_STEPS]; /* float32, float64 */
    loop_fn *three[2][FUSED_FIRSTS][FUSED_STEPS][FUSED_STEPS];
};

/* The loop over 3 (third < 0) or 4 arguments. t is float32 or float64. */
loop_fn *fused_loop(enum dtype t, enum fused_first first, enum fused_step second, int third);
sum_fn *fused_sum(enum dtype t);

void fused_fill_baseline(struct fused_table *t);
void fused_fill_avx2(struct fused_table *t);
void fused_fill_avx512(struct fused_table *t);

#endif
