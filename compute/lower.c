/* Lowering: each cut node of the typed graph becomes a kernel; everything between is straight-line
 * code in it.
 *
 * A node is lowered at a position: the index context and the affine map from that context's index
 * to the index in the scope's shape. Since all nodes of a scope are aligned at the right and
 * broadcast, any node's own index follows from the scope's; so slices, broadcasting and
 * permutations only change the map, and end up in the strides of a load, while a shift adds a
 * context. Nothing is copied for them. A (node, position) pair is lowered once.
 *
 * Recursion is as deep as a kernel is large, because cuts are lowered in the graph's order, each
 * before the kernels that read it. */
#include "compute/lower.h"

#include <string.h>

#include "compute/ir_build.h"

/* Where a node is evaluated. Interned: equal positions are one pointer. */
struct position {
    uint32_t id, ctx;
    int rank;             /* of the scope */
    const int64_t *shape; /* of the scope */
    struct affine map;    /* scope index from ctx index; map.rank == rank */
    struct position *next;
};

/* A cut node's result: a scope-dependent node may have one for each scope it is seen in. */
struct temp {
    uint32_t slot;
    int rank;
    const int64_t *shape;
    struct temp *next;
};

struct memo {
    uint32_t node, position, value; /* value + 1; 0: empty */
};

struct kernel_state {
    struct ir_builder b;
    uint32_t root; /* the cut node this kernel computes */
    struct position *positions;
    uint32_t n_positions;
    struct memo *memo;
    uint32_t memo_size, memo_used;
};

struct lowering {
    struct arena *arena;
    const struct lower_request *req;
    const struct typed *t;
    struct fuse_node *fuse;
    struct ir_plan *plan;
    struct temp **temps; /* by typed node */
    bool oom;
};

static uint32_t lower_node(struct lowering *l, struct kernel_state *ks, uint32_t i,
                           const struct position *pos);
static bool lower_kernel(struct lowering *l, uint32_t i, int rank, const int64_t *shape);

/* A scalar's shape may be NULL. */
static void copy_extents(int64_t *to, const int64_t *from, int rank)
{
    if (rank > 0)
        memcpy(to, from, sizeof *to * (size_t)rank);
}

static bool same_extents(int ra, const int64_t *a, int rb, const int64_t *b)
{
    return ra == rb && (ra == 0 || a == b || memcmp(a, b, sizeof *a * (size_t)ra) == 0);
}

static bool affine_equal(const struct affine *a, const struct affine *b)
{
    if (a->rank != b->rank)
        return false;
    for (int k = 0; k < a->rank; k++)
        if (a->src[k] != b->src[k] || a->start[k] != b->start[k] ||
            (a->src[k] >= 0 && a->step[k] != b->step[k]))
            return false;
    return true;
}

static const struct position *intern(struct lowering *l, struct kernel_state *ks, uint32_t ctx,
                                     int rank, const int64_t *shape, const struct affine *map)
{
    for (struct position *p = ks->positions; p; p = p->next)
        if (p->ctx == ctx && same_extents(p->rank, p->shape, rank, shape) &&
            affine_equal(&p->map, map))
            return p;
    struct position *p = arena_alloc(l->arena, sizeof *p);
    if (!p) {
        l->oom = true;
        return NULL;
    }
    *p = (struct position){.id = ks->n_positions++,
                           .ctx = ctx,
                           .rank = rank,
                           .shape = shape,
                           .map = *map,
                           .next = ks->positions};
    ks->positions = p;
    return p;
}

static uint32_t memo_hash(uint32_t node, uint32_t position)
{
    return (node * 2654435761u) ^ (position * 40503u + 0x9e3779b9u);
}

static struct memo *memo_find(struct kernel_state *ks, uint32_t node, uint32_t position)
{
    if (!ks->memo_size)
        return NULL;
    uint32_t h = memo_hash(node, position) & (ks->memo_size - 1);
    for (; ks->memo[h].value; h = (h + 1) & (ks->memo_size - 1))
        if (ks->memo[h].node == node && ks->memo[h].position == position)
            break;
    return &ks->memo[h];
}

