/* Random typed graphs, node by node: each takes what is there already and adds to it. */
#include "tests/backend/property.h"

#include "compute/check/check.h"

static uint32_t add_node(struct world *w, struct typed_node n, int rank, const int64_t *shape)
{
    n.rank = rank;
    int64_t *own = arena_alloc(w->arena, sizeof *own * MAX_RANK);
    for (int k = 0; k < rank; k++)
        own[k] = shape[k];
    n.shape = own;
    return typed_add(w->arena, w->t, &n);
}

static uint32_t cast_to(struct world *w, uint32_t i, enum dtype to)
{
    struct typed_node *x = &w->t->nodes[i];
    if (x->dtype == to)
        return i;
    return add_node(
        w,
        (struct typed_node){.kind = T_CAST, .dtype = to, .open = x->open, .n_args = 1, .args = {i}},
        x->rank, x->shape);
}

static uint32_t combine(struct world *w, uint32_t a, uint32_t b)
{
    static const enum op floats[] = {OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_MAXIMUM, OP_LESS};
    static const enum op ints[] = {OP_ADD,     OP_SUBTRACT, OP_MULTIPLY,
                                   OP_MAXIMUM, OP_LESS,     OP_FLOOR_DIVIDE};
    enum dtype dtype =
        w->t->nodes[a].dtype == DT_F64 || w->t->nodes[b].dtype == DT_F64 ? DT_F64 : DT_I64;
    a = cast_to(w, a, dtype);
    b = cast_to(w, b, dtype);
    enum op op = dtype == DT_F64 ? floats[below(5)] : ints[below(6)];
    struct typed_node x = w->t->nodes[a], y = w->t->nodes[b];
    int rank;
    int64_t shape[MAX_RANK] = {0};
    if (shape_broadcast(x.rank, x.shape, y.rank, y.shape, &rank, shape, NULL) != ERR_OK)
        return a;
    /* open only while no operand has a shape */
    bool open =
        (x.open || y.open) && (x.open || x.kind == T_CONST) && (y.open || y.kind == T_CONST);
    uint32_t r = add_node(w,
                          (struct typed_node){.kind = T_OP,
                                              .dtype = op_result_dtype(op, dtype),
                                              .open = open,
                                              .n_args = 2,
                                              .args = {a, b},
                                              .op = op},
                          rank, shape);
    if (below(4) == 0 && w->t->nodes[r].dtype == DT_BOOL)
        r = add_node(
            w,
            (struct typed_node){
                .kind = T_WHERE, .dtype = dtype, .open = open, .n_args = 3, .args = {r, a, b}},
            rank, shape);
    return cast_to(w, r, dtype);
}

static uint32_t shift_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open)
        return x;
    int64_t *offsets = arena_alloc(w->arena, sizeof *offsets * MAX_RANK);
    for (int k = 0; k < n.rank; k++)
        offsets[k] = below(2) ? below(5) - 2 : below(20) ? 0 : below(30) - 15;
    struct typed_node s = {.kind = T_SHIFT, .dtype = n.dtype, .n_args = 1, .args = {x}};
    s.shift.offsets = offsets;
    s.shift.mode = (enum boundary_mode)below(6);
    if (s.shift.mode == BOUNDARY_CONSTANT) {
        struct scalar v = {.dtype = n.dtype};
        if (n.dtype == DT_F64)
            v.v.f64 = 7;
        else
            v.v.i64 = 7;
        s.args[1] = typed_const(w->arena, w->t, v);
        s.n_args = 2;
    }
    return add_node(w, s, n.rank, n.shape);
}

/* An operand's surroundings. */
static uint32_t ghost_node(struct world *w, uint32_t input)
{
    struct typed_node n = w->t->nodes[input];
    const struct grid *g = w->arrays[n.input]->grid;
    int64_t *offsets = arena_alloc(w->arena, sizeof *offsets * MAX_RANK);
    bool moves = false;
    for (int k = 0; k < n.rank; k++) {
        offsets[k] = below(2 * g->ghost[k] + 1) - g->ghost[k];
        moves |= offsets[k] != 0;
    }
    struct typed_node s = {.kind = T_SHIFT, .dtype = n.dtype, .n_args = 1, .args = {input}};
    s.shift.offsets = offsets;
    s.shift.mode = BOUNDARY_GHOST;
    return moves ? add_node(w, s, n.rank, n.shape) : input;
}

