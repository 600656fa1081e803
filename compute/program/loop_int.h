/* Between loop.c, which records and submits, and loop_kernels.c, which makes kernels. */
#ifndef ARRAYD_LOOP_INT_H
#define ARRAYD_LOOP_INT_H

#include "compute/engine/engine_int.h"
#include "compute/program/loop.h"

#define NO_SLOT UINT32_MAX
#define SEVERAL 4 /* kernels of several steps: so many, half, a quarter and so on */

/* A recorded pass: kernels as they were lowered, and the memory they are bound to. */
struct loop_pass {
    struct task **tasks; /* unsubmitted, one an evaluation; job.kernels and job.slots are set */
    size_t n_tasks, cap_tasks;
    struct loop_slot *slots; /* the memory, in the order of its first use */
    size_t n_slots, cap_slots;
    struct loop_kernels *kernels; /* a reference; once they are made */
};
struct loop_slot {
    void *data;
    int64_t size;        /* bytes; INT64_MAX: not known */
    uint32_t carried_to; /* slot number or NO_SLOT */
    bool dead;
};

/* What a pass's kernels became; slots are numbered as the pass numbers them. */
struct loop_kernels {
    _Atomic uint32_t refs;
    struct engine *engine;
    struct arena *arena; /* all of it lives here */
    const void *key;
    size_t key_len;
    struct plan_entry **entries; /* whose kernels the key names, a reference each */
    size_t n_entries;
    struct ir_kernel **kernels; /* of one step */
    uint32_t n_kernels;
    struct ir_kernel *several[SEVERAL]; /* of several steps at once, falling; the first NULL ends */
    size_t bytes;                       /* that it takes, those entries aside */
    const char *why;                    /* not more than the first, or than one */
    _Atomic float step_ms;              /* a step took on the device, the last time; 0: none has */
};

/* The pass's kernels, found or made, a reference. */
enum err_code loop_kernels_get(struct engine_stream *s, const struct loop_pass *pass,
                               struct loop_kernels **ret, struct err *e) must_check;
struct loop_kernels *loop_kernels_ref(struct loop_kernels *k); /* returns k */
void loop_kernels_unref(struct loop_kernels *k);               /* NULL allowed */
/* What so many steps took on the device. */
void loop_kernels_took(struct loop_kernels *k, double device_ms, int64_t steps);

#endif
