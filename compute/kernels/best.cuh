/* The state of argmax and argmin: the best rank so far and where it was. The lower index wins among
 * equals, whatever the order of walking. */
#ifndef ARRAYD_BEST_CUH
#define ARRAYD_BEST_CUH

#include "compute/kernels/rank.h"

template <typename Rank> struct ar_best {
    Rank rank;
    ar_index at;
};
template <typename Rank> AR_FN ar_best<Rank> ar_better(ar_best<Rank> a, ar_best<Rank> b)
{
    return b.rank > a.rank || (b.rank == a.rank && b.at < a.at) ? b : a;
}
/* Loses against any element. */
template <typename Rank> AR_FN ar_best<Rank> ar_nothing(void)
{
    const ar_index last = (ar_index)(~0ul >> (sizeof(ar_index) == 8 ? 1 : 33));
    return ar_best<Rank>{(Rank)(1ul << (8 * sizeof(Rank) - 1)), last};
}

#endif
