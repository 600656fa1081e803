/* Reductions that are a PAIR in reduce.def: how an element is taken in, how two states become one.
 *
 * Of each: struct ar_<ID>, the state, four doubles at most; ar_<ID>_begin(), that of no element;
 * ar_<ID>_take(s, x), an element taken in, without branches (the CPU's loops are vectorised);
 * ar_<ID>_merge(a, b); ar_<ID>_end(s, number), the result, `number` as reduce.def says. Merging
 * with a state of no element changes nothing. float32 is taken in as float64 and rounded at the
 * end.
 *
 * Included by the CPU backend's loops (C) and by generated kernels (CUDA C++). Pure. */
#ifndef ARRAYD_REDUCE_PAIRS_H
#define ARRAYD_REDUCE_PAIRS_H

#include "compute/kernels/scalar/scalar.h"

#endif
