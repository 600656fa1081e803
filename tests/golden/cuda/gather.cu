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
    alignas(8) const ar_i32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) const ar_f32 * in1;
    alignas(8) ar_i64 g1;
    alignas(8) ar_i64 c0;
    alignas(8) ar_i64 c1;
    alignas(8) ar_i64 x0;
    alignas(8) ar_i64 y0;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[2];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
};
template <int E> struct ar_operands {
    ar_vec<ar_i32, E> l0;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_i32, E>(p.in0 + at.i[0] * (ar_index)p.s0_0 + at.i[1]);
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
    const ar_i32 v0 = o.l0.v[e];
    const ar_i64 v1 = ar_cast_I32_I64(v0);
    const ar_i64 v2 = p.c0;
    const ar_bool v3 = ar_LESS_I64(v1, v2);
    const ar_i64 v4 = p.c1;
    const ar_i64 v5 = ar_ADD_I64(v1, v4);
    const ar_i64 v6 = v3 ? v5 : v1;
    const ar_i64 v7 = p.x0 + p.y0 * (ar_i64)i[0];
    const ar_i64 v8 = ar_MULTIPLY_I64(v7, v4);
    const ar_i64 v9 = ar_ADD_I64(v6, v8);
    const ar_f32 v10 = p.in1[ar_inside(v9, p.g1)];
    return v10;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/elementwise.cuh"
