#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 3
#define AR_FAST 2
#define AR_BLOCK 256
#define AR_E 1
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) ar_i64 s0_1;
    alignas(8) const ar_f32 * in1;
    alignas(8) ar_i64 s1_0;
    alignas(8) ar_i64 s1_1;
    alignas(8) ar_f32 c0;
    alignas(8) ar_f32 c1;
    alignas(8) ar_f32 c2;
    alignas(8) ar_f32 c3;
    alignas(8) ar_f32 c4;
    alignas(8) ar_f32 c5;
    alignas(8) ar_f32 c6;
    alignas(8) ar_f32 c7;
    alignas(8) ar_f32 c8;
    alignas(8) ar_i64 nz;
    alignas(8) ar_i64 ny;
    alignas(8) ar_i64 nx;
    alignas(8) ar_i64 part;
    alignas(8) ar_div parts;
    alignas(8) ar_div div[3];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
    alignas(8) ar_i64 t1;
};
#define AR_BX 32
#define AR_BY 8
#define AR_R 4
#define AR_BATCH 0
#define AR_YL 1
#define AR_YH 1
#define AR_XL 1
#define AR_TX 34
#define AR_TY 34
#define AR_FILL 5
#define AR_SELF 0
#define AR_RESIDENT 3
#define AR_DEEP 1
#define AR_ZL 1
#define AR_ZH 1
#define AR_CHOOSES true
typedef ar_f32 ar_result;
AR_FN ar_f32 ar_value0(const ar_params &p, const ar_index *i, bool inside)
{
    (void)i;
    (void)inside;
    const ar_f32 v3 = p.c1;
    const ar_f32 v5 = p.c2;
    const ar_f32 v157 = p.in1[i[0] * (ar_index)p.s1_0 + i[1] * (ar_index)p.s1_1 + i[2]];
    const ar_f32 v158 = ar_MULTIPLY_F32(v157, v3);
    const ar_bool v159 = (ar_bool)inside;
    const ar_f32 v160 = v159 ? v158 : v5;
    return v160;
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
    ar_vec<ar_f32, AR_E> v0;
};
struct ar_tiles {
    alignas(16) ar_f32 v0[AR_TX * AR_TY];
};
AR_FN void ar_keep(ar_tiles &t, int n, const ar_values &v)
{
    ar_store<ar_f32, AR_E>(t.v0 + n, v.v0);
}
template <bool INNER> AR_FN void ar_produce(const ar_params &p, const ar_at &at, ar_index z, const ar_spot &s, int e, ar_values &v)
{
    (void)at;
    const bool inside = INNER || (s.inside && z >= 0 && z < (ar_index)p.nz);
    ar_index i[AR_RANK];
    i[0] = ar_bounded<AR_CLAMP>(z, (ar_index)p.nz);
    i[1] = s.y0;
    i[2] = s.x0;
    v.v0.v[e] = ar_value0(p, i, inside);
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
    i[0] = ar_bounded<AR_CLAMP>(z, (ar_index)p.nz);
    i[1] = ar_bounded<AR_CLAMP>(y, (ar_index)p.ny);
    i[2] = ar_bounded<AR_CLAMP>(x, (ar_index)p.nx);
}
struct ar_carry {
    ar_f32 v60_1[AR_R * AR_E];
    ar_f32 v114_2[AR_R * AR_E];
};
AR_FN void ar_march(const ar_params &p, const ar_at &at, const ar_tiles &t, const ar_uniform &u, ar_carry &c, int own, ar_index s, ar_index y, ar_index x, ar_vec<ar_result, AR_E> *r)
{
    (void)at;
    (void)u;
    const ar_f32 *t0 = t.v0 + own;
    const ar_f32 v60_1_0 = c.v60_1[0];
    const ar_f32 v60_1_1 = c.v60_1[1];
    const ar_f32 v60_1_2 = c.v60_1[2];
    const ar_f32 v60_1_3 = c.v60_1[3];
    const ar_f32 v114_2_0 = c.v114_2[0];
    const ar_f32 v114_2_1 = c.v114_2[1];
    const ar_f32 v114_2_2 = c.v114_2[2];
    const ar_f32 v114_2_3 = c.v114_2[3];
    ar_index i2_0[AR_RANK];
    ar_near_point(p, at, s - (1), y + 0, x + 0, i2_0);
    ar_index i2_1[AR_RANK];
    ar_near_point(p, at, s - (1), y + 1, x + 0, i2_1);
    ar_index i2_2[AR_RANK];
    ar_near_point(p, at, s - (1), y + 2, x + 0, i2_2);
    ar_index i2_3[AR_RANK];
    ar_near_point(p, at, s - (1), y + 3, x + 0, i2_3);
    const ar_f32 r0_0_0 = t0[0 * AR_TX + 0];
    const ar_f32 r0_0_1 = t0[0 * AR_TX + 1];
    const ar_f32 r0_0_2 = t0[0 * AR_TX + 2];
    const ar_f32 v119_2_0 = ar_MULTIPLY_F32(p.c3, r0_0_0);
    const ar_f32 v120_2_0 = ar_ADD_F32(v114_2_0, v119_2_0);
    const ar_f32 v125_2_0 = ar_MULTIPLY_F32(p.c0, r0_0_1);
    const ar_f32 v126_2_0 = ar_ADD_F32(v120_2_0, v125_2_0);
    const ar_f32 v131_2_0 = ar_MULTIPLY_F32(p.c3, r0_0_2);
    const ar_f32 v132_2_0 = ar_ADD_F32(v126_2_0, v131_2_0);
    const ar_f32 v65_1_0 = ar_MULTIPLY_F32(p.c1, r0_0_0);
    const ar_f32 v66_1_0 = ar_ADD_F32(v60_1_0, v65_1_0);
    const ar_f32 v71_1_0 = ar_MULTIPLY_F32(p.c2, r0_0_1);
    const ar_f32 v72_1_0 = ar_ADD_F32(v66_1_0, v71_1_0);
    const ar_f32 v77_1_0 = ar_MULTIPLY_F32(p.c1, r0_0_2);
    const ar_f32 v78_1_0 = ar_ADD_F32(v72_1_0, v77_1_0);
    const ar_f32 v8_0_0 = ar_MULTIPLY_F32(p.c0, r0_0_0);
    const ar_f32 v13_0_0 = ar_MULTIPLY_F32(p.c1, r0_0_1);
    const ar_f32 v14_0_0 = ar_ADD_F32(v8_0_0, v13_0_0);
    const ar_f32 v19_0_0 = ar_MULTIPLY_F32(p.c0, r0_0_2);
    const ar_f32 v20_0_0 = ar_ADD_F32(v14_0_0, v19_0_0);
    const ar_f32 r0_1_0 = t0[1 * AR_TX + 0];
    const ar_f32 r0_1_1 = t0[1 * AR_TX + 1];
    const ar_f32 r0_1_2 = t0[1 * AR_TX + 2];
    const ar_f32 v137_2_0 = ar_MULTIPLY_F32(p.c1, r0_1_0);
    const ar_f32 v138_2_0 = ar_ADD_F32(v132_2_0, v137_2_0);
    const ar_f32 v143_2_0 = ar_MULTIPLY_F32(p.c6, r0_1_1);
    const ar_f32 v144_2_0 = ar_ADD_F32(v138_2_0, v143_2_0);
    const ar_f32 v149_2_0 = ar_MULTIPLY_F32(p.c1, r0_1_2);
    const ar_f32 v150_2_0 = ar_ADD_F32(v144_2_0, v149_2_0);
    const ar_f32 v119_2_1 = ar_MULTIPLY_F32(p.c3, r0_1_0);
    const ar_f32 v120_2_1 = ar_ADD_F32(v114_2_1, v119_2_1);
    const ar_f32 v125_2_1 = ar_MULTIPLY_F32(p.c0, r0_1_1);
    const ar_f32 v126_2_1 = ar_ADD_F32(v120_2_1, v125_2_1);
    const ar_f32 v131_2_1 = ar_MULTIPLY_F32(p.c3, r0_1_2);
    const ar_f32 v132_2_1 = ar_ADD_F32(v126_2_1, v131_2_1);
    const ar_f32 v84_1_0 = ar_MULTIPLY_F32(p.c7, r0_1_0);
    const ar_f32 v85_1_0 = ar_ADD_F32(v78_1_0, v84_1_0);
    const ar_f32 v89_1_0 = ar_MULTIPLY_F32(p.c8, r0_1_1);
    const ar_f32 v90_1_0 = ar_ADD_F32(v85_1_0, v89_1_0);
    const ar_f32 v95_1_0 = ar_MULTIPLY_F32(p.c7, r0_1_2);
    const ar_f32 v96_1_0 = ar_ADD_F32(v90_1_0, v95_1_0);
    const ar_f32 v65_1_1 = ar_MULTIPLY_F32(p.c1, r0_1_0);
    const ar_f32 v66_1_1 = ar_ADD_F32(v60_1_1, v65_1_1);
    const ar_f32 v71_1_1 = ar_MULTIPLY_F32(p.c2, r0_1_1);
    const ar_f32 v72_1_1 = ar_ADD_F32(v66_1_1, v71_1_1);
    const ar_f32 v77_1_1 = ar_MULTIPLY_F32(p.c1, r0_1_2);
    const ar_f32 v78_1_1 = ar_ADD_F32(v72_1_1, v77_1_1);
    const ar_f32 v25_0_0 = ar_MULTIPLY_F32(p.c2, r0_1_0);
    const ar_f32 v26_0_0 = ar_ADD_F32(v20_0_0, v25_0_0);
    const ar_f32 v32_0_0 = ar_MULTIPLY_F32(p.c3, r0_1_1);
    const ar_f32 v33_0_0 = ar_ADD_F32(v26_0_0, v32_0_0);
    const ar_f32 v39_0_0 = ar_MULTIPLY_F32(p.c4, r0_1_2);
    const ar_f32 v40_0_0 = ar_ADD_F32(v33_0_0, v39_0_0);
    const ar_f32 v8_0_1 = ar_MULTIPLY_F32(p.c0, r0_1_0);
    const ar_f32 v13_0_1 = ar_MULTIPLY_F32(p.c1, r0_1_1);
    const ar_f32 v14_0_1 = ar_ADD_F32(v8_0_1, v13_0_1);
    const ar_f32 v19_0_1 = ar_MULTIPLY_F32(p.c0, r0_1_2);
    const ar_f32 v20_0_1 = ar_ADD_F32(v14_0_1, v19_0_1);
    const ar_f32 r0_2_0 = t0[2 * AR_TX + 0];
    const ar_f32 r0_2_1 = t0[2 * AR_TX + 1];
    const ar_f32 r0_2_2 = t0[2 * AR_TX + 2];
    const ar_f32 v0_2_0 = p.in0[i2_0[0] * (ar_index)p.s0_0 + i2_0[1] * (ar_index)p.s0_1 + i2_0[2]];
    const ar_f32 v155_2_0 = ar_MULTIPLY_F32(p.c4, r0_2_0);
    const ar_f32 v156_2_0 = ar_ADD_F32(v150_2_0, v155_2_0);
    const ar_f32 v161_2_0 = ar_MULTIPLY_F32(p.c4, r0_2_2);
    const ar_f32 v162_2_0 = ar_ADD_F32(v156_2_0, v161_2_0);
    const ar_f32 v163_2_0 = ar_ADD_F32(v0_2_0, v162_2_0);
    const ar_f32 v137_2_1 = ar_MULTIPLY_F32(p.c1, r0_2_0);
    const ar_f32 v138_2_1 = ar_ADD_F32(v132_2_1, v137_2_1);
    const ar_f32 v143_2_1 = ar_MULTIPLY_F32(p.c6, r0_2_1);
    const ar_f32 v144_2_1 = ar_ADD_F32(v138_2_1, v143_2_1);
    const ar_f32 v149_2_1 = ar_MULTIPLY_F32(p.c1, r0_2_2);
    const ar_f32 v150_2_1 = ar_ADD_F32(v144_2_1, v149_2_1);
    const ar_f32 v119_2_2 = ar_MULTIPLY_F32(p.c3, r0_2_0);
    const ar_f32 v120_2_2 = ar_ADD_F32(v114_2_2, v119_2_2);
    const ar_f32 v125_2_2 = ar_MULTIPLY_F32(p.c0, r0_2_1);
    const ar_f32 v126_2_2 = ar_ADD_F32(v120_2_2, v125_2_2);
    const ar_f32 v131_2_2 = ar_MULTIPLY_F32(p.c3, r0_2_2);
    const ar_f32 v132_2_2 = ar_ADD_F32(v126_2_2, v131_2_2);
    const ar_f32 v101_1_0 = ar_MULTIPLY_F32(p.c2, r0_2_0);
    const ar_f32 v102_1_0 = ar_ADD_F32(v96_1_0, v101_1_0);
    const ar_f32 v107_1_0 = ar_MULTIPLY_F32(p.c0, r0_2_1);
    const ar_f32 v108_1_0 = ar_ADD_F32(v102_1_0, v107_1_0);
    const ar_f32 v113_1_0 = ar_MULTIPLY_F32(p.c2, r0_2_2);
    const ar_f32 v114_1_0 = ar_ADD_F32(v108_1_0, v113_1_0);
    const ar_f32 v84_1_1 = ar_MULTIPLY_F32(p.c7, r0_2_0);
    const ar_f32 v85_1_1 = ar_ADD_F32(v78_1_1, v84_1_1);
    const ar_f32 v89_1_1 = ar_MULTIPLY_F32(p.c8, r0_2_1);
    const ar_f32 v90_1_1 = ar_ADD_F32(v85_1_1, v89_1_1);
    const ar_f32 v95_1_1 = ar_MULTIPLY_F32(p.c7, r0_2_2);
    const ar_f32 v96_1_1 = ar_ADD_F32(v90_1_1, v95_1_1);
    const ar_f32 v65_1_2 = ar_MULTIPLY_F32(p.c1, r0_2_0);
    const ar_f32 v66_1_2 = ar_ADD_F32(v60_1_2, v65_1_2);
    const ar_f32 v71_1_2 = ar_MULTIPLY_F32(p.c2, r0_2_1);
    const ar_f32 v72_1_2 = ar_ADD_F32(v66_1_2, v71_1_2);
    const ar_f32 v77_1_2 = ar_MULTIPLY_F32(p.c1, r0_2_2);
    const ar_f32 v78_1_2 = ar_ADD_F32(v72_1_2, v77_1_2);
    const ar_f32 v46_0_0 = ar_MULTIPLY_F32(p.c5, r0_2_0);
    const ar_f32 v47_0_0 = ar_ADD_F32(v40_0_0, v46_0_0);
    const ar_f32 v53_0_0 = ar_MULTIPLY_F32(p.c6, r0_2_1);
    const ar_f32 v54_0_0 = ar_ADD_F32(v47_0_0, v53_0_0);
    const ar_f32 v59_0_0 = ar_MULTIPLY_F32(p.c5, r0_2_2);
    const ar_f32 v60_0_0 = ar_ADD_F32(v54_0_0, v59_0_0);
    const ar_f32 v25_0_1 = ar_MULTIPLY_F32(p.c2, r0_2_0);
    const ar_f32 v26_0_1 = ar_ADD_F32(v20_0_1, v25_0_1);
    const ar_f32 v32_0_1 = ar_MULTIPLY_F32(p.c3, r0_2_1);
    const ar_f32 v33_0_1 = ar_ADD_F32(v26_0_1, v32_0_1);
    const ar_f32 v39_0_1 = ar_MULTIPLY_F32(p.c4, r0_2_2);
    const ar_f32 v40_0_1 = ar_ADD_F32(v33_0_1, v39_0_1);
    const ar_f32 v8_0_2 = ar_MULTIPLY_F32(p.c0, r0_2_0);
    const ar_f32 v13_0_2 = ar_MULTIPLY_F32(p.c1, r0_2_1);
    const ar_f32 v14_0_2 = ar_ADD_F32(v8_0_2, v13_0_2);
    const ar_f32 v19_0_2 = ar_MULTIPLY_F32(p.c0, r0_2_2);
    const ar_f32 v20_0_2 = ar_ADD_F32(v14_0_2, v19_0_2);
    const ar_f32 r0_3_0 = t0[3 * AR_TX + 0];
    const ar_f32 r0_3_1 = t0[3 * AR_TX + 1];
    const ar_f32 r0_3_2 = t0[3 * AR_TX + 2];
    const ar_f32 v0_2_1 = p.in0[i2_1[0] * (ar_index)p.s0_0 + i2_1[1] * (ar_index)p.s0_1 + i2_1[2]];
    const ar_f32 v155_2_1 = ar_MULTIPLY_F32(p.c4, r0_3_0);
    const ar_f32 v156_2_1 = ar_ADD_F32(v150_2_1, v155_2_1);
    const ar_f32 v161_2_1 = ar_MULTIPLY_F32(p.c4, r0_3_2);
    const ar_f32 v162_2_1 = ar_ADD_F32(v156_2_1, v161_2_1);
    const ar_f32 v163_2_1 = ar_ADD_F32(v0_2_1, v162_2_1);
    const ar_f32 v137_2_2 = ar_MULTIPLY_F32(p.c1, r0_3_0);
    const ar_f32 v138_2_2 = ar_ADD_F32(v132_2_2, v137_2_2);
    const ar_f32 v143_2_2 = ar_MULTIPLY_F32(p.c6, r0_3_1);
    const ar_f32 v144_2_2 = ar_ADD_F32(v138_2_2, v143_2_2);
    const ar_f32 v149_2_2 = ar_MULTIPLY_F32(p.c1, r0_3_2);
    const ar_f32 v150_2_2 = ar_ADD_F32(v144_2_2, v149_2_2);
    const ar_f32 v119_2_3 = ar_MULTIPLY_F32(p.c3, r0_3_0);
    const ar_f32 v120_2_3 = ar_ADD_F32(v114_2_3, v119_2_3);
    const ar_f32 v125_2_3 = ar_MULTIPLY_F32(p.c0, r0_3_1);
    const ar_f32 v126_2_3 = ar_ADD_F32(v120_2_3, v125_2_3);
    const ar_f32 v131_2_3 = ar_MULTIPLY_F32(p.c3, r0_3_2);
    const ar_f32 v132_2_3 = ar_ADD_F32(v126_2_3, v131_2_3);
    const ar_f32 v101_1_1 = ar_MULTIPLY_F32(p.c2, r0_3_0);
    const ar_f32 v102_1_1 = ar_ADD_F32(v96_1_1, v101_1_1);
    const ar_f32 v107_1_1 = ar_MULTIPLY_F32(p.c0, r0_3_1);
    const ar_f32 v108_1_1 = ar_ADD_F32(v102_1_1, v107_1_1);
    const ar_f32 v113_1_1 = ar_MULTIPLY_F32(p.c2, r0_3_2);
    const ar_f32 v114_1_1 = ar_ADD_F32(v108_1_1, v113_1_1);
    const ar_f32 v84_1_2 = ar_MULTIPLY_F32(p.c7, r0_3_0);
    const ar_f32 v85_1_2 = ar_ADD_F32(v78_1_2, v84_1_2);
    const ar_f32 v89_1_2 = ar_MULTIPLY_F32(p.c8, r0_3_1);
    const ar_f32 v90_1_2 = ar_ADD_F32(v85_1_2, v89_1_2);
    const ar_f32 v95_1_2 = ar_MULTIPLY_F32(p.c7, r0_3_2);
    const ar_f32 v96_1_2 = ar_ADD_F32(v90_1_2, v95_1_2);
    const ar_f32 v65_1_3 = ar_MULTIPLY_F32(p.c1, r0_3_0);
    const ar_f32 v66_1_3 = ar_ADD_F32(v60_1_3, v65_1_3);
    const ar_f32 v71_1_3 = ar_MULTIPLY_F32(p.c2, r0_3_1);
    const ar_f32 v72_1_3 = ar_ADD_F32(v66_1_3, v71_1_3);
    const ar_f32 v77_1_3 = ar_MULTIPLY_F32(p.c1, r0_3_2);
    const ar_f32 v78_1_3 = ar_ADD_F32(v72_1_3, v77_1_3);
    const ar_f32 v46_0_1 = ar_MULTIPLY_F32(p.c5, r0_3_0);
    const ar_f32 v47_0_1 = ar_ADD_F32(v40_0_1, v46_0_1);
    const ar_f32 v53_0_1 = ar_MULTIPLY_F32(p.c6, r0_3_1);
    const ar_f32 v54_0_1 = ar_ADD_F32(v47_0_1, v53_0_1);
    const ar_f32 v59_0_1 = ar_MULTIPLY_F32(p.c5, r0_3_2);
    const ar_f32 v60_0_1 = ar_ADD_F32(v54_0_1, v59_0_1);
    const ar_f32 v25_0_2 = ar_MULTIPLY_F32(p.c2, r0_3_0);
    const ar_f32 v26_0_2 = ar_ADD_F32(v20_0_2, v25_0_2);
    const ar_f32 v32_0_2 = ar_MULTIPLY_F32(p.c3, r0_3_1);
    const ar_f32 v33_0_2 = ar_ADD_F32(v26_0_2, v32_0_2);
    const ar_f32 v39_0_2 = ar_MULTIPLY_F32(p.c4, r0_3_2);
    const ar_f32 v40_0_2 = ar_ADD_F32(v33_0_2, v39_0_2);
    const ar_f32 v8_0_3 = ar_MULTIPLY_F32(p.c0, r0_3_0);
    const ar_f32 v13_0_3 = ar_MULTIPLY_F32(p.c1, r0_3_1);
    const ar_f32 v14_0_3 = ar_ADD_F32(v8_0_3, v13_0_3);
    const ar_f32 v19_0_3 = ar_MULTIPLY_F32(p.c0, r0_3_2);
    const ar_f32 v20_0_3 = ar_ADD_F32(v14_0_3, v19_0_3);
    const ar_f32 r0_4_0 = t0[4 * AR_TX + 0];
    const ar_f32 r0_4_1 = t0[4 * AR_TX + 1];
    const ar_f32 r0_4_2 = t0[4 * AR_TX + 2];
    const ar_f32 v0_2_2 = p.in0[i2_2[0] * (ar_index)p.s0_0 + i2_2[1] * (ar_index)p.s0_1 + i2_2[2]];
    const ar_f32 v155_2_2 = ar_MULTIPLY_F32(p.c4, r0_4_0);
    const ar_f32 v156_2_2 = ar_ADD_F32(v150_2_2, v155_2_2);
    const ar_f32 v161_2_2 = ar_MULTIPLY_F32(p.c4, r0_4_2);
    const ar_f32 v162_2_2 = ar_ADD_F32(v156_2_2, v161_2_2);
    const ar_f32 v163_2_2 = ar_ADD_F32(v0_2_2, v162_2_2);
    const ar_f32 v137_2_3 = ar_MULTIPLY_F32(p.c1, r0_4_0);
    const ar_f32 v138_2_3 = ar_ADD_F32(v132_2_3, v137_2_3);
    const ar_f32 v143_2_3 = ar_MULTIPLY_F32(p.c6, r0_4_1);
    const ar_f32 v144_2_3 = ar_ADD_F32(v138_2_3, v143_2_3);
    const ar_f32 v149_2_3 = ar_MULTIPLY_F32(p.c1, r0_4_2);
    const ar_f32 v150_2_3 = ar_ADD_F32(v144_2_3, v149_2_3);
    const ar_f32 v101_1_2 = ar_MULTIPLY_F32(p.c2, r0_4_0);
    const ar_f32 v102_1_2 = ar_ADD_F32(v96_1_2, v101_1_2);
    const ar_f32 v107_1_2 = ar_MULTIPLY_F32(p.c0, r0_4_1);
    const ar_f32 v108_1_2 = ar_ADD_F32(v102_1_2, v107_1_2);
    const ar_f32 v113_1_2 = ar_MULTIPLY_F32(p.c2, r0_4_2);
    const ar_f32 v114_1_2 = ar_ADD_F32(v108_1_2, v113_1_2);
    const ar_f32 v84_1_3 = ar_MULTIPLY_F32(p.c7, r0_4_0);
    const ar_f32 v85_1_3 = ar_ADD_F32(v78_1_3, v84_1_3);
    const ar_f32 v89_1_3 = ar_MULTIPLY_F32(p.c8, r0_4_1);
    const ar_f32 v90_1_3 = ar_ADD_F32(v85_1_3, v89_1_3);
    const ar_f32 v95_1_3 = ar_MULTIPLY_F32(p.c7, r0_4_2);
    const ar_f32 v96_1_3 = ar_ADD_F32(v90_1_3, v95_1_3);
    const ar_f32 v46_0_2 = ar_MULTIPLY_F32(p.c5, r0_4_0);
    const ar_f32 v47_0_2 = ar_ADD_F32(v40_0_2, v46_0_2);
    const ar_f32 v53_0_2 = ar_MULTIPLY_F32(p.c6, r0_4_1);
    const ar_f32 v54_0_2 = ar_ADD_F32(v47_0_2, v53_0_2);
    const ar_f32 v59_0_2 = ar_MULTIPLY_F32(p.c5, r0_4_2);
    const ar_f32 v60_0_2 = ar_ADD_F32(v54_0_2, v59_0_2);
    const ar_f32 v25_0_3 = ar_MULTIPLY_F32(p.c2, r0_4_0);
    const ar_f32 v26_0_3 = ar_ADD_F32(v20_0_3, v25_0_3);
    const ar_f32 v32_0_3 = ar_MULTIPLY_F32(p.c3, r0_4_1);
    const ar_f32 v33_0_3 = ar_ADD_F32(v26_0_3, v32_0_3);
    const ar_f32 v39_0_3 = ar_MULTIPLY_F32(p.c4, r0_4_2);
    const ar_f32 v40_0_3 = ar_ADD_F32(v33_0_3, v39_0_3);
    const ar_f32 r0_5_0 = t0[5 * AR_TX + 0];
    const ar_f32 r0_5_1 = t0[5 * AR_TX + 1];
    const ar_f32 r0_5_2 = t0[5 * AR_TX + 2];
    const ar_f32 v0_2_3 = p.in0[i2_3[0] * (ar_index)p.s0_0 + i2_3[1] * (ar_index)p.s0_1 + i2_3[2]];
    const ar_f32 v155_2_3 = ar_MULTIPLY_F32(p.c4, r0_5_0);
    const ar_f32 v156_2_3 = ar_ADD_F32(v150_2_3, v155_2_3);
    const ar_f32 v161_2_3 = ar_MULTIPLY_F32(p.c4, r0_5_2);
    const ar_f32 v162_2_3 = ar_ADD_F32(v156_2_3, v161_2_3);
    const ar_f32 v163_2_3 = ar_ADD_F32(v0_2_3, v162_2_3);
    const ar_f32 v101_1_3 = ar_MULTIPLY_F32(p.c2, r0_5_0);
    const ar_f32 v102_1_3 = ar_ADD_F32(v96_1_3, v101_1_3);
    const ar_f32 v107_1_3 = ar_MULTIPLY_F32(p.c0, r0_5_1);
    const ar_f32 v108_1_3 = ar_ADD_F32(v102_1_3, v107_1_3);
    const ar_f32 v113_1_3 = ar_MULTIPLY_F32(p.c2, r0_5_2);
    const ar_f32 v114_1_3 = ar_ADD_F32(v108_1_3, v113_1_3);
    const ar_f32 v46_0_3 = ar_MULTIPLY_F32(p.c5, r0_5_0);
    const ar_f32 v47_0_3 = ar_ADD_F32(v40_0_3, v46_0_3);
    const ar_f32 v53_0_3 = ar_MULTIPLY_F32(p.c6, r0_5_1);
    const ar_f32 v54_0_3 = ar_ADD_F32(v47_0_3, v53_0_3);
    const ar_f32 v59_0_3 = ar_MULTIPLY_F32(p.c5, r0_5_2);
    const ar_f32 v60_0_3 = ar_ADD_F32(v54_0_3, v59_0_3);
    c.v60_1[0] = v60_0_0;
    c.v60_1[1] = v60_0_1;
    c.v60_1[2] = v60_0_2;
    c.v60_1[3] = v60_0_3;
    c.v114_2[0] = v114_1_0;
    c.v114_2[1] = v114_1_1;
    c.v114_2[2] = v114_1_2;
    c.v114_2[3] = v114_1_3;
    r[0].v[0] = v163_2_0;
    r[1].v[0] = v163_2_1;
    r[2].v[0] = v163_2_2;
    r[3].v[0] = v163_2_3;
}
AR_FN void ar_place(ar_at &at, ar_index z, ar_index y, ar_index x)
{
    at.i[0] = z;
    at.i[1] = y;
    at.i[2] = x;
    (void)z;
    (void)y;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0] * (ar_index)p.t0 + at.i[1] * (ar_index)p.t1 + at.i[2];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
#include "compute/kernels/forms/window.cuh"
