/* Merging: rebuilds the second kernel's nodes and replaces each load of an element that the first
 * kernel stored by the nodes that computed it, at the place of the load (ir_copy.c). ir_find_map
 * finds that place from the strides.
 *
 * A stored and loaded element has the node's dtype (ir_verify), so a node that is not stored has
 * exactly the bits that a load would give. */
#include "compute/ir/ir_merge_int.h"

#include <stdlib.h>
#include <string.h>

#define TRIVIAL 2 /* a load and a cast: computing it again costs no more than loading it */

/* A load of the second kernel that an output of the first replaces. */
struct use {
    uint32_t node, output;
    bool here; /* at the same point, in context 0 */
    struct ir_place place;
};

struct merge {
    struct arena *arena;
    const struct ir_merge_request *req;
    struct ir_builder b;
    struct use *uses;
    uint32_t n_uses;
};

static int64_t n_points(const struct ir_kernel *k)
{
    int64_t n = 1;
    for (int a = 0; a < k->rank; a++)
        if (__builtin_mul_overflow(n, k->shape[a], &n))
            return INT64_MAX;
    return n;
}

static bool plain(const struct ir_kernel *k)
{
    bool feeds = false;
    for (uint32_t i = 0; i < k->n_outputs; i++)
        feeds |= k->outputs[i].feeds != 0;
    return k->steps < 2 && !feeds && n_points(k) > 0;
}

bool ir_merge_first(const struct ir_kernel *k)
{
    return k->outputs[0].kind == OUT_STORE && plain(k);
}

/* Sums of floats are rounded in the order of the points, which a merge may change. */
static bool order_matters(const struct ir_output *o)
{
    return reduce_rounds(o->reduce, o->dtype);
}

bool ir_merge_second(const struct ir_kernel *k)
{
    const struct ir_output *o = &k->outputs[0];
    return plain(k) && (o->kind == OUT_STORE || (o->kind == OUT_REDUCE && !order_matters(o)));
}

/* --- which element a load reads --- */

bool ir_same_space(const struct ir_kernel *a, const struct ir_kernel *b)
{
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank));
}

/* Sorts the axes of extent > 1 by decreasing stride (absolute values); returns their number. */
static int sort_axes(const struct ir_kernel *k, const struct view *v, int *axes)
{
    int n = 0;
    for (int a = 0; a < k->rank; a++) {
        if (k->shape[a] == 1)
            continue;
        int at = n++;
        for (; at > 0 && llabs(v->strides[axes[at - 1]]) < llabs(v->strides[a]); at--)
            axes[at] = axes[at - 1];
        axes[at] = a;
    }
    return n;
}

/* The point of the kernel that stores the element at `offset`; false if no point certainly does. */
static bool find_first(const struct ir_kernel *k, const struct view *to, int64_t offset,
                       const int *axes, int n, int64_t *first)
{
    int64_t rest = offset - to->offset;
    for (int i = 0; i < n; i++)
        if (to->strides[axes[i]] < 0)
            rest -= to->strides[axes[i]] * (k->shape[axes[i]] - 1);
    if (rest < 0)
        return false;
    for (int i = 0; i < n; i++) {
        int a = axes[i];
        int64_t stride = llabs(to->strides[a]), at = stride ? rest / stride : 0;
        if (!stride || at >= k->shape[a])
            return false;
        rest -= at * stride;
        first[a] = to->strides[a] < 0 ? k->shape[a] - 1 - at : at;
    }
    return rest == 0;
}

/* Each axis of the context moves the point along one axis of its own, within that axis's extent. */
bool ir_find_map(const struct ir_kernel *k, const struct view *to, const struct view *from,
                 const struct ir_ctx *ctx, struct affine *ret)
{
    int axes[MAX_RANK], n = sort_axes(k, to, axes);
    int64_t first[MAX_RANK] = {0};
    if (view_self_overlaps(to) || !find_first(k, to, from->offset, axes, n, first))
        return false;
    memset(ret, 0, sizeof *ret);
    ret->rank = k->rank;
    for (int a = 0; a < k->rank; a++) {
        ret->src[a] = -1;
        ret->start[a] = first[a];
    }
    for (int c = 0; c < ctx->rank; c++) {
        if (ctx->shape[c] == 1 || from->strides[c] == 0)
            continue;
        int i = 0;
        for (; i < n; i++) {
            int a = axes[i];
            int64_t step = from->strides[c] / to->strides[a], end;
            if (ret->src[a] >= 0 || step * to->strides[a] != from->strides[c] ||
                __builtin_mul_overflow(step, ctx->shape[c] - 1, &end))
                continue;
            end += first[a];
            if (end < 0 || end >= k->shape[a])
                continue;
            ret->src[a] = (int8_t)c;
            ret->step[a] = step;
            break;
        }
        if (i == n)
            return false;
    }
    return true;
}

static bool is_identity(const struct ir_kernel *k, const struct affine *m)
{
    for (int a = 0; a < k->rank; a++)
        if (k->shape[a] > 1 && (m->src[a] != a || m->step[a] != 1 || m->start[a] != 0))
            return false;
    return true;
}

