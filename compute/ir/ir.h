/* The intermediate representation: a plan is a list of kernels (IR groups), each straight-line SSA
 * code over an iteration space. lower.c makes it, ir_verify.c checks it, the backends run it.
 *
 * A kernel runs its nodes once for every point of its iteration space (rank, shape); nodes are in
 * order, arguments before users. An IR_LOAD reads an input through an index context, a chain of
 * steps that maps the point to an index; so shifts and slices of whole expressions need no
 * temporary. Float16 and bfloat16 appear only in loads, stores, casts, selects and constants.
 *
 * Everything is arena memory owned by the plan. Immutable once lowered: safe to share. */
#ifndef ARRAYD_IR_H
#define ARRAYD_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/arena.h"
#include "compute/base/strb.h"
#include "compute/check/typed.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"
#include "compute/type/op.h"

/* One step of an index context. With p = the index in the parent's space:
 *   q[k] = start[k] + step[k]·p[src[k]]   (start[k] where src[k] < 0)
 * and then the shift: every mode but GHOST maps q + offset into 0 ≤ . < shape:
 *   SELF       q + offset if that is inside along all axes, else q
 *   CLAMP, WRAP, REFLECT, SYMMETRIC  axis by axis
 *   CONSTANT   clamped (any valid element); IR_INSIDE tells whether q + offset was inside
 *   GHOST      q + offset, unlimited: only for loads from memory that covers it (ir_load_extent)
 * q itself is always inside `shape`. Context 0 is the iteration space itself and has no step. */
struct ir_ctx {
    uint32_t parent; /* a smaller number than its own */
    int rank;
    int64_t shape[MAX_RANK];
    int8_t src[MAX_RANK];
    int64_t start[MAX_RANK], step[MAX_RANK];
    int64_t offset[MAX_RANK];
    enum boundary_mode mode;
};

enum ir_kind {
    IR_CONST, /* scalars[scalar] */
    IR_LOAD,  /* inputs[input] at context ctx */
    IR_INDEX, /* int64: start + step · (index along axis `axis` of context ctx); axis < 0: start */
    IR_INSIDE, /* bool: context ctx's shift stayed inside its shape (ctx ≠ 0) */
    IR_OP,     /* op(args), all args of dtype `src`; the node's dtype is op_result_dtype(op, src) */
    IR_CAST,   /* args[0] (of dtype `src`) as dtype */
    IR_GATHER, /* inputs[input] (gathered) at element args[0] (int64), clamped to its row */
    IR_TABLE,  /* tables[table] at number args[0] (int64), clamped to the table */
    IR_SELECT, /* args[0] (bool) ? args[1] : args[2] */
    IR_RANDOM, /* randoms[random] at element index args[0] (int64) */
    IR_FOLD    /* args[0] (of dtype `src`) combined over its row by folds[fold]: a whole's */
};

struct ir_node {
    uint8_t kind;  /* enum ir_kind */
    uint8_t dtype; /* enum dtype of the result */
    uint8_t src;   /* IR_OP, IR_CAST, IR_FOLD: dtype of the operands */
    uint8_t n_args;
    uint16_t op;  /* IR_OP */
    int16_t axis; /* IR_INDEX */
    uint32_t args[3];
    union {
        uint32_t scalar;
        uint32_t input;
        uint32_t random;
        uint32_t table;
        uint32_t fold;
        uint32_t index; /* IR_INDEX: affine in kernel->indices */
    };
    uint32_t ctx; /* IR_LOAD, IR_INDEX, IR_INSIDE */
};

/* IR_INDEX's affine map of the context's index. */
struct ir_index {
    int64_t start, step;
};

/* IR_FOLD's reduction: an output's, inside the kernel. All of a kernel are over the same axes: the
 * points that differ only along these are a row. */
struct ir_fold {
    enum reduce_op reduce;
    uint32_t axes;
    double divisor; /* of reduce_divides() */
};

/* An operand: element [i…] of context space lies at view.offset + Σ strides[k]·i[k] of the slot.
 * view.rank is the rank of the context it is loaded under (shape entries: the context's). A
 * gathered operand is read only by IR_GATHER: its view is one contiguous row, empty only if the
 * iteration space is. */
struct ir_input {
    uint32_t slot; /* into plan->slots */
    enum dtype dtype;
    struct view view;
    bool gathered;
};

enum ir_output_kind { OUT_STORE, OUT_REDUCE, OUT_SCAN, OUT_FOLD };

/* A kernel's result. OUT_STORE writes node at view (over the iteration space). OUT_REDUCE combines
 * node over the iteration axes in `axes` and writes one element for every point of the rest: view
 * has the iteration space's rank, stride 0 and extent 1 along reduced axes. Reductions of floats
 * and complex accumulate at least as accurately as pairwise summation, integers wrap, min and max
 * propagate NaN; the order is fixed, so the same input gives the same bits. A sum (prod, any, all)
 * over nothing is 0 (1, false, true), a mean NaN; there is no ARGMAX or ARGMIN of nothing. OUT_SCAN
 * writes at view, as OUT_STORE does, the SUM or PROD of node at the points up to and including each
 * one along the only axis in `axes`; no input uses its memory. A kernel has one output, or several
 * stores, all of the same points and each to its own memory; a whole (ir_whole.h) may have several
 * reductions, all over the same axes. OUT_FOLD, only in a kernel with folds
 * and behind its stores, writes an IR_FOLD node's value once for each row, at a view as
 * OUT_REDUCE's.
 *
 * A kernel of several steps (ir_kernel.steps) repeats its work that many times. From the second
 * step on, loads of input number feeds − 1 read what this output stored in the step before; only
 * the last step's stores are visible. Each of its outputs is a store that feeds one input, with the
 * output's dtype, shape and strides, over the whole iteration space; no input uses the outputs'
 * memory. */
