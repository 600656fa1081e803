#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 256
#define AR_E 1
#define AR_UNROLL 8
#define AR_STEP 1
#define AR_ALONG 0
#include "compute/kernels/forms/common.cuh"
#include "compute/kernels/forms/running.cuh"
#include "compute/kernels/forms/streamed.cuh"
typedef ar_running ar_carry;
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 kept;
    alignas(8) ar_i64 length;
    alignas(8) ar_i64 rows;
    alignas(8) ar_u64 * mail;
    alignas(8) ar_i64 count[5];
    alignas(8) ar_i64 first[5];
    alignas(8) ar_i64 letters;
    alignas(8) ar_i64 lines;
    alignas(8) ar_i64 stretches;
    alignas(8) ar_i64 ahead;
    alignas(8) ar_i64 since, until, number, join;
    alignas(8) ar_carry * totals;
    alignas(8) ar_div div[2];
    alignas(8) ar_f64 * out;
    alignas(8) ar_i64 t0;
};
#define AR_INNER 1
#define AR_COLUMNS 3
#define AR_SPLIT 1
#define AR_AXIS 0
#define AR_TEAM 8
#define AR_RESIDENT 3
#define AR_JOINED 1
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
};
template <int E, bool LAST = false> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f32, E, LAST>(p.in0 + at.i[0] * (ar_index)p.s0_0 + at.i[1]);
    }
}
typedef ar_f64 ar_result;
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    const ar_f64 v1 = ar_cast_F32_F64(v0);
    return v1;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        ar_leave<ar_result, 1>(p.out + to + e * AR_STEP, {{r.v[e]}});
}
AR_FN void ar_kept(const ar_params &p, ar_index n, ar_at &at)
{
    ar_index q;
    (void)q;
    (void)n;
    at.i[1] = n * AR_E;
}
typedef ar_f64 ar_state;
static_assert(sizeof(ar_carry) == 16, "of its mail");
AR_FN ar_state ar_none(void)
{
    return 0;
}
AR_FN ar_state ar_lift(ar_result x)
{
    return x;
}
AR_FN ar_state ar_join(ar_state a, ar_state b)
{
    return a + b;
}
AR_FN ar_carry ar_begin(void)
{
    return ar_running{0, 0};
}
AR_FN ar_carry ar_carry_add(ar_carry c, ar_state s)
{
    return ar_running_add(c, s);
}
AR_FN ar_carry ar_carry_merge(ar_carry a, ar_carry b)
{
    return ar_running_merge(a, b);
}
AR_FN ar_result ar_end(ar_carry c, ar_state s)
{
    return c.sum + ((ar_ISFINITE_F64(c.sum) ? c.error : 0) + s);
}
#include "compute/kernels/forms/scan.cuh"
