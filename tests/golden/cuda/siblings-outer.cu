#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 4
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 kept;
    alignas(8) ar_i64 reduced;
    alignas(8) ar_div div[2];
    alignas(8) ar_f32 * out0_;
    alignas(8) ar_f32 * out1_;
    alignas(8) ar_f32 identity0_;
    alignas(8) ar_f32 identity1_;
};
#define AR_LANES 8
#define AR_RESIDENT 4
#define AR_INNER 0
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f32, E>(p.in0 + at.i[0] * (ar_index)p.s0_0 + at.i[1]);
    }
}
struct ar_result {
    ar_f32 v0;
    ar_f32 v1;
};
struct ar_value {
    ar_f32 v0;
    ar_f32 v1;
};
template <int E> AR_FN ar_value ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    ar_value all;
    all.v0 = v0;
    all.v1 = v0;
    return all;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to0_ = 0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out0_[to0_ + e * AR_STEP] = r.v[e].v0;
    const ar_index to1_ = 0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out1_[to1_ + e * AR_STEP] = r.v[e].v1;
}
AR_FN void ar_kept(const ar_params &p, ar_index n, ar_at &at)
{
    ar_index q;
    (void)q;
    (void)n;
    at.i[1] = n * AR_E;
}
AR_FN void ar_reduced(const ar_params &p, ar_index n, ar_at &at)
{
    ar_index q;
    (void)q;
    (void)n;
    at.i[0] = n;
}
AR_FN ar_index ar_position(const ar_params &p, const ar_at &at, int e)
{
    return 0;
}
#include "compute/kernels/forms/extreme.cuh"
struct ar_part0 {
typedef ar_f32 ar_value;
typedef ar_f32 ar_result;
typedef ar_f32 ar_state;
static_assert(sizeof(ar_state) <= 8, "of its scratch");
enum { SEEDS = 0 };
AR_FN ar_state ar_begin(const ar_params &p, const ar_value (&x)[1])
{
    return p.identity0_;
}
AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)
{
    return ar_lesser_F32(s, x);
}
AR_FN ar_state ar_merge(ar_state a, ar_state b)
{
    return ar_lesser_F32(a, b);
}
AR_FN ar_result ar_end(const ar_params &p, ar_state s)
{
    return s;
}
AR_FN ar_state ar_begin_with(const ar_params &p, const ::ar_value *all)
{
    ar_value x[1] = {};
    for (int s = 0; s < SEEDS; s++)
        x[s] = all[s].v0;
    return ar_begin(p, x);
}
};
#include "compute/kernels/forms/extreme.cuh"
struct ar_part1 {
typedef ar_f32 ar_value;
typedef ar_f32 ar_result;
typedef ar_f32 ar_state;
static_assert(sizeof(ar_state) <= 8, "of its scratch");
enum { SEEDS = 0 };
AR_FN ar_state ar_begin(const ar_params &p, const ar_value (&x)[1])
{
    return p.identity1_;
}
AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)
{
    return ar_greater_F32(s, x);
}
AR_FN ar_state ar_merge(ar_state a, ar_state b)
{
    return ar_greater_F32(a, b);
}
AR_FN ar_result ar_end(const ar_params &p, ar_state s)
{
    return s;
}
AR_FN ar_state ar_begin_with(const ar_params &p, const ::ar_value *all)
{
    ar_value x[1] = {};
    for (int s = 0; s < SEEDS; s++)
        x[s] = all[s].v1;
    return ar_begin(p, x);
}
};
#define AR_SEEDS 0
struct ar_state {
    ar_part0::ar_state s0;
    ar_part1::ar_state s1;
};
static_assert(sizeof(ar_state) <= 16, "of its scratch");
AR_FN ar_state ar_begin(const ar_params &p)
{
    return {ar_part0::ar_begin_with(p, nullptr), ar_part1::ar_begin_with(p, nullptr)};
}
AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)
{
    return {ar_part0::ar_take(s.s0, x.v0, at), ar_part1::ar_take(s.s1, x.v1, at)};
}
AR_FN ar_state ar_merge(ar_state a, ar_state b)
{
    return {ar_part0::ar_merge(a.s0, b.s0), ar_part1::ar_merge(a.s1, b.s1)};
}
AR_FN ar_result ar_end(const ar_params &p, ar_state s)
{
    return {ar_part0::ar_end(p, s.s0), ar_part1::ar_end(p, s.s1)};
}
#include "compute/kernels/forms/reduce.cuh"
