/* The form reduce. Threads either share an output (AR_INNER: the fastest axis is reduced; AR_LANES
 * threads walk the reduced points side by side) or stand beside each other along the outputs, AR_E
 * each, in AR_LANES rows over the reduced points. Where there are few outputs, blocks (gridDim.y) take
 * turns at the reduced points, side by side in memory (a tenth faster than a stretch each), and
 * ar_finish merges their states in order. Which elements meet in which order depends on the shape and
 * on how the operands lie alone.
 *
 * emit.c provides ar_params, ar_operands, ar_fetch, ar_point, ar_put, ar_kept and ar_reduced (a number
 * to the indices along the kept, the reduced axes), ar_position (a point's number among the reduced
 * ones, for argmax) and the reduction itself: ar_state, ar_begin, ar_take, ar_merge, ar_end. */
#ifndef ARRAYD_REDUCE_CUH
#define ARRAYD_REDUCE_CUH

#define AR_WIDTH (AR_BLOCK / AR_LANES) /* outputs, or chunks of them, of a block */

/* A block's states, [lane][output]. */
struct ar_states {
    ar_state s[AR_LANES][AR_INNER ? AR_WIDTH : AR_WIDTH * AR_E];
};

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_states shared;
    const int tid = (int)threadIdx.x;
    const int lane = AR_INNER ? tid % AR_LANES : tid / AR_WIDTH;
    const int column = AR_INNER ? tid / AR_LANES : tid % AR_WIDTH;
    const ar_index chunk = (ar_index)blockIdx.x * AR_WIDTH + column;
    const ar_index end = (ar_index)p.reduced, step = AR_LANES * AR_UNROLL;

    ar_state state[AR_E];
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        state[e] = ar_begin(p);
    if (chunk < (ar_index)p.kept) {
        ar_at base;
        ar_kept(p, chunk, base);
        for (ar_index r = (ar_index)blockIdx.y * step + lane; r < end;
             r += (ar_index)gridDim.y * step) {
            ar_operands<AR_E> o[AR_UNROLL];
            ar_at at[AR_UNROLL];
#pragma unroll
            for (int u = 0; u < AR_UNROLL; u++)
                if (r + u * AR_LANES < end) {
                    at[u] = base;
                    ar_reduced(p, r + u * AR_LANES, at[u]);
                    ar_fetch<AR_E>(p, at[u], o[u]);
                }
#pragma unroll
            for (int u = 0; u < AR_UNROLL; u++)
                if (r + u * AR_LANES < end) {
#pragma unroll
                    for (int e = 0; e < AR_E; e++)
                        state[e] = ar_take(state[e], ar_point<AR_E>(p, at[u], o[u], e),
                                           ar_position(p, at[u], e));
                }
        }
    }
    if (AR_INNER) {
#pragma unroll
        for (int e = 1; e < AR_E; e++)
            state[0] = ar_merge(state[0], state[e]);
        shared.s[lane][column] = state[0];
    } else {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            shared.s[lane][column * AR_E + e] = state[e];
    }
    __syncthreads();
#pragma unroll
    for (int half = AR_LANES / 2; half > 0; half /= 2) {
        if (lane < half) {
#pragma unroll
            for (int e = 0; e < (AR_INNER ? 1 : AR_E); e++) {
                const int c = AR_INNER ? column : column * AR_E + e;
                shared.s[lane][c] = ar_merge(shared.s[lane][c], shared.s[lane + half][c]);
            }
        }
        __syncthreads();
    }
    if (lane != 0 || chunk >= (ar_index)p.kept)
        return;
    const int n = AR_INNER ? 1 : AR_E;
    if (gridDim.y == 1) {
        ar_at at;
        ar_kept(p, chunk, at);
#pragma unroll
        for (int e = 0; e < n; e++) {
            ar_vec<ar_result, 1> r;
            r.v[0] = ar_end(p, shared.s[0][column * n + e]);
            ar_put<1>(p, at, r);
            at.i[AR_FAST] += 1;
        }
    } else {
        ar_state *to = (ar_state *)p.scratch +
                       ((ar_i64)blockIdx.y * p.kept + (ar_i64)chunk) * n;
#pragma unroll
        for (int e = 0; e < n; e++)
            to[e] = shared.s[0][column * n + e];
    }
}

#ifdef AR_JOIN
/* AR_JOIN threads an output: each merges some blocks' states, in order, then they each other's. */
struct ar_finishing {
    ar_state s[AR_BLOCK];
};
extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_finish(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_finishing shared;
    const int n = AR_INNER ? 1 : AR_E, tid = (int)threadIdx.x, lane = tid % AR_JOIN;
    const ar_i64 i = (ar_i64)blockIdx.x * (AR_BLOCK / AR_JOIN) + tid / AR_JOIN, all = p.kept * n;
    const ar_state *from = (const ar_state *)p.scratch;
    ar_state state = ar_begin(p);
    if (i < all)
        for (ar_i64 s = lane; s < p.blocks; s += AR_JOIN)
            state = s == lane ? from[s * all + i] : ar_merge(state, from[s * all + i]);
    shared.s[tid] = state;
    __syncthreads();
#pragma unroll
    for (int half = AR_JOIN / 2; half > 0; half /= 2) {
        if (lane < half)
            shared.s[tid] = ar_merge(shared.s[tid], shared.s[tid + half]);
        __syncthreads();
    }
    if (lane != 0 || i >= all)
        return;
    ar_at at;
    ar_kept(p, (ar_index)(i / n), at);
    at.i[AR_FAST] += (ar_index)(i % n);
    ar_vec<ar_result, 1> r;
    r.v[0] = ar_end(p, shared.s[tid]);
    ar_put<1>(p, at, r);
}

#endif

#endif
