/* Elementwise operations over values of any types: promotion, conversion, arithmetic on literals.
 *
 * Called by the rules of calls (check_rules.h) and by check_value.c; calls check_graph.h. */
#ifndef ARRAYD_CHECK_OPS_H
#define ARRAYD_CHECK_OPS_H

#include "compute/check/checker.h"

/* op over operands of any types: promotion, conversion, literal arithmetic. */
enum err_code ops_apply(struct checker *c, uint32_t place, enum op op, const struct cval *args,
                        struct cval *ret) must_check;
/* The promoted type of operands, at least one of them typed, or of literals only. */
enum err_code ops_promote(struct checker *c, const struct cval *args, int n,
                          enum dtype *ret) must_check;
/* A node of dtype t: a typed value is converted as by astype, a literal must fit. */
enum err_code ops_convert(struct checker *c, const struct cval *v, enum dtype t,
                          uint32_t *ret) must_check;
/* A node of the value's own dtype; a literal gets its default dtype. */
enum err_code ops_typed(struct checker *c, const struct cval *v, uint32_t *ret) must_check;
/* x != 0, or x itself if it is bool. */
enum err_code ops_truth(struct checker *c, const struct cval *v, uint32_t *ret) must_check;
/* astype: 422 for complex to real. */
enum err_code ops_astype(struct checker *c, const struct cval *v, enum dtype t, uint32_t place,
                         uint32_t *ret) must_check;
/* Converts the operands of one function to the type in which the rule computes; if all are
 * literals, they stay literals. */
enum err_code ops_unify(struct checker *c, struct cval *args, int n, enum op_rule rule) must_check;

#endif
