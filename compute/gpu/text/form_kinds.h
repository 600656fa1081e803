/* The forms that have separate files; form.c has the others and chooses. Private to
 * compute/gpu/text. */
#ifndef ARRAYD_CUDA_FORM_KINDS_H
#define ARRAYD_CUDA_FORM_KINDS_H

#include "compute/gpu/text/form_operands.h"

/* form_reduce.c */
void form_make_reduce(struct analysis *z);
/* Makes the form of several reductions in one kernel go over the points as those of its parts do,
 * one by one. NULL, or why it cannot. */
const char *form_adapt_siblings(const struct ir_kernel *k, struct form *f,
                                const struct form *const *parts, uint32_t n);
/* How many threads share a row of so many chunks. */
int form_row_lanes(int64_t chunks);

#define FORM_ROW_TOO_LONG "a row is too long for a block's registers"
/* form_fold.c: for chunks of f->elements. NULL if the form is filled in, else why it does not fit.
 */
const char *form_make_fold(struct analysis *z);

/* form.c: puts the axes in order and merges them. */
void form_arrange(struct analysis *z);

/* form_scan.c */
void form_make_scan(struct analysis *z);

/* form_steps.c, after form_begin(). NULL if the form fits and is filled in, else why it does not,
 * "" without memory. */
const char *form_make_steps(struct analysis *z);

/* form_window.c: whether the form window fits; if so it is filled in. */
bool form_try_window(struct analysis *z);

/* form_stencil.c: whether the form stencil fits; if so it is filled in. */
bool form_try_stencil(struct analysis *z);

#endif
