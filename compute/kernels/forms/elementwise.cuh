/* The forms flat and rows: a thread computes AR_UNROLL chunks of AR_E neighbours along the fastest
 * axis. All loads come before any arithmetic. flat is rows with one axis, whose length need not be
 * a multiple of AR_E (AR_TAIL: the last elements are computed one by one).
 *
 * emit.c provides struct ar_params, ar_operands<E>, ar_fetch, ar_point, ar_result, ar_put. */
#ifndef ARRAYD_ELEMENTWISE_CUH
#define ARRAYD_ELEMENTWISE_CUH

/* The indices of a chunk, by number; along the fastest axis, of its first element. */
AR_FN ar_at ar_locate(const ar_params &p, ar_index chunk)
{
    ar_at at;
#pragma unroll
    for (int k = AR_RANK - 1; k > 0; k--) {
        ar_index q = ar_divide(chunk, p.div[k]);
        at.i[k] = chunk - q * (ar_index)p.div[k].divisor;
        chunk = q;
    }
    at.i[0] = chunk;
    at.i[AR_RANK - 1] *= AR_E;
    return at;
}

template <int E>
AR_FN void ar_chunk(const ar_params &p, const ar_at &at, const ar_operands<E> &o)
{
    ar_vec<ar_result, E> r;
#pragma unroll
    for (int e = 0; e < E; e++)
        r.v[e] = ar_point<E>(p, at, o, e);
    ar_put<E>(p, at, r);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    ar_index first = AR_BLOCK_X * (AR_BLOCK * AR_UNROLL) + (ar_index)threadIdx.x;
#if AR_UNROLL == 1 /* the same as below; written out it compiles a tenth faster */
    if (first < (ar_index)p.chunks) {
        ar_operands<AR_E> o;
        const ar_at at = ar_locate(p, first);
        ar_fetch<AR_E>(p, at, o);
        ar_chunk<AR_E>(p, at, o);
    }
#else
    ar_operands<AR_E> o[AR_UNROLL];
    ar_at at[AR_UNROLL];
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++) {
        ar_index chunk = first + u * AR_BLOCK;
        if (chunk < (ar_index)p.chunks) {
            at[u] = ar_locate(p, chunk);
            ar_fetch<AR_E>(p, at[u], o[u]);
        }
    }
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++)
        if (first + u * AR_BLOCK < (ar_index)p.chunks)
            ar_chunk<AR_E>(p, at[u], o[u]);
#endif
#ifdef AR_TAIL
    if (first - (ar_index)threadIdx.x + AR_BLOCK * AR_UNROLL >= (ar_index)p.chunks &&
        threadIdx.x < p.tail) { /* the last block */
        ar_at last;
        ar_operands<1> single;
        last.i[0] = (ar_index)p.chunks * AR_E + (ar_index)threadIdx.x;
        ar_fetch<1>(p, last, single);
        ar_chunk<1>(p, last, single);
    }
#endif
}

#endif
