#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 128
#define AR_E 1
#define AR_UNROLL 2
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 g0;
    alignas(8) ar_i64 c0;
    alignas(8) ar_i64 x0;
    alignas(8) ar_i64 y0;
    alignas(8) ar_i64 last0;
    alignas(8) ar_i64 table0[8];
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[2];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
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
    const ar_i64 v0 = p.x0 + p.y0 * (ar_i64)i[1];
    const ar_i64 v1 = p.table0[ar_inside(v0, p.last0)];
    const ar_i64 v2 = p.x0 + p.y0 * (ar_i64)i[0];
    const ar_i64 v3 = p.c0;
    const ar_i64 v4 = ar_MULTIPLY_I64(v2, v3);
    const ar_i64 v5 = ar_ADD_I64(v1, v4);
    const ar_f32 v6 = p.in0[ar_inside(v5, p.g0)];
    return v6;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
#include "compute/kernels/forms/elementwise.cuh"
