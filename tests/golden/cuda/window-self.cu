#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 256
#define AR_E 1
#define AR_UNROLL 1
#define AR_STEP 1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) const ar_f16 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_f16 c0;
    alignas(8) ar_f16 c1;
    alignas(8) ar_f16 c2;
    alignas(8) ar_f16 c3;
    alignas(8) ar_f16 c4;
    alignas(8) ar_f16 c5;
    alignas(8) ar_f16 c6;
    alignas(8) ar_f16 c7;
    alignas(8) ar_f16 c8;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nx;
    alignas(8) ar_i64 part;
    alignas(8) ar_div parts;
    alignas(8) ar_div div[2];
    alignas(8) ar_f16 * out;
    alignas(8) ar_i64 t0;
};
#define AR_BX 32
#define AR_BY 8
#define AR_R 8
#define AR_BATCH 0
#define AR_ZL 0
#define AR_ZH 0
#define AR_YL 1
#define AR_YH 1
#define AR_XL 2
#define AR_XH 1
#define AR_TX 35
#define AR_TY 66
#define AR_FILL 10
#define AR_BUFFERS 1
#define AR_SELF true
#define AR_RESIDENT 3
#include "compute/kernels/forms/half.cuh"
typedef ar_f16 ar_result;
AR_FN ar_f16 ar_value0(const ar_params &p, const ar_index *i, bool inside)
{
    (void)i;
    (void)inside;
    const ar_f16 v102 = p.in0[i[0] * (ar_index)p.s0_0 + i[1]];
    return v102;
}
struct ar_spot {
    ar_index y0, x0;
    bool inside;
};
AR_FN ar_spot ar_spot_of(const ar_params &p, ar_index y, ar_index x)
{
    ar_spot s;
    s.y0 = ar_bounded<AR_CLAMP>(y, (ar_index)p.ny);
    s.x0 = ar_bounded<AR_CLAMP>(x, (ar_index)p.nx);
    s.inside = y >= 0 && y < (ar_index)p.ny && x >= 0 && x < (ar_index)p.nx;
    return s;
}
struct ar_values {
    ar_f16 v0;
};
struct ar_tiles {
    ar_f16 v0[AR_TX * AR_TY];
};
AR_FN void ar_keep(ar_tiles &t, int n, const ar_values &v)
{
    t.v0[n] = v.v0;
}
AR_FN void ar_produce(const ar_params &p, const ar_at &at, ar_index z, const ar_spot &s, ar_values &v)
{
    (void)at;
    const bool inside = s.inside && z >= 0 && z < (ar_index)p.nz;
    ar_index i[AR_RANK];
    i[0] = s.y0;
    i[1] = s.x0;
    v.v0 = ar_value0(p, i, inside);
}
struct ar_uniform {
};
AR_FN void ar_make_uniform(const ar_params &p, ar_uniform &u)
{
    (void)p;
    (void)u;
}
AR_FN void ar_near_point(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x, ar_index *i)
{
    (void)at;
    (void)z;
    (void)y;
    i[0] = ar_bounded<AR_CLAMP>(y, (ar_index)p.ny);
    i[1] = ar_bounded<AR_CLAMP>(x, (ar_index)p.nx);
}
struct ar_carry {
};
template <bool EDGE> AR_FN void ar_march(const ar_params &p, const ar_at &at, const ar_tiles &t, const ar_uniform &u, ar_carry &c, ar_index s, ar_index y, ar_index x, ar_vec<ar_result, 1> *r)
{
    const int own = (int)threadIdx.x / AR_BX * AR_R * AR_TX + (int)threadIdx.x % AR_BX;
    (void)at;
    (void)u;
    const ar_f16 *t0 = t.v0 + own;
    ar_f16 m0_0_0;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 0, x, i);
        m0_0_0 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_1;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 1, x, i);
        m0_0_1 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_2;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 2, x, i);
        m0_0_2 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_3;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 3, x, i);
        m0_0_3 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_4;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 4, x, i);
        m0_0_4 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_5;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 5, x, i);
        m0_0_5 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_6;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 6, x, i);
        m0_0_6 = ar_value0(p, i, true);
    }
    ar_f16 m0_0_7;
    if (EDGE) {
        ar_index i[AR_RANK];
        ar_near_point(p, at, s - (0), y + 7, x, i);
        m0_0_7 = ar_value0(p, i, true);
    }
    const bool y0 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (-1) >= 0 && y + (-1) < (ar_index)p.ny);
    const bool y1 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (0) >= 0 && y + (0) < (ar_index)p.ny);
    const bool y2 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (1) >= 0 && y + (1) < (ar_index)p.ny);
    const bool y3 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (2) >= 0 && y + (2) < (ar_index)p.ny);
    const bool y4 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (3) >= 0 && y + (3) < (ar_index)p.ny);
    const bool y5 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (4) >= 0 && y + (4) < (ar_index)p.ny);
    const bool y6 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (5) >= 0 && y + (5) < (ar_index)p.ny);
    const bool y7 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (6) >= 0 && y + (6) < (ar_index)p.ny);
    const bool y8 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (7) >= 0 && y + (7) < (ar_index)p.ny);
    const bool y9 = !EDGE || (s >= 0 && s < (ar_index)p.nz && y + (8) >= 0 && y + (8) < (ar_index)p.ny);
    const bool x0 = !EDGE || (x + (-2) >= 0 && x + (-2) < (ar_index)p.nx);
    const bool x1 = !EDGE || (x + (-1) >= 0 && x + (-1) < (ar_index)p.nx);
    const bool x2 = !EDGE || (x + (0) >= 0 && x + (0) < (ar_index)p.nx);
    const bool x3 = !EDGE || (x + (1) >= 0 && x + (1) < (ar_index)p.nx);
    const ar_f16 r0_0_0 = t0[0 * AR_TX + 0];
    const ar_f16 r0_0_1 = t0[0 * AR_TX + 1];
    const ar_f16 r0_0_2 = t0[0 * AR_TX + 2];
    const ar_f16 r0_0_3 = t0[0 * AR_TX + 3];
    const ar_f16 v1_0_0 = !(y0 && x0) ? m0_0_0 : r0_0_0;
    const ar_f16 v5_0_0 = ar_half_MULTIPLY(p.c0, v1_0_0);
    const ar_f16 v7_0_0 = !(y0 && x1) ? m0_0_0 : r0_0_1;
    const ar_f16 v11_0_0 = ar_half_MULTIPLY(p.c1, v7_0_0);
    const ar_f16 v15_0_0 = ar_half_ADD(v5_0_0, v11_0_0);
    const ar_f16 v17_0_0 = !(y0 && x2) ? m0_0_0 : r0_0_2;
    const ar_f16 v21_0_0 = ar_half_MULTIPLY(p.c2, v17_0_0);
    const ar_f16 v25_0_0 = ar_half_ADD(v15_0_0, v21_0_0);
    const ar_f16 v27_0_0 = !(y0 && x3) ? m0_0_0 : r0_0_3;
    const ar_f16 v31_0_0 = ar_half_MULTIPLY(p.c3, v27_0_0);
    const ar_f16 v35_0_0 = ar_half_ADD(v25_0_0, v31_0_0);
    const ar_f16 r0_1_0 = t0[1 * AR_TX + 0];
    const ar_f16 r0_1_1 = t0[1 * AR_TX + 1];
    const ar_f16 r0_1_2 = t0[1 * AR_TX + 2];
    const ar_f16 r0_1_3 = t0[1 * AR_TX + 3];
    const ar_f16 v37_0_0 = !(y1 && x0) ? m0_0_0 : r0_1_0;
    const ar_f16 v41_0_0 = ar_half_MULTIPLY(p.c4, v37_0_0);
    const ar_f16 v45_0_0 = ar_half_ADD(v35_0_0, v41_0_0);
    const ar_f16 v47_0_0 = !(y1 && x1) ? m0_0_0 : r0_1_1;
    const ar_f16 v51_0_0 = ar_half_MULTIPLY(p.c5, v47_0_0);
    const ar_f16 v55_0_0 = ar_half_ADD(v45_0_0, v51_0_0);
    const ar_f16 v57_0_0 = r0_1_2;
    const ar_f16 v61_0_0 = ar_half_MULTIPLY(p.c6, v57_0_0);
    const ar_f16 v65_0_0 = ar_half_ADD(v55_0_0, v61_0_0);
    const ar_f16 v67_0_0 = !(y1 && x3) ? m0_0_0 : r0_1_3;
    const ar_f16 v71_0_0 = ar_half_MULTIPLY(p.c7, v67_0_0);
    const ar_f16 v75_0_0 = ar_half_ADD(v65_0_0, v71_0_0);
    const ar_f16 v1_0_1 = !(y1 && x0) ? m0_0_1 : r0_1_0;
    const ar_f16 v5_0_1 = ar_half_MULTIPLY(p.c0, v1_0_1);
    const ar_f16 v7_0_1 = !(y1 && x1) ? m0_0_1 : r0_1_1;
    const ar_f16 v11_0_1 = ar_half_MULTIPLY(p.c1, v7_0_1);
    const ar_f16 v15_0_1 = ar_half_ADD(v5_0_1, v11_0_1);
    const ar_f16 v17_0_1 = !(y1 && x2) ? m0_0_1 : r0_1_2;
    const ar_f16 v21_0_1 = ar_half_MULTIPLY(p.c2, v17_0_1);
    const ar_f16 v25_0_1 = ar_half_ADD(v15_0_1, v21_0_1);
    const ar_f16 v27_0_1 = !(y1 && x3) ? m0_0_1 : r0_1_3;
    const ar_f16 v31_0_1 = ar_half_MULTIPLY(p.c3, v27_0_1);
    const ar_f16 v35_0_1 = ar_half_ADD(v25_0_1, v31_0_1);
    const ar_f16 r0_2_0 = t0[2 * AR_TX + 0];
    const ar_f16 r0_2_1 = t0[2 * AR_TX + 1];
    const ar_f16 r0_2_2 = t0[2 * AR_TX + 2];
    const ar_f16 r0_2_3 = t0[2 * AR_TX + 3];
    const ar_f16 v77_0_0 = !(y2 && x0) ? m0_0_0 : r0_2_0;
    const ar_f16 v81_0_0 = ar_half_MULTIPLY(p.c8, v77_0_0);
    const ar_f16 v85_0_0 = ar_half_ADD(v75_0_0, v81_0_0);
    const ar_f16 v86_0_0 = !(y2 && x1) ? m0_0_0 : r0_2_1;
    const ar_f16 v89_0_0 = ar_half_MULTIPLY(p.c7, v86_0_0);
    const ar_f16 v93_0_0 = ar_half_ADD(v85_0_0, v89_0_0);
    const ar_f16 v94_0_0 = !(y2 && x2) ? m0_0_0 : r0_2_2;
    const ar_f16 v97_0_0 = ar_half_MULTIPLY(p.c6, v94_0_0);
    const ar_f16 v101_0_0 = ar_half_ADD(v93_0_0, v97_0_0);
    const ar_f16 v102_0_0 = !(y2 && x3) ? m0_0_0 : r0_2_3;
    const ar_f16 v105_0_0 = ar_half_MULTIPLY(p.c5, v102_0_0);
    const ar_f16 v109_0_0 = ar_half_ADD(v101_0_0, v105_0_0);
    const ar_f16 v37_0_1 = !(y2 && x0) ? m0_0_1 : r0_2_0;
    const ar_f16 v41_0_1 = ar_half_MULTIPLY(p.c4, v37_0_1);
    const ar_f16 v45_0_1 = ar_half_ADD(v35_0_1, v41_0_1);
    const ar_f16 v47_0_1 = !(y2 && x1) ? m0_0_1 : r0_2_1;
    const ar_f16 v51_0_1 = ar_half_MULTIPLY(p.c5, v47_0_1);
    const ar_f16 v55_0_1 = ar_half_ADD(v45_0_1, v51_0_1);
    const ar_f16 v57_0_1 = r0_2_2;
    const ar_f16 v61_0_1 = ar_half_MULTIPLY(p.c6, v57_0_1);
    const ar_f16 v65_0_1 = ar_half_ADD(v55_0_1, v61_0_1);
    const ar_f16 v67_0_1 = !(y2 && x3) ? m0_0_1 : r0_2_3;
    const ar_f16 v71_0_1 = ar_half_MULTIPLY(p.c7, v67_0_1);
    const ar_f16 v75_0_1 = ar_half_ADD(v65_0_1, v71_0_1);
    const ar_f16 v1_0_2 = !(y2 && x0) ? m0_0_2 : r0_2_0;
    const ar_f16 v5_0_2 = ar_half_MULTIPLY(p.c0, v1_0_2);
    const ar_f16 v7_0_2 = !(y2 && x1) ? m0_0_2 : r0_2_1;
    const ar_f16 v11_0_2 = ar_half_MULTIPLY(p.c1, v7_0_2);
    const ar_f16 v15_0_2 = ar_half_ADD(v5_0_2, v11_0_2);
    const ar_f16 v17_0_2 = !(y2 && x2) ? m0_0_2 : r0_2_2;
    const ar_f16 v21_0_2 = ar_half_MULTIPLY(p.c2, v17_0_2);
    const ar_f16 v25_0_2 = ar_half_ADD(v15_0_2, v21_0_2);
    const ar_f16 v27_0_2 = !(y2 && x3) ? m0_0_2 : r0_2_3;
    const ar_f16 v31_0_2 = ar_half_MULTIPLY(p.c3, v27_0_2);
    const ar_f16 v35_0_2 = ar_half_ADD(v25_0_2, v31_0_2);
    const ar_f16 r0_3_0 = t0[3 * AR_TX + 0];
    const ar_f16 r0_3_1 = t0[3 * AR_TX + 1];
    const ar_f16 r0_3_2 = t0[3 * AR_TX + 2];
    const ar_f16 r0_3_3 = t0[3 * AR_TX + 3];
    const ar_f16 v77_0_1 = !(y3 && x0) ? m0_0_1 : r0_3_0;
    const ar_f16 v81_0_1 = ar_half_MULTIPLY(p.c8, v77_0_1);
    const ar_f16 v85_0_1 = ar_half_ADD(v75_0_1, v81_0_1);
    const ar_f16 v86_0_1 = !(y3 && x1) ? m0_0_1 : r0_3_1;
    const ar_f16 v89_0_1 = ar_half_MULTIPLY(p.c7, v86_0_1);
    const ar_f16 v93_0_1 = ar_half_ADD(v85_0_1, v89_0_1);
    const ar_f16 v94_0_1 = !(y3 && x2) ? m0_0_1 : r0_3_2;
    const ar_f16 v97_0_1 = ar_half_MULTIPLY(p.c6, v94_0_1);
    const ar_f16 v101_0_1 = ar_half_ADD(v93_0_1, v97_0_1);
    const ar_f16 v102_0_1 = !(y3 && x3) ? m0_0_1 : r0_3_3;
    const ar_f16 v105_0_1 = ar_half_MULTIPLY(p.c5, v102_0_1);
    const ar_f16 v109_0_1 = ar_half_ADD(v101_0_1, v105_0_1);
    const ar_f16 v37_0_2 = !(y3 && x0) ? m0_0_2 : r0_3_0;
    const ar_f16 v41_0_2 = ar_half_MULTIPLY(p.c4, v37_0_2);
    const ar_f16 v45_0_2 = ar_half_ADD(v35_0_2, v41_0_2);
    const ar_f16 v47_0_2 = !(y3 && x1) ? m0_0_2 : r0_3_1;
    const ar_f16 v51_0_2 = ar_half_MULTIPLY(p.c5, v47_0_2);
    const ar_f16 v55_0_2 = ar_half_ADD(v45_0_2, v51_0_2);
    const ar_f16 v57_0_2 = r0_3_2;
    const ar_f16 v61_0_2 = ar_half_MULTIPLY(p.c6, v57_0_2);
    const ar_f16 v65_0_2 = ar_half_ADD(v55_0_2, v61_0_2);
    const ar_f16 v67_0_2 = !(y3 && x3) ? m0_0_2 : r0_3_3;
    const ar_f16 v71_0_2 = ar_half_MULTIPLY(p.c7, v67_0_2);
    const ar_f16 v75_0_2 = ar_half_ADD(v65_0_2, v71_0_2);
    const ar_f16 v1_0_3 = !(y3 && x0) ? m0_0_3 : r0_3_0;
    const ar_f16 v5_0_3 = ar_half_MULTIPLY(p.c0, v1_0_3);
    const ar_f16 v7_0_3 = !(y3 && x1) ? m0_0_3 : r0_3_1;
    const ar_f16 v11_0_3 = ar_half_MULTIPLY(p.c1, v7_0_3);
    const ar_f16 v15_0_3 = ar_half_ADD(v5_0_3, v11_0_3);
    const ar_f16 v17_0_3 = !(y3 && x2) ? m0_0_3 : r0_3_2;
    const ar_f16 v21_0_3 = ar_half_MULTIPLY(p.c2, v17_0_3);
    const ar_f16 v25_0_3 = ar_half_ADD(v15_0_3, v21_0_3);
    const ar_f16 v27_0_3 = !(y3 && x3) ? m0_0_3 : r0_3_3;
    const ar_f16 v31_0_3 = ar_half_MULTIPLY(p.c3, v27_0_3);
    const ar_f16 v35_0_3 = ar_half_ADD(v25_0_3, v31_0_3);
    const ar_f16 r0_4_0 = t0[4 * AR_TX + 0];
    const ar_f16 r0_4_1 = t0[4 * AR_TX + 1];
    const ar_f16 r0_4_2 = t0[4 * AR_TX + 2];
    const ar_f16 r0_4_3 = t0[4 * AR_TX + 3];
    const ar_f16 v77_0_2 = !(y4 && x0) ? m0_0_2 : r0_4_0;
    const ar_f16 v81_0_2 = ar_half_MULTIPLY(p.c8, v77_0_2);
    const ar_f16 v85_0_2 = ar_half_ADD(v75_0_2, v81_0_2);
    const ar_f16 v86_0_2 = !(y4 && x1) ? m0_0_2 : r0_4_1;
    const ar_f16 v89_0_2 = ar_half_MULTIPLY(p.c7, v86_0_2);
    const ar_f16 v93_0_2 = ar_half_ADD(v85_0_2, v89_0_2);
    const ar_f16 v94_0_2 = !(y4 && x2) ? m0_0_2 : r0_4_2;
    const ar_f16 v97_0_2 = ar_half_MULTIPLY(p.c6, v94_0_2);
    const ar_f16 v101_0_2 = ar_half_ADD(v93_0_2, v97_0_2);
    const ar_f16 v102_0_2 = !(y4 && x3) ? m0_0_2 : r0_4_3;
    const ar_f16 v105_0_2 = ar_half_MULTIPLY(p.c5, v102_0_2);
    const ar_f16 v109_0_2 = ar_half_ADD(v101_0_2, v105_0_2);
    const ar_f16 v37_0_3 = !(y4 && x0) ? m0_0_3 : r0_4_0;
    const ar_f16 v41_0_3 = ar_half_MULTIPLY(p.c4, v37_0_3);
    const ar_f16 v45_0_3 = ar_half_ADD(v35_0_3, v41_0_3);
    const ar_f16 v47_0_3 = !(y4 && x1) ? m0_0_3 : r0_4_1;
    const ar_f16 v51_0_3 = ar_half_MULTIPLY(p.c5, v47_0_3);
    const ar_f16 v55_0_3 = ar_half_ADD(v45_0_3, v51_0_3);
    const ar_f16 v57_0_3 = r0_4_2;
    const ar_f16 v61_0_3 = ar_half_MULTIPLY(p.c6, v57_0_3);
    const ar_f16 v65_0_3 = ar_half_ADD(v55_0_3, v61_0_3);
    const ar_f16 v67_0_3 = !(y4 && x3) ? m0_0_3 : r0_4_3;
    const ar_f16 v71_0_3 = ar_half_MULTIPLY(p.c7, v67_0_3);
    const ar_f16 v75_0_3 = ar_half_ADD(v65_0_3, v71_0_3);
    const ar_f16 v1_0_4 = !(y4 && x0) ? m0_0_4 : r0_4_0;
    const ar_f16 v5_0_4 = ar_half_MULTIPLY(p.c0, v1_0_4);
    const ar_f16 v7_0_4 = !(y4 && x1) ? m0_0_4 : r0_4_1;
    const ar_f16 v11_0_4 = ar_half_MULTIPLY(p.c1, v7_0_4);
    const ar_f16 v15_0_4 = ar_half_ADD(v5_0_4, v11_0_4);
    const ar_f16 v17_0_4 = !(y4 && x2) ? m0_0_4 : r0_4_2;
    const ar_f16 v21_0_4 = ar_half_MULTIPLY(p.c2, v17_0_4);
    const ar_f16 v25_0_4 = ar_half_ADD(v15_0_4, v21_0_4);
    const ar_f16 v27_0_4 = !(y4 && x3) ? m0_0_4 : r0_4_3;
    const ar_f16 v31_0_4 = ar_half_MULTIPLY(p.c3, v27_0_4);
    const ar_f16 v35_0_4 = ar_half_ADD(v25_0_4, v31_0_4);
    const ar_f16 r0_5_0 = t0[5 * AR_TX + 0];
    const ar_f16 r0_5_1 = t0[5 * AR_TX + 1];
    const ar_f16 r0_5_2 = t0[5 * AR_TX + 2];
    const ar_f16 r0_5_3 = t0[5 * AR_TX + 3];
    const ar_f16 v77_0_3 = !(y5 && x0) ? m0_0_3 : r0_5_0;
    const ar_f16 v81_0_3 = ar_half_MULTIPLY(p.c8, v77_0_3);
    const ar_f16 v85_0_3 = ar_half_ADD(v75_0_3, v81_0_3);
    const ar_f16 v86_0_3 = !(y5 && x1) ? m0_0_3 : r0_5_1;
    const ar_f16 v89_0_3 = ar_half_MULTIPLY(p.c7, v86_0_3);
    const ar_f16 v93_0_3 = ar_half_ADD(v85_0_3, v89_0_3);
    const ar_f16 v94_0_3 = !(y5 && x2) ? m0_0_3 : r0_5_2;
    const ar_f16 v97_0_3 = ar_half_MULTIPLY(p.c6, v94_0_3);
    const ar_f16 v101_0_3 = ar_half_ADD(v93_0_3, v97_0_3);
    const ar_f16 v102_0_3 = !(y5 && x3) ? m0_0_3 : r0_5_3;
    const ar_f16 v105_0_3 = ar_half_MULTIPLY(p.c5, v102_0_3);
    const ar_f16 v109_0_3 = ar_half_ADD(v101_0_3, v105_0_3);
    const ar_f16 v37_0_4 = !(y5 && x0) ? m0_0_4 : r0_5_0;
    const ar_f16 v41_0_4 = ar_half_MULTIPLY(p.c4, v37_0_4);
    const ar_f16 v45_0_4 = ar_half_ADD(v35_0_4, v41_0_4);
    const ar_f16 v47_0_4 = !(y5 && x1) ? m0_0_4 : r0_5_1;
    const ar_f16 v51_0_4 = ar_half_MULTIPLY(p.c5, v47_0_4);
    const ar_f16 v55_0_4 = ar_half_ADD(v45_0_4, v51_0_4);
    const ar_f16 v57_0_4 = r0_5_2;
    const ar_f16 v61_0_4 = ar_half_MULTIPLY(p.c6, v57_0_4);
    const ar_f16 v65_0_4 = ar_half_ADD(v55_0_4, v61_0_4);
    const ar_f16 v67_0_4 = !(y5 && x3) ? m0_0_4 : r0_5_3;
    const ar_f16 v71_0_4 = ar_half_MULTIPLY(p.c7, v67_0_4);
    const ar_f16 v75_0_4 = ar_half_ADD(v65_0_4, v71_0_4);
    const ar_f16 v1_0_5 = !(y5 && x0) ? m0_0_5 : r0_5_0;
    const ar_f16 v5_0_5 = ar_half_MULTIPLY(p.c0, v1_0_5);
    const ar_f16 v7_0_5 = !(y5 && x1) ? m0_0_5 : r0_5_1;
    const ar_f16 v11_0_5 = ar_half_MULTIPLY(p.c1, v7_0_5);
    const ar_f16 v15_0_5 = ar_half_ADD(v5_0_5, v11_0_5);
    const ar_f16 v17_0_5 = !(y5 && x2) ? m0_0_5 : r0_5_2;
    const ar_f16 v21_0_5 = ar_half_MULTIPLY(p.c2, v17_0_5);
    const ar_f16 v25_0_5 = ar_half_ADD(v15_0_5, v21_0_5);
    const ar_f16 v27_0_5 = !(y5 && x3) ? m0_0_5 : r0_5_3;
    const ar_f16 v31_0_5 = ar_half_MULTIPLY(p.c3, v27_0_5);
    const ar_f16 v35_0_5 = ar_half_ADD(v25_0_5, v31_0_5);
    const ar_f16 r0_6_0 = t0[6 * AR_TX + 0];
    const ar_f16 r0_6_1 = t0[6 * AR_TX + 1];
    const ar_f16 r0_6_2 = t0[6 * AR_TX + 2];
    const ar_f16 r0_6_3 = t0[6 * AR_TX + 3];
    const ar_f16 v77_0_4 = !(y6 && x0) ? m0_0_4 : r0_6_0;
    const ar_f16 v81_0_4 = ar_half_MULTIPLY(p.c8, v77_0_4);
    const ar_f16 v85_0_4 = ar_half_ADD(v75_0_4, v81_0_4);
    const ar_f16 v86_0_4 = !(y6 && x1) ? m0_0_4 : r0_6_1;
    const ar_f16 v89_0_4 = ar_half_MULTIPLY(p.c7, v86_0_4);
    const ar_f16 v93_0_4 = ar_half_ADD(v85_0_4, v89_0_4);
    const ar_f16 v94_0_4 = !(y6 && x2) ? m0_0_4 : r0_6_2;
    const ar_f16 v97_0_4 = ar_half_MULTIPLY(p.c6, v94_0_4);
    const ar_f16 v101_0_4 = ar_half_ADD(v93_0_4, v97_0_4);
    const ar_f16 v102_0_4 = !(y6 && x3) ? m0_0_4 : r0_6_3;
    const ar_f16 v105_0_4 = ar_half_MULTIPLY(p.c5, v102_0_4);
    const ar_f16 v109_0_4 = ar_half_ADD(v101_0_4, v105_0_4);
    const ar_f16 v37_0_5 = !(y6 && x0) ? m0_0_5 : r0_6_0;
    const ar_f16 v41_0_5 = ar_half_MULTIPLY(p.c4, v37_0_5);
    const ar_f16 v45_0_5 = ar_half_ADD(v35_0_5, v41_0_5);
    const ar_f16 v47_0_5 = !(y6 && x1) ? m0_0_5 : r0_6_1;
    const ar_f16 v51_0_5 = ar_half_MULTIPLY(p.c5, v47_0_5);
    const ar_f16 v55_0_5 = ar_half_ADD(v45_0_5, v51_0_5);
    const ar_f16 v57_0_5 = r0_6_2;
    const ar_f16 v61_0_5 = ar_half_MULTIPLY(p.c6, v57_0_5);
    const ar_f16 v65_0_5 = ar_half_ADD(v55_0_5, v61_0_5);
    const ar_f16 v67_0_5 = !(y6 && x3) ? m0_0_5 : r0_6_3;
    const ar_f16 v71_0_5 = ar_half_MULTIPLY(p.c7, v67_0_5);
    const ar_f16 v75_0_5 = ar_half_ADD(v65_0_5, v71_0_5);
    const ar_f16 v1_0_6 = !(y6 && x0) ? m0_0_6 : r0_6_0;
    const ar_f16 v5_0_6 = ar_half_MULTIPLY(p.c0, v1_0_6);
    const ar_f16 v7_0_6 = !(y6 && x1) ? m0_0_6 : r0_6_1;
    const ar_f16 v11_0_6 = ar_half_MULTIPLY(p.c1, v7_0_6);
    const ar_f16 v15_0_6 = ar_half_ADD(v5_0_6, v11_0_6);
    const ar_f16 v17_0_6 = !(y6 && x2) ? m0_0_6 : r0_6_2;
    const ar_f16 v21_0_6 = ar_half_MULTIPLY(p.c2, v17_0_6);
    const ar_f16 v25_0_6 = ar_half_ADD(v15_0_6, v21_0_6);
    const ar_f16 v27_0_6 = !(y6 && x3) ? m0_0_6 : r0_6_3;
    const ar_f16 v31_0_6 = ar_half_MULTIPLY(p.c3, v27_0_6);
    const ar_f16 v35_0_6 = ar_half_ADD(v25_0_6, v31_0_6);
    const ar_f16 r0_7_0 = t0[7 * AR_TX + 0];
    const ar_f16 r0_7_1 = t0[7 * AR_TX + 1];
    const ar_f16 r0_7_2 = t0[7 * AR_TX + 2];
    const ar_f16 r0_7_3 = t0[7 * AR_TX + 3];
    const ar_f16 v77_0_5 = !(y7 && x0) ? m0_0_5 : r0_7_0;
    const ar_f16 v81_0_5 = ar_half_MULTIPLY(p.c8, v77_0_5);
    const ar_f16 v85_0_5 = ar_half_ADD(v75_0_5, v81_0_5);
    const ar_f16 v86_0_5 = !(y7 && x1) ? m0_0_5 : r0_7_1;
    const ar_f16 v89_0_5 = ar_half_MULTIPLY(p.c7, v86_0_5);
    const ar_f16 v93_0_5 = ar_half_ADD(v85_0_5, v89_0_5);
    const ar_f16 v94_0_5 = !(y7 && x2) ? m0_0_5 : r0_7_2;
    const ar_f16 v97_0_5 = ar_half_MULTIPLY(p.c6, v94_0_5);
    const ar_f16 v101_0_5 = ar_half_ADD(v93_0_5, v97_0_5);
    const ar_f16 v102_0_5 = !(y7 && x3) ? m0_0_5 : r0_7_3;
    const ar_f16 v105_0_5 = ar_half_MULTIPLY(p.c5, v102_0_5);
    const ar_f16 v109_0_5 = ar_half_ADD(v101_0_5, v105_0_5);
    const ar_f16 v37_0_6 = !(y7 && x0) ? m0_0_6 : r0_7_0;
    const ar_f16 v41_0_6 = ar_half_MULTIPLY(p.c4, v37_0_6);
    const ar_f16 v45_0_6 = ar_half_ADD(v35_0_6, v41_0_6);
    const ar_f16 v47_0_6 = !(y7 && x1) ? m0_0_6 : r0_7_1;
    const ar_f16 v51_0_6 = ar_half_MULTIPLY(p.c5, v47_0_6);
    const ar_f16 v55_0_6 = ar_half_ADD(v45_0_6, v51_0_6);
    const ar_f16 v57_0_6 = r0_7_2;
    const ar_f16 v61_0_6 = ar_half_MULTIPLY(p.c6, v57_0_6);
    const ar_f16 v65_0_6 = ar_half_ADD(v55_0_6, v61_0_6);
    const ar_f16 v67_0_6 = !(y7 && x3) ? m0_0_6 : r0_7_3;
    const ar_f16 v71_0_6 = ar_half_MULTIPLY(p.c7, v67_0_6);
    const ar_f16 v75_0_6 = ar_half_ADD(v65_0_6, v71_0_6);
    const ar_f16 v1_0_7 = !(y7 && x0) ? m0_0_7 : r0_7_0;
    const ar_f16 v5_0_7 = ar_half_MULTIPLY(p.c0, v1_0_7);
    const ar_f16 v7_0_7 = !(y7 && x1) ? m0_0_7 : r0_7_1;
    const ar_f16 v11_0_7 = ar_half_MULTIPLY(p.c1, v7_0_7);
    const ar_f16 v15_0_7 = ar_half_ADD(v5_0_7, v11_0_7);
    const ar_f16 v17_0_7 = !(y7 && x2) ? m0_0_7 : r0_7_2;
    const ar_f16 v21_0_7 = ar_half_MULTIPLY(p.c2, v17_0_7);
    const ar_f16 v25_0_7 = ar_half_ADD(v15_0_7, v21_0_7);
    const ar_f16 v27_0_7 = !(y7 && x3) ? m0_0_7 : r0_7_3;
    const ar_f16 v31_0_7 = ar_half_MULTIPLY(p.c3, v27_0_7);
    const ar_f16 v35_0_7 = ar_half_ADD(v25_0_7, v31_0_7);
    const ar_f16 r0_8_0 = t0[8 * AR_TX + 0];
    const ar_f16 r0_8_1 = t0[8 * AR_TX + 1];
    const ar_f16 r0_8_2 = t0[8 * AR_TX + 2];
    const ar_f16 r0_8_3 = t0[8 * AR_TX + 3];
    const ar_f16 v77_0_6 = !(y8 && x0) ? m0_0_6 : r0_8_0;
    const ar_f16 v81_0_6 = ar_half_MULTIPLY(p.c8, v77_0_6);
    const ar_f16 v85_0_6 = ar_half_ADD(v75_0_6, v81_0_6);
    const ar_f16 v86_0_6 = !(y8 && x1) ? m0_0_6 : r0_8_1;
    const ar_f16 v89_0_6 = ar_half_MULTIPLY(p.c7, v86_0_6);
    const ar_f16 v93_0_6 = ar_half_ADD(v85_0_6, v89_0_6);
    const ar_f16 v94_0_6 = !(y8 && x2) ? m0_0_6 : r0_8_2;
    const ar_f16 v97_0_6 = ar_half_MULTIPLY(p.c6, v94_0_6);
    const ar_f16 v101_0_6 = ar_half_ADD(v93_0_6, v97_0_6);
    const ar_f16 v102_0_6 = !(y8 && x3) ? m0_0_6 : r0_8_3;
    const ar_f16 v105_0_6 = ar_half_MULTIPLY(p.c5, v102_0_6);
    const ar_f16 v109_0_6 = ar_half_ADD(v101_0_6, v105_0_6);
    const ar_f16 v37_0_7 = !(y8 && x0) ? m0_0_7 : r0_8_0;
    const ar_f16 v41_0_7 = ar_half_MULTIPLY(p.c4, v37_0_7);
    const ar_f16 v45_0_7 = ar_half_ADD(v35_0_7, v41_0_7);
    const ar_f16 v47_0_7 = !(y8 && x1) ? m0_0_7 : r0_8_1;
    const ar_f16 v51_0_7 = ar_half_MULTIPLY(p.c5, v47_0_7);
    const ar_f16 v55_0_7 = ar_half_ADD(v45_0_7, v51_0_7);
    const ar_f16 v57_0_7 = r0_8_2;
    const ar_f16 v61_0_7 = ar_half_MULTIPLY(p.c6, v57_0_7);
    const ar_f16 v65_0_7 = ar_half_ADD(v55_0_7, v61_0_7);
    const ar_f16 v67_0_7 = !(y8 && x3) ? m0_0_7 : r0_8_3;
    const ar_f16 v71_0_7 = ar_half_MULTIPLY(p.c7, v67_0_7);
    const ar_f16 v75_0_7 = ar_half_ADD(v65_0_7, v71_0_7);
    const ar_f16 r0_9_0 = t0[9 * AR_TX + 0];
    const ar_f16 r0_9_1 = t0[9 * AR_TX + 1];
    const ar_f16 r0_9_2 = t0[9 * AR_TX + 2];
    const ar_f16 r0_9_3 = t0[9 * AR_TX + 3];
    const ar_f16 v77_0_7 = !(y9 && x0) ? m0_0_7 : r0_9_0;
    const ar_f16 v81_0_7 = ar_half_MULTIPLY(p.c8, v77_0_7);
    const ar_f16 v85_0_7 = ar_half_ADD(v75_0_7, v81_0_7);
    const ar_f16 v86_0_7 = !(y9 && x1) ? m0_0_7 : r0_9_1;
    const ar_f16 v89_0_7 = ar_half_MULTIPLY(p.c7, v86_0_7);
    const ar_f16 v93_0_7 = ar_half_ADD(v85_0_7, v89_0_7);
    const ar_f16 v94_0_7 = !(y9 && x2) ? m0_0_7 : r0_9_2;
    const ar_f16 v97_0_7 = ar_half_MULTIPLY(p.c6, v94_0_7);
    const ar_f16 v101_0_7 = ar_half_ADD(v93_0_7, v97_0_7);
    const ar_f16 v102_0_7 = !(y9 && x3) ? m0_0_7 : r0_9_3;
    const ar_f16 v105_0_7 = ar_half_MULTIPLY(p.c5, v102_0_7);
    const ar_f16 v109_0_7 = ar_half_ADD(v101_0_7, v105_0_7);
    r[0].v[0] = v109_0_0;
    r[1].v[0] = v109_0_1;
    r[2].v[0] = v109_0_2;
    r[3].v[0] = v109_0_3;
    r[4].v[0] = v109_0_4;
    r[5].v[0] = v109_0_5;
    r[6].v[0] = v109_0_6;
    r[7].v[0] = v109_0_7;
}
AR_FN void ar_place(ar_at &at, ar_index z, ar_index y, ar_index x)
{
    at.i[0] = y;
    at.i[1] = x;
    (void)z;
    (void)y;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
#include "compute/kernels/forms/window.cuh"
