/* Elementary functions written so that a loop over them vectorises: straight-line, selects instead
 * of branches, fused multiply-add. Used by loops_math.c where the instruction set has FMA.
 *
 * They are the functions that expressions use most, at a third of the cost of a library call per
 * vector, and take the same path for any mixture of arguments in a block. Within 2 ulp (tan 3.5) in
 * the ranges stated (measured: all float32 values; 10^8 float64 values); outside them the caller
 * must use another function.
 *
 * Methods are the textbook ones (Cody and Waite, "Software manual for the elementary functions"):
 * reduction by a constant split into parts so that products with small integers are exact, then a
 * minimax polynomial (Remez, computed for these intervals). Rounding to an integer is done by
 * adding 1.5·2^(p-1), which also leaves the integer in the low bits. */
#ifndef ARRAYD_CPU_VECMATH_H
#define ARRAYD_CPU_VECMATH_H

#include "compute/kernels/scalar/scalar.h"

#define FMAF(a, b, c) __builtin_fmaf(a, b, c)
#define FMA(a, b, c)  __builtin_fma(a, b, c)
#define ROUNDER_F32   0x1.8p+23f
#define ROUNDER_F64   0x1.8p+52

/* 2^k for a k in the normal range */
static inline float vm_pow2_F32(ar_i32 k)
{
    return ar_from_bits_F32((ar_u32)(k + 127) << 23);
}
static inline double vm_pow2_F64(ar_i64 k)
{
    return ar_from_bits_F64((ar_u64)(k + 1023) << 52);
}

/* e^x is the result times 2^k, *ret_t being k + ROUNDER: e^r on |r| ≤ ln2/2. All arguments; NaN
 * propagates. */
static inline float vm_exp_F32(float x, float *ret_t)
{
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = FMAF(c, 0x1.715476p+0f, ROUNDER_F32);
    float n = t - ROUNDER_F32;
    *ret_t = t;
    float r = FMAF(n, -0x1.62ep-1f, c);
    r = FMAF(n, -0x1.0bfbe8p-15f, r);
    float p = FMAF(r, 0x1.6d7544p-10f, 0x1.120b72p-7f);
    p = FMAF(p, r, 0x1.5554b8p-5f);
    p = FMAF(p, r, 0x1.5554dcp-3f);
    p = FMAF(p, r, 0x1p-1f);
    return 1.0f + FMAF(r * r, p, r);
}

/* Scaled in two steps: k reaches -150, and the last step is the only one that rounds in the
 * subnormals. */
static inline float vm_EXP_F32(float x)
{
    float t, p = vm_exp_F32(x, &t);
    ar_i32 k = (ar_i32)(ar_bits_F32(t) - ar_bits_F32(ROUNDER_F32)), h = k >> 1;
    return p * vm_pow2_F32(h) * vm_pow2_F32(k - h);
}

static inline double vm_exp_F64(double x, double *ret_t)
{
    double c = x < -746.0 ? -746.0 : x;
    c = c > 710.0 ? 710.0 : c;
    double t = FMA(c, 0x1.71547652b82fep+0, ROUNDER_F64);
    double n = t - ROUNDER_F64;
    *ret_t = t;
    double r = FMA(n, -0x1.62e42fefap-1, c);
    r = FMA(n, -0x1.cf79abc9e3b3ap-40, r);
    double p = FMA(r, 0x1.1f8b49950af71p-29, 0x1.af4de9c0a325dp-26);
    p = FMA(p, r, 0x1.27e4ccd075b22p-22);
    p = FMA(p, r, 0x1.71de023172e6ap-19);
    p = FMA(p, r, 0x1.a01a01acf960dp-16);
    p = FMA(p, r, 0x1.a01a01abe80afp-13);
    p = FMA(p, r, 0x1.6c16c16c15201p-10);
    p = FMA(p, r, 0x1.11111111100dbp-7);
    p = FMA(p, r, 0x1.5555555555558p-5);
    p = FMA(p, r, 0x1.5555555555557p-3);
    p = FMA(p, r, 0x1p-1);
    return 1.0 + FMA(r * r, p, r);
}

