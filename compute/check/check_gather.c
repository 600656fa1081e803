/* Elements by number: take and take_along_axis.
 *
 * The index along the axis and those along the others form one number in C order, which a T_GATHER
 * reads. It clamps every number, so it never reads outside; an index out of range is an error
 * nevertheless. Known indices are checked here and become a table. Others get a guard: a reduction
 * that tells whether an index is out of range, which the evaluator checks before it stores
 * anything. */
#include <string.h>

#include "compute/check/check_graph.h"
#include "compute/check/check_ops.h"
#include "compute/check/check_rules.h"

enum take_mode { TAKE_RAISE, TAKE_CLIP, TAKE_WRAP };

/* The source of the elements, and the axis. */
struct taking {
    uint32_t x, place;
    int rank, axis;
    const int64_t *shape;
    int64_t extent;
    enum take_mode mode;
};

static enum err_code mode_param(struct checker *c, uint32_t node, enum take_mode *ret)
{
    static const char *const names[] = {"raise", "clip", "wrap"};
    *ret = TAKE_RAISE;
    if (check_absent(c, node))
        return ERR_OK;
    const char *text = check_text(c, node);
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum take_mode)i;
            return ERR_OK;
        }
    return expr_err(c->x, node, c->e, ERR_BAD_EXPRESSION, "mode must be 'raise', 'clip' or 'wrap'");
}

static enum err_code out_of_range(struct checker *c, uint32_t place, int64_t i,
                                  const struct taking *t)
{
    return expr_err(c->x, place, c->e, ERR_BAD_INDEX,
                    "index %lld is out of range for axis %d of extent %lld", (long long)i, t->axis,
                    (long long)t->extent);
}

/* A known index, counted from the front. */
static enum err_code known_index(struct checker *c, uint32_t place, const struct taking *t,
                                 int64_t *i)
{
    const int64_t n = t->extent;
    if (n == 0)
        return out_of_range(c, place, *i, t);
    switch (t->mode) {
    case TAKE_RAISE:
        if (*i < -n || *i >= n)
            return out_of_range(c, place, *i, t);
        *i += *i < 0 ? n : 0;
        break;
    case TAKE_CLIP:
        *i = *i < 0 ? 0 : *i >= n ? n - 1 : *i;
        break;
    case TAKE_WRAP:
        *i = (*i % n + n) % n;
        break;
    }
    return ERR_OK;
}

/* The indices as int64, with their scope closed. */
static enum err_code index_operand(struct checker *c, const struct cval *v,
                                   const struct taking *taking, uint32_t *ret)
{
    uint32_t id;
    TRY(ops_typed(c, v, &id));
    enum dtype t = c->t->nodes[id].dtype;
    if (!dtype_is_integer(t))
        return expr_err(c->x, v->place, c->e, ERR_DTYPE_MISMATCH,
                        "indices must have an integer type, not %s", dtype_name(t));
    TRY(graph_close_operand(c, v->place, id, &id));
    if (t == DT_U64) { /* a value that does not fit is out of range anyway, except for TAKE_WRAP */
        bool wrap = taking->mode == TAKE_WRAP && taking->extent > 0;
        uint64_t bound = wrap ? (uint64_t)taking->extent : INT64_MAX;
        uint32_t by;
        TRY(graph_const(c, v->place, (struct scalar){.dtype = t, .v.u64 = bound}, &by));
        TRY(graph_op2(c, v->place, wrap ? OP_REMAINDER : OP_MINIMUM, id, by, &id));
    }
    return graph_cast(c, v->place, id, DT_I64, ret);
}

