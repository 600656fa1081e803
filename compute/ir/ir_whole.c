/* Merging reductions of rows with what is made of their results. The nodes of one part after the
 * other are copied into one kernel (ir_copy.c), whose value numbering reads every operand once. A
 * load of what an earlier part reduced becomes the fold, of what it stored the node itself: a
 * stored and loaded element has the node's dtype (ir_verify), so the bits are those of the parts.
 *
 * A whole pays as soon as it has two parts: it reads no more than they do, and writes less. */
#include "compute/ir/ir_whole.h"

#include <string.h>

#include "compute/ir/ir_merge_int.h"

struct finding {
    struct arena *arena;
    struct ir_plan *plan;
    const struct fuse_limits *limits;
    struct ir_builder b;
    bool folds;     /* reductions become folds; else what is made is their operand */
    uint32_t *made; /* by slot: the node of the part that wrote it, or IR_NONE */
    const struct ir_output **by;
};

/* Whether the kernel can be a part: a reduction, or stores, of points that are read where they
 * are. */
static bool can_be_part(const struct ir_kernel *k)
{
    if (k->steps > 1 || k->n_ctxs != 1 || k->outputs[0].kind == OUT_SCAN || k->n_folds)
        return false;
    for (uint32_t i = 0; i < k->n_inputs; i++)
        if (k->inputs[i].gathered)
            return false;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        if (k->outputs[i].feeds)
            return false;
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] == 0)
            return false;
    return true;
}

/* Whether the input is what the output wrote, each point reading its own element or its row's. */
static bool reads_output(const struct ir_kernel *k, const struct ir_input *in,
                         const struct ir_output *o)
{
    if (in->dtype != o->dtype || in->view.offset != o->view.offset)
        return false;
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] > 1 && in->view.strides[a] != o->view.strides[a])
            return false;
    return true;
}

/* Sets c->to of the loads of what earlier parts made; false if one reads it otherwise. */
static bool answer_loads(const struct finding *f, struct ir_copy *c)
{
    const struct ir_kernel *k = c->from;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        const struct ir_input *in = n->kind == IR_LOAD ? &k->inputs[n->input] : NULL;
        if (!in || f->made[in->slot] == IR_NONE)
            continue;
        if (!reads_output(k, in, f->by[in->slot]))
            return false;
        c->to[i] = f->made[in->slot];
    }
    return true;
}

/* Whether the slot was written by a part, or is read by one: another part must not write it. */
static bool is_used(const struct finding *f, uint32_t slot)
{
    for (uint32_t i = 0; i < f->b.k->n_inputs; i++)
        if (f->b.k->inputs[i].slot == slot)
            return true;
    return f->made[slot] != IR_NONE;
}

static bool take_part(struct finding *f, const struct ir_kernel *k)
{
    struct ir_copy c;
    struct ir_place here;
    bool *want = arena_alloc_array(f->arena, k->n_nodes, sizeof *want);
    f->b.oom |= !want;
    if (!want)
        return false;
    for (uint32_t o = 0; o < k->n_outputs; o++) {
        if (is_used(f, k->outputs[o].slot))
            return false;
        want[k->outputs[o].node] = true;
    }
    ir_mark(k, want);
    memset(&here, 0, sizeof here);
    ir_place_identity(&here.map, k->rank);
    if (!ir_copy_open(&c, &f->b, k, want, &here) || !answer_loads(f, &c))
        return false;
    ir_copy_nodes(&c);
    for (uint32_t o = 0; o < k->n_outputs && !f->b.oom; o++) {
        const struct ir_output *out = &k->outputs[o];
        uint32_t node = c.to[out->node];
        if (out->kind == OUT_REDUCE && f->folds)
            node =
                ir_emit_fold(&f->b, &(struct ir_fold){out->reduce, out->axes, out->divisor}, node);
        f->made[out->slot] = node;
        f->by[out->slot] = out;
    }
    return !f->b.oom;
}

