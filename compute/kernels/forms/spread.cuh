/* Results of elements that lie in the order of the points (scan_any.cuh, and scan_rows.cuh behind a
 * program of the interpreter): an element's number is its only index. The result lies in that order,
 * too, unless it has gaps (p.gaps), or other places than vectors are stored to: then a number is
 * split into indices along p.axes axes. Device text only; emit_scan.c provides the parameters. */
#ifndef ARRAYD_SPREAD_CUH
#define ARRAYD_SPREAD_CUH

AR_FN void ar_put_one(const ar_params &p, ar_index n, const ar_result &x)
{
    ar_index to = n;
    if (p.gaps) {
        to = 0;
#pragma unroll 1
        for (int a = (int)p.axes - 1; a >= 0; a--) {
            const ar_index q = ar_divide(n, p.axis[a]);
            to += (n - q * (ar_index)p.axis[a].divisor) * (ar_index)p.apart[a];
            n = q;
        }
    }
    p.out[to] = x;
}

template <int E>
AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    if (!p.gaps) {
        ar_store<ar_result, E>(p.out + at.i[0], r);
        return;
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        ar_put_one(p, at.i[0] + e, r.v[e]);
}

#endif
