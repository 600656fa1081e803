/* A plain tree walk over typed graphs: every node computed to a full array, element by element,
 * with none of the compiler's ideas. The reference that kernels are compared with. Knows bool,
 * int64 and float64. Test code: it asserts instead of returning errors; arrays are malloc'ed and
 * released by walk_free. */
#ifndef ARRAYD_TESTS_WALK_H
#define ARRAYD_TESTS_WALK_H

#include "compute/check/typed.h"

struct walked {
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
    int64_t n;
    union value *v;
};

/* Memory behind typed input i: base address of its buffer. */
typedef const void *walk_memory_fn(void *user, uint32_t input);

/* The value of node i in a scope (the root's: its own shape). */
struct walked walk(const struct typed *t, uint32_t i, int scope_rank, const int64_t *scope,
                   walk_memory_fn *memory, void *user);
void walk_free(struct walked *w);

#endif
