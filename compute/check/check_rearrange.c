/* Functions that rearrange elements: permuting, dropping, inserting and stretching axes makes
 * views, roll is a periodic shift, tril and triu compare indices. None of these costs a kernel of
 * its own.
 *
 * Their operand's scope is closed behind a view (graph_close_operand), so that index() in it means
 * the operand's axes wherever they end up. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_rules.h"

static enum err_code flip(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    struct affine a = affine_same(n->rank);
    uint32_t axes;
    TRY(check_axes(c, call->param[1], n->rank, &axes));
    for (int k = 0; k < n->rank; k++)
        if ((axes >> k & 1) && n->shape[k] > 1) {
            a.start[k] = n->shape[k] - 1;
            a.step[k] = -1;
        }
    return graph_view(c, call->node, x, &a, n->rank, n->shape, ret);
}

static enum err_code permute(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    int64_t shape[MAX_RANK];
    struct expr_link one;
    const struct expr_link *items;
    uint32_t count = check_items(c, call->param[1], &items, &one), seen = 0;
    struct affine a = affine_same(n->rank);
    if (count != (uint32_t)n->rank)
        return expr_err(c->x, call->param[1], c->e, ERR_BAD_AXIS,
                        "permute_dims() takes every axis once: got %u axes for rank %d", count,
                        n->rank);
    for (int k = 0; k < n->rank; k++) {
        int from;
        TRY(check_axis(c, items[k].node, n->rank, &from));
        if (seen >> from & 1)
            return expr_err(c->x, items[k].node, c->e, ERR_BAD_AXIS, "axis %d is named twice",
                            from);
        seen |= 1u << from;
        a.src[from] = (int8_t)k;
        shape[k] = n->shape[from];
    }
    return graph_view(c, call->node, x, &a, n->rank, shape, ret);
}

static enum err_code expand(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    uint32_t node = call->param[1], fresh = 1;
    int rank = c->t->nodes[x].rank, more = 1;
    if (!check_absent(c, node) && c->x->nodes[node].kind == EXPR_LIST)
        more = (int)c->x->nodes[node].n_args;
    if (more > MAX_RANK || rank + more > MAX_RANK)
        return expr_err(c->x, call->node, c->e, ERR_BAD_SHAPE, "the rank would exceed %d",
                        MAX_RANK);
    if (!check_absent(c, node))
        TRY(check_axes(c, node, rank + more, &fresh));
    return graph_expand(c, call->node, x, fresh, ret);
}

static enum err_code squeeze(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    int64_t shape[MAX_RANK];
    struct affine a = affine_same(n->rank);
    uint32_t axes;
    int rank = 0;
    TRY(check_axes(c, call->param[1], n->rank, &axes));
    bool all = check_absent(c, call->param[1]);
    for (int k = 0; k < n->rank; k++) {
        if ((axes >> k & 1) && n->shape[k] == 1) {
            a.src[k] = -1;
            continue;
        }
        if ((axes >> k & 1) && !all)
            return expr_err(c->x, call->param[1], c->e, ERR_SHAPE_MISMATCH,
                            "squeeze() drops axes of extent 1, but axis %d has extent %lld", k,
                            (long long)n->shape[k]);
        a.src[k] = (int8_t)rank;
        shape[rank++] = n->shape[k];
    }
    return graph_view(c, call->node, x, &a, rank, shape, ret);
}

static enum err_code broadcast(struct checker *c, const struct call *call, uint32_t x,
                               uint32_t *ret)
{
    int64_t shape[MAX_RANK];
    int rank;
    TRY(check_shape(c, call->param[1], c->t->nodes[x].dtype, NULL, &rank, shape));
    return graph_broadcast(c, call->node, x, rank, shape, ret);
}

static int64_t element_count(const struct typed_node *n)
{
    int64_t count = 1; /* fits, because the node's bytes do */
    for (int k = 0; k < n->rank; k++)
        count *= n->shape[k];
    return count;
}

