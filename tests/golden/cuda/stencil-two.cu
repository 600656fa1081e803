#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 256
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 s0_1;
    alignas(8) const ar_f32 * in1;
    alignas(8) ar_i64 s1_0;
    alignas(8) ar_i64 s1_1;
    alignas(8) ar_f32 c0;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nx;
    alignas(8) ar_div tiles_z;
    alignas(8) ar_div div[3];
    alignas(8) ar_f32 * out0_;
    alignas(8) ar_i64 t0_0;
    alignas(8) ar_i64 t0_1;
    alignas(8) ar_f32 * out1_;
    alignas(8) ar_i64 t1_0;
    alignas(8) ar_i64 t1_1;
};
#define AR_P 2
#define AR_R 2
#define AR_BATCH 0
AR_FN constexpr bool ar_within(int t, int q)
{
    return t >= 0 && t < AR_P && q >= 0 && q < AR_R;
}
#include "compute/kernels/forms/near.cuh"
struct ar_operands {
    ar_near<ar_f32, 1, 1, 1> n0;
    ar_near<ar_f32, 0, 0, 0> n1;
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
struct ar_need1 {
    AR_FN constexpr bool row(int t, int q)
    {
        return false || ar_within(t - (0), q - (0));
    }
    AR_FN constexpr bool edge(int t, int q)
    {
        return false;
    }
};
AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x, ar_operands &o)
{
    ar_near_load<AR_CLAMP, ar_need0>(o.n0, p.in0, (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    ar_near_load<AR_CLAMP, ar_need1>(o.n1, p.in1, (ar_index)p.s1_0, (ar_index)p.s1_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    __syncwarp();
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
struct ar_result {
    ar_f32 v0;
    ar_f32 v1;
};
AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands &o, int t, int r, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.n0.at(t + (0), r + (0), e, 0);
    const ar_f32 v1 = o.n0.at(t + (1), r + (0), e, 0);
    const ar_f32 v2 = p.c0;
    const ar_f32 v3 = ar_MULTIPLY_F32(v2, v0);
    const ar_f32 v4 = ar_SUBTRACT_F32(v1, v3);
    const ar_f32 v5 = o.n0.at(t + (-1), r + (0), e, 0);
    const ar_f32 v6 = ar_ADD_F32(v4, v5);
    const ar_f32 v7 = o.n0.at(t + (0), r + (1), e, 0);
    const ar_f32 v8 = ar_SUBTRACT_F32(v7, v3);
    const ar_f32 v9 = o.n0.at(t + (0), r + (-1), e, 0);
    const ar_f32 v10 = ar_ADD_F32(v8, v9);
    const ar_f32 v11 = ar_ADD_F32(v6, v10);
    const ar_f32 v12 = o.n0.at(t + (0), r + (0), e, 1);
    const ar_f32 v13 = ar_SUBTRACT_F32(v12, v3);
    const ar_f32 v14 = o.n0.at(t + (0), r + (0), e, -1);
    const ar_f32 v15 = ar_ADD_F32(v13, v14);
    const ar_f32 v16 = ar_ADD_F32(v11, v15);
    const ar_f32 v17 = ar_ADD_F32(v0, v16);
    const ar_f32 v18 = o.n1.at(t + (0), r + (0), e, 0);
    const ar_f32 v19 = ar_SUBTRACT_F32(v0, v18);
    ar_result all;
    all.v0 = v17;
    all.v1 = v19;
    return all;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to0_ = 0 + at.i[0] * (ar_index)p.t0_0 + at.i[1] * (ar_index)p.t0_1 + at.i[2];
    ar_vec<ar_f32, E> r0_;
#pragma unroll
    for (int e = 0; e < E; e++)
        r0_.v[e] = r.v[e].v0;
    ar_store<ar_f32, E>(p.out0_ + to0_, r0_);
    const ar_index to1_ = 0 + at.i[0] * (ar_index)p.t1_0 + at.i[1] * (ar_index)p.t1_1 + at.i[2];
    ar_vec<ar_f32, E> r1_;
#pragma unroll
    for (int e = 0; e < E; e++)
        r1_.v[e] = r.v[e].v1;
    ar_store<ar_f32, E>(p.out1_ + to1_, r1_);
}
#include "compute/kernels/forms/stencil.cuh"
