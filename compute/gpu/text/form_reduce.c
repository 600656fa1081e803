/* The form reduce (kernels/forms/reduce.cuh): how many threads share an output, how many blocks,
 * and how much data each thread has in flight.
 *
 * Measured (H200, float32): reads reach memory speed when each multiprocessor has 64 to 128 KB in
 * flight, and long-running blocks fill all multiprocessors evenly. Large steps of few threads do
 * better than small ones of many. */
#include "compute/gpu/text/form_kinds.h"

#include <string.h>

#define PROCESSORS    132
#define RESIDENT      1024 /* threads per multiprocessor */
#define BLOCK         128  /* threads; more if a row takes more lanes */
#define MOST_LANES    512  /* per row */
#define SHARED_BYTES  49152
#define LEAST_STRETCH 8   /* chunks per lane */
#define LEAST_JOINED  64  /* elements for each that a state takes, about, and chunks of a GPU */
#define MOST_COPIES   192 /* of additions, approximately, in a loop */

/* The cost of an element's value, in additions. */
static int cost(const struct ir_kernel *k)
{
    int sum = 1;
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const struct ir_node *n = &k->nodes[i];
        sum += n->kind == IR_OP ? (int)op_cost(n->op, (enum dtype)n->dtype) : 1;
    }
    return sum;
}

/* `bytes`: per chunk of operands. */
static int unroll(const struct analysis *z, int bytes, int most)
{
    const struct form *f = z->f;
    int n = f->inner ? 8 : 4;
    while (n > 1 &&
           (bytes * n > most || n * f->elements > 32 || n * f->elements * cost(z->k) > MOST_COPIES))
        n /= 2;
    return n;
}

static int chunk_bytes(const struct analysis *z)
{
    const struct form *f = z->f;
    int bytes = 0;
    for (uint32_t i = 0; i < f->n_loads; i++)
        if (f->loads[i].kind != LOAD_ONCE)
            bytes += f->elements * (int)dtype_size(z->k->inputs[f->loads[i].input].dtype);
    return bytes;
}

static int64_t across(const struct form *f)
{
    int64_t width = f->threads / f->lanes;
    return (f->kept + width - 1) / width;
}

/* The row's length alone decides, and with it the order in which elements are combined: a whole
 * (form_fold.c) has the bits of its parts. Four chunks a lane up to a warp, then eight, keep a row
 * in registers. */
int form_row_lanes(int64_t chunks)
{
    int lanes = 8;
    while (lanes < MOST_LANES && lanes * 2 * (lanes < 32 ? 4 : 8) <= chunks)
        lanes *= 2;
    return lanes;
}

static void rows(struct analysis *z)
{
    struct form *f = z->f;
    f->unroll = unroll(z, chunk_bytes(z), 256);
    f->lanes = form_row_lanes(f->reduced);
    while (f->unroll > 1 && f->lanes * f->unroll > f->reduced)
        f->unroll /= 2; /* a step is then whole for every lane */
    f->threads = f->lanes < BLOCK ? BLOCK : f->lanes;
    while (f->threads < MOST_LANES && across(f) >= INT32_MAX)
        f->threads *= 2; /* keeps the number of blocks within the grid's limit */
}

/* Few lanes with many rows each; more lanes if that leaves multiprocessors idle: `resident` blocks
 * at a time. */
static void columns(struct analysis *z, int64_t resident)
{
    struct form *f = z->f;
    f->unroll = unroll(z, chunk_bytes(z), 64);
    f->threads = BLOCK;
    f->lanes = 2;
    if (across(f) * 2 <= resident) {
        /* blocks share outputs: a lane merges at most eight states of others */
        while (f->lanes < f->threads && f->lanes < f->reduced &&
               resident / across(f) > 8 * f->lanes)
            f->lanes *= 2;
        return;
    }
    for (int lanes = 2; lanes <= 16; lanes *= 2) {
        f->lanes = lanes;
        int64_t n = across(f), waves = (n + resident - 1) / resident;
        if (10 * n >= 9 * waves * resident)
            return;
    }
    f->lanes = 8;
}

