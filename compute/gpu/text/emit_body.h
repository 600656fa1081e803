/* What the text does: the value of a point (emit_point.c), and a chunk's way there and back
 * (emit_chunk.c). Private to compute/gpu/text. */
#ifndef ARRAYD_CUDA_EMIT_BODY_H
#define ARRAYD_CUDA_EMIT_BODY_H

#include "compute/gpu/text/emit_params.h"

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

/* ar_operands, ar_fetch() and ar_put() (a chunk's results to their places) of the forms that walk
 * chunks. */
void emit_operands(struct emitter *m);
void emit_fetch(struct emitter *m);
void emit_put(struct emitter *m);

#endif
