#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 256
#define AR_E 4
#define AR_UNROLL 2
#define AR_STEP 1
#define AR_ALONG 2
#include "compute/kernels/forms/common.cuh"
struct alignas(64) ar_map {
    ar_u8 opaque[128];
};
struct ar_params {
    alignas(8) ar_i64 from;
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
    ar_map map0;
    alignas(8) ar_u32 * counts;
};
#define AR_T 3
#define AR_LANES 16
#define AR_R 5
#define AR_PIECE 4
#define AR_HALO 4
#define AR_AHEAD 3
#define AR_BLOCKS 1
#define AR_LAG 1
#define AR_BACK 1
#define AR_BESIDE 1
#define AR_MAPS 1
#define AR_PACED 1
#define AR_PATIENCE 64
#define AR_WRAP_SLOW 0 /* the slowest axis wraps */
#define AR_WRAP_Y 0
#define AR_WRAP_X 0
#define AR_ONCE 1 /* no tile is wider than the domain */
#include "compute/kernels/steps/steps.cuh"
#include "compute/kernels/steps/around.cuh"
struct ar_rows {
    ar_vec<ar_f32, AR_E> f0;
};
struct ar_kept {
    ar_patch<ar_f32> f0[2];
};
struct ar_shared {
    ar_barriers barriers;
    alignas(128) ar_plane<ar_f32> q0[AR_SLOTS];
    alignas(128) ar_seams<ar_f32> e0[AR_SIDES][AR_T - 1];
};
static_assert(sizeof(ar_shared) <= 155776, "of its launch");
AR_FN void ar_bring(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, int brief, ar_index n)
{
#if AR_MAPPED
    if (threadIdx.x == 0) {
        ar_expect(shared.barriers, slot, (int)(sizeof *shared.q0));
        ar_fetch(shared.q0[slot], p.map0, s, n, shared.barriers, slot);
    }
#else
    ar_bring_patch(shared.q0[slot], p.in0 + n * (ar_index)p.s0_0, (ar_index)p.s0_1, s);
#endif
}
AR_FN void ar_take(const ar_shared &shared, const ar_march &m, const ar_place &s, int row, ar_rows &x)
{
    x.f0 = ar_take_row3(shared.q0[m.slot[0]], s, row);
}
AR_FN void ar_put(const ar_params &p, const ar_place &s, ar_shared &shared, ar_index n, int row, int turn, bool kept, const ar_rows &x)
{
    ar_put_patch(p.out0 + n * (ar_index)p.s0_0, (ar_index)p.s0_1, (ar_stage<ar_f32> *)0, x.f0, s, row, kept);
    (void)turn;
}
AR_FN void ar_turn(ar_kept &kept)
{
    ar_rotate(kept.f0);
}
template <bool EDGE, int PHASE, int ROW, int LEVEL>
AR_FN void ar_step(const ar_params &p, const ar_place &s, ar_shared &shared, const ar_march &m, ar_index n, ar_kept &kept, ar_rows &x)
{
    constexpr int seam = LEVEL > 0 ? LEVEL - 1 : 0;
    (void)seam;
    ar_around<ar_f32, 1, 1, 1> w0;
    ar_look<LEVEL == 0, EDGE, PHASE, ROW, AR_CLAMP, AR_CLAMP, AR_CLAMP>(w0, kept.f0, x.f0, shared.q0, m.slot, &shared.e0[m.read][seam], s, n, (ar_index)p.nz);
    ar_keep<PHASE, ROW, 1>(kept.f0, x.f0, LEVEL > 0 ? &shared.e0[m.write][seam] : 0, s);
#pragma unroll
    for (int e = 0; e < AR_E; e++) {
    const ar_f32 v0 = w0.z[1].v[e];
    const ar_f32 v1 = p.c0;
    const ar_f32 v2 = w0.z[2].v[e];
    const ar_f32 v3 = p.c1;
    const ar_f32 v4 = ar_MULTIPLY_F32(v3, v0);
    const ar_f32 v5 = ar_SUBTRACT_F32(v2, v4);
    const ar_f32 v6 = w0.z[0].v[e];
    const ar_f32 v7 = ar_ADD_F32(v5, v6);
    const ar_f32 v8 = w0.y[2].v[e];
    const ar_f32 v9 = ar_SUBTRACT_F32(v8, v4);
    const ar_f32 v10 = w0.y[0].v[e];
    const ar_f32 v11 = ar_ADD_F32(v9, v10);
    const ar_f32 v12 = ar_ADD_F32(v7, v11);
    const ar_f32 v13 = w0.x[e + 2];
    const ar_f32 v14 = ar_SUBTRACT_F32(v13, v4);
    const ar_f32 v15 = w0.x[e + 0];
    const ar_f32 v16 = ar_ADD_F32(v14, v15);
    const ar_f32 v17 = ar_ADD_F32(v12, v16);
    const ar_f32 v18 = ar_MULTIPLY_F32(v1, v17);
    const ar_f32 v19 = ar_ADD_F32(v0, v18);
        x.f0.v[e] = v19;
    }
}
#include "compute/kernels/steps/steps3d.cuh"
