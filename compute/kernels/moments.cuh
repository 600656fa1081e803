/* Variances in one pass: n elements as the sums of their distances from a pivot, one of them, and of
 * the squares of these. Two states meet by the formula of Chan, Golub and LeVeque (Algorithms for
 * computing the sample variance, 1983); what is left has the common mean for a pivot, and the sum of
 * what rounding the pivot lost. As the CPU backend (loops_var.c). */
#ifndef ARRAYD_MOMENTS_CUH
#define ARRAYD_MOMENTS_CUH

struct ar_moments {
    ar_f64 pivot, n, sum, squares;
};
AR_FN ar_moments ar_moments_take(ar_moments s, ar_f64 x)
{
    s.pivot = s.n == 0 ? x : s.pivot;
    const ar_f64 d = x - s.pivot;
    s.n += 1;
    s.sum += d;
    s.squares += d * d;
    return s;
}
/* The same elements around a pivot that is `by` further. */
AR_FN ar_moments ar_moments_moved(ar_f64 pivot, ar_f64 by, ar_f64 n, ar_f64 squares)
{
    const ar_f64 to = pivot + by, b = to - pivot;
    return ar_moments{to, n, n * ((pivot - (to - b)) + (by - b)), squares};
}
AR_FN ar_moments ar_moments_centred(ar_moments s)
{
    const ar_f64 mean = s.sum / s.n;
    return ar_moments_moved(s.pivot, mean, s.n, s.squares - s.sum * mean);
}
AR_FN ar_moments ar_moments_merge(ar_moments a, ar_moments b)
{
    if (b.n == 0)
        return a;
    if (a.n == 0)
        return b;
    a = ar_moments_centred(a);
    b = ar_moments_centred(b);
    const ar_f64 n = a.n + b.n, share = b.n / n;
    const ar_f64 apart = b.pivot - a.pivot + (b.sum / b.n - a.sum / a.n);
    return ar_moments_moved(a.pivot, a.sum / a.n + apart * share, n,
                            a.squares + b.squares + apart * apart * (a.n * share));
}
/* The sum of the squared distances from the mean. */
AR_FN ar_f64 ar_moments_squares(ar_moments s)
{
    return s.n == 0 ? 0 : s.squares - s.sum * (s.sum / s.n);
}

#endif