struct ir_output {
    enum ir_output_kind kind;
    uint32_t node;
    uint32_t slot;
    enum dtype dtype; /* of the stored elements: the node's; int64 for ARGMAX and ARGMIN */
    struct view view;
    enum reduce_op reduce;
    uint32_t axes;
    double divisor; /* of reduce_divides() */
    uint32_t feeds; /* 1 + number of an input; 0: none */
};

struct ir_kernel {
    int rank;
    int64_t shape[MAX_RANK];
    struct ir_node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct ir_ctx *ctxs; /* ctxs[0] is the iteration space */
    uint32_t n_ctxs, cap_ctxs;
    struct ir_input *inputs;
    uint32_t n_inputs, cap_inputs;
    struct scalar *scalars; /* kernel arguments, not part of the generated text */
    uint32_t n_scalars, cap_scalars;
    struct ir_index *indices;
    uint32_t n_indices, cap_indices;
    const struct random_params **randoms;
    uint32_t n_randoms, cap_randoms;
    const struct number_table *
        *tables; /* kernel arguments like the scalars: not part of the text either */
    uint32_t n_tables, cap_tables;
    struct ir_fold *folds; /* of a whole (ir_whole.h) only */
    uint32_t n_folds, cap_folds;
    struct ir_output *outputs;
    uint32_t n_outputs, cap_outputs;
    uint32_t steps;            /* 0 and 1: one step */
    bool fast_math;            /* contraction allowed */
    _Atomic(void *) prepared;  /* private to the backend: what it made of the kernel (backend.h) */
    _Atomic uint64_t identity; /* ir_identity's; 0: not computed yet */
    struct ir_whole *whole;    /* that this kernel is the first part of, or NULL (ir_whole.h) */
};

enum slot_kind {
    SLOT_INPUT,  /* array operand number `index` */
    SLOT_TEMP,   /* temporary, `size` bytes, living from kernel first to kernel last */
    SLOT_ANSWER, /* as SLOT_TEMP, but outlives the plan's run: a T_GUARDED's args[1] */
    SLOT_RESULT  /* the result (or the evaluate "out" target) */
};

struct ir_slot {
    enum slot_kind kind;
    uint32_t index;
    int64_t size; /* bytes (all except SLOT_INPUT) */
    uint32_t first, last;
};

struct ir_plan {
    struct ir_slot *slots;
    uint32_t n_slots, cap_slots;
    struct ir_kernel **kernels;
    uint32_t n_kernels, cap_kernels;
    uint32_t result_slot;
    enum dtype dtype; /* of the result */
    int rank;
    int64_t shape[MAX_RANK];
};

/* Whether the node converts from one type to the other. */
static inline bool ir_casts(const struct ir_node *n, enum dtype from, enum dtype to)
{
    return n->kind == IR_CAST && n->src == from && n->dtype == to;
}

/* The least number of bytes a kernel reads and writes: each distinct element of an operand once. */
int64_t ir_bytes_read(const struct ir_kernel *k);
int64_t ir_bytes_written(const struct ir_kernel *k);

/* For a reduction over ir_combined_axes(): how far apart neighbours along iteration axis `axis`
 * are in the reduced axes taken as one, in C order; 0 along a kept axis. */
int64_t ir_reduced_stride(const struct ir_kernel *k, int axis);

/* The axes over which the kernel combines points: of its folds, or of outputs[0] unless that
 * stores. */
uint32_t ir_combined_axes(const struct ir_kernel *k);

/* Whether an input is read only where the output writes it: each element by the point that writes
 * it. */
bool ir_reads_in_place(const struct ir_kernel *k, uint32_t input, const struct ir_output *o);

/* First and one-past-last element of the slot that an IR_LOAD may read, both 0 if none. */
void ir_load_extent(const struct ir_kernel *k, uint32_t node, int64_t *ret_lo, int64_t *ret_hi);

/* Identifies what the kernel does, its constants apart, in this process and in others of the same
 * version; never 0. Computed once. */
uint64_t ir_identity(struct ir_kernel *k);

/* The kernel as text, one node a line, for explain, tests and ARRAYD_TRACE=ir. */
void ir_print(const struct ir_kernel *k, struct strb *out);

/* Checks the invariants above; the message names the node. Called in debug builds for a plan after
 * lowering and for a kernel when it is submitted, and by tests. Returns NULL if all hold, else a
 * static or arena text that says which does not. For a plan also checks its slots: a temporary is
 * written before it is read, an operand is only read, and every access lies within the slot's size.
 */
const char *ir_verify(const struct ir_kernel *k, struct arena *arena);
const char *ir_verify_plan(const struct ir_plan *p, struct arena *arena);

#endif
