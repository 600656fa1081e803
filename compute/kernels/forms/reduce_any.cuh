/* The form reduce with one text for all lengths, layouts and ways to divide the work, of elements
 * that lie in the order of the points: behind a program of the interpreter (interp/rest.c). Lanes,
 * chunks and blocks are arguments; a chunk's elements are visited one after the other, and read as
 * often as there are of them. Everything is combined in reduce.cuh's order.
 *
 * The last axis is within chunks (p.strip elements); emit.c provides what it does for
 * reduce.cuh, and AR_INNER. */
#ifndef ARRAYD_REDUCE_ANY_CUH
#define ARRAYD_REDUCE_ANY_CUH

struct ar_states {
    ar_state s[AR_INNER ? AR_BLOCK / 32 : AR_BLOCK / 2];
};

/* Where a thread stands: its lane among those of an output, and its output among the block's. */
struct ar_post {
    int lanes, lane, column, width;
};

AR_FN ar_value ar_element(const ar_params &p, ar_at &at, ar_index r, int e)
{
    ar_operands<1> o;
    ar_reduced(p, r, at);
    at.i[AR_FAST] = e;
    ar_fetch<1>(p, at, o);
    return ar_point<1>(p, at, o, 0);
}

/* A lane's share of the elements numbered e in their chunks. */
AR_FN ar_state ar_share(const ar_params &p, ar_at at, const ar_post &t, int e)
{
#if AR_SEEDS
    ar_value seed[AR_SEEDS] = {};
    for (int s = 0; s < AR_SEEDS && p.reduced > 0; s++)
        seed[s] = ar_element(p, at, (ar_index)p.reduced / AR_SEEDS * s, AR_INNER ? 0 : e);
    ar_state state = ar_begin(p, seed);
#else
    ar_state state = ar_begin(p);
#endif
    const ar_index end = (ar_index)p.reduced, turn = (ar_index)p.turn;
    for (ar_index first = (ar_index)blockIdx.y * turn; first < end; first += (ar_index)gridDim.y * turn)
        for (ar_index r = first + t.lane; r < first + turn && r < end; r += t.lanes) {
            const ar_value x = ar_element(p, at, r, e);
            state = ar_take(state, x, ar_position(p, at, 0));
        }
    return state;
}

/* Merges the states of the first n lanes into lane 0's; the whole block calls it. */
AR_FN void ar_meet(ar_states &shared, const ar_post &t, int n, ar_state &state)
{
#if AR_INNER
    const int tid = (int)threadIdx.x, warps = t.lanes / 32;
    for (int half = (t.lanes < 32 ? t.lanes : 32) / 2; half > 0; half /= 2) {
        const ar_state other = ar_from_lane(state, tid + half);
        if (t.lane + half < n)
            state = ar_merge(state, other);
    }
    if (warps <= 1)
        return;
    if (t.lane % 32 == 0)
        shared.s[tid / 32] = state;
    __syncthreads();
    if (t.lane < 32) {
        state = shared.s[tid / t.lanes * warps + t.lane % warps];
        for (int half = warps / 2; half > 0; half /= 2) {
            const ar_state other = ar_from_lane(state, t.lane + half);
            if ((t.lane + half) * 32 < n)
                state = ar_merge(state, other);
        }
    }
    __syncthreads();
#else
    for (int half = t.lanes / 2; half > 0; half /= 2) {
        if (t.lane >= half && t.lane < 2 * half)
            shared.s[(t.lane - half) * t.width + t.column] = state;
        __syncthreads();
        if (t.lane < half && t.lane + half < n)
            state = ar_merge(state, shared.s[t.lane * t.width + t.column]);
        __syncthreads();
    }
#endif
}

AR_FN void ar_finish(const ar_params &p, ar_at at, int e, const ar_state &state)
{
    ar_vec<ar_result, 1> r;
    r.v[0] = ar_end(p, state);
    at.i[AR_FAST] = e;
    ar_put<1>(p, at, r);
}

/* Whether all other blocks of these outputs have stored their states. The counter is 0 before and
 * after. */
AR_FN bool ar_is_last(const ar_params &p)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicInc((unsigned *)p.counters + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
    __syncthreads();
    __threadfence();
    return last;
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_states shared;
    const int tid = (int)threadIdx.x, lanes = (int)p.lanes, width = (int)blockDim.x / lanes;
    const ar_post t = {lanes, AR_INNER ? tid % lanes : tid / width,
                       AR_INNER ? tid / lanes : tid % width, width};
    const ar_index chunk = AR_BLOCK_X * width + t.column;
    const bool inside = chunk < (ar_index)p.kept;
    const int strip = (int)p.strip, outputs = AR_INNER ? 1 : strip, blocks = (int)gridDim.y;
    const ar_i64 all = p.kept * outputs, first = (ar_i64)chunk * outputs;
    ar_state *const states = (ar_state *)p.scratch;
    ar_state state;
    ar_at at;
    if (inside)
        ar_kept(p, chunk, at);
    for (int e = 0; e < outputs; e++) {
        if (inside) {
            state = ar_share(p, at, t, e);
            for (int i = 1; AR_INNER && i < strip; i++)
                state = ar_merge(state, ar_share(p, at, t, i));
        }
        ar_meet(shared, t, lanes, state);
        if (t.lane != 0 || !inside)
            continue;
        if (blocks > 1)
            states[blockIdx.y * all + first + e] = state;
        else
            ar_finish(p, at, e, state);
    }
    if (blocks == 1 || !ar_is_last(p))
        return;
    for (int e = 0; e < outputs; e++) {
        for (int b = t.lane; b < blocks && inside; b += lanes) {
            const ar_state more = states[b * all + first + e];
            state = b == t.lane ? more : ar_merge(state, more);
        }
        ar_meet(shared, t, blocks, state);
        if (t.lane == 0 && inside)
            ar_finish(p, at, e, state);
    }
}

#endif
