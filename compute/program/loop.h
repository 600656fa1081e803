/* Loops: passes of evaluations over memory at fixed addresses, repeated many times as one piece of
 * work.
 *
 * Called by program_run.c, for each run of steps. A pass is recorded as engine_evaluate would do
 * it, but nothing is submitted. Up to three passes are enough: the first reads the arrays'
 * contents, the second and third alternate in carrying them from one memory to the other and back.
 * The engine keeps the kernels made from a pass (fewer, ir_fuse.h; several steps at once, ir.h) for
 * later loops.
 *
 * A loop belongs to one thread and ends before its stream. */
#ifndef ARRAYD_LOOP_H
#define ARRAYD_LOOP_H

#include "compute/engine/engine.h"

struct loop;

#define LOOP_PASSES 3

/* How a loop ran. */
struct loop_report {
    uint32_t kernels; /* per step */
    uint32_t steps;   /* per pass over memory */
    const char *why;  /* why not more; static text */
    double step_ms;   /* device time of a step in the last run of its kernels, by any program; 0:
                         not known */
};
/* The same, limited to runs of `most` steps, for the reason `why`. */
struct loop_report loop_report_within(struct loop_report r, int64_t most, const char *why);

/* NULL without memory. */
struct loop *loop_new(struct engine_stream *s, struct account *account);
void loop_free(struct loop *l); /* one that was not submitted */
static inline void loop_freep(struct loop **l)
{
    loop_free(*l);
}
#define _cleanup_loop_ __attribute__((cleanup(loop_freep)))

/* Begins the next pass: later calls belong to it. */
void loop_begin(struct loop *l);
/* Records an evaluation with `out`. `dead`: its output is not needed after the pass. Errors are
 * engine_evaluate's. If it cannot be repeated (loop_refusal), nothing has happened, and the loop is
 * only good for loop_free. */
enum err_code loop_add(struct loop *l, const struct eval_request *req, bool dead,
                       struct err *e) must_check;
/* Records filling an array's ghosts, likewise. */
enum err_code loop_fill_ghost(struct loop *l, struct array *a, struct err *e) must_check;
/* The pass carries the contents of `from` on to `to`. False without memory. */
bool loop_carry(struct loop *l, const struct array *from, const struct array *to);
const char *loop_refusal(const struct loop *l); /* static text; NULL: none */
bool loop_may_do_later(const struct loop *l);   /* the refusal may be temporary */

/* Queues `steps` (≥ 1, < 2³²) steps, of which the first LOOP_PASSES, or all if they are fewer, have
 * been recorded; always takes the loop. *ret_passes is the number of passes over memory: after the
 * first pass the arrays are where that left them, afterwards where the second or the third did.
 * done() is called as engine_evaluate's. */
enum err_code loop_submit(struct loop *take_l, int64_t steps, engine_done *done, void *user,
                          int64_t *ret_passes, struct loop_report *ret_report,
                          struct err *e) must_check;

/* What loop_submit would do, judged by the last pass recorded; nothing is submitted. The kernels
 * are borrowed until loop_free. */
struct loop_explanation {
    struct ir_kernel *const *kernels; /* of one step */
    uint32_t n_kernels;
    struct ir_kernel *const *several; /* for several steps, in falling order of their `steps` */
    uint32_t n_several;
    struct loop_report report;
};
enum err_code loop_explain(struct loop *l, struct loop_explanation *ret, struct err *e) must_check;
/* Whether the array is the memory behind a slot of these kernels. */
bool loop_slot_is(const struct loop *l, uint32_t slot, const struct array *a);

#endif
