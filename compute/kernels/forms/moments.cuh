/* Variances in one pass: the sums of the elements' distances from a pivot and of the squares of
 * these. All states of an output share the pivot, so that two of them simply add. It is the median
 * of three elements. So a single outlier costs no accuracy; if some of n elements lie so far away
 * that two of the three are such outliers, they cost a factor of n at most. */
#ifndef ARRAYD_MOMENTS_CUH
#define ARRAYD_MOMENTS_CUH

struct ar_moments {
    ar_f64 pivot, sum, squares;
};
template <typename T> AR_FN ar_moments ar_moments_begin(const T (&x)[3])
{
    const ar_f64 a = x[0], b = x[1], c = x[2], least = a < b ? a : b, most = a < b ? b : a;
    return ar_moments{c < least ? least : c > most ? most : c, 0, 0};
}
AR_FN ar_moments ar_moments_take(ar_moments s, ar_f64 x)
{
    const ar_f64 d = x - s.pivot;
    s.sum += d;
    s.squares += d * d;
    return s;
}
AR_FN ar_moments ar_moments_merge(ar_moments a, ar_moments b)
{
    a.sum += b.sum;
    a.squares += b.squares;
    return a;
}
/* The sum of the squared distances of n > 0 elements from their mean. */
AR_FN ar_f64 ar_moments_squares(ar_moments s, ar_f64 n)
{
    return s.squares - s.sum * (s.sum / n);
}

#endif
