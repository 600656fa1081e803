/* Running a typed graph, or a plan: the common path of evaluate, copies, creators and uploads of
 * regions, and of program/'s loops and ghost fills.
 *
 * A plan is made and bound to memory (bind.c), then submitted (run.c). A run belongs to one thread;
 * its task holds what it needs. */
#ifndef ARRAYD_RUN_H
#define ARRAYD_RUN_H

#include "compute/engine/engine.h"
#include "compute/ir/ir.h"
#include "compute/memory/task.h"

/* Runs a typed graph: the core of evaluate, copy, creators and region uploads. `t` has an arena
 * that holds `typed`; always taken. out/out_view as in struct eval_request. */
enum err_code engine_run(struct task *take_t, const struct typed *typed, struct account *account,
                         bool fast_math, struct array *out, const struct view *out_view,
                         struct array **ret, struct err *e) must_check;
/* The plan that engine_run would run, in `arena`. */
enum err_code engine_plan(struct engine *g, struct arena *arena, const struct typed *typed,
                          bool fast_math, struct array *out, const struct view *out_view,
                          struct ir_plan **ret, struct err *e) must_check;
/* Runs a plan whose only array is slot 0, `out`, which its kernels read and write; no kernel reads
 * what it writes itself. `t` has an arena that holds the plan; always taken. */
enum err_code engine_run_plan(struct task *take_t, struct ir_plan *plan, struct account *account,
                              struct array *out, struct array **ret, struct err *e) must_check;
/* A graph of just the array. False without memory. */
bool typed_input_only(struct arena *arena, struct typed *t, struct array *a);

/* Lowers, for the region `target` of a buffer of target_bytes (NULL: a new array). */
enum err_code plan_make(struct arena *arena, const struct engine *g, const struct typed *typed,
                        bool fast_math, const struct view *target, int64_t target_bytes,
                        struct ir_plan **ret, struct err *e) must_check;
/* Operations on elements: each kernel's operations for a point, times its points, including those
 * that a reduction visits. INT64_MAX: that many or more; cost_sum saturates there, too. */
int64_t plan_cost(const struct ir_plan *plan);
int64_t cost_sum(int64_t a, int64_t b);
/* ERR_EXPRESSION_TOO_LARGE, at x's place, if the cost exceeds config.max_cost. `what` is the
 * subject of the message: "this". */
enum err_code cost_check(const struct engine *g, const struct expr *x, const char *what,
                         int64_t cost, struct err *e) must_check;

/* With the lock held: ERR_PRECONDITION_FAILED unless the contents have this version (0: any). */
enum err_code require_version(const struct buffer *b, uint64_t version, struct err *e) must_check;

/* ERR_CONFLICT unless the array is on the stream's device. `name` is for the message (NULL: it has
 * none). */
enum err_code require_device(const struct engine_stream *s, const struct array *a, const char *name,
                             struct err *e) must_check;

/* --- the first halves of engine_evaluate and engine_fill_ghost --- */

/* A task with the request's plan (task->entry) and the graph over its arrays, in the task's arena;
 * NULL if it is put off. */
enum err_code evaluate_begin(struct engine_stream *s, const struct eval_request *req,
                             struct task **ret, const struct typed **ret_typed,
                             struct eval_times *times, struct err *e) must_check;

/* A task with the plan that fills the array's ghosts, with the array as slot 0; *ret_plan NULL:
 * nothing to fill. */
enum err_code fill_begin(struct engine_stream *s, struct array *a, struct task **ret,
                         struct ir_plan **ret_plan, struct err *e) must_check;
/* The ghost cells of a face: all faces together cover each ghost cell exactly once. */
void ghost_cells(const struct array *a, int axis, int side, struct view *ret);
/* --- a run under construction: bind.c, run.c and program/loop.c --- */

enum write_mode { WRITE_DIRECT, WRITE_FRESH, WRITE_STAGED };

/* Memory for temporaries, reused by successive pieces of work. */
struct run_temporaries {
    struct arena *arena;
    struct storage **all; /* a reference each */
    size_t n, cap;
    size_t taken; /* how many of them, from the first, the current binding uses */
};

struct run {
    struct task *task;
    struct engine *g;
    struct account *account;
    const struct typed *typed;
    bool fast_math;
    struct ir_plan *plan;                /* the task's own: the kernels may belong to others */
    struct plan_entry *entry;            /* the origin of the plan, or NULL */
    struct array *out;                   /* or NULL */
    struct view target;                  /* of out */
    bool covers;                         /* target is every element of out's buffer */
    bool in_place;                       /* its new storage takes over the old one's charge */
    bool out_remade;                     /* it was in host memory, and is written as if new */
    struct run_temporaries *temporaries; /* or NULL: new ones */
    struct storage *renamed;             /* run_make_renamed's, a reference; or NULL */
    void **slots;
    uint32_t n_slots;
    struct storage **storages; /* by slot; borrowed: the task's uses hold them */
};

/* Determines what is written, and the plan to run: directly to the target (r->out, or its region
 * out_view if not NULL) or through a temporary. */
enum err_code run_prepare(struct run *r, const struct view *out_view, enum write_mode *ret,
                          struct err *e) must_check;
/* Makes it write through a temporary. */
enum err_code run_stage(struct run *r, struct err *e) must_check;
/* Marks the arrays as just used. */
void run_touch(const struct run *r);
/* Room for the slots, and memory for temporaries and for a new result. */
enum err_code run_bind_temps(struct run *r, struct err *e) must_check;
/* Memory for a result that replaces the target's, made before the lock is taken; without any,
 * run_bind_arrays makes it, or says why it cannot. */
void run_make_renamed(struct run *r, enum write_mode mode);
/* With the lock held, which it may let go of in between: memory for operands, and a target, that
 * have to be moved. */
enum err_code run_make_room(struct run *r, enum write_mode mode, struct err *e) must_check;
/* With the lock held: binds operands and target as of this submission. *ret_renamed: the target's
 * new storage, borrowed, if it gets one. */
enum err_code run_bind_arrays(struct run *r, enum write_mode mode, struct storage **ret_renamed,
                              struct err *e) must_check;

/* require_device for all its arrays. */
enum err_code run_require_device(const struct run *r, struct err *e) must_check;
/* Prepares the kernels for the device; call without the lock. */
void run_prepare_kernels(const struct engine_stream *s, struct ir_kernel *const *kernels,
                         uint32_t n);
/* Releases what a backend keeps for the kernels. */
void kernels_release(struct engine *g, struct ir_kernel *const *kernels, uint32_t n);
/* The task is being freed: releases its entry and the kernels of its own. */
void run_freed(struct task *t);
/* With the lock held: the error for a task that task_submit reported as failed at once; `done` is
 * not called then. Returns its code. */
enum err_code run_refused(struct task *t, enum err_code code, struct err *e) must_check;

#endif
