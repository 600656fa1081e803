#include "compute/kernels/scalar/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 1
#define AR_UNROLL 2
#define AR_STEP 1
#define AR_ALONG -1
#include "compute/kernels/forms/common.cuh"
struct ar_params {
    alignas(8) ar_i64 from;
    alignas(8) const ar_f64 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) const ar_f64 * in1;
    alignas(8) ar_i64 s1_0;
    alignas(8) const ar_f32 * in2;
    alignas(8) ar_i64 g2;
    alignas(8) ar_f32 c0;
    alignas(8) ar_f32 c1;
    alignas(8) ar_f32 c2;
    alignas(8) ar_i32 c3;
    alignas(8) ar_f32 c4;
    alignas(8) ar_i32 c5;
    alignas(8) ar_i32 c6;
    alignas(8) ar_i32 c7;
    alignas(8) ar_i64 chunks;
    alignas(8) ar_div div[1];
    alignas(8) ar_f32 * out;
};
template <int E> struct ar_operands {
    ar_vec<ar_f64, E> l0;
    ar_vec<ar_f64, E> l1;
};
template <int E> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_operands<E> &o)
{
    {
#pragma unroll
    for (int e = 0; e < E; e++) {
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e;
    o.l0.v[e] = p.in0[i[0] * (ar_index)p.s0_0];
    }
    }
    {
#pragma unroll
    for (int e = 0; e < E; e++) {
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e;
    o.l1.v[e] = p.in1[i[0] * (ar_index)p.s1_0];
    }
    }
}
typedef ar_f32 ar_result;
template <int E> AR_FN ar_result ar_point(const ar_params &p, const ar_at &at, const ar_operands<E> &o, int e)
{
    ar_index i[AR_RANK];
#pragma unroll
    for (int k = 0; k < AR_RANK; k++)
        i[k] = at.i[k];
    i[AR_FAST] += e * AR_STEP;
    (void)i;
    const ar_f64 v0 = o.l0.v[e];
    const ar_f32 v1 = ar_cast_F64_F32(v0);
    const ar_f32 v2 = p.c0;
    const ar_f32 v3 = ar_MAXIMUM_F32(v1, v2);
    const ar_f32 v4 = p.c1;
    const ar_f32 v5 = ar_MINIMUM_F32(v3, v4);
    const ar_f32 v6 = ar_FLOOR_F32(v5);
    const ar_f32 v7 = ar_SUBTRACT_F32(v5, v6);
    const ar_bool v8 = ar_EQUAL_F32(v7, v2);
    const ar_f64 v9 = o.l1.v[e];
    const ar_f32 v10 = ar_cast_F64_F32(v9);
    const ar_f32 v11 = ar_MAXIMUM_F32(v10, v2);
    const ar_f32 v12 = p.c2;
    const ar_f32 v13 = ar_MINIMUM_F32(v11, v12);
    const ar_f32 v14 = ar_FLOOR_F32(v13);
    const ar_f32 v15 = ar_SUBTRACT_F32(v13, v14);
    const ar_bool v16 = ar_EQUAL_F32(v15, v2);
    const ar_i32 v17 = ar_cast_F32_I32(v6);
    const ar_i32 v18 = p.c3;
    const ar_i32 v19 = ar_MULTIPLY_I32(v17, v18);
    const ar_i32 v20 = ar_cast_F32_I32(v14);
    const ar_i32 v21 = ar_ADD_I32(v19, v20);
    const ar_i64 v22 = ar_cast_I32_I64(v21);
    const ar_f32 v23 = p.in2[ar_inside_32(v21, p.g2)];
    const ar_f32 v24 = p.c4;
    const ar_f32 v25 = ar_SUBTRACT_F32(v24, v15);
    const ar_f32 v26 = ar_MULTIPLY_F32(v23, v25);
    const ar_i32 v27 = p.c5;
    const ar_i32 v28 = ar_ADD_I32(v20, v27);
    const ar_i32 v29 = p.c6;
    const ar_i32 v30 = ar_MINIMUM_I32(v28, v29);
    const ar_i32 v31 = ar_ADD_I32(v19, v30);
    const ar_i64 v32 = ar_cast_I32_I64(v31);
    const ar_f32 v33 = p.in2[ar_inside_32(v31, p.g2)];
    const ar_f32 v34 = ar_MULTIPLY_F32(v33, v15);
    const ar_f32 v35 = ar_ADD_F32(v26, v34);
    const ar_f32 v36 = v16 ? v23 : v35;
    const ar_f32 v37 = ar_SUBTRACT_F32(v24, v7);
    const ar_f32 v38 = ar_MULTIPLY_F32(v36, v37);
    const ar_i32 v39 = ar_ADD_I32(v17, v27);
    const ar_i32 v40 = p.c7;
    const ar_i32 v41 = ar_MINIMUM_I32(v39, v40);
    const ar_i32 v42 = ar_MULTIPLY_I32(v41, v18);
    const ar_i32 v43 = ar_ADD_I32(v42, v20);
    const ar_i64 v44 = ar_cast_I32_I64(v43);
    const ar_f32 v45 = p.in2[ar_inside_32(v43, p.g2)];
    const ar_f32 v46 = ar_MULTIPLY_F32(v45, v25);
    const ar_i32 v47 = ar_ADD_I32(v42, v30);
    const ar_i64 v48 = ar_cast_I32_I64(v47);
    const ar_f32 v49 = p.in2[ar_inside_32(v47, p.g2)];
    const ar_f32 v50 = ar_MULTIPLY_F32(v49, v15);
    const ar_f32 v51 = ar_ADD_F32(v46, v50);
    const ar_f32 v52 = v16 ? v45 : v51;
    const ar_f32 v53 = ar_MULTIPLY_F32(v52, v7);
    const ar_f32 v54 = ar_ADD_F32(v38, v53);
    const ar_f32 v55 = v8 ? v36 : v54;
    return v55;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
#pragma unroll
    for (int e = 0; e < E; e++)
        p.out[to + e * AR_STEP] = r.v[e];
}
#include "compute/kernels/forms/elementwise.cuh"
