/* Checks the invariants of ir.h one by one. Written against the header, not against lower.c, so
 * that a mistake there does not excuse itself. */
#include "compute/ir/ir.h"

#include <string.h>

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            const char *text_ = arena_printf(arena, __VA_ARGS__);                                  \
            return text_ ? text_ : "invariant broken";                                             \
        }                                                                                          \
    } while (0)

static const char *verify_ctxs(const struct ir_kernel *k, struct arena *arena)
{
    CHECK(k->n_ctxs > 0, "no context 0");
    CHECK(k->ctxs[0].rank == k->rank, "context 0 has rank %d, not %d", k->ctxs[0].rank, k->rank);
    for (int a = 0; a < k->rank; a++)
        CHECK(k->ctxs[0].shape[a] == k->shape[a], "context 0 is not the iteration space");
    for (uint32_t i = 0; i < k->n_ctxs; i++) {
        const struct ir_ctx *c = &k->ctxs[i];
        CHECK(i == 0 || k->ctxs[c->parent].mode != BOUNDARY_GHOST || c->parent == 0,
              "ctx%u: behind ghosts", i);
        CHECK(c->rank >= 0 && c->rank <= MAX_RANK, "ctx%u: rank %d", i, c->rank);
        CHECK(i == 0 || c->parent < i, "ctx%u: parent %u comes later", i, c->parent);
        CHECK(c->mode <= BOUNDARY_GHOST, "ctx%u: mode %d", i, (int)c->mode);
        bool nothing = false; /* an empty space has no points */
        for (int a = 0; i > 0 && a < k->ctxs[c->parent].rank; a++)
            nothing |= k->ctxs[c->parent].shape[a] == 0;
        for (int a = 0; a < c->rank; a++) {
            CHECK(c->shape[a] >= 0, "ctx%u: extent %lld", i, (long long)c->shape[a]);
            if (i == 0)
                continue;
            const struct ir_ctx *p = &k->ctxs[c->parent];
            CHECK(c->src[a] < p->rank, "ctx%u: axis %d reads axis %d of rank %d", i, a, c->src[a],
                  p->rank);
            if (c->src[a] < 0 || nothing)
                continue;
            int64_t lo = c->start[a], hi = lo + c->step[a] * (p->shape[c->src[a]] - 1);
            CHECK((lo < hi ? lo : hi) >= 0 && (lo < hi ? hi : lo) < c->shape[a],
                  "ctx%u: axis %d leaves its shape before the shift", i, a);
        }
    }
    return NULL;
}

static const char *verify_inputs(const struct ir_kernel *k, struct arena *arena)
{
    for (uint32_t i = 0; i < k->n_inputs; i++) {
        const struct ir_input *in = &k->inputs[i];
        CHECK(in->dtype < DT_COUNT, "in%u: dtype %d", i, (int)in->dtype);
        int64_t lo, hi;
        view_extent(&in->view, &lo, &hi);
        CHECK(lo >= 0, "in%u: reads before its buffer", i);
        if (!in->gathered)
            continue;
        CHECK(in->view.rank == 1 && (in->view.strides[0] == 1 || in->view.shape[0] <= 1),
              "in%u: gathered from what is not one row", i);
        bool nothing = false;
        for (int a = 0; a < k->rank; a++)
            nothing |= k->shape[a] == 0;
        CHECK(in->view.shape[0] > 0 || nothing, "in%u: gathered from nothing", i);
    }
    return NULL;
}

/* Kinds of nodes without arguments. */
static bool is_leaf(enum ir_kind kind)
{
    return kind == IR_CONST || kind == IR_LOAD || kind == IR_INDEX || kind == IR_INSIDE;
}

