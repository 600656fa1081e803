/* The emitter's inside: emit.c (parameters, operands, forms) and emit_point.c (the straight-line
 * body). Arena memory; `text` and `fields` are builders that fail stickily. */
#ifndef ARRAYD_CUDA_EMIT_INT_H
#define ARRAYD_CUDA_EMIT_INT_H

#include "compute/base/strb.h"
#include "compute/gpu/text/emit.h"

struct emitter {
    struct arena *arena;
    const struct ir_kernel *k;
    const struct form *f;
    struct emitted *out;
    struct strb types;        /* what the parameters' types need */
    struct strb fields, body; /* of ar_params; everything behind it */
    struct strb values;       /* bytes of the parameters */
    uint32_t cap_addresses;
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
void emit_divisors(struct emitter *m); /* div[k] */
/* ar_operands, ar_fetch() and ar_put() (a chunk's results to their places) of the forms that walk
 * chunks. */
void emit_operands(struct emitter *m);
void emit_fetch(struct emitter *m);
void emit_put(struct emitter *m);

/* How far apart an operand's elements along a merged axis (< 0: there is none) are. */
void emit_stride(struct emitter *m, uint32_t input, int axis);

/* emit_steps.c */
void emit_steps(struct emitter *m);
void emit_steps_operand(struct emitter *m, uint32_t load); /* its element in the body */

/* emit_reduce.c */
void emit_reduce(struct emitter *m);
/* The function `name`: a number over some axes → indices along them. */
void emit_unravel(struct emitter *m, const char *name, uint32_t axes);

/* emit_scan.c */
void emit_scan(struct emitter *m);

/* emit_point.c */

/* How an address outside is brought back: the AR_… of common.cuh. Modes that replace the value
 * (SELF, CONSTANT) read the nearest element, and the choice is made afterwards. */
const char *emit_boundary(enum boundary_mode mode);
/* ar_ctx<c>() for every context: indices of the iteration space → the context's, and whether its
 * shift stayed inside. */
void emit_contexts(struct emitter *m);
/* "in<input>[…]"'s offset from the indices in the array called `index`, without the first element.
 */
void emit_offset(struct emitter *m, uint32_t input, uint32_t ctx, const char *index);
/* The text of an operand's element in ar_point. */
void emit_operand(struct emitter *m, uint32_t load);
/* The nodes up to number `last`, a variable v<number> each. */
void emit_nodes(struct emitter *m, uint32_t last);
/* ar_point(): the value of the output's node; of several a struct of them, v0, v1, … */
void emit_point(struct emitter *m);

#endif
