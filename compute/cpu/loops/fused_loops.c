/* The loops of fused.h, generated; compiled once per instruction set with ISA defined to its name,
 * like the other loops. */
#include "compute/cpu/loops/fused.h"

#define FIRST_ADD(a, b) (a) + (b)
#define FIRST_SUB(a, b) (a) - (b)
#define FIRST_MUL(a, b) (a) * (b)
#define FIRST_DIV(a, b) (a) / (b)
#define STEP_ADD(v, x)  (v) + (x)
#define STEP_SUB(v, x)  (v) - (x)
#define STEP_RSUB(v, x) (x) - (v)
#define STEP_MUL(v, x)  (v) * (x)

#define TWO(T, NAME, F, S)                                                                         \
    static void two_##NAME##_##F##_##S(void *out, const void *const *args, size_t n)               \
    {                                                                                              \
        T *o = out;                                                                                \
        const T *a = args[0], *b = args[1], *c = args[2];                                          \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            T v = FIRST_##F(a[i], b[i]);                                                           \
            o[i] = STEP_##S(v, c[i]);                                                              \
        }                                                                                          \
    }
#define THREE(T, NAME, F, S, U)                                                                    \
    static void three_##NAME##_##F##_##S##_##U(void *out, const void *const *args, size_t n)       \
    {                                                                                              \
        T *o = out;                                                                                \
        const T *a = args[0], *b = args[1], *c = args[2], *d = args[3];                            \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            T v = FIRST_##F(a[i], b[i]);                                                           \
            v = STEP_##S(v, c[i]);                                                                 \
            o[i] = STEP_##U(v, d[i]);                                                              \
        }                                                                                          \
    }
#define SET_TWO(T, NAME, F, S) t->two[NAME][FUSED_FIRST_##F][FUSED_##S] = two_##NAME##_##F##_##S;
#define SET_THREE(T, NAME, F, S, U)                                                                \
    t->three[NAME][FUSED_FIRST_##F][FUSED_##S][FUSED_##U] = three_##NAME##_##F##_##S##_##U;

#define STEPS3(X, T, NAME, F, S)                                                                   \
    X(T, NAME, F, S, ADD) X(T, NAME, F, S, SUB) X(T, NAME, F, S, RSUB) X(T, NAME, F, S, MUL)
#define STEPS2(X2, X3, T, NAME, F, S) X2(T, NAME, F, S) STEPS3(X3, T, NAME, F, S)
#define STEPS1(X2, X3, T, NAME, F)                                                                 \
    STEPS2(X2, X3, T, NAME, F, ADD)                                                                \
    STEPS2(X2, X3, T, NAME, F, SUB)                                                                \
    STEPS2(X2, X3, T, NAME, F, RSUB)                                                               \
    STEPS2(X2, X3, T, NAME, F, MUL)
#define ALL(X2, X3, T, NAME)                                                                       \
    STEPS1(X2, X3, T, NAME, ADD)                                                                   \
    STEPS1(X2, X3, T, NAME, SUB)                                                                   \
    STEPS1(X2, X3, T, NAME, MUL)                                                                   \
    STEPS1(X2, X3, T, NAME, DIV)

/* 0: float32, 1: float64 */
ALL(TWO, THREE, float, 0)
ALL(TWO, THREE, double, 1)

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
void PASTE(fused_fill_, ISA)(struct fused_table *t)
{
    ALL(SET_TWO, SET_THREE, float, 0)
    ALL(SET_TWO, SET_THREE, double, 1)
}