static void memo_put(struct lowering *l, struct kernel_state *ks, uint32_t node, uint32_t position,
                     uint32_t value)
{
    if ((ks->memo_used + 1) * 2 > ks->memo_size) {
        uint32_t old_size = ks->memo_size, size = old_size ? old_size * 2 : 64;
        struct memo *old = ks->memo, *fresh = arena_alloc_array(l->arena, size, sizeof *fresh);
        if (!fresh) {
            l->oom = true;
            return;
        }
        ks->memo = fresh;
        ks->memo_size = size;
        for (uint32_t i = 0; i < old_size; i++)
            if (old[i].value)
                *memo_find(ks, old[i].node, old[i].position) = old[i];
    }
    *memo_find(ks, node, position) = (struct memo){node, position, value + 1};
    ks->memo_used++;
}

/* The map from the position's context to a node's own index: right-aligned in the scope, extents of
 * 1 stay at 0. */
static struct affine node_map(const struct position *pos, int rank, const int64_t *shape)
{
    struct affine m = {.rank = rank};
    for (int k = 0; k < rank; k++) {
        int s = k + pos->rank - rank;
        m.src[k] = -1;
        if (shape[k] == 1 || s < 0)
            continue;
        m.src[k] = pos->map.src[s];
        m.start[k] = pos->map.start[s];
        m.step[k] = pos->map.src[s] < 0 ? 0 : pos->map.step[s];
    }
    return m;
}

/* `outer` after `inner`: index along axis k = outer of the index that inner gives. */
static struct affine compose(const struct affine *outer, const struct affine *inner)
{
    struct affine m = {.rank = outer->rank};
    for (int k = 0; k < outer->rank; k++) {
        int s = outer->src[k];
        m.start[k] = outer->start[k];
        m.src[k] = -1;
        if (s < 0)
            continue;
        m.start[k] += outer->step[k] * inner->start[s];
        m.src[k] = inner->src[s];
        m.step[k] = inner->src[s] < 0 ? 0 : outer->step[k] * inner->step[s];
    }
    return m;
}

static uint32_t emit_view_load(struct kernel_state *ks, const struct position *pos, uint32_t slot,
                               enum dtype dtype, const struct view *v)
{
    struct affine m = node_map(pos, v->rank, v->shape);
    const struct ir_ctx *ctx = &ks->b.k->ctxs[pos->ctx];
    struct view at = {.rank = ctx->rank, .offset = v->offset};
    copy_extents(at.shape, ctx->shape, ctx->rank);
    for (int k = 0; k < v->rank; k++) {
        at.offset += v->strides[k] * m.start[k];
        if (m.src[k] >= 0)
            at.strides[m.src[k]] += v->strides[k] * m.step[k];
    }
    for (int k = 0; k < at.rank; k++)
        if (at.shape[k] <= 1)
            at.strides[k] = 0; /* one spelling for one meaning */
    return ir_emit_load(&ks->b, slot, dtype, &at, pos->ctx);
}

static uint32_t i64_const(struct kernel_state *ks, int64_t v)
{
    return ir_emit_const(&ks->b, (struct scalar){.dtype = DT_I64, .v.i64 = v});
}

static uint32_t lower_index(struct kernel_state *ks, const struct position *pos, int axis)
{
    const struct affine *m = &pos->map;
    if (m->src[axis] < 0)
        return i64_const(ks, m->start[axis]);
    return ir_emit_index(&ks->b, pos->ctx, m->src[axis], m->start[axis], m->step[axis]);
}

static uint32_t lower_unravel(struct kernel_state *ks, const struct position *pos, uint32_t i,
                              int axis)
{
    int64_t inner = 1;
    for (int k = axis + 1; k < pos->rank; k++)
        inner *= pos->shape[k];
    uint32_t args[2] = {i, i64_const(ks, inner)};
    args[0] = ir_emit_op(&ks->b, OP_FLOOR_DIVIDE, DT_I64, args);
    args[1] = i64_const(ks, pos->shape[axis]);
    return ir_emit_op(&ks->b, OP_REMAINDER, DT_I64, args);
}

