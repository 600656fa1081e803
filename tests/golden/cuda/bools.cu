#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 16
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_bool * in0;
    alignas(8) const ar_u8 * in1;
    alignas(8) ar_u8 c0;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[1];
    alignas(8) ar_bool * out;
};
template <int E> struct ar_operands {
    ar_vec<ar_bool, E> l0;
    ar_vec<ar_u8, E> l1;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_bool, E>(p.in0 + at.i[0]);
    }
    {
    o.l1 = ar_load<ar_u8, E>(p.in1 + at.i[0]);
    }
}
typedef ar_bool ar_result;
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_bool v0 = o.l0.v[e];
    const ar_u8 v1 = o.l1.v[e];
    const ar_u8 v2 = p.c0;
    const ar_bool v3 = ar_GREATER_U8(v1, v2);
    const ar_bool v4 = ar_BITWISE_AND_BOOL(v0, v3);
    return v4;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/elementwise.cuh"
