/* Merging's inside: ir_merge.c puts one kernel into another, ir_overlay.c a part of an array over
 * the whole. Arena memory. */
#ifndef ARRAYD_IR_MERGE_INT_H
#define ARRAYD_IR_MERGE_INT_H

#include "compute/ir/ir_copy.h"
#include "compute/ir/ir_merge.h"

bool ir_same_space(const struct ir_kernel *a, const struct ir_kernel *b);

/* The map from a context's index to the point of `k` that stores to `to` what is loaded through
 * `from` there; false unless every element that can be loaded is sure to be one that is stored. */
bool ir_find_map(const struct ir_kernel *k, const struct view *to, const struct view *from,
                 const struct ir_ctx *ctx, struct affine *ret);

/* And what the wanted nodes need. */
void ir_mark(const struct ir_kernel *k, bool *want);

/* An empty kernel over the other's space; without memory the builder's oom is set. */
void ir_open_kernel(struct ir_builder *b, struct arena *arena, struct ir_kernel *k,
                    const struct ir_kernel *like);

/* Of contexts of any kind: not all shifts of the iteration space. Such a kernel is walked point by
 * point on a GPU, each load by an index of its own, which takes several times as long as what a
 * merge can save. */
bool ir_is_general(const struct ir_kernel *k);

/* Within the limits, and what it writes is read by none of its points, or is a single output's own
 * element. */
bool ir_is_sound(const struct ir_kernel *k, const struct fuse_limits *limits);

#endif
