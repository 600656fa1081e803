/* The forms whose text has a separate file; emit.c has the others. Private to compute/gpu/text. */
#ifndef ARRAYD_CUDA_EMIT_FORMS_H
#define ARRAYD_CUDA_EMIT_FORMS_H

#include "compute/gpu/text/emit_body.h"

void emit_steps(struct emitter *m);
void emit_reduce(struct emitter *m);
void emit_scan(struct emitter *m);
void emit_window(struct emitter *m);

#endif