static const char *verify_node(const struct ir_kernel *k, uint32_t i, struct arena *arena)
{
    const struct ir_node *n = &k->nodes[i];
    CHECK(n->dtype < DT_COUNT, "%%%u: dtype %d", i, n->dtype);
    CHECK(n->n_args <= (is_leaf((enum ir_kind)n->kind) ? 0 : 3), "%%%u: %u arguments", i,
          n->n_args);
    for (int a = 0; a < n->n_args; a++)
        CHECK(n->args[a] < i, "%%%u: argument %%%u comes later", i, n->args[a]);
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        CHECK(n->scalar < k->n_scalars, "%%%u: scalar %u of %u", i, n->scalar, k->n_scalars);
        CHECK(k->scalars[n->scalar].dtype == n->dtype, "%%%u: scalar of another dtype", i);
        return NULL;
    case IR_LOAD:
        CHECK(n->input < k->n_inputs, "%%%u: input %u of %u", i, n->input, k->n_inputs);
        CHECK(n->ctx < k->n_ctxs, "%%%u: ctx%u of %u", i, n->ctx, k->n_ctxs);
        CHECK(k->inputs[n->input].dtype == n->dtype, "%%%u: input of another dtype", i);
        CHECK(!k->inputs[n->input].gathered, "%%%u: loads what is gathered", i);
        CHECK(k->inputs[n->input].view.rank == k->ctxs[n->ctx].rank,
              "%%%u: input of rank %d under a context of rank %d", i, k->inputs[n->input].view.rank,
              k->ctxs[n->ctx].rank);
        for (int a = 0; a < k->ctxs[n->ctx].rank; a++)
            CHECK(k->inputs[n->input].view.shape[a] == k->ctxs[n->ctx].shape[a],
                  "%%%u: input of another shape than its context", i);
        return NULL;
    case IR_GATHER:
        CHECK(n->input < k->n_inputs && k->inputs[n->input].gathered, "%%%u: malformed gather", i);
        CHECK(k->inputs[n->input].dtype == n->dtype, "%%%u: input of another dtype", i);
        CHECK(n->n_args == 1 && k->nodes[n->args[0]].dtype == DT_I64, "%%%u: gathers at no int64",
              i);
        return NULL;
    case IR_TABLE:
        CHECK(n->table < k->n_tables && k->tables[n->table]->n > 0 && n->dtype == DT_I64,
              "%%%u: malformed table", i);
        CHECK(n->n_args == 1 && k->nodes[n->args[0]].dtype == DT_I64, "%%%u: a table at no int64",
              i);
        return NULL;
    case IR_INDEX:
        CHECK(n->ctx < k->n_ctxs && n->axis < k->ctxs[n->ctx].rank, "%%%u: axis %d", i, n->axis);
        CHECK(n->dtype == DT_I64 && n->index < k->n_indices, "%%%u: malformed index", i);
        return NULL;
    case IR_INSIDE:
        CHECK(n->ctx > 0 && n->ctx < k->n_ctxs && n->dtype == DT_BOOL, "%%%u: malformed inside", i);
        return NULL;
    case IR_OP: {
        CHECK(n->op < OP_COUNT && n->n_args == op_table[n->op].nargs, "%%%u: operation %u", i,
              n->op);
        CHECK(!dtype_is_half(n->src) || n->op == OP_NEXTAFTER, "%%%u: %s in half precision", i,
              op_table[n->op].name);
        CHECK(op_defined(n->op, n->src), "%%%u: %s of %s", i, op_table[n->op].name,
              dtype_name(n->src));
        for (int a = 0; a < n->n_args; a++)
            CHECK(k->nodes[n->args[a]].dtype == n->src, "%%%u: operand %d is %s, not %s", i, a,
                  dtype_name(k->nodes[n->args[a]].dtype), dtype_name(n->src));
        CHECK(n->dtype == op_result_dtype(n->op, n->src), "%%%u: %s yields %s", i,
              op_table[n->op].name, dtype_name(n->dtype));
        return NULL;
    }
    case IR_CAST:
        CHECK(n->n_args == 1 && k->nodes[n->args[0]].dtype == n->src && n->src != n->dtype,
              "%%%u: malformed cast", i);
        return NULL;
    case IR_SELECT:
        CHECK(n->n_args == 3 && k->nodes[n->args[0]].dtype == DT_BOOL &&
                  k->nodes[n->args[1]].dtype == n->dtype && k->nodes[n->args[2]].dtype == n->dtype,
              "%%%u: malformed select", i);
        return NULL;
    case IR_RANDOM:
        CHECK(n->n_args == 1 && n->random < k->n_randoms && k->nodes[n->args[0]].dtype == DT_I64,
              "%%%u: malformed random", i);
        CHECK(dtype_is_integer(n->dtype) == (k->randoms[n->random]->dist == RANDOM_INTEGERS) &&
                  n->dtype != DT_BOOL && !dtype_is_complex(n->dtype) && !dtype_is_half(n->dtype),
              "%%%u: random numbers of %s", i, dtype_name(n->dtype));
        return NULL;
    case IR_FOLD: {
        CHECK(n->n_args == 1 && n->fold < k->n_folds && k->nodes[n->args[0]].dtype == n->src,
              "%%%u: malformed fold", i);
        const struct ir_fold *f = &k->folds[n->fold];
        CHECK(f->axes == k->folds[0].axes && f->axes < 1ull << k->rank,
              "%%%u: a fold over other rows", i);
        CHECK(f->reduce < REDUCE_COUNT && reduce_defined(f->reduce, (enum dtype)n->src) &&
                  n->dtype == (reduce_is_arg(f->reduce) ? DT_I64 : n->src),
              "%%%u: malformed fold", i);
        return NULL;
    }
    }
    CHECK(false, "%%%u: kind %u", i, n->kind);
}

