#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) const ar_f32 * in1;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[2];
    alignas(8) ar_f32 * out0_;
    alignas(8) ar_i64 t0_0;
    alignas(8) ar_f64 * out1_;
    alignas(8) ar_i64 t1_0;
};
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
    ar_vec<ar_f32, E> l1;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f32, E>(p.in0 + at.i[0] * (ar_index)p.s0_0 + at.i[1]);
    }
    {
    o.l1 = ar_load<ar_f32, E>(p.in1 + at.i[1]);
    }
}
struct ar_result {
    ar_f32 v0;
    ar_f64 v1;
};
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    const ar_f32 v1 = o.l1.v[e];
    const ar_f32 v2 = ar_ADD_F32(v0, v1);
    const ar_f32 v3 = ar_SUBTRACT_F32(v0, v1);
    const ar_f64 v4 = ar_cast_F32_F64(v3);
    ar_result all;
    all.v0 = v2;
    all.v1 = v4;
    return all;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to0_ = 0 + at.i[0] * (ar_index)p.t0_0 + at.i[1];
    ar_vec<ar_f32, E> r0_;
#pragma unroll
    for (int e = 0; e < E; e++)
        r0_.v[e] = r.v[e].v0;
    ar_store<ar_f32, E>(p.out0_ + to0_, r0_);
    const ar_index to1_ = 0 + at.i[0] * (ar_index)p.t1_0 + at.i[1];
    ar_vec<ar_f64, E> r1_;
#pragma unroll
    for (int e = 0; e < E; e++)
        r1_.v[e] = r.v[e].v1;
    ar_store<ar_f64, E>(p.out1_ + to1_, r1_);
}
#include "compute/kernels/forms/elementwise.cuh"
