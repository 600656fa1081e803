#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 2
#define AR_FAST 1
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f32 * in0;
    alignas(8) ar_i64 s0_0;
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
    alignas(8) ar_div div[2];
    alignas(8) ar_f32 * out;
    alignas(8) ar_i64 t0;
};
#define AR_BX 32
#define AR_BY 4
#define AR_R 4
#define AR_BATCH 0
#define AR_YL 1
#define AR_YH 1
#define AR_XL 4
#define AR_TX 136
#define AR_TY 18
#define AR_FILL 5
#define AR_SELF 0
#define AR_RESIDENT 8
#define AR_DEEP 0
#define AR_ONE true
typedef ar_f32 ar_result;
AR_FN ar_f32 ar_value0(const ar_params &p, const ar_index *i, bool inside)
{
    (void)i;
    (void)inside;
    const ar_f32 v41 = p.in0[i[0] * (ar_index)p.s0_0 + i[1]];
    return v41;
}
AR_FN ar_vec<ar_f32, AR_E> ar_inner0(const ar_params &p, ar_index *i)
{
    ar_vec<ar_f32, AR_E> r;
    const bool inside = true;
    (void)inside;
    const ar_vec<ar_f32, AR_E> l11 = ar_load<ar_f32, AR_E>(p.in0 + i[0] * (ar_index)p.s0_0 + i[1]);
#pragma unroll
    for (int e = 0; e < AR_E; e++, i[AR_FAST]++) {
    const ar_f32 v41 = l11.v[e];
    r.v[e] = v41;
    }
    return r;
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
    i[0] = s.y0;
    i[1] = s.x0;
    v.v0.v[e] = ar_value0(p, i, inside);
}
AR_FN void ar_produce_inner(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x, ar_values &v)
{
    (void)at;
    (void)z;
    (void)y;
    ar_index i[AR_RANK];
    i[0] = y;
    i[1] = x;
    v.v0 = ar_inner0(p, i);
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
AR_FN void ar_march(const ar_params &p, const ar_at &at, const ar_tiles &t, const ar_uniform &u, ar_carry &c, int own, ar_index s, ar_index y, ar_index x, ar_vec<ar_result, AR_E> *r)
{
    (void)at;
    (void)u;
    const ar_f32 *t0 = t.v0 + own;
    const ar_vec<ar_f32, AR_E> r0_0_0 = ar_load<ar_f32, AR_E>(t0 + 0 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_0_1 = ar_load<ar_f32, AR_E>(t0 + 0 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_0_2 = ar_load<ar_f32, AR_E>(t0 + 0 * AR_TX + 8);
    const ar_f32 v2_0_0 = ar_MULTIPLY_F32(p.c0, r0_0_0.v[2]);
    const ar_f32 v2_0_1 = ar_MULTIPLY_F32(p.c0, r0_0_0.v[3]);
    const ar_f32 v2_0_2 = ar_MULTIPLY_F32(p.c0, r0_0_1.v[0]);
    const ar_f32 v2_0_3 = ar_MULTIPLY_F32(p.c0, r0_0_1.v[1]);
    const ar_f32 v5_0_0 = ar_MULTIPLY_F32(p.c1, r0_0_0.v[3]);
    const ar_f32 v5_0_1 = ar_MULTIPLY_F32(p.c1, r0_0_1.v[0]);
    const ar_f32 v5_0_2 = ar_MULTIPLY_F32(p.c1, r0_0_1.v[1]);
    const ar_f32 v5_0_3 = ar_MULTIPLY_F32(p.c1, r0_0_1.v[2]);
    const ar_f32 v6_0_0 = ar_ADD_F32(v2_0_0, v5_0_0);
    const ar_f32 v6_0_1 = ar_ADD_F32(v2_0_1, v5_0_1);
    const ar_f32 v6_0_2 = ar_ADD_F32(v2_0_2, v5_0_2);
    const ar_f32 v6_0_3 = ar_ADD_F32(v2_0_3, v5_0_3);
    const ar_f32 v9_0_0 = ar_MULTIPLY_F32(p.c2, r0_0_1.v[0]);
    const ar_f32 v9_0_1 = ar_MULTIPLY_F32(p.c2, r0_0_1.v[1]);
    const ar_f32 v9_0_2 = ar_MULTIPLY_F32(p.c2, r0_0_1.v[2]);
    const ar_f32 v9_0_3 = ar_MULTIPLY_F32(p.c2, r0_0_1.v[3]);
    const ar_f32 v10_0_0 = ar_ADD_F32(v6_0_0, v9_0_0);
    const ar_f32 v10_0_1 = ar_ADD_F32(v6_0_1, v9_0_1);
    const ar_f32 v10_0_2 = ar_ADD_F32(v6_0_2, v9_0_2);
    const ar_f32 v10_0_3 = ar_ADD_F32(v6_0_3, v9_0_3);
    const ar_f32 v13_0_0 = ar_MULTIPLY_F32(p.c3, r0_0_1.v[1]);
    const ar_f32 v13_0_1 = ar_MULTIPLY_F32(p.c3, r0_0_1.v[2]);
    const ar_f32 v13_0_2 = ar_MULTIPLY_F32(p.c3, r0_0_1.v[3]);
    const ar_f32 v13_0_3 = ar_MULTIPLY_F32(p.c3, r0_0_2.v[0]);
    const ar_f32 v14_0_0 = ar_ADD_F32(v10_0_0, v13_0_0);
    const ar_f32 v14_0_1 = ar_ADD_F32(v10_0_1, v13_0_1);
    const ar_f32 v14_0_2 = ar_ADD_F32(v10_0_2, v13_0_2);
    const ar_f32 v14_0_3 = ar_ADD_F32(v10_0_3, v13_0_3);
    const ar_vec<ar_f32, AR_E> r0_1_0 = ar_load<ar_f32, AR_E>(t0 + 1 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_1_1 = ar_load<ar_f32, AR_E>(t0 + 1 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_1_2 = ar_load<ar_f32, AR_E>(t0 + 1 * AR_TX + 8);
    const ar_f32 v17_0_0 = ar_MULTIPLY_F32(p.c4, r0_1_0.v[2]);
    const ar_f32 v17_0_1 = ar_MULTIPLY_F32(p.c4, r0_1_0.v[3]);
    const ar_f32 v17_0_2 = ar_MULTIPLY_F32(p.c4, r0_1_1.v[0]);
    const ar_f32 v17_0_3 = ar_MULTIPLY_F32(p.c4, r0_1_1.v[1]);
    const ar_f32 v18_0_0 = ar_ADD_F32(v14_0_0, v17_0_0);
    const ar_f32 v18_0_1 = ar_ADD_F32(v14_0_1, v17_0_1);
    const ar_f32 v18_0_2 = ar_ADD_F32(v14_0_2, v17_0_2);
    const ar_f32 v18_0_3 = ar_ADD_F32(v14_0_3, v17_0_3);
    const ar_f32 v21_0_0 = ar_MULTIPLY_F32(p.c5, r0_1_0.v[3]);
    const ar_f32 v21_0_1 = ar_MULTIPLY_F32(p.c5, r0_1_1.v[0]);
    const ar_f32 v21_0_2 = ar_MULTIPLY_F32(p.c5, r0_1_1.v[1]);
    const ar_f32 v21_0_3 = ar_MULTIPLY_F32(p.c5, r0_1_1.v[2]);
    const ar_f32 v22_0_0 = ar_ADD_F32(v18_0_0, v21_0_0);
    const ar_f32 v22_0_1 = ar_ADD_F32(v18_0_1, v21_0_1);
    const ar_f32 v22_0_2 = ar_ADD_F32(v18_0_2, v21_0_2);
    const ar_f32 v22_0_3 = ar_ADD_F32(v18_0_3, v21_0_3);
    const ar_f32 v25_0_0 = ar_MULTIPLY_F32(p.c6, r0_1_1.v[0]);
    const ar_f32 v25_0_1 = ar_MULTIPLY_F32(p.c6, r0_1_1.v[1]);
    const ar_f32 v25_0_2 = ar_MULTIPLY_F32(p.c6, r0_1_1.v[2]);
    const ar_f32 v25_0_3 = ar_MULTIPLY_F32(p.c6, r0_1_1.v[3]);
    const ar_f32 v26_0_0 = ar_ADD_F32(v22_0_0, v25_0_0);
    const ar_f32 v26_0_1 = ar_ADD_F32(v22_0_1, v25_0_1);
    const ar_f32 v26_0_2 = ar_ADD_F32(v22_0_2, v25_0_2);
    const ar_f32 v26_0_3 = ar_ADD_F32(v22_0_3, v25_0_3);
    const ar_f32 v29_0_0 = ar_MULTIPLY_F32(p.c7, r0_1_1.v[1]);
    const ar_f32 v29_0_1 = ar_MULTIPLY_F32(p.c7, r0_1_1.v[2]);
    const ar_f32 v29_0_2 = ar_MULTIPLY_F32(p.c7, r0_1_1.v[3]);
    const ar_f32 v29_0_3 = ar_MULTIPLY_F32(p.c7, r0_1_2.v[0]);
    const ar_f32 v30_0_0 = ar_ADD_F32(v26_0_0, v29_0_0);
    const ar_f32 v30_0_1 = ar_ADD_F32(v26_0_1, v29_0_1);
    const ar_f32 v30_0_2 = ar_ADD_F32(v26_0_2, v29_0_2);
    const ar_f32 v30_0_3 = ar_ADD_F32(v26_0_3, v29_0_3);
    const ar_f32 v2_0_4 = ar_MULTIPLY_F32(p.c0, r0_1_0.v[2]);
    const ar_f32 v2_0_5 = ar_MULTIPLY_F32(p.c0, r0_1_0.v[3]);
    const ar_f32 v2_0_6 = ar_MULTIPLY_F32(p.c0, r0_1_1.v[0]);
    const ar_f32 v2_0_7 = ar_MULTIPLY_F32(p.c0, r0_1_1.v[1]);
    const ar_f32 v5_0_4 = ar_MULTIPLY_F32(p.c1, r0_1_0.v[3]);
    const ar_f32 v5_0_5 = ar_MULTIPLY_F32(p.c1, r0_1_1.v[0]);
    const ar_f32 v5_0_6 = ar_MULTIPLY_F32(p.c1, r0_1_1.v[1]);
    const ar_f32 v5_0_7 = ar_MULTIPLY_F32(p.c1, r0_1_1.v[2]);
    const ar_f32 v6_0_4 = ar_ADD_F32(v2_0_4, v5_0_4);
    const ar_f32 v6_0_5 = ar_ADD_F32(v2_0_5, v5_0_5);
    const ar_f32 v6_0_6 = ar_ADD_F32(v2_0_6, v5_0_6);
    const ar_f32 v6_0_7 = ar_ADD_F32(v2_0_7, v5_0_7);
    const ar_f32 v9_0_4 = ar_MULTIPLY_F32(p.c2, r0_1_1.v[0]);
    const ar_f32 v9_0_5 = ar_MULTIPLY_F32(p.c2, r0_1_1.v[1]);
    const ar_f32 v9_0_6 = ar_MULTIPLY_F32(p.c2, r0_1_1.v[2]);
    const ar_f32 v9_0_7 = ar_MULTIPLY_F32(p.c2, r0_1_1.v[3]);
    const ar_f32 v10_0_4 = ar_ADD_F32(v6_0_4, v9_0_4);
    const ar_f32 v10_0_5 = ar_ADD_F32(v6_0_5, v9_0_5);
    const ar_f32 v10_0_6 = ar_ADD_F32(v6_0_6, v9_0_6);
    const ar_f32 v10_0_7 = ar_ADD_F32(v6_0_7, v9_0_7);
    const ar_f32 v13_0_4 = ar_MULTIPLY_F32(p.c3, r0_1_1.v[1]);
    const ar_f32 v13_0_5 = ar_MULTIPLY_F32(p.c3, r0_1_1.v[2]);
    const ar_f32 v13_0_6 = ar_MULTIPLY_F32(p.c3, r0_1_1.v[3]);
    const ar_f32 v13_0_7 = ar_MULTIPLY_F32(p.c3, r0_1_2.v[0]);
    const ar_f32 v14_0_4 = ar_ADD_F32(v10_0_4, v13_0_4);
    const ar_f32 v14_0_5 = ar_ADD_F32(v10_0_5, v13_0_5);
    const ar_f32 v14_0_6 = ar_ADD_F32(v10_0_6, v13_0_6);
    const ar_f32 v14_0_7 = ar_ADD_F32(v10_0_7, v13_0_7);
    const ar_vec<ar_f32, AR_E> r0_2_0 = ar_load<ar_f32, AR_E>(t0 + 2 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_2_1 = ar_load<ar_f32, AR_E>(t0 + 2 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_2_2 = ar_load<ar_f32, AR_E>(t0 + 2 * AR_TX + 8);
    const ar_f32 v33_0_0 = ar_MULTIPLY_F32(p.c8, r0_2_0.v[2]);
    const ar_f32 v33_0_1 = ar_MULTIPLY_F32(p.c8, r0_2_0.v[3]);
    const ar_f32 v33_0_2 = ar_MULTIPLY_F32(p.c8, r0_2_1.v[0]);
    const ar_f32 v33_0_3 = ar_MULTIPLY_F32(p.c8, r0_2_1.v[1]);
    const ar_f32 v34_0_0 = ar_ADD_F32(v30_0_0, v33_0_0);
    const ar_f32 v34_0_1 = ar_ADD_F32(v30_0_1, v33_0_1);
    const ar_f32 v34_0_2 = ar_ADD_F32(v30_0_2, v33_0_2);
    const ar_f32 v34_0_3 = ar_ADD_F32(v30_0_3, v33_0_3);
    const ar_f32 v36_0_0 = ar_MULTIPLY_F32(p.c7, r0_2_0.v[3]);
    const ar_f32 v36_0_1 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[0]);
    const ar_f32 v36_0_2 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[1]);
    const ar_f32 v36_0_3 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[2]);
    const ar_f32 v37_0_0 = ar_ADD_F32(v34_0_0, v36_0_0);
    const ar_f32 v37_0_1 = ar_ADD_F32(v34_0_1, v36_0_1);
    const ar_f32 v37_0_2 = ar_ADD_F32(v34_0_2, v36_0_2);
    const ar_f32 v37_0_3 = ar_ADD_F32(v34_0_3, v36_0_3);
    const ar_f32 v39_0_0 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[0]);
    const ar_f32 v39_0_1 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[1]);
    const ar_f32 v39_0_2 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[2]);
    const ar_f32 v39_0_3 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[3]);
    const ar_f32 v40_0_0 = ar_ADD_F32(v37_0_0, v39_0_0);
    const ar_f32 v40_0_1 = ar_ADD_F32(v37_0_1, v39_0_1);
    const ar_f32 v40_0_2 = ar_ADD_F32(v37_0_2, v39_0_2);
    const ar_f32 v40_0_3 = ar_ADD_F32(v37_0_3, v39_0_3);
    const ar_f32 v42_0_0 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[1]);
    const ar_f32 v42_0_1 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[2]);
    const ar_f32 v42_0_2 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[3]);
    const ar_f32 v42_0_3 = ar_MULTIPLY_F32(p.c5, r0_2_2.v[0]);
    const ar_f32 v43_0_0 = ar_ADD_F32(v40_0_0, v42_0_0);
    const ar_f32 v43_0_1 = ar_ADD_F32(v40_0_1, v42_0_1);
    const ar_f32 v43_0_2 = ar_ADD_F32(v40_0_2, v42_0_2);
    const ar_f32 v43_0_3 = ar_ADD_F32(v40_0_3, v42_0_3);
    const ar_f32 v17_0_4 = ar_MULTIPLY_F32(p.c4, r0_2_0.v[2]);
    const ar_f32 v17_0_5 = ar_MULTIPLY_F32(p.c4, r0_2_0.v[3]);
    const ar_f32 v17_0_6 = ar_MULTIPLY_F32(p.c4, r0_2_1.v[0]);
    const ar_f32 v17_0_7 = ar_MULTIPLY_F32(p.c4, r0_2_1.v[1]);
    const ar_f32 v18_0_4 = ar_ADD_F32(v14_0_4, v17_0_4);
    const ar_f32 v18_0_5 = ar_ADD_F32(v14_0_5, v17_0_5);
    const ar_f32 v18_0_6 = ar_ADD_F32(v14_0_6, v17_0_6);
    const ar_f32 v18_0_7 = ar_ADD_F32(v14_0_7, v17_0_7);
    const ar_f32 v21_0_4 = ar_MULTIPLY_F32(p.c5, r0_2_0.v[3]);
    const ar_f32 v21_0_5 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[0]);
    const ar_f32 v21_0_6 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[1]);
    const ar_f32 v21_0_7 = ar_MULTIPLY_F32(p.c5, r0_2_1.v[2]);
    const ar_f32 v22_0_4 = ar_ADD_F32(v18_0_4, v21_0_4);
    const ar_f32 v22_0_5 = ar_ADD_F32(v18_0_5, v21_0_5);
    const ar_f32 v22_0_6 = ar_ADD_F32(v18_0_6, v21_0_6);
    const ar_f32 v22_0_7 = ar_ADD_F32(v18_0_7, v21_0_7);
    const ar_f32 v25_0_4 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[0]);
    const ar_f32 v25_0_5 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[1]);
    const ar_f32 v25_0_6 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[2]);
    const ar_f32 v25_0_7 = ar_MULTIPLY_F32(p.c6, r0_2_1.v[3]);
    const ar_f32 v26_0_4 = ar_ADD_F32(v22_0_4, v25_0_4);
    const ar_f32 v26_0_5 = ar_ADD_F32(v22_0_5, v25_0_5);
    const ar_f32 v26_0_6 = ar_ADD_F32(v22_0_6, v25_0_6);
    const ar_f32 v26_0_7 = ar_ADD_F32(v22_0_7, v25_0_7);
    const ar_f32 v29_0_4 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[1]);
    const ar_f32 v29_0_5 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[2]);
    const ar_f32 v29_0_6 = ar_MULTIPLY_F32(p.c7, r0_2_1.v[3]);
    const ar_f32 v29_0_7 = ar_MULTIPLY_F32(p.c7, r0_2_2.v[0]);
    const ar_f32 v30_0_4 = ar_ADD_F32(v26_0_4, v29_0_4);
    const ar_f32 v30_0_5 = ar_ADD_F32(v26_0_5, v29_0_5);
    const ar_f32 v30_0_6 = ar_ADD_F32(v26_0_6, v29_0_6);
    const ar_f32 v30_0_7 = ar_ADD_F32(v26_0_7, v29_0_7);
    const ar_f32 v2_0_8 = ar_MULTIPLY_F32(p.c0, r0_2_0.v[2]);
    const ar_f32 v2_0_9 = ar_MULTIPLY_F32(p.c0, r0_2_0.v[3]);
    const ar_f32 v2_0_10 = ar_MULTIPLY_F32(p.c0, r0_2_1.v[0]);
    const ar_f32 v2_0_11 = ar_MULTIPLY_F32(p.c0, r0_2_1.v[1]);
    const ar_f32 v5_0_8 = ar_MULTIPLY_F32(p.c1, r0_2_0.v[3]);
    const ar_f32 v5_0_9 = ar_MULTIPLY_F32(p.c1, r0_2_1.v[0]);
    const ar_f32 v5_0_10 = ar_MULTIPLY_F32(p.c1, r0_2_1.v[1]);
    const ar_f32 v5_0_11 = ar_MULTIPLY_F32(p.c1, r0_2_1.v[2]);
    const ar_f32 v6_0_8 = ar_ADD_F32(v2_0_8, v5_0_8);
    const ar_f32 v6_0_9 = ar_ADD_F32(v2_0_9, v5_0_9);
    const ar_f32 v6_0_10 = ar_ADD_F32(v2_0_10, v5_0_10);
    const ar_f32 v6_0_11 = ar_ADD_F32(v2_0_11, v5_0_11);
    const ar_f32 v9_0_8 = ar_MULTIPLY_F32(p.c2, r0_2_1.v[0]);
    const ar_f32 v9_0_9 = ar_MULTIPLY_F32(p.c2, r0_2_1.v[1]);
    const ar_f32 v9_0_10 = ar_MULTIPLY_F32(p.c2, r0_2_1.v[2]);
    const ar_f32 v9_0_11 = ar_MULTIPLY_F32(p.c2, r0_2_1.v[3]);
    const ar_f32 v10_0_8 = ar_ADD_F32(v6_0_8, v9_0_8);
    const ar_f32 v10_0_9 = ar_ADD_F32(v6_0_9, v9_0_9);
    const ar_f32 v10_0_10 = ar_ADD_F32(v6_0_10, v9_0_10);
    const ar_f32 v10_0_11 = ar_ADD_F32(v6_0_11, v9_0_11);
    const ar_f32 v13_0_8 = ar_MULTIPLY_F32(p.c3, r0_2_1.v[1]);
    const ar_f32 v13_0_9 = ar_MULTIPLY_F32(p.c3, r0_2_1.v[2]);
    const ar_f32 v13_0_10 = ar_MULTIPLY_F32(p.c3, r0_2_1.v[3]);
    const ar_f32 v13_0_11 = ar_MULTIPLY_F32(p.c3, r0_2_2.v[0]);
    const ar_f32 v14_0_8 = ar_ADD_F32(v10_0_8, v13_0_8);
    const ar_f32 v14_0_9 = ar_ADD_F32(v10_0_9, v13_0_9);
    const ar_f32 v14_0_10 = ar_ADD_F32(v10_0_10, v13_0_10);
    const ar_f32 v14_0_11 = ar_ADD_F32(v10_0_11, v13_0_11);
    const ar_vec<ar_f32, AR_E> r0_3_0 = ar_load<ar_f32, AR_E>(t0 + 3 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_3_1 = ar_load<ar_f32, AR_E>(t0 + 3 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_3_2 = ar_load<ar_f32, AR_E>(t0 + 3 * AR_TX + 8);
    const ar_f32 v33_0_4 = ar_MULTIPLY_F32(p.c8, r0_3_0.v[2]);
    const ar_f32 v33_0_5 = ar_MULTIPLY_F32(p.c8, r0_3_0.v[3]);
    const ar_f32 v33_0_6 = ar_MULTIPLY_F32(p.c8, r0_3_1.v[0]);
    const ar_f32 v33_0_7 = ar_MULTIPLY_F32(p.c8, r0_3_1.v[1]);
    const ar_f32 v34_0_4 = ar_ADD_F32(v30_0_4, v33_0_4);
    const ar_f32 v34_0_5 = ar_ADD_F32(v30_0_5, v33_0_5);
    const ar_f32 v34_0_6 = ar_ADD_F32(v30_0_6, v33_0_6);
    const ar_f32 v34_0_7 = ar_ADD_F32(v30_0_7, v33_0_7);
    const ar_f32 v36_0_4 = ar_MULTIPLY_F32(p.c7, r0_3_0.v[3]);
    const ar_f32 v36_0_5 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[0]);
    const ar_f32 v36_0_6 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[1]);
    const ar_f32 v36_0_7 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[2]);
    const ar_f32 v37_0_4 = ar_ADD_F32(v34_0_4, v36_0_4);
    const ar_f32 v37_0_5 = ar_ADD_F32(v34_0_5, v36_0_5);
    const ar_f32 v37_0_6 = ar_ADD_F32(v34_0_6, v36_0_6);
    const ar_f32 v37_0_7 = ar_ADD_F32(v34_0_7, v36_0_7);
    const ar_f32 v39_0_4 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[0]);
    const ar_f32 v39_0_5 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[1]);
    const ar_f32 v39_0_6 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[2]);
    const ar_f32 v39_0_7 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[3]);
    const ar_f32 v40_0_4 = ar_ADD_F32(v37_0_4, v39_0_4);
    const ar_f32 v40_0_5 = ar_ADD_F32(v37_0_5, v39_0_5);
    const ar_f32 v40_0_6 = ar_ADD_F32(v37_0_6, v39_0_6);
    const ar_f32 v40_0_7 = ar_ADD_F32(v37_0_7, v39_0_7);
    const ar_f32 v42_0_4 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[1]);
    const ar_f32 v42_0_5 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[2]);
    const ar_f32 v42_0_6 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[3]);
    const ar_f32 v42_0_7 = ar_MULTIPLY_F32(p.c5, r0_3_2.v[0]);
    const ar_f32 v43_0_4 = ar_ADD_F32(v40_0_4, v42_0_4);
    const ar_f32 v43_0_5 = ar_ADD_F32(v40_0_5, v42_0_5);
    const ar_f32 v43_0_6 = ar_ADD_F32(v40_0_6, v42_0_6);
    const ar_f32 v43_0_7 = ar_ADD_F32(v40_0_7, v42_0_7);
    const ar_f32 v17_0_8 = ar_MULTIPLY_F32(p.c4, r0_3_0.v[2]);
    const ar_f32 v17_0_9 = ar_MULTIPLY_F32(p.c4, r0_3_0.v[3]);
    const ar_f32 v17_0_10 = ar_MULTIPLY_F32(p.c4, r0_3_1.v[0]);
    const ar_f32 v17_0_11 = ar_MULTIPLY_F32(p.c4, r0_3_1.v[1]);
    const ar_f32 v18_0_8 = ar_ADD_F32(v14_0_8, v17_0_8);
    const ar_f32 v18_0_9 = ar_ADD_F32(v14_0_9, v17_0_9);
    const ar_f32 v18_0_10 = ar_ADD_F32(v14_0_10, v17_0_10);
    const ar_f32 v18_0_11 = ar_ADD_F32(v14_0_11, v17_0_11);
    const ar_f32 v21_0_8 = ar_MULTIPLY_F32(p.c5, r0_3_0.v[3]);
    const ar_f32 v21_0_9 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[0]);
    const ar_f32 v21_0_10 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[1]);
    const ar_f32 v21_0_11 = ar_MULTIPLY_F32(p.c5, r0_3_1.v[2]);
    const ar_f32 v22_0_8 = ar_ADD_F32(v18_0_8, v21_0_8);
    const ar_f32 v22_0_9 = ar_ADD_F32(v18_0_9, v21_0_9);
    const ar_f32 v22_0_10 = ar_ADD_F32(v18_0_10, v21_0_10);
    const ar_f32 v22_0_11 = ar_ADD_F32(v18_0_11, v21_0_11);
    const ar_f32 v25_0_8 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[0]);
    const ar_f32 v25_0_9 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[1]);
    const ar_f32 v25_0_10 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[2]);
    const ar_f32 v25_0_11 = ar_MULTIPLY_F32(p.c6, r0_3_1.v[3]);
    const ar_f32 v26_0_8 = ar_ADD_F32(v22_0_8, v25_0_8);
    const ar_f32 v26_0_9 = ar_ADD_F32(v22_0_9, v25_0_9);
    const ar_f32 v26_0_10 = ar_ADD_F32(v22_0_10, v25_0_10);
    const ar_f32 v26_0_11 = ar_ADD_F32(v22_0_11, v25_0_11);
    const ar_f32 v29_0_8 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[1]);
    const ar_f32 v29_0_9 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[2]);
    const ar_f32 v29_0_10 = ar_MULTIPLY_F32(p.c7, r0_3_1.v[3]);
    const ar_f32 v29_0_11 = ar_MULTIPLY_F32(p.c7, r0_3_2.v[0]);
    const ar_f32 v30_0_8 = ar_ADD_F32(v26_0_8, v29_0_8);
    const ar_f32 v30_0_9 = ar_ADD_F32(v26_0_9, v29_0_9);
    const ar_f32 v30_0_10 = ar_ADD_F32(v26_0_10, v29_0_10);
    const ar_f32 v30_0_11 = ar_ADD_F32(v26_0_11, v29_0_11);
    const ar_f32 v2_0_12 = ar_MULTIPLY_F32(p.c0, r0_3_0.v[2]);
    const ar_f32 v2_0_13 = ar_MULTIPLY_F32(p.c0, r0_3_0.v[3]);
    const ar_f32 v2_0_14 = ar_MULTIPLY_F32(p.c0, r0_3_1.v[0]);
    const ar_f32 v2_0_15 = ar_MULTIPLY_F32(p.c0, r0_3_1.v[1]);
    const ar_f32 v5_0_12 = ar_MULTIPLY_F32(p.c1, r0_3_0.v[3]);
    const ar_f32 v5_0_13 = ar_MULTIPLY_F32(p.c1, r0_3_1.v[0]);
    const ar_f32 v5_0_14 = ar_MULTIPLY_F32(p.c1, r0_3_1.v[1]);
    const ar_f32 v5_0_15 = ar_MULTIPLY_F32(p.c1, r0_3_1.v[2]);
    const ar_f32 v6_0_12 = ar_ADD_F32(v2_0_12, v5_0_12);
    const ar_f32 v6_0_13 = ar_ADD_F32(v2_0_13, v5_0_13);
    const ar_f32 v6_0_14 = ar_ADD_F32(v2_0_14, v5_0_14);
    const ar_f32 v6_0_15 = ar_ADD_F32(v2_0_15, v5_0_15);
    const ar_f32 v9_0_12 = ar_MULTIPLY_F32(p.c2, r0_3_1.v[0]);
    const ar_f32 v9_0_13 = ar_MULTIPLY_F32(p.c2, r0_3_1.v[1]);
    const ar_f32 v9_0_14 = ar_MULTIPLY_F32(p.c2, r0_3_1.v[2]);
    const ar_f32 v9_0_15 = ar_MULTIPLY_F32(p.c2, r0_3_1.v[3]);
    const ar_f32 v10_0_12 = ar_ADD_F32(v6_0_12, v9_0_12);
    const ar_f32 v10_0_13 = ar_ADD_F32(v6_0_13, v9_0_13);
    const ar_f32 v10_0_14 = ar_ADD_F32(v6_0_14, v9_0_14);
    const ar_f32 v10_0_15 = ar_ADD_F32(v6_0_15, v9_0_15);
    const ar_f32 v13_0_12 = ar_MULTIPLY_F32(p.c3, r0_3_1.v[1]);
    const ar_f32 v13_0_13 = ar_MULTIPLY_F32(p.c3, r0_3_1.v[2]);
    const ar_f32 v13_0_14 = ar_MULTIPLY_F32(p.c3, r0_3_1.v[3]);
    const ar_f32 v13_0_15 = ar_MULTIPLY_F32(p.c3, r0_3_2.v[0]);
    const ar_f32 v14_0_12 = ar_ADD_F32(v10_0_12, v13_0_12);
    const ar_f32 v14_0_13 = ar_ADD_F32(v10_0_13, v13_0_13);
    const ar_f32 v14_0_14 = ar_ADD_F32(v10_0_14, v13_0_14);
    const ar_f32 v14_0_15 = ar_ADD_F32(v10_0_15, v13_0_15);
    const ar_vec<ar_f32, AR_E> r0_4_0 = ar_load<ar_f32, AR_E>(t0 + 4 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_4_1 = ar_load<ar_f32, AR_E>(t0 + 4 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_4_2 = ar_load<ar_f32, AR_E>(t0 + 4 * AR_TX + 8);
    const ar_f32 v33_0_8 = ar_MULTIPLY_F32(p.c8, r0_4_0.v[2]);
    const ar_f32 v33_0_9 = ar_MULTIPLY_F32(p.c8, r0_4_0.v[3]);
    const ar_f32 v33_0_10 = ar_MULTIPLY_F32(p.c8, r0_4_1.v[0]);
    const ar_f32 v33_0_11 = ar_MULTIPLY_F32(p.c8, r0_4_1.v[1]);
    const ar_f32 v34_0_8 = ar_ADD_F32(v30_0_8, v33_0_8);
    const ar_f32 v34_0_9 = ar_ADD_F32(v30_0_9, v33_0_9);
    const ar_f32 v34_0_10 = ar_ADD_F32(v30_0_10, v33_0_10);
    const ar_f32 v34_0_11 = ar_ADD_F32(v30_0_11, v33_0_11);
    const ar_f32 v36_0_8 = ar_MULTIPLY_F32(p.c7, r0_4_0.v[3]);
    const ar_f32 v36_0_9 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[0]);
    const ar_f32 v36_0_10 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[1]);
    const ar_f32 v36_0_11 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[2]);
    const ar_f32 v37_0_8 = ar_ADD_F32(v34_0_8, v36_0_8);
    const ar_f32 v37_0_9 = ar_ADD_F32(v34_0_9, v36_0_9);
    const ar_f32 v37_0_10 = ar_ADD_F32(v34_0_10, v36_0_10);
    const ar_f32 v37_0_11 = ar_ADD_F32(v34_0_11, v36_0_11);
    const ar_f32 v39_0_8 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[0]);
    const ar_f32 v39_0_9 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[1]);
    const ar_f32 v39_0_10 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[2]);
    const ar_f32 v39_0_11 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[3]);
    const ar_f32 v40_0_8 = ar_ADD_F32(v37_0_8, v39_0_8);
    const ar_f32 v40_0_9 = ar_ADD_F32(v37_0_9, v39_0_9);
    const ar_f32 v40_0_10 = ar_ADD_F32(v37_0_10, v39_0_10);
    const ar_f32 v40_0_11 = ar_ADD_F32(v37_0_11, v39_0_11);
    const ar_f32 v42_0_8 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[1]);
    const ar_f32 v42_0_9 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[2]);
    const ar_f32 v42_0_10 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[3]);
    const ar_f32 v42_0_11 = ar_MULTIPLY_F32(p.c5, r0_4_2.v[0]);
    const ar_f32 v43_0_8 = ar_ADD_F32(v40_0_8, v42_0_8);
    const ar_f32 v43_0_9 = ar_ADD_F32(v40_0_9, v42_0_9);
    const ar_f32 v43_0_10 = ar_ADD_F32(v40_0_10, v42_0_10);
    const ar_f32 v43_0_11 = ar_ADD_F32(v40_0_11, v42_0_11);
    const ar_f32 v17_0_12 = ar_MULTIPLY_F32(p.c4, r0_4_0.v[2]);
    const ar_f32 v17_0_13 = ar_MULTIPLY_F32(p.c4, r0_4_0.v[3]);
    const ar_f32 v17_0_14 = ar_MULTIPLY_F32(p.c4, r0_4_1.v[0]);
    const ar_f32 v17_0_15 = ar_MULTIPLY_F32(p.c4, r0_4_1.v[1]);
    const ar_f32 v18_0_12 = ar_ADD_F32(v14_0_12, v17_0_12);
    const ar_f32 v18_0_13 = ar_ADD_F32(v14_0_13, v17_0_13);
    const ar_f32 v18_0_14 = ar_ADD_F32(v14_0_14, v17_0_14);
    const ar_f32 v18_0_15 = ar_ADD_F32(v14_0_15, v17_0_15);
    const ar_f32 v21_0_12 = ar_MULTIPLY_F32(p.c5, r0_4_0.v[3]);
    const ar_f32 v21_0_13 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[0]);
    const ar_f32 v21_0_14 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[1]);
    const ar_f32 v21_0_15 = ar_MULTIPLY_F32(p.c5, r0_4_1.v[2]);
    const ar_f32 v22_0_12 = ar_ADD_F32(v18_0_12, v21_0_12);
    const ar_f32 v22_0_13 = ar_ADD_F32(v18_0_13, v21_0_13);
    const ar_f32 v22_0_14 = ar_ADD_F32(v18_0_14, v21_0_14);
    const ar_f32 v22_0_15 = ar_ADD_F32(v18_0_15, v21_0_15);
    const ar_f32 v25_0_12 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[0]);
    const ar_f32 v25_0_13 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[1]);
    const ar_f32 v25_0_14 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[2]);
    const ar_f32 v25_0_15 = ar_MULTIPLY_F32(p.c6, r0_4_1.v[3]);
    const ar_f32 v26_0_12 = ar_ADD_F32(v22_0_12, v25_0_12);
    const ar_f32 v26_0_13 = ar_ADD_F32(v22_0_13, v25_0_13);
    const ar_f32 v26_0_14 = ar_ADD_F32(v22_0_14, v25_0_14);
    const ar_f32 v26_0_15 = ar_ADD_F32(v22_0_15, v25_0_15);
    const ar_f32 v29_0_12 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[1]);
    const ar_f32 v29_0_13 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[2]);
    const ar_f32 v29_0_14 = ar_MULTIPLY_F32(p.c7, r0_4_1.v[3]);
    const ar_f32 v29_0_15 = ar_MULTIPLY_F32(p.c7, r0_4_2.v[0]);
    const ar_f32 v30_0_12 = ar_ADD_F32(v26_0_12, v29_0_12);
    const ar_f32 v30_0_13 = ar_ADD_F32(v26_0_13, v29_0_13);
    const ar_f32 v30_0_14 = ar_ADD_F32(v26_0_14, v29_0_14);
    const ar_f32 v30_0_15 = ar_ADD_F32(v26_0_15, v29_0_15);
    const ar_vec<ar_f32, AR_E> r0_5_0 = ar_load<ar_f32, AR_E>(t0 + 5 * AR_TX + 0);
    const ar_vec<ar_f32, AR_E> r0_5_1 = ar_load<ar_f32, AR_E>(t0 + 5 * AR_TX + 4);
    const ar_vec<ar_f32, AR_E> r0_5_2 = ar_load<ar_f32, AR_E>(t0 + 5 * AR_TX + 8);
    const ar_f32 v33_0_12 = ar_MULTIPLY_F32(p.c8, r0_5_0.v[2]);
    const ar_f32 v33_0_13 = ar_MULTIPLY_F32(p.c8, r0_5_0.v[3]);
    const ar_f32 v33_0_14 = ar_MULTIPLY_F32(p.c8, r0_5_1.v[0]);
    const ar_f32 v33_0_15 = ar_MULTIPLY_F32(p.c8, r0_5_1.v[1]);
    const ar_f32 v34_0_12 = ar_ADD_F32(v30_0_12, v33_0_12);
    const ar_f32 v34_0_13 = ar_ADD_F32(v30_0_13, v33_0_13);
    const ar_f32 v34_0_14 = ar_ADD_F32(v30_0_14, v33_0_14);
    const ar_f32 v34_0_15 = ar_ADD_F32(v30_0_15, v33_0_15);
    const ar_f32 v36_0_12 = ar_MULTIPLY_F32(p.c7, r0_5_0.v[3]);
    const ar_f32 v36_0_13 = ar_MULTIPLY_F32(p.c7, r0_5_1.v[0]);
    const ar_f32 v36_0_14 = ar_MULTIPLY_F32(p.c7, r0_5_1.v[1]);
    const ar_f32 v36_0_15 = ar_MULTIPLY_F32(p.c7, r0_5_1.v[2]);
    const ar_f32 v37_0_12 = ar_ADD_F32(v34_0_12, v36_0_12);
    const ar_f32 v37_0_13 = ar_ADD_F32(v34_0_13, v36_0_13);
    const ar_f32 v37_0_14 = ar_ADD_F32(v34_0_14, v36_0_14);
    const ar_f32 v37_0_15 = ar_ADD_F32(v34_0_15, v36_0_15);
    const ar_f32 v39_0_12 = ar_MULTIPLY_F32(p.c6, r0_5_1.v[0]);
    const ar_f32 v39_0_13 = ar_MULTIPLY_F32(p.c6, r0_5_1.v[1]);
    const ar_f32 v39_0_14 = ar_MULTIPLY_F32(p.c6, r0_5_1.v[2]);
    const ar_f32 v39_0_15 = ar_MULTIPLY_F32(p.c6, r0_5_1.v[3]);
    const ar_f32 v40_0_12 = ar_ADD_F32(v37_0_12, v39_0_12);
    const ar_f32 v40_0_13 = ar_ADD_F32(v37_0_13, v39_0_13);
    const ar_f32 v40_0_14 = ar_ADD_F32(v37_0_14, v39_0_14);
    const ar_f32 v40_0_15 = ar_ADD_F32(v37_0_15, v39_0_15);
    const ar_f32 v42_0_12 = ar_MULTIPLY_F32(p.c5, r0_5_1.v[1]);
    const ar_f32 v42_0_13 = ar_MULTIPLY_F32(p.c5, r0_5_1.v[2]);
    const ar_f32 v42_0_14 = ar_MULTIPLY_F32(p.c5, r0_5_1.v[3]);
    const ar_f32 v42_0_15 = ar_MULTIPLY_F32(p.c5, r0_5_2.v[0]);
    const ar_f32 v43_0_12 = ar_ADD_F32(v40_0_12, v42_0_12);
    const ar_f32 v43_0_13 = ar_ADD_F32(v40_0_13, v42_0_13);
    const ar_f32 v43_0_14 = ar_ADD_F32(v40_0_14, v42_0_14);
    const ar_f32 v43_0_15 = ar_ADD_F32(v40_0_15, v42_0_15);
    r[0].v[0] = v43_0_0;
    r[0].v[1] = v43_0_1;
    r[0].v[2] = v43_0_2;
    r[0].v[3] = v43_0_3;
    r[1].v[0] = v43_0_4;
    r[1].v[1] = v43_0_5;
    r[1].v[2] = v43_0_6;
    r[1].v[3] = v43_0_7;
    r[2].v[0] = v43_0_8;
    r[2].v[1] = v43_0_9;
    r[2].v[2] = v43_0_10;
    r[2].v[3] = v43_0_11;
    r[3].v[0] = v43_0_12;
    r[3].v[1] = v43_0_13;
    r[3].v[2] = v43_0_14;
    r[3].v[3] = v43_0_15;
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
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/forms/window.cuh"
