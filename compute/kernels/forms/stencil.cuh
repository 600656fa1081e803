/* The form stencil: a thread owns AR_E neighbours along the fastest axis, in AR_R rows of AR_P
 * planes, and first loads every row that any of its points reads. Points share rows in registers;
 * neighbours along the fastest axis come from adjacent lanes or, at the ends of a warp, from
 * memory. Boundaries of the two slow axes cost an address, not a branch. Blocks are small and in
 * memory order, which keeps the data being read compact; that was faster than marching along the
 * slowest axis.
 *
 * emit.c provides struct ar_params, struct ar_operands of ar_near (near.cuh), ar_fetch, ar_place,
 * ar_point, ar_put. */
#ifndef ARRAYD_STENCIL_CUH
#define ARRAYD_STENCIL_CUH

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    ar_at at;
    ar_index outer = AR_BLOCK_Z;
    const ar_index q = ar_divide(outer, p.tiles_z);
    const ar_index z = (outer - q * (ar_index)p.tiles_z.divisor) * AR_P;
    const ar_index y = (AR_BLOCK_Y * (ar_index)blockDim.y + (ar_index)threadIdx.y) * AR_R;
    const ar_index column = AR_BLOCK_X * (ar_index)blockDim.x + (ar_index)threadIdx.x;
#if AR_STEP == 1
    const ar_index x = column * AR_E;
#else
    /* The last warp of a row is moved back until it is full. It does not store the elements that
     * then overlap another warp's, because it may have read their inputs after they were
     * overwritten. */
    const ar_index most = (ar_index)p.nx - 32 * AR_E, first = (column & ~31) * AR_E;
    if (first >= (ar_index)p.nx)
        return;
    const ar_index x = (first < most ? first : most) + (column & 31);
#endif
    outer = q;
#pragma unroll
    for (int k = AR_BATCH - 1; k >= 0; k--) { /* axes before the last three */
        const ar_index r = ar_divide(outer, p.div[k]);
        at.i[k] = outer - r * (ar_index)p.div[k].divisor;
        outer = r;
    }
    ar_operands o;
    ar_fetch(p, at, z, y, x, o);
#if AR_STEP == 1
    if (x >= (ar_index)p.nx)
        return;
#endif
#pragma unroll
    for (int t = 0; t < AR_P; t++)
#pragma unroll
        for (int r = 0; r < AR_R; r++)
            if (z + t < (ar_index)p.nz && y + r < (ar_index)p.ny) {
                ar_place(at, z + t, y + r, x);
                ar_vec<ar_result, AR_E> v;
#pragma unroll
                for (int e = 0; e < AR_E; e++)
                    v.v[e] = ar_point(p, at, o, t, r, e);
#if AR_STEP == 1
                ar_put<AR_E>(p, at, v);
#else
                ar_put<AR_E>(p, at, v, first - x);
#endif
            }
}

#endif
