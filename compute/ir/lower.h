/* Typed graph → plan of kernels. Called by the engine and by tests. The plan lives in `arena`;
 * re-entrant. */
#ifndef ARRAYD_LOWER_H
#define ARRAYD_LOWER_H

#include "compute/base/arena.h"
#include "compute/base/err.h"
#include "compute/check/typed.h"
#include "compute/ir/fuse.h"
#include "compute/ir/ir.h"

struct lower_request {
    const struct typed *typed;
    struct fuse_limits limits;
    bool fast_math;
    /* The destination of the result: a region of the result slot that the root's shape broadcasts
     * to, or NULL for a new contiguous array of the root's shape. */
    const struct view *target;
    int64_t target_bytes; /* size of the slot behind `target` */
};

/* Slots: the typed inputs in order (SLOT_INPUT), then the result, then temporaries. The only error
 * is ERR_OUT_OF_MEMORY: any expression can be lowered, whatever its size. */
enum err_code lower(struct arena *arena, const struct lower_request *req, struct ir_plan **ret,
                    struct err *e) must_check;

#endif
