/* The form reduce. Threads either share an output (AR_INNER: the fastest axis is reduced; AR_LANES
 * threads read adjacent reduced points) or lie side by side along the outputs, AR_E each, in
 * AR_LANES rows over the reduced points. With few outputs (AR_SPLIT), blocks (gridDim.y) take the
 * reduced points in round-robin order, adjacent in memory (a tenth faster than one range per
 * block), and store their states; the block that finishes last merges them, in the order of the
 * blocks. The order in which elements are merged depends only on the shape and on the operands'
 * layout, and on how many GPUs there are: AR_JOINED, each of them takes the reduced points [p.since,
 * p.until), and stores states from number p.number on; another launch then merges all p.join.
 *
 * Measured (H200): the number of bytes in flight matters, so the loop over whole steps must not be
 * unrolled any further: its registers would cost threads.
 *
 * emit.c provides ar_params, ar_operands, ar_fetch, ar_point, ar_put, ar_kept and ar_reduced (a
 * number to the indices along the kept and the reduced axes), ar_position (a point's number among
 * the reduced ones, for argmax) and the reduction itself: ar_state, ar_begin, ar_take, ar_merge,
 * ar_end. A state begins from AR_SEEDS of the output's elements, which count only when they are
 * taken in. */
#ifndef ARRAYD_REDUCE_CUH
#define ARRAYD_REDUCE_CUH

#define AR_WIDTH  (AR_BLOCK / AR_LANES)                       /* outputs, or chunks of them, per block */
#define AR_STATES (AR_INNER && AR_SEEDS == 1 ? 1 : AR_E)      /* per thread while it reads */
#define AR_LEFT   (AR_INNER ? 1 : AR_E)                       /* … and at the end */
#define AR_SHARED (AR_INNER ? AR_BLOCK / 32 : AR_BLOCK / 2 * AR_E)

struct ar_states {
    ar_state s[AR_SHARED];
};

/* A state for each of a thread's outputs. */
AR_FN void ar_start(const ar_params &p, const ar_at &base, ar_state (&state)[AR_STATES])
{
#if AR_SEEDS
    ar_value seed[AR_STATES][AR_SEEDS] = {};
#pragma unroll
    for (int s = 0; s < AR_SEEDS && p.reduced > 0; s++) {
        ar_operands<AR_E> o;
        ar_at at = base;
        ar_reduced(p, (ar_index)p.reduced / AR_SEEDS * s, at);
        ar_fetch<AR_E>(p, at, o);
#pragma unroll
        for (int e = 0; e < AR_STATES; e++)
            seed[e][s] = ar_point<AR_E>(p, at, o, AR_INNER ? 0 : e);
    }
#pragma unroll
    for (int e = 0; e < AR_STATES; e++)
        state[e] = ar_begin(p, seed[e]);
#else
#pragma unroll
    for (int e = 0; e < AR_STATES; e++)
        state[e] = ar_begin(p);
#endif
}

/* Takes AR_UNROLL chunks from number r on, all loads before any arithmetic; not WHOLE: only those
 * before end. */
template <bool WHOLE>
AR_FN void ar_step(const ar_params &p, const ar_at &base, ar_index r, ar_index end,
                   ar_state (&state)[AR_STATES])
{
    ar_operands<AR_E> o[AR_UNROLL];
    ar_at at[AR_UNROLL];
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++)
        if (WHOLE || r + u * AR_LANES < end) {
            at[u] = base;
            ar_reduced(p, r + u * AR_LANES, at[u]);
            ar_fetch<AR_E>(p, at[u], o[u]);
        }
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++)
        if (WHOLE || r + u * AR_LANES < end) {
#pragma unroll
            for (int e = 0; e < AR_E; e++) {
                ar_state &s = state[AR_STATES == 1 ? 0 : e];
                s = ar_take(s, ar_point<AR_E>(p, at[u], o[u], e), ar_position(p, at[u], e));
            }
        }
}

/* Takes a lane's share of the points of its outputs. */
AR_FN void ar_walk(const ar_params &p, const ar_at &base, int lane, ar_state (&state)[AR_STATES])
{
    const ar_index step = AR_LANES * AR_UNROLL;
#ifdef AR_JOINED
    const ar_index end = (ar_index)p.until, begin = (ar_index)p.since;
#else
    const ar_index end = (ar_index)p.reduced, begin = 0;
#endif
    ar_index r = begin + (ar_index)blockIdx.y * step + lane;
#pragma unroll 1
    for (; r + (AR_UNROLL - 1) * AR_LANES < end; r += (ar_index)gridDim.y * step)
        ar_step<true>(p, base, r, end, state);
    if (AR_UNROLL > 1 && r < end)
        ar_step<false>(p, base, r, end, state);
}

/* Merges the states of the first n lanes into lane 0's, as a binary tree: between the lanes of a
 * warp directly, else through shared memory. */