static enum err_code reshape(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    int64_t shape[MAX_RANK], known = 1, count = element_count(n);
    int rank, unknown;
    char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
    TRY(check_shape(c, call->param[1], n->dtype, &unknown, &rank, shape));
    bool fits = true;
    for (int k = 0; k < rank; k++)
        if (k != unknown)
            fits = !__builtin_mul_overflow(known, shape[k], &known) && fits;
    if (unknown >= 0 && fits && known > 0 && count % known == 0)
        known *= shape[unknown] = count / known;
    if (!fits || known != count || (unknown >= 0 && shape[unknown] < 0))
        return expr_err(c->x, call->param[1], c->e, ERR_SHAPE_MISMATCH,
                        "an array of %lld elements and shape %s cannot be reshaped to %s",
                        (long long)count, shape_text(n->rank, n->shape, from, sizeof from),
                        shape_text(rank, shape, to, sizeof to));
    if (unknown >= 0) /* of an empty array the others may be anything */
        TRY(graph_fits(c, call->param[1], n->dtype, rank, shape));
    return graph_reshape(c, call->node, x, rank, shape, ret);
}

/* Adds shifts along one axis, modulo its extent. */
static int64_t turned(int64_t so_far, int64_t shift, int64_t extent)
{
    return extent ? (so_far + shift % extent) % extent : 0;
}

static enum err_code roll_axes(struct checker *c, const struct call *call, uint32_t x,
                               const int64_t *by, uint32_t n_by, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    int64_t offsets[MAX_RANK] = {0};
    struct expr_link one;
    const struct expr_link *items;
    uint32_t n_axes = check_items(c, call->param[2], &items, &one);
    if (n_axes != n_by && n_axes != 1 && n_by != 1)
        return expr_err(c->x, call->param[2], c->e, ERR_SHAPE_MISMATCH,
                        "roll() takes one shift for each axis: got %u for %u axes", n_by, n_axes);
    bool moves = false;
    uint32_t n_turns = n_axes == 1 ? n_by : n_axes; /* with one axis and no shifts, none */
    for (uint32_t i = 0; i < n_turns; i++) {
        int axis;
        TRY(check_axis(c, items[n_axes == 1 ? 0 : i].node, n->rank, &axis));
        offsets[axis] = turned(offsets[axis], by[n_by == 1 ? 0 : i], n->shape[axis]);
    }
    for (int k = 0; k < n->rank; k++) {
        offsets[k] = -offsets[k];
        moves |= offsets[k] != 0;
    }
    *ret = x;
    return moves ? graph_shift(c, call->node, x, offsets, BOUNDARY_WRAP, 0, ret) : ERR_OK;
}

static enum err_code roll(struct checker *c, const struct call *call, uint32_t x, uint32_t *ret)
{
    int64_t by[MAX_RANK];
    uint32_t n_by;
    TRY(check_ints(c, call->param[1], "a shift", ERR_BAD_EXPRESSION, MAX_RANK, &n_by, by, NULL));
    if (!check_absent(c, call->param[2]))
        return roll_axes(c, call, x, by, n_by, ret);
    const struct typed_node n = c->t->nodes[x];
    int64_t count = element_count(&n), offset = 0;
    for (uint32_t i = 0; i < n_by; i++)
        offset = turned(offset, by[i], count);
    *ret = x;
    if (offset == 0)
        return ERR_OK;
    offset = -offset;
    TRY(graph_reshape(c, call->node, x, 1, &count, &x));
    TRY(graph_shift(c, call->node, x, &offset, BOUNDARY_WRAP, 0, &x));
    return graph_reshape(c, call->node, x, n.rank, n.shape, ret);
}

