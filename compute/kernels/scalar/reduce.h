/* Reductions that are a PAIR in reduce.def: how to add an element, and how to merge two states.
 *
 * For each: struct ar_<ID>, the state, four doubles at most; ar_<ID>_begin(), the state of no
 * element; ar_<ID>_take(s, x) adds an element, without branches (the CPU's loops are vectorised);
 * ar_<ID>_merge(a, b); ar_<ID>_end(s, number), the result, `number` as reduce.def says. Merging
 * with a state of no element changes nothing. float32 elements are converted to float64 and the
 * result is rounded at the end.
 *
 * Included by the CPU backend's loops (C) and by generated kernels (CUDA C++). Pure. */
#ifndef ARRAYD_REDUCE_PAIRS_H
#define ARRAYD_REDUCE_PAIRS_H

#include "compute/kernels/scalar/scalar.h"

/* The mean of the numbers; keeps the error of each addition, as a sum of float64 does. */
struct ar_NANMEAN {
    ar_f64 sum, error, n;
};
AR_FN struct ar_NANMEAN ar_NANMEAN_begin(void)
{
    const struct ar_NANMEAN s = {0, 0, 0};
    return s;
}
AR_FN struct ar_NANMEAN ar_NANMEAN_add(struct ar_NANMEAN s, ar_f64 number)
{
    const ar_f64 t = s.sum + number, b = t - s.sum;
    s.error += (s.sum - (t - b)) + (number - b);
    s.sum = t;
    return s;
}
AR_FN struct ar_NANMEAN ar_NANMEAN_take(struct ar_NANMEAN s, ar_f64 x)
{
    s = ar_NANMEAN_add(s, x == x ? x : 0);
    s.n += x == x ? 1 : 0;
    return s;
}
AR_FN struct ar_NANMEAN ar_NANMEAN_merge(struct ar_NANMEAN a, struct ar_NANMEAN b)
{
    a = ar_NANMEAN_add(a, b.sum); /* NaN where infinities of both signs met */
    a.error += b.error;
    a.n += b.n;
    return a;
}
AR_FN ar_f64 ar_NANMEAN_end(struct ar_NANMEAN s, ar_f64 number)
{
    (void)number;
    return (ar_ISFINITE_F64(s.sum) ? s.sum + s.error : s.sum) / s.n;
}

/* The least number, -0 before 0. */
struct ar_NANMIN {
    ar_f64 x;
};
AR_FN struct ar_NANMIN ar_NANMIN_begin(void)
{
    const struct ar_NANMIN s = {AR_NAN};
    return s;
}
AR_FN struct ar_NANMIN ar_NANMIN_take(struct ar_NANMIN s, ar_f64 x)
{
    const int less = (x < s.x) | ((x == s.x) & ((ar_i64)ar_bits_F64(x) < 0));
    s.x = less | (s.x != s.x) ? x : s.x;
    return s;
}
AR_FN struct ar_NANMIN ar_NANMIN_merge(struct ar_NANMIN a, struct ar_NANMIN b)
{
    return ar_NANMIN_take(a, b.x);
}
AR_FN ar_f64 ar_NANMIN_end(struct ar_NANMIN s, ar_f64 number)
{
    (void)number;
    return s.x;
}

/* The greatest number, 0 before -0. */
struct ar_NANMAX {
    ar_f64 x;
};
AR_FN struct ar_NANMAX ar_NANMAX_begin(void)
{
    const struct ar_NANMAX s = {AR_NAN};
    return s;
}
AR_FN struct ar_NANMAX ar_NANMAX_take(struct ar_NANMAX s, ar_f64 x)
{
    const int more = (x > s.x) | ((x == s.x) & ((ar_i64)ar_bits_F64(x) >= 0));
    s.x = more | (s.x != s.x) ? x : s.x;
    return s;
}
AR_FN struct ar_NANMAX ar_NANMAX_merge(struct ar_NANMAX a, struct ar_NANMAX b)
{
    return ar_NANMAX_take(a, b.x);
}
AR_FN ar_f64 ar_NANMAX_end(struct ar_NANMAX s, ar_f64 number)
{
    (void)number;
    return s.x;
}

