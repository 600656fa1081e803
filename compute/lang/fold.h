/* Arithmetic between literals: Python's for the operators, NumPy's for the functions.
 *
 * Called by the checker before a literal has met an array. Pure functions over values;
 * thread-safe. */
#ifndef ARRAYD_FOLD_H
#define ARRAYD_FOLD_H

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/op.h"

/* op over op_table[op].nargs literals. ERR_BAD_EXPRESSION for what Python raises an exception for
 * (a division by zero, an integer beyond 127 bits), ERR_DTYPE_MISMATCH where the operation is not
 * defined for the operands. No place is set. */
enum err_code fold_op(enum op op, const struct literal *args, struct literal *ret,
                      struct err *e) must_check;

/* Python's bool(x). */
bool fold_truth(const struct literal *l);

/* The nearest double of a literal that is not complex. */
double fold_double(const struct literal *l);

#endif
