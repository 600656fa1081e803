/* CUDA's mathematics, bit casts, rounding intrinsics and integer intrinsics for the host compiler;
 * part of device.h. The C library does the work; where it has no such function the plain formula
 * does. */
#ifndef ARRAYD_FAKE_DEVICE_MATH_H
#define ARRAYD_FAKE_DEVICE_MATH_H

/* The C functions, and C++ overloads of the double's name for float (and for int: in double). */
#define FAKE_MATH1(fn)                                                                             \
    extern "C" double fn(double) noexcept;                                                         \
    extern "C" float fn##f(float) noexcept;                                                        \
    FAKE_FN float fn(float x)                                                                      \
    {                                                                                              \
        return fn##f(x);                                                                           \
    }                                                                                              \
    FAKE_FN double fn(int x)                                                                       \
    {                                                                                              \
        return fn((double)x);                                                                      \
    }
#define FAKE_MATH2(fn)                                                                             \
    extern "C" double fn(double, double) noexcept;                                                 \
    extern "C" float fn##f(float, float) noexcept;                                                 \
    FAKE_FN float fn(float x, float y)                                                             \
    {                                                                                              \
        return fn##f(x, y);                                                                        \
    }                                                                                              \
    FAKE_FN double fn(int x, double y)                                                             \
    {                                                                                              \
        return fn((double)x, y);                                                                   \
    }                                                                                              \
    FAKE_FN double fn(double x, int y)                                                             \
    {                                                                                              \
        return fn(x, (double)y);                                                                   \
    }

FAKE_MATH1(sin)
FAKE_MATH1(cos)
FAKE_MATH1(tan)
FAKE_MATH1(asin)
FAKE_MATH1(acos)
FAKE_MATH1(atan)
FAKE_MATH1(sinh)
FAKE_MATH1(cosh)
FAKE_MATH1(tanh)
FAKE_MATH1(asinh)
FAKE_MATH1(acosh)
FAKE_MATH1(atanh)
FAKE_MATH1(exp)
FAKE_MATH1(exp2)
FAKE_MATH1(exp10)
FAKE_MATH1(expm1)
FAKE_MATH1(log)
FAKE_MATH1(log2)
FAKE_MATH1(log10)
FAKE_MATH1(log1p)
FAKE_MATH1(logb)
FAKE_MATH1(sqrt)
FAKE_MATH1(cbrt)
FAKE_MATH1(erf)
FAKE_MATH1(erfc)
FAKE_MATH1(tgamma)
FAKE_MATH1(j0)
FAKE_MATH1(j1)
FAKE_MATH1(y0)
FAKE_MATH1(y1)
FAKE_MATH1(floor)
FAKE_MATH1(ceil)
FAKE_MATH1(trunc)
FAKE_MATH1(round)
FAKE_MATH1(rint)
FAKE_MATH1(nearbyint)
FAKE_MATH1(fabs)
FAKE_MATH2(atan2)
FAKE_MATH2(pow)
FAKE_MATH2(fmod)
FAKE_MATH2(remainder)
FAKE_MATH2(hypot)
FAKE_MATH2(copysign)
FAKE_MATH2(nextafter)
FAKE_MATH2(fmin)
FAKE_MATH2(fmax)
FAKE_MATH2(fdim)

extern "C" {
double lgamma_r(double, int *) noexcept;
float lgammaf_r(float, int *) noexcept;
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double scalbn(double, int) noexcept;
float scalbnf(float, int) noexcept;
double scalbln(double, long) noexcept;
float scalblnf(float, long) noexcept;
double frexp(double, int *) noexcept;
float frexpf(float, int *) noexcept;
double modf(double, double *) noexcept;
float modff(float, float *) noexcept;
double remquo(double, double, int *) noexcept;
float remquof(float, float, int *) noexcept;
void sincos(double, double *, double *) noexcept;
void sincosf(float, float *, float *) noexcept;
int ilogb(double) noexcept;
int ilogbf(float) noexcept;
long lrint(double) noexcept;
long lrintf(float) noexcept;
long lround(double) noexcept;
long lroundf(float) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
long long llround(double) noexcept;
long long llroundf(float) noexcept;
void *memcpy(void *, const void *, size_t) noexcept;
void *memset(void *, int, size_t) noexcept;
void *memmove(void *, const void *, size_t) noexcept;
int memcmp(const void *, const void *, size_t) noexcept;
}