/* Elements on and below (above) the k-th diagonal of the last two axes; zeros elsewhere. */
static enum err_code triangle(struct checker *c, const struct call *call, uint32_t x, bool lower,
                              uint32_t *ret)
{
    const struct typed_node n = c->t->nodes[x];
    uint32_t place = call->node, i, j, zero;
    int64_t k = 0;
    if (n.rank < 2)
        return expr_err(c->x, call->param[0], c->e, ERR_SHAPE_MISMATCH,
                        "%s() takes an array of rank 2 or more; this one has rank %d", call->name,
                        n.rank);
    if (!check_absent(c, call->param[1]))
        TRY(check_int(c, call->param[1], "k", ERR_BAD_EXPRESSION, &k));
    const int64_t rows = n.shape[n.rank - 2], columns = n.shape[n.rank - 1];
    k = k > columns ? columns : k < -rows - 1 ? -rows - 1 : k; /* i + k stays within int64 */
    TRY(graph_index_of(c, place, n.rank - 2, n.rank, n.shape, &i));
    TRY(graph_index_of(c, place, n.rank - 1, n.rank, n.shape, &j));
    TRY(graph_op_int(c, place, OP_ADD, i, k, &i));
    TRY(graph_op2(c, place, lower ? OP_LESS_EQUAL : OP_GREATER_EQUAL, j, i, &i));
    TRY(graph_const(c, place, (struct scalar){.dtype = n.dtype}, &zero));
    return graph_where(c, place, i, x, zero, ret);
}

/* The windows at each position, in new last axes. */
static enum err_code sliding_windows(struct checker *c, const struct call *call, uint32_t x,
                                     uint32_t *ret)
{
    const int rank = c->t->nodes[x].rank;
    int64_t windows[MAX_RANK], left[MAX_RANK];
    int axes[MAX_RANK];
    uint32_t n, n_axes = (uint32_t)rank;
    struct expr_link one;
    const struct expr_link *items = NULL;
    TRY(check_ints(c, call->param[1], "a window", ERR_BAD_SHAPE, MAX_RANK, &n, windows, NULL));
    if (!check_absent(c, call->param[2]))
        n_axes = check_items(c, call->param[2], &items, &one);
    if (n != n_axes)
        return expr_err(c->x, call->param[1], c->e, ERR_BAD_SHAPE,
                        "sliding_windows() takes one window for each axis: got %u for %u axes", n,
                        n_axes);
    if (rank + (int)n > MAX_RANK)
        return expr_err(c->x, call->node, c->e, ERR_BAD_SHAPE, "the rank would exceed %d",
                        MAX_RANK);
    for (int k = 0; k < rank; k++)
        left[k] = c->t->nodes[x].shape[k];
    for (uint32_t i = 0; i < n; i++) {
        axes[i] = (int)i;
        if (items)
            TRY(check_axis(c, items[i].node, rank, &axes[i]));
        if (windows[i] < 1 || windows[i] > left[axes[i]])
            return expr_err(c->x, call->param[1], c->e, ERR_BAD_SHAPE,
                            "a window of %lld does not fit into axis %d of extent %lld",
                            (long long)windows[i], axes[i], (long long)left[axes[i]]);
        left[axes[i]] -= windows[i] - 1;
    }
    return graph_windows(c, call->node, x, (int)n, axes, windows, ret);
}

enum err_code rearrange_call(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x = 0;
    TRY(check_operand(c, call->param[0], &x));
    enum err_code code = ERR_OK;
    switch (call->func) {
    case FUNC_FLIP:
        code = flip(c, call, x, &x);
        break;
    case FUNC_PERMUTE_DIMS:
        code = permute(c, call, x, &x);
        break;
    case FUNC_EXPAND_DIMS:
        code = expand(c, call, x, &x);
        break;
    case FUNC_SQUEEZE:
        code = squeeze(c, call, x, &x);
        break;
    case FUNC_BROADCAST_TO:
        code = broadcast(c, call, x, &x);
        break;
    case FUNC_ROLL:
        code = roll(c, call, x, &x);
        break;
    case FUNC_RESHAPE:
        code = reshape(c, call, x, &x);
        break;
    case FUNC_SLIDING_WINDOWS:
        code = sliding_windows(c, call, x, &x);
        break;
    default:
        code = triangle(c, call, x, call->func == FUNC_TRIL, &x);
        break;
    }
    *ret = cval_typed(x, call->node);
    return code;
}