/* Maps any index to one within 0 … extent − 1 (for TAKE_RAISE: if it was valid). */
static enum err_code from_the_front(struct checker *c, uint32_t place, const struct taking *t,
                                    uint32_t j, uint32_t *ret)
{
    uint32_t negative, turned;
    switch (t->mode) {
    case TAKE_RAISE:
        TRY(graph_op_int(c, place, OP_LESS, j, 0, &negative));
        TRY(graph_op_int(c, place, OP_ADD, j, t->extent, &turned));
        return graph_where(c, place, negative, turned, j, ret);
    case TAKE_CLIP:
        TRY(graph_op_int(c, place, OP_MAXIMUM, j, 0, &j));
        return graph_op_int(c, place, OP_MINIMUM, j, t->extent - 1, ret);
    case TAKE_WRAP:
        break;
    }
    return graph_op_int(c, place, OP_REMAINDER, j, t->extent, ret);
}

/* The node that errors about indices name: the indices, or the take if they come from another text,
 * such as a program's temporary that was inlined (program_inline.c), because it is the take that
 * fails. */
static uint32_t blamed(const struct checker *c, uint32_t indices, const struct taking *t)
{
    const struct expr_node *i = &c->x->nodes[indices], *taking = &c->x->nodes[t->place];
    return i->source != taking->source && !i->expansion && !taking->expansion ? t->place : indices;
}

static enum err_code add_guard(struct checker *c, uint32_t place, const struct taking *t,
                               uint32_t j, uint32_t gather)
{
    uint32_t low, high, fault;
    TRY(graph_op_int(c, place, OP_LESS, j, -t->extent, &low));
    TRY(graph_op_int(c, place, OP_GREATER_EQUAL, j, t->extent, &high));
    TRY(graph_op2(c, place, OP_LOGICAL_OR, low, high, &fault));
    int rank = c->t->nodes[fault].rank;
    if (rank)
        TRY(graph_reduce(c, place, fault, REDUCE_ANY, 0, rank == 32 ? UINT32_MAX : (1u << rank) - 1,
                         false, &fault));
    if (arena_grow(c->arena, (void **)&c->guards, &c->cap_guards, c->n_guards, sizeof *c->guards))
        return err_oom(c->e);
    struct guard *g = &c->guards[c->n_guards++];
    *g = (struct guard){.fault = fault, .gather = gather, .says.place = blamed(c, place, t)};
    g->says.message = arena_printf(c->arena, "an index is out of range for axis %d of extent %lld",
                                   t->axis, (long long)t->extent);
    return g->says.message ? ERR_OK : err_oom(c->e);
}

/* Literal indices: a number, or nested lists of equal depth. */
struct indices {
    int rank;
    int64_t shape[MAX_RANK], n;
    int64_t *v; /* counted from the front */
};

static bool is_literal(const struct checker *c, uint32_t node)
{
    const struct expr_node *x = &c->x->nodes[node];
    return x->kind == EXPR_LIST || (x->kind == EXPR_LITERAL && x->lit.kind == LIT_INT);
}

static enum err_code literal_indices(struct checker *c, uint32_t node, const struct taking *t,
                                     struct indices *ret)
{
    uint32_t *items = arena_dup(c->arena, &node, sizeof node);
    ret->rank = 0;
    ret->n = 1;
    while (items && ret->n && c->x->nodes[items[0]].kind == EXPR_LIST) {
        uint32_t each = c->x->nodes[items[0]].n_args;
        uint32_t *deeper = arena_alloc_array(c->arena, (size_t)ret->n * each + 1, sizeof *deeper);
        for (int64_t i = 0; i < ret->n; i++) {
            const struct expr_node *x = &c->x->nodes[items[i]];
            if (x->kind != EXPR_LIST || x->n_args != each || ret->rank == MAX_RANK)
                return expr_err(c->x, items[i], c->e, ERR_SHAPE_MISMATCH,
                                "lists of indices at the same depth must have the same length");
            for (uint32_t j = 0; deeper && j < each; j++)
                deeper[i * each + j] = c->x->links[x->first_arg + j].node;
        }
        ret->shape[ret->rank++] = each;
        ret->n *= each;
        items = deeper;
    }
    ret->v = arena_alloc_array(c->arena, (size_t)ret->n + 1, sizeof *ret->v);
    if (!items || !ret->v)
        return err_oom(c->e);
    for (int64_t i = 0; i < ret->n; i++) {
        TRY(check_int(c, items[i], "an index", ERR_BAD_INDEX, &ret->v[i]));
        TRY(known_index(c, items[i], t, &ret->v[i]));
    }
    return ERR_OK;
}

