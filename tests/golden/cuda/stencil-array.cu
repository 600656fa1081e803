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
    alignas(8) ar_f32 c0;
    alignas(8) ar_bool c1;
    alignas(8) ar_bool c2;
    alignas(8) ar_f32 c3;
    alignas(8) ar_i64 c4;
    alignas(8) ar_i64 c5;
    alignas(8) ar_f64 c6;
    alignas(8) ar_f64 c7;
    alignas(8) ar_i64 x0;
    alignas(8) ar_i64 y0;
    alignas(8) ar_i64 n2_0;
    alignas(8) ar_i64 d2_0;
    alignas(8) ar_i64 n4_1;
    alignas(8) ar_i64 d4_1;
    alignas(8) ar_i64 n6_1;
    alignas(8) ar_i64 d6_1;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nx;
    alignas(8) ar_div tiles_z;
    alignas(8) ar_div div[3];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
    alignas(8) ar_i64 t1;
};
AR_FN bool ar_ctx2(const ar_params &p, const ar_index *i, ar_index *q)
{
    bool inside = true;
    ar_index j = 0;
    (void)j;
    j = i[0] + (ar_index)p.d2_0;
    inside = inside && j >= 0 && j < (ar_index)p.n2_0;
    q[0] = ar_bounded<AR_CLAMP>(j, (ar_index)p.n2_0);
    q[1] = i[1];
    q[2] = i[2];
    return inside;
}
AR_FN bool ar_ctx4(const ar_params &p, const ar_index *i, ar_index *q)
{
    bool inside = true;
    ar_index j = 0;
    (void)j;
    q[0] = i[0];
    j = i[1] + (ar_index)p.d4_1;
    inside = inside && j >= 0 && j < (ar_index)p.n4_1;
    q[1] = ar_bounded<AR_CLAMP>(j, (ar_index)p.n4_1);
    q[2] = i[2];
    return inside;
}
AR_FN bool ar_ctx6(const ar_params &p, const ar_index *i, ar_index *q)
{
    bool inside = true;
    ar_index j = 0;
    (void)j;
    q[0] = i[0];
    j = i[1] + (ar_index)p.d6_1;
    inside = inside && j >= 0 && j < (ar_index)p.n6_1;
    q[1] = ar_bounded<AR_CLAMP>(j, (ar_index)p.n6_1);
    q[2] = i[2];
    return inside;
}
#define AR_P 2
#define AR_R 2
#define AR_BATCH 0
AR_FN constexpr bool ar_within(int t, int q)
{
    return t >= 0 && t < AR_P && q >= 0 && q < AR_R;
}
#include "compute/kernels/forms/near.cuh"
struct ar_operands {
    ar_near<ar_f32, 1, 0, 0> n0;
    ar_near<ar_f32, 1, 1, 0> n1;
    ar_near<ar_f32, 0, 0, 1> n2;
};
struct ar_need0 {
    AR_FN constexpr bool row(int t, int q)
    {
        return false || ar_within(t - (1), q - (0)) || ar_within(t - (0), q - (0));
    }
    AR_FN constexpr bool edge(int t, int q)
    {
        return false;
    }
};
struct ar_need1 {
    AR_FN constexpr bool row(int t, int q)
    {
        return false || ar_within(t - (-1), q - (0)) || ar_within(t - (0), q - (1)) || ar_within(t - (0), q - (-1));
    }
    AR_FN constexpr bool edge(int t, int q)
    {
        return false;
    }
};
struct ar_need2 {
    AR_FN constexpr bool row(int t, int q)
    {
        return false || ar_within(t - (0), q - (0)) || ar_within(t - (0), q - (0));
    }
    AR_FN constexpr bool edge(int t, int q)
    {
        return false || ar_within(t - (0), q - (0)) || ar_within(t - (0), q - (0));
    }
};
AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x, ar_operands &o)
{
    ar_near_load<AR_CLAMP, ar_need0>(o.n0, p.in0, (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    ar_near_load<AR_SYMMETRIC, ar_need1>(o.n1, p.in0, (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    ar_near_load<AR_WRAP, ar_need2>(o.n2, p.in0, (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_index)p.nz, (ar_index)p.ny, (ar_index)p.nx, z, y, x);
    __syncwarp();
    ar_near_exchange<ar_need2>(o.n2, (ar_index)p.nx, x);
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
    ar_index q2[3];
    const bool inside2 = ar_ctx2(p, i, q2);
    (void)inside2;
    ar_index q4[3];
    const bool inside4 = ar_ctx4(p, i, q4);
    (void)inside4;
    ar_index q6[3];
    const bool inside6 = ar_ctx6(p, i, q6);
    (void)inside6;
    const ar_f32 v0 = o.n0.at(t + (1), r + (0), e, 0);
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = o.n0.at(t + (0), r + (0), e, 0);
    const ar_f32 v3 = ar_MULTIPLY_F32(v1, v2);
    const ar_f32 v4 = ar_SUBTRACT_F32(v0, v3);
    const ar_bool v5 = p.c1;
    const ar_bool v6 = p.c2;
    const ar_bool v7 = (ar_bool)inside2;
    const ar_bool v8 = v7 ? v5 : v6;
    const ar_f32 v9 = o.n1.at(t + (-1), r + (0), e, 0);
    const ar_f32 v10 = p.c3;
    const ar_f32 v11 = ar_SUBTRACT_F32(v10, v9);
    const ar_f32 v12 = v7 ? v9 : v11;
    const ar_f32 v13 = ar_ADD_F32(v4, v12);
    const ar_bool v14 = (ar_bool)inside4;
    const ar_bool v15 = v14 ? v5 : v6;
    const ar_f32 v16 = o.n1.at(t + (0), r + (1), e, 0);
    const ar_f32 v17 = ar_SUBTRACT_F32(v1, v16);
    const ar_f32 v18 = v14 ? v16 : v17;
    const ar_f32 v19 = ar_SUBTRACT_F32(v18, v3);
    const ar_bool v20 = (ar_bool)inside6;
    const ar_bool v21 = v20 ? v5 : v6;
    const ar_f32 v22 = o.n1.at(t + (0), r + (-1), e, 0);
    const ar_i64 v23 = p.x0 + p.y0 * (ar_i64)i[1];
    const ar_i64 v24 = p.c4;
    const ar_i64 v25 = ar_MULTIPLY_I64(v23, v24);
    const ar_i64 v26 = p.c5;
    const ar_i64 v27 = ar_ADD_I64(v25, v26);
    const ar_f64 v28 = ar_cast_I64_F64(v27);
    const ar_f64 v29 = p.c6;
    const ar_f64 v30 = ar_MULTIPLY_F64(v28, v29);
    const ar_f64 v31 = p.c7;
    const ar_f64 v32 = ar_MULTIPLY_F64(v30, v31);
    const ar_f32 v33 = ar_cast_F64_F32(v32);
    const ar_f32 v34 = ar_SUBTRACT_F32(v22, v33);
    const ar_f32 v35 = v20 ? v22 : v34;
    const ar_f32 v36 = ar_ADD_F32(v19, v35);
    const ar_f32 v37 = ar_ADD_F32(v13, v36);
    const ar_f32 v38 = o.n2.at(t + (0), r + (0), e, 1);
    const ar_f32 v39 = ar_SUBTRACT_F32(v38, v3);
    const ar_f32 v40 = o.n2.at(t + (0), r + (0), e, -1);
    const ar_f32 v41 = ar_ADD_F32(v39, v40);
    const ar_f32 v42 = ar_ADD_F32(v37, v41);
    return v42;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1] * (ar_index)p.t1 + at.i[2];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/stencil.cuh"
