/* The blocked interpreter: runs one IR kernel over its iteration space on the CPU.
 *
 * Called by `compute/cpu`. Calls `compute/cpu/loops`, `compute/ir` and `compute/type`.
 *
 * A run is one execution of one kernel on given memory. interp_new() analyses the geometry and cuts
 * the work into units; any number of threads run units, each unit once, each thread with its own
 * scratch fitted to the run; after all of them one thread calls interp_finish(). All memory is
 * taken by interp_new() and interp_fit(): nothing after them can fail. The kernel and the slots'
 * memory belong to the caller and outlive the run. Threads share a run without locks (units write
 * disjoint places); a scratch is used by one thread at a time. */
#ifndef ARRAYD_CPU_INTERP_H
#define ARRAYD_CPU_INTERP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "compute/base/strb.h"
#include "compute/ir/ir.h"
#include "compute/ir/ir_whole.h"

struct interp_run;

/* A thread's registers and bound programs; it grows and is kept between runs. */
struct interp_scratch;

/* `number`: the scratch's index for interp_keep. NULL without memory. */
struct interp_scratch *interp_scratch_new(int number);
void interp_scratch_free(struct interp_scratch *s);

/* Prepares a run for about `threads` threads; NULL without memory. `slots` are the base addresses
 * of the plan's slots. Results do not depend on `threads`, bit for bit. */
struct interp_run *interp_new(const struct ir_kernel *k, void *const *slots, int threads);
void interp_free(struct interp_run *r);

/* Sets *ret to a run of all parts of a whole, or to NULL where that does not pay. Results have the
 * bits of the parts'. `slots` are those of the plan. *ret_never: wherever these are, it will not
 * pay. False without memory. */
bool interp_whole_new(const struct ir_whole *w, void *const *slots, int threads,
                      struct interp_run **ret, bool *ret_never) must_check;

/* The run will be rewound many times: the programs that each of `n` scratches, numbered from 0, has
 * bound for it stay with the run, as far as there is memory and their size is in proportion. */
void interp_keep(struct interp_run *r, int n);

/* Whether units bind several programs each, so that these are worth keeping in any case. */
bool interp_binds_often(const struct interp_run *r);

/* Lets as many of the n runs as can, from the first on, run abreast: they go through the same rows,
 * and a unit of the first is followed by the same unit of the others, which are not run by
 * themselves then (interp_is_abreast). Returns how many: 1, if none follows. What is said below of
 * a run is then said of all of them. Before interp_keep and interp_fit. */
uint32_t interp_go_abreast(struct interp_run *const *runs, uint32_t n);
bool interp_is_abreast(const struct interp_run *r); /* NULL: is part of a whole before it */

/* Whether runs should be abandoned. `ask` is called now and then while units run, from any of their
 * threads. Once it returns true, `is_over` is set, and units and later steps return as soon as they
 * can; what they have written must not be read. */
struct interp_watch {
    bool (*ask)(void *user);
    void *user;
    _Atomic bool is_over;
};
/* Call before the first unit; the watch is borrowed. */
void interp_set_watch(struct interp_run *r, struct interp_watch *w);

/* The number of units (0: nothing to do but interp_finish). */
int64_t interp_units(const struct interp_run *r);

/* Makes the scratch large enough for the run, as well as for the runs it was fitted to before;
 * false without memory. */
bool interp_fit(const struct interp_run *r, struct interp_scratch *s) must_check;

/* Runs one unit. */
void interp_unit(struct interp_run *r, int64_t unit, struct interp_scratch *s);

/* After every unit has returned: whether all units must run once more, in another role. */
bool interp_again(struct interp_run *r, struct interp_scratch *s) must_check;

/* After every unit has returned for the last time: combines partial reductions. */
void interp_finish(struct interp_run *r, struct interp_scratch *s);

/* Makes the whole run ready to run again. */
void interp_rewind(struct interp_run *r);

/* Whether there is so little work that one thread does it best. */
bool interp_is_small(const struct interp_run *r);

/* "flat", "rows", "tile", "stencil", "reduce-all", "reduce-inner", "reduce-outer",
 * "steps" or "fold". */
const char *interp_shape(const struct interp_run *r);

/* How many steps of the kernel are best done in one pass (backend.h's steps); the slots' memory is
 * not used. A kernel of several steps is one for which this was more than 1, of any number. */
uint32_t interp_best_steps(const struct ir_kernel *k, void *const *slots, int threads,
                           const char **ret_why);

/* Points times the cost of their nodes (op_cost) and the steps, for the inline decision. Saturates.
 */
int64_t interp_cost(const struct ir_kernel *k);

/* Describes in words how the run is cut, for explain. */
void interp_describe(const struct interp_run *r, struct strb *out);

#endif
