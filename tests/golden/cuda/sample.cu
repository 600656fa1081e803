#include "compute/kernels/scalar.h"
typedef int ar_index;
#define AR_RANK 1
#define AR_FAST 0
#define AR_BLOCK 128
#define AR_E 4
#define AR_UNROLL 1
#define AR_STEP 1
#include "compute/kernels/common.cuh"
struct ar_params {
    alignas(8) const ar_f64 * in0;
    alignas(8) ar_i64 s0_0;
    alignas(8) const ar_f64 * in1;
    alignas(8) ar_i64 s1_0;
    alignas(8) const ar_f32 * in2;
    alignas(8) ar_i64 g2;
    alignas(8) ar_f64 c0;
    alignas(8) ar_f64 c1;
    alignas(8) ar_f32 c2;
    alignas(8) ar_f64 c3;
    alignas(8) ar_i64 c4;
    alignas(8) ar_i64 c5;
    alignas(8) ar_i64 c6;
    alignas(8) ar_f32 c7;
    alignas(8) ar_i64 c8;
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
    const ar_f64 v1 = p.c0;
    const ar_f64 v2 = ar_MAXIMUM_F64(v0, v1);
    const ar_f64 v3 = p.c1;
    const ar_f64 v4 = ar_MINIMUM_F64(v2, v3);
    const ar_f64 v5 = ar_FLOOR_F64(v4);
    const ar_f64 v6 = ar_SUBTRACT_F64(v4, v5);
    const ar_f32 v7 = ar_cast_F64_F32(v6);
    const ar_f32 v8 = p.c2;
    const ar_bool v9 = ar_EQUAL_F32(v7, v8);
    const ar_f64 v10 = o.l1.v[e];
    const ar_f64 v11 = ar_MAXIMUM_F64(v10, v1);
    const ar_f64 v12 = p.c3;
    const ar_f64 v13 = ar_MINIMUM_F64(v11, v12);
    const ar_f64 v14 = ar_FLOOR_F64(v13);
    const ar_f64 v15 = ar_SUBTRACT_F64(v13, v14);
    const ar_f32 v16 = ar_cast_F64_F32(v15);
    const ar_bool v17 = ar_EQUAL_F32(v16, v8);
    const ar_i64 v18 = ar_cast_F64_I64(v5);
    const ar_i64 v19 = p.c4;
    const ar_i64 v20 = ar_MINIMUM_I64(v18, v19);
    const ar_i64 v21 = p.c5;
    const ar_i64 v22 = ar_MULTIPLY_I64(v20, v21);
    const ar_i64 v23 = ar_cast_F64_I64(v14);
    const ar_i64 v24 = p.c6;
    const ar_i64 v25 = ar_MINIMUM_I64(v23, v24);
    const ar_i64 v26 = ar_ADD_I64(v22, v25);
    const ar_f32 v27 = p.in2[ar_inside(v26, p.g2)];
    const ar_f32 v28 = p.c7;
    const ar_bool v29 = ar_EQUAL_F32(v16, v28);
    const ar_i64 v30 = p.c8;
    const ar_i64 v31 = ar_ADD_I64(v23, v30);
    const ar_i64 v32 = ar_MINIMUM_I64(v31, v24);
    const ar_i64 v33 = ar_ADD_I64(v22, v32);
    const ar_f32 v34 = p.in2[ar_inside(v33, p.g2)];
    const ar_f32 v35 = ar_SUBTRACT_F32(v28, v16);
    const ar_f32 v36 = ar_MULTIPLY_F32(v27, v35);
    const ar_f32 v37 = ar_MULTIPLY_F32(v34, v16);
    const ar_f32 v38 = ar_ADD_F32(v36, v37);
    const ar_f32 v39 = v29 ? v34 : v38;
    const ar_f32 v40 = v17 ? v27 : v39;
    const ar_bool v41 = ar_EQUAL_F32(v7, v28);
    const ar_i64 v42 = ar_ADD_I64(v18, v30);
    const ar_i64 v43 = ar_MINIMUM_I64(v42, v19);
    const ar_i64 v44 = ar_MULTIPLY_I64(v43, v21);
    const ar_i64 v45 = ar_ADD_I64(v44, v25);
    const ar_f32 v46 = p.in2[ar_inside(v45, p.g2)];
    const ar_i64 v47 = ar_ADD_I64(v44, v32);
    const ar_f32 v48 = p.in2[ar_inside(v47, p.g2)];
    const ar_f32 v49 = ar_MULTIPLY_F32(v46, v35);
    const ar_f32 v50 = ar_MULTIPLY_F32(v48, v16);
    const ar_f32 v51 = ar_ADD_F32(v49, v50);
    const ar_f32 v52 = v29 ? v48 : v51;
    const ar_f32 v53 = v17 ? v46 : v52;
    const ar_f32 v54 = ar_SUBTRACT_F32(v28, v7);
    const ar_f32 v55 = ar_MULTIPLY_F32(v40, v54);
    const ar_f32 v56 = ar_MULTIPLY_F32(v53, v7);
    const ar_f32 v57 = ar_ADD_F32(v55, v56);
    const ar_f32 v58 = v41 ? v53 : v57;
    const ar_f32 v59 = v9 ? v40 : v58;
    return v59;
}
template <int E> AR_FN void ar_put(const ar_params &p, const ar_at &at, const ar_vec<ar_result, E> &r)
{
    const ar_index to = 0 + at.i[0];
    ar_store<ar_result, E>(p.out + to, r);
}
#include "compute/kernels/elementwise.cuh"
