/* A kernel under analysis, and what every form needs to know of its operands: form_operands.c, the
 * base of form.c and form_*.c. Private to compute/gpu/text. Arena memory. */
#ifndef ARRAYD_CUDA_FORM_OPERANDS_H
#define ARRAYD_CUDA_FORM_OPERANDS_H

#include "compute/gpu/text/form.h"

#define VECTOR_BYTES 16 /* of the widest access */

struct analysis {
    struct arena *arena;
    const struct ir_kernel *k;
    struct form *f;
    int alignment;
    int64_t shared;      /* bytes of shared memory that a block may have */
    int n;               /* remaining axes */
    int order[MAX_RANK]; /* the kernel's axes in traversal order */
    uint32_t fixed;      /* the kernel's axes that must not be merged */
    bool failed;         /* for lack of memory */
};

/* Chunks of `elements` along the fastest axis begin at multiples of their size, up to 16 bytes. */
bool form_input_aligned(const struct analysis *z, uint32_t input, int elements);
bool form_output_aligned(const struct analysis *z, int elements);

/* How many neighbours make a chunk: as many as fill 16 bytes of the smallest type moved by vectors,
 * as long as the largest stays small. 1 if vectors do not pay. `store`: counting the results. */
int form_chunk_elements(const struct analysis *z, bool store);

/* Sets how each operand is read, once a chunk's number of elements is known. */
void form_classify(struct analysis *z);

/* Allocates the form and lists the loads; false without memory. */
bool form_begin(struct analysis *z);

unsigned form_blocks(int64_t n, int64_t each); /* n ÷ each, rounded up */

#endif