static inline double vm_EXP_F64(double x)
{
    double t, p = vm_exp_F64(x, &t);
    ar_i64 k = (ar_i64)(ar_bits_F64(t) - ar_bits_F64(ROUNDER_F64));
    /* k/2 in 32 bits: there is no 64-bit arithmetic shift before AVX-512 */
    ar_i32 k32 = (ar_i32)k, h = k32 >> 1;
    return p * vm_pow2_F64(h) * vm_pow2_F64(k32 - h);
}

/* Positive normal numbers. m in [√½, √2), so that nothing cancels near 1. */
static inline float vm_LOG_F32(float x)
{
    ar_u32 u = ar_bits_F32(x) - 0x3f3504f3u;
    float e = (float)((ar_i32)u >> 23);
    float f = ar_from_bits_F32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float z = f * f;
    float p = FMAF(f, 0x1.2c564ep-4f, -0x1.dd96bap-4f);
    p = FMAF(p, f, 0x1.dc8e5ep-4f);
    p = FMAF(p, f, -0x1.fbc4e8p-4f);
    p = FMAF(p, f, 0x1.23dd1ap-3f);
    p = FMAF(p, f, -0x1.55625cp-3f);
    p = FMAF(p, f, 0x1.999d36p-3f);
    p = FMAF(p, f, -0x1.ffffe6p-3f);
    p = FMAF(p, f, 0x1.555554p-2f);
    float low = FMAF(e, 0x1.0bfbe8p-15f, f * z * p);
    return FMAF(e, 0x1.62ep-1f, f + FMAF(z, -0.5f, low));
}

/* sin and cos of a reduced argument, and the quadrant in k's low bits. */
static inline void vm_sincos_F32(float x, float *s, float *c, ar_u32 *k)
{
    float t = FMAF(x, 0x1.45f306p-1f, ROUNDER_F32);
    float n = t - ROUNDER_F32;
    *k = ar_bits_F32(t);
    float r = FMAF(n, -0x1.921fb6p+0f, x);
    r = FMAF(n, 0x1.777a5cp-25f, r);
    r = FMAF(n, 0x1.ee59dap-50f, r);
    float z = r * r;
    float p = FMAF(z, -0x1.994e5ap-13f, 0x1.110760p-7f);
    p = FMAF(p, z, -0x1.555546p-3f);
    *s = FMAF(r * z, p, r);
    p = FMAF(z, 0x1.9a020ap-16f, -0x1.6c0c8ap-10f);
    p = FMAF(p, z, 0x1.55554ap-5f);
    *c = FMAF(z * z, p, FMAF(z, -0.5f, 1.0f));
}
static inline void vm_sincos_F64(double x, double *s, double *c, ar_u64 *k)
{
    double t = FMA(x, 0x1.45f306dc9c883p-1, ROUNDER_F64);
    double n = t - ROUNDER_F64;
    *k = ar_bits_F64(t);
    double r = FMA(n, -0x1.921fb54442d18p+0, x);
    r = FMA(n, -0x1.1a62633145c07p-54, r);
    r = FMA(n, 0x1.f1976b7ed8fbcp-110, r);
    double z = r * r;
    double p = FMA(z, 0x1.5d92ff36b643dp-33, -0x1.ae5e6633c332ap-26);
    p = FMA(p, z, 0x1.71de3577acb24p-19);
    p = FMA(p, z, -0x1.a01a019c118bdp-13);
    p = FMA(p, z, 0x1.111111110f87ap-7);
    p = FMA(p, z, -0x1.5555555555549p-3);
    *s = FMA(r * z, p, r);
    p = FMA(z, -0x1.8fae9c300aa09p-37, 0x1.1ee9ebe896516p-29);
    p = FMA(p, z, -0x1.27e4f809efa4bp-22);
    p = FMA(p, z, 0x1.a01a019cb1bc2p-16);
    p = FMA(p, z, -0x1.6c16c16c1517ep-10);
    p = FMA(p, z, 0x1.555555555554cp-5);
    *c = FMA(z * z, p, FMA(z, -0.5, 1.0));
}