static const char *verify_outputs(const struct ir_kernel *k, struct arena *arena)
{
    CHECK(k->n_outputs > 0, "no output");
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        CHECK(o->node < k->n_nodes, "output %u: node", i);
        enum dtype t = (enum dtype)k->nodes[o->node].dtype;
        CHECK(o->kind <= OUT_FOLD, "output %u: kind %d", i, (int)o->kind);
        if (o->kind == OUT_FOLD)
            CHECK(k->nodes[o->node].kind == IR_FOLD && o->axes == k->folds[0].axes,
                  "output %u: no row's value", i);
        if (o->kind == OUT_REDUCE) {
            CHECK(o->axes < 1ull << k->rank, "output %u: axes beyond rank %d", i, k->rank);
            CHECK(o->reduce < REDUCE_COUNT, "output %u: reduction %d", i, (int)o->reduce);
            CHECK(reduce_defined(o->reduce, t), "output %u: %s of %s", i, reduce_name(o->reduce),
                  dtype_name(t));
        }
        if (o->kind == OUT_SCAN)
            CHECK(scan_defined(o->reduce, t) && __builtin_popcount(o->axes) == 1 &&
                      o->axes < 1ull << k->rank,
                  "output %u: malformed scan", i);
        for (uint32_t j = 0; j < k->n_inputs && o->kind == OUT_SCAN; j++)
            CHECK(k->inputs[j].slot != o->slot, "output %u: a scan over its own operand", i);
        CHECK(o->kind == OUT_STORE || o->kind == OUT_FOLD || k->n_outputs == 1 ||
                  (o->kind == OUT_REDUCE && k->outputs[0].kind == OUT_REDUCE &&
                   o->axes == k->outputs[0].axes),
              "output %u: not the only one", i);
        for (uint32_t j = 0; j < k->n_inputs && k->n_outputs > 1; j++)
            CHECK(k->inputs[j].slot != o->slot, "output %u: one of several over an operand", i);
        for (uint32_t j = 0; j < i; j++)
            CHECK(k->outputs[j].slot != o->slot, "output %u: over output %u", i, j);
        bool arg = o->kind == OUT_REDUCE && reduce_is_arg(o->reduce);
        CHECK(o->dtype == (arg ? DT_I64 : t), "output %u: %s of a node of %s", i,
              dtype_name(o->dtype), dtype_name(t));
        CHECK(o->view.rank == k->rank, "output %u: rank %d", i, o->view.rank);
        int64_t lo, hi;
        view_extent(&o->view, &lo, &hi);
        CHECK(lo >= 0, "output %u: writes before its buffer", i);
        for (int a = 0; a < k->rank; a++) {
            bool reduced = (o->kind == OUT_REDUCE || o->kind == OUT_FOLD) && (o->axes >> a & 1);
            CHECK(!arg || !reduced || k->shape[a] > 0 || hi == 0, "output %u: %s of nothing", i,
                  reduce_name(o->reduce));
            CHECK(o->view.shape[a] == (reduced ? 1 : k->shape[a]), "output %u: extent of axis %d",
                  i, a);
            CHECK(!reduced || o->view.strides[a] == 0, "output %u: stride of reduced axis %d", i,
                  a);
        }
    }
    return NULL;
}

