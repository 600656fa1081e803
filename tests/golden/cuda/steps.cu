#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 32
#define AR_E 8
#define AR_UNROLL 3
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_f32 c0;
    alignas(8) ar_f32 c1;
    alignas(8) ar_i64 nx;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 part;
    alignas(8) ar_f32 * out0;
};
#define AR_T 6
#define AR_LANES 32
#define AR_R 1
#define AR_PIECE 4
#define AR_HALO 8
#define AR_AHEAD 6
#define AR_BLOCKS 8
#define AR_WRAP_SLOW 0 /* the slowest axis wraps */
#define AR_WRAP_Y 0
#define AR_WRAP_X 0
#define AR_ONCE 1
#include "compute/kernels/steps/steps.cuh"
struct ar_levels {
    ar_row<ar_f32> f0;
};
struct ar_paths {
    ar_path<ar_f32> f0;
};
struct ar_shared {
    alignas(16) ar_f32 q0[AR_AHEAD][AR_WIDTH], s0[AR_WIDTH];
};
AR_FN void ar_bring(const ar_window &s, ar_shared &shared, int slot, const ar_paths &w)
{
    ar_bring_pieces(shared.q0[slot], w.f0.from, s);
}
AR_FN void ar_take(const ar_shared &shared, int slot, ar_levels &c)
{
    ar_take_row(c.f0, shared.q0[slot]);
}
AR_FN void ar_put(const ar_params &p, const ar_window &s, const ar_shared &shared, bool whole, ar_paths &w)
{
    ar_put_pieces(w.f0.to, shared.s0, s, whole);
    w.f0.to += (ar_index)p.s0_0;
}
AR_FN void ar_begin(const ar_params &p, const ar_window &s, ar_index from, ar_index to, ar_paths &w)
{
    w.f0.from = p.in0 + from * (ar_index)p.s0_0 + s.in;
    w.f0.to = p.out0 + to * (ar_index)p.s0_0 + s.out;
}
AR_FN void ar_forward(const ar_params &p, ar_index rows, ar_paths &w)
{
    w.f0.from += rows * (ar_index)p.s0_0;
}
AR_FN void ar_bend(bool front, bool back, ar_levels &a, const ar_levels &b, ar_levels &c)
{
    ar_row_bend<AR_CLAMP>(front, back, a.f0, b.f0, c.f0);
}
AR_FN void ar_sides(const ar_span &s, ar_levels &c)
{
    ar_row_sides<AR_CLAMP>(c.f0, s);
}
AR_FN void ar_stage(ar_shared &shared, const ar_levels &c)
{
    ar_stage_row(shared.s0, c.f0);
}
template <bool EDGE>
AR_FN void ar_step(const ar_params &p, const ar_span &s, ar_index n, const ar_levels &a, const ar_levels &b, const ar_levels &c, ar_levels &to)
{
    const bool front = EDGE && !AR_WRAP_SLOW && n == 0;
    const bool back = EDGE && !AR_WRAP_SLOW && n == (ar_index)p.ny - 1;
    (void)n;
    (void)front;
    (void)back;
#pragma unroll
    for (int e = 0; e < AR_E; e++) {
    const ar_f32 v0 = b.f0.v[e + 1 + (0)];
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = c.f0.v[e + 1 + (0)];
    const ar_f32 v3 = p.c1;
    const ar_f32 v4 = ar_MULTIPLY_F32(v3, v0);
    const ar_f32 v5 = ar_SUBTRACT_F32(v2, v4);
    const ar_f32 v6 = a.f0.v[e + 1 + (0)];
    const ar_f32 v7 = ar_ADD_F32(v5, v6);
    const ar_f32 v8 = b.f0.v[e + 1 + (1)];
    const ar_f32 v9 = ar_SUBTRACT_F32(v8, v4);
    const ar_f32 v10 = b.f0.v[e + 1 + (-1)];
    const ar_f32 v11 = ar_ADD_F32(v9, v10);
    const ar_f32 v12 = ar_ADD_F32(v7, v11);
    const ar_f32 v13 = ar_MULTIPLY_F32(v1, v12);
    const ar_f32 v14 = ar_ADD_F32(v0, v13);
        to.f0.v[e + 1] = v14;
    }
}
#include "compute/kernels/steps/steps2d.cuh"
