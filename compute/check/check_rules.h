/* The rules of calls: how each function of the expression language turns its arguments into nodes.
 *
 * Called by check.c, from its table (except indexing), when all descendants of the call have their
 * values. A rule reads its arguments (check_value.h) and builds nodes (check_graph.h, check_ops.h);
 * no rule calls back into check.c. */
#ifndef ARRAYD_CHECK_RULES_H
#define ARRAYD_CHECK_RULES_H

#include "compute/check/check_value.h"
#include "compute/lang/func.h"

struct grid;

/* A call with its arguments under their parameters. */
struct call {
    uint32_t node;
    const char *name;
    enum func func;
    uint32_t param[FUNC_MAX_PARAMS]; /* untyped node, EXPR_NOWHERE where left out */
};

/* check_elementwise.c */

enum err_code elementwise_where(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;
enum err_code elementwise_astype(struct checker *c, const struct call *call,
                                 struct cval *ret) must_check;
enum err_code elementwise_clip(struct checker *c, const struct call *call,
                               struct cval *ret) must_check;
enum err_code elementwise_lerp(struct checker *c, const struct call *call,
                               struct cval *ret) must_check;
/* addcmul, addcdiv */
enum err_code elementwise_addc(struct checker *c, const struct call *call,
                               struct cval *ret) must_check;

/* check_stencil.c */

/* x[…]: not a call, so it is in no table. */
enum err_code stencil_getitem(struct checker *c, uint32_t node, struct cval *ret) must_check;
enum err_code stencil_index(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
enum err_code stencil_unravel(struct checker *c, const struct call *call,
                              struct cval *ret) must_check;
enum err_code stencil_shift(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
/* forward_diff, back_diff */
enum err_code stencil_one_sided(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;
enum err_code stencil_central(struct checker *c, const struct call *call,
                              struct cval *ret) must_check;
enum err_code stencil_laplacian(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;
enum err_code stencil_gradient(struct checker *c, const struct call *call,
                               struct cval *ret) must_check;
/* shift() of a node whose scope is closed: one offset an axis, of any size. */
enum err_code stencil_shifted(struct checker *c, uint32_t place, uint32_t x, const int64_t *offsets,
                              const struct edge *edge, uint32_t *ret) must_check;

/* check_correlate.c */

enum err_code correlate_call(struct checker *c, const struct call *call,
                             struct cval *ret) must_check;

/* check_rearrange.c: flip … reshape */

enum err_code rearrange_call(struct checker *c, const struct call *call,
                             struct cval *ret) must_check;

/* check_gather.c */

enum err_code gather_take(struct checker *c, const struct call *call, struct cval *ret) must_check;
enum err_code gather_take_along(struct checker *c, const struct call *call,
                                struct cval *ret) must_check;
/* x's slices along an axis by number; i is an int64 node of rank 1 within the axis. */
enum err_code gather_slices(struct checker *c, uint32_t place, uint32_t x, int axis, uint32_t i,
                            uint32_t *ret) must_check;

/* check_sample.c */

enum err_code sample_call(struct checker *c, const struct call *call, struct cval *ret) must_check;

/* check_pieces.c */

/* concat, stack */
enum err_code pieces_concat(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
enum err_code pieces_repeat(struct checker *c, const struct call *call,
                            struct cval *ret) must_check;
enum err_code pieces_tile(struct checker *c, const struct call *call, struct cval *ret) must_check;

/* check_reduce.c, check_moments.c */

enum err_code reduce_call(struct checker *c, const struct call *call, struct cval *ret) must_check;
/* cumulative_sum, cumulative_prod */
enum err_code scan_call(struct checker *c, const struct call *call, struct cval *ret) must_check;
enum err_code moments_dot(struct checker *c, const struct call *call, struct cval *ret) must_check;

/* check_ghost.c: the modes `ghost` and `array` of a closed node */

/* ERR_GHOST_WIDTH, with the place of the array that has too few ghosts. */
enum err_code ghost_shift(struct checker *c, uint32_t place, uint32_t x, const int64_t *offsets,
                          uint32_t *ret) must_check;
/* ERR_BAD_BOUNDARY; `at` is the node that names the boundary. */
enum err_code array_shift(struct checker *c, uint32_t place, uint32_t at, uint32_t x,
                          const int64_t *offsets, uint32_t *ret) must_check;
/* The array's own spacing along an axis; ERR_BAD_EXPRESSION at `at` unless x is an array. */
enum err_code array_spacing(struct checker *c, uint32_t at, uint32_t x, int axis,
                            struct cval *ret) must_check;
/* The grid whose boundary applies; ERR_BAD_BOUNDARY at `at` unless x is an array that has one. */
enum err_code array_boundary(struct checker *c, uint32_t at, uint32_t x,
                             const struct grid **ret) must_check;

#endif
