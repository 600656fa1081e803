/* Merges an assignment to an array with a later one to a part of it, as when walls keep their
 * values or are set after the interior: one pass instead of two. The second kernel's nodes are
 * evaluated at every point of the first's space, and a select takes them inside the part. The
 * select's condition is a shift that stays inside exactly there (IR_INSIDE), which a CPU evaluates
 * for whole boxes.
 *
 * The second kernel's loads must be valid outside the part, too. So each becomes a shifted load of
 * the whole array. That needs a view over the whole space of memory known to exist: some kernel
 * loads or stores through it, or the memory is large enough. The shift's boundary mode does not
 * matter, because those values are not selected. */
#include <stdlib.h>
#include <string.h>

#include "compute/ir/ir_merge_int.h"

#define FAR 4 /* beyond this a GPU does not share neighbours */

struct overlay {
    struct arena *arena;
    const struct ir_overlay_request *req;
    const struct ir_kernel *a, *b;
    uint32_t under;     /* the first kernel's output that is overlaid */
    struct affine part; /* the second's index → the first's: a step of 1, or fixed */
    struct ir_builder builder;
    struct ir_copy first;
};

/* The part, as a box of the first kernel's space. */
static bool find_part(struct overlay *v)
{
    const struct ir_output *over = &v->b->outputs[0];
    while (v->under < v->a->n_outputs && v->a->outputs[v->under].slot != over->slot)
        v->under++;
    if (v->under == v->a->n_outputs || v->a->outputs[v->under].dtype != over->dtype ||
        !ir_find_map(v->a, &v->a->outputs[v->under].view, &over->view, &v->b->ctxs[0], &v->part))
        return false;
    for (int a = 0; a < v->a->rank; a++)
        if (v->part.src[a] >= 0 && v->part.step[a] != 1)
            return false;
    return true;
}

/* Elements along axis a. */
static int64_t part_extent(const struct overlay *v, int a)
{
    return v->part.src[a] < 0 ? 1 : v->b->shape[v->part.src[a]];
}

/* The distance between the point and what is loaded through `from`, in an array over the first's
 * space with the layout `whole`. */
static bool find_distance(const struct overlay *v, const struct view *whole,
                          const struct view *from, int64_t *distance)
{
    struct ir_kernel space = {.rank = v->a->rank};
    struct affine m;
    for (int a = 0; a < space.rank; a++)
        space.shape[a] = whole->strides[a] ? v->a->shape[a] : 1; /* constant along the axis */
    if (!ir_find_map(&space, whole, from, &v->b->ctxs[0], &m))
        return false;
    for (int a = 0; a < space.rank; a++) {
        distance[a] = 0;
        if (space.shape[a] == 1)
            continue;
        distance[a] = m.start[a] - v->part.start[a];
        if (m.src[a] != v->part.src[a] || (m.src[a] >= 0 && m.step[a] != 1) ||
            llabs(distance[a]) > FAR)
            return false;
    }
    return true;
}

/* The context of that shift; an existing one is reused, whatever its boundary mode. */
static uint32_t shifted(struct overlay *v, const int64_t *distance, enum boundary_mode mode)
{
    const struct ir_kernel *k = v->builder.k;
    struct ir_ctx c;
    bool moves = false;
    memset(&c, 0, sizeof c);
    c.rank = k->rank;
    c.mode = mode;
    for (int a = 0; a < k->rank; a++) {
        const bool one = k->shape[a] == 1;
        c.shape[a] = k->shape[a];
        c.src[a] = (int8_t)(one ? -1 : a);
        c.step[a] = !one;
        c.offset[a] = distance[a];
        moves |= distance[a] != 0;
    }
    if (!moves)
        return 0;
    for (uint32_t i = 1; i < k->n_ctxs && mode == BOUNDARY_CLAMP; i++) {
        enum boundary_mode own = k->ctxs[i].mode;
        c.mode = own;
        if (own != BOUNDARY_GHOST && !memcmp(&k->ctxs[i], &c, sizeof c))
            return i;
    }
    c.mode = mode;
    return ir_add_ctx(&v->builder, &c);
}

static uint32_t load_whole(struct overlay *v, const struct ir_input *in, const struct view *whole)
{
    int64_t distance[MAX_RANK];
    if (!find_distance(v, whole, &in->view, distance))
        return IR_NONE;
    struct view w = {.rank = whole->rank, .offset = whole->offset};
    for (int a = 0; a < w.rank; a++) {
        w.shape[a] = v->a->shape[a];
        w.strides[a] = w.shape[a] == 1 ? 0 : whole->strides[a];
    }
    uint32_t ctx = shifted(v, distance, BOUNDARY_CLAMP);
    return ctx == IR_NONE ? IR_NONE : ir_emit_load(&v->builder, in->slot, in->dtype, &w, ctx);
}

