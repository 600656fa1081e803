/* Reductions whose loops are made from the functions of kernels/scalar/reduce.h (a PAIR in
 * reduce.def), so that a new one needs no loops of its own.
 *
 * A state is a few doubles, and lanes of states are stored in planes: all first numbers, then all
 * second ones. The compiler vectorises that as long as taking in an element has no branch. A run of
 * one state goes through a fixed number of lanes that are merged as a tree, so the result is the
 * same on every instruction set. */
#include "compute/cpu/loops/loops_table.h"
#if defined(__FMA__)
#include "compute/cpu/loops/vecmath.h"
#define ar_EXP_F64 vm_EXP_F64 /* vectorised; the C library's is not */
#endif
#include "compute/kernels/scalar/reduce.h"

enum { LANES = 32, FEW = 4 };

#define PLANES(ID) (sizeof(struct ar_##ID) / sizeof(double))
#define STATES(ID)                                                                                 \
    union ID {                                                                                     \
        struct ar_##ID s;                                                                          \
        double v[PLANES(ID)];                                                                      \
    };                                                                                             \
    static inline                                                                                  \
        __attribute__((always_inline)) struct ar_##ID ID##_get(const double *acc, size_t stride)   \
    {                                                                                              \
        union ID u; /* a memcpy of 16 bytes would become one load, and prevent vectors */          \
        for (size_t k = 0; k < PLANES(ID); k++)                                                    \
            u.v[k] = acc[k * stride];                                                              \
        return u.s;                                                                                \
    }                                                                                              \
    static inline                                                                                  \
        __attribute__((always_inline)) void ID##_put(double *acc, size_t stride, struct ar_##ID s) \
    {                                                                                              \
        const union ID u = {s};                                                                    \
        for (size_t k = 0; k < PLANES(ID); k++)                                                    \
            acc[k * stride] = u.v[k];                                                              \
    }                                                                                              \
    static void ID##_vinit(void *acc, size_t n)                                                    \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            ID##_put((double *)acc + i, n, ar_##ID##_begin());                                     \
    }                                                                                              \
    static void ID##_init(void *state)                                                             \
    {                                                                                              \
        ID##_vinit(state, 1);                                                                      \
    }                                                                                              \
    static void ID##_vmerge(void *into, const void *from, size_t n, size_t stride)                 \
    {                                                                                              \
        double *a = into;                                                                          \
        const double *b = from;                                                                    \
        for (size_t i = 0; i < n; i++)                                                             \
            ID##_put(a + i, stride,                                                                \
                     ar_##ID##_merge(ID##_get(a + i, stride), ID##_get(b + i, stride)));           \
    }                                                                                              \
    static void ID##_merge(void *into, const void *from)                                           \
    {                                                                                              \
        ID##_vmerge(into, from, 1, 1);                                                             \
    }
#define LOOPS(ID, T, R)                                                                            \
    static void ID##_##T##_vadd(void *acc, const void *in, size_t n, size_t stride)                \
    {                                                                                              \
        double *a = acc;                                                                           \
        const R *x = in;                                                                           \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
            ID##_put(a + i, stride, ar_##ID##_take(ID##_get(a + i, stride), (double)x[i]));        \
    }                                                                                              \
    static inline __attribute__((always_inline)) void ID##_##T##_lanes(void *state, const R *x,    \
                                                                       size_t n, const size_t w)   \
    {                                                                                              \
        double lanes[PLANES(ID) * LANES];                                                          \
        ID##_vinit(lanes, w);                                                                      \
        for (; n >= w; x += w, n -= w)                                                             \
            _Pragma("GCC ivdep") for (size_t i = 0; i < w; i++)                                    \
                ID##_put(lanes + i, w, ar_##ID##_take(ID##_get(lanes + i, w), (double)x[i]));      \
        for (size_t i = 0; i < n; i++)                                                             \
            ID##_put(lanes + i, w, ar_##ID##_take(ID##_get(lanes + i, w), (double)x[i]));          \
        for (size_t half = w / 2; half > 0; half /= 2)                                             \
            ID##_vmerge(lanes, lanes + half, half, w);                                             \
        ID##_put(state, 1, ar_##ID##_merge(ID##_get(state, 1), ID##_get(lanes, w)));               \
    }                                                                                              \
    static void ID##_##T##_block(void *state, const void *in, size_t n)                            \
    {                                                                                              \
        if (n < 4 * LANES)                                                                         \
            ID##_##T##_lanes(state, in, n, FEW);                                                   \
        else                                                                                       \
            ID##_##T##_lanes(state, in, n, LANES);                                                 \
    }                                                                                              \
    static void ID##_##T##_vfinish(void *out, const void *acc, size_t n, size_t stride,            \
                                   double number)                                                  \
    {                                                                                              \
        R *o = out;                                                                                \
        for (size_t i = 0; i < n; i++)                                                             \
            o[i] = (R)ar_##ID##_end(ID##_get((const double *)acc + i, stride), number);            \
    }                                                                                              \
    static void ID##_##T##_finish(const void *state, void *out, double number)                     \
    {                                                                                              \
        ID##_##T##_vfinish(out, state, 1, 1, number);                                              \
    }

#define OWN(ID)
#define PAIR(ID)                                                                                   \
    STATES(ID)                                                                                     \
    LOOPS(ID, F32, ar_f32) LOOPS(ID, F64, ar_f64)
#define REDUCE(id, name, b, i, f, c, identity, result, number, rounding, made, states, ...) made(id)
#include "compute/type/reduce.def"

#define SET(ID, T)                                                                                 \
    t->reduce[REDUCE_##ID][DT_##T] = (struct reduce_loops){                                        \
        .state_size = sizeof(struct ar_##ID),                                                      \
        .init = ID##_init,                                                                         \
        .block = ID##_##T##_block,                                                                 \
        .merge = ID##_merge,                                                                       \
        .finish = ID##_##T##_finish,                                                               \
        .acc_size = sizeof(struct ar_##ID),                                                        \
        .acc_step = sizeof(double),                                                                \
        .vinit = ID##_vinit,                                                                       \
        .vadd = ID##_##T##_vadd,                                                                   \
        .vmerge = ID##_vmerge,                                                                     \
        .vfinish = ID##_##T##_vfinish,                                                             \
    };
#undef PAIR
#define PAIR(ID) SET(ID, F32) SET(ID, F64)

void LOOPS_FILL(pair)(struct loop_table *t)
{
    (void)t; /* unused where there are none */
#define REDUCE(id, name, b, i, f, c, identity, result, number, rounding, made, states, ...) made(id)
#include "compute/type/reduce.def"
}
