/* A run under construction, shared by bind.c (plan and memory), run.c (submission) and loop.c. */
#ifndef ARRAYD_RUN_H
#define ARRAYD_RUN_H

#include "compute/engine/engine_int.h"

enum write_mode { WRITE_DIRECT, WRITE_FRESH, WRITE_STAGED };

/* Memory for temporaries of one piece of work after another, in place of new memory for each. */
struct run_temporaries {
    struct arena *arena;
    struct storage **all; /* a reference each */
    size_t n, cap;
    size_t taken; /* of them, the first ones, by what is being bound */
};

struct run {
    struct task *task;
    struct engine *g;
    struct account *account;
    const struct typed *typed;
    bool fast_math;
    struct ir_plan *plan;                /* the task's own: its kernels may be others' */
    struct plan_entry *entry;            /* where the plan comes from, or NULL */
    struct array *out;                   /* or NULL */
    struct view target;                  /* of out */
    bool covers;                         /* target is every element of out's buffer */
    bool in_place;                       /* its new storage is to be charged as the old one is */
    bool out_remade;                     /* it was in host memory, and is written as if new */
    struct run_temporaries *temporaries; /* or NULL: new ones */
    void **slots;
    uint32_t n_slots;
    struct storage **storages; /* by slot; borrowed: the task's uses hold them */
};

/* What is written, and the plan as it will run: to the target (r->out, and where out_view is not
 * NULL that region of it) or through a temporary. */
enum err_code run_prepare(struct run *r, const struct view *out_view, enum write_mode *ret,
                          struct err *e) must_check;
/* Makes it write through a temporary. */
enum err_code run_stage(struct run *r, struct err *e) must_check;
/* The arrays are used now. */
void run_touch(const struct run *r);
/* Room for the slots, and memory for temporaries. */
enum err_code run_bind_temps(struct run *r, struct err *e) must_check;
/* With the lock held: operands and target as they are in the order of submission. *ret_renamed: the
 * target's new storage, borrowed, where it gets one. */
enum err_code run_bind_arrays(struct run *r, enum write_mode mode, struct storage **ret_renamed,
                              struct err *e) must_check;

/* Its arrays are on the stream's device: require_device. */
enum err_code run_require_device(const struct run *r, struct err *e) must_check;
/* What the device makes of the kernels is made outside of the lock. */
void run_prepare_kernels(const struct engine_stream *s, struct ir_kernel *const *kernels,
                         uint32_t n);
/* With the lock held: the error for a task that task_submit says has failed at once; `done` is not
 * told then. Returns its code. */
enum err_code run_refused(struct task *t, enum err_code code, struct err *e) must_check;

#endif
