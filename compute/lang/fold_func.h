/* Functions of one or two doubles, or of one complex double, for literals: fold.c's other half.
 * Pure; thread-safe. */
#ifndef ARRAYD_FOLD_FUNC_H
#define ARRAYD_FOLD_FUNC_H

#include <complex.h>

#include "compute/type/op.h"

#ifndef CMPLX /* clang with glibc's headers */
#define CMPLX(re, im) __builtin_complex((double)(re), (double)(im))
#endif

/* The operation must be defined for its operands (op.def); of a complex number, with a complex
 * result. */
double fold_real(enum op op, double x);
double fold_real2(enum op op, double x, double y);
double complex fold_complex(enum op op, double complex z);

/* As for arrays: no infinities recovered from NaN parts, and a quotient overflows only when the
 * result does. */
double complex fold_cmul(double complex a, double complex b);
double complex fold_cdiv(double complex a, double complex b);

#endif
