/* Products of real numbers as a fraction and a power of two, so that partial products cannot leave
 * float64's range: only the whole product can. Rounding is that of plain products. Included by the
 * CPU backend's loops (C) and by generated kernels (CUDA C++). */
#ifndef ARRAYD_PRODUCT_H
#define ARRAYD_PRODUCT_H

#include "compute/kernels/scalar/scalar_types.h"

/* m·2^e; |m| in [1/2, 1), or 0, infinite or NaN. The number 1 is {1/2, 1}. */
struct ar_product {
    ar_f64 m;
    ar_i64 e;
};

/* The fraction of p, which must not be subnormal; its exponent is added to *e. Without branches,
 * for the CPU's vectors. */
AR_FN ar_f64 ar_fraction(ar_f64 p, ar_i64 *e)
{
    const ar_u64 bits = ar_bits_F64(p), exponent = bits >> 52 & 2047;
    const ar_u64 finite = (ar_u64)0 - (ar_u64)(exponent - 1 < 2046); /* and not 0: all ones */
    *e += (ar_i64)((exponent - 1022) & finite);
    return ar_from_bits_F64((bits & ~((ar_u64)2047 << 52 & finite)) |
                            ((ar_u64)1022 << 52 & finite));
}

/* s·x for |x| ≥ 2^-960, or 0; that covers every float32. */
AR_FN struct ar_product ar_product_by(struct ar_product s, ar_f64 x)
{
    s.m = ar_fraction(s.m * x, &s.e);
    return s;
}

/* s·x; a tiny x is scaled up first, because m·x might be subnormal. */
AR_FN struct ar_product ar_product_by_any(struct ar_product s, ar_f64 x)
{
    const int tiny = (ar_bits_F64(x) >> 52 & 2047) < 63;
    s.e -= tiny ? 64 : 0;
    return ar_product_by(s, tiny ? x * 18446744073709551616.0 : x);
}

AR_FN struct ar_product ar_product_merge(struct ar_product a, struct ar_product b)
{
    a.e += b.e;
    return ar_product_by(a, b.m);
}

AR_FN ar_f64 ar_power_of_two(ar_i64 e)
{
    return ar_from_bits_F64((ar_u64)(e + 1023) << 52);
}

/* Rounded at most once: the first step stays within range. */
AR_FN ar_f64 ar_product_value(struct ar_product s)
{
    ar_i64 first = s.e < -1000 ? -1000 : s.e > 1000 ? 1000 : s.e, rest = s.e - first;
    rest = rest < -1000 ? -1000 : rest > 1000 ? 1000 : rest;
    return s.m * ar_power_of_two(first) * ar_power_of_two(rest);
}

#endif
