/* Copies nodes of one kernel into another, where they are evaluated at other points. Called by
 * ir_merge.c. Arena memory; if it runs out, the builder's oom is set. */
#ifndef ARRAYD_IR_COPY_H
#define ARRAYD_IR_COPY_H

#include "compute/ir/ir_build.h"

/* The position of a kernel's points: their index, from the index of a context of the new kernel. */
struct ir_place {
    uint32_t ctx;
    struct affine map;
};

struct ir_copy {
    struct ir_builder *b;
    const struct ir_kernel *from;
    const bool *want;        /* by node; their operands follow */
    struct ir_place *places; /* by context; of rank −1 until computed */
    uint32_t *to;            /* by node; IR_NONE until copied */
};

void ir_place_identity(struct affine *m, int rank);
/* start + step · (the index along axis src that `inner` gives), as a function of inner's index. */
void ir_place_compose(const struct affine *inner, int src, int64_t start, int64_t step,
                      int8_t *ret_src, int64_t *ret_start, int64_t *ret_step);

/* `root`: the place of context 0. False without memory. */
bool ir_copy_open(struct ir_copy *c, struct ir_builder *b, const struct ir_kernel *from,
                  const bool *want, const struct ir_place *root)
    __attribute__((warn_unused_result));
/* The place of a context of the old kernel. */
const struct ir_place *ir_copy_place(struct ir_copy *c, uint32_t ctx);
/* Copies the wanted nodes, except those already copied (`to` is not IR_NONE). */
void ir_copy_nodes(struct ir_copy *c);

#endif