/* The same, for an array with the layout of the output, if its memory is large enough. */
static uint32_t load_alike(struct overlay *v, const struct ir_input *in)
{
    const int64_t *bytes = v->req->bytes;
    struct view whole = v->a->outputs[v->under].view;
    int64_t lo, hi;
    for (int a = 0; a < whole.rank; a++)
        if (v->part.src[a] >= 0 && in->view.strides[v->part.src[a]] == 0)
            whole.strides[a] = 0;
    view_extent(&whole, &lo, &hi);
    if (!bytes || lo < 0 || hi > bytes[in->slot] / (int64_t)dtype_size(in->dtype))
        return IR_NONE;
    return load_whole(v, in, &whole);
}

/* Whether a load under the context reads through the view as if over the first kernel's space. */
static bool spans(const struct overlay *v, const struct ir_ctx *c)
{
    return c->rank == v->a->rank && c->mode != BOUNDARY_GHOST &&
           (!c->rank || !memcmp(c->shape, v->a->shape, sizeof *c->shape * (size_t)c->rank));
}

/* Turns a load of the second kernel at its own points into one over the first's; IR_NONE if that is
 * impossible. */
static uint32_t widen(struct overlay *v, const struct ir_input *in)
{
    const struct ir_overlay_request *req = v->req;
    int64_t distance[MAX_RANK];
    uint32_t x = IR_NONE;
    for (uint32_t o = 0; o < v->a->n_outputs; o++) {
        const struct ir_output *out = &v->a->outputs[o];
        if (out->slot != in->slot)
            continue;
        /* an element that the first kernel computes itself, at the same point */
        bool here = in->dtype == out->dtype && find_distance(v, &out->view, &in->view, distance);
        for (int a = 0; here && a < v->a->rank; a++)
            here = distance[a] == 0;
        return here ? v->first.to[out->node] : IR_NONE;
    }
    bool same = true;
    for (int a = 0; a < in->view.rank; a++)
        same &= in->view.strides[a] == 0 || in->view.shape[a] == 1;
    if (same) {
        struct view one = {.rank = v->a->rank, .offset = in->view.offset};
        for (int a = 0; a < one.rank; a++)
            one.shape[a] = v->a->shape[a];
        return ir_emit_load(&v->builder, in->slot, in->dtype, &one, 0);
    }
    for (uint32_t i = 0; i < req->n_known && x == IR_NONE && !v->builder.oom; i++) {
        const struct ir_kernel *k = req->known[i];
        for (uint32_t n = 0; n < k->n_nodes && x == IR_NONE; n++) {
            const struct ir_node *l = &k->nodes[n];
            if (l->kind == IR_LOAD && k->inputs[l->input].slot == in->slot &&
                k->inputs[l->input].dtype == in->dtype && spans(v, &k->ctxs[l->ctx]))
                x = load_whole(v, in, &k->inputs[l->input].view);
        }
        for (uint32_t o = 0; o < k->n_outputs && x == IR_NONE; o++)
            if (k->outputs[o].slot == in->slot && k->outputs[o].dtype == in->dtype &&
                k->outputs[o].kind == OUT_STORE && spans(v, &k->ctxs[0]))
                x = load_whole(v, in, &k->outputs[o].view);
    }
    return x == IR_NONE && !v->builder.oom ? load_alike(v, in) : x;
}

static bool stores_to(const struct ir_kernel *k, uint32_t slot)
{
    for (uint32_t o = 0; o < k->n_outputs; o++)
        if (k->outputs[o].slot == slot)
            return true;
    return false;
}

