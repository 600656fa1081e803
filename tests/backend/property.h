/* A random expression on its way: what property.c, property_world.c and
 * property_graph.c share. Test code. */
#ifndef ARRAYD_TESTS_PROPERTY_H
#define ARRAYD_TESTS_PROPERTY_H

#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"
#include "tests/backend/walk.h"

#define MAX_ARRAYS 3
#define BATCH      64 /* expressions */

/* One expression, submitted twice: into a new array, and into (a view of) one of its operands. */
struct world {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    uint64_t seed;
    struct array *arrays[MAX_ARRAYS]; /* views over the buffers below */
    struct array *whole[MAX_ARRAYS];
    int n;
    void *copies[MAX_ARRAYS]; /* contents before the evaluation */
    struct arena *arena;
    struct typed *t;
    int base_rank;
    int64_t base[MAX_RANK];
    struct walked want;
    struct array *ret;    /* of the first */
    int into;             /* operand the second wrote to, or -1 */
    struct download *pin; /* of that operand before, or NULL */
    struct view spread;   /* the result, seen in the operand's shape */
    bool failed;
};

uint64_t property_rng(void);

static inline int64_t below(int64_t n)
{
    return n <= 0 ? 0 : (int64_t)(property_rng() % (uint64_t)n);
}

/* The next numbers are taken from these bytes, two each, until there are no more. */
void property_tell(const uint8_t *bytes, size_t n);

/* Makes and submits the expression of a seed; `common` has engine, stream and account. */
void property_submit(struct world *w, const struct world *common, uint64_t seed);
/* Looks at the results and releases everything; whether all is well. */
bool property_finish(struct world *w);

/* w->t over the arrays: shapes, slices, shifts, reductions, … as they come. */
void property_graph(struct world *w);

#endif