void form_make_reduce(struct analysis *z)
{
    struct form *f = z->f;
    int x = f->rank - 1;
    f->kind = FORM_REDUCE;
    f->inner = f->reduced_axes >> x & 1;
    f->elements = form_chunk_elements(z, false);
    if (!f->general && f->shape[x] % f->elements)
        f->elements = 1;
    for (uint32_t i = 0; i < z->k->n_outputs; i++) {
        const struct ir_output *o = &z->k->outputs[i];
        const int size = reduce_state(o->reduce, (enum dtype)z->k->nodes[o->node].dtype)->size;
        f->state_size += (size + 7) / 8 * 8;
    }
    while (!f->inner && f->elements > 1 && BLOCK / 2 * f->elements * f->state_size > SHARED_BYTES)
        f->elements /= 2; /* half of a block's states pass through shared memory */
    form_classify(z);
    f->kept = f->reduced = 1;
    for (int a = 0; a <= x; a++) {
        int64_t n = a == x ? f->shape[a] / f->elements : f->shape[a];
        *(f->reduced_axes >> a & 1 ? &f->reduced : &f->kept) *= n;
    }
    /* 64 registers per thread suffice */
    const bool light = f->elements * f->state_size <= 96 && chunk_bytes(z) <= 16 && cost(z->k) <= 8;
    const int threads = light ? RESIDENT : RESIDENT / 2;
    if (f->inner)
        rows(z);
    else
        columns(z, PROCESSORS * threads / BLOCK);
    f->resident = threads / f->threads;
    f->stretches = PROCESSORS * f->resident / across(f);
    int64_t most = f->reduced / f->members / (LEAST_STRETCH * f->lanes);
    if (f->stretches > most)
        f->stretches = most;
    if (f->stretches < 1 || across(f) > FORM_COUNTERS)
        f->stretches = 1;
    const int64_t states = f->stretches * f->members * f->state_size * (f->inner ? 1 : f->elements);
    f->joined = f->members > 1 && f->reduced >= (int64_t)LEAST_JOINED * f->members &&
                f->reduced * chunk_bytes(z) >= LEAST_JOINED * states &&
                (f->stretches > 1 || (f->reduced_axes & 1));
    f->wide |= f->reduced + f->stretches * f->lanes * f->unroll > INT32_MAX; /* one step further */
    f->grid[0] = (unsigned)across(f);
    f->grid[1] = (unsigned)f->stretches;
    f->grid[2] = 1;
    f->block[0] = (unsigned)f->threads;
    f->block[1] = 1;
}

void form_positions(const struct ir_kernel *k, const struct form *f, int64_t strides[MAX_RANK])
{
    memset(strides, 0, sizeof *strides * MAX_RANK);
    for (int a = 0; a < k->rank; a++) {
        const int64_t s = ir_reduced_stride(k, a);
        const int to = f->axis[a];
        if (s && to >= 0 && (!strides[to] || s < strides[to])) /* merged: the innermost's */
            strides[to] = s;
    }
}

#define GROUPS 4

/* Neighbouring axes of one kind: reduced, or kept and so far apart in the result. */
struct group {
    bool reduced;
    int64_t n, out, position;
};

static bool takes_axis(struct group *g, bool reduced, int64_t n, int64_t out, int64_t position)
{
    if (g->reduced != reduced ||
        (g->n > 1 && (out != g->out * g->n || position != g->position * g->n)))
        return false;
    if (g->n == 1) {
        g->out = out;
        g->position = position;
    }
    g->n *= n;
    return true;
}

