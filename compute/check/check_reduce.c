/* Reductions and scans: their parameters, and the dtype they accumulate in. reduce.def says what
 * each reduction consists of.
 *
 * float16 and bfloat16 are reduced in float32, with casts around the node. A reduction over no axis
 * at all (axis=(), or a scalar) is its operand; argmax and argmin give 0. */
#include "compute/check/check_reduce.h"
#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"

enum operand { TRUTH, COUNT, WIDE, FLOAT, REAL, ORDERED };
enum before { ITSELF, SQUARES, NUMBERS };
enum after { NOTHING, ROOT };
static const struct {
    enum operand operand;
    enum before before;
    enum reduce_op op, of_others; /* for floats; for integers and bools */
    enum after after;
} table[FUNC_COUNT] = {
#define REDUCTION(id, name, further, most, rule, operand, before, op, of_others, after)            \
    [FUNC_##id] = {operand, before, REDUCE_##op, REDUCE_##of_others, after},
#include "compute/type/reduce.def"
};

static enum err_code keepdims_param(struct checker *c, uint32_t node, bool *ret)
{
    *ret = false;
    if (check_absent(c, node))
        return ERR_OK;
    struct cval v;
    TRY(check_value(c, node, &v));
    if (!v.weak || v.lit.kind > LIT_INT || v.lit.i < 0 || v.lit.i > 1)
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "keepdims must be True or False");
    *ret = v.lit.i != 0;
    return ERR_OK;
}

enum dtype reduce_sum_dtype(enum dtype t)
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

static enum err_code not_complex(struct checker *c, const struct call *call, enum dtype t)
{
    if (dtype_is_complex(t))
        return expr_err(c->x, call->node, c->e, ERR_DTYPE_MISMATCH, "%s is not defined for %s",
                        call->name, dtype_name(t));
    return ERR_OK;
}

/* Checks that the operand's dtype has an order, and that there are elements to compare. */
static enum err_code comparable(struct checker *c, const struct call *call, uint32_t x,
                                uint32_t axes)
{
    const struct typed_node *n = &c->t->nodes[x];
    TRY(not_complex(c, call, n->dtype));
    bool nothing = false; /* as NumPy: an error even if the result is empty too */
    for (int k = 0; k < n->rank; k++)
        nothing |= n->shape[k] == 0 && axes & 1u << k;
    char text[SHAPE_TEXT_MAX];
    if (nothing)
        return expr_err(c->x, call->node, c->e, ERR_EMPTY_REDUCTION,
                        "%s of an empty array: the operand has shape %s", call->name,
                        shape_text(n->rank, n->shape, text, sizeof text));
    return ERR_OK;
}

/* Prepares the operand: x as it is reduced, the result's dtype and, in *ret_in, the dtype it is
 * computed in. */
static enum err_code reduce_operand(struct checker *c, const struct call *call,
                                    const struct reduction *r, enum operand operand, uint32_t *x,
                                    enum dtype *ret, enum dtype *ret_in)
{
    enum dtype t = c->t->nodes[*x].dtype;
    struct cval v = cval_typed(*x, r->place);
    bool alone = false; /* unchanged, halves too */
    switch (operand) {
    case TRUTH:
    case COUNT:
        TRY(ops_truth(c, &v, x));
        t = operand == COUNT ? DT_I64 : DT_BOOL;
        break;
    case WIDE:
        t = reduce_sum_dtype(t);
        break;
    case REAL:
    case FLOAT:
        if (operand == REAL)
            TRY(not_complex(c, call, t));
        t = dtype_kind(t) < KIND_FLOAT ? DT_F64 : t;
        break;
    case ORDERED:
        TRY(comparable(c, call, *x, r->axes));
        alone = r->axes == 0;
        break;
    }
    *ret_in = dtype_is_half(t) && !alone ? DT_F32 : t;
    *ret = t;
    return ERR_OK;
}

/* x reduced over the axes; over no axes, the reduction's result for one element. */
static enum err_code reduce_by(struct checker *c, const struct reduction *r, uint32_t x,
                               enum reduce_op op, uint32_t correction, uint32_t *ret)
{
    const enum reduce_composed composed = reduce_table[op].composed;
    if (composed == COMPOSED_MEAN)
        return moments_mean(c, r, x, ret);
    if (composed == COMPOSED_NANMEAN && r->axes && dtype_is_complex(c->t->nodes[x].dtype))
        return moments_nanmean(c, r, x, ret);
    if (composed == COMPOSED_VAR)
        return moments_var(c, r, x, op, correction, ret);
    if (r->axes)
        return graph_reduce(c, r->place, x, op, 0, r->axes, r->keepdims, ret);
    *ret = x;
    if (!reduce_is_arg(op))
        return ERR_OK;
    int rank = c->t->nodes[x].rank;
    const int64_t *shape = c->t->nodes[x].shape;
    TRY(graph_const(c, r->place, (struct scalar){.dtype = DT_I64}, ret));
    return rank ? graph_view(c, r->place, *ret, &(struct affine){0}, rank, shape, ret) : ERR_OK;
}