void ir_mark(const struct ir_kernel *k, bool *want)
{
    for (uint32_t i = k->n_nodes; i-- > 0;)
        for (int a = 0; want[i] && a < k->nodes[i].n_args; a++)
            want[k->nodes[i].args[a]] = true;
}

static uint32_t weight_of(const struct ir_node *n)
{
    switch ((enum ir_kind)n->kind) {
    case IR_CONST:
        return 0;
    case IR_OP:
        return op_cost(n->op, n->src);
    case IR_RANDOM:
        return 24;
    case IR_GATHER:
    case IR_TABLE:
        return 4;
    default:
        return 1;
    }
}

static uint32_t weight(const struct ir_kernel *k, const bool *want)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        sum += !want || want[i] ? weight_of(&k->nodes[i]) : 0;
    return sum;
}

uint32_t ir_weight(const struct ir_kernel *k)
{
    return weight(k, NULL);
}

/* Lists the uses; false if one load cannot be replaced. */
static bool find_uses(struct merge *m, const bool *want)
{
    const struct ir_kernel *a = m->req->first, *b = m->req->second;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const struct ir_node *n = &b->nodes[i];
        if (!want[i] || (n->kind != IR_LOAD && n->kind != IR_GATHER))
            continue;
        const struct ir_input *in = &b->inputs[n->input];
        uint32_t o = 0;
        while (o < a->n_outputs && a->outputs[o].slot != in->slot)
            o++;
        if (o == a->n_outputs)
            continue;
        struct use *u = &m->uses[m->n_uses++];
        const struct ir_ctx *ctx = &b->ctxs[n->ctx];
        *u = (struct use){.node = i, .output = o, .place.ctx = n->ctx};
        if (n->kind == IR_GATHER || in->dtype != a->outputs[o].dtype ||
            (n->ctx && ctx->mode == BOUNDARY_GHOST) ||
            !ir_find_map(a, &a->outputs[o].view, &in->view, ctx, &u->place.map))
            return false;
        u->here = n->ctx == 0 && ir_same_space(a, b) && is_identity(a, &u->place.map);
    }
    return true;
}

static bool same_place(const struct use *x, const struct use *y)
{
    return x->output == y->output && x->here == y->here &&
           (x->here || (x->place.ctx == y->place.ctx &&
                        !memcmp(&x->place.map, &y->place.map, sizeof x->place.map)));
}

/* Whether computing outputs of the first kernel at so many places is too expensive. */
static bool too_dear(struct merge *m, bool *want)
{
    const struct ir_kernel *a = m->req->first;
    const bool spread = n_points(m->req->second) > n_points(a);
    for (uint32_t o = 0; o < a->n_outputs; o++) {
        uint64_t places = m->req->others, kept = m->req->keep[o];
        for (uint32_t i = 0; i < m->n_uses; i++) {
            bool again = m->uses[i].output != o;
            for (uint32_t j = 0; j < i && !again; j++)
                again = same_place(&m->uses[i], &m->uses[j]);
            places += !again && !m->uses[i].here;
            kept |= !again && m->uses[i].here;
        }
        places += kept;
        if (spread && places == 1)
            places = 2;
        memset(want, 0, a->n_nodes * sizeof *want);
        want[a->outputs[o].node] = true;
        ir_mark(a, want);
        const uint64_t cost = weight(a, want);
        if (places > 1 && cost > TRIVIAL && cost * places > m->req->limits->recompute)
            return true;
    }
    return false;
}

/* --- building --- */

void ir_open_kernel(struct ir_builder *b, struct arena *arena, struct ir_kernel *k,
                    const struct ir_kernel *like)
{
    struct ir_ctx space;
    memset(&space, 0, sizeof space);
    k->fast_math = like->fast_math;
    space.rank = k->rank = like->rank;
    for (int a = 0; a < like->rank; a++)
        space.shape[a] = k->shape[a] = like->shape[a];
    ir_builder_init(b, arena, k);
    b->oom |= ir_add_ctx(b, &space) == IR_NONE;
}

static void add_outputs(struct merge *m, const struct ir_copy *c, const bool *keep)
{
    for (uint32_t i = 0; i < c->from->n_outputs && !m->b.oom; i++) {
        struct ir_output o = c->from->outputs[i];
        if (keep && !keep[i])
            continue;
        o.node = c->to[o.node];
        m->b.oom |= !ir_add_output(&m->b, &o);
    }
}

