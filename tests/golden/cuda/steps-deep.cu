#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 256
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 s0_1;
    alignas(8) ar_f32 c0;
    alignas(8) ar_f32 c1;
    alignas(8) ar_i64 nx;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 part;
    alignas(8) ar_f32 * out0;
};
#define AR_T 3
#define AR_LANES 16
#define AR_R 5
#define AR_PIECE 4
#define AR_HALO 4
#define AR_AHEAD 2
#define AR_BLOCKS 1
#define AR_WRAP_SLOW 0 /* the slowest axis wraps */
#define AR_WRAP_Y 0
#define AR_WRAP_X 0
#define AR_ONCE 1
#include "compute/kernels/forms/steps.cuh"
#include "compute/kernels/forms/patch.cuh"
struct ar_levels {
    ar_patch<ar_f32> f0;
};
struct ar_shared {
    alignas(16) ar_barrier barrier;
    alignas(16) ar_plane<ar_f32> q0[AR_AHEAD];
    alignas(16) ar_seams<ar_f32> e0[2][AR_T];
};
static_assert(sizeof(ar_shared) <= 90128, "of its launch");
AR_FN void ar_bring(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, ar_index n)
{
    ar_bring_patch(shared.q0[slot], p.in0 + n * (ar_index)p.s0_0, (ar_index)p.s0_1, s);
}
AR_FN void ar_take(const ar_shared &shared, int slot, ar_levels &c)
{
    ar_take_patch(c.f0, shared.q0[slot]);
}
AR_FN void ar_put(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, ar_index n, const ar_levels &c)
{
    ar_put_patch(p.out0 + n * (ar_index)p.s0_0, (ar_index)p.s0_1, shared.q0[slot], c.f0, s);
}
AR_FN void ar_bend(bool front, bool back, ar_levels &a, const ar_levels &b, ar_levels &c)
{
    ar_patch_bend<AR_CLAMP>(front, back, a.f0, b.f0, c.f0);
}
AR_FN void ar_leave(const ar_place &s, ar_shared &shared, int side, int level, const ar_levels &c)
{
    ar_leave_patch(shared.e0[side][level], c.f0, s);
}
template <bool EDGE>
AR_FN void ar_step(const ar_params &p, const ar_place &s, const ar_shared &shared, int side, int level, ar_index n, const ar_levels &a, const ar_levels &b, const ar_levels &c, ar_levels &to)
{
    const bool front = EDGE && !AR_WRAP_SLOW && n == 0;
    const bool back = EDGE && !AR_WRAP_SLOW && n == (ar_index)p.nz - 1;
    (void)n;
    (void)front;
    (void)back;
    ar_vec<ar_f32, AR_E> up0, down0;
    ar_beside<AR_CLAMP>(shared.e0[side][level], b.f0, s, up0, down0);
#pragma unroll
    for (int r = 0; r < AR_R; r++) {
    const ar_vec<ar_f32, AR_E> u0 = r > 0 ? b.f0.v[r > 0 ? r - 1 : 0] : up0, d0 = r + 1 < AR_R ? b.f0.v[r + 1 < AR_R ? r + 1 : r] : down0;
    const ar_row<ar_f32> m0 = ar_row_of<AR_CLAMP>(b.f0.v[r], s.x);
#pragma unroll
    for (int e = 0; e < AR_E; e++) {
    const ar_f32 v0 = b.f0.v[r].v[e];
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = c.f0.v[r].v[e];
    const ar_f32 v3 = p.c1;
    const ar_f32 v4 = ar_MULTIPLY_F32(v3, v0);
    const ar_f32 v5 = ar_SUBTRACT_F32(v2, v4);
    const ar_f32 v6 = a.f0.v[r].v[e];
    const ar_f32 v7 = ar_ADD_F32(v5, v6);
    const ar_f32 v8 = d0.v[e];
    const ar_f32 v9 = ar_SUBTRACT_F32(v8, v4);
    const ar_f32 v10 = u0.v[e];
    const ar_f32 v11 = ar_ADD_F32(v9, v10);
    const ar_f32 v12 = ar_ADD_F32(v7, v11);
    const ar_f32 v13 = m0.v[e + 1 + (1)];
    const ar_f32 v14 = ar_SUBTRACT_F32(v13, v4);
    const ar_f32 v15 = m0.v[e + 1 + (-1)];
    const ar_f32 v16 = ar_ADD_F32(v14, v15);
    const ar_f32 v17 = ar_ADD_F32(v12, v16);
    const ar_f32 v18 = ar_MULTIPLY_F32(v1, v17);
    const ar_f32 v19 = ar_ADD_F32(v0, v18);
        to.f0.v[r].v[e] = v19;
    }
    }
}
#include "compute/kernels/forms/steps3d.cuh"
