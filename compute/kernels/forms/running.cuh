/* A running sum of doubles and the error of its additions (Knuth's two-sum), as in the CPU backend.
 */
#ifndef ARRAYD_RUNNING_CUH
#define ARRAYD_RUNNING_CUH

struct ar_running {
    ar_f64 sum, error;
};
struct ar_running2 {
    ar_running re, im;
};
AR_FN ar_running ar_running_add(ar_running r, ar_f64 x)
{
    const ar_f64 s = r.sum + x, b = s - r.sum;
    r.error += (r.sum - (s - b)) + (x - b);
    r.sum = s;
    return r;
}
AR_FN ar_running ar_running_merge(ar_running a, ar_running b)
{
    a = ar_running_add(a, b.sum);
    a.error += b.error;
    return a;
}
/* An infinite sum has a NaN error. (ar_ISFINITE_F64) */
AR_FN ar_f64 ar_running_value(ar_running r)
{
    return ar_ISFINITE_F64(r.sum) ? r.sum + r.error : r.sum;
}

#endif