/* With their float twin under the C++ name: CUDA has them so. */
#define FAKE_BOTH(fn, call_d, call_f)                                                              \
    FAKE_FN double fn(double x)                                                                    \
    {                                                                                              \
        return call_d;                                                                             \
    }                                                                                              \
    FAKE_FN float fn##f(float x)                                                                   \
    {                                                                                              \
        return call_f;                                                                             \
    }                                                                                              \
    FAKE_FN float fn(float x)                                                                      \
    {                                                                                              \
        return fn##f(x);                                                                           \
    }
static int fake_sign;
FAKE_FN double fake_turn(double x) /* to (-1, 1], for sines of multiples of pi */
{
    return x - 2 * rint(x / 2);
}
#define FAKE_PI 3.14159265358979323846
FAKE_BOTH(lgamma, lgamma_r(x, &fake_sign), lgammaf_r(x, &fake_sign))
FAKE_BOTH(rsqrt, 1 / sqrt(x), (float)(1 / sqrt((double)x)))
FAKE_BOTH(rcbrt, 1 / cbrt(x), (float)(1 / cbrt((double)x)))
FAKE_BOTH(sinpi, sin(FAKE_PI *fake_turn(x)), (float)sin(FAKE_PI *fake_turn(x)))
FAKE_BOTH(cospi, cos(FAKE_PI *fake_turn(x)), (float)cos(FAKE_PI *fake_turn(x)))
FAKE_BOTH(erfcx, exp(x *x) * erfc(x), (float)(exp((double)x *x) * erfc((double)x)))
FAKE_BOTH(normcdf, 0.5 * erfc(-x * 0.70710678118654752440),
          (float)(0.5 * erfc(-x * 0.70710678118654752440)))

FAKE_FN float fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
FAKE_FN float ldexp(float x, int n)
{
    return ldexpf(x, n);
}
FAKE_FN float scalbn(float x, int n)
{
    return scalbnf(x, n);
}
FAKE_FN float frexp(float x, int *n)
{
    return frexpf(x, n);
}
FAKE_FN float modf(float x, float *whole)
{
    return modff(x, whole);
}
FAKE_FN void sincos(float x, float *s, float *c)
{
    sincosf(x, s, c);
}
FAKE_FN void sincospi(double x, double *s, double *c)
{
    *s = sinpi(x), *c = cospi(x);
}
FAKE_FN void sincospif(float x, float *s, float *c)
{
    *s = sinpif(x), *c = cospif(x);
}
FAKE_FN double rhypot(double x, double y)
{
    return 1 / hypot(x, y);
}
FAKE_FN float rhypotf(float x, float y)
{
    return (float)(1 / hypot((double)x, (double)y));
}
FAKE_FN double norm3d(double x, double y, double z)
{
    return hypot(hypot(x, y), z);
}

#define isnan(x)    (__builtin_isnan(x) != 0)
#define isinf(x)    (__builtin_isinf(x) != 0)
#define isfinite(x) (__builtin_isfinite(x) != 0)
#define signbit(x)  (__builtin_signbit(x) != 0)

FAKE_FN int abs(int x)
{
    return x < 0 ? -x : x;
}
FAKE_FN long abs(long x)
{
    return x < 0 ? -x : x;
}
FAKE_FN long long abs(long long x)
{
    return x < 0 ? -x : x;
}
FAKE_FN float abs(float x)
{
    return fabsf(x);
}
FAKE_FN double abs(double x)
{
    return fabs(x);
}
FAKE_FN long labs(long x)
{
    return abs(x);
}
FAKE_FN long long llabs(long long x)
{
    return abs(x);
}