/* Its axes in groups, alternately reduced and kept; the last as f's last axis. */
static bool group_axes(const struct ir_kernel *k, const struct form *f, struct group g[GROUPS])
{
    const bool arg = reduce_is_arg(k->outputs[0].reduce);
    int64_t positions[MAX_RANK];
    int at = GROUPS - 1;
    form_positions(k, f, positions);
    for (int i = 0; i < GROUPS; i++)
        g[i] = (struct group){f->inner == (i % 2 == at % 2), 1, 1, 1};
    for (int a = f->rank - 1; a >= 0; a--) {
        const bool reduced = f->reduced_axes >> a & 1;
        if (f->shape[a] == 1)
            continue;
        while (at >= 0 && !takes_axis(&g[at], reduced, f->shape[a],
                                      reduced ? 0 : f->out_strides[0][a], arg ? positions[a] : 0))
            at--;
        if (at < 0)
            return false;
    }
    /* the reduced ones are numbered in their order */
    const struct group *last = &g[f->inner ? GROUPS - 1 : GROUPS - 2], *first = last - 2;
    return !arg ||
           ((last->n == 1 || last->position == 1) && (first->n == 1 || first->position == last->n));
}

bool form_any_reduce(const struct ir_kernel *k, struct form *f, int64_t (*out_strides)[MAX_RANK])
{
    struct group g[GROUPS];
    const int x = GROUPS - 1;
    if (f->shape[f->rank - 1] % f->elements || f->threads > MOST_LANES || !group_axes(k, f, g))
        return false;
    const int64_t strip = f->elements;
    f->any = true;
    f->general = f->turned = f->out_vector = false;
    f->rank = GROUPS + 1;
    f->reduced_axes = (uint32_t)f->inner << GROUPS;
    for (int a = 0; a < GROUPS; a++) {
        f->shape[a] = g[a].n;
        (*out_strides)[a] = g[a].reduced ? 0 : g[a].out;
        f->reduced_axes |= (uint32_t)g[a].reduced << a;
        f->axis[a] = a;
    }
    f->shape[x] /= strip;
    f->shape[GROUPS] = strip;
    f->axis[GROUPS] = GROUPS;
    (*out_strides)[GROUPS] = (*out_strides)[x];
    (*out_strides)[x] *= strip;
    f->out_strides = out_strides;
    f->elements = 1;
    f->threads = f->inner ? MOST_LANES : BLOCK; /* at most */
    return true;
}

/* The number of elements that states begin from; -1: the outputs' differ. Those that begin from one
 * have a state for all of a chunk. */
static int seeds_of(const struct ir_kernel *k)
{
    int most = 0;
    for (uint32_t i = 0; i < k->n_outputs; i++) {
        const struct ir_output *o = &k->outputs[i];
        const int n = reduce_state(o->reduce, (enum dtype)k->nodes[o->node].dtype)->seeds;
        if (i && n != most && (n == 1 || most == 1 || (n && most)))
            return -1;
        most = n > most ? n : most;
    }
    return most;
}

static bool walks_alike(const struct form *f, const struct form *g)
{
    return !f->general && !g->general && !f->turned && !g->turned && f->rank == g->rank &&
           f->elements == g->elements && f->unroll == g->unroll && f->lanes == g->lanes &&
           f->threads == g->threads && f->stretches == g->stretches && f->inner == g->inner &&
           f->reduced_axes == g->reduced_axes && f->reduced == g->reduced && f->kept == g->kept;
}

const char *form_adapt_siblings(const struct ir_kernel *k, struct form *f,
                                const struct form *const *parts, uint32_t n)
{
    const struct form *g = parts[0];
    for (uint32_t i = 1; i < n; i++)
        if (!walks_alike(g, parts[i]))
            return "its reductions go over the points in different ways";
    if (seeds_of(k) < 0 || f->general || f->turned || f->elements != g->elements ||
        f->rank != g->rank || f->reduced != g->reduced || f->kept != g->kept)
        return "its reductions go over the points in different ways";
    /* the steps and the blocks decide the order; registers for several states leave room for half
     * as many blocks at a time */
    f->unroll = g->unroll;
    f->lanes = g->lanes;
    f->threads = g->threads;
    f->stretches = g->stretches;
    f->resident = g->resident > 1 ? g->resident / 2 : 1;
    f->wide |= g->wide;
    for (int a = 0; a < 3; a++)
        f->grid[a] = g->grid[a];
    f->block[0] = g->block[0];
    const int states = f->inner ? f->threads / 32 : BLOCK / 2 * f->elements;
    return states * f->state_size > SHARED_BYTES
               ? "its states are too large for a block's shared memory"
               : NULL;
}
