/* Internals of merging: ir_merge.c puts one kernel into another, ir_overlay.c overlays a part of an
 * array on the whole. Arena memory. */
#ifndef ARRAYD_IR_MERGE_INT_H
#define ARRAYD_IR_MERGE_INT_H

#include "compute/ir/ir_copy.h"
#include "compute/ir/ir_merge.h"

bool ir_same_space(const struct ir_kernel *a, const struct ir_kernel *b);

/* The map from a context's index to the point of `k` that stores to `to` the element loaded through
 * `from` there; false unless every element that may be loaded is certainly stored. */
bool ir_find_map(const struct ir_kernel *k, const struct view *to, const struct view *from,
                 const struct ir_ctx *ctx, struct affine *ret);

/* Adds the operands of the wanted nodes. */
void ir_mark(const struct ir_kernel *k, bool *want);

/* An empty kernel over the other's space; if memory runs out, the builder's oom is set. */
void ir_open_kernel(struct ir_builder *b, struct arena *arena, struct ir_kernel *k,
                    const struct ir_kernel *like);

/* Whether the kernel has contexts other than shifts of the iteration space. A GPU runs such a
 * kernel point by point, with an index per load, which takes several times as long as a merge can
 * save. */
bool ir_is_general(const struct ir_kernel *k);

/* Whether the kernel is within the limits, and no point reads what it writes, except a single
 * output its own element. */
bool ir_is_sound(const struct ir_kernel *k, const struct fuse_limits *limits);

/* What a kernel costs to compile, as fuse_limits counts it. */
uint32_t ir_weight(const struct ir_kernel *k);

#endif
