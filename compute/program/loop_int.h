/* Shared by loop.c, which records and submits, and loop_kernels.c, which makes kernels. */
#ifndef ARRAYD_LOOP_INT_H
#define ARRAYD_LOOP_INT_H

#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"
#include "compute/program/loop.h"

#define NO_SLOT UINT32_MAX
#define SEVERAL 4 /* kernels for several steps: so many, half, a quarter and so on */

/* A recorded pass: kernels as lowered, and the memory they are bound to. */
struct loop_pass {
    struct task **tasks; /* unsubmitted, one per evaluation; job.kernels and job.slots are set */
    size_t n_tasks, cap_tasks;
    struct loop_slot *slots; /* the memory, in order of first use */
    size_t n_slots, cap_slots;
    struct loop_kernels *kernels; /* a reference; set once they are made */
};
struct loop_slot {
    void *data;
    int64_t size;        /* bytes; INT64_MAX: not known */
    uint32_t carried_to; /* slot number or NO_SLOT */
    bool dead;
};

/* The kernels made from a pass; slots are numbered as in the pass. */
struct loop_kernels {
    _Atomic uint32_t refs;
    struct engine *engine;
    struct arena *arena; /* holds all of it */
    const void *key;
    size_t key_len;
    struct plan_entry **entries; /* owners of the kernels that the key names, a reference each */
    size_t n_entries;
    struct ir_kernel **kernels; /* for one step */
    uint32_t n_kernels;
    struct ir_kernel *several[SEVERAL]; /* for several steps, falling; the first NULL ends */
    size_t bytes;                       /* used by this, without those entries */
    const char *why;                    /* why several[0] does not do more steps, or is missing */
    _Atomic float step_ms;              /* device time of a step in the last run; 0: none yet */
};

/* The pass's kernels, found or made; a reference. */
enum err_code loop_kernels_get(struct engine_stream *s, const struct loop_pass *pass,
                               struct loop_kernels **ret, struct err *e) must_check;
struct loop_kernels *loop_kernels_ref(struct loop_kernels *k); /* returns k */
void loop_kernels_unref(struct loop_kernels *k);               /* NULL allowed */
/* Records the device time of that many steps. */
void loop_kernels_took(struct loop_kernels *k, double device_ms, int64_t steps);

#endif
