/* Typed nodes: shapes, sharing, scopes.
 *
 * Identical nodes are made once (a hash table over their contents), so that repeated
 * subexpressions, and those that laplacian(x) and x share, are computed once. The expansion of
 * composite functions relies on it.
 *
 * index() has no shape of its own; it takes its scope's, which is known only when the scope (the
 * whole expression, or the argument of a shift, reduction or indexing) is complete. Until then such
 * nodes are loose, and hold the axis as written. graph_close() then replaces them by nodes with the
 * scope's shape, together with everything between them and the scope's root: elementwise nodes
 * only, whose value at each point of the scope is well defined even if their other operands are
 * narrower. */
#include "compute/check/check_graph.h"

#include <assert.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

static uint64_t hash_i64s(uint64_t h, const int64_t *v, int n)
{
    for (int k = 0; k < n; k++)
        h = mix(h, (uint64_t)v[k]);
    return h;
}

static uint64_t node_hash(const struct checker *c, const struct typed_node *n)
{
    uint64_t h = mix((uint64_t)n->kind << 32 | (uint64_t)n->dtype << 16 | (uint64_t)n->rank, 7);
    for (int k = 0; k < n->n_args; k++)
        h = mix(h, n->args[k]);
    h = hash_i64s(h, n->shape, n->rank);
    uint64_t raw[2];
    switch (n->kind) {
    case T_CONST:
        memcpy(raw, n->value.v.raw, sizeof raw);
        return mix(mix(h, raw[0]), raw[1]);
    case T_INPUT:
        return mix(h, n->input);
    case T_OP:
        return mix(h, n->op);
    case T_SHIFT:
        return hash_i64s(mix(h, n->shift.mode), n->shift.offsets, n->rank);
    case T_INDEX:
    case T_UNRAVEL:
        return mix(h, (uint64_t)n->axis);
    case T_VIEW:
        return hash_i64s(hash_i64s(h, n->view->start, n->view->rank), n->view->step,
                         c->t->nodes[n->args[0]].rank);
    case T_SCAN:
        return mix(h, (uint64_t)n->scan.op << 32 | (uint64_t)n->scan.axis);
    case T_REDUCE:
        memcpy(raw, &n->reduce.divisor, sizeof *raw);
        return mix(mix(h, raw[0]), (uint64_t)n->reduce.op << 33 |
                                       (uint64_t)n->reduce.keepdims << 32 | n->reduce.axes);
    case T_TABLE:
        for (int64_t i = 0; i < n->table->n; i++)
            h = mix(h, (uint64_t)n->table->v[i]);
        return h;
    case T_PUT:
        return mix(mix(h, (uint64_t)n->put.axis), (uint64_t)n->put.offset);
    case T_RESHAPE:
        return n->strides ? hash_i64s(h, n->strides, n->rank) : h;
    case T_CAST:
    case T_WHERE:
    case T_GATHER:
    case T_GUARDED:
    case T_RANDOM:
        break;
    }
    return h;
}