/* float16 and bfloat16 are computed in float32, each result rounded back, so that what a value is
 * does not depend on where kernels are cut. nextafter alone needs the type's own grid. */
static uint32_t lower_op(struct kernel_state *ks, const struct typed_node *n, enum dtype src,
                         uint32_t *args)
{
    if (!dtype_is_half(src) || n->op == OP_NEXTAFTER)
        return ir_emit_op(&ks->b, n->op, src, args);
    for (int a = 0; a < n->n_args; a++)
        args[a] = ir_emit_cast(&ks->b, args[a], DT_F32);
    return ir_emit_cast(&ks->b, ir_emit_op(&ks->b, n->op, DT_F32, args), n->dtype);
}

static uint32_t lower_shift(struct lowering *l, struct kernel_state *ks, const struct typed_node *n,
                            const struct position *pos)
{
    const struct typed_node *x = &l->t->nodes[n->args[0]];
    bool moves = false;
    for (int k = 0; k < n->rank; k++)
        moves |= n->shift.offsets[k] != 0;
    struct affine m = node_map(pos, n->rank, n->shape);
    if (!moves) {
        const struct position *same = intern(l, ks, pos->ctx, x->rank, x->shape, &m);
        return same ? lower_node(l, ks, n->args[0], same) : IR_NONE;
    }
    struct ir_ctx ctx;
    memset(&ctx, 0, sizeof ctx); /* compared as bytes */
    ctx.parent = pos->ctx;
    ctx.rank = n->rank;
    ctx.mode = n->shift.mode;
    struct affine identity = {.rank = n->rank};
    for (int k = 0; k < n->rank; k++) {
        ctx.shape[k] = n->shape[k];
        ctx.src[k] = m.src[k];
        ctx.start[k] = m.start[k];
        ctx.step[k] = m.step[k];
        ctx.offset[k] = n->shift.offsets[k];
        identity.src[k] = (int8_t)k;
        identity.step[k] = 1;
    }
    uint32_t c = ir_add_ctx(&ks->b, &ctx);
    if (c == IR_NONE)
        return IR_NONE;
    const struct position *inside = intern(l, ks, c, x->rank, x->shape, &identity);
    uint32_t v = inside ? lower_node(l, ks, n->args[0], inside) : IR_NONE;
    if (n->shift.mode != BOUNDARY_CONSTANT || v == IR_NONE)
        return v;
    struct ir_node in = {.kind = IR_INSIDE, .dtype = DT_BOOL, .ctx = c};
    return ir_emit_select(&ks->b, ir_emit(&ks->b, &in), v, lower_node(l, ks, n->args[1], pos));
}

static uint32_t lower_temp_load(struct lowering *l, struct kernel_state *ks, uint32_t i,
                                const struct position *pos)
{
    const struct typed_node *n = &l->t->nodes[i];
    int rank = l->fuse[i].depends ? pos->rank : n->rank;
    const int64_t *shape = l->fuse[i].depends ? pos->shape : n->shape;
    struct temp *t;
    for (int attempt = 0;; attempt++) {
        for (t = l->temps[i]; t; t = t->next)
            if (same_extents(t->rank, t->shape, rank, shape))
                break;
        if (t)
            break;
        /* A scope-dependent node met in a second scope: its kernel for that one. */
        if (attempt || !lower_kernel(l, i, rank, shape))
            return IR_NONE;
    }
    struct view v;
    if (view_contiguous(rank, shape, dtype_size(n->dtype), &v, NULL) != ERR_OK) {
        l->oom = true;
        return IR_NONE;
    }
    return emit_view_load(ks, pos, t->slot, n->dtype, &v);
}