/* min and max: of integers in their common type, of floats as fmin and fmax (a NaN loses). */
#define FAKE_MINMAX(T)                                                                             \
    FAKE_FN T min(T a, T b)                                                                        \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    FAKE_FN T max(T a, T b)                                                                        \
    {                                                                                              \
        return b > a ? b : a;                                                                      \
    }
FAKE_MINMAX(int)
FAKE_MINMAX(unsigned)
FAKE_MINMAX(long)
FAKE_MINMAX(unsigned long)
FAKE_MINMAX(long long)
FAKE_MINMAX(unsigned long long)
FAKE_FN unsigned min(int a, unsigned b)
{
    return min((unsigned)a, b);
}
FAKE_FN unsigned min(unsigned a, int b)
{
    return min(a, (unsigned)b);
}
FAKE_FN unsigned max(int a, unsigned b)
{
    return max((unsigned)a, b);
}
FAKE_FN unsigned max(unsigned a, int b)
{
    return max(a, (unsigned)b);
}
FAKE_FN float min(float a, float b)
{
    return fminf(a, b);
}
FAKE_FN float max(float a, float b)
{
    return fmaxf(a, b);
}
FAKE_FN double min(double a, double b)
{
    return fmin(a, b);
}
FAKE_FN double max(double a, double b)
{
    return fmax(a, b);
}

/* Bit casts */
#define FAKE_CAST(name, to, from)                                                                  \
    FAKE_FN to name(from x)                                                                        \
    {                                                                                              \
        to y;                                                                                      \
        __builtin_memcpy(&y, &x, sizeof y);                                                        \
        return y;                                                                                  \
    }
FAKE_CAST(__float_as_uint, unsigned, float)
FAKE_CAST(__uint_as_float, float, unsigned)
FAKE_CAST(__float_as_int, int, float)
FAKE_CAST(__int_as_float, float, int)
FAKE_CAST(__double_as_longlong, long long, double)
FAKE_CAST(__longlong_as_double, double, long long)
FAKE_FN int __double2hiint(double x)
{
    return (int)(__double_as_longlong(x) >> 32);
}
FAKE_FN int __double2loint(double x)
{
    return (int)__double_as_longlong(x);
}
FAKE_FN double __hiloint2double(int hi, int lo)
{
    return __longlong_as_double((long long)((unsigned long long)(unsigned)hi << 32 | (unsigned)lo));
}

/* Round to nearest: what every host operation does. Fast variants are the exact ones here. */
#define FAKE_ROUNDED(T, p)                                                                         \
    FAKE_FN T __##p##add_rn(T a, T b)                                                              \
    {                                                                                              \
        return a + b;                                                                              \
    }                                                                                              \
    FAKE_FN T __##p##sub_rn(T a, T b)                                                              \
    {                                                                                              \
        return a - b;                                                                              \
    }                                                                                              \
    FAKE_FN T __##p##mul_rn(T a, T b)                                                              \
    {                                                                                              \
        return a * b;                                                                              \
    }                                                                                              \
    FAKE_FN T __##p##div_rn(T a, T b)                                                              \
    {                                                                                              \
        return a / b;                                                                              \
    }                                                                                              \
    FAKE_FN T __##p##rcp_rn(T a)                                                                   \
    {                                                                                              \
        return 1 / a;                                                                              \
    }                                                                                              \
    FAKE_FN T __##p##sqrt_rn(T a)                                                                  \
    {                                                                                              \
        return sqrt(a);                                                                            \
    }
FAKE_ROUNDED(float, f)
FAKE_ROUNDED(double, d)
FAKE_FN float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
FAKE_FN double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
#define __fsqrt_approx   sqrtf
#define __frsqrt_rn(x)   rsqrtf(x)
#define __fdividef(a, b) ((float)(a) / (float)(b))
#define fdividef(a, b)   ((float)(a) / (float)(b))
#define __expf           expf
#define __exp10f         exp10f
#define __logf           logf
#define __log2f          log2f
#define __log10f         log10f
#define __sinf           sinf
#define __cosf           cosf
#define __tanf           tanf
#define __powf           powf
#define __sincosf        sincosf
#define __saturatef(x)   fminf(fmaxf((x), 0.0f), 1.0f)

