/* Internals of fusing: fuse.c cuts what lies in memory whatever it costs, and what would make a
 * kernel too large; fuse_places.c cuts what kernels would compute several times. Arena memory of
 * one fuse_mark() call. */
#ifndef ARRAYD_FUSE_INT_H
#define ARRAYD_FUSE_INT_H

#include "compute/ir/fuse.h"

/* Of a kernel, or of a part of one: weighted nodes; operands, the first 64 inputs exactly, all
 * others as an upper bound. */
struct fuse_size {
    uint32_t nodes, others;
    uint64_t inputs;
};

static inline uint32_t fuse_add(uint32_t a, uint32_t b)
{
    uint32_t s;
    return __builtin_add_overflow(a, b, &s) ? UINT32_MAX : s;
}

static inline void fuse_add_size(struct fuse_size *to, const struct fuse_size *x)
{
    to->nodes = fuse_add(to->nodes, x->nodes);
    to->others = fuse_add(to->others, x->others);
    to->inputs |= x->inputs;
}

static inline bool fuse_is_large(const struct fuse_size *x, const struct fuse_limits *limits)
{
    const uint32_t inputs = (uint32_t)__builtin_popcountll(x->inputs);
    return x->nodes > limits->max_nodes || fuse_add(x->others, inputs) > limits->max_inputs;
}

/* What the node's own code costs. */
uint32_t fuse_weight(const struct typed *t, const struct typed_node *n);
/* What the node adds to a kernel that needs it, without its operands: a load, if it is cut. */
struct fuse_size fuse_own_size(const struct typed *t, const struct fuse_node *f, uint32_t i);
/* Whether the node may become a temporary: not if computing it again costs no more than loading. */
bool fuse_cuttable(const struct typed *t, const struct fuse_node *f, uint32_t i);

/* Cuts what is cheaper to compute once, in memory, than at each place that needs it. Sets large[i]
 * if node i is computed in a kernel that exceeds the limits even so. False without memory. */
bool fuse_cut_repeated(struct arena *arena, const struct typed *t, struct fuse_node *f,
                       const struct fuse_limits *limits, bool *large)
    __attribute__((warn_unused_result));

#endif
