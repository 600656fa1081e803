/* Lowering: each cut node of the typed graph becomes a kernel (or several, if it is put together
 * from pieces); everything between is straight-line code in it.
 *
 * A node is lowered at a position: the index context and the affine map from that context's index
 * to the index in the scope's shape. Since all nodes of a scope are aligned at the right and
 * broadcast, any node's own index follows from the scope's; so slices, broadcasting and
 * permutations only change the map, and end up in the strides of a load, while a shift adds a
 * context. Nothing is copied for them. A (node, position) pair is lowered once.
 *
 * Recursion is as deep as a kernel is large, because cuts are lowered in the graph's order, each
 * before the kernels that read it. */
#include <string.h>

#include "compute/ir/lower_int.h"

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

const struct position *lower_intern(struct lowering *l, struct kernel_state *ks, uint32_t ctx,
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

/* The composition: `inner` first, then `outer`. */
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
            at.strides[k] = 0; /* one representation per meaning */
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

/* float16 and bfloat16 are computed in float32, each result rounded back, so that a value does not
 * depend on where kernels are cut. Only nextafter needs the type's own grid. */
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
        const struct position *same = lower_intern(l, ks, pos->ctx, x->rank, x->shape, &m);
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
    if (n->shift.mode == BOUNDARY_GHOST) {
        /* an axis of one element moves too: its neighbours are ghosts */
        const struct typed_input *in = &l->t->inputs[x->input];
        return ir_emit_cast(&ks->b, ir_emit_load(&ks->b, x->input, in->dtype, &in->view, c),
                            x->dtype);
    }
    const struct position *inside = lower_intern(l, ks, c, x->rank, x->shape, &identity);
    uint32_t v = inside ? lower_node(l, ks, n->args[0], inside) : IR_NONE;
    if (n->shift.mode != BOUNDARY_CONSTANT || v == IR_NONE)
        return v;
    struct ir_node in = {.kind = IR_INSIDE, .dtype = DT_BOOL, .ctx = c};
    return ir_emit_select(&ks->b, ir_emit(&ks->b, &in), v, lower_node(l, ks, n->args[1], pos));
}

/* The temporary of cut node i, computed over `shape` (its own, or the scope's if it depends on it).
 */
static const struct temp *temp_of(struct lowering *l, uint32_t i, int rank, const int64_t *shape)
{
    for (int attempt = 0;; attempt++) {
        for (const struct temp *t = l->temps[i]; t; t = t->next)
            if (same_extents(t->rank, t->shape, rank, shape))
                return t;
        /* A scope-dependent node in a second scope: make a kernel for that scope. */
        if (attempt || !lower_kernel(l, i, rank, shape))
            return NULL;
    }
}

static uint32_t lower_temp_load(struct lowering *l, struct kernel_state *ks, uint32_t i,
                                const struct position *pos)
{
    const struct typed_node *n = &l->t->nodes[i];
    int rank = l->fuse[i].depends ? pos->rank : n->rank;
    const int64_t *shape = l->fuse[i].depends ? pos->shape : n->shape;
    const struct temp *t = temp_of(l, i, rank, shape);
    struct view v;
    if (!t || view_contiguous(rank, shape, dtype_size(n->dtype), &v, NULL) != ERR_OK) {
        l->oom = true;
        return IR_NONE;
    }
    return emit_view_load(ks, pos, t->slot, n->dtype, &v);
}

/* The operand's temporary, viewed with the node's own shape and strides. */
static uint32_t lower_reshape(struct lowering *l, struct kernel_state *ks,
                              const struct typed_node *n, const struct position *pos)
{
    const struct typed_node *x = &l->t->nodes[n->args[0]];
    const struct temp *t = temp_of(l, n->args[0], x->rank, x->shape);
    struct view v;
    if (!t || view_contiguous(n->rank, n->shape, dtype_size(n->dtype), &v, NULL) != ERR_OK) {
        l->oom = true;
        return IR_NONE;
    }
    if (n->strides)
        copy_extents(v.strides, n->strides, n->rank);
    return emit_view_load(ks, pos, t->slot, n->dtype, &v);
}

static uint32_t lower_gather(struct lowering *l, struct kernel_state *ks,
                             const struct typed_node *n, const struct position *pos)
{
    const struct typed_node *x = &l->t->nodes[n->args[0]];
    uint32_t slot, at = lower_node(l, ks, n->args[1], pos);
    enum dtype dtype = n->dtype;
    struct view row = {.rank = 1, .shape = {1}, .strides = {1}};
    for (int k = 0; k < x->rank; k++)
        row.shape[0] *= x->shape[k];
    if (x->kind == T_INPUT) {
        const struct typed_input *in = &l->t->inputs[x->input];
        slot = x->input;
        dtype = in->dtype;
        row.offset = in->view.offset;
    } else {
        const struct temp *t = temp_of(l, n->args[0], x->rank, x->shape);
        if (!t) {
            l->oom = true;
            return IR_NONE;
        }
        slot = t->slot;
    }
    return ir_emit_cast(&ks->b, ir_emit_gather(&ks->b, slot, dtype, &row, at), n->dtype);
}

/* A choice of two numbers is made of numbers of the type it is cast to: no cast at every point. */
static uint32_t lower_cast(struct kernel_state *ks, uint32_t arg, enum dtype to)
{
    const struct ir_kernel *k = ks->b.k;
    const struct ir_node from = k->nodes[arg];
    uint32_t number[3];
    if (from.kind != IR_SELECT || k->nodes[from.args[1]].kind != IR_CONST ||
        k->nodes[from.args[2]].kind != IR_CONST)
        return ir_emit_cast(&ks->b, arg, to);
    for (int a = 1; a < 3; a++) {
        const struct scalar x = k->scalars[k->nodes[from.args[a]].scalar];
        number[a] = ir_emit_const(&ks->b, scalar_cast(x, to));
    }
    return ir_emit_select(&ks->b, from.args[0], number[1], number[2]);
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
        const struct position *p = lower_intern(l, ks, pos->ctx, x->rank, x->shape, &m);
        return p ? lower_node(l, ks, n->args[0], p) : IR_NONE;
    }
    case T_RESHAPE:
        return lower_reshape(l, ks, n, pos);
    case T_GATHER:
        return lower_gather(l, ks, n, pos);
    case T_GUARDED:
        return lower_node(l, ks, n->args[0], pos);
    case T_REDUCE: /* always cut */
    case T_SCAN:
    case T_PUT:
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
        return lower_cast(ks, args[0], n->dtype);
    case T_WHERE:
        return ir_emit_select(&ks->b, args[0], args[1], args[2]);
    case T_TABLE:
        return ir_emit_table(&ks->b, n->table, args[0]);
    case T_UNRAVEL:
        return lower_unravel(ks, pos, args[0], n->axis);
    case T_RANDOM:
        return ir_emit_random(&ks->b, n->random, n->dtype, args[0]);
    default:
        return IR_NONE;
    }
}

uint32_t lower_node(struct lowering *l, struct kernel_state *ks, uint32_t i,
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