/* Whether the indices are one number, or a slice of the axis; if so, the view that takes it. */
static bool is_slice(const struct taking *t, const struct indices *in, struct affine *ret)
{
    int64_t step = in->n > 1 ? in->v[1] - in->v[0] : 1;
    if (in->rank > 1 || in->n == 0)
        return false;
    for (int64_t i = 1; i < in->n; i++)
        if (in->v[i] - in->v[i - 1] != step)
            return false;
    *ret = (struct affine){.rank = t->rank};
    for (int k = 0; k < t->rank; k++) {
        ret->src[k] = (int8_t)(k > t->axis ? k + in->rank - 1 : k);
        ret->step[k] = 1;
    }
    ret->src[t->axis] = (int8_t)(in->rank ? t->axis : -1);
    ret->start[t->axis] = in->v[0];
    ret->step[t->axis] = step;
    return true;
}

/* The indices as a node: the numbers of a table, by their position in the list. */
static enum err_code listed(struct checker *c, uint32_t place, const struct indices *in,
                            uint32_t *ret)
{
    uint32_t at, id;
    if (in->n == 0)
        return graph_filled(c, place, (struct scalar){.dtype = DT_I64}, in->rank, in->shape, ret);
    if (in->rank == 0)
        TRY(graph_int(c, place, 0, &at));
    for (int k = 0; k < in->rank; k++) {
        TRY(graph_index_of(c, place, k, in->rank, in->shape, &id));
        if (k > 0) {
            TRY(graph_op_int(c, place, OP_MULTIPLY, at, in->shape[k], &at));
            TRY(graph_op2(c, place, OP_ADD, at, id, &id));
        }
        at = id;
    }
    return graph_table(c, place, in->v, in->n, at, ret);
}

/* The result's shape for indices of `shape`: that shape in the axis's place. */
static enum err_code taken_shape(struct checker *c, const struct taking *t, int rank,
                                 const int64_t *shape, int *ret_rank, int64_t *ret)
{
    if (t->rank - 1 + rank > MAX_RANK)
        return expr_err(c->x, t->place, c->e, ERR_BAD_SHAPE, "the rank would exceed %d", MAX_RANK);
    int n = 0;
    for (int k = 0; k < t->axis; k++)
        ret[n++] = t->shape[k];
    for (int k = 0; k < rank; k++)
        ret[n++] = shape[k];
    for (int k = t->axis + 1; k < t->rank; k++)
        ret[n++] = t->shape[k];
    *ret_rank = n;
    return graph_fits(c, t->place, c->t->nodes[t->x].dtype, n, ret);
}

/* An empty result. */
static enum err_code empty(struct checker *c, const struct taking *t, int rank,
                           const int64_t *shape, uint32_t *ret)
{
    const struct scalar zero = {.dtype = c->t->nodes[t->x].dtype};
    return graph_filled(c, t->place, zero, rank, shape, ret);
}

static bool has_elements(int rank, const int64_t *shape)
{
    for (int k = 0; k < rank; k++)
        if (shape[k] == 0)
            return false;
    return true;
}

static int64_t axis_stride(const struct taking *t)
{
    int64_t stride = 1;
    for (int k = t->axis + 1; k < t->rank; k++)
        stride *= t->shape[k];
    return stride;
}

/* Elements of x: the index along the axis times its stride is j (int64, as wide as the result). The
 * other axes of x follow those of the result: axis k is result axis other[k]. */