/* Whether part k, at number `at`, goes over the rows of the first one. */
static bool goes_along(const struct ir_kernel *first, const struct ir_kernel *k, uint32_t *axes)
{
    if (!can_be_part(k) || !ir_same_space(first, k) || k->fast_math != first->fast_math)
        return false;
    if (k->outputs[0].kind != OUT_REDUCE)
        return true;
    if (*axes && *axes != k->outputs[0].axes)
        return false;
    *axes = k->outputs[0].axes;
    return *axes != 0;
}

static void open_whole(struct finding *f, const struct ir_kernel *like)
{
    struct ir_kernel *k = arena_alloc(f->arena, sizeof *k);
    f->b.oom |= !k;
    if (k)
        ir_open_kernel(&f->b, f->arena, k, like);
    for (uint32_t i = 0; i < f->plan->n_slots; i++)
        f->made[i] = IR_NONE;
}

/* Adds the outputs that are read after kernel `last`, the stores first. */
static void add_outputs(struct finding *f, uint32_t from, uint32_t last)
{
    for (int rows = 0; rows < 2; rows++)
        for (uint32_t i = from; i <= last; i++) {
            const struct ir_kernel *k = f->plan->kernels[i];
            for (uint32_t o = 0; o < k->n_outputs && !f->b.oom; o++) {
                struct ir_output out = k->outputs[o];
                const struct ir_slot *s = &f->plan->slots[out.slot];
                if ((out.kind == OUT_REDUCE) != rows || (s->kind == SLOT_TEMP && s->last <= last))
                    continue;
                out.kind = rows ? OUT_FOLD : OUT_STORE;
                out.node = f->made[out.slot];
                f->b.oom |= !ir_add_output(&f->b, &out);
            }
        }
}

/* How many kernels from number `at` on make a whole; they are merged in f->b.k. */
static uint32_t merge(struct finding *f, uint32_t at, uint32_t most)
{
    const struct ir_plan *p = f->plan;
    uint32_t axes = 0, n = 0;
    open_whole(f, p->kernels[at]);
    while (!f->b.oom && n < most && at + n < p->n_kernels &&
           goes_along(p->kernels[at], p->kernels[at + n], &axes) &&
           take_part(f, p->kernels[at + n]) && ir_weight(f->b.k) <= f->limits->max_nodes)
        n++;
    return n;
}

/* The whole that is merged in f->b.k; NULL without memory. */
static struct ir_whole *new_whole(struct finding *f, uint32_t at, uint32_t n)
{
    struct ir_whole *w = f->b.oom ? NULL : arena_alloc(f->arena, sizeof *w);
    uint32_t *made = w ? arena_alloc_array(f->arena, n, sizeof *made) : NULL;
    if (!made)
        return NULL;
    for (uint32_t p = 0; p < n; p++)
        made[p] = f->made[f->plan->kernels[at + p]->outputs[0].slot];
    w->made = made;
    w->kernel = f->b.k;
    w->parts = f->plan->kernels + at;
    w->n_parts = n;
    return w;
}

/* How many of the kernels from number `at` on, `most` at most, reduce without reading what others
 * of them made. */
static uint32_t count_siblings(const struct finding *f, uint32_t at, uint32_t most)
{
    uint32_t n = 0;
    for (; n < most && f->plan->kernels[at + n]->outputs[0].kind == OUT_REDUCE; n++) {
        const struct ir_kernel *k = f->plan->kernels[at + n];
        for (uint32_t i = 0; i < k->n_inputs; i++)
            for (uint32_t p = at; p < at + n; p++)
                if (f->plan->kernels[p]->outputs[0].slot == k->inputs[i].slot)
                    return n;
    }
    return n;
}

/* Siblings: their outputs are what they were, of nodes in one kernel. */
static struct ir_whole *make_siblings(struct finding *f, uint32_t at, uint32_t n)
{
    f->folds = false;
    const bool merged = merge(f, at, n) == n;
    f->folds = true;
    for (uint32_t i = at; i < at + n && !f->b.oom; i++) {
        struct ir_output out = f->plan->kernels[i]->outputs[0];
        out.node = f->made[out.slot];
        f->b.oom |= !ir_add_output(&f->b, &out);
    }
    return merged ? new_whole(f, at, n) : NULL;
}

