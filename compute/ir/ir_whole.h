/* Wholes: kernels that do the work of several consecutive ones of a plan over the same rows, such
 * as the three of a softmax, with each row read once; or siblings, several reductions of the same
 * points. A backend may run a whole in place of its parts; the plan keeps these, for where that
 * does not pay, and on a GPU until the whole is compiled.
 *
 * Called by the engine and compute/program, which find wholes, and by the backends and tests, which
 * look at them. Arena memory; pure. */
#ifndef ARRAYD_IR_WHOLE_H
#define ARRAYD_IR_WHOLE_H

#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct ir_whole {
    struct ir_kernel *kernel;
    struct ir_kernel *const *parts; /* consecutive in the plan; the first points here */
    uint32_t n_parts;
    const uint32_t *made;  /* by part: the kernel's node for its first output */
    struct ir_whole *next; /* for a GPU: fewer of the same parts, where this cannot run; or NULL */
    _Atomic bool avoided;  /* private to the backend, as kernel->prepared is: it cannot run this */
};

/* Finds the plan's wholes and attaches each to its first part. Their reductions are folds
 * (IR_FOLD), their outputs those of the parts that are read elsewhere; siblings, its next if it
 * begins with some, keep the parts' outputs. All parts have one iteration
 * space, their reductions the same axes. Each slot is taken to be memory of its own: whoever runs a
 * whole where slots share memory checks ir_whole_fits. False without memory. */
bool ir_find_wholes(struct arena *arena, struct ir_plan *p, const struct fuse_limits *limits)
    __attribute__((warn_unused_result));

/* Whether the whole may run in place of kernels [at, …) of a list, whose slots have these
 * addresses: they are its parts, and what it writes it reads nowhere else. */
bool ir_whole_fits(const struct ir_whole *w, struct ir_kernel *const *kernels, uint32_t n,
                   uint32_t at, void *const *slots) __attribute__((warn_unused_result));

#endif
