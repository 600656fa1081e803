/* Functions of one or two doubles, or of one complex double, for literals: fold.c's other half.
 * Pure; thread-safe. */
#ifndef ARRAYD_FOLD_FUNC_H
#define ARRAYD_FOLD_FUNC_H

#include <complex.h>

#include "compute/op.h"

/* The operation must be one that computes in floats (rule FLOAT of op.def, divide aside). */
double fold_real(enum op op, double x);
double fold_real2(enum op op, double x, double y);
double complex fold_complex(enum op op, double complex z);

/* Without C's recovery of infinities out of NaN parts, as Python and NumPy have it; the quotient is
 * scaled (Smith 1962) so that it overflows only when the result does. */
double complex fold_cmul(double complex a, double complex b);
double complex fold_cdiv(double complex a, double complex b);

#endif
