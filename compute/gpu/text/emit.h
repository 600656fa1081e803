/* IR kernel → CUDA text and the arguments to launch it with.
 *
 * Called by prepare.c and tests. Pure; arena memory. The text holds the structure of the
 * expression: its operations, types, how axes and operands are laid out relative to each other.
 * Sizes, strides, numbers and addresses are arguments, so that one text serves all arrays of a
 * kind. The loops are compute/kernels' .cuh files, one per form; the text has `ar_kernel` with one
 * parameter, struct ar_params by value. */
#ifndef ARRAYD_CUDA_EMIT_H
#define ARRAYD_CUDA_EMIT_H

#include "compute/gpu/text/form.h"

/* An address in the parameters: 8 bytes at `at`. */
struct emit_address {
    uint32_t at;
    uint32_t slot;        /* EMIT_SCRATCH: the kernel's own memory; EMIT_FIRST, EMIT_COUNTERS */
    int64_t displacement; /* bytes */
};
#define EMIT_SCRATCH UINT32_MAX
/* Where several GPUs share the kernel, the first one's own memory. */
#define EMIT_FIRST (UINT32_MAX - 2)
/* EMIT_COUNTERS_SIZE bytes per stream, 0 before the kernel and after it. */
#define EMIT_COUNTERS      (UINT32_MAX - 1)
#define EMIT_COUNTERS_SIZE (4 * FORM_COUNTERS)

/* What the copy engine needs of an array: a CUtensorMap at `at`. */
struct emit_map {
    uint32_t at, slot;
    int64_t displacement; /* bytes */
    int size;             /* of an element */
    uint64_t shape[3];    /* x first */
    uint64_t strides[2];  /* bytes, from row to row and plane to plane */
    uint32_t box[3];
};

/* What a member has of a joined kernel (form.h): chunks [since, until) of those that are reduced;
 * the number of its first state of an output; to merge the states: how many there are, else 0. Of a
 * scan: elements; its own number; whether to scan them, else their totals are made. */
struct emit_share {
    int64_t since, until, number, join;
};

struct emitted {
    const struct form *form;
    const char *text;
    unsigned char *params;
    uint32_t params_size;
    bool indirect; /* more than EMIT_PARAMS_MAX: the kernel takes the address of a copy in device
                      memory */
    struct emit_address *addresses;
    uint32_t n_addresses;
    struct emit_map *maps;
    uint32_t n_maps;
    uint32_t share;  /* where in the parameters is a struct emit_share; 0: nowhere */
    int64_t scratch; /* bytes of memory the launch needs, or 0 */
    int64_t zeroed;  /* how many of these, from the start, must be zeroed */
};

/* For dividing by d > 0: ar_div of common.cuh. */
struct emit_divisor {
    uint32_t multiplier, shift;
    int64_t divisor;
};
struct emit_divisor emit_divisor_of(int64_t d);

/* Where in the parameters, unless they are in memory, is the number of the first block that is
 * launched (form_along): an int64_t, 0. */
#define EMIT_FROM 0

#define EMIT_PARAMS_MAX 4096 /* bytes of parameters that every driver passes by value */

/* In the form of form_within(). NULL without memory. */
struct emitted *emit_within(struct arena *arena, const struct ir_kernel *k, int slot_alignment,
                            int64_t shared, int members) __attribute__((warn_unused_result));
/* The same in a form that is given. An input may lie in the kernel's own memory: slot EMIT_SCRATCH.
 */
struct emitted *emit_in_form(struct arena *arena, const struct ir_kernel *k, const struct form *f)
    __attribute__((warn_unused_result));

#endif