static uint32_t lower_uncached(struct lowering *l, struct kernel_state *ks, uint32_t i,
                               const struct position *pos)
{
    const struct typed_node *n = &l->t->nodes[i];
    switch (n->kind) {
    case T_CONST:
        return ir_emit_const(&ks->b, n->value);
    case T_INPUT: {
        const struct typed_input *in = &l->t->inputs[n->input];
        return ir_emit_cast(&ks->b, emit_view_load(ks, pos, n->input, in->dtype, &in->view),
                            n->dtype);
    }
    case T_INDEX:
        return lower_index(ks, pos, n->axis);
    case T_SHIFT:
        return lower_shift(l, ks, n, pos);
    case T_VIEW: {
        const struct typed_node *x = &l->t->nodes[n->args[0]];
        struct affine here = node_map(pos, n->rank, n->shape);
        struct affine m = compose(n->view, &here);
        const struct position *p = intern(l, ks, pos->ctx, x->rank, x->shape, &m);
        return p ? lower_node(l, ks, n->args[0], p) : IR_NONE;
    }
    case T_REDUCE: /* always cut */
    case T_SCAN:
        return lower_temp_load(l, ks, i, pos);
    default:
        break;
    }
    uint32_t args[3];
    for (int a = 0; a < n->n_args; a++) {
        args[a] = lower_node(l, ks, n->args[a], pos);
        if (args[a] == IR_NONE)
            return IR_NONE;
    }
    switch (n->kind) {
    case T_OP:
        return lower_op(ks, n, l->t->nodes[n->args[0]].dtype, args);
    case T_CAST:
        return ir_emit_cast(&ks->b, args[0], n->dtype);
    case T_WHERE:
        return ir_emit_select(&ks->b, args[0], args[1], args[2]);
    case T_UNRAVEL:
        return lower_unravel(ks, pos, args[0], n->axis);
    case T_RANDOM:
        return ir_emit_random(&ks->b, n->random, n->dtype, args[0]);
    default:
        return IR_NONE;
    }
}

static uint32_t lower_node(struct lowering *l, struct kernel_state *ks, uint32_t i,
                           const struct position *pos)
{
    struct memo *m = memo_find(ks, i, pos->id);
    if (m && m->value)
        return m->value - 1;
    uint32_t v = l->fuse[i].cut && i != ks->root ? lower_temp_load(l, ks, i, pos)
                                                 : lower_uncached(l, ks, i, pos);
    if (v == IR_NONE || l->oom) {
        l->oom = true;
        return IR_NONE;
    }
    memo_put(l, ks, i, pos->id, v);
    return v;
}

static uint32_t new_slot(struct lowering *l, enum slot_kind kind, uint32_t index, int64_t size)
{
    struct ir_plan *p = l->plan;
    size_t cap = p->cap_slots;
    if (arena_grow(l->arena, (void **)&p->slots, &cap, p->n_slots, sizeof *p->slots) < 0) {
        l->oom = true;
        return IR_NONE;
    }
    p->cap_slots = (uint32_t)cap;
    p->slots[p->n_slots] = (struct ir_slot){kind, index, size, UINT32_MAX, 0};
    return p->n_slots++;
}

/* Records which kernels use which slots, once the kernel is complete. */
static bool add_kernel(struct lowering *l, struct ir_kernel *k)
{
    struct ir_plan *p = l->plan;
    size_t cap = p->cap_kernels;
    if (arena_grow(l->arena, (void **)&p->kernels, &cap, p->n_kernels, sizeof *p->kernels) < 0)
        return false;
    p->cap_kernels = (uint32_t)cap;
    uint32_t number = p->n_kernels;
    for (uint32_t i = 0; i < k->n_inputs + k->n_outputs; i++) {
        uint32_t slot = i < k->n_inputs ? k->inputs[i].slot : k->outputs[i - k->n_inputs].slot;
        if (number < p->slots[slot].first)
            p->slots[slot].first = number;
        p->slots[slot].last = number;
    }
    p->kernels[p->n_kernels++] = k;
    return true;
}