/* Slices, drops and inserts axes of an expression. */
static uint32_t view_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open)
        return x;
    struct affine *m = arena_alloc(w->arena, sizeof *m);
    int64_t shape[MAX_RANK] = {0};
    int rank = 0;
    m->rank = n.rank;
    for (int k = 0; k < n.rank; k++) {
        int64_t len = n.shape[k];
        if (len > 0 && below(6) == 0) { /* an integer */
            m->src[k] = -1;
            m->start[k] = below(len);
            continue;
        }
        if (below(8) == 0)
            shape[rank++] = 1;
        m->src[k] = (int8_t)rank;
        m->step[k] = 1;
        shape[rank] = len;
        if (len > 0 && below(4) == 0) {
            m->start[k] = len - 1;
            m->step[k] = -1;
        }
        rank++;
    }
    struct typed_node v = {.kind = T_VIEW, .dtype = n.dtype, .n_args = 1, .args = {x}};
    v.view = m;
    return add_node(w, v, rank, shape);
}

static uint32_t reduce_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open || n.dtype == DT_BOOL)
        return x;
    struct typed_node r = {.kind = T_REDUCE, .dtype = n.dtype, .n_args = 1, .args = {x}};
    int64_t shape[MAX_RANK] = {0};
    int rank = 0;
    r.reduce.keepdims = below(2);
    bool empty = false;
    for (int k = 0; k < n.rank; k++) {
        if (below(2)) {
            r.reduce.axes |= 1u << k;
            empty |= n.shape[k] == 0;
            if (r.reduce.keepdims)
                shape[rank++] = 1;
        } else {
            shape[rank++] = n.shape[k];
        }
    }
    r.reduce.op = n.dtype == DT_I64 && below(3) == 0 ? REDUCE_PROD
                  : n.dtype == DT_I64 || empty       ? REDUCE_SUM
                                                     : REDUCE_MAX;
    if (!empty && below(3) == 0) {
        r.reduce.op = below(2) ? REDUCE_ARGMAX : REDUCE_ARGMIN;
        r.dtype = DT_I64;
    }
    return add_node(w, r, rank, shape);
}

/* Of whole numbers, whose sums and products wrap the same in any order. */
static uint32_t scan_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open || n.dtype != DT_I64 || n.rank == 0)
        return x;
    struct typed_node s = {.kind = T_SCAN, .dtype = n.dtype, .n_args = 1, .args = {x}};
    s.scan.op = below(3) ? REDUCE_SUM : REDUCE_PROD;
    s.scan.axis = (int)below(n.rank);
    return add_node(w, s, n.rank, n.shape);
}

/* x as it is, but not an operand itself: what is reshaped, gathered or put lies in memory. */
static uint32_t same_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    struct affine *m = arena_alloc(w->arena, sizeof *m);
    m->rank = n.rank;
    for (int k = 0; k < n.rank; k++) {
        m->src[k] = (int8_t)k;
        m->step[k] = 1;
    }
    struct typed_node v = {.kind = T_VIEW, .dtype = n.dtype, .n_args = 1, .args = {x}};
    v.view = m;
    return add_node(w, v, n.rank, n.shape);
}

static int64_t elements(const struct typed_node *n)
{
    int64_t e = 1;
    for (int k = 0; k < n->rank; k++)
        e *= n->shape[k];
    return e;
}

static uint32_t reshape_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open)
        return x;
    int64_t left = elements(&n), shape[MAX_RANK] = {0};
    int rank = 0;
    while (left > 1 && rank < 3 && below(3)) {
        int64_t by = 2 + below(6);
        if (left % by == 0) {
            shape[rank++] = by;
            left /= by;
        }
    }
    shape[rank++] = left;
    struct typed_node r = {
        .kind = T_RESHAPE, .dtype = n.dtype, .n_args = 1, .args = {same_node(w, x)}};
    return add_node(w, r, rank, shape);
}

/* Elements of x by the values of y, whatever these are. */
static uint32_t gather_node(struct world *w, uint32_t x, uint32_t y)
{
    struct typed_node n = w->t->nodes[x], at = w->t->nodes[y];
    if (n.open || at.open || at.dtype == DT_BOOL || elements(&n) == 0)
        return x;
    y = cast_to(w, y, DT_I64);
    bool lies = n.kind == T_INPUT && view_is_contiguous(&w->t->inputs[n.input].view);
    struct typed_node g = {
        .kind = T_GATHER, .dtype = n.dtype, .n_args = 2, .args = {lies ? x : same_node(w, x), y}};
    return add_node(w, g, at.rank, at.shape);
}

