/* A place is a context of the new kernel and the affine map from that context's index to the old
 * kernel's; everything that depends on the point follows from it. For a load, its view is composed
 * with the map; for a context, its steps; for an index, its factors; the rest is copied unchanged.
 * The builder shares equal nodes, so copying to the same place twice adds nothing.
 *
 * Contexts that cannot leave their array, such as those of an inner region, become part of the map;
 * two wrapping shifts become one. Both keep kernels within the forms that a GPU runs fast. */
#include "compute/ir/ir_copy.h"

#include <string.h>

static int64_t add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b); /* an index wraps as the IR's integers do */
}

static int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

void ir_place_identity(struct affine *m, int rank)
{
    memset(m, 0, sizeof *m);
    m->rank = rank;
    for (int a = 0; a < rank; a++) {
        m->src[a] = (int8_t)a;
        m->step[a] = 1;
    }
}

void ir_place_compose(const struct affine *inner, int src, int64_t start, int64_t step,
                      int8_t *ret_src, int64_t *ret_start, int64_t *ret_step)
{
    *ret_src = -1;
    *ret_start = start;
    *ret_step = 0;
    if (src < 0)
        return;
    *ret_start = add(start, times(step, inner->start[src]));
    *ret_src = inner->src[src];
    *ret_step = inner->src[src] < 0 ? 0 : times(step, inner->step[src]);
}

static bool asked_inside(const struct ir_kernel *k, uint32_t ctx)
{
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_INSIDE && k->nodes[i].ctx == ctx)
            return true;
    return false;
}

/* Whether the context's shift always stays inside its shape. */
static bool stays_inside(const struct ir_kernel *k, const struct ir_ctx *c)
{
    const struct ir_ctx *parent = &k->ctxs[c->parent];
    for (int a = 0; a < c->rank; a++) {
        int64_t lo = c->start[a] + c->offset[a], hi = lo;
        if (c->src[a] >= 0)
            hi += c->step[a] * (parent->shape[c->src[a]] - 1);
        if (lo < 0 || hi < 0 || lo >= c->shape[a] || hi >= c->shape[a])
            return false;
    }
    return true;
}

/* Whether two wrapping shifts around the same shape can become one. */
static bool joins(const struct ir_ctx *inner, const struct ir_ctx *outer)
{
    if (inner->mode != BOUNDARY_WRAP || outer->mode != BOUNDARY_WRAP || inner->rank != outer->rank)
        return false;
    for (int a = 0; a < inner->rank; a++)
        if (inner->shape[a] != outer->shape[a] ||
            (inner->shape[a] > 1 &&
             (inner->src[a] != a || inner->step[a] != 1 || inner->start[a] != 0)))
            return false;
    return true;
}

static void place_inside(struct ir_place *ret, const struct ir_ctx *c)
{
    ret->ctx = c->parent;
    ret->map.rank = c->rank;
    for (int a = 0; a < c->rank; a++) {
        ret->map.src[a] = c->src[a];
        ret->map.step[a] = c->src[a] < 0 ? 0 : c->step[a];
        ret->map.start[a] = c->start[a] + c->offset[a];
    }
}

const struct ir_place *ir_copy_place(struct ir_copy *c, uint32_t x)
{
    struct ir_place *ret = &c->places[x];
    if (ret->map.rank >= 0)
        return ret;
    const struct ir_ctx *from = &c->from->ctxs[x];
    const struct ir_place *parent = ir_copy_place(c, from->parent);
    struct ir_ctx ctx;
    memset(&ctx, 0, sizeof ctx); /* compared as bytes */
    ctx.parent = parent->ctx;
    ctx.rank = from->rank;
    ctx.mode = from->mode;
    for (int a = 0; a < from->rank; a++) {
        ctx.shape[a] = from->shape[a];
        ctx.offset[a] = from->offset[a];
        ir_place_compose(&parent->map, from->src[a], from->start[a], from->step[a], &ctx.src[a],
                         &ctx.start[a], &ctx.step[a]);
    }
    if (ctx.parent && !asked_inside(c->from, x) && joins(&ctx, &c->b->k->ctxs[ctx.parent])) {
        const struct ir_ctx *outer = &c->b->k->ctxs[ctx.parent];
        ctx.parent = outer->parent;
        for (int a = 0; a < ctx.rank; a++) {
            ctx.src[a] = outer->src[a];
            ctx.start[a] = outer->start[a];
            ctx.step[a] = outer->step[a];
            ctx.offset[a] =
                (ctx.offset[a] % ctx.shape[a] + outer->offset[a] % ctx.shape[a]) % ctx.shape[a];
        }
    }
    if (ctx.mode != BOUNDARY_GHOST && stays_inside(c->b->k, &ctx)) {
        place_inside(ret, &ctx);
        return ret;
    }
    ir_place_identity(&ret->map, ctx.rank);
    ret->ctx = ir_add_ctx(c->b, &ctx);
    if (ret->ctx == IR_NONE) {
        c->b->oom = true;
        ret->ctx = 0;
    }
    return ret;
}

