/* Shared by the files for reductions: check_reduce.c has those that are one T_REDUCE,
 * check_moments.c those that are made of several nodes. */
#ifndef ARRAYD_CHECK_REDUCE_H
#define ARRAYD_CHECK_REDUCE_H

#include "compute/check/checker.h"

/* The parameters of a reduction besides its operand. */
struct reduction {
    uint32_t place;
    uint32_t axes; /* bit k: axis k */
    bool keepdims;
};

/* The dtype of a sum: 64 bits for integers and bools, others unchanged. */
enum dtype reduce_sum_dtype(enum dtype t);

/* check_moments.c; x's scope is closed, and x has the dtype of the whole computation */

enum err_code moments_mean(struct checker *c, const struct reduction *r, uint32_t x,
                           uint32_t *ret) must_check;
/* For complex numbers, over axes. */
enum err_code moments_nanmean(struct checker *c, const struct reduction *r, uint32_t x,
                              uint32_t *ret) must_check;
/* The variance, a VAR or a NANVAR; NaN where the count is not above the correction. */
enum err_code moments_var(struct checker *c, const struct reduction *r, uint32_t x,
                          enum reduce_op op, uint32_t correction_node, uint32_t *ret) must_check;
/* x, with 0 in place of NaN. */
enum err_code moments_numbers(struct checker *c, uint32_t place, uint32_t x,
                              uint32_t *ret) must_check;
/* |x|², real. */
enum err_code moments_squares(struct checker *c, uint32_t place, uint32_t x,
                              uint32_t *ret) must_check;

#endif