/* Known numbers by the values of x, whatever these are. */
static uint32_t table_node(struct world *w, uint32_t x)
{
    struct typed_node at = w->t->nodes[x];
    if (at.dtype == DT_BOOL)
        return x;
    int64_t n = 1 + below(below(4) ? 9 : 700);
    int64_t *v = arena_alloc_array(w->arena, (size_t)n, sizeof *v);
    struct number_table *t = arena_alloc(w->arena, sizeof *t);
    for (int64_t i = 0; i < n; i++)
        v[i] = below(2000) - 1000;
    *t = (struct number_table){n, v};
    struct typed_node r = {.kind = T_TABLE,
                           .dtype = DT_I64,
                           .open = at.open,
                           .n_args = 1,
                           .args = {cast_to(w, x, DT_I64)},
                           .table = t};
    return add_node(w, r, at.rank, at.shape);
}

/* x and others of its shape behind each other. */
static uint32_t put_node(struct world *w, uint32_t x)
{
    struct typed_node n = w->t->nodes[x];
    if (n.open || n.rank == 0)
        return x;
    int axis = (int)below(n.rank), pieces = 1 + (int)below(3);
    int64_t shape[MAX_RANK] = {0}, extent = n.shape[axis];
    uint32_t r = 0;
    for (int k = 0; k < n.rank; k++)
        shape[k] = k == axis ? extent * pieces : n.shape[k];
    if (extent > 500)
        return x;
    for (int i = 0; i < pieces; i++) {
        uint32_t piece = i == 0 || below(3) == 0 ? x
                         : below(2)              ? combine(w, x, x)
                                                 : shift_node(w, x);
        struct typed_node p = {.kind = T_PUT,
                               .dtype = n.dtype,
                               .n_args = i ? 2 : 1,
                               .args = {cast_to(w, piece, n.dtype), r}};
        p.put.axis = axis;
        p.put.offset = i * extent;
        r = add_node(w, p, n.rank, shape);
    }
    return r;
}

static bool has_open_result(const struct world *w, uint32_t i)
{
    return w->t->nodes[i].open;
}

void property_graph(struct world *w)
{
    w->t = arena_alloc(w->arena, sizeof *w->t);
    uint32_t pool[64];
    int n = 0;
    w->t->inputs = arena_alloc_array(w->arena, MAX_ARRAYS, sizeof *w->t->inputs);
    w->t->n_inputs = (uint32_t)w->n;
    for (int k = 0; k < w->n; k++) {
        struct array *a = w->arrays[k];
        w->t->inputs[k] = (struct typed_input){a, a->dtype, a->view, "x"};
        pool[n++] = add_node(
            w, (struct typed_node){.kind = T_INPUT, .dtype = a->dtype, .input = (uint32_t)k},
            a->view.rank, a->view.shape);
    }
    pool[n++] = typed_const(w->arena, w->t, (struct scalar){.dtype = DT_I64, .v.i64 = 3});
    int steps = 1 + (int)below(10);
    for (int i = 0; i < steps; i++) {
        uint32_t x = pool[n - 1 - below(n < 4 ? n : 4)], y = pool[below(n)];
        switch (below(12)) {
        case 11:
            pool[n++] = ghost_node(w, (uint32_t)below(w->n));
            break;
        case 8:
            pool[n++] = reshape_node(w, x);
            break;
        case 9:
            pool[n++] = below(3) ? gather_node(w, x, y) : table_node(w, x);
            break;
        case 10:
            pool[n++] = put_node(w, x);
            break;
        case 0:
        case 1:
            pool[n++] = shift_node(w, x);
            break;
        case 2:
            pool[n++] = view_node(w, x);
            break;
        case 3:
            pool[n++] = below(3) ? reduce_node(w, x) : scan_node(w, x);
            break;
        case 4: { /* index() stands in the scope of an array operand of full rank, at once */
            struct typed_node s = w->t->nodes[x];
            if (s.open || s.rank == 0)
                break;
            int64_t none[MAX_RANK] = {0};
            uint32_t ix = add_node(
                w,
                (struct typed_node){
                    .kind = T_INDEX, .dtype = DT_I64, .open = true, .axis = (int)below(s.rank)},
                0, none);
            /* closed by a shift of nothing, so that the scope is x's shape */
            uint32_t sum = combine(w, ix, x);
            struct typed_node c = w->t->nodes[sum];
            int64_t *zero = arena_alloc(w->arena, sizeof *zero * MAX_RANK);
            struct typed_node closed = {
                .kind = T_SHIFT, .dtype = c.dtype, .n_args = 1, .args = {sum}};
            closed.shift.offsets = zero;
            pool[n++] = add_node(w, closed, c.rank, c.shape);
            break;
        }
        default:
            pool[n++] = combine(w, x, y);
        }
        if (has_open_result(w, pool[n - 1]))
            n--;
    }
    w->t->root = cast_to(w, pool[n - 1], below(2) ? DT_F64 : w->t->nodes[pool[n - 1]].dtype);
}
