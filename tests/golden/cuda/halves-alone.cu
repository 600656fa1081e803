#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 8
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
#include "compute/kernels/forms/half.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f16 * in0;
    alignas(8) ar_f16 c0;
    alignas(8) ar_f16 c1;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[1];
    alignas(8) ar_f16 * out;
};
template <int E> struct ar_operands {
    ar_vec<ar_f16, E> l0;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f16, E>(p.in0 + at.i[0]);
    }
}
typedef ar_f16 ar_result;
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f16 v0 = o.l0.v[e];
    const ar_f32 v1 = ar_cast_F16_F32(v0);
    const ar_f32 v2 = ar_NEGATIVE_F32(v1);
    const ar_f16 v3 = ar_cast_F32_F16(v2);
    const ar_f32 v4 = ar_cast_F16_F32(v3);
    const ar_bool v5 = ar_SIGNBIT_F32(v4);
    const ar_f16 v6 = p.c0;
    const ar_f32 v7 = ar_half_f32(v6);
    const ar_f32 v8 = ar_SUBTRACT_F32(v1, v7);
    const ar_f16 v9 = ar_half_SUBTRACT(v0, v6);
    const ar_f32 v10 = ar_half_f32(v9);
    const ar_f32 v11 = ar_EXP_F32(v10);
    const ar_f16 v12 = ar_half_EXP(v9);
    const ar_f32 v13 = ar_half_f32(v12);
    const ar_f32 v14 = ar_DIVIDE_F32(v13, v1);
    const ar_f16 v15 = ar_half_DIVIDE(v12, v0);
    const ar_f16 v16 = p.c1;
    const ar_f32 v17 = ar_cast_F16_F32(v16);
    const ar_f32 v18 = ar_COPYSIGN_F32(v1, v17);
    const ar_f16 v19 = ar_cast_F32_F16(v18);
    const ar_f16 v20 = v5 ? v15 : v19;
    return v20;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/elementwise.cuh"
