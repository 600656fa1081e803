/* Complex elementary functions in float64; part of scalar.h.
 *
 * Algorithms: W. Kahan, "Branch cuts for complex elementary functions" (1987), with the special
 * values of C99 Annex G. Branch cuts, and the sides that signed zeros choose, are those of C99.
 * Accuracy is relative to |result|, not to each part: a part much smaller than the other may have
 * lost digits, and exponentials lose digits as the exponent grows (pow). */
#ifndef ARRAYD_SCALAR_CMATH_H
#define ARRAYD_SCALAR_CMATH_H

#define AR_LN2  0.69314718055994530942
#define AR_PI_2 1.57079632679489661923

AR_FN int ar_is_finite(ar_f64 x)
{
    return fabs(x) < AR_INF;
}
AR_FN ar_f64 ar_larger(ar_f64 a, ar_f64 b)
{
    a = fabs(a), b = fabs(b);
    return a > b || a != a ? a : b;
}

/* log|z|; near |z| = 1 with log1p, because log would lose the difference from 1. */
AR_FN ar_f64 ar_log_modulus(ar_f64 x, ar_f64 y)
{
    ar_f64 big = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
    ar_f64 small = fabs(x) > fabs(y) ? fabs(y) : fabs(x);
    if (big > 0.5 && big < 2 && small < 2)
        return 0.5 * log1p((big - 1) * (big + 1) + small * small);
    if (big > 0x1p+1000 && big < AR_INF && small < AR_INF)
        return log(hypot(big * 0x1p-4, small * 0x1p-4)) + 4 * AR_LN2;
    if (big < 0x1p-900 && big > 0)
        return log(hypot(big * 0x1p+200, small * 0x1p+200)) - 200 * AR_LN2;
    return log(hypot(x, y));
}
AR_FN ar_c128 ar_clog(ar_c128 z)
{
    return ar_c128_of(ar_log_modulus(z.re, z.im), atan2(z.im, z.re));
}
AR_FN ar_c128 ar_clog2(ar_c128 z)
{
    ar_c128 r = ar_clog(z);
    return ar_c128_of(r.re * 1.44269504088896340736, r.im * 1.44269504088896340736);
}
AR_FN ar_c128 ar_clog10(ar_c128 z)
{
    ar_c128 r = ar_clog(z);
    return ar_c128_of(r.re * 0.43429448190325182765, r.im * 0.43429448190325182765);
}
AR_FN ar_c128 ar_clog1p(ar_c128 z)
{
    if (fabs(z.re) < 0.5 && fabs(z.im) < 0.5)
        return ar_c128_of(0.5 * log1p(z.re * (z.re + 2) + z.im * z.im), atan2(z.im, 1 + z.re));
    return ar_clog(ar_c128_of(1 + z.re, z.im));
}

AR_FN ar_c128 ar_cexp(ar_c128 z)
{
    if (z.im == 0)
        return ar_c128_of(exp(z.re), z.im);
    if (!ar_is_finite(z.im)) {
        if (z.re == -AR_INF)
            return ar_c128_of(0, 0);
        if (z.re == AR_INF)
            return ar_c128_of(AR_INF, AR_NAN);
        return ar_c128_of(AR_NAN, AR_NAN);
    }
    ar_f64 c = cos(z.im), s = sin(z.im);
    if (fabs(z.re) < 700)
        return ar_c128_of(exp(z.re) * c, exp(z.re) * s);
    ar_f64 h = exp(z.re * 0.5); /* in two halves: e^x alone may leave the range */
    return ar_c128_of(h * c * h, h * s * h);
}
AR_FN ar_c128 ar_cexpm1(ar_c128 z)
{
    if (z.im == 0)
        return ar_c128_of(expm1(z.re), z.im);
    if (fabs(z.re) > 40) {
        ar_c128 e = ar_cexp(z);
        return ar_c128_of(e.re - 1, e.im);
    }
    ar_f64 h = sin(0.5 * z.im);
    return ar_c128_of(expm1(z.re) * cos(z.im) - 2 * h * h, exp(z.re) * sin(z.im));
}
/* exp of a negative real part only, as for real numbers */
AR_FN ar_c128 ar_csigmoid(ar_c128 z)
{
    int negative = z.re < 0;
    ar_c128 one = ar_c128_of(1, 0);
    ar_c128 e = ar_cexp(negative ? z : ar_c128_of(-z.re, -z.im));
    return ar_cdiv(negative ? e : one, ar_c128_of(1 + e.re, e.im));
}