/* The axes. For min(x, y), as Python's min is called, the error suggests minimum(). */
static enum err_code axes_param(struct checker *c, const struct call *call, int rank, uint32_t *ret)
{
    enum err_code code = check_axes(c, call->param[1], rank, ret);
    if (code != ERR_BAD_AXIS || (call->func != FUNC_MIN && call->func != FUNC_MAX))
        return code;
    const struct expr_node *n = &c->x->nodes[call->param[1]];
    if (n->kind == EXPR_LIST || (n->kind == EXPR_LITERAL && n->lit.kind == LIT_INT))
        return code;
    return expr_err(
        c->x, call->param[1], c->e, code,
        "axis must be an integer; for the elementwise %s of two arrays write %simum(x, y)",
        call->name, call->name);
}

enum err_code reduce_call(struct checker *c, const struct call *call, struct cval *ret)
{
    const enum func func = call->func;
    struct cval v;
    uint32_t x;
    struct reduction r = {.place = call->node};
    TRY(check_value(c, call->param[0], &v));
    TRY(ops_typed(c, &v, &x));
    uint32_t open = x;
    TRY(graph_close(c, v.place, x, &x));
    TRY(axes_param(c, call, c->t->nodes[x].rank, &r.axes));
    if (r.axes == 0) /* no reduction remains */
        TRY(graph_close_operand(c, v.place, open, &x));
    TRY(keepdims_param(c, call->param[2], &r.keepdims));
    enum dtype from = c->t->nodes[x].dtype, t, in;
    TRY(reduce_operand(c, call, &r, table[func].operand, &x, &t, &in));
    enum reduce_op op = dtype_kind(from) < KIND_FLOAT ? table[func].of_others : table[func].op;
    bool squares = table[func].before == SQUARES, root = table[func].after == ROOT;
    TRY(graph_cast(c, r.place, x, in, &x));
    if (squares && root && r.axes == 0) {
        squares = root = false; /* those of one element */
        TRY(graph_op(c, r.place, OP_ABS, &x, &x));
    }
    if (squares)
        TRY(moments_squares(c, r.place, x, &x));
    if (table[func].before == NUMBERS)
        TRY(moments_numbers(c, r.place, x, &x));
    TRY(reduce_by(c, &r, x, op, call->param[3], &x));
    if (root)
        TRY(graph_op(c, r.place, OP_SQRT, &x, &x));
    if (!reduce_is_arg(op))
        TRY(graph_cast(c, r.place, x, dtype_is_complex(c->t->nodes[x].dtype) ? t : dtype_real(t),
                       &x));
    *ret = cval_typed(x, r.place);
    return ERR_OK;
}

enum err_code scan_call(struct checker *c, const struct call *call, struct cval *ret)
{
    static const enum reduce_op ops[FUNC_COUNT] = {
#define SCAN(id, name, b, i, f, c, op) [FUNC_CUMULATIVE_##id] = REDUCE_##op,
#include "compute/type/reduce.def"
    };
    const enum reduce_op op = ops[call->func];
    struct cval v;
    uint32_t x, node = call->param[1];
    int axis = 0;
    TRY(check_value(c, call->param[0], &v));
    TRY(ops_typed(c, &v, &x));
    TRY(graph_close(c, v.place, x, &x));
    int rank = c->t->nodes[x].rank;
    if (rank == 0)
        return expr_err(c->x, call->node, c->e, ERR_BAD_AXIS, "%s needs an array of rank 1 or more",
                        call->name);
    if (check_absent(c, node) && rank != 1)
        return expr_err(c->x, call->node, c->e, ERR_BAD_AXIS,
                        "%s of an array of rank %d needs an axis", call->name, rank);
    if (!check_absent(c, node))
        TRY(check_axis(c, node, rank, &axis));
    enum dtype t = reduce_sum_dtype(c->t->nodes[x].dtype);
    TRY(graph_cast(c, call->node, x, dtype_is_half(t) ? DT_F32 : t, &x));
    TRY(graph_scan(c, call->node, x, op, axis, &x));
    TRY(graph_cast(c, call->node, x, t, &x));
    *ret = cval_typed(x, call->node);
    return ERR_OK;
}
