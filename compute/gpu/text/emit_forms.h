/* The forms whose text has a separate file; emit.c has the others. Private to compute/gpu/text. */
#ifndef ARRAYD_CUDA_EMIT_FORMS_H
#define ARRAYD_CUDA_EMIT_FORMS_H

#include "compute/gpu/text/emit_body.h"
#include "compute/type/reduce.h"

void emit_steps(struct emitter *m);
void emit_steps3d(struct emitter *m);
void emit_reduce(struct emitter *m);
void emit_fold(struct emitter *m);
void emit_scan(struct emitter *m);
void emit_window(struct emitter *m);

/* emit_steps.c, for the body of a step. */
bool emit_steps_place(const struct emitter *m); /* it uses a point's indices */
/* It asks whether a context's shift stays inside. */
bool emit_steps_asks(const struct emitter *m, uint32_t c);
/* The position tells that along some axis (form_steps_is_far). */
bool emit_steps_any_far(const struct emitter *m, uint32_t c);
/* What it tells: far<context>, a bit for each of the thread's elements e, of which the indices are
 * these texts. */
void emit_steps_far(struct emitter *m, const char *const *at);

/* emit_reduce.c: what a reduction is made of. */
struct emit_reduction {
    enum reduce_op reduce;
    enum dtype dtype; /* of the elements */
    double divisor;
    char suffix[16]; /* of its parameters: "", or a number where there are several */
    bool ascending;
};
/* ar_position(): an element's index in the reduced axes taken as one; 0 if unused. Returns whether
 * it only grows in the order in which the reduced points are visited. */
bool emit_position(struct emitter *m, bool wanted);
/* Its parameters and its header. */
void emit_reduction_params(struct emitter *m, const struct emit_reduction *r);
/* ar_state, ar_begin(), whose parameters are given, ar_take(), ar_merge(), ar_end(). `seeds`: a
 * line that says how many there are. */
void emit_reduction(struct emitter *m, const struct emit_reduction *r, const char *seeds,
                    const char *begin);

#endif