static enum err_code gather(struct checker *c, const struct taking *t, uint32_t j, const int *other,
                            int rank, const int64_t *shape, uint32_t *ret)
{
    uint32_t sum = 0, id;
    int64_t stride = 1;
    bool any = false;
    for (int k = t->rank; k-- > 0; stride *= t->shape[k]) {
        if (k != t->axis && t->shape[k] == 1)
            continue;
        if (k == t->axis)
            id = j;
        else
            TRY(graph_index_of(c, t->place, other[k], rank, shape, &id));
        if (k != t->axis && stride != 1)
            TRY(graph_op_int(c, t->place, OP_MULTIPLY, id, stride, &id));
        if (any)
            TRY(graph_op2(c, t->place, OP_ADD, sum, id, &id));
        sum = id;
        any = true;
    }
    return graph_gather(c, t->place, t->x, sum, ret);
}

static int64_t count(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= shape[k];
    return n;
}

/* Whether the indices deserve a kernel of their own: they are used many times in a large result,
 * and their conversion would otherwise be repeated for each element. */
static bool worth_storing(int64_t indices, int64_t results)
{
    return results >= 65536 && results / 4 >= indices;
}

static enum err_code take_nodes(struct checker *c, const struct taking *t, uint32_t place,
                                uint32_t j, bool known, uint32_t *ret)
{
    const struct typed_node n = c->t->nodes[j];
    int rank, other[MAX_RANK];
    int64_t shape[MAX_RANK];
    TRY(taken_shape(c, t, n.rank, n.shape, &rank, shape));
    if (!has_elements(rank, shape) && (t->extent > 0 || !has_elements(n.rank, n.shape)))
        return empty(c, t, rank, shape, ret);
    if (t->extent == 0)
        return expr_err(c->x, place, c->e, ERR_BAD_INDEX,
                        "cannot take elements along axis %d: it is empty", t->axis);
    uint32_t front = j;
    if (!known)
        TRY(from_the_front(c, t->place, t, j, &front));
    if (axis_stride(t) != 1)
        TRY(graph_op_int(c, t->place, OP_MULTIPLY, front, axis_stride(t), &front));
    bool made = front != j || (n.kind != T_INPUT && n.kind != T_CONST);
    if (made && worth_storing(count(n.rank, n.shape), count(rank, shape)))
        TRY(graph_stored(c, t->place, front, &front));
    struct affine spread = {.rank = n.rank};
    for (int k = 0; k < n.rank; k++) {
        spread.src[k] = (int8_t)(t->axis + k);
        spread.step[k] = 1;
    }
    TRY(graph_view(c, t->place, front, &spread, rank, shape, &front));
    for (int k = 0; k < t->rank; k++)
        other[k] = k < t->axis ? k : k + n.rank - 1;
    TRY(gather(c, t, front, other, rank, shape, ret));
    return known || t->mode != TAKE_RAISE ? ERR_OK : add_guard(c, place, t, j, *ret);
}

static enum err_code take_literal(struct checker *c, const struct taking *t, uint32_t node,
                                  uint32_t *ret)
{
    struct indices in;
    struct affine slice;
    int rank;
    int64_t shape[MAX_RANK];
    uint32_t j;
    TRY(literal_indices(c, node, t, &in));
    TRY(taken_shape(c, t, in.rank, in.shape, &rank, shape));
    if (in.n == 0)
        return empty(c, t, rank, shape, ret);
    if (is_slice(t, &in, &slice))
        return graph_view(c, t->place, t->x, &slice, rank, shape, ret);
    TRY(listed(c, t->place, &in, &j));
    return take_nodes(c, t, node, j, true, ret);
}

static enum err_code taking_of(struct checker *c, const struct call *call, uint32_t axis_node,
                               struct taking *ret)
{
    TRY(check_operand(c, call->param[0], &ret->x));
    const struct typed_node *n = &c->t->nodes[ret->x];
    ret->place = call->node;
    ret->rank = n->rank;
    ret->shape = n->shape;
    if (n->rank == 0)
        return expr_err(c->x, call->param[0], c->e, ERR_SHAPE_MISMATCH,
                        "%s() needs an array of rank 1 or more", call->name);
    if (!check_absent(c, axis_node))
        TRY(check_axis(c, axis_node, n->rank, &ret->axis));
    ret->extent = ret->shape[ret->axis];
    return ERR_OK;
}

