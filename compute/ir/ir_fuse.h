/* Fuses a list of kernels into as few as possible. Called by programs, whose statements are such a
 * list, and by tests. Arena memory; pure. */
#ifndef ARRAYD_IR_FUSE_H
#define ARRAYD_IR_FUSE_H

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct ir_fuse_request {
    /* In execution order; their slots share one numbering up to n_slots, and distinct slots are
     * disjoint memory. */
    struct ir_kernel *const *kernels;
    uint32_t n_kernels;
    const bool *dead; /* by slot: its contents are not needed after the last kernel */
    const int64_t
        *bytes; /* by slot: bytes of its memory; may be NULL, then some fusions are missed */
    uint32_t n_slots;
    struct fuse_limits limits;
};

/* A list that leaves the same bits in all slots except the dead ones, in as many kernels or fewer:
 * none if nothing that is made is needed. Unchanged kernels are the request's objects; the others
 * point to tables and randoms of the request's kernels. A kernel has several outputs if several
 * arrays are computed from the same ones. The only error is ERR_OUT_OF_MEMORY. */
enum err_code ir_fuse(struct arena *arena, const struct ir_fuse_request *req,
                      struct ir_kernel ***ret, uint32_t *ret_n, struct err *e) must_check;

#endif
