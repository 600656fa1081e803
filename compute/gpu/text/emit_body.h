/* The body of the text: the value of a point (emit_point.c), and a chunk's loads and stores
 * (emit_chunk.c). Private to compute/gpu/text. */
#ifndef ARRAYD_CUDA_EMIT_BODY_H
#define ARRAYD_CUDA_EMIT_BODY_H

#include "compute/gpu/text/emit_params.h"

/* How an index outside is brought back in: the AR_… of common.cuh. Modes that replace the value
 * (SELF, CONSTANT) read the nearest element, and choose afterwards. */
const char *emit_boundary(enum boundary_mode mode);
/* ar_ctx<c>() for every context: indices of the iteration space → the context's, and whether its
 * shift stayed inside. */
void emit_contexts(struct emitter *m);
/* The offset of "in<input>[…]" from the indices in the array called `index`, without the first
 * element. */
void emit_offset(struct emitter *m, uint32_t input, uint32_t ctx, const char *index);
/* The expression for an operand's element in ar_point. */
void emit_operand(struct emitter *m, uint32_t load);
/* The expression for a node's value from its arguments'. */
void emit_value(struct emitter *m, uint32_t node);
/* The node's name. */
void emit_name(struct emitter *m, uint32_t node);
/* emit_point.c: the expression for a cast, if half.cuh has a shorter one; else false. */
bool emit_half(struct emitter *m, uint32_t node);
/* The nodes up to number `last`, as one variable v<number> each. */
void emit_nodes(struct emitter *m, uint32_t last);
/* The beginning of a function that computes nodes at element e of a chunk. */
void emit_element(struct emitter *m);
/* The wanted nodes, as emit_nodes(). */
void emit_wanted(struct emitter *m, const bool *want);
/* ar_result: the output's type; for several outputs a struct of them, v0, v1, … */
void emit_result(struct emitter *m);
/* ar_result and ar_point(): the values of the outputs' nodes. */
void emit_point(struct emitter *m);

/* ar_operands, ar_fetch() and ar_put() (which stores a chunk's results) for the forms that process
 * chunks. */
void emit_operands(struct emitter *m);
void emit_fetch(struct emitter *m);
void emit_put(struct emitter *m);
/* ar_place(): sets the last three of a point's indices. */
void emit_place(struct emitter *m);

#endif
