#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG 0
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) const ar_f32 * in1;
    alignas(8) ar_f32 c0;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[1];
    alignas(8) ar_f32 * out;
};
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
    ar_vec<ar_f32, E> l1;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f32, E>(p.in0 + at.i[0]);
    }
    {
    o.l1 = ar_load<ar_f32, E>(p.in1 + at.i[0]);
    }
}
typedef ar_f32 ar_result;
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = ar_MULTIPLY_F32(v0, v1);
    const ar_f32 v3 = o.l1.v[e];
    const ar_f32 v4 = ar_ADD_F32(v2, v3);
    return v4;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/elementwise.cuh"
