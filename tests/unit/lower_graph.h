/* Typed graphs built by hand, and their plans, which are verified. Included by one test at a time,
 * behind cmocka.h. */
#ifndef ARRAYD_LOWER_GRAPH_H
#define ARRAYD_LOWER_GRAPH_H

#include <string.h>

#include "compute/check/check.h"
#include "compute/ir/ir_build.h"
#include "compute/ir/lower.h"

static const struct fuse_limits limits = {.max_nodes = 400, .max_inputs = 64, .recompute = 32};

struct graph {
    struct arena *arena;
    struct typed t;
    int rank;
    const int64_t *shape;
};

static inline void begin(struct graph *g, int rank, const int64_t *shape, int n_inputs)
{
    memset(g, 0, sizeof *g);
    g->arena = arena_new(0);
    g->rank = rank;
    g->shape = shape;
    g->t.inputs = arena_alloc_array(g->arena, (size_t)n_inputs + 1, sizeof *g->t.inputs);
}

static inline uint32_t add(struct graph *g, struct typed_node n)
{
    n.rank = n.kind == T_CONST ? 0 : g->rank;
    n.shape = g->shape;
    uint32_t i = typed_add(g->arena, &g->t, &n);
    assert_int_not_equal(i, EXPR_NOWHERE);
    return i;
}

static inline uint32_t input(struct graph *g, enum dtype dtype)
{
    struct typed_input *in = &g->t.inputs[g->t.n_inputs];
    in->dtype = dtype;
    assert_int_equal(view_contiguous(g->rank, g->shape, dtype_size(dtype), &in->view, NULL),
                     ERR_OK);
    return add(g, (struct typed_node){.kind = T_INPUT, .dtype = dtype, .input = g->t.n_inputs++});
}

static inline uint32_t op2(struct graph *g, enum op op, uint32_t a, uint32_t b)
{
    enum dtype src = g->t.nodes[a].dtype;
    return add(g, (struct typed_node){.kind = T_OP,
                                      .dtype = op_result_dtype(op, src),
                                      .n_args = 2,
                                      .args = {a, b},
                                      .op = op});
}

static inline uint32_t shift(struct graph *g, uint32_t x, int axis, int64_t by,
                             enum boundary_mode mode)
{
    int64_t *offsets = arena_alloc_array(g->arena, (size_t)g->rank, sizeof *offsets);
    offsets[axis] = by;
    struct typed_node n = {.kind = T_SHIFT, .dtype = g->t.nodes[x].dtype, .n_args = 1, .args = {x}};
    n.shift.offsets = offsets;
    n.shift.mode = mode;
    return add(g, n);
}

static inline struct ir_plan *plan(struct graph *g, uint32_t root, const struct fuse_limits *l)
{
    struct lower_request req = {.typed = &g->t, .limits = *l};
    struct ir_plan *p = NULL;
    struct err e = ERR_INIT;
    g->t.root = root;
    assert_int_equal(lower(g->arena, &req, &p, &e), ERR_OK);
    const char *bad = ir_verify_plan(p, g->arena);
    if (bad)
        fail_msg("%s", bad);
    return p;
}

static inline uint32_t count(const struct ir_kernel *k, enum ir_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_nodes; i++)
        n += k->nodes[i].kind == kind;
    return n;
}

static const int64_t cube[3] = {8, 9, 10};

#endif
