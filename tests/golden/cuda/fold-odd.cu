#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 128
#define AR_E 1
#define AR_UNROLL 1
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
    alignas(8) ar_f32 identity1;
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
};
#define AR_LANES 16
#define AR_CHUNKS 7
#define AR_EVEN 0
#define AR_RESIDENT 8
#define AR_HELD 0
template <int E> struct ar_operands {
    ar_vec<ar_f32, E> l0;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
    o.l0 = ar_load<ar_f32, E>(p.in0 + at.i[0] * (ar_index)p.s0_0 + at.i[1]);
    }
}
template <int E> AR_FN void ar_keep(const ar_operands<E> &from, ar_operands<E> &o)
{
    (void)from;
    (void)o;
    o.l0 = from.l0;
}
AR_FN void ar_kept(const ar_params &p, ar_index n, ar_at &at)
{
    ar_index q;
    (void)q;
    (void)n;
    at.i[0] = n;
}
AR_FN void ar_reduced(const ar_params &p, ar_index n, ar_at &at)
{
    ar_index q;
    (void)q;
    (void)n;
    at.i[1] = n * AR_E;
}
AR_FN ar_index ar_position(const ar_params &p, const ar_at &at, int e)
{
    return 0;
}
struct ar_folds {
    ar_f32 f1;
    ar_f32 f4;
};
#define AR_FOLDS(X) X(1, ar_fold1) X(2, ar_fold4)
#define AR_TOGETHER 1
#define AR_MADE 2
typedef ar_vec<ar_f32, AR_E> ar_made;
template <int E> AR_FN ar_f32 ar_make(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_made &w, const ar_folds &h, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    const ar_f32 v1 = h.f1;
    const ar_f32 v2 = ar_SUBTRACT_F32(v0, v1);
    const ar_f32 v3 = ar_EXP_F32(v2);
    return v3;
}
#include "compute/kernels/forms/extreme.cuh"
struct ar_fold1 {
typedef ar_f32 ar_value;
typedef ar_f32 ar_result;
typedef ar_f32 ar_state;
static_assert(sizeof(ar_state) <= 8, "of its scratch");
enum { SEEDS = 0 };
AR_FN ar_state ar_begin(const ar_params &p, const ar_value (&x)[1])
{
    return p.identity1;
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
template <int E> AR_FN ar_value ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_made &w, const ar_folds &h, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v0 = o.l0.v[e];
    return v0;
}
AR_FN void ar_give(ar_folds &h, ar_result r)
{
    h.f1 = r;
}
};
#include "compute/kernels/forms/running.cuh"
struct ar_fold4 {
typedef ar_f32 ar_value;
typedef ar_f32 ar_result;
typedef ar_f64 ar_state;
static_assert(sizeof(ar_state) <= 8, "of its scratch");
enum { SEEDS = 0 };
AR_FN ar_state ar_begin(const ar_params &p, const ar_value (&x)[1])
{
    return 0;
}
AR_FN ar_state ar_take(ar_state s, ar_value x, ar_index at)
{
    return s + ar_cast_F32_F64(x);
}
AR_FN ar_state ar_merge(ar_state a, ar_state b)
{
    return a + b;
}
AR_FN ar_result ar_end(const ar_params &p, ar_state s)
{
    return ar_cast_F64_F32(s);
}
template <int E> AR_FN ar_value ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_made &w, const ar_folds &h, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v3 = w.v[e];
    return v3;
}
AR_FN void ar_give(ar_folds &h, ar_result r)
{
    h.f4 = r;
}
};
#define AR_STORES 1
typedef ar_f32 ar_result;
template <int E, bool EXACT> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, const ar_made &w, const ar_folds &h, int e, bool &odd)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f32 v3 = w.v[e];
    const ar_f32 v4 = h.f4;
    const ar_f32 v5 = ar_DIVIDE_F32(v3, v4);
    ar_result all;
    all = v5;
    return all;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
AR_FN void ar_derive1(const ar_params &p, ar_folds &h)
{
    (void)p;
    (void)h;
}
AR_FN void ar_derive2(const ar_params &p, ar_folds &h)
{
    (void)p;
    (void)h;
}
AR_FN void ar_put_row(const ar_params &p, const ar_at &at, const ar_folds &h)
{
    (void)at;
}
#include "compute/kernels/forms/fold.cuh"
