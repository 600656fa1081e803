#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 128
#define AR_E 1
#define AR_UNROLL 4
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 s0_1;
    alignas(8) ar_i64 b1_0;
    alignas(8) ar_i64 e1_0;
    alignas(8) ar_i64 b1_1;
    alignas(8) ar_i64 e1_1;
    alignas(8) ar_i64 n1_1;
    alignas(8) ar_i64 d1_1;
    alignas(8) ar_i64 b1_2;
    alignas(8) ar_i64 e1_2;
    alignas(8) ar_i64 b2_0;
    alignas(8) ar_i64 e2_0;
    alignas(8) ar_i64 n2_0;
    alignas(8) ar_i64 d2_0;
    alignas(8) ar_i64 b2_1;
    alignas(8) ar_i64 e2_1;
    alignas(8) ar_i64 b2_2;
    alignas(8) ar_i64 e2_2;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[3];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
    alignas(8) ar_i64 t1;
};
AR_FN bool ar_ctx1(const ar_params &p, const ar_index *i, ar_index *q)
{
    bool inside = true;
    ar_index j = 0;
    (void)j;
    const ar_index *b = i;
    ar_index o[3];
    o[0] = (ar_index)p.b1_0 + (ar_index)p.e1_0 * b[0];
    q[0] = o[0];
    o[1] = (ar_index)p.b1_1 + (ar_index)p.e1_1 * b[1];
    j = o[1] + (ar_index)p.d1_1;
    inside = inside && j >= 0 && j < (ar_index)p.n1_1;
    q[1] = ar_bounded<AR_CLAMP>(j, (ar_index)p.n1_1);
    o[2] = (ar_index)p.b1_2 + (ar_index)p.e1_2 * b[2];
    q[2] = o[2];
    q[0] = inside ? q[0] : o[0];
    q[1] = inside ? q[1] : o[1];
    q[2] = inside ? q[2] : o[2];
    return inside;
}
AR_FN bool ar_ctx2(const ar_params &p, const ar_index *i, ar_index *q)
{
    bool inside = true;
    ar_index j = 0;
    (void)j;
    ar_index b[3];
    ar_ctx1(p, i, b);
    ar_index o[3];
    o[0] = (ar_index)p.b2_0 + (ar_index)p.e2_0 * b[0];
    j = o[0] + (ar_index)p.d2_0;
    inside = inside && j >= 0 && j < (ar_index)p.n2_0;
    q[0] = ar_bounded<AR_CLAMP>(j, (ar_index)p.n2_0);
    o[1] = (ar_index)p.b2_1 + (ar_index)p.e2_1 * b[1];
    q[1] = o[1];
    o[2] = (ar_index)p.b2_2 + (ar_index)p.e2_2 * b[2];
    q[2] = o[2];
    q[0] = inside ? q[0] : o[0];
    q[1] = inside ? q[1] : o[1];
    q[2] = inside ? q[2] : o[2];
    return inside;
}
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
    ar_vec<ar_f32, E> l1;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
#pragma unroll
    for (int e = 0; e < E; e++) {
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e;
    ar_index q[3];
    ar_ctx2(p, i, q);
    o.l0.v[e] = p.in0[q[0] * (ar_index)p.s0_0 + q[1] * (ar_index)p.s0_1 + q[2]];
    }
    }
    {
#pragma unroll
    for (int e = 0; e < E; e++) {
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e;
    o.l1.v[e] = p.in0[i[0] * (ar_index)p.s0_0 + i[1] * (ar_index)p.s0_1 + i[2]];
    }
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
    const ar_f32 v1 = o.l1.v[e];
    const ar_f32 v2 = ar_SUBTRACT_F32(v0, v1);
    return v2;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1] * (ar_index)p.t1 + at.i[2];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
#include "compute/kernels/forms/elementwise.cuh"