AR_FN ar_c128 ar_csqrt(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (x == 0 && y == 0)
        return ar_c128_of(0, y);
    if (fabs(y) == AR_INF)
        return ar_c128_of(AR_INF, y);
    if (x == AR_INF)
        return ar_c128_of(x, y != y ? y : copysign(0.0, y));
    if (x == -AR_INF)
        return ar_c128_of(y != y ? y : 0, copysign(AR_INF, y));
    ar_f64 scale = 1;
    if (ar_larger(x, y) > 0x1p+1000)
        x *= 0x1p-4, y *= 0x1p-4, scale = 4;
    else if (ar_larger(x, y) < 0x1p-900)
        x *= 0x1p+200, y *= 0x1p+200, scale = 0x1p-100;
    ar_f64 t = sqrt((fabs(x) + hypot(x, y)) * 0.5);
    if (x >= 0)
        return ar_c128_of(t * scale, y / (2 * t) * scale);
    return ar_c128_of(fabs(y) / (2 * t) * scale, copysign(t, y) * scale);
}
AR_FN ar_c128 ar_crsqrt(ar_c128 z)
{
    return ar_cdiv(ar_c128_of(1, 0), ar_csqrt(z));
}

AR_FN ar_c128 ar_csinh(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (y == 0)
        return ar_c128_of(sinh(x), y);
    if (!ar_is_finite(y))
        return ar_c128_of(x == 0 || fabs(x) == AR_INF ? x : AR_NAN, AR_NAN);
    ar_f64 c = cos(y), s = sin(y);
    if (fabs(x) < 700 || x != x)
        return ar_c128_of(sinh(x) * c, cosh(x) * s);
    ar_f64 h = exp(fabs(x) * 0.5), g = h * 0.5;
    return ar_c128_of(copysign(g, x) * c * h, g * s * h);
}
AR_FN ar_c128 ar_ccosh(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (y == 0)
        return ar_c128_of(cosh(x), x != x ? y : y * copysign(1.0, x));
    if (!ar_is_finite(y))
        return ar_c128_of(fabs(x) == AR_INF ? AR_INF : AR_NAN, x == 0 ? 0 : AR_NAN);
    ar_f64 c = cos(y), s = sin(y);
    if (fabs(x) < 700 || x != x)
        return ar_c128_of(cosh(x) * c, x == 0 ? copysign(0.0, x) * s : sinh(x) * s);
    ar_f64 h = exp(fabs(x) * 0.5), g = h * 0.5;
    return ar_c128_of(g * c * h, copysign(g, x) * s * h);
}
AR_FN ar_c128 ar_ctanh(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (x != x)
        return ar_c128_of(x, y == 0 ? y : AR_NAN);
    if (fabs(x) > 22) { /* also infinite */
        if (!ar_is_finite(y))
            return fabs(x) == AR_INF ? ar_c128_of(copysign(1.0, x), 0) : ar_c128_of(AR_NAN, AR_NAN);
        return ar_c128_of(copysign(1.0, x), 4 * sin(y) * cos(y) * exp(-2 * fabs(x)));
    }
    if (!ar_is_finite(y))
        return ar_c128_of(x == 0 ? x : AR_NAN, AR_NAN);
    ar_f64 t = tan(y), beta = 1 + t * t, s = sinh(x), rho = sqrt(1 + s * s);
    ar_f64 den = 1 + beta * s * s;
    return ar_c128_of(beta * rho * s / den, t / den);
}
/* The circular functions are the hyperbolic ones rotated by i. */
AR_FN ar_c128 ar_csin(ar_c128 z)
{
    ar_c128 r = ar_csinh(ar_c128_of(-z.im, z.re));
    return ar_c128_of(r.im, -r.re);
}
AR_FN ar_c128 ar_ccos(ar_c128 z)
{
    return ar_ccosh(ar_c128_of(-z.im, z.re));
}
AR_FN ar_c128 ar_ctan(ar_c128 z)
{
    ar_c128 r = ar_ctanh(ar_c128_of(-z.im, z.re));
    return ar_c128_of(r.im, -r.re);
}

/* The inverse functions: beyond 2^28 the leading term log(2z) is exact to rounding, below 2^-28 the
 * function is its argument. On the imaginary axis the real part is known even where y is NaN. */
#define AR_HUGE 0x1p+28
#define AR_TINY 0x1p-28

