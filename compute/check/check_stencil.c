/* Functions that depend on shapes: indexing, index(), shift() and the differences composed of it.
 *
 * Each closes its argument's scope first (graph_close), then expands into views, shifts and
 * ordinary operations. Offsets are reduced to the extents here, so that the backends add them
 * without overflow: to the remainder by the period for periodic modes, else to at most one extent
 * outside. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"
#include "compute/lang/fold.h"

enum err_code stencil_getitem(struct checker *c, uint32_t node, struct cval *ret)
{
    const struct expr_node *n = &c->x->nodes[node];
    struct cval v;
    uint32_t id;
    TRY(check_value(c, c->x->links[n->first_arg].node, &v));
    if (v.weak)
        return expr_err(c->x, node, c->e, ERR_BAD_INDEX, "a literal cannot be indexed");
    TRY(graph_close_operand(c, v.place, v.id, &id));
    const struct typed_node *x = &c->t->nodes[id];
    struct index_map m;
    TRY(check_place(c, node, index_resolve(x->rank, x->shape, n->index, &m, c->e)));
    struct affine a = {.rank = x->rank};
    bool whole = m.rank == x->rank, empty = false;
    for (int k = 0; k < x->rank; k++)
        a.src[k] = -1;
    for (int r = 0; r < m.rank; r++) {
        if (m.axis[r] >= 0)
            a.src[m.axis[r]] = (int8_t)r;
        whole &= m.axis[r] == r && m.shape[r] == x->shape[r];
        empty |= m.shape[r] == 0;
    }
    for (int k = 0; k < x->rank; k++) {
        a.start[k] = empty ? 0 : m.start[k];
        a.step[k] = m.step[k];
        whole &= a.start[k] == 0 && m.step[k] == 1;
    }
    if (!whole)
        TRY(graph_view(c, node, id, &a, m.rank, m.shape, &id));
    *ret = cval_typed(id, node);
    return ERR_OK;
}

enum err_code stencil_index(struct checker *c, const struct call *call, struct cval *ret)
{
    int64_t axis;
    uint32_t id;
    TRY(check_int(c, call->param[0], "axis", ERR_BAD_AXIS, &axis));
    TRY(graph_index(c, call->node, axis, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

/* The index along one axis of element number i (int64) of a shape. */
static enum err_code unravel_of(struct checker *c, const struct call *call, uint32_t i,
                                uint32_t *ret)
{
    int64_t shape[MAX_RANK], inner = 1;
    int rank, axis;
    TRY(check_shape(c, call->param[2], DT_BOOL, NULL, &rank, shape));
    TRY(check_axis(c, call->param[1], rank, &axis));
    for (int k = axis + 1; k < rank; k++)
        inner *= shape[k];
    TRY(graph_op_int(c, call->node, OP_FLOOR_DIVIDE, i, inner, &i));
    return graph_op_int(c, call->node, OP_REMAINDER, i, shape[axis], ret);
}