/* Requirements of several steps, and of an output that feeds an input. */
static const char *verify_steps(const struct ir_kernel *k, struct arena *arena)
{
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        CHECK(o->feeds || k->steps < 2, "output %u: feeds no input of several steps", i);
        if (!o->feeds)
            continue;
        CHECK(o->feeds <= k->n_inputs && o->kind == OUT_STORE, "output %u: feeds nothing", i);
        const struct ir_input *in = &k->inputs[o->feeds - 1];
        CHECK(in->dtype == o->dtype && !in->gathered && in->view.rank == k->rank,
              "output %u: feeds an input of another kind", i);
        for (int a = 0; a < k->rank; a++)
            CHECK(in->view.shape[a] == k->shape[a] &&
                      (k->shape[a] == 1 || in->view.strides[a] == o->view.strides[a]),
                  "output %u: feeds an input of another layout", i);
        for (uint32_t j = 0; j < k->n_inputs; j++)
            CHECK(k->inputs[j].slot != o->slot, "output %u: of several steps, over an operand", i);
        for (uint32_t j = 0; j < i; j++)
            CHECK(k->outputs[j].feeds != o->feeds, "output %u: feeds what output %u does", i, j);
    }
    return NULL;
}

const char *ir_verify(const struct ir_kernel *k, struct arena *arena)
{
    CHECK(k->rank >= 0 && k->rank <= MAX_RANK, "rank %d", k->rank);
    const char *bad = verify_ctxs(k, arena);
    if (!bad)
        bad = verify_inputs(k, arena);
    for (uint32_t i = 0; !bad && i < k->n_nodes; i++)
        bad = verify_node(k, i, arena);
    if (!bad)
        bad = verify_outputs(k, arena);
    return bad ? bad : verify_steps(k, arena);
}

/* One operand or output of kernel `number`. */
static const char *verify_use(const struct ir_plan *p, uint32_t number, uint32_t slot, enum dtype t,
                              const struct view *v, bool writes, struct arena *arena)
{
    CHECK(slot < p->n_slots, "kernel %u: slot %u of %u", number, slot, p->n_slots);
    const struct ir_slot *s = &p->slots[slot];
    int64_t lo, hi;
    view_extent(v, &lo, &hi);
    CHECK(s->first <= number && number <= s->last, "kernel %u: slot %u lives from %u to %u", number,
          slot, s->first, s->last);
    if (s->kind == SLOT_INPUT) {
        CHECK(!writes, "kernel %u: writes to operand %u", number, s->index);
        return NULL;
    }
    CHECK(writes || s->kind != SLOT_RESULT, "kernel %u: reads the result", number);
    CHECK(writes || s->first < number, "kernel %u: reads slot %u before it is written", number,
          slot);
    CHECK(hi <= s->size / (int64_t)dtype_size(t), "kernel %u: beyond the %lld bytes of slot %u",
          number, (long long)s->size, slot);
    return NULL;
}

const char *ir_verify_plan(const struct ir_plan *p, struct arena *arena)
{
    CHECK(p->result_slot < p->n_slots && p->slots[p->result_slot].kind == SLOT_RESULT,
          "slot %u is no result", p->result_slot);
    CHECK(p->n_kernels > 0, "no kernel");
    for (uint32_t i = 0; i < p->n_kernels; i++) {
        const struct ir_kernel *k = p->kernels[i];
        const char *bad = ir_verify(k, arena);
        for (uint32_t j = 0; !bad && j < k->n_inputs; j++)
            bad = verify_use(p, i, k->inputs[j].slot, k->inputs[j].dtype, &k->inputs[j].view, false,
                             arena);
        for (uint32_t j = 0; !bad && j < k->n_outputs; j++)
            bad = verify_use(p, i, k->outputs[j].slot, k->outputs[j].dtype, &k->outputs[j].view,
                             true, arena);
        if (bad)
            return bad;
    }
    return NULL;
}
