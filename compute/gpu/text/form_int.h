/* The analysis's inside, shared by form.c (axes, rows, tiles) and form_*.c. */
#ifndef ARRAYD_CUDA_FORM_INT_H
#define ARRAYD_CUDA_FORM_INT_H

#include "compute/gpu/text/form.h"

struct analysis {
    struct arena *arena;
    const struct ir_kernel *k;
    struct form *f;
    int alignment;
    int n;               /* axes left */
    int order[MAX_RANK]; /* the kernel's axes in the order of walking */
    uint32_t fixed;      /* the kernel's axes that may not be merged */
};

/* Chunks of `elements` along the fastest axis begin at multiples of their size, up to 16 bytes. */
bool form_input_aligned(const struct analysis *z, uint32_t input, int elements);
bool form_output_aligned(const struct analysis *z, int elements);

/* How many neighbours make a chunk: as many as fill 16 bytes of the smallest type that is moved by
 * vectors, as long as the largest stays small. 1 where vectors do not pay. `store`: the results
 * too. */
int form_chunk_elements(const struct analysis *z, bool store);

/* How each operand is read, once the number of elements of a chunk is known. */
void form_classify(struct analysis *z);

unsigned form_blocks(int64_t n, int64_t each); /* n ÷ each, rounded up */

/* form_reduce.c */
void form_make_reduce(struct analysis *z);

/* form_scan.c */
void form_make_scan(struct analysis *z);

/* Room for a form, with the loads listed; false without memory. */
bool form_begin(struct analysis *z);

/* form_steps.c, behind form_begin(). NULL where the form fits and is filled in, or why it does not,
 * "" without memory. */
const char *form_make_steps(struct analysis *z);

/* form_stencil.c: whether the form stencil fits; then it is filled in. */
bool form_try_stencil(struct analysis *z);

#endif
