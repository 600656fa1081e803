/* Internals of lowering: lower.c turns nodes into a kernel's code, lower_plan.c decides which
 * kernels there are and where they write. Arena memory of one lower() call. */
#ifndef ARRAYD_LOWER_INT_H
#define ARRAYD_LOWER_INT_H

#include <string.h>

#include "compute/ir/ir_build.h"
#include "compute/ir/lower.h"

/* Where a node is evaluated. Interned: equal positions are the same pointer. */
struct position {
    uint32_t id, ctx;
    int rank;             /* of the scope */
    const int64_t *shape; /* of the scope */
    struct affine map;    /* scope index from ctx index; map.rank == rank */
    struct position *next;
};

/* A cut node's result; a scope-dependent node may have one for each scope it occurs in. */
struct temp {
    uint32_t slot;
    int rank;
    const int64_t *shape;
    struct temp *next;
};

struct memo {
    uint32_t node, position, value; /* value + 1; 0: empty */
};

struct kernel_state {
    struct ir_builder b;
    uint32_t root; /* the cut node this kernel computes */
    struct position *positions;
    uint32_t n_positions;
    struct memo *memo;
    uint32_t memo_size, memo_used;
};

struct lowering {
    struct arena *arena;
    const struct lower_request *req;
    const struct typed *t;
    struct fuse_node *fuse;
    struct ir_plan *plan;
    struct temp **temps; /* by typed node */
    bool oom;
};

/* For a scalar, `from` may be NULL. */
static inline void copy_extents(int64_t *to, const int64_t *from, int rank)
{
    if (rank > 0)
        memcpy(to, from, sizeof *to * (size_t)rank);
}

static inline bool same_extents(int ra, const int64_t *a, int rb, const int64_t *b)
{
    return ra == rb && (ra == 0 || a == b || memcmp(a, b, sizeof *a * (size_t)ra) == 0);
}

/* The position of a scope in context 0: `map` takes the iteration space's index to the scope's. */
const struct position *lower_intern(struct lowering *l, struct kernel_state *ks, uint32_t ctx,
                                    int rank, const int64_t *shape, const struct affine *map);
/* The value of node i at a position, in the kernel under construction; IR_NONE without memory. */
uint32_t lower_node(struct lowering *l, struct kernel_state *ks, uint32_t i,
                    const struct position *pos);
/* Adds to l->temps a temporary for node i over `shape`, and the kernels that compute it. */
bool lower_kernel(struct lowering *l, uint32_t i, int rank, const int64_t *shape);

#endif