/* The variance of the numbers, from their distances to the first number of a state; merging two
 * states uses their common mean (Chan, Golub and LeVeque, as in loops_var.c). */
struct ar_NANVAR {
    ar_f64 pivot, n, sum, squares;
};
AR_FN struct ar_NANVAR ar_NANVAR_begin(void)
{
    const struct ar_NANVAR s = {0, 0, 0, 0};
    return s;
}
AR_FN struct ar_NANVAR ar_NANVAR_take(struct ar_NANVAR s, ar_f64 x)
{
    s.pivot = (s.n == 0) & (x == x) ? x : s.pivot;
    const ar_f64 d = x == x ? x - s.pivot : 0;
    s.n += x == x ? 1 : 0;
    s.sum += d;
    s.squares += d * d;
    return s;
}
AR_FN ar_f64 ar_NANVAR_squares(struct ar_NANVAR s)
{
    const ar_f64 q = s.squares - s.sum * (s.sum / s.n);
    return q < 0 ? 0 : q;
}
AR_FN struct ar_NANVAR ar_NANVAR_merge(struct ar_NANVAR a, struct ar_NANVAR b)
{
    if (b.n == 0)
        return a;
    if (a.n == 0)
        return b;
    const ar_f64 n = a.n + b.n, share = b.n / n, mean = a.sum / a.n;
    const ar_f64 apart = b.pivot - a.pivot + (b.sum / b.n - mean), by = mean + apart * share;
    struct ar_NANVAR s = {a.pivot + by, n, 0, 0};
    const ar_f64 c = s.pivot - a.pivot; /* the rounding error of the pivot */
    s.sum = n * ((a.pivot - (s.pivot - c)) + (by - c));
    s.squares = ar_NANVAR_squares(a) + ar_NANVAR_squares(b) + apart * apart * (a.n * share);
    return s;
}
AR_FN ar_f64 ar_NANVAR_end(struct ar_NANVAR s, ar_f64 number)
{
    return s.n - number > 0 ? ar_NANVAR_squares(s) / (s.n - number) : AR_NAN;
}

/* The logarithm of the sum of exponentials, these as parts of that of the greatest element so far:
 * one exponential an element, and none that leaves float64's range. */
struct ar_LOGSUMEXP {
    ar_f64 most, sum;
};
AR_FN struct ar_LOGSUMEXP ar_LOGSUMEXP_begin(void)
{
    const struct ar_LOGSUMEXP s = {-AR_INF, 0};
    return s;
}
AR_FN struct ar_LOGSUMEXP ar_LOGSUMEXP_take(struct ar_LOGSUMEXP s, ar_f64 x)
{
    const ar_f64 d = x == s.most ? 0 : x - s.most; /* also for infinities */
    const ar_f64 e = ar_EXP_F64(ar_from_bits_F64(ar_bits_F64(d) | (ar_u64)1 << 63));
    s.sum = s.sum * (d > 0 ? e : 1) + (d > 0 ? 1 : e);
    s.most = x > s.most ? x : s.most;
    return s;
}
AR_FN struct ar_LOGSUMEXP ar_LOGSUMEXP_merge(struct ar_LOGSUMEXP a, struct ar_LOGSUMEXP b)
{
    const ar_f64 d = b.most == a.most ? 0 : b.most - a.most;
    const ar_f64 e = ar_EXP_F64(ar_from_bits_F64(ar_bits_F64(d) | (ar_u64)1 << 63));
    a.sum = a.sum * (d > 0 ? e : 1) + b.sum * (d > 0 ? 1 : e);
    a.most = b.most > a.most ? b.most : a.most;
    return a;
}
AR_FN ar_f64 ar_LOGSUMEXP_end(struct ar_LOGSUMEXP s, ar_f64 number)
{
    (void)number;
    return s.most + ar_LOG_F64(s.sum);
}

#endif