/* Conversions toward zero (and, for floats to integers, to nearest) saturate; NaN is 0. */
#define FAKE_CONVERT(name, to, from, low, high, whole)                                             \
    FAKE_FN to name(from x)                                                                        \
    {                                                                                              \
        double y = whole((double)x);                                                               \
        return y != y ? 0 : y <= (double)(low) ? (low) : y >= (double)(high) ? (high) : (to)y;     \
    }
#define FAKE_CONVERTS(mode, whole)                                                                 \
    FAKE_CONVERT(__float2int_##mode, int, float, -2147483647 - 1, 2147483647, whole)               \
    FAKE_CONVERT(__double2int_##mode, int, double, -2147483647 - 1, 2147483647, whole)             \
    FAKE_CONVERT(__float2uint_##mode, unsigned, float, 0u, 4294967295u, whole)                     \
    FAKE_CONVERT(__double2uint_##mode, unsigned, double, 0u, 4294967295u, whole)                   \
    FAKE_CONVERT(__float2ll_##mode, long long, float, -9223372036854775807LL - 1,                  \
                 9223372036854775807LL, whole)                                                     \
    FAKE_CONVERT(__double2ll_##mode, long long, double, -9223372036854775807LL - 1,                \
                 9223372036854775807LL, whole)                                                     \
    FAKE_CONVERT(__float2ull_##mode, unsigned long long, float, 0ull, 18446744073709551615ull,     \
                 whole)                                                                            \
    FAKE_CONVERT(__double2ull_##mode, unsigned long long, double, 0ull, 18446744073709551615ull,   \
                 whole)
FAKE_CONVERTS(rz, trunc)
FAKE_CONVERTS(rn, rint)
FAKE_CONVERTS(rd, floor)
FAKE_CONVERTS(ru, ceil)
FAKE_FN float __int2float_rn(int x)
{
    return (float)x;
}
FAKE_FN float __uint2float_rn(unsigned x)
{
    return (float)x;
}
FAKE_FN float __ll2float_rn(long long x)
{
    return (float)x;
}
FAKE_FN float __ull2float_rn(unsigned long long x)
{
    return (float)x;
}
FAKE_FN double __int2double_rn(int x)
{
    return x;
}
FAKE_FN double __ll2double_rn(long long x)
{
    return (double)x;
}
FAKE_FN double __ull2double_rn(unsigned long long x)
{
    return (double)x;
}
FAKE_FN float __double2float_rn(double x)
{
    return (float)x;
}

/* Integer intrinsics */
FAKE_FN int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
FAKE_FN int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
FAKE_FN int __ffs(int x)
{
    return __builtin_ffs(x);
}
FAKE_FN int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
/* not the compiler's: without -mpopcnt that calls libgcc */
FAKE_FN int __popcll(unsigned long long x)
{
    int n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}
FAKE_FN int __popc(unsigned x)
{
    return __popcll(x);
}
FAKE_FN unsigned long long __brevll(unsigned long long x)
{
    unsigned long long y = 0;
    for (int i = 0; i < 64; i++, x >>= 1)
        y = y << 1 | (x & 1);
    return y;
}
FAKE_FN unsigned __brev(unsigned x)
{
    return (unsigned)(__brevll(x) >> 32);
}
FAKE_FN unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = s >> (4 * i), byte = (unsigned)(both >> (8 * (pick & 7))) & 0xff;
        y |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
    }
    return y;
}
FAKE_FN unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)((((unsigned long long)hi << 32 | lo) << (n & 31)) >> 32);
}
FAKE_FN unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}
FAKE_FN int __mulhi(int a, int b)
{
    return (int)(((long long)a * b) >> 32);
}
FAKE_FN unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
FAKE_FN long long __mul64hi(long long a, long long b)
{
    return (long long)(((__int128)a * b) >> 64);
}
FAKE_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
FAKE_FN int __mul24(int a, int b)
{
    return a * b;
}
FAKE_FN unsigned __sad(int a, int b, unsigned c)
{
    return c + (unsigned)(a > b ? a - b : b - a);
}

#endif