/* A kernel runs over the shape of the operand of such a node, not over the node's. */
static bool combines(const struct typed_node *n)
{
    return n->kind == T_REDUCE || n->kind == T_SCAN;
}

/* Axes of a reduction's result, as strides over the iteration space: target has the result's shape.
 */
static struct view reduce_target(const struct typed_node *n, const struct typed_node *x,
                                 const struct view *target)
{
    struct view v = {.rank = x->rank, .offset = target->offset};
    int kept = 0;
    for (int k = 0; k < x->rank; k++) {
        bool reduced = n->reduce.axes >> k & 1;
        v.shape[k] = reduced ? 1 : x->shape[k];
        v.strides[k] = reduced ? 0 : target->strides[kept];
        kept += !reduced || n->reduce.keepdims;
    }
    return v;
}

/* The kernel that computes cut node i over `shape` (its own, or the scope's when it depends on it)
 * into `slot` at `target` (of that shape). */
static bool build_kernel(struct lowering *l, uint32_t i, int rank, const int64_t *shape,
                         uint32_t slot, const struct view *target)
{
    const struct typed_node *n = &l->t->nodes[i];
    const struct typed_node *x = combines(n) ? &l->t->nodes[n->args[0]] : NULL;
    struct ir_kernel *k = arena_alloc(l->arena, sizeof *k);
    struct kernel_state *ks = arena_alloc(l->arena, sizeof *ks);
    if (!k || !ks)
        return false;
    k->fast_math = l->req->fast_math;
    k->rank = x ? x->rank : target->rank;
    copy_extents(k->shape, x ? x->shape : target->shape, k->rank);
    ir_builder_init(&ks->b, l->arena, k);
    ks->root = i;

    struct ir_ctx space;
    memset(&space, 0, sizeof space);
    space.rank = k->rank;
    copy_extents(space.shape, k->shape, k->rank);
    if (ir_add_ctx(&ks->b, &space) == IR_NONE)
        return false;

    /* The iteration space may be larger than the node (a result broadcast to its target). */
    int scope_rank = x ? x->rank : rank;
    const int64_t *scope = x ? x->shape : shape;
    struct affine map = {.rank = scope_rank};
    for (int a = 0; a < scope_rank; a++) {
        int s = a + k->rank - scope_rank;
        map.src[a] = (int8_t)(scope[a] == 1 ? -1 : s);
        map.step[a] = map.src[a] >= 0;
    }
    const struct position *pos = intern(l, ks, 0, scope_rank, scope, &map);
    if (!pos)
        return false;
    uint32_t v = lower_node(l, ks, x ? n->args[0] : i, pos);
    if (v == IR_NONE)
        return false;
    struct ir_output out = {
        .kind = OUT_STORE, .node = v, .slot = slot, .dtype = n->dtype, .view = *target};
    if (n->kind == T_SCAN) {
        out.kind = OUT_SCAN;
        out.reduce = n->scan.op;
        out.axes = 1u << n->scan.axis;
    } else if (n->kind == T_REDUCE) {
        out.kind = OUT_REDUCE;
        out.view = reduce_target(n, x, target);
        out.reduce = n->reduce.op;
        out.axes = n->reduce.axes;
        out.divisor = n->reduce.divisor;
    }
    return ir_add_output(&ks->b, &out) && add_kernel(l, k);
}

/* A temporary for node i over `shape`, and its kernel. */
static bool lower_kernel(struct lowering *l, uint32_t i, int rank, const int64_t *shape)
{
    const struct typed_node *n = &l->t->nodes[i];
    struct view v;
    if (view_contiguous(rank, shape, dtype_size(n->dtype), &v, NULL) != ERR_OK)
        return false;
    struct temp *t = arena_alloc(l->arena, sizeof *t);
    uint32_t slot = new_slot(l, SLOT_TEMP, 0, view_size(&v) * (int64_t)dtype_size(n->dtype));
    if (!t || slot == IR_NONE || !build_kernel(l, i, rank, shape, slot, &v)) {
        l->oom = true;
        return false;
    }
    *t = (struct temp){slot, rank, shape, l->temps[i]};
    l->temps[i] = t;
    return true;
}

