/* The inner loops of the CPU backend: one operation over one block of contiguous elements.
 *
 * Generated from op.def and dtype.def out of kernels/scalar/scalar.h's meanings, compiled once per
 * instruction set (baseline, AVX2, AVX-512) and chosen when the process starts. Called by
 * cpu/interp. Pure functions, thread-safe.
 *
 * Contract of every loop: n ≥ 0 elements (any number); natural alignment is enough; `out` may be
 * exactly one of the arguments but must not overlap one otherwise. Element i of the result depends
 * on the i-th elements only, with the same bits wherever in the block it stands (no other algorithm
 * for the tail). Reading or writing beyond n is forbidden. */
#ifndef ARRAYD_CPU_LOOPS_H
#define ARRAYD_CPU_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "compute/check/typed.h"
#include "compute/type/dtype.h"
#include "compute/type/op.h"

typedef void loop_fn(void *out, const void *const *args, size_t n);

/* Result type op_result_dtype(op, t). NULL where op_defined(op, t) is false, and for float16 and
 * bfloat16 (legalised away). */
loop_fn *loop_op(enum op op, enum dtype t);

/* astype from one type to another, as scalar_cast defines it; args[0] only. Never NULL. */
loop_fn *loop_cast(enum dtype from, enum dtype to);

/* out = args[0] (bool bytes) ? args[1] : args[2], by element size (1, 2, 4, 8, 16). */
loop_fn *loop_select(size_t itemsize);

/* Fills n elements with one value. */
void loop_fill(void *out, const union value *v, size_t itemsize, size_t n);

/* Strided copies between memory and block; strides in bytes, may be 0 or negative. */
void loop_gather(void *out, const void *in, int64_t stride, size_t itemsize, size_t n);
/* out[i] = row[at[i]], at[i] clamped to the row's `length` ≥ 1 elements. */
void loop_take(void *out, const void *row, int64_t length, const int64_t *at, size_t itemsize,
               size_t n);
void loop_scatter(void *out, int64_t stride, const void *in, size_t itemsize, size_t n);

/* int64: out[i] = start + step·i. */
void loop_iota(int64_t *out, int64_t start, int64_t step, size_t n);

/* Philox4x32-10 by element index (api.md section 8, "Random"); t is the result's dtype: float32 or
 * float64 for UNIFORM and NORMAL, int64 or uint64 for INTEGERS. */
void loop_random(void *out, enum dtype t, const struct random_params *p, const int64_t *index,
                 size_t n);

/* A reduction of elements of one type. Two ways to use it, both deterministic:
 *  - state: init, then block() over consecutive runs, merge() of states in a fixed order, finish();
 *  - vector: an accumulator of `stride` lanes (acc_size bytes each): vinit, vadd one row at a time,
 *    vmerge, vfinish; the last three also on n lanes from lane l on, at acc + l*acc_step. Of the
 *    lanes given to one vadd, none has taken in more rows than the one before it. The caller bounds
 *    the rows of a vadd chain (512) and merges pairwise beyond that.
 * Sums of float32 accumulate in float64, of complex64 in complex128, of float64 and complex128 with
 * compensation or pairwise, and are divided by `divisor` before they are rounded (1 for a SUM; of
 * the other operations only VAR uses it); integers wrap; ANY and ALL take bool. MIN and MAX
 * propagate NaN; a state that has taken in nothing is the identity (±inf, the integer limits) and
 * does not affect a merge. */
struct reduce_loops {
    size_t state_size; /* ≤ 64 */
    void (*init)(void *state);
    void (*block)(void *state, const void *in, size_t n);
    void (*merge)(void *into, const void *from);
    void (*finish)(const void *state, void *out, double divisor);
    size_t acc_size; /* ≤ 32 */
    size_t acc_step; /* from one lane to the next */
    void (*vinit)(void *acc, size_t stride);
    void (*vadd)(void *acc, const void *in, size_t n, size_t stride);
    void (*vmerge)(void *into, const void *from, size_t n, size_t stride);
    void (*vfinish)(void *out, const void *acc, size_t n, size_t stride, double divisor);
};

/* NULL where the reduction is not defined (min of complex, any of non-bool, halves). */
const struct reduce_loops *loop_reduce(enum reduce_op op, enum dtype t);

/* argmax and argmin, over ranks (kernels/scalar/rank.h). A state that has taken in nothing holds
 * the lowest rank at INT64_MAX. Lanes: `ranks` have 4 bytes for elements of up to 4, else 8. */
struct arg_loops {
    int64_t (*peak)(const void *in, size_t n); /* the greatest rank of n ≥ 1 elements */
    size_t (*find)(const void *in, size_t n, int64_t rank); /* the first of that rank, or n */
    void (*init)(void *ranks, int64_t *at, size_t n);
    /* takes in a row of elements, all with the same index */
    void (*lanes)(void *ranks, int64_t *at, const void *in, size_t n, int64_t index);
    void (*merge)(void *ranks, int64_t *at, const void *more_ranks, const int64_t *more_at,
                  size_t n);
};

/* NULL where the reduction is not defined (complex, halves). op: REDUCE_ARGMAX, REDUCE_ARGMIN. */
const struct arg_loops *loop_arg(enum reduce_op op, enum dtype t);

/* Running sums or products of `lanes` lanes side by side, over `rows` rows of that many elements. A
 * state covers `stride` lanes, state_size bytes each; functions that take in elements may be given
 * some of its lanes, beginning at lane l with state + l numbers. */
struct scan_loops {
    size_t state_size; /* ≤ 32 */
    void (*init)(void *state, size_t stride);
    void (*add)(void *state, size_t stride, const void *in, size_t lanes, size_t rows);
    /* like add, and writes each element's result to `out` (which may not be `in`) */
    void (*scan)(void *state, size_t stride, void *out, const void *in, size_t lanes, size_t rows);
    void (*merge)(void *into, const void *from, size_t stride);
};

/* That reduction's scan; NULL where not defined. float32 and complex64 run in double precision,
 * sums of float64 and complex128 keep the error of their additions; integers wrap. */
const struct scan_loops *loop_scan(enum reduce_op op, enum dtype t);

/* "baseline", "avx2" or "avx512". ARRAYD_CPU_ISA in the environment may lower it (tests). */
const char *loop_isa(void);

#endif
