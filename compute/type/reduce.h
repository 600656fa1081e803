/* The table of reductions (reduce.def): how elements become one. Called by the checker, the IR,
 * both backends and tests. Constant data; thread-safe. */
#ifndef ARRAYD_REDUCE_H
#define ARRAYD_REDUCE_H

#include <stdbool.h>

#include "compute/type/dtype.h"

enum reduce_op {
#define REDUCE(id, ...) REDUCE_##id,
#include "compute/type/reduce.def"
    REDUCE_COUNT
};

/* The number that a reduction takes besides its elements. */
enum reduce_number { NUMBER_NONE, NUMBER_DIVISOR, NUMBER_CORRECTION };
enum reduce_identity {
    IDENTITY_ZERO,
    IDENTITY_ONE,
    IDENTITY_NAN,
    IDENTITY_LEAST,
    IDENTITY_GREATEST,
    IDENTITY_NONE
};
enum reduce_result { REDUCE_ELEMENT, REDUCE_INDEX };
enum reduce_composed { COMPOSED_NEVER, COMPOSED_MEAN, COMPOSED_NANMEAN, COMPOSED_VAR };

enum scan_op {
#define SCAN(id, ...) SCAN_##id,
#include "compute/type/reduce.def"
    SCAN_COUNT
};

struct reduce_info {
    const char *id, *name; /* "SUM", "sum" */
    unsigned char kinds;   /* KINDS_* (op.h), KINDS_W */
    enum reduce_identity identity;
    enum reduce_result result;
    enum reduce_number number;
    bool rounded;          /* float results depend on the order of the elements */
    bool pair;             /* made from kernels/scalar/reduce.h */
    enum reduce_op states; /* whose STATE rows it uses: its own or another's */
    enum reduce_composed composed;
};
extern const struct reduce_info reduce_table[REDUCE_COUNT];

/* How a generated kernel reduces elements of one dtype: texts as reduce.def describes them. */
struct reduce_state {
    enum reduce_op op;
    int dtypes; /* a dtype, or -1 - kinds */
    const char *type;
    int size; /* upper bound in bytes */
    const char *header;
    int seeds;
    const char *begin, *step, *merge, *finish;
};

/* Whether the reduction is defined for elements of t. */
bool reduce_defined(enum reduce_op op, enum dtype t);
/* The reduction must be defined for t. */
const struct reduce_state *reduce_state(enum reduce_op op, enum dtype t);
/* The scan that corresponds to a reduction; SCAN_COUNT if no scan does. */
enum scan_op reduce_scan(enum reduce_op op);
/* Whether there is one, for elements of t. */
bool scan_defined(enum reduce_op op, enum dtype t);
/* The name of that scan, which must exist. */
const char *scan_name(enum reduce_op op);
/* The result for no elements; the reduction must have one. */
struct scalar reduce_identity(enum reduce_op op, enum dtype t);

static inline const char *reduce_name(enum reduce_op op)
{
    return reduce_table[op].name;
}

static inline bool reduce_is_arg(enum reduce_op op)
{
    return reduce_table[op].result == REDUCE_INDEX;
}

/* Whether results of elements of t depend on the order of these. */
static inline bool reduce_rounds(enum reduce_op op, enum dtype t)
{
    return reduce_table[op].rounded && !dtype_is_integer(t);
}

/* Whether the reduction takes a number. */
static inline bool reduce_divides(enum reduce_op op)
{
    return reduce_table[op].number != NUMBER_NONE;
}

#endif