AR_FN void ar_meet(ar_states &shared, int lane, int column, int n, ar_state (&state)[AR_STATES])
{
#if AR_INNER
    const int tid = (int)threadIdx.x;
#pragma unroll
    for (int half = (AR_LANES < 32 ? AR_LANES : 32) / 2; half > 0; half /= 2) {
        const ar_state other = ar_from_lane(state[0], tid + half);
        if (lane + half < n)
            state[0] = ar_merge(state[0], other);
    }
#if AR_LANES > 32
    const int warps = AR_LANES / 32, mine = tid / AR_LANES * warps;
    if (lane % 32 == 0)
        shared.s[tid / 32] = state[0];
    __syncthreads();
    if (lane < 32) {
        state[0] = shared.s[mine + lane % warps];
#pragma unroll
        for (int half = warps / 2; half > 0; half /= 2) {
            const ar_state other = ar_from_lane(state[0], lane + half);
            if ((lane + half) * 32 < n)
                state[0] = ar_merge(state[0], other);
        }
    }
#endif
#else
#pragma unroll
    for (int half = AR_LANES / 2; half > 0; half /= 2) {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            if (lane >= half && lane < 2 * half)
                shared.s[((lane - half) * AR_E + e) * AR_WIDTH + column] = state[e];
        __syncthreads();
        if (lane < half && lane + half < n) {
#pragma unroll
            for (int e = 0; e < AR_E; e++)
                state[e] = ar_merge(state[e], shared.s[(lane * AR_E + e) * AR_WIDTH + column]);
        }
        __syncthreads();
    }
#endif
}

#if defined(AR_SPLIT) || defined(AR_JOINED)
/* Stores a block's states of its outputs. */
AR_FN void ar_leave(const ar_params &p, ar_index chunk, int lane, ar_i64 number,
                    const ar_state (&state)[AR_STATES])
{
    ar_state *to = (ar_state *)p.scratch + number * p.kept * AR_LEFT + (ar_i64)chunk * AR_LEFT;
    if (lane == 0 && chunk < (ar_index)p.kept)
#pragma unroll
        for (int e = 0; e < AR_LEFT; e++)
            to[e] = state[e];
}

/* Merges what so many blocks left. */
AR_FN void ar_collect(const ar_params &p, ar_states &shared, ar_index chunk, int lane, int column,
                      int blocks, ar_state (&state)[AR_STATES])
{
    const ar_state *from = (const ar_state *)p.scratch + (ar_i64)chunk * AR_LEFT;
    for (int b = lane; b < blocks && chunk < (ar_index)p.kept; b += AR_LANES)
#pragma unroll
        for (int e = 0; e < AR_LEFT; e++) {
            const ar_state more = from[b * p.kept * AR_LEFT + e];
            state[e] = b == lane ? more : ar_merge(state[e], more);
        }
    ar_meet(shared, lane, column, blocks, state);
}

#endif

#ifdef AR_SPLIT
/* Stores the block's states, and merges those of all blocks. False: other blocks have not finished.
 * The counter is 0 before and after. */
AR_FN bool ar_join(const ar_params &p, ar_states &shared, ar_index chunk, int lane, int column,
                   ar_state (&state)[AR_STATES])
{
    __shared__ int last;
    ar_leave(p, chunk, lane, blockIdx.y, state);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc((unsigned *)p.counters + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
    __syncthreads();
    if (!last)
        return false;
    __threadfence();
    ar_collect(p, shared, chunk, lane, column, (int)gridDim.y, state);
    return true;
}
#endif

/* Makes the states of a thread's outputs results. */
AR_FN void ar_finish(const ar_params &p, ar_index chunk, int lane, ar_at at,
                     const ar_state (&state)[AR_STATES])
{
    if (lane != 0 || chunk >= (ar_index)p.kept)
        return;
#pragma unroll
    for (int e = 0; e < AR_LEFT; e++) {
        ar_vec<ar_result, 1> r;
        r.v[0] = ar_end(p, state[e]);
        ar_put<1>(p, at, r);
        at.i[AR_FAST] += 1;
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_states shared;
    const int tid = (int)threadIdx.x;
    const int lane = AR_INNER ? tid % AR_LANES : tid / AR_WIDTH;
    const int column = AR_INNER ? tid / AR_LANES : tid % AR_WIDTH;
    const ar_index chunk = AR_BLOCK_X * AR_WIDTH + column;
    ar_state state[AR_STATES];
    ar_at at;
#ifdef AR_JOINED
    if (p.join) {
        if (chunk < (ar_index)p.kept)
            ar_kept(p, chunk, at);
        ar_collect(p, shared, chunk, lane, column, (int)p.join, state);
        ar_finish(p, chunk, lane, at, state);
        return;
    }
#endif
    if (chunk < (ar_index)p.kept) {
        ar_kept(p, chunk, at);
        ar_start(p, at, state);
        ar_walk(p, at, lane, state);
    }
#pragma unroll
    for (int e = AR_LEFT; e < AR_STATES; e++)
        state[0] = ar_merge(state[0], state[e]);
    ar_meet(shared, lane, column, AR_LANES, state);
#ifdef AR_JOINED
    ar_leave(p, chunk, lane, p.number + blockIdx.y, state);
#else
#ifdef AR_SPLIT
    if (!ar_join(p, shared, chunk, lane, column, state))
        return;
#endif
    ar_finish(p, chunk, lane, at, state);
#endif
}

#endif
