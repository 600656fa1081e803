/* The meaning of every operation, defined once for every element type it exists for.
 *
 * Compiled as C (the loops of the CPU backend, the tests) and later by NVRTC, so it is
 * freestanding: its own typedefs, complex numbers as structs, its own half conversions. Pure
 * functions of values, no state, thread-safe.
 *
 * Names are systematic, so that loops and device text are generated from op.def and dtype.def:
 *   ar_<OP>_<T>(a[, b])       ar_ADD_F32, ar_ISNAN_C64: identifiers as in the two tables
 *   ar_cast_<FROM>_<TO>(x)    astype
 *   ar_philox(…), ar_uniform_F32 …   scalar_random.h
 * float16 and bfloat16 have casts and nextafter only: the rest is legalised to float32.
 *
 * A compilation that needs few types may define AR_SUBSET and then AR_USE_<T> for those types (I8 …
 * C128; BOOL, F32 and F64 are always included, and each type includes its casts), AR_USE_CMATH for
 * the complex elementary functions, and AR_USE_RANDOM for Philox: otherwise NVRTC would spend most
 * of its time parsing 1,200 unused functions.
 *
 * Meaning where C, NumPy and the Array API differ: integers wrap; // and % by zero are 0 and have
 * Python's signs, fmod C's; a shift count outside the width gives 0 (-1 for a negative >>); float
 * to integer truncates, saturates and maps NaN to 0; round is half to even; maximum and minimum
 * propagate NaN and treat -0 as less than +0; nothing here may be contracted (-ffp-contract=off,
 * --fmad=false). */
#ifndef ARRAYD_SCALAR_H
#define ARRAYD_SCALAR_H

#if !defined(AR_SUBSET)
#define AR_USE_I8
#define AR_USE_I16
#define AR_USE_I32
#define AR_USE_I64
#define AR_USE_U8
#define AR_USE_U16
#define AR_USE_U32
#define AR_USE_U64
#define AR_USE_F16
#define AR_USE_BF16
#define AR_USE_C64
#define AR_USE_C128
#define AR_USE_CMATH
#define AR_USE_RANDOM
#endif

#include "compute/kernels/scalar/scalar_types.h"

#include "compute/kernels/scalar/scalar_half.h"
#include "compute/kernels/scalar/scalar_int.h"

#include "compute/kernels/scalar/scalar_gamma.h"

/* The two float types share one text. */
#define AR_T     F32
#define AR_R     ar_f32
#define AR_UI    ar_u32
#define AR_WIDTH 32
#define AR_M(fn) fn##f
#include "compute/kernels/scalar/scalar_float.h"
#undef AR_T
#undef AR_R
#undef AR_UI
#undef AR_WIDTH
#undef AR_M
#define AR_T     F64
#define AR_R     ar_f64
#define AR_UI    ar_u64
#define AR_WIDTH 64
#define AR_M(fn) fn
#include "compute/kernels/scalar/scalar_float.h"
#undef AR_T
#undef AR_R
#undef AR_UI
#undef AR_WIDTH
#undef AR_M

#include "compute/kernels/scalar/scalar_complex.h"

#include "compute/kernels/scalar/scalar_cast.h"

#if defined(AR_USE_RANDOM)
#include "compute/kernels/scalar/scalar_random.h"
#endif

#endif