static bool same_i64s(const int64_t *a, const int64_t *b, int n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool node_equal(const struct typed_node *a, const struct typed_node *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->open != b->open || a->rank != b->rank ||
        a->n_args != b->n_args || !same_i64s(a->shape, b->shape, a->rank))
        return false;
    for (int k = 0; k < a->n_args; k++)
        if (a->args[k] != b->args[k])
            return false;
    switch (a->kind) {
    case T_CONST: /* by bits: -0.0 is not 0.0, a NaN is itself */
        return memcmp(a->value.v.raw, b->value.v.raw, sizeof a->value.v.raw) == 0;
    case T_INPUT:
        return a->input == b->input;
    case T_OP:
        return a->op == b->op;
    case T_SHIFT:
        return a->shift.mode == b->shift.mode &&
               same_i64s(a->shift.offsets, b->shift.offsets, a->rank);
    case T_INDEX:
    case T_UNRAVEL:
        return a->axis == b->axis;
    case T_VIEW:
        return a->view->rank == b->view->rank &&
               memcmp(a->view->src, b->view->src, (size_t)a->view->rank) == 0 &&
               same_i64s(a->view->start, b->view->start, a->view->rank) &&
               same_i64s(a->view->step, b->view->step, a->view->rank);
    case T_SCAN:
        return a->scan.op == b->scan.op && a->scan.axis == b->scan.axis;
    case T_REDUCE:
        return a->reduce.op == b->reduce.op && a->reduce.axes == b->reduce.axes &&
               a->reduce.keepdims == b->reduce.keepdims &&
               memcmp(&a->reduce.divisor, &b->reduce.divisor, sizeof a->reduce.divisor) == 0;
    case T_TABLE:
        return a->table->n == b->table->n &&
               memcmp(a->table->v, b->table->v, (size_t)a->table->n * sizeof *a->table->v) == 0;
    case T_PUT:
        return a->put.axis == b->put.axis && a->put.offset == b->put.offset;
    case T_RESHAPE:
        return a->strides == b->strides ||
               (a->strides && b->strides && same_i64s(a->strides, b->strides, a->rank));
    case T_CAST:
    case T_WHERE:
    case T_GATHER:
    case T_GUARDED:
        return true;
    case T_RANDOM:
        break;
    }
    return false;
}

static enum err_code grow_buckets(struct checker *c)
{
    size_t n = c->n_buckets ? c->n_buckets * 2 : 64;
    uint32_t *b = arena_alloc_array(c->arena, n, sizeof *b);
    if (!b)
        return err_oom(c->e);
    for (uint32_t i = 0; i < c->t->n_nodes; i++) {
        size_t at = node_hash(c, &c->t->nodes[i]) & (n - 1);
        while (b[at])
            at = (at + 1) & (n - 1);
        b[at] = i + 1;
    }
    c->buckets = b;
    c->n_buckets = n;
    return ERR_OK;
}

/* Whether a node and its operands agree as typed.h demands; rules ensure it before they add a node.
 */
static inline bool agrees(const struct typed *t, const struct typed_node *n)
{
    const struct typed_node *a[3] = {NULL, NULL, NULL};
    if (n->rank < 0 || n->rank > MAX_RANK || n->dtype >= DT_COUNT || n->n_args < 0 || n->n_args > 3)
        return false;
    for (int k = 0; k < n->n_args; k++) {
        if (n->args[k] >= t->n_nodes)
            return false;
        a[k] = &t->nodes[n->args[k]];
    }
    switch (n->kind) {
    case T_CONST:
        return n->n_args == 0 && n->rank == 0 && n->value.dtype == n->dtype;
    case T_INPUT:
        return n->n_args == 0 && n->input < t->n_inputs;
    case T_OP:
        return n->n_args == op_table[n->op].nargs && op_defined(n->op, a[0]->dtype) &&
               (!a[1] || a[1]->dtype == a[0]->dtype) && (!a[2] || a[2]->dtype == a[0]->dtype);
    case T_WHERE:
        return n->n_args == 3 && a[0]->dtype == DT_BOOL && a[1]->dtype == n->dtype &&
               a[2]->dtype == n->dtype;
    case T_SHIFT:
        return a[0]->dtype == n->dtype && a[0]->rank == n->rank &&
               n->n_args == (n->shift.mode == BOUNDARY_CONSTANT ? 2 : 1) &&
               (!a[1] || (a[1]->kind == T_CONST && a[1]->dtype == n->dtype));
    case T_VIEW:
        return n->n_args == 1 && a[0]->dtype == n->dtype && n->view->rank == a[0]->rank;
    case T_SCAN:
        return n->n_args == 1 && a[0]->dtype == n->dtype && n->scan.axis < n->rank;
    case T_REDUCE:
        return n->n_args == 1 && n->reduce.axes != 0 && n->reduce.axes < 1ull << a[0]->rank;
    case T_GATHER:
        return n->n_args == 2 && a[0]->dtype == n->dtype && a[1]->dtype == DT_I64;
    case T_PUT:
        return a[0]->dtype == n->dtype && a[0]->rank == n->rank &&
               (!a[1] || (a[1]->kind == T_PUT && a[1]->dtype == n->dtype));
    case T_INDEX:
    case T_UNRAVEL:
    case T_TABLE:
        return n->dtype == DT_I64 && (!a[0] || a[0]->dtype == DT_I64);
    case T_CAST:
    case T_RESHAPE:
    case T_GUARDED:
    case T_RANDOM:
        return n->n_args > 0;
    }
    return false;
}

