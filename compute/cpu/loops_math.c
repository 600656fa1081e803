/* Loops of the elementary functions of float32 and float64.
 *
 * Three ways, by what the build and the instruction set have: vecmath.h's functions, vectorised by
 * the compiler, where there is FMA; SLEEF's vector functions; scalar.h's meaning (the C library).
 * The vector ways hold for arguments in [low, high] only, per function: SLEEF is wrong or takes
 * another path for all lanes at once beyond (found with the golden tables). A chunk is looked
 * through first; the rare arguments outside are computed by scalar.h, and the vector function gets
 * 1 in their place, so that no element's result depends on its neighbours. Tails go through a
 * padded copy for the same reason. */
#include <string.h>

#include "compute/cpu/loops_math.h"

#if defined(__FMA__)
#define OWN_UNARY(X)                                                                               \
    X(EXP, F32, -INFINITY, INFINITY)                                                               \
    X(SIN, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(COS, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(TAN, F32, -VM_TRIG_F32, VM_TRIG_F32)                                                         \
    X(LOG, F32, 0x1p-126f, 0x1.fffffep+127f)                                                       \
    X(SIGMOID, F32, -INFINITY, INFINITY)                                                           \
    X(EXP, F64, -INFINITY, INFINITY)                                                               \
    X(SIN, F64, -VM_TRIG_F64, VM_TRIG_F64)                                                         \
    X(COS, F64, -VM_TRIG_F64, VM_TRIG_F64)                                                         \
    X(TAN, F64, -VM_TRIG_F64, VM_TRIG_F64)                                                         \
    X(SIGMOID, F64, -INFINITY, INFINITY)
#define OWN(OP, T, low, high)                                                                      \
    static void block_##OP##_##T(REAL_##T *out, const REAL_##T *in, size_t n)                      \
    {                                                                                              \
        _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) out[i] = vm_##OP##_##T(in[i]);         \
    }                                                                                              \
    LOOP_CHUNKED(OP, T, low, high)
#include "compute/cpu/vecmath.h"
OWN_UNARY(OWN)
#define SLEEF_HOT(X)
#else
#define OWN_UNARY(X)
/* Without FMA these are SLEEF's too. sin and cos take other paths beyond 125 (float32), 15. */
#define SLEEF_HOT(X)                                                                               \
    X(EXP, F32, exp, u10, -INFINITY, INFINITY)                                                     \
    X(SIN, F32, sin, u10, -124, 124)                                                               \
    X(COS, F32, cos, u10, -124, 124)                                                               \
    X(TAN, F32, tan, u10, -124, 124)                                                               \
    X(LOG, F32, log, u10, -INFINITY, INFINITY)                                                     \
    X(EXP, F64, exp, u10, -INFINITY, INFINITY)                                                     \
    X(SIN, F64, sin, u10, -14.9, 14.9)                                                             \
    X(COS, F64, cos, u10, -14.9, 14.9)                                                             \
    X(TAN, F64, tan, u10, -14.9, 14.9)
#endif

#if defined(HAVE_SLEEF)
#define SLEEF_UNARY(X)                                                                             \
    SLEEF_HOT(X)                                                                                   \
    X(CBRT, F32, cbrt, u10, -INFINITY, INFINITY)                                                   \
    X(EXPM1, F32, expm1, u10, -INFINITY, INFINITY)                                                 \
    X(LOG1P, F32, log1p, u10, -INFINITY, 1e37f)                                                    \
    X(LOG2, F32, log2, u10, -INFINITY, INFINITY)                                                   \
    X(LOG10, F32, log10, u10, -INFINITY, INFINITY)                                                 \
    X(ASIN, F32, asin, u10, -INFINITY, INFINITY)                                                   \
    X(ACOS, F32, acos, u10, -INFINITY, INFINITY)                                                   \
    X(ATAN, F32, atan, u10, -INFINITY, INFINITY)                                                   \
    X(SINH, F32, sinh, u10, -88, 88)                                                               \
    X(COSH, F32, cosh, u10, -88, 88)                                                               \
    X(TANH, F32, tanh, u10, -INFINITY, INFINITY)                                                   \
    X(ASINH, F32, asinh, u10, -1e18f, 1e18f)                                                       \
    X(ACOSH, F32, acosh, u10, -INFINITY, 1e18f)                                                    \
    X(ATANH, F32, atanh, u10, -INFINITY, INFINITY)                                                 \
    X(ERF, F32, erf, u10, -INFINITY, INFINITY)                                                     \
    X(GAMMA, F32, tgamma, u10, -30, INFINITY)                                                      \
    X(LGAMMA, F32, lgamma, u10, 0, 1e30f)                                                          \
    X(CBRT, F64, cbrt, u10, -INFINITY, INFINITY)                                                   \
    X(EXPM1, F64, expm1, u10, -INFINITY, INFINITY)                                                 \
    X(LOG, F64, log, u10, -INFINITY, INFINITY)                                                     \
    X(LOG1P, F64, log1p, u10, -INFINITY, 1e306)                                                    \
    X(LOG2, F64, log2, u10, -INFINITY, INFINITY)                                                   \
    X(LOG10, F64, log10, u10, -INFINITY, INFINITY)                                                 \
    X(ASIN, F64, asin, u10, -INFINITY, INFINITY)                                                   \
    X(ACOS, F64, acos, u10, -INFINITY, INFINITY)                                                   \
    X(ATAN, F64, atan, u10, -INFINITY, INFINITY)                                                   \
    X(SINH, F64, sinh, u10, -709, 709)                                                             \
    X(COSH, F64, cosh, u10, -709, 709)                                                             \
    X(TANH, F64, tanh, u10, -INFINITY, INFINITY)                                                   \
    X(ASINH, F64, asinh, u10, -1e153, 1e153)                                                       \
    X(ACOSH, F64, acosh, u10, -INFINITY, 1e153)                                                    \
    X(ATANH, F64, atanh, u10, -INFINITY, INFINITY)                                                 \
    X(ERF, F64, erf, u10, -INFINITY, INFINITY)                                                     \
    X(GAMMA, F64, tgamma, u10, -150, INFINITY)                                                     \
    X(LGAMMA, F64, lgamma, u10, 0, 1e300)
/* both arguments in [low, high] */
#define SLEEF_BINARY(X)                                                                            \
    X(POW, F32, pow, u10, -INFINITY, INFINITY)                                                     \
    X(ATAN2, F32, atan2, u10, -INFINITY, INFINITY)                                                 \
    X(POW, F64, pow, u10, -INFINITY, INFINITY)                                                     \
    X(ATAN2, F64, atan2, u10, -INFINITY, INFINITY)                                                 \
    X(HYPOT, F64, hypot, u05, -INFINITY, INFINITY)
SLEEF_UNARY(SLEEF_LOOP)
SLEEF_BINARY(SLEEF_LOOP2)
#else
#define SLEEF_UNARY(X)
#define SLEEF_BINARY(X)
#endif

/* What has no vector form is a loop over scalar.h. The table is filled with these first. */
#define SCALAR_UNARY(X, T, A)                                                                      \
    X(CBRT, T, A, A)                                                                               \
    X(EXP, T, A, A)                                                                                \
    X(EXPM1, T, A, A)                                                                              \
    X(LOG, T, A, A)                                                                                \
    X(LOG1P, T, A, A)                                                                              \
    X(LOG2, T, A, A)                                                                               \
    X(LOG10, T, A, A)                                                                              \
    X(SIN, T, A, A)                                                                                \
    X(COS, T, A, A)                                                                                \
    X(TAN, T, A, A)                                                                                \
    X(ASIN, T, A, A)                                                                               \
    X(ACOS, T, A, A)                                                                               \
    X(ATAN, T, A, A)                                                                               \
    X(SINH, T, A, A)                                                                               \
    X(COSH, T, A, A)                                                                               \
    X(TANH, T, A, A)                                                                               \
    X(ASINH, T, A, A)                                                                              \
    X(ACOSH, T, A, A)                                                                              \
    X(ATANH, T, A, A)                                                                              \
    X(SIGMOID, T, A, A)                                                                            \
    X(ERF, T, A, A)                                                                                \
    X(GAMMA, T, A, A)                                                                              \
    X(LGAMMA, T, A, A)
#define SCALAR_BINARY(X, T, A)                                                                     \
    X(FLOOR_DIVIDE, T, A, A)                                                                       \
    X(REMAINDER, T, A, A)                                                                          \
    X(FMOD, T, A, A)                                                                               \
    X(POW, T, A, A)                                                                                \
    X(ATAN2, T, A, A)                                                                              \
    X(HYPOT, T, A, A)                                                                              \
    X(LOGADDEXP, T, A, A)
SCALAR_UNARY(LOOP_UNARY, F32, ar_f32)
SCALAR_BINARY(LOOP_BINARY, F32, ar_f32)
SCALAR_UNARY(LOOP_UNARY, F64, ar_f64)
SCALAR_BINARY(LOOP_BINARY, F64, ar_f64)

void LOOPS_FILL(math)(struct loop_table *t)
{
    SCALAR_UNARY(LOOP_SET, F32, )
    SCALAR_BINARY(LOOP_SET, F32, )
    SCALAR_UNARY(LOOP_SET, F64, )
    SCALAR_BINARY(LOOP_SET, F64, )
#define SET_CHUNKED(OP, T, ...) t->op[OP_##OP][DT_##T] = chunked_##OP##_##T;
    OWN_UNARY(SET_CHUNKED)
    SLEEF_UNARY(SET_CHUNKED)
    SLEEF_BINARY(SET_CHUNKED)
}
