/* Stages: a whole (ir_whole.h) as kernels that run one after the other over a few rows at a time.
 * What they leave for one another lies in temporary memory of these few rows, which therefore stays
 * in a core's cache.
 *
 * Called by the CPU backend, and by tests. Arena memory; pure. */
#ifndef ARRAYD_IR_STAGES_H
#define ARRAYD_IR_STAGES_H

#include "compute/ir/ir_whole.h"

/* What a stage stores and later ones load: a slot of elements in C order, the kept axes' before the
 * reduced ones, or (rows) only the kept axes'. */
struct ir_temp {
    enum dtype dtype;
    bool rows;
};

struct ir_stage {
    struct ir_kernel *kernel;     /* a reduction, or stores */
    bool rows;                    /* the reduced axes have extent 1: a point for each row */
    const struct ir_kernel *part; /* the whole's part whose reduction this is, or NULL */
};

struct ir_stages {
    uint32_t first_temp; /* slots from here on are temporaries, below are the plan's */
    struct ir_temp *temps;
    uint32_t n_temps;
    struct ir_stage *stages;
    uint32_t n_stages;
    uint32_t axes; /* the reduced ones, which are the last */
};

/* Sets *ret to the whole's stages, or to NULL if it has none: its reduced axes are not the last
 * ones, or it has too many reductions. What several stages need is computed once and kept, unless
 * that is as cheap; what is the same along a row is computed once for each row. Only the last
 * stages write memory that is not temporary. False without memory. */
bool ir_make_stages(struct arena *arena, const struct ir_whole *w, struct ir_stages **ret)
    __attribute__((warn_unused_result));

/* One more than the highest slot that the kernel reads or writes. */
uint32_t ir_slots(const struct ir_kernel *k);

#endif
