/* A list of kernels → as few as can be. Called by programs, whose statements are such a list, and
 * by tests. Arena memory; pure. */
#ifndef ARRAYD_IR_FUSE_H
#define ARRAYD_IR_FUSE_H

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct ir_fuse_request {
    /* In the order they run in; their slots in one numbering, distinct slots in disjoint memory. */
    struct ir_kernel *const *kernels;
    uint32_t n_kernels;
    const bool *dead;     /* by slot: what is in it after the last kernel is of no use to anybody */
    const int64_t *bytes; /* by slot: of its memory; may be NULL, some fusions are not seen then */
    uint32_t n_slots;
    struct fuse_limits limits;
};

/* A list that leaves the same bits in all slots but the dead ones, in as many kernels or fewer:
 * none, where nothing that is made is of use. Those of the request that are in it are the same
 * objects; what the others point to (tables, randoms) is the request's kernels'. They have several
 * outputs where several arrays are made of the same ones. The only error is ERR_OUT_OF_MEMORY. */
enum err_code ir_fuse(struct arena *arena, const struct ir_fuse_request *req,
                      struct ir_kernel ***ret, uint32_t *ret_n, struct err *e) must_check;

#endif