/* |x| ≤ VM_TRIG_<T>: beyond that, the quotient no longer fits the parts of π/2 kept here. */
#define VM_TRIG_F32 1e5f
#define VM_TRIG_F64 1e7
#define VM_TRIG(T, R, U, WIDTH)                                                                    \
    static inline R vm_SIN_##T(R x)                                                                \
    {                                                                                              \
        R s, c;                                                                                    \
        U k;                                                                                       \
        vm_sincos_##T(x, &s, &c, &k);                                                              \
        R r = k & 1 ? c : s;                                                                       \
        r = ar_from_bits_##T(ar_bits_##T(r) ^ (k & 2) << (WIDTH - 2));                             \
        return x == 0 ? x : r; /* the reduction lost the sign of zero */                           \
    }                                                                                              \
    static inline R vm_COS_##T(R x)                                                                \
    {                                                                                              \
        R s, c;                                                                                    \
        U k;                                                                                       \
        vm_sincos_##T(x, &s, &c, &k);                                                              \
        R r = k & 1 ? s : c;                                                                       \
        return ar_from_bits_##T(ar_bits_##T(r) ^ ((k + 1) & 2) << (WIDTH - 2));                    \
    }                                                                                              \
    static inline R vm_TAN_##T(R x)                                                                \
    {                                                                                              \
        R s, c;                                                                                    \
        U k;                                                                                       \
        vm_sincos_##T(x, &s, &c, &k);                                                              \
        R r = (k & 1 ? c : s) / (k & 1 ? -s : c);                                                  \
        return x == 0 ? x : r;                                                                     \
    }
VM_TRIG(F32, ar_f32, ar_u32, 32)
VM_TRIG(F64, ar_f64, ar_u64, 64)

#define VM_SIGMOID(T, R, ABS)                                                                      \
    static inline R vm_SIGMOID_##T(R x)                                                            \
    {                                                                                              \
        R e = vm_EXP_##T(-ABS(x));                                                                 \
        return (x < 0 ? e : (R)1) / ((R)1 + e);                                                    \
    }
VM_SIGMOID(F32, ar_f32, fabsf)
VM_SIGMOID(F64, ar_f64, fabs)

/* All arguments. Near zero an odd polynomial, else from e^2|x|, whose error becomes small when it
 * is subtracted from 1. */
static inline float vm_TANH_F32(float x)
{
    float a = fabsf(x), z = a * a;
    float p = FMAF(z, 0x1.174490p-9f, -0x1.0b8af4p-7f);
    p = FMAF(p, z, 0x1.637776p-6f);
    p = FMAF(p, z, -0x1.b9ece8p-5f);
    p = FMAF(p, z, 0x1.11105ep-3f);
    p = FMAF(p, z, -0x1.555554p-2f);
    float near = FMAF(a * z, p, a);
    float far = 1.0f - 2.0f / (vm_EXP_F32(2.0f * a) + 1.0f);
    return ar_COPYSIGN_F32(a < 0.63f ? near : far, x);
}

/* All arguments. Below 1 an odd polynomial, above 1 - e^q with a polynomial for log(erfc), after N.
 * Juffa's erff. */
static inline float vm_ERF_F32(float x)
{
    float a = fabsf(x), z = a * a;
    float p = FMAF(z, 0x1.4ae4c2p-14f, -0x1.a485e6p-11f);
    p = FMAF(p, z, 0x1.5419f4p-8f);
    p = FMAF(p, z, -0x1.b7fbb4p-6f);
    p = FMAF(p, z, 0x1.ce2d20p-4f);
    p = FMAF(p, z, -0x1.81273ep-2f);
    p = FMAF(p, z, 0x1.20dd74p+0f);
    float c = a > 4.1f ? 4.1f : a; /* 1 from here on */
    float q = FMAF(c, -0x1.6bd784p-16f, 0x1.cec5b8p-12f);
    q = FMAF(q, c, -0x1.138ca4p-8f);
    q = FMAF(q, c, 0x1.9d02f4p-6f);
    q = FMAF(q, c, -0x1.bc1510p-4f);
    q = FMAF(q, c, -0x1.443568p-1f);
    q = FMAF(q, c, -0x1.212c0cp+0f);
    q = FMAF(q, c, 0x1.8a55b2p-13f);
    return ar_COPYSIGN_F32(a < 1.0f ? a * p : 1.0f - vm_EXP_F32(q), x);
}

/* Finite arguments. 2^(y·log2|x|) in float64, which leaves 28 correct bits at the largest exponent,
 * so that results that are floats come out exact; subnormal arguments are normal there, and the
 * conversion back does the rounding, overflow and underflow. */
