/* The interpreter: kernels that run any elementwise IR kernel at once, as a program in their
 * parameters, while its own text is being compiled. The same bits, at first use microseconds
 * instead of the compiler's tenths of a second, and at full length a fraction of the speed.
 *
 * There are three machines, for elements of up to 4, 8 and 16 bytes; each is one text, compiled
 * once. A machine's registers lie in shared memory, a few neighbouring points of a thread in each;
 * every step of a program is done for all of these at once.
 *
 * Called by compute/gpu/cuda, and tests. Pure; arena memory. */
#ifndef ARRAYD_INTERP_H
#define ARRAYD_INTERP_H

#include "compute/gpu/text/emit.h"

enum machine { MACHINE_4, MACHINE_8, MACHINE_16, MACHINES };

/* The machine's text, to be compiled without contraction, and the shared memory that its programs
 * take at most (form->shared). NULL without memory. */
struct emitted *machine_emit(struct arena *arena, enum machine m)
    __attribute__((warn_unused_result));

/* The kernel, of this form (form_of's), as a machine's program: the launch and its parameters; it
 * has no text. A reduction's program leaves what is reduced in the scratch memory; *ret_rest then
 * reduces it, in the kernel's own form, so in the same order: a text that all such reductions share
 * (else NULL). NULL where it is none: a scan, several steps, contraction allowed, more than fits;
 * and without memory. */
struct emitted *interp_program(struct arena *arena, const struct ir_kernel *k, const struct form *f,
                               enum machine *ret, struct emitted **ret_rest)
    __attribute__((warn_unused_result));
/* Steps times points. */
int64_t interp_work(const struct emitted *program);

#endif
