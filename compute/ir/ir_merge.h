/* Two kernels as one. Called by ir_fuse.c, which knows what lies between them and what is still
 * wanted afterwards. Arena memory; pure. */
#ifndef ARRAYD_IR_MERGE_H
#define ARRAYD_IR_MERGE_H

#include "compute/base/arena.h"
#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct ir_merge_request {
    const struct ir_kernel *first, *second; /* in the order they run in */
    const bool *keep;                       /* by output of the first: it is stored still */
    uint32_t others; /* further kernels that will compute what the first one does */
    const struct fuse_limits *limits;
};

enum ir_merge_result { IR_MERGED, IR_APART, IR_NO_MEMORY };

/* Whether the kernel stores, has points, and is one of a single step: what can be merged into
 * another. */
bool ir_merge_first(const struct ir_kernel *k);
/* Whether it can be the second: that, or a reduction that comes to the same in any order. */
bool ir_merge_second(const struct ir_kernel *k);

/* The kernel whose outputs are those of the first to be kept and then the second's, which loads
 * nothing that the first stores: it computes that itself. IR_APART where that cannot be, or is too
 * dear. Both are as above, and of one fast_math. */
enum ir_merge_result ir_merge(struct arena *arena, const struct ir_merge_request *req,
                              struct ir_kernel **ret) __attribute__((warn_unused_result));

/* Where the second, of a single output, stores a part of an array that the first stores whole: the
 * first with that part put over its own. `known`: kernels of which the memory that they load and
 * store through a view over the first's space is known to be there. IR_APART as above; both are of
 * one fast_math, and ir_merge_first. */
struct ir_overlay_request {
    struct ir_merge_request merge; /* keep: what is put over is kept in any case */
    struct ir_kernel *const *known;
    uint32_t n_known;
    const int64_t *bytes; /* by slot, of its memory; NULL: not known */
};
enum ir_merge_result ir_overlay(struct arena *arena, const struct ir_overlay_request *req,
                                struct ir_kernel **ret) __attribute__((warn_unused_result));

#endif
