/* The table of loops and how the files that fill it are written. Private to compute/cpu/loops.
 *
 * Each loops_<group>.c is compiled once per instruction set with ISA defined to its name, and
 * exports one function, LOOPS_FILL(group), that enters its loops into a table. loops.c fills one
 * table when a loop is first requested; from then on it is constant. */
#ifndef ARRAYD_CPU_LOOPS_TABLE_H
#define ARRAYD_CPU_LOOPS_TABLE_H

#include "compute/cpu/loops/loops.h"

struct loop_table {
    loop_fn *op[OP_COUNT][DT_COUNT];
    loop_fn *cast[DT_COUNT][DT_COUNT];
    loop_fn *select[5];                                 /* by the logarithm of the element size */
    struct reduce_loops reduce[REDUCE_COUNT][DT_COUNT]; /* init NULL: not defined */
    struct arg_loops arg[2][DT_COUNT];            /* greatest, least; peak NULL: not defined */
    struct scan_loops scan[SCAN_COUNT][DT_COUNT]; /* init NULL: not defined */
    void (*random)(void *out, enum dtype t, const struct random_params *p, const int64_t *index,
                   size_t n);
    void (*iota)(int64_t *out, int64_t start, int64_t step, size_t n);
};

#define LOOPS_PASTE_(a, b, c, d) a##b##c##d
#define LOOPS_PASTE(a, b, c, d)  LOOPS_PASTE_(a, b, c, d)
#define LOOPS_FILL(group)        LOOPS_PASTE(loops_, group, _, ISA)

#define LOOPS_DECLARE(isa)                                                                         \
    void loops_small_##isa(struct loop_table *t);                                                  \
    void loops_int_##isa(struct loop_table *t);                                                    \
    void loops_float_##isa(struct loop_table *t);                                                  \
    void loops_math_##isa(struct loop_table *t);                                                   \
    void loops_complex_##isa(struct loop_table *t);                                                \
    void loops_cast_##isa(struct loop_table *t);                                                   \
    void loops_cast_int_##isa(struct loop_table *t);                                               \
    void loops_reduce_##isa(struct loop_table *t);                                                 \
    void loops_prod_##isa(struct loop_table *t);                                                   \
    void loops_arg_##isa(struct loop_table *t);                                                    \
    void loops_var_##isa(struct loop_table *t);                                                    \
    void loops_pair_##isa(struct loop_table *t);                                                   \
    void loops_scan_##isa(struct loop_table *t);                                                   \
    void loops_misc_##isa(struct loop_table *t);                                                   \
    void loops_random_##isa(struct loop_table *t);
LOOPS_DECLARE(baseline)
LOOPS_DECLARE(avx2)
LOOPS_DECLARE(avx512)

/* One loop over a scalar meaning. ivdep: `out` may be an argument (distance 0), which the compiler
 * would otherwise test for at run time and then refuse to vectorise. */
#define LOOP_UNARY(OP, T, R, A)                                                                    \
    static void OP##_##T(void *out, const void *const *args, size_t n)                             \
    {                                                                                              \
        R *o = out;                                                                                \
        const A *a = args[0];                                                                      \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = ar_##OP##_##T(a[i]);            \
    }
#define LOOP_BINARY(OP, T, R, A)                                                                   \
    static void OP##_##T(void *out, const void *const *args, size_t n)                             \
    {                                                                                              \
        R *o = out;                                                                                \
        const A *a = args[0], *b = args[1];                                                        \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) o[i] = ar_##OP##_##T(a[i], b[i]);      \
    }
#define LOOP_SET(OP, T) t->op[OP_##OP][DT_##T] = OP##_##T;

/* The loop of a row of op.def for type T, of C type A with parts P. */
#define LOOP_OF(id, nargs, result, T, A, P) LOOP_OF_##nargs(id, T, LOOP_RESULT_##result(A, P), A)
#define LOOP_OF_1                           LOOP_UNARY
#define LOOP_OF_2                           LOOP_BINARY
#define LOOP_RESULT_SAME(A, P)              A
#define LOOP_RESULT_REAL(A, P)              P
#define LOOP_RESULT_BOOL(A, P)              ar_bool
/* Where a column of kinds is empty: LOOPS_##f and SET_##f of each file. */
#define LOOPS__(id, nargs, result)
#define SET__(id)

#define REDUCE_SET(OP, fn, T, state, acc)                                                          \
    t->reduce[REDUCE_##OP][DT_##T] = (struct reduce_loops){                                        \
        .state_size = state,                                                                       \
        .init = fn##_##T##_init,                                                                   \
        .block = fn##_##T##_block,                                                                 \
        .merge = fn##_##T##_merge,                                                                 \
        .finish = fn##_##T##_finish,                                                               \
        .acc_size = acc,                                                                           \
        .acc_step = acc,                                                                           \
        .vinit = fn##_##T##_vinit,                                                                 \
        .vadd = fn##_##T##_vadd,                                                                   \
        .vmerge = fn##_##T##_vmerge,                                                               \
        .vfinish = fn##_##T##_vfinish,                                                             \
    };

#endif