static uint32_t copy_load(struct ir_copy *c, const struct ir_node *n)
{
    const struct ir_input *in = &c->from->inputs[n->input];
    const struct ir_place *at = ir_copy_place(c, n->ctx);
    const struct ir_ctx *ctx = &c->b->k->ctxs[at->ctx];
    const bool ghosts = at->ctx && ctx->mode == BOUNDARY_GHOST;
    struct view v = {.rank = ctx->rank, .offset = in->view.offset};
    for (int a = 0; a < ctx->rank; a++)
        v.shape[a] = ctx->shape[a];
    for (int a = 0; a < at->map.rank; a++) {
        v.offset += in->view.strides[a] * at->map.start[a];
        if (at->map.src[a] >= 0)
            v.strides[at->map.src[a]] += in->view.strides[a] * at->map.step[a];
    }
    for (int a = 0; a < v.rank; a++)
        if (v.shape[a] == 1 && !ghosts)
            v.strides[a] = 0; /* one representation per meaning */
    return ir_emit_load(c->b, in->slot, in->dtype, &v, at->ctx);
}

static uint32_t copy_index(struct ir_copy *c, const struct ir_node *n)
{
    const struct ir_index *ix = &c->from->indices[n->index];
    const struct ir_place *at = ir_copy_place(c, n->ctx);
    int8_t axis;
    int64_t start, step;
    ir_place_compose(&at->map, n->axis, ix->start, ix->step, &axis, &start, &step);
    if (axis < 0)
        return ir_emit_const(c->b, (struct scalar){.dtype = DT_I64, .v.i64 = start});
    return ir_emit_index(c->b, at->ctx, axis, start, step);
}

static uint32_t copy_inside(struct ir_copy *c, const struct ir_node *n)
{
    const struct ir_place *at = ir_copy_place(c, n->ctx);
    const struct ir_ctx *from = &c->from->ctxs[n->ctx];
    struct ir_node in;
    memset(&in, 0, sizeof in);
    in.kind = IR_INSIDE;
    in.dtype = DT_BOOL;
    in.ctx = at->ctx;
    if (at->ctx == c->places[from->parent].ctx) /* the context was folded into the map */
        return ir_emit_const(c->b, (struct scalar){.dtype = DT_BOOL, .v.b = 1});
    return ir_emit(c->b, &in);
}

static uint32_t copy_random(struct ir_builder *b, const struct random_params *p, enum dtype dtype,
                            uint32_t at)
{
    const struct ir_kernel *k = b->k;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].kind == IR_RANDOM && k->randoms[k->nodes[i].random] == p &&
            k->nodes[i].dtype == dtype && k->nodes[i].args[0] == at)
            return i;
    return ir_emit_random(b, p, dtype, at);
}

static uint32_t copy_node(struct ir_copy *c, uint32_t i)
{
    const struct ir_kernel *k = c->from;
    const struct ir_node *n = &k->nodes[i];
    uint32_t args[3] = {0};
    for (int a = 0; a < n->n_args; a++)
        args[a] = c->to[n->args[a]];
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        return ir_emit_const(c->b, k->scalars[n->scalar]);
    case IR_LOAD:
        return copy_load(c, n);
    case IR_INDEX:
        return copy_index(c, n);
    case IR_INSIDE:
        return copy_inside(c, n);
    case IR_OP:
        return ir_emit_op(c->b, (enum op)n->op, (enum dtype)n->src, args);
    case IR_CAST:
        return ir_emit_cast(c->b, args[0], (enum dtype)n->dtype);
    case IR_GATHER:
        return ir_emit_gather(c->b, k->inputs[n->input].slot, (enum dtype)n->dtype,
                              &k->inputs[n->input].view, args[0]);
    case IR_TABLE:
        return ir_emit_table(c->b, k->tables[n->table], args[0]);
    case IR_SELECT:
        return ir_emit_select(c->b, args[0], args[1], args[2]);
    case IR_RANDOM:
        return copy_random(c->b, k->randoms[n->random], (enum dtype)n->dtype, args[0]);
    case IR_FOLD:
        return ir_emit_fold(c->b, &k->folds[n->fold], args[0]);
    }
    return IR_NONE;
}

void ir_copy_nodes(struct ir_copy *c)
{
    const struct ir_kernel *k = c->from;
    for (uint32_t i = 0; i < k->n_nodes && !c->b->oom; i++) {
        if (!c->want[i] || c->to[i] != IR_NONE)
            continue;
        c->to[i] = copy_node(c, i);
        c->b->oom |= c->to[i] == IR_NONE;
    }
}

bool ir_copy_open(struct ir_copy *c, struct ir_builder *b, const struct ir_kernel *from,
                  const bool *want, const struct ir_place *root)
{
    *c = (struct ir_copy){.b = b, .from = from, .want = want};
    c->places = arena_alloc_array(b->arena, from->n_ctxs, sizeof *c->places);
    c->to = arena_alloc_array(b->arena, from->n_nodes + 1, sizeof *c->to);
    if (!c->places || !c->to) {
        b->oom = true;
        return false;
    }
    memset(c->to, 0xff, from->n_nodes * sizeof *c->to);
    c->places[0] = *root;
    for (uint32_t x = 1; x < from->n_ctxs; x++)
        c->places[x].map.rank = -1;
    return true;
}
