/* The interpreter: kernels that run any elementwise IR kernel at once, as a program in their
 * parameters, while its own text is being compiled; and the elementwise part of reductions and
 * scans. The same bits, at first use microseconds instead of the compiler's tenths of a second, and
 * at full length a fraction of the speed.
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

/* The kernel, in this form (form_of's), as a machine's program: its launch and parameters; it has
 * no text. The program of a reduction or scan leaves its values, at most `most` bytes, in scratch
 * memory, and *ret_rest, launched after it, reduces or scans them in the kernel's own form, so in
 * the same order; all kernels of that form share its text. *ret_rest is NULL for other kernels.
 * Returns NULL without memory, and for what cannot be a program: several steps, a kernel that
 * allows contraction, one that needs more registers or steps than there are. */
struct emitted *interp_program(struct arena *arena, const struct ir_kernel *k, const struct form *f,
                               int64_t most, enum machine *ret, struct emitted **ret_rest)
    __attribute__((warn_unused_result));
/* Whether the program of a kernel in this form leaves its values for a second kernel. */
bool interp_has_rest(const struct form *f);
/* The texts of *ret_rest that are compiled beside the machines: of scans along rows that are not
 * very long, and of others; and of reductions along the fastest axis and along another. NULL
 * without memory. */
#define INTERP_SCANS      12
#define INTERP_REDUCTIONS 19
#define INTERP_RESTS      (2 * (INTERP_SCANS + INTERP_REDUCTIONS))
struct emitted *interp_rest(struct arena *arena, int number) __attribute__((warn_unused_result));
/* Steps times points. */
int64_t interp_work(const struct emitted *program);

#endif
