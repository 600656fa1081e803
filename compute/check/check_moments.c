/* Means, variances and dot, composed of reductions.
 *
 * var is the mean of the squared distances from the mean. A complex x is read twice, by two
 * kernels: the second uses the first one's result directly. */
#include <math.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_reduce.h"
#include "compute/check/check_rules.h"
#include "compute/lang/fold.h"

/* Elements per result. */
static double count_of(const struct typed_node *n, uint32_t axes)
{
    double count = 1;
    for (int k = 0; k < n->rank; k++)
        if (axes & 1u << k)
            count *= (double)n->shape[k];
    return count;
}

/* The sum over the axes divided by `divisor`; without axes, x divided by it. */
static enum err_code divided_sum(struct checker *c, const struct reduction *r, uint32_t x,
                                 double divisor, bool keepdims, uint32_t *ret)
{
    if (r->axes)
        return graph_reduce(c, r->place, x, REDUCE_MEAN, divisor, r->axes, keepdims, ret);
    if (divisor == 1) {
        *ret = x;
        return ERR_OK;
    }
    struct cval v[2] = {cval_typed(x, r->place),
                        {.weak = true, .lit = {.kind = LIT_FLOAT, .re = divisor}}};
    v[1].place = r->place;
    TRY(ops_apply(c, r->place, OP_DIVIDE, v, &v[0]));
    *ret = v[0].id;
    return ERR_OK;
}

enum err_code moments_squares(struct checker *c, uint32_t place, uint32_t x, uint32_t *ret)
{
    if (!dtype_is_complex(c->t->nodes[x].dtype))
        return graph_op(c, place, OP_SQUARE, &x, ret);
    uint32_t re, im;
    TRY(graph_op(c, place, OP_REAL, &x, &re));
    TRY(graph_op(c, place, OP_IMAG, &x, &im));
    TRY(graph_op(c, place, OP_SQUARE, &re, &re));
    TRY(graph_op(c, place, OP_SQUARE, &im, &im));
    return graph_op2(c, place, OP_ADD, re, im, ret);
}

enum err_code moments_numbers(struct checker *c, uint32_t place, uint32_t x, uint32_t *ret)
{
    uint32_t nan, zero;
    enum dtype t = c->t->nodes[x].dtype;
    if (dtype_kind(t) < KIND_FLOAT) {
        *ret = x;
        return ERR_OK;
    }
    TRY(graph_op(c, place, OP_ISNAN, &x, &nan));
    TRY(graph_const(c, place, (struct scalar){.dtype = t}, &zero));
    return graph_where(c, place, nan, zero, x, ret);
}

enum err_code moments_mean(struct checker *c, const struct reduction *r, uint32_t x, uint32_t *ret)
{
    return divided_sum(c, r, x, count_of(&c->t->nodes[x], r->axes), r->keepdims, ret);
}

enum err_code moments_nanmean(struct checker *c, const struct reduction *r, uint32_t x,
                              uint32_t *ret)
{
    enum dtype t = c->t->nodes[x].dtype;
    uint32_t sum, n;
    TRY(moments_numbers(c, r->place, x, &sum));
    TRY(graph_reduce(c, r->place, sum, REDUCE_SUM, 0, r->axes, r->keepdims, &sum));
    TRY(graph_op(c, r->place, OP_ISNAN, &x, &n));
    TRY(graph_op(c, r->place, OP_LOGICAL_NOT, &n, &n));
    TRY(graph_cast(c, r->place, n, DT_I64, &n));
    TRY(graph_reduce(c, r->place, n, REDUCE_SUM, 0, r->axes, r->keepdims, &n));
    TRY(graph_cast(c, r->place, n, t, &n));
    return graph_op2(c, r->place, OP_DIVIDE, sum, n, ret);
}

/* A number that is known now. */
static enum err_code number_param(struct checker *c, uint32_t node, const char *what, double *ret)
{
    struct cval v;
    if (check_absent(c, node))
        return ERR_OK;
    TRY(check_value(c, node, &v));
    if (!cval_known(c, &v) || v.lit.kind == LIT_COMPLEX)
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "%s must be a number", what);
    *ret = fold_double(&v.lit);
    return ERR_OK;
}