static bool lower_root(struct lowering *l)
{
    const struct typed_node *root = &l->t->nodes[l->t->root];
    struct ir_plan *p = l->plan;
    p->dtype = root->dtype;
    p->rank = root->rank;
    copy_extents(p->shape, root->shape, root->rank);
    struct view whole;
    if (view_contiguous(root->rank, root->shape, dtype_size(root->dtype), &whole, NULL) != ERR_OK)
        return false;
    int64_t bytes = view_size(&whole) * (int64_t)dtype_size(root->dtype);
    const struct view *target = l->req->target ? l->req->target : &whole;
    p->result_slot = new_slot(l, SLOT_RESULT, 0, l->req->target ? l->req->target_bytes : bytes);
    if (p->result_slot == IR_NONE)
        return false;

    for (uint32_t i = 0; i < l->t->root; i++) {
        const struct fuse_node *f = &l->fuse[i];
        const struct typed_node *n = &l->t->nodes[i];
        if (!f->cut || !f->scoped)
            continue; /* not reached from the root */
        if (f->depends ? !lower_kernel(l, i, f->scope_rank, f->scope_shape)
                       : !lower_kernel(l, i, n->rank, n->shape))
            return false;
    }
    if (combines(root) && !view_same_shape(target, &whole)) {
        /* broadcast on the way out: into a temporary first, then stored from there */
        if (!lower_kernel(l, l->t->root, root->rank, root->shape))
            return false;
        struct typed_node load = {.kind = T_VIEW,
                                  .dtype = root->dtype,
                                  .rank = root->rank,
                                  .shape = root->shape,
                                  .n_args = 1,
                                  .args = {l->t->root}};
        struct affine *id = arena_alloc(l->arena, sizeof *id);
        struct typed *t = arena_dup(l->arena, l->t, sizeof *t);
        struct typed_node *nodes = arena_alloc_array(l->arena, l->t->n_nodes + 1, sizeof *nodes);
        struct fuse_node *fuse = arena_alloc_array(l->arena, l->t->n_nodes + 1, sizeof *fuse);
        struct temp **temps = arena_alloc_array(l->arena, l->t->n_nodes + 1, sizeof(struct temp *));
        if (!id || !t || !nodes || !fuse || !temps)
            return false;
        id->rank = root->rank;
        for (int a = 0; a < root->rank; a++) {
            id->src[a] = (int8_t)a;
            id->step[a] = 1;
        }
        load.view = id;
        memcpy(nodes, l->t->nodes, sizeof *nodes * l->t->n_nodes);
        memcpy(fuse, l->fuse, sizeof *fuse * l->t->n_nodes);
        memcpy(temps, l->temps, sizeof *temps * l->t->n_nodes);
        nodes[t->n_nodes] = load;
        t->nodes = nodes;
        t->root = t->n_nodes++;
        l->t = t;
        l->fuse = fuse;
        l->temps = temps;
    }
    const struct typed_node *last = &l->t->nodes[l->t->root];
    return build_kernel(l, l->t->root, last->rank, last->shape, p->result_slot, target);
}

enum err_code lower(struct arena *arena, const struct lower_request *req, struct ir_plan **ret,
                    struct err *e)
{
    struct lowering l = {.arena = arena, .req = req, .t = req->typed};
    l.plan = arena_alloc(arena, sizeof *l.plan);
    l.temps = arena_alloc_array(arena, l.t->n_nodes, sizeof *l.temps);
    l.fuse = fuse_mark(arena, l.t, &req->limits);
    if (!l.plan || !l.temps || !l.fuse)
        return err_oom(e);
    for (uint32_t i = 0; i < l.t->n_inputs; i++)
        if (new_slot(&l, SLOT_INPUT, i, 0) == IR_NONE)
            return err_oom(e);
    if (!lower_root(&l))
        return err_oom(e);
    *ret = l.plan;
    return ERR_OK;
}
