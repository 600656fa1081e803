/* The state of argmax and argmin: the best element so far and its index. NaN comes before all
 * others, -0 is 0, and of equal elements the one with the lower index wins. */
#ifndef ARRAYD_BEST_CUH
#define ARRAYD_BEST_CUH

template <typename T> struct ar_best {
    T x;
    ar_index at;
};
/* Whether a comes before b; written so that a NaN costs one comparison of b with itself. */
template <bool LEAST, typename T> AR_FN bool ar_before(T a, T b)
{
    return (LEAST ? !(a >= b) : !(a <= b)) & (b == b);
}
template <bool LEAST, typename T> AR_FN ar_best<T> ar_better(ar_best<T> a, ar_best<T> b)
{
    const bool take = ar_before<LEAST>(b.x, a.x) | (!ar_before<LEAST>(a.x, b.x) & (b.at < a.at));
    return take ? b : a;
}
/* The same if b's index is not the lower one. */
template <bool LEAST, typename T> AR_FN ar_best<T> ar_better_later(ar_best<T> a, ar_best<T> b)
{
    return ar_before<LEAST>(b.x, a.x) ? b : a;
}

#endif
