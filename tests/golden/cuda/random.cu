#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) ar_i64 x0;
    alignas(8) ar_i64 y0;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[1];
    alignas(8) ar_i64 seed0;
    alignas(8) ar_f32 * out;
};
template <int E> struct ar_operands {
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
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
    const ar_i64 v0 = p.x0 + p.y0 * (ar_i64)i[0];
    const ar_f32 v1 = ar_uniform_F32(ar_philox((ar_u64)p.seed0, v0));
    return v1;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/elementwise.cuh"
