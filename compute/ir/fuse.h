/* Where a typed graph is cut into kernels. Called by lower.c. Arena memory; pure. */
#ifndef ARRAYD_FUSE_H
#define ARRAYD_FUSE_H

#include "compute/base/arena.h"
#include "compute/check/typed.h"

/* A kernel past these is cut; see fuse_mark. */
struct fuse_limits {
    uint32_t max_nodes;  /* weighted by op_cost */
    uint32_t max_inputs; /* distinct operands, counted as an upper bound */
    uint32_t recompute;  /* weighted nodes that all the places of a subexpression may cost together
                            before a temporary is cheaper */
};

/* Facts about each typed node. */
struct fuse_node {
    bool cut;       /* has its own kernel; others load its result */
    bool depends;   /* its value depends on the scope's shape (index() below it, in its scope) */
    bool scoped;    /* scope_* is set */
    int scope_rank; /* for `depends`: shape of the scope it was first seen in */
    const int64_t *scope_shape;
};

/* Decides the cuts: every reduction, arrays put together from pieces (not the pieces, unless they
 * have other users), operands of reshapes and gathers, subexpressions too expensive to compute at
 * all their places (fuse_places.c), and, bottom-up, the largest operands of kernels that exceed the
 * limits. The root is always marked. NULL without memory. */
struct fuse_node *fuse_mark(struct arena *arena, const struct typed *t,
                            const struct fuse_limits *limits) __attribute__((warn_unused_result));

#endif
