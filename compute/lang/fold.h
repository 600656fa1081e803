/* Arithmetic between literals: Python's for the operators, NumPy's for the functions.
 *
 * Called by the checker before a literal has met an array. Pure functions over values;
 * thread-safe. */
#ifndef ARRAYD_FOLD_H
#define ARRAYD_FOLD_H

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/op.h"

/* Applies op to op_table[op].nargs literals. ERR_BAD_EXPRESSION where Python raises an exception (a
 * division by zero) and for an integer beyond 127 bits, ERR_DTYPE_MISMATCH if the operation is not
 * defined for the operands. Sets no place. */
enum err_code fold_op(enum op op, const struct literal *args, struct literal *ret,
                      struct err *e) must_check;

/* Python's bool(x). */
bool fold_truth(const struct literal *l);

/* The nearest double of a literal that is not complex. */
double fold_double(const struct literal *l);

#endif