/* The second's value at the first's points, correct inside the part; IR_NONE if impossible. */
static uint32_t copy_over(struct overlay *v)
{
    const struct ir_kernel *b = v->b;
    struct ir_place root;
    struct ir_copy c;
    bool *want = arena_alloc_array(v->arena, b->n_nodes, sizeof *want);
    v->builder.oom |= !want;
    memset(&root, 0, sizeof root);
    root.map.rank = b->rank;
    for (int a = 0; a < b->rank; a++)
        root.map.src[a] = -1;
    for (int a = 0; a < v->a->rank; a++)
        if (v->part.src[a] >= 0) {
            root.map.src[v->part.src[a]] = (int8_t)a;
            root.map.step[v->part.src[a]] = 1;
            root.map.start[v->part.src[a]] = -v->part.start[a];
        }
    if (want) {
        want[b->outputs[0].node] = true;
        ir_mark(b, want);
    }
    if (!want || !ir_copy_open(&c, &v->builder, b, want, &root))
        return IR_NONE;
    for (uint32_t n = 0; n < b->n_nodes; n++) {
        const struct ir_node *l = &b->nodes[n];
        if (!want[n] || (l->kind != IR_LOAD && l->kind != IR_GATHER))
            continue;
        if (l->kind == IR_LOAD && l->ctx == 0)
            c.to[n] = widen(v, &b->inputs[l->input]);
        else if (stores_to(v->a, b->inputs[l->input].slot))
            return IR_NONE;
        if (l->kind == IR_LOAD && l->ctx == 0 && c.to[n] == IR_NONE)
            return IR_NONE;
    }
    ir_copy_nodes(&c);
    return v->builder.oom ? IR_NONE : c.to[b->outputs[0].node];
}

/* Whether the second kernel's contexts, made for fewer points, are valid for all of them. */
static bool contexts_hold(const struct ir_kernel *k)
{
    for (uint32_t i = 1; i < k->n_ctxs; i++) {
        const struct ir_ctx *c = &k->ctxs[i], *p = &k->ctxs[c->parent];
        for (int a = 0; a < c->rank; a++) {
            int64_t lo = c->start[a], hi = lo;
            if (c->src[a] >= 0)
                hi += c->step[a] * (p->shape[c->src[a]] - 1);
            if (lo < 0 || hi < 0 || lo >= c->shape[a] || hi >= c->shape[a])
                return false;
        }
    }
    return true;
}

/* x in the part, y elsewhere. */
static uint32_t choose(struct overlay *v, uint32_t x, uint32_t y)
{
    int64_t distance[MAX_RANK];
    for (int end = 0; end < 2; end++) {
        struct ir_node in;
        memset(&in, 0, sizeof in);
        in.kind = IR_INSIDE;
        in.dtype = DT_BOOL;
        for (int a = 0; a < v->a->rank; a++)
            distance[a] =
                end ? v->a->shape[a] - v->part.start[a] - part_extent(v, a) : -v->part.start[a];
        in.ctx = shifted(v, distance, BOUNDARY_CONSTANT);
        if (in.ctx == IR_NONE)
            return IR_NONE;
        if (in.ctx)
            x = ir_emit_select(&v->builder, ir_emit(&v->builder, &in), x, y);
    }
    return x;
}

static bool build(struct overlay *v, struct ir_kernel *k)
{
    const struct ir_kernel *a = v->a;
    struct ir_place here;
    bool *want = arena_alloc_array(v->arena, a->n_nodes, sizeof *want);
    ir_open_kernel(&v->builder, v->arena, k, a);
    v->builder.oom |= !want;
    if (v->builder.oom)
        return false;
    for (uint32_t o = 0; o < a->n_outputs; o++)
        want[a->outputs[o].node] = true;
    ir_mark(a, want);
    memset(&here, 0, sizeof here);
    ir_place_identity(&here.map, a->rank);
    if (!ir_copy_open(&v->first, &v->builder, a, want, &here))
        return false;
    ir_copy_nodes(&v->first);
    uint32_t x = v->builder.oom ? IR_NONE : copy_over(v);
    if (x == IR_NONE || !contexts_hold(k))
        return false;
    for (uint32_t o = 0; o < a->n_outputs; o++) {
        struct ir_output out = a->outputs[o];
        out.node = v->first.to[out.node];
        if (o == v->under)
            out.node = choose(v, x, out.node);
        else if (!v->req->merge.keep[o])
            continue;
        if (!ir_add_output(&v->builder, &out))
            return false;
    }
    return true;
}

enum ir_merge_result ir_overlay(struct arena *arena, const struct ir_overlay_request *req,
                                struct ir_kernel **ret)
{
    struct overlay v = {.arena = arena, .req = req, .a = req->merge.first, .b = req->merge.second};
    if (v.b->n_outputs > 1 || v.b->outputs[0].kind != OUT_STORE || !find_part(&v))
        return IR_APART;
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    if (!k)
        return IR_NO_MEMORY;
    bool built = build(&v, k);
    if (v.builder.oom)
        return IR_NO_MEMORY;
    if (!built || !ir_is_sound(k, req->merge.limits) || (ir_is_general(k) && !ir_is_general(v.a)))
        return IR_APART;
    *ret = k;
    return IR_MERGED;
}