AR_FN ar_c128 ar_casin(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im, m = ar_larger(x, y);
    if (fabs(x) == AR_INF || fabs(y) == AR_INF || m > AR_HUGE)
        return ar_c128_of(copysign(atan2(fabs(x), fabs(y)), x),
                          copysign(ar_log_modulus(x, y) + AR_LN2, y));
    if (m < AR_TINY || (x == 0 && y != y))
        return z;
    ar_c128 a = ar_csqrt(ar_c128_of(1 - x, -y)), b = ar_csqrt(ar_c128_of(1 + x, y));
    return ar_c128_of(atan2(x, a.re * b.re - a.im * b.im), asinh(a.re * b.im - a.im * b.re));
}
AR_FN ar_c128 ar_cacos(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (fabs(x) == AR_INF || fabs(y) == AR_INF || ar_larger(x, y) > AR_HUGE)
        return ar_c128_of(atan2(fabs(y), x), -copysign(ar_log_modulus(x, y) + AR_LN2, y));
    if (x == 0 && y != y)
        return ar_c128_of(AR_PI_2, y);
    ar_c128 a = ar_csqrt(ar_c128_of(1 - x, -y)), b = ar_csqrt(ar_c128_of(1 + x, y));
    return ar_c128_of(2 * atan2(a.re, b.re), asinh(b.re * a.im - b.im * a.re));
}
AR_FN ar_c128 ar_cacosh(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im;
    if (fabs(x) == AR_INF || fabs(y) == AR_INF || ar_larger(x, y) > AR_HUGE)
        return ar_c128_of(ar_log_modulus(x, y) + AR_LN2, atan2(y, x));
    if (x == 0 && y != y)
        return ar_c128_of(y, AR_PI_2);
    ar_c128 a = ar_csqrt(ar_c128_of(x - 1, y)), b = ar_csqrt(ar_c128_of(x + 1, y));
    return ar_c128_of(asinh(a.re * b.re + a.im * b.im), 2 * atan2(a.im, b.re));
}
AR_FN ar_c128 ar_catanh(ar_c128 z)
{
    ar_f64 x = z.re, y = z.im, ax = fabs(x), m = ar_larger(x, y);
    if (ax == AR_INF || fabs(y) == AR_INF || m > AR_HUGE) {
        ar_c128 w = ar_cdiv(ar_c128_of(1, 0), z);
        ar_f64 re = copysign(w.re, x);
        return ar_c128_of(re, y != y ? y : copysign(AR_PI_2, y) + w.im);
    }
    if (m < AR_TINY || (x == 0 && y != y))
        return z;
    ar_f64 re = 0.25 * log1p(4 * ax / ((1 - ax) * (1 - ax) + y * y));
    if (ax == 1 && y != 0) /* y² may vanish */
        re = 0.5 * log(hypot(y, 2.0) / fabs(y));
    return ar_c128_of(copysign(re, x), 0.5 * atan2(2 * y, (1 - ax) * (1 + ax) - y * y));
}
AR_FN ar_c128 ar_casinh(ar_c128 z)
{
    ar_c128 r = ar_casin(ar_c128_of(-z.im, z.re));
    return ar_c128_of(r.im, -r.re);
}
AR_FN ar_c128 ar_catan(ar_c128 z)
{
    ar_c128 r = ar_catanh(ar_c128_of(-z.im, z.re));
    return ar_c128_of(r.im, -r.re);
}

AR_FN ar_c128 ar_cmul(ar_c128 a, ar_c128 b)
{
    return ar_c128_of(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
/* Small integer powers by multiplication, as NumPy does, so that they are as exact as products; 0
 * to a power without positive real part is NaN. */
AR_FN ar_c128 ar_cpow(ar_c128 a, ar_c128 b)
{
    if (b.re == 0 && b.im == 0)
        return ar_c128_of(1, 0);
    if (a.re == 0 && a.im == 0)
        return b.re > 0 ? ar_c128_of(0, 0) : ar_c128_of(AR_NAN, AR_NAN);
    if (b.im == 0 && b.re > -100 && b.re < 100 && trunc(b.re) == b.re) {
        int n = (int)fabs(b.re);
        ar_c128 r = ar_c128_of(1, 0), p = a;
        for (int first = 1; n != 0; n >>= 1) {
            if (n & 1) {
                r = first ? p : ar_cmul(r, p);
                first = 0;
            }
            if (n > 1)
                p = ar_cmul(p, p);
        }
        return b.re < 0 ? ar_cdiv(ar_c128_of(1, 0), r) : r;
    }
    return ar_cexp(ar_cmul(b, ar_clog(a)));
}

#endif
