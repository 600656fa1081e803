/* A text being written, and its parameters (emit_params.c): the base of all other emit files.
 * Private to compute/gpu/text. Arena memory; the builders remember a failure. */
#ifndef ARRAYD_CUDA_EMIT_PARAMS_H
#define ARRAYD_CUDA_EMIT_PARAMS_H

#include "compute/base/strb.h"
#include "compute/gpu/text/emit.h"

struct emitter {
    struct arena *arena;
    const struct ir_kernel *k;
    const struct form *f;
    struct emitted *out;
    struct strb types;        /* what the parameters' types need */
    struct strb fields, body; /* of ar_params; everything after it */
    struct strb values;       /* the parameters' bytes */
    uint32_t cap_addresses, cap_maps;
    /* How a node's value and the point's indices are called where the text is now. */
    void (*name)(struct emitter *m, uint32_t node); /* NULL: v<number> */
    int stage, line, column;                        /* FORM_WINDOW */
    bool edge;                                      /* FORM_WINDOW: points may lie on edges */
    bool vectors;      /* FORM_WINDOW: operands were loaded by vectors where possible */
    const char *index; /* NULL: i */
    uint32_t made;     /* FORM_FOLD: number + 1 of the node whose value is there, in w; or 0 */
    const bool *over;  /* FORM_FOLD: the nodes whose inverse is there, in h */
    const bool *rows; /* FORM_FOLD: the nodes that are the same all along a row, computed already */
    bool halves;      /* half.cuh is used */
    bool oom;
};

const char *emit_type(enum dtype t); /* "ar_f32" */
const char *emit_id(enum dtype t);   /* "F32" */

/* A parameter: its declaration and its value. */
void emit_i64(struct emitter *m, int64_t value, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* An array of them. */
void emit_i64s(struct emitter *m, const int64_t *values, int n, const char *name);
void emit_scalar(struct emitter *m, const struct scalar *s, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* An address to be filled in at launch. */
void emit_address(struct emitter *m, uint32_t slot, int64_t displacement, const char *type,
                  const char *name, ...) __attribute__((format(printf, 5, 6)));
/* What the copy engine needs of an input of rank 3 in order to bring boxes of `box` (along x, y) of
 * its planes: to be filled in at launch on GPUs that have one. */
void emit_map(struct emitter *m, uint32_t input, const int box[2], const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* A value alone, whose declaration the caller writes. */
void emit_bytes(struct emitter *m, const void *p, size_t n);

/* For dividing by d: ar_div of common.cuh, its multiplier, shift and divisor. NULL: already
 * declared. */
void emit_divisor(struct emitter *m, int64_t d, const char *type_and_name);
/* div[k]: for splitting a number into indices; one entry per axis. */
void emit_divisors(struct emitter *m);
/* The function `name`: a number over some axes → indices along them. */
void emit_unravel(struct emitter *m, const char *name, uint32_t axes);

/* Joined: struct emit_share, to be filled in at launch. */
void emit_share(struct emitter *m);

/* Whether a stride is a parameter: the text has the strides 0 and 1 itself, one for all strides
 * only 0. */
static inline bool emit_is_argument(const struct form *f, int64_t stride)
{
    return stride != 0 && (stride != 1 || (f->any && f->kind == FORM_REDUCE));
}
/* The distance between an operand's elements along a merged axis (< 0: no such axis). */
void emit_stride(struct emitter *m, uint32_t input, int axis);

#endif