enum err_code graph_add(struct checker *c, uint32_t place, struct typed_node *n, unsigned flags,
                        uint32_t *ret)
{
    struct typed *t = c->t;
    assert(agrees(t, n));
    if (2 * (size_t)t->n_nodes >= c->n_buckets)
        TRY(grow_buckets(c));
    size_t at = node_hash(c, n) & (c->n_buckets - 1);
    for (; c->buckets[at]; at = (at + 1) & (c->n_buckets - 1)) {
        uint32_t id = c->buckets[at] - 1;
        if (node_equal(&t->nodes[id], n) && c->flags[id] == flags) {
            *ret = id;
            return ERR_OK;
        }
    }
    if (t->n_nodes >= CHECK_MAX_OPERATIONS)
        return expr_err(c->x, place, c->e, ERR_EXPRESSION_TOO_LARGE,
                        "the expression expands to more than %u operations", CHECK_MAX_OPERATIONS);
    if (n->rank > 0) {
        const int64_t *shared = NULL;
        for (int k = 0; k < n->n_args && !shared; k++) {
            const struct typed_node *a = &t->nodes[n->args[k]];
            if (a->rank == n->rank && same_i64s(a->shape, n->shape, n->rank))
                shared = a->shape;
        }
        n->shape =
            shared ? shared : arena_dup(c->arena, n->shape, (size_t)n->rank * sizeof *n->shape);
        if (!n->shape)
            return err_oom(c->e);
    } else {
        n->shape = NULL;
    }
    if (arena_grow(c->arena, (void **)&c->flags, &c->cap_flags, t->n_nodes, sizeof *c->flags) ||
        arena_grow(c->arena, (void **)&c->origin, &c->cap_origin, t->n_nodes, sizeof *c->origin))
        return err_oom(c->e);
    uint32_t id = typed_add(c->arena, t, n);
    if (id == EXPR_NOWHERE)
        return err_oom(c->e);
    c->flags[id] = (uint8_t)flags;
    c->origin[id] = place;
    c->buckets[at] = id + 1;
    *ret = id;
    return ERR_OK;
}

/* Broadcasts the arguments' shapes into buf and makes the node. Open operands do not affect the
 * shape, and a node of open operands and constants only is open too. */
static enum err_code add_elementwise(struct checker *c, uint32_t place, struct typed_node *n,
                                     uint32_t *ret)
{
    int64_t shape[MAX_RANK] = {0};
    unsigned flags = 0;
    n->rank = 0;
    n->shape = shape;
    if (n->kind == T_UNRAVEL)
        flags |= NODE_LOOSE;
    for (int k = 0; k < n->n_args; k++) {
        const struct typed_node *a = &c->t->nodes[n->args[k]];
        flags |= c->flags[n->args[k]];
        if (a->rank == 0)
            continue;
        TRY(check_place(c, place,
                        shape_broadcast(n->rank, shape, a->rank, a->shape, &n->rank, shape, c->e)));
    }
    n->open = (flags & NODE_LOOSE) && !(flags & NODE_ARRAY);
    return graph_add(c, place, n, flags, ret);
}