enum err_code gather_take(struct checker *c, const struct call *call, struct cval *ret)
{
    struct taking t = {0};
    struct cval v;
    uint32_t j, id, node = call->param[1];
    TRY(taking_of(c, call, call->param[2], &t));
    if (check_absent(c, call->param[2]) && t.rank > 1)
        return expr_err(c->x, call->node, c->e, ERR_BAD_AXIS,
                        "take() needs an axis here, because the array has rank %d", t.rank);
    TRY(mode_param(c, call->param[3], &t.mode));
    if (is_literal(c, node)) {
        TRY(take_literal(c, &t, node, &id));
        *ret = cval_typed(id, call->node);
        return ERR_OK;
    }
    TRY(check_value(c, node, &v));
    TRY(index_operand(c, &v, &t, &j));
    bool known = c->t->nodes[j].kind == T_CONST;
    if (known) {
        int64_t i = c->t->nodes[j].value.v.i64;
        TRY(known_index(c, node, &t, &i));
        TRY(graph_int(c, node, i, &j));
    }
    TRY(take_nodes(c, &t, node, j, known, &id));
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}

enum err_code gather_slices(struct checker *c, uint32_t place, uint32_t x, int axis, uint32_t i,
                            uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[x];
    const struct taking t = {.x = x,
                             .place = place,
                             .rank = n->rank,
                             .axis = axis,
                             .shape = n->shape,
                             .extent = n->shape[axis]};
    return take_nodes(c, &t, place, i, true, ret);
}

enum err_code gather_take_along(struct checker *c, const struct call *call, struct cval *ret)
{
    struct taking t = {0};
    struct cval v;
    uint32_t j, front, id, node = call->param[1];
    int same[MAX_RANK];
    int64_t shape[MAX_RANK];
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    TRY(taking_of(c, call, call->param[2], &t));
    if (check_absent(c, call->param[2]))
        t.extent = t.shape[t.axis = t.rank - 1];
    bool known = c->x->nodes[node].kind == EXPR_LIST;
    if (known) {
        struct indices in;
        TRY(literal_indices(c, node, &t, &in));
        TRY(listed(c, node, &in, &j));
    } else {
        TRY(check_value(c, node, &v));
        TRY(index_operand(c, &v, &t, &j));
    }
    const struct typed_node n = c->t->nodes[j];
    bool fits = n.rank == t.rank;
    for (int k = 0; fits && k < t.rank; k++) {
        shape[k] = k == t.axis || t.shape[k] == 1 ? n.shape[k] : t.shape[k];
        fits = n.shape[k] == shape[k] || n.shape[k] == 1;
        same[k] = k;
    }
    if (!fits)
        return expr_err(c->x, node, c->e, ERR_SHAPE_MISMATCH,
                        "take_along_axis(): indices of shape %s do not match an array of shape %s: "
                        "only the extents along the axis may differ",
                        shape_text(n.rank, n.shape, a, sizeof a),
                        shape_text(t.rank, t.shape, b, sizeof b));
    TRY(graph_fits(c, call->node, c->t->nodes[t.x].dtype, t.rank, shape));
    if (!has_elements(t.rank, shape)) {
        TRY(empty(c, &t, t.rank, shape, &id));
    } else {
        if (t.extent == 0)
            return expr_err(c->x, node, c->e, ERR_BAD_INDEX,
                            "cannot take elements along axis %d: it is empty", t.axis);
        front = j;
        if (!known)
            TRY(from_the_front(c, t.place, &t, j, &front));
        if (axis_stride(&t) != 1)
            TRY(graph_op_int(c, t.place, OP_MULTIPLY, front, axis_stride(&t), &front));
        TRY(graph_broadcast(c, t.place, front, t.rank, shape, &front));
        TRY(gather(c, &t, front, same, t.rank, shape, &id));
        if (!known)
            TRY(add_guard(c, node, &t, j, id));
    }
    *ret = cval_typed(id, call->node);
    return ERR_OK;
}