enum err_code stencil_unravel(struct checker *c, const struct call *call, struct cval *ret)
{
    struct cval v;
    uint32_t i, id;
    int64_t axis;
    TRY(check_value(c, call->param[0], &v));
    TRY(check_int(c, call->param[1], "axis", ERR_BAD_AXIS, &axis));
    TRY(ops_typed(c, &v, &i));
    if (!dtype_is_integer(c->t->nodes[i].dtype))
        return expr_err(c->x, v.place, c->e, ERR_DTYPE_MISMATCH,
                        "unravel_index() takes a linear index of an integer type, not %s",
                        dtype_name(c->t->nodes[i].dtype));
    TRY(graph_cast(c, call->node, i, DT_I64, &i));
    if (check_absent(c, call->param[2]))
        TRY(graph_unravel(c, call->node, i, axis, &id));
    else
        TRY(unravel_of(c, call, i, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

/* An offset along an axis of extent n with the same effect and |offset| ≤ 2n. */
static int64_t reduced_offset(int64_t offset, int64_t n, enum boundary_mode mode)
{
    if (n == 0)
        return 0;
    switch (mode) {
    case BOUNDARY_WRAP:
        return offset % n;
    case BOUNDARY_REFLECT:
        return n == 1 ? 0 : offset % (2 * (n - 1));
    case BOUNDARY_SYMMETRIC:
        return offset % (2 * n);
    case BOUNDARY_CLAMP:
    case BOUNDARY_SELF:
    case BOUNDARY_CONSTANT:
    case BOUNDARY_GHOST:
        break;
    }
    return offset > n ? n : offset < -n ? -n : offset;
}

enum err_code stencil_shifted(struct checker *c, uint32_t place, uint32_t x, const int64_t *offsets,
                              const struct edge *edge, uint32_t *ret)
{
    int rank = c->t->nodes[x].rank;
    const int64_t *shape = c->t->nodes[x].shape;
    enum dtype t = c->t->nodes[x].dtype;
    int64_t reduced[MAX_RANK];
    bool moves = false;
    if (edge->array)
        return array_shift(c, place, edge->place, x, offsets, ret);
    if (edge->mode == BOUNDARY_GHOST)
        return ghost_shift(c, place, x, offsets, ret);
    for (int k = 0; k < rank; k++) {
        reduced[k] = reduced_offset(offsets[k], shape[k], edge->mode);
        moves |= reduced[k] != 0;
    }
    uint32_t value = 0;
    if (edge->mode == BOUNDARY_CONSTANT) {
        struct cval v = cval_int(0, place);
        if (t == DT_BOOL)
            v.lit.kind = LIT_BOOL;
        if (edge->valued)
            v = edge->value;
        TRY(ops_convert(c, &v, t, &value));
    }
    if (!moves) {
        *ret = x;
        return ERR_OK;
    }
    return graph_shift(c, place, x, reduced, edge->mode, value, ret);
}

enum err_code stencil_shift(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x, id;
    struct edge edge;
    int64_t offsets[MAX_RANK];
    struct expr_link one;
    const struct expr_link *items;
    TRY(check_operand(c, call->param[0], &x));
    uint32_t n = check_items(c, call->param[1], &items, &one);
    if (n != (uint32_t)c->t->nodes[x].rank)
        return expr_err(c->x, call->param[1], c->e, ERR_SHAPE_MISMATCH,
                        "shift() takes one offset for each axis of its operand: got %u for rank %d",
                        n, c->t->nodes[x].rank);
    for (uint32_t k = 0; k < n; k++)
        TRY(check_int(c, items[k].node, "an offset", ERR_BAD_EXPRESSION, &offsets[k]));
    TRY(check_edge(c, call->param[2], call->param[3], &edge));
    TRY(stencil_shifted(c, call->node, x, offsets, &edge, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

static enum err_code shifted_by_one(struct checker *c, uint32_t place, uint32_t x, int axis,
                                    int64_t by, const struct edge *edge, uint32_t *ret)
{
    int64_t offsets[MAX_RANK] = {0};
    offsets[axis] = by;
    return stencil_shifted(c, place, x, offsets, edge, ret);
}

enum err_code stencil_one_sided(struct checker *c, const struct call *call, struct cval *ret)
{
    const bool forward = call->func == FUNC_FORWARD_DIFF;
    uint32_t x, s;
    int axis = 0;
    struct edge edge;
    TRY(check_operand(c, call->param[0], &x));
    TRY(check_axis(c, call->param[1], c->t->nodes[x].rank, &axis));
    TRY(check_edge(c, call->param[2], call->param[3], &edge));
    TRY(shifted_by_one(c, call->node, x, axis, forward ? 1 : -1, &edge, &s));
    struct cval hi = cval_typed(forward ? s : x, call->node);
    struct cval lo = cval_typed(forward ? x : s, call->node);
    return ops_apply(c, call->node, OP_SUBTRACT, (const struct cval[]){hi, lo}, ret);
}

static bool names_array(struct checker *c, uint32_t node)
{
    const struct expr_node *n = &c->x->nodes[node];
    bool quoted = n->kind == EXPR_STRING || n->offset < 0; /* in a tree every string is a name */
    const char *text = quoted ? check_text(c, node) : NULL;
    return text && strcmp(text, "array") == 0;
}

/* One spacing: a number other than 0. "array" is the array's own, 1 if it has none. */
static enum err_code spacing_value(struct checker *c, uint32_t node, uint32_t x, int axis,
                                   struct cval *ret)
{
    struct cval h;
    if (names_array(c, node))
        return array_spacing(c, node, x, axis, ret);
    TRY(check_value(c, node, &h));
    struct cval known = h;
    if (!cval_known(c, &known))
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "spacing must be a number");
    if (!fold_truth(&known.lit))
        return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "spacing must not be 0");
    *ret = h;
    return ERR_OK;
}

/* Converts integers and bools to float64. */
static enum err_code as_float(struct checker *c, uint32_t place, uint32_t *x)
{
    enum dtype t = c->t->nodes[*x].dtype;
    return dtype_kind(t) < KIND_FLOAT ? graph_cast(c, place, *x, DT_F64, x) : ERR_OK;
}

enum err_code stencil_central(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x, id[2];
    int axis = 0;
    struct edge edge;
    struct cval h = cval_int(1, call->node), r;
    TRY(check_operand(c, call->param[0], &x));
    TRY(check_axis(c, call->param[1], c->t->nodes[x].rank, &axis));
    if (!check_absent(c, call->param[2]))
        TRY(spacing_value(c, call->param[2], x, axis, &h));
    TRY(check_edge(c, call->param[3], call->param[4], &edge));
    for (int k = 0; k < 2; k++) {
        TRY(shifted_by_one(c, call->node, x, axis, k ? -1 : 1, &edge, &id[k]));
        TRY(as_float(c, call->node, &id[k]));
    }
    struct cval diff[2] = {cval_typed(id[0], call->node), cval_typed(id[1], call->node)};
    TRY(ops_apply(c, call->node, OP_SUBTRACT, diff, &r));
    TRY(ops_apply(c, call->node, OP_MULTIPLY, (const struct cval[]){cval_int(2, h.place), h}, &h));
    return ops_apply(c, call->node, OP_DIVIDE, (const struct cval[]){r, h}, ret);
}

static bool is_one(const struct cval *h)
{
    return h->weak && h->lit.kind != LIT_COMPLEX && fold_double(&h->lit) == 1;
}

static enum err_code divide_by_square(struct checker *c, uint32_t place, struct cval h,
                                      struct cval *v)
{
    if (is_one(&h))
        return ERR_OK;
    TRY(ops_apply(c, place, OP_MULTIPLY, (const struct cval[]){h, h}, &h));
    return ops_apply(c, place, OP_DIVIDE, (const struct cval[]){*v, h}, v);
}

/* shift(+1) − 2x + shift(−1) along one axis. */
static enum err_code second_difference(struct checker *c, uint32_t place, uint32_t x, int axis,
                                       const struct edge *edge, struct cval *ret)
{
    uint32_t hi, lo, mid = x;
    struct cval r;
    TRY(shifted_by_one(c, place, x, axis, 1, edge, &hi));
    TRY(shifted_by_one(c, place, x, axis, -1, edge, &lo));
    TRY(as_float(c, place, &hi));
    TRY(as_float(c, place, &lo));
    TRY(as_float(c, place, &mid));
    TRY(ops_apply(c, place, OP_MULTIPLY,
                  (const struct cval[]){cval_int(2, place), cval_typed(mid, place)}, &r));
    TRY(ops_apply(c, place, OP_SUBTRACT, (const struct cval[]){cval_typed(hi, place), r}, &r));
    return ops_apply(c, place, OP_ADD, (const struct cval[]){r, cval_typed(lo, place)}, ret);
}

/* A single spacing divides the sum once; a list divides each axis's term by its own. */
enum err_code stencil_laplacian(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x, place = call->node;
    struct edge edge;
    struct cval h[MAX_RANK], sum = {0};
    struct expr_link one;
    const struct expr_link *items = NULL;
    TRY(check_operand(c, call->param[0], &x));
    int rank = c->t->nodes[x].rank;
    if (rank == 0)
        return expr_err(c->x, call->param[0], c->e, ERR_SHAPE_MISMATCH,
                        "laplacian() takes an array of rank 1 or more");
    h[0] = cval_int(1, place);
    bool list = false;
    if (!check_absent(c, call->param[1])) {
        list = c->x->nodes[call->param[1]].kind == EXPR_LIST;
        uint32_t n = check_items(c, call->param[1], &items, &one);
        if (list && n != (uint32_t)rank)
            return expr_err(
                c->x, call->param[1], c->e, ERR_SHAPE_MISMATCH,
                "laplacian() takes one spacing, or one for each axis: got %u for rank %d", n, rank);
        for (uint32_t k = 0; k < n; k++)
            TRY(spacing_value(c, items[k].node, x, (int)k, &h[k]));
        if (!list && names_array(c, call->param[1])) {
            list = true;
            for (int k = 0; k < rank; k++)
                TRY(array_spacing(c, call->param[1], x, k, &h[k]));
        }
    }
    TRY(check_edge(c, call->param[2], call->param[3], &edge));
    for (int k = 0; k < rank; k++) {
        struct cval term;
        TRY(second_difference(c, place, x, k, &edge, &term));
        if (list)
            TRY(divide_by_square(c, place, h[k], &term));
        if (k == 0)
            sum = term;
        else
            TRY(ops_apply(c, place, OP_ADD, (const struct cval[]){sum, term}, &sum));
    }
    if (!list)
        TRY(divide_by_square(c, place, h[0], &sum));
    *ret = sum;
    return ERR_OK;
}

/* numpy.gradient along one axis: central differences inside, one-sided ones at the ends. */
enum err_code stencil_gradient(struct checker *c, const struct call *call, struct cval *ret)
{
    uint32_t x, id[2], i, place = call->node;
    int axis = 0;
    const struct edge edge = {.mode = BOUNDARY_CLAMP};
    struct cval h = cval_int(1, place), h2, diff[2], end[2];
    TRY(check_operand(c, call->param[0], &x));
    int rank = c->t->nodes[x].rank;
    const int64_t *shape = c->t->nodes[x].shape;
    TRY(check_axis(c, call->param[1], rank, &axis));
    if (!check_absent(c, call->param[2]))
        TRY(spacing_value(c, call->param[2], x, axis, &h));
    if (shape[axis] < 2)
        return expr_err(c->x, call->param[0], c->e, ERR_SHAPE_MISMATCH,
                        "gradient() needs at least two elements along axis %d, but there %s %lld",
                        axis, shape[axis] ? "is" : "are", (long long)shape[axis]);
    for (int k = 0; k < 2; k++) {
        TRY(shifted_by_one(c, place, x, axis, k ? -1 : 1, &edge, &id[k]));
        TRY(as_float(c, place, &id[k]));
        diff[k] = cval_typed(id[k], place);
    }
    TRY(ops_apply(c, place, OP_SUBTRACT, diff, &diff[0]));
    TRY(ops_apply(c, place, OP_MULTIPLY, (const struct cval[]){cval_int(2, h.place), h}, &h2));
    TRY(ops_apply(c, place, OP_DIVIDE, (const struct cval[]){diff[0], h}, &diff[1]));
    TRY(ops_apply(c, place, OP_DIVIDE, (const struct cval[]){diff[0], h2}, &diff[0]));
    TRY(graph_index_of(c, place, axis, rank, shape, &i));
    for (int k = 0; k < 2; k++) {
        struct cval at[2] = {cval_typed(i, place), cval_int(k ? shape[axis] - 1 : 0, place)};
        TRY(ops_apply(c, place, OP_EQUAL, at, &end[k]));
    }
    TRY(ops_apply(c, place, OP_LOGICAL_OR, end, &end[0]));
    TRY(graph_where(c, place, end[0].id, diff[1].id, diff[0].id, &i));
    *ret = cval_typed(i, place);
    return ERR_OK;
}
