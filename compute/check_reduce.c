/* Reductions: axes, the dtype they accumulate in, and mean as a sum over a count.
 *
 * float16 and bfloat16 are reduced in float32 by casts put around the node. A reduction over no
 * axis at all (axis=(), or a scalar) is its operand. */
#include "compute/check_int.h"

static enum err_code axes_param(struct checker *c, uint32_t node, int rank, uint32_t *ret)
{
    uint32_t axes = 0;
    if (check_absent(c, node)) {
        *ret = rank == 32 ? UINT32_MAX : (1u << rank) - 1;
        return ERR_OK;
    }
    struct expr_link one;
    const struct expr_link *items;
    uint32_t n = check_items(c, node, &items, &one);
    for (uint32_t k = 0; k < n; k++) {
        int64_t axis;
        TRY(check_int(c, items[k].node, "axis", ERR_BAD_AXIS, &axis));
        if (axis < -rank || axis >= rank)
            return expr_err(c->x, items[k].node, c->e, ERR_BAD_AXIS,
                            "axis %lld is out of range for rank %d", (long long)axis, rank);
        uint32_t bit = 1u << (axis < 0 ? axis + rank : axis);
        if (axes & bit)
            return expr_err(c->x, items[k].node, c->e, ERR_BAD_AXIS, "axis %lld is named twice",
                            (long long)axis);
        axes |= bit;
    }
    *ret = axes;
    return ERR_OK;
}

static enum err_code keepdims_param(struct checker *c, uint32_t node, bool *ret)
{
    *ret = false;
    if (check_absent(c, node))
        return ERR_OK;
    struct cval v;
    TRY(check_value(c, node, &v));
    if (!v.weak || v.lit.kind > LIT_INT || v.lit.i < 0 || v.lit.i > 1)
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "keepdims is True or False");
    *ret = v.lit.i != 0;
    return ERR_OK;
}

static enum dtype sum_dtype(enum dtype t)
{
    switch (dtype_kind(t)) {
    case KIND_BOOL:
    case KIND_INT:
        return DT_I64;
    case KIND_UINT:
        return DT_U64;
    default:
        return t;
    }
}

/* The reduction in the type `in` (float32 for halves), the result in `out`. */
static enum err_code reduce_in(struct checker *c, uint32_t place, uint32_t x, enum reduce_op op,
                               uint32_t axes, bool keepdims, enum dtype in, uint32_t *ret)
{
    TRY(graph_cast(c, place, x, in, &x));
    if (axes != 0)
        TRY(graph_reduce(c, place, x, op, axes, keepdims, &x));
    *ret = x;
    return ERR_OK;
}

static enum err_code extremum(struct checker *c, const struct call *call, uint32_t x,
                              enum reduce_op op, uint32_t axes, bool keepdims, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    enum dtype t = n->dtype;
    if (dtype_is_complex(t))
        return expr_err(c->x, call->node, c->e, ERR_DTYPE_MISMATCH, "%s is not defined for %s",
                        call->name, dtype_name(t));
    bool reduces_empty = false, result_empty = false;
    for (int k = 0; k < n->rank; k++)
        if (n->shape[k] == 0)
            *(axes & 1u << k ? &reduces_empty : &result_empty) = true;
    char text[SHAPE_TEXT_MAX];
    if (reduces_empty && !result_empty)
        return expr_err(c->x, call->node, c->e, ERR_EMPTY_REDUCTION,
                        "%s of nothing: the operand's shape is %s", call->name,
                        shape_text(n->rank, n->shape, text, sizeof text));
    enum dtype in = dtype_is_half(t) ? DT_F32 : t;
    if (axes == 0)
        in = t;
    TRY(reduce_in(c, call->node, x, op, axes, keepdims, in, &x));
    return graph_cast(c, call->node, x, t, ret);
}

static enum err_code mean(struct checker *c, const struct call *call, uint32_t x, uint32_t axes,
                          bool keepdims, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    enum dtype t = dtype_kind(n->dtype) < KIND_FLOAT ? DT_F64 : n->dtype;
    enum dtype in = dtype_is_half(t) ? DT_F32 : t;
    int64_t count = 1;
    bool empty = false;
    for (int k = 0; k < n->rank; k++)
        if (axes & 1u << k) {
            empty |= n->shape[k] == 0;
            count *= n->shape[k] ? n->shape[k] : 1;
        }
    TRY(reduce_in(c, call->node, x, REDUCE_SUM, axes, keepdims, in, &x));
    struct cval r[2] = {cval_typed(x, call->node), cval_int(empty ? 0 : count, call->node)};
    TRY(ops_apply(c, call->node, OP_DIVIDE, r, &r[0]));
    return graph_cast(c, call->node, r[0].id, t, ret);
}

enum err_code reduce_call(struct checker *c, const struct call *call, enum func func,
                          struct cval *ret)
{
    struct cval v;
    uint32_t x, axes = 0, place = call->node;
    bool keepdims = false;
    TRY(check_value(c, call->param[0], &v));
    TRY(ops_typed(c, &v, &x));
    uint32_t open = x;
    TRY(graph_close(c, v.place, x, &x));
    TRY(axes_param(c, call->param[1], c->t->nodes[x].rank, &axes));
    if (axes == 0) /* nothing is left of the reduction */
        TRY(graph_close_operand(c, v.place, open, &x));
    TRY(keepdims_param(c, call->param[2], &keepdims));
    enum dtype t = c->t->nodes[x].dtype;
    switch (func) {
    case FUNC_SUM:
        TRY(reduce_in(c, place, x, REDUCE_SUM, axes, keepdims,
                      dtype_is_half(t) ? DT_F32 : sum_dtype(t), &x));
        TRY(graph_cast(c, place, x, sum_dtype(t), &x));
        break;
    case FUNC_MEAN:
        TRY(mean(c, call, x, axes, keepdims, &x));
        break;
    case FUNC_MIN:
        TRY(extremum(c, call, x, REDUCE_MIN, axes, keepdims, &x));
        break;
    case FUNC_MAX:
        TRY(extremum(c, call, x, REDUCE_MAX, axes, keepdims, &x));
        break;
    default:
        v = cval_typed(x, v.place);
        TRY(ops_truth(c, &v, &x));
        TRY(reduce_in(c, place, x, func == FUNC_ANY ? REDUCE_ANY : REDUCE_ALL, axes, keepdims,
                      DT_BOOL, &x));
        break;
    }
    *ret = cval_typed(x, place);
    return ERR_OK;
}