static bool attach(struct finding *f, uint32_t at, uint32_t n)
{
    add_outputs(f, at, at + n - 1);
    struct ir_whole *w = new_whole(f, at, n);
    const uint32_t siblings = count_siblings(f, at, n);
    if (!w)
        return false;
    f->plan->kernels[at]->whole = w;
    if (siblings >= 2)
        w->next = make_siblings(f, at, siblings);
    return siblings < 2 || w->next;
}

/* Whether a whole may begin with kernel number i, not the last: a reduction, or what is kept for
 * that and others, being dear (fuse.h). What is made for one alone has been fused with it. */
static bool can_begin(const struct ir_plan *p, uint32_t i)
{
    const struct ir_kernel *k = p->kernels[i];
    if (k->outputs[0].kind == OUT_REDUCE)
        return true;
    if (p->kernels[i + 1]->outputs[0].kind != OUT_REDUCE)
        return false;
    for (uint32_t o = 0; o < k->n_outputs; o++)
        if (k->outputs[o].kind != OUT_STORE || p->slots[k->outputs[o].slot].kind != SLOT_TEMP)
            return false;
    return true;
}

static bool has_reduction(const struct ir_plan *p, uint32_t from, uint32_t n)
{
    bool has = false;
    for (uint32_t i = from; i < from + n; i++)
        has |= p->kernels[i]->outputs[0].kind == OUT_REDUCE;
    return has;
}

bool ir_find_wholes(struct arena *arena, struct ir_plan *p, const struct fuse_limits *limits)
{
    struct finding f = {.arena = arena, .plan = p, .limits = limits, .folds = true};
    if (p->n_kernels < 2)
        return true;
    f.made = arena_alloc_array(arena, p->n_slots, sizeof *f.made);
    f.by = arena_alloc_array(arena, p->n_slots, sizeof(struct ir_output *));
    if (!f.made || !f.by)
        return false;
    for (uint32_t at = 0; at + 1 < p->n_kernels;) {
        uint32_t n = can_begin(p, at) ? merge(&f, at, UINT32_MAX) : 0;
        if (f.b.oom)
            return false;
        n = has_reduction(p, at, n) ? n : 0;
        /* the kernel that did not fit may have left nodes behind: once more, without it */
        if (n >= 2 && (merge(&f, at, n) != n || !attach(&f, at, n)))
            return false;
        /* where the backend cannot run one that begins with a store, it may what is behind that */
        at += n && p->kernels[at]->outputs[0].kind == OUT_REDUCE ? n : 1;
    }
    return true;
}

/* Whether a part after the one that writes the slot reads what was in that memory before. */
static bool is_read_later(const struct ir_whole *w, uint32_t slot, void *const *slots)
{
    bool written = false;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct ir_kernel *k = w->parts[p];
        for (uint32_t i = 0; i < k->n_inputs && written; i++)
            if (k->inputs[i].slot != slot && slots[k->inputs[i].slot] == slots[slot])
                return true;
        for (uint32_t o = 0; o < k->n_outputs; o++)
            written |= k->outputs[o].slot == slot;
    }
    return false;
}

bool ir_whole_fits(const struct ir_whole *w, struct ir_kernel *const *kernels, uint32_t n,
                   uint32_t at, void *const *slots)
{
    const struct ir_kernel *k = w->kernel;
    if (n - at < w->n_parts ||
        memcmp(kernels + at, w->parts, sizeof(struct ir_kernel *) * w->n_parts) != 0)
        return false;
    for (uint32_t o = 0; o < k->n_outputs; o++) {
        if (is_read_later(w, k->outputs[o].slot, slots))
            return false;
        for (uint32_t i = 0; i < k->n_inputs; i++)
            if (slots[k->inputs[i].slot] == slots[k->outputs[o].slot] &&
                !ir_reads_in_place(k, i, &k->outputs[o]))
                return false;
        for (uint32_t i = 0; i < o; i++)
            if (slots[k->outputs[i].slot] == slots[k->outputs[o].slot])
                return false;
    }
    return true;
}
