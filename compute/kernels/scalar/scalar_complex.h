/* Complex numbers: arithmetic here, elementary functions in scalar_cmath.h; part of scalar.h.
 *
 * complex64 multiplies in float32 (the textbook formula, as NumPy: no recovery of infinities) and
 * divides in float64, where nothing can overflow. The elementary functions exist in float64 only;
 * complex64 calls them and rounds. */
#ifndef ARRAYD_SCALAR_COMPLEX_H
#define ARRAYD_SCALAR_COMPLEX_H

AR_FN ar_c128 ar_c128_of(ar_f64 re, ar_f64 im)
{
    ar_c128 r = {re, im};
    return r;
}

/* 2^n for -1022 ≤ n ≤ 1023. */
AR_FN ar_f64 ar_exp2i(ar_i64 n)
{
    return ar_from_bits_F64((ar_u64)(n + 1023) << 52);
}
/* The exponent of a finite nonzero number's larger part, roughly (0 for zero and -1023 for
 * subnormals suffice: it is only used to scale). */
AR_FN ar_i64 ar_exponent(ar_f64 a, ar_f64 b)
{
    ar_f64 m = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return (ar_i64)(ar_bits_F64(m) >> 52) - 1023;
}

/* A part of an infinite number as Annex G boxes it: ±1, or a zero of its sign. A NaN becomes +0:
 * its sign carries no information, and differs between processors. */
AR_FN ar_f64 ar_box(ar_f64 x)
{
    return x != x ? 0 : copysign(fabs(x) == AR_INF ? 1.0 : 0.0, x);
}

/* Scaled by powers of two, so that no product overflows and the square of a small divisor does not
 * vanish; then infinities are recovered as in C99 Annex G.5.1. Divisor 0: each part over the
 * divisor's real zero taken as +0, as NumPy does. */
AR_FN ar_c128 ar_cdiv(ar_c128 a, ar_c128 b)
{
    ar_f64 ar = fabs(a.re), ai = fabs(a.im), br = fabs(b.re), bi = fabs(b.im);
    ar_f64 am = ar > ai ? ar : ai, bm = br > bi ? br : bi;
    if (am < 0x1p+500 && am > 0x1p-500 && bm < 0x1p+400 && bm > 0x1p-400 &&
        ar + ai + br + bi < 0x1p+600) {
        /* nearly always: scaling would change nothing */
        ar_f64 den = b.re * b.re + b.im * b.im;
        return ar_c128_of((a.re * b.re + a.im * b.im) / den, (a.im * b.re - a.re * b.im) / den);
    }
    int a_finite = ar < AR_INF && ai < AR_INF, b_finite = br < AR_INF && bi < AR_INF;
    if (a_finite && b_finite && (br > 0 || bi > 0)) {
        /* subnormals are scaled up first, because their exponents are meaningless */
        int lift = 0;
        if (br < 0x1p-1000 && bi < 0x1p-1000) {
            b.re *= 0x1p+60, b.im *= 0x1p+60;
            lift += 60;
        }
        if (ar < 0x1p-900 && ai < 0x1p-900) {
            a.re *= 0x1p+120, a.im *= 0x1p+120;
            lift -= 120;
        }
        if (a.re == 0 && a.im == 0)
            lift = 0;
        ar_i64 ea = a.re == 0 && a.im == 0 ? 0 : ar_exponent(a.re, a.im);
        ar_i64 eb = ar_exponent(b.re, b.im);
        ar_f64 sa = ar_exp2i(-ea > 1022 ? 1022 : (-ea < -1022 ? -1022 : -ea));
        ar_f64 sb = ar_exp2i(-eb > 1022 ? 1022 : (-eb < -1022 ? -1022 : -eb));
        ar_f64 xr = a.re * sa, xi = a.im * sa, yr = b.re * sb, yi = b.im * sb;
        ar_f64 den = yr * yr + yi * yi;
        ar_f64 qr = (xr * yr + xi * yi) / den, qi = (xi * yr - xr * yi) / den;
        /* scale back by ea - eb + lift, in steps that are powers of two in range */
        ar_i64 e = ea - eb + lift;
        while (e > 1000) {
            qr *= 0x1p+1000, qi *= 0x1p+1000;
            e -= 1000;
        }
        while (e < -1000) {
            qr *= 0x1p-1000, qi *= 0x1p-1000;
            e += 1000;
        }
        ar_f64 s = ar_exp2i(e);
        return ar_c128_of(qr * s, qi * s);
    }
    if (br == 0 && bi == 0)
        return ar_c128_of(a.re / br, a.im / br);
    if ((ar == AR_INF || ai == AR_INF) && b_finite) {
        ar_f64 u = ar_box(a.re);
        ar_f64 v = ar_box(a.im);
        return ar_c128_of(AR_INF * (u * b.re + v * b.im), AR_INF * (v * b.re - u * b.im));
    }
    if ((br == AR_INF || bi == AR_INF) && a_finite) {
        ar_f64 u = ar_box(b.re);
        ar_f64 v = ar_box(b.im);
        return ar_c128_of(0 * (a.re * u + a.im * v), 0 * (a.im * u - a.re * v));
    }
    return ar_c128_of(AR_NAN, AR_NAN);
}

/* In float64 the squares and products of float32 neither overflow nor vanish. */
AR_FN ar_c64 ar_cdivf(ar_c64 a, ar_c64 b)
{
    ar_f64 ar = a.re, ai = a.im, br = b.re, bi = b.im;
    ar_f64 den = br * br + bi * bi;
    if (den > 0 && den < AR_INF && fabs(ar) < AR_INF && fabs(ai) < AR_INF) {
        ar_c64 r = {(ar_f32)((ar * br + ai * bi) / den), (ar_f32)((ai * br - ar * bi) / den)};
        return r;
    }
    ar_c128 q = ar_cdiv(ar_c128_of(ar, ai), ar_c128_of(br, bi));
    ar_c64 r = {(ar_f32)q.re, (ar_f32)q.im};
    return r;
}

#if defined(AR_USE_CMATH)
#include "compute/kernels/scalar/scalar_cmath.h"
#endif

#if defined(AR_USE_C64)
#define AR_T   C64
#define AR_R   ar_c64
#define AR_P   ar_f32
#define AR_PT  F32
#define AR_DIV ar_cdivf
#include "compute/kernels/scalar/scalar_complex_ops.h"
#endif
#if defined(AR_USE_C128)
#define AR_T   C128
#define AR_R   ar_c128
#define AR_P   ar_f64
#define AR_PT  F64
#define AR_DIV ar_cdiv
#include "compute/kernels/scalar/scalar_complex_ops.h"
#endif

#endif
