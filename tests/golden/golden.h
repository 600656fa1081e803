/* Reader of the golden tables (golden.bin, made by make_golden.py) and the comparison with its
 * tolerances. Used by the loop tests and by the suite that runs on every backend.
 *
 * A struct golden owns everything its records point to. Read-only after loading; thread-safe then.
 */
#ifndef ARRAYD_TESTS_GOLDEN_H
#define ARRAYD_TESTS_GOLDEN_H

#include <stddef.h>

#include "compute/check/typed.h"
#include "compute/type/dtype.h"
#include "compute/type/op.h"

enum golden_kind { GOLDEN_OP, GOLDEN_CAST, GOLDEN_RANDOM };
enum golden_tolerance {
    GOLDEN_EXACT,  /* the same bits; any NaN is any NaN */
    GOLDEN_ULP,    /* `units` in the last place */
    GOLDEN_SCALED, /* `units` in the last place of the largest of result and operands */
    GOLDEN_COMPLEX /* each part within `units` in the last place of |result| */
};

struct golden_record {
    enum golden_kind kind;
    char text[160]; /* the record's line, for messages */
    enum op op;     /* GOLDEN_OP */
    struct random_params random;
    enum dtype from; /* of the operands */
    enum dtype to;   /* of the result */
    int n_args;
    const void *args[2]; /* GOLDEN_RANDOM: the element indices (int64) */
    size_t n;
    const void *expected;
    enum golden_tolerance tolerance;
    int units;
};

struct golden {
    struct golden_record *records;
    size_t n_records;
    struct golden_input *inputs;
    size_t n_inputs;
};

/* Loads the committed tables, or the file in ARRAYD_GOLDEN. Ends the process with a message when
 * they are missing or broken: no test means anything without them. */
struct golden *golden_load(void);
void golden_free(struct golden *g);

/* The first element of `got` (record->n of record->to) that is not as expected, or -1. `why` (m
 * bytes) gets got, expected and operands as text. */
long golden_compare(const struct golden_record *r, const void *got, char *why, size_t m);

/* Distance in units in the last place between two floats of a type; 0 for two NaNs, a huge number
 * for NaN against a number. */
double golden_ulps(enum dtype t, const void *a, const void *b);

#endif