static inline float vm_POW_F32(float x, float y)
{
    double a = (double)fabsf(x);
    ar_u64 u = ar_bits_F64(a) - 0x3fe6a09e667f3bcd;
    double e = (double)((ar_i32)(u >> 32) >> 20);
    double f = ar_from_bits_F64((u & 0xfffffffffffff) + 0x3fe6a09e667f3bcd) - 1.0;
    double p = FMA(f, 0x1.45cef00c994b1p-4, -0x1.27c55a8a0d13fp-3);
    p = FMA(p, f, 0x1.27dac83b9b3b3p-3);
    p = FMA(p, f, -0x1.24641bf9072dcp-3);
    p = FMA(p, f, 0x1.452632a4c1cebp-3);
    p = FMA(p, f, -0x1.7153e5a940557p-3);
    p = FMA(p, f, 0x1.a64064127ab4ep-3);
    p = FMA(p, f, -0x1.ec71f4e570f73p-3);
    p = FMA(p, f, 0x1.27764bd8abb74p-2);
    p = FMA(p, f, -0x1.7154723f54e69p-2);
    p = FMA(p, f, 0x1.ec709eceaa03ep-2);
    p = FMA(p, f, -0x1.715476554f380p-1);
    p = FMA(p, f, 0x1.715476529fcbap+0);
    double l = FMA(p, f, e);
    l = a == 0 ? -0x1p+1000 : l; /* so low that any power of it is decided */
    double t = (double)y * l;
    t = t < -160.0 ? -160.0 : t;
    t = t > 160.0 ? 160.0 : t;
    double s = t + ROUNDER_F64, n = s - ROUNDER_F64, r = t - n;
    ar_i32 k = (ar_i32)(ar_bits_F64(s) - ar_bits_F64(ROUNDER_F64));
    p = FMA(r, 0x1.44990c26e697dp-13, 0x1.5f48f41b68403p-10);
    p = FMA(p, r, 0x1.3b2995e25f5cbp-7);
    p = FMA(p, r, 0x1.c6aecbfc2c2c5p-5);
    p = FMA(p, r, 0x1.ebfbe10e46c9dp-3);
    p = FMA(p, r, 0x1.62e430d0882e0p-1);
    p = FMA(p, r, 0x1.ffffffff4e0cdp-1);
    float v = (float)(p * vm_pow2_F64(k));
    /* the sign of an odd power; no real power where the exponent is not whole */
    float w = fabsf(y) < 0x1p+24f ? y : 0.0f;
    ar_u32 odd = (ar_i32)w & 1 ? (ar_u32)0x80000000 : 0;
    int whole = truncf(y) == y;
    v = ar_from_bits_F32(ar_bits_F32(v) | (whole ? odd & ar_bits_F32(x) : 0));
    return (x < 0) & !whole ? (float)AR_NAN : v;
}

/* fmod is exact, whichever way it is computed: a - q·b in one rounding is the remainder while the
 * quotient is an integer that the type holds; where the division rounded the quotient up, one
 * divisor is added back. vm_fmod_ok tells where that is valid. */
#define VM_FMOD(T, R, FUSED, ABS, TRUNC, LIMIT)                                                    \
    static inline int vm_fmod_ok_##T(R a, R b)                                                     \
    {                                                                                              \
        return (ABS(a / b) < (LIMIT)) & (ABS(b) < (R)INFINITY);                                    \
    }                                                                                              \
    static inline R vm_FMOD_##T(R a, R b)                                                          \
    {                                                                                              \
        R x = ABS(a), y = ABS(b);                                                                  \
        R r = FUSED(-TRUNC(x / y), y, x);                                                          \
        r = r < 0 ? r + y : r;                                                                     \
        return ar_COPYSIGN_##T(r, a);                                                              \
    }                                                                                              \
    static inline R vm_REMAINDER_##T(R a, R b)                                                     \
    {                                                                                              \
        return ar_REMAINDER_FROM_##T(vm_FMOD_##T(a, b), b);                                        \
    }                                                                                              \
    static inline R vm_FLOOR_DIVIDE_##T(R a, R b)                                                  \
    {                                                                                              \
        return ar_FLOOR_DIVIDE_FROM_##T(vm_FMOD_##T(a, b), a, b);                                  \
    }
VM_FMOD(F32, ar_f32, FMAF, fabsf, truncf, 0x1p+23f)
VM_FMOD(F64, ar_f64, FMA, fabs, trunc, 0x1p+52)

#endif
