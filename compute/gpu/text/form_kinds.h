/* The forms that have separate files; form.c has the others and chooses. Private to
 * compute/gpu/text. */
#ifndef ARRAYD_CUDA_FORM_KINDS_H
#define ARRAYD_CUDA_FORM_KINDS_H

#include "compute/gpu/text/form_operands.h"

/* form_reduce.c */
void form_make_reduce(struct analysis *z);

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
