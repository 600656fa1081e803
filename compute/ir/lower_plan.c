/* Decides which kernels a plan has, in the graph's order, each cut node's before its readers, and
 * where each writes: to a temporary, the result, or its piece of either. */
#include <assert.h>
#include <stdio.h>

#include "compute/ir/lower_int.h"

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

/* Nodes whose kernel runs over the shape of the operand, not over the node's. */
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

/* The kernel that computes node i over `shape` (its own, or the scope's if it depends on it) into
 * `slot` at `target`, or, for a cut node with `copy`, copies its temporary there. The target of a
 * reduction or a scan has its shape; other nodes are broadcast to theirs. */
static bool build_kernel(struct lowering *l, uint32_t i, bool copy, int rank, const int64_t *shape,
                         uint32_t slot, const struct view *target)
{
    const struct typed_node *n = &l->t->nodes[i];
    const struct typed_node *x = !copy && combines(n) ? &l->t->nodes[n->args[0]] : NULL;
    struct ir_kernel *k = arena_alloc(l->arena, sizeof *k);
    struct kernel_state *ks = arena_alloc(l->arena, sizeof *ks);
    if (!k || !ks)
        return false;
    k->fast_math = l->req->fast_math;
    k->rank = x ? x->rank : target->rank;
    copy_extents(k->shape, x ? x->shape : target->shape, k->rank);
    ir_builder_init(&ks->b, l->arena, k);
    ks->root = copy ? IR_NONE : i;

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
    const struct position *pos = lower_intern(l, ks, 0, scope_rank, scope, &map);
    if (!pos)
        return false;
    uint32_t v = lower_node(l, ks, x ? n->args[0] : i, pos);
    if (v == IR_NONE)
        return false;
    struct ir_output out = {
        .kind = OUT_STORE, .node = v, .slot = slot, .dtype = n->dtype, .view = *target};
    if (x && n->kind == T_SCAN) {
        out.kind = OUT_SCAN;
        out.reduce = n->scan.op;
        out.axes = 1u << n->scan.axis;
    } else if (x) {
        out.kind = OUT_REDUCE;
        out.view = reduce_target(n, x, target);
        out.reduce = n->reduce.op;
        out.axes = n->reduce.axes;
        out.divisor = n->reduce.divisor;
    }
    return ir_add_output(&ks->b, &out) && add_kernel(l, k);
}

/* Writes node i to `slot` at `target`: one kernel, or one for each of its pieces. */
static bool write_node(struct lowering *l, uint32_t i, int rank, const int64_t *shape,
                       uint32_t slot, const struct view *target)
{
    const struct typed_node *n = &l->t->nodes[i];
    if (n->kind != T_PUT)
        return build_kernel(l, i, false, rank, shape, slot, target);
    uint32_t n_pieces = 1;
    for (const struct typed_node *p = n; p->n_args > 1; p = &l->t->nodes[p->args[1]])
        n_pieces++;
    const struct typed_node **pieces =
        arena_alloc_array(l->arena, n_pieces, sizeof(struct typed_node *));
    if (!pieces)
        return false;
    for (uint32_t k = n_pieces; k-- > 0; n = &l->t->nodes[n->args[n->n_args - 1]])
        pieces[k] = n;
    for (uint32_t k = 0; k < n_pieces; k++) {
        const struct typed_node *p = pieces[k], *x = &l->t->nodes[p->args[0]];
        struct view region = *target;
        region.offset += p->put.offset * target->strides[p->put.axis];
        region.shape[p->put.axis] = x->shape[p->put.axis];
        if (l->fuse[p->args[0]].cut
                ? !build_kernel(l, p->args[0], true, x->rank, x->shape, slot, &region)
                : !write_node(l, p->args[0], x->rank, x->shape, slot, &region))
            return false;
    }
    return true;
}

bool lower_kernel(struct lowering *l, uint32_t i, int rank, const int64_t *shape)
{
    const struct typed_node *n = &l->t->nodes[i];
    struct view v;
    if (view_contiguous(rank, shape, dtype_size(n->dtype), &v, NULL) != ERR_OK)
        return false;
    struct temp *t = arena_alloc(l->arena, sizeof *t);
    uint32_t slot = new_slot(l, SLOT_TEMP, 0, view_size(&v) * (int64_t)dtype_size(n->dtype));
    if (!t || slot == IR_NONE || !write_node(l, i, rank, shape, slot, &v)) {
        l->oom = true;
        return false;
    }
    *t = (struct temp){slot, rank, shape, l->temps[i]};
    l->temps[i] = t;
    return true;
}

/* The node with node i's elements in C order, if it has no other use. */
static uint32_t laid_out(const struct typed *t, uint32_t i)
{
    const struct typed_node *n = &t->nodes[i];
    if (n->kind != T_RESHAPE || n->strides)
        return i;
    for (uint32_t k = 0; k < i; k++)
        for (int a = 0; a < t->nodes[k].n_args; a++)
            if (t->nodes[k].args[a] == n->args[0])
                return i;
    return n->args[0];
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

    /* A final reshape is skipped: its operand is written directly. */
    uint32_t body = root->kind == T_GUARDED ? root->args[0] : l->t->root;
    body = l->req->target ? body : laid_out(l->t, body);
    for (uint32_t i = 0; i < l->t->root; i++) {
        const struct fuse_node *f = &l->fuse[i];
        const struct typed_node *n = &l->t->nodes[i];
        if (!f->cut || !f->scoped || i == body)
            continue; /* not reached from the root */
        if (f->depends ? !lower_kernel(l, i, f->scope_rank, f->scope_shape)
                       : !lower_kernel(l, i, n->rank, n->shape))
            return false;
    }
    if (root->kind == T_GUARDED)
        p->slots[l->temps[root->args[1]]->slot].kind = SLOT_ANSWER;
    root = &l->t->nodes[body];
    if (body != l->t->root &&
        view_contiguous(root->rank, root->shape, dtype_size(root->dtype), &whole, NULL) != ERR_OK)
        return false;
    if ((combines(root) || root->kind == T_PUT) && !view_same_shape(target, &whole))
        /* broadcast at the end: into a temporary, then copied */
        return build_kernel(l, body, true, root->rank, root->shape, p->result_slot, target);
    return write_node(l, body, root->rank, root->shape, p->result_slot, target);
}

/* An invalid plan is our mistake, never a client's: it ends a debug build. */
static void verify(const struct ir_plan *p, struct arena *arena)
{
#ifndef NDEBUG
    const char *bad = ir_verify_plan(p, arena);
    if (bad)
        fprintf(stderr, "invalid plan: %s\n", bad);
    assert(!bad);
#else
    (void)p;
    (void)arena;
#endif
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
    verify(l.plan, arena);
    *ret = l.plan;
    return ERR_OK;
}
