/* Merges two kernels into one. Called by ir_fuse.c, which knows the kernels between them and which
 * outputs are needed afterwards. Arena memory; pure. */
#ifndef ARRAYD_IR_MERGE_H
#define ARRAYD_IR_MERGE_H

#include "compute/base/arena.h"
#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct ir_merge_request {
    const struct ir_kernel *first, *second; /* in execution order */
    const bool *keep;                       /* by output of the first: it must still be stored */
    uint32_t others;                        /* further kernels that will recompute the first */
    const struct fuse_limits *limits;
};

enum ir_merge_result { IR_MERGED, IR_APART, IR_NO_MEMORY };

/* Whether the kernel can be merged into another: it stores, is not empty, and has a single step. */
bool ir_merge_first(const struct ir_kernel *k);
/* Whether it can be the second: the same, or a reduction whose result does not depend on the order.
 */
bool ir_merge_second(const struct ir_kernel *k);

/* A kernel with the outputs of the first that are kept, then the second's. It loads nothing that
 * the first stores, but computes that itself. IR_APART if that is impossible or too expensive. Both
 * kernels satisfy the functions above and have the same fast_math. */
enum ir_merge_result ir_merge(struct arena *arena, const struct ir_merge_request *req,
                              struct ir_kernel **ret) __attribute__((warn_unused_result));

/* If the second, with a single output, stores a part of an array that the first stores whole: the
 * first with that part selected from the second. `known`: kernels whose loads and stores through a
 * view over the first's space prove that this memory exists. IR_APART as above; both satisfy
 * ir_merge_first and have the same fast_math. */
struct ir_overlay_request {
    struct ir_merge_request merge; /* keep: the overlaid output is kept in any case */
    struct ir_kernel *const *known;
    uint32_t n_known;
    const int64_t *bytes; /* by slot, of its memory; NULL: unknown */
};
enum ir_merge_result ir_overlay(struct arena *arena, const struct ir_overlay_request *req,
                                struct ir_kernel **ret) __attribute__((warn_unused_result));

#endif
