/* Loops: passes of evaluations over memory that stays where it is, done many times over as one
 * piece of work.
 *
 * Called by program_run.c, for each stretch of steps. A pass is recorded as engine_evaluate would
 * do it, but nothing is submitted; up to three passes say all: the first reads what the arrays
 * have, the second and third take turns at carrying them from one memory to the other and back.
 * What a pass's kernels become (fewer, ir_fuse.h; several steps at once, ir.h) the engine keeps
 * for loops to come.
 *
 * A loop belongs to one thread and ends before its stream. */
#ifndef ARRAYD_LOOP_H
#define ARRAYD_LOOP_H

#include "compute/engine/engine.h"

struct loop;

#define LOOP_PASSES 3

/* How a loop went. */
struct loop_report {
    uint32_t kernels; /* a step's */
    uint32_t steps;   /* that a pass over memory makes */
    const char *why;  /* not more; static text */
};
/* The same where a stretch of steps is `most` at most, for the reason `why`. */
struct loop_report loop_report_within(struct loop_report r, int64_t most, const char *why);

/* NULL without memory. */
struct loop *loop_new(struct engine_stream *s, struct account *account);
void loop_free(struct loop *l); /* one that was not submitted */
static inline void loop_freep(struct loop **l)
{
    loop_free(*l);
}
#define _cleanup_loop_ __attribute__((cleanup(loop_freep)))

/* What follows belongs to the next pass. */
void loop_begin(struct loop *l);
/* Records an evaluation with `out`. `dead`: what it writes is of no use after the pass. Errors are
 * engine_evaluate's. Where it is nothing that can be done over and over (loop_refusal), nothing has
 * happened, and the loop is only good for loop_free. */
enum err_code loop_add(struct loop *l, const struct eval_request *req, bool dead,
                       struct err *e) must_check;
/* Records the filling of an array's ghosts; the same. */
enum err_code loop_fill_ghost(struct loop *l, struct array *a, struct err *e) must_check;
/* The pass carries what is in `from` on to `to`. False without memory. */
bool loop_carry(struct loop *l, const struct array *from, const struct array *to);
const char *loop_refusal(const struct loop *l); /* static text; NULL: none */
bool loop_may_do_later(const struct loop *l);   /* it is refused as things are just now */

/* Queues `steps` (≥ 1, < 2³²) steps, of which the first LOOP_PASSES, or all where they are fewer,
 * have been recorded; the loop goes in any case. *ret_passes is how many times memory is passed
 * over: after the first pass the arrays are where that left them, then where the second or the
 * third did. done() is told as engine_evaluate's. */
enum err_code loop_submit(struct loop *take_l, int64_t steps, engine_done *done, void *user,
                          int64_t *ret_passes, struct loop_report *ret_report,
                          struct err *e) must_check;

/* What loop_submit would do, as the last pass recorded says; nothing is submitted. The kernels are
 * borrowed until loop_free. */
struct loop_explanation {
    struct ir_kernel *const *kernels; /* of one step */
    uint32_t n_kernels;
    struct ir_kernel *const *several; /* of several, falling, each with its `steps` */
    uint32_t n_several;
    struct loop_report report;
    double step_ms; /* a step took on the device when it was last run, by whomever; 0: not known */
};
enum err_code loop_explain(struct loop *l, struct loop_explanation *ret, struct err *e) must_check;
/* Whether that is the memory behind a slot of these kernels. */
bool loop_slot_is(const struct loop *l, uint32_t slot, const struct array *a);

#endif