/* For complex numbers: the sum of the variances of the real and the imaginary parts, each part NaN
 * where the other is. */
static enum err_code var_of_parts(struct checker *c, const struct reduction *r, uint32_t x,
                                  enum reduce_op op, double correction, uint32_t *ret)
{
    uint32_t nan, none, part[2];
    enum dtype t = dtype_real(c->t->nodes[x].dtype);
    TRY(graph_op(c, r->place, OP_ISNAN, &x, &nan));
    TRY(graph_const(c, r->place, reduce_identity(op, t), &none));
    for (int k = 0; k < 2; k++) {
        TRY(graph_op(c, r->place, k ? OP_IMAG : OP_REAL, &x, &part[k]));
        TRY(graph_where(c, r->place, nan, none, part[k], &part[k]));
        TRY(graph_reduce(c, r->place, part[k], op, correction, r->axes, r->keepdims, &part[k]));
    }
    return graph_op2(c, r->place, OP_ADD, part[0], part[1], ret);
}

enum err_code moments_var(struct checker *c, const struct reduction *r, uint32_t x,
                          enum reduce_op op, uint32_t correction_node, uint32_t *ret)
{
    double count = count_of(&c->t->nodes[x], r->axes), correction = 0;
    uint32_t mean;
    TRY(number_param(c, correction_node, "correction", &correction));
    double divisor = count - correction > 0 ? count - correction : NAN;
    bool complex_ = dtype_is_complex(c->t->nodes[x].dtype);
    const bool divides = reduce_table[op].number == NUMBER_DIVISOR;
    if (r->axes && !complex_)
        return graph_reduce(c, r->place, x, op, divides ? divisor : correction, r->axes,
                            r->keepdims, ret);
    if (r->axes && !divides) /* their number is not known */
        return var_of_parts(c, r, x, op, correction, ret);
    TRY(divided_sum(c, r, x, count, true, &mean));
    TRY(graph_op2(c, r->place, OP_SUBTRACT, x, mean, &x));
    TRY(moments_squares(c, r->place, x, &x));
    return divided_sum(c, r, x, divisor, r->keepdims, ret);
}

enum err_code moments_dot(struct checker *c, const struct call *call, struct cval *ret)
{
    struct reduction r = {.place = call->node, .axes = 1};
    uint32_t x[2], product;
    int64_t extent = -1;
    for (int k = 0; k < 2; k++) {
        struct cval v;
        TRY(check_value(c, call->param[k], &v));
        TRY(ops_typed(c, &v, &x[k]));
        const struct typed_node *n = &c->t->nodes[x[k]];
        if (n->open)
            continue;
        char text[SHAPE_TEXT_MAX];
        if (n->rank != 1)
            return expr_err(c->x, call->param[k], c->e, ERR_SHAPE_MISMATCH,
                            "dot takes two arrays of rank 1, not one of shape %s: for more axes "
                            "write sum(x*y, axis)",
                            shape_text(n->rank, n->shape, text, sizeof text));
        if (extent >= 0 && n->shape[0] != extent)
            return expr_err(
                c->x, call->node, c->e, ERR_SHAPE_MISMATCH,
                "dot takes two arrays of the same length, not of %lld and %lld elements",
                (long long)extent, (long long)n->shape[0]);
        extent = n->shape[0];
    }
    enum dtype t =
        reduce_sum_dtype(dtype_promote(c->t->nodes[x[0]].dtype, c->t->nodes[x[1]].dtype));
    enum dtype in = dtype_is_half(t) ? DT_F32 : t;
    for (int k = 0; k < 2; k++)
        TRY(graph_cast(c, r.place, x[k], in, &x[k]));
    TRY(graph_op2(c, r.place, OP_MULTIPLY, x[0], x[1], &product));
    TRY(graph_close(c, r.place, product, &product));
    TRY(graph_reduce(c, r.place, product, REDUCE_SUM, 0, r.axes, false, &product));
    TRY(graph_cast(c, r.place, product, t, &product));
    *ret = cval_typed(product, r.place);
    return ERR_OK;
}