enum err_code graph_const(struct checker *c, uint32_t place, struct scalar s, uint32_t *ret)
{
    struct typed_node n = {.kind = T_CONST, .dtype = s.dtype, .value = s};
    return graph_add(c, place, &n, 0, ret);
}

enum err_code graph_input(struct checker *c, uint32_t place, const char *name,
                          const struct binding *b, uint32_t *ret)
{
    struct typed *t = c->t;
    const struct view *v = &b->view;
    uint32_t i = 0;
    for (; i < t->n_inputs; i++) {
        const struct typed_input *in = &t->inputs[i];
        if (in->array == b->array && in->dtype == b->dtype && view_same_shape(&in->view, v) &&
            in->view.offset == v->offset && same_i64s(in->view.strides, v->strides, v->rank))
            break;
    }
    if (i == t->n_inputs) {
        if (i >= c->env->max_inputs)
            return expr_err(c->x, place, c->e, ERR_EXPRESSION_TOO_LARGE,
                            "the expression reads more than %u arrays (max-inputs)",
                            c->env->max_inputs);
        if (arena_grow(c->arena, (void **)&t->inputs, &c->cap_inputs, i, sizeof *t->inputs))
            return err_oom(c->e);
        t->cap_inputs = (uint32_t)c->cap_inputs;
        t->inputs[t->n_inputs++] = (struct typed_input){
            .array = b->array, .dtype = b->dtype, .view = *v, .name = name, .grid = b->grid};
    }
    struct typed_node n = {
        .kind = T_INPUT, .dtype = b->dtype, .rank = v->rank, .shape = v->shape, .input = i};
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_op(struct checker *c, uint32_t place, enum op op, const uint32_t *args,
                       uint32_t *ret)
{
    struct typed_node n = {.kind = T_OP,
                           .dtype = op_result_dtype(op, c->t->nodes[args[0]].dtype),
                           .n_args = op_table[op].nargs,
                           .op = op};
    memcpy(n.args, args, (size_t)n.n_args * sizeof *args);
    return add_elementwise(c, place, &n, ret);
}

enum err_code graph_op2(struct checker *c, uint32_t place, enum op op, uint32_t a, uint32_t b,
                        uint32_t *ret)
{
    return graph_op(c, place, op, (const uint32_t[]){a, b}, ret);
}

enum err_code graph_int(struct checker *c, uint32_t place, int64_t v, uint32_t *ret)
{
    return graph_const(c, place, (struct scalar){.dtype = DT_I64, .v.i64 = v}, ret);
}

enum err_code graph_op_int(struct checker *c, uint32_t place, enum op op, uint32_t a, int64_t b,
                           uint32_t *ret)
{
    uint32_t id;
    TRY(graph_int(c, place, b, &id));
    return graph_op2(c, place, op, a, id, ret);
}

enum err_code graph_cast(struct checker *c, uint32_t place, uint32_t a, enum dtype t, uint32_t *ret)
{
    const struct typed_node *n = &c->t->nodes[a];
    if (n->dtype == t) {
        *ret = a;
        return ERR_OK;
    }
    if (n->kind == T_CONST)
        return graph_const(c, place, scalar_cast(n->value, t), ret);
    struct typed_node cast = {.kind = T_CAST, .dtype = t, .n_args = 1, .args = {a}};
    return add_elementwise(c, place, &cast, ret);
}

enum err_code graph_where(struct checker *c, uint32_t place, uint32_t cond, uint32_t a, uint32_t b,
                          uint32_t *ret)
{
    struct typed_node n = {
        .kind = T_WHERE, .dtype = c->t->nodes[a].dtype, .n_args = 3, .args = {cond, a, b}};
    return add_elementwise(c, place, &n, ret);
}

/* An axis before its scope is known: valid for any rank, counted from either end. */
static enum err_code raw_axis(struct checker *c, uint32_t place, int64_t axis)
{
    if (axis < -MAX_RANK || axis >= MAX_RANK)
        return expr_err(c->x, place, c->e, ERR_BAD_AXIS, "axis %lld is out of range",
                        (long long)axis);
    return ERR_OK;
}

enum err_code graph_index(struct checker *c, uint32_t place, int64_t axis, uint32_t *ret)
{
    TRY(raw_axis(c, place, axis));
    struct typed_node n = {.kind = T_INDEX, .dtype = DT_I64, .open = true, .axis = (int)axis};
    return graph_add(c, place, &n, NODE_LOOSE, ret);
}

enum err_code graph_same(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret)
{
    const struct typed_node *x = &c->t->nodes[a];
    const struct affine same = affine_same(x->rank);
    return graph_view(c, place, a, &same, x->rank, x->shape, ret);
}

enum err_code graph_index_of(struct checker *c, uint32_t place, int axis, int rank,
                             const int64_t *shape, uint32_t *ret)
{
    struct typed_node n = {
        .kind = T_INDEX, .dtype = DT_I64, .rank = rank, .shape = shape, .axis = axis};
    TRY(graph_add(c, place, &n, NODE_ARRAY, ret));
    return graph_same(c, place, *ret, ret);
}

enum err_code graph_unravel(struct checker *c, uint32_t place, uint32_t i, int64_t axis,
                            uint32_t *ret)
{
    TRY(raw_axis(c, place, axis));
    struct typed_node n = {
        .kind = T_UNRAVEL, .dtype = DT_I64, .n_args = 1, .args = {i}, .axis = (int)axis};
    return add_elementwise(c, place, &n, ret);
}

enum err_code graph_shift(struct checker *c, uint32_t place, uint32_t a, const int64_t *offsets,
                          enum boundary_mode mode, uint32_t value, uint32_t *ret)
{
    const struct typed_node *x = &c->t->nodes[a];
    struct typed_node n = {.kind = T_SHIFT,
                           .dtype = x->dtype,
                           .rank = x->rank,
                           .shape = x->shape,
                           .n_args = mode == BOUNDARY_CONSTANT ? 2 : 1,
                           .args = {a, mode == BOUNDARY_CONSTANT ? value : 0}};
    n.shift.mode = mode;
    n.shift.offsets = arena_dup(c->arena, offsets, (size_t)x->rank * sizeof *offsets);
    if (!n.shift.offsets)
        return err_oom(c->e);
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_view(struct checker *c, uint32_t place, uint32_t a, const struct affine *view,
                         int rank, const int64_t *shape, uint32_t *ret)
{
    struct typed_node n = {.kind = T_VIEW,
                           .dtype = c->t->nodes[a].dtype,
                           .rank = rank,
                           .shape = shape,
                           .n_args = 1,
                           .args = {a},
                           .view = arena_dup(c->arena, view, sizeof *view)};
    if (!n.view)
        return err_oom(c->e);
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_reduce(struct checker *c, uint32_t place, uint32_t a, enum reduce_op op,
                           double divisor, uint32_t axes, bool keepdims, uint32_t *ret)
{
    const struct typed_node *x = &c->t->nodes[a];
    int64_t shape[MAX_RANK];
    struct typed_node n = {.kind = T_REDUCE,
                           .dtype = reduce_is_arg(op) ? DT_I64 : x->dtype,
                           .shape = shape,
                           .n_args = 1,
                           .args = {a}};
    for (int k = 0; k < x->rank; k++)
        if (!(axes & 1u << k))
            shape[n.rank++] = x->shape[k];
        else if (keepdims)
            shape[n.rank++] = 1;
    n.reduce.op = op;
    n.reduce.axes = axes;
    n.reduce.keepdims = keepdims;
    n.reduce.divisor = divisor;
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_scan(struct checker *c, uint32_t place, uint32_t a, enum reduce_op op, int axis,
                         uint32_t *ret)
{
    const struct typed_node *x = &c->t->nodes[a];
    struct typed_node n = {.kind = T_SCAN,
                           .dtype = x->dtype,
                           .rank = x->rank,
                           .shape = x->shape,
                           .n_args = 1,
                           .args = {a}};
    n.scan.op = op;
    n.scan.axis = axis;
    return graph_add(c, place, &n, NODE_ARRAY, ret);
}

enum err_code graph_with_args(struct checker *c, uint32_t id, const uint32_t *args, uint32_t *ret)
{
    struct typed_node n = c->t->nodes[id];
    memcpy(n.args, args, sizeof *args * (size_t)n.n_args);
    return graph_add(c, c->origin[id], &n, c->flags[id], ret);
}

/* Closes one loose node, whose arguments are closed already, with the scope's shape. */
static enum err_code close_node(struct checker *c, uint32_t id, int rank, const int64_t *shape,
                                uint32_t *ret)
{
    struct typed_node n = c->t->nodes[id];
    for (int k = 0; k < n.n_args; k++)
        if (c->flags[n.args[k]] & NODE_LOOSE)
            n.args[k] = c->closed[n.args[k]].id;
    if (n.kind == T_INDEX || n.kind == T_UNRAVEL) {
        char text[SHAPE_TEXT_MAX];
        if (n.axis < -rank || n.axis >= rank)
            return expr_err(c->x, c->origin[id], c->e, ERR_BAD_AXIS,
                            "axis %d is out of range for the surrounding shape %s", n.axis,
                            shape_text(rank, shape, text, sizeof text));
        n.axis += n.axis < 0 ? rank : 0;
    }
    n.open = false;
    n.rank = rank;
    n.shape = shape;
    return graph_add(c, c->origin[id], &n, NODE_ARRAY, ret);
}

enum err_code graph_close(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret)
{
    if (!(c->flags[a] & NODE_LOOSE)) {
        *ret = a;
        return ERR_OK;
    }
    if (c->t->nodes[a].open)
        return expr_err(c->x, place, c->e, ERR_BAD_EXPRESSION,
                        "index() and unravel_index() take the shape of the arrays around them, but "
                        "there is no array here");
    int rank = c->t->nodes[a].rank;
    const int64_t *shape = c->t->nodes[a].shape;
    c->pass++;
    if (a >= c->cap_closed &&
        arena_grow(c->arena, (void **)&c->closed, &c->cap_closed, a, sizeof *c->closed))
        return err_oom(c->e);
    size_t depth = 0;
    for (uint32_t at = a;;) {
        /* down to the first argument that is loose and not done, else up */
        const struct typed_node *n = &c->t->nodes[at];
        uint32_t down = EXPR_NOWHERE;
        for (int k = 0; k < n->n_args && down == EXPR_NOWHERE; k++)
            if (c->flags[n->args[k]] & NODE_LOOSE && c->closed[n->args[k]].pass != c->pass)
                down = n->args[k];
        if (down != EXPR_NOWHERE) {
            if (arena_grow(c->arena, (void **)&c->stack, &c->cap_stack, depth, sizeof *c->stack))
                return err_oom(c->e);
            c->stack[depth++] = at;
            at = down;
            continue;
        }
        uint32_t id;
        TRY(close_node(c, at, rank, shape, &id));
        c->closed[at] = (struct close_entry){.pass = c->pass, .id = id};
        if (depth == 0)
            break;
        at = c->stack[--depth];
    }
    *ret = c->closed[a].id;
    return ERR_OK;
}

enum err_code graph_close_operand(struct checker *c, uint32_t place, uint32_t a, uint32_t *ret)
{
    bool loose = c->flags[a] & NODE_LOOSE;
    TRY(graph_close(c, place, a, ret));
    if (!loose)
        return ERR_OK;
    return graph_same(c, place, *ret, ret);
}