/* Copies the nodes of the first kernel's output that replaces a load, at the load's place. */
static uint32_t answer(struct merge *m, struct ir_copy *second, const struct use *u)
{
    const struct ir_kernel *a = m->req->first;
    const uint32_t node = a->outputs[u->output].node;
    const struct ir_place *at = ir_copy_place(second, u->place.ctx);
    struct ir_place root;
    struct ir_copy c;
    bool *want = arena_alloc_array(m->arena, a->n_nodes, sizeof *want);
    m->b.oom |= !want;
    if (!want)
        return IR_NONE;
    memset(&root, 0, sizeof root);
    root.ctx = at->ctx;
    root.map.rank = a->rank;
    for (int x = 0; x < a->rank; x++)
        ir_place_compose(&at->map, u->place.map.src[x], u->place.map.start[x], u->place.map.step[x],
                         &root.map.src[x], &root.map.start[x], &root.map.step[x]);
    want[node] = true;
    ir_mark(a, want);
    if (!ir_copy_open(&c, &m->b, a, want, &root))
        return IR_NONE;
    ir_copy_nodes(&c);
    return m->b.oom ? IR_NONE : c.to[node];
}

static void build(struct merge *m, struct ir_kernel *k, bool *want_a, const bool *want_b)
{
    const struct ir_kernel *a = m->req->first, *b = m->req->second;
    struct ir_place here;
    struct ir_copy first, second;
    ir_open_kernel(&m->b, m->arena, k, b);
    memset(&here, 0, sizeof here);
    memset(want_a, 0, a->n_nodes * sizeof *want_a);
    for (uint32_t o = 0; o < a->n_outputs; o++)
        want_a[a->outputs[o].node] |= m->req->keep[o];
    for (uint32_t i = 0; i < m->n_uses; i++)
        want_a[a->outputs[m->uses[i].output].node] |= m->uses[i].here;
    ir_mark(a, want_a);
    ir_place_identity(&here.map, a->rank);
    if (m->b.oom || !ir_copy_open(&first, &m->b, a, want_a, &here))
        return;
    ir_copy_nodes(&first);
    add_outputs(m, &first, m->req->keep);
    ir_place_identity(&here.map, b->rank);
    if (m->b.oom || !ir_copy_open(&second, &m->b, b, want_b, &here))
        return;
    for (uint32_t i = 0; i < m->n_uses && !m->b.oom; i++) {
        const struct use *u = &m->uses[i];
        second.to[u->node] = u->here ? first.to[a->outputs[u->output].node] : answer(m, &second, u);
    }
    ir_copy_nodes(&second);
    add_outputs(m, &second, NULL);
}

/* --- checking the result --- */

bool ir_is_general(const struct ir_kernel *k)
{
    for (uint32_t i = 1; i < k->n_ctxs; i++) {
        const struct ir_ctx *c = &k->ctxs[i];
        if (c->parent != 0 || c->rank != k->rank)
            return true;
        for (int a = 0; a < c->rank; a++)
            if (c->shape[a] != k->shape[a] || c->start[a] != 0 ||
                (k->shape[a] > 1 && (c->src[a] != a || c->step[a] != 1)))
                return true;
    }
    return false;
}

bool ir_is_sound(const struct ir_kernel *k, const struct fuse_limits *limits)
{
    if (ir_weight(k) > limits->max_nodes || k->n_inputs + k->n_outputs > limits->max_inputs + 1)
        return false;
    for (uint32_t o = 0; o < k->n_outputs; o++) {
        for (uint32_t i = 0; i < o; i++)
            if (k->outputs[i].slot == k->outputs[o].slot)
                return false;
        for (uint32_t i = 0; i < k->n_inputs; i++)
            if (k->inputs[i].slot == k->outputs[o].slot &&
                (k->n_outputs > 1 || !ir_reads_in_place(k, i, &k->outputs[o])))
                return false;
    }
    return true;
}

enum ir_merge_result ir_merge(struct arena *arena, const struct ir_merge_request *req,
                              struct ir_kernel **ret)
{
    const struct ir_kernel *a = req->first, *b = req->second;
    struct merge m = {.arena = arena, .req = req};
    bool kept = false;
    for (uint32_t o = 0; o < a->n_outputs; o++)
        kept |= req->keep[o];
    if (kept && (b->outputs[0].kind != OUT_STORE || !ir_same_space(a, b)))
        return IR_APART;
    m.uses = arena_alloc_array(arena, b->n_nodes + 1, sizeof *m.uses);
    bool *want_a = arena_alloc_array(arena, a->n_nodes, sizeof *want_a);
    bool *want_b = arena_alloc_array(arena, b->n_nodes, sizeof *want_b);
    struct ir_kernel *k = arena_alloc(arena, sizeof *k);
    if (!m.uses || !want_a || !want_b || !k)
        return IR_NO_MEMORY;
    for (uint32_t o = 0; o < b->n_outputs; o++)
        want_b[b->outputs[o].node] = true;
    ir_mark(b, want_b);
    if (!find_uses(&m, want_b) || too_dear(&m, want_a))
        return IR_APART;
    build(&m, k, want_a, want_b);
    if (m.b.oom)
        return IR_NO_MEMORY;
    if (!ir_is_sound(k, req->limits) ||
        (ir_is_general(k) && !ir_is_general(a) && !ir_is_general(b)))
        return IR_APART;
    *ret = k;
    return IR_MERGED;
}
