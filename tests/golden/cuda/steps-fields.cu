#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 32
#define AR_E 2
#define AR_UNROLL 3
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f64 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) const ar_f64 * in1;
    alignas(8) ar_i64 s1_0;
    alignas(8) const ar_f64 * in2;
    alignas(8) ar_i64 s2_0;
    alignas(8) const ar_f64 * in3;
    alignas(8) ar_f64 c0;
    alignas(8) ar_i64 x0;
    alignas(8) ar_i64 y0;
    alignas(8) ar_i64 nx;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 part;
    alignas(8) ar_f64 * out0;
    alignas(8) ar_f64 * out1;
};
#define AR_T 3
#define AR_LANES 32
#define AR_R 1
#define AR_PIECE 1
#define AR_HALO 3
#define AR_AHEAD 6
#define AR_BLOCKS 12
#define AR_WRAP_SLOW 0 /* the slowest axis wraps */
#define AR_WRAP_Y 0
#define AR_WRAP_X 0
#define AR_ONCE 1
#include "compute/kernels/steps/steps.cuh"
struct ar_levels {
    ar_row<ar_f64> f0;
    ar_row<ar_f64> f1;
};
struct ar_paths {
    ar_path<ar_f64> f0;
    ar_path<ar_f64> f1;
};
struct ar_shared {
    alignas(16) ar_f64 q0[AR_AHEAD][AR_WIDTH], s0[AR_WIDTH];
    alignas(16) ar_f64 q1[AR_AHEAD][AR_WIDTH], s1[AR_WIDTH];
};
AR_FN void ar_bring(const ar_window &s, ar_shared &shared, int slot, const ar_paths &w)
{
    ar_bring_pieces(shared.q0[slot], w.f0.from, s);
    ar_bring_pieces(shared.q1[slot], w.f1.from, s);
}
AR_FN void ar_take(const ar_shared &shared, int slot, ar_levels &c)
{
    ar_take_row(c.f0, shared.q0[slot]);
    ar_take_row(c.f1, shared.q1[slot]);
}
AR_FN void ar_put(const ar_params &p, const ar_window &s, const ar_shared &shared, bool whole, ar_paths &w)
{
    ar_put_pieces(w.f0.to, shared.s0, s, whole);
    w.f0.to += (ar_index)p.s0_0;
    ar_put_pieces(w.f1.to, shared.s1, s, whole);
    w.f1.to += (ar_index)p.s2_0;
}
AR_FN void ar_begin(const ar_params &p, const ar_window &s, ar_index from, ar_index to, ar_paths &w)
{
    w.f0.from = p.in0 + from * (ar_index)p.s0_0 + s.in;
    w.f0.to = p.out0 + to * (ar_index)p.s0_0 + s.out;
    w.f1.from = p.in2 + from * (ar_index)p.s2_0 + s.in;
    w.f1.to = p.out1 + to * (ar_index)p.s2_0 + s.out;
}
AR_FN void ar_forward(const ar_params &p, ar_index rows, ar_paths &w)
{
    w.f0.from += rows * (ar_index)p.s0_0;
    w.f1.from += rows * (ar_index)p.s2_0;
}
AR_FN void ar_bend(bool front, bool back, ar_levels &a, const ar_levels &b, ar_levels &c)
{
    ar_row_bend<AR_CLAMP>(front, back, a.f0, b.f0, c.f0);
}
AR_FN void ar_sides(const ar_span &s, ar_levels &c)
{
    ar_row_sides<AR_CLAMP>(c.f0, s);
    ar_row_sides<AR_CLAMP>(c.f1, s);
}
AR_FN void ar_stage(ar_shared &shared, const ar_levels &c)
{
    ar_stage_row(shared.s0, c.f0);
    ar_stage_row(shared.s1, c.f1);
}
template <bool EDGE>
AR_FN void ar_step(const ar_params &p, const ar_span &s, ar_index n, const ar_levels &a, const ar_levels &b, const ar_levels &c, ar_levels &to)
{
    const bool front = EDGE && !AR_WRAP_SLOW && n == 0;
    const bool back = EDGE && !AR_WRAP_SLOW && n == (ar_index)p.ny - 1;
    (void)n;
    (void)front;
    (void)back;
    ar_index i[AR_RANK];
    i[0] = ar_bounded<AR_WRAP_SLOW ? AR_WRAP : AR_CLAMP>(n, (ar_index)p.ny);
    i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(s, 0);
#pragma unroll
    for (int e = 0; e < AR_E; e++) {
        i[AR_FAST] = ar_inner<AR_E, AR_WRAP_X>(s, e);
        const bool inside1 = true && !back && !(e == 0 && s.first);
        const bool inside2 = true && !(e == AR_E - 1 && s.last);
    const ar_f64 v0 = b.f0.v[e + 1 + (0)];
    const ar_f64 v1 = p.in1[i[0] * (ar_index)p.s1_0 + i[1]];
    const ar_f64 v2 = !inside1 ? b.f0.v[e + 1] : c.f0.v[e + 1 + (-1)];
    const ar_f64 v3 = ar_MULTIPLY_F64(v1, v2);
    const ar_f64 v4 = ar_ADD_F64(v0, v3);
    const ar_f64 v5 = b.f1.v[e + 1 + (0)];
    const ar_i64 v6 = p.x0 + p.y0 * (ar_i64)i[1];
    const ar_f64 v7 = ar_cast_I64_F64(v6);
    const ar_f64 v8 = ar_MULTIPLY_F64(v5, v7);
    const ar_f64 v9 = ar_SUBTRACT_F64(v4, v8);
    const ar_f64 v10 = b.f1.v[e + 1 + (1)];
    const ar_f64 v11 = p.c0;
    const ar_bool v12 = (ar_bool)inside2;
    const ar_f64 v13 = v12 ? v10 : v11;
    const ar_f64 v14 = ar_ADD_F64(v5, v13);
    const ar_f64 v15 = p.in3[i[1]];
    const ar_f64 v16 = b.f0.v[e + 1 + (1)];
    const ar_f64 v17 = ar_MULTIPLY_F64(v15, v16);
    const ar_f64 v18 = ar_ADD_F64(v14, v17);
        to.f0.v[e + 1] = v9;
        to.f1.v[e + 1] = v18;
    }
}
#include "compute/kernels/steps/steps2d.cuh"
