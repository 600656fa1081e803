/* Nodes of one kernel on their way into another, where they are evaluated at other points. Called
 * by ir_merge.c. Arena memory; without it the builder's oom is set. */
#ifndef ARRAYD_IR_COPY_H
#define ARRAYD_IR_COPY_H

#include "compute/ir/ir_build.h"

/* Where a kernel's points lie: their index, from the index of a context of the new kernel. */
struct ir_place {
    uint32_t ctx;
    struct affine map;
};

struct ir_copy {
    struct ir_builder *b;
    const struct ir_kernel *from;
    const bool *want;        /* by node; with what they need */
    struct ir_place *places; /* by context; of rank −1 until it is asked for */
    uint32_t *to;            /* by node; IR_NONE until it is there */
};

void ir_place_identity(struct affine *m, int rank);
/* start + step · the index along axis src that `inner` gives, as a function of inner's index. */
void ir_place_compose(const struct affine *inner, int src, int64_t start, int64_t step,
                      int8_t *ret_src, int64_t *ret_start, int64_t *ret_step);

/* `root`: where context 0 lies. False without memory. */
bool ir_copy_open(struct ir_copy *c, struct ir_builder *b, const struct ir_kernel *from,
                  const bool *want, const struct ir_place *root)
    __attribute__((warn_unused_result));
/* Where a context of the old kernel lies. */
const struct ir_place *ir_copy_place(struct ir_copy *c, uint32_t ctx);
/* Copies the wanted nodes but those that are there already (to is no IR_NONE). */
void ir_copy_nodes(struct ir_copy *c);

#endif
