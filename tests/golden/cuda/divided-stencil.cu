#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 256
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG 2
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 s0_1;
    alignas(8) ar_f32 c0;
    alignas(8) ar_f32 c1;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nx;
    alignas(8) ar_div tiles_z;
    alignas(8) ar_div div[3];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
    alignas(8) ar_i64 t1;
};
#define AR_P 4
#define AR_R 2
#define AR_BATCH 0
AR_FN constexpr bool ar_within(int t, int q)
{
    return t >= 0 && t < AR_P && q >= 0 && q < AR_R;
}
#include "compute/kernels/forms/near.cuh"
struct ar_operands {
    ar_near<ar_f32, 1, 1, 1> n0;
};
struct ar_need0 {
    AR_FN constexpr bool row(int t, int q)
    {
        return false || ar_within(t - (0), q - (0)) || ar_within(t - (1), q - (0)) || ar_within(t - (-1), q - (0)) || ar_within(t - (0), q - (1)) || ar_within(t - (0), q - (-1)) || ar_within(t - (0), q - (0)) || ar_within(t - (0), q - (0));
    }
    AR_FN constexpr bool edge(int t, int q)
    {
        return false || ar_within(t - (0), q - (0)) || ar_within(t - (0), q - (0));
    }
};
AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x, ar_operands &o)
{
    ar_near_load<AR_CLAMP, ar_need0>(o.n0, p.in0, (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    __threadfence_block();
    ar_near_exchange<ar_need0>(o.n0, (ar_index)p.nx, x);
}
AR_FN void ar_place(ar_at &at, ar_index z, ar_index y, ar_index x)
{
    at.i[0] = z;
    at.i[1] = y;
    at.i[2] = x;
    (void)z;
    (void)y;
}
typedef ar_f32 ar_result;
AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands &o, int t, int r, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.n0.at(t + (0), r + (0), e, 0);
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = o.n0.at(t + (1), r + (0), e, 0);
    const ar_f32 v3 = p.c1;
    const ar_f32 v4 = ar_MULTIPLY_F32(v3, v0);
    const ar_f32 v5 = ar_SUBTRACT_F32(v2, v4);
    const ar_f32 v6 = o.n0.at(t + (-1), r + (0), e, 0);
    const ar_f32 v7 = ar_ADD_F32(v5, v6);
    const ar_f32 v8 = o.n0.at(t + (0), r + (1), e, 0);
    const ar_f32 v9 = ar_SUBTRACT_F32(v8, v4);
    const ar_f32 v10 = o.n0.at(t + (0), r + (-1), e, 0);
    const ar_f32 v11 = ar_ADD_F32(v9, v10);
    const ar_f32 v12 = ar_ADD_F32(v7, v11);
    const ar_f32 v13 = o.n0.at(t + (0), r + (0), e, 1);
    const ar_f32 v14 = ar_SUBTRACT_F32(v13, v4);
    const ar_f32 v15 = o.n0.at(t + (0), r + (0), e, -1);
    const ar_f32 v16 = ar_ADD_F32(v14, v15);
    const ar_f32 v17 = ar_ADD_F32(v12, v16);
    const ar_f32 v18 = ar_MULTIPLY_F32(v1, v17);
    const ar_f32 v19 = ar_ADD_F32(v0, v18);
    return v19;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1] * (ar_index)p.t1 + at.i[2];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/stencil.cuh"
