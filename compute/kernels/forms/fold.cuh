/* The form fold: reductions of rows and what is made of their results, in one pass. AR_LANES threads
 * share a row, AR_CHUNKS chunks of AR_E elements each, whose operands stay in registers. One fold
 * after the other combines what all of them hold; each thread then has its result.
 *
 * Elements are combined in the order of the form reduce: a thread's chunks are AR_LANES apart, each
 * of a chunk's elements has a state of its own, and the lanes' states are merged as a binary tree.
 * So a fold has the bits of the reduction it stands for; form_fold.c sees to the same lanes.
 *
 * A row's last chunks may be missing (not AR_EVEN), and a block's last rows: such threads read what
 * there is, since all of a warp exchange values, and what they compute is not taken.
 *
 * emit.c provides ar_params, ar_operands, ar_fetch, ar_keep, ar_kept and ar_reduced (as for the form
 * reduce), ar_position, ar_folds (the results), AR_FOLDS (their names), for each an ar_fold<name>
 * with its reduction and ar_point; with AR_STORES ar_point and ar_put of the results; ar_put_row. */
#ifndef ARRAYD_FOLD_CUH
#define ARRAYD_FOLD_CUH

#define AR_WIDTH (AR_BLOCK / AR_LANES) /* rows per block */

/* The states of a block's warps, 32 bytes each at most; two folds in turn, so that one may begin
 * while threads still read the other's. */
struct alignas(16) ar_room {
    char states[2][AR_LANES > 32 ? AR_BLOCK / 32 * 32 : 16];
};

/* A row as a thread sees it: its first point, its chunks, their operands. */
struct ar_row {
    ar_at base, at[AR_CHUNKS];
    ar_operands<AR_E> o[AR_CHUNKS];
    int lane;
};

AR_FN bool ar_has(const ar_params &p, int lane, int chunk)
{
    return AR_EVEN || lane + chunk * AR_LANES < (ar_index)p.reduced;
}

/* Merges the states of a row's lanes; each gets the result. */
template <typename F>
AR_FN typename F::ar_state ar_meet(typename F::ar_state s, int lane, ar_room &room, int turn)
{
    typedef typename F::ar_state state;
    static_assert(sizeof(state) <= 32, "of ar_room");
    const int tid = (int)threadIdx.x;
#pragma unroll
    for (int half = (AR_LANES < 32 ? AR_LANES : 32) / 2; half > 0; half /= 2)
        s = F::ar_merge(s, ar_from_lane(s, tid + half));
#if AR_LANES > 32
    const int warps = AR_LANES / 32, mine = tid / AR_LANES * warps;
    state *all = (state *)room.states[turn];
    if (lane % 32 == 0)
        all[tid / 32] = s;
    __syncthreads();
    s = all[mine + lane % warps];
#pragma unroll
    for (int half = warps / 2; half > 0; half /= 2)
        s = F::ar_merge(s, ar_from_lane(s, tid + half));
    return ar_from_lane(s, 0);
#else
    (void)room;
    (void)turn;
    return ar_from_lane(s, tid - lane);
#endif
}

template <typename F>
AR_FN typename F::ar_result ar_fold(const ar_params &p, const ar_row &row, const ar_folds &h,
                                    ar_room &room, int turn)
{
    const int states = F::SEEDS == 1 ? 1 : AR_E, seeds = F::SEEDS ? F::SEEDS : 1;
    typename F::ar_value x[seeds] = {};
    typename F::ar_state s[states];
#pragma unroll
    for (int i = 0; i < F::SEEDS; i++) {
        ar_at at = row.base;
        ar_operands<AR_E> o;
        ar_reduced(p, (ar_index)p.reduced / seeds * i, at);
        ar_fetch<AR_E>(p, at, o);
        x[i] = F::template ar_point<AR_E>(p, at, o, h, 0);
    }
#pragma unroll
    for (int e = 0; e < states; e++)
        s[e] = F::ar_begin(p, x);
#pragma unroll
    for (int u = 0; u < AR_CHUNKS; u++)
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            typename F::ar_state &of = s[states == 1 ? 0 : e];
            const typename F::ar_state next =
                F::ar_take(of, F::template ar_point<AR_E>(p, row.at[u], row.o[u], h, e),
                           ar_position(p, row.at[u], e));
            if (ar_has(p, row.lane, u))
                of = next;
        }
#pragma unroll
    for (int e = 1; e < states; e++)
        s[0] = F::ar_merge(s[0], s[e]);
    return F::ar_end(p, ar_meet<F>(s[0], row.lane, room, turn));
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_room room;
    ar_row row;
    ar_folds h;
    const ar_index number = (ar_index)blockIdx.x * AR_WIDTH + (int)threadIdx.x / AR_LANES;
    const bool inside = number < (ar_index)p.kept;
    row.lane = (int)threadIdx.x % AR_LANES;
    ar_kept(p, inside ? number : (ar_index)p.kept - 1, row.base);
#pragma unroll
    for (int u = 0; u < AR_CHUNKS; u++) {
        row.at[u] = row.base;
        ar_reduced(p, ar_has(p, row.lane, u) ? row.lane + u * AR_LANES : 0, row.at[u]);
        ar_fetch<AR_E>(p, row.at[u], row.o[u]);
    }
    int turn = 0;
#define AR_ONE(n)                                                                                  \
    h.f##n = ar_fold<ar_fold##n>(p, row, h, room, turn);                                           \
    turn ^= 1;
    AR_FOLDS(AR_ONE)
#undef AR_ONE
    if (!inside)
        return;
#ifdef AR_STORES
#pragma unroll
    for (int u = 0; u < AR_CHUNKS; u++)
        if (ar_has(p, row.lane, u)) {
            ar_vec<ar_result, AR_E> r;
            ar_operands<AR_E> o;
            ar_fetch<AR_E>(p, row.at[u], o);
            ar_keep<AR_E>(row.o[u], o);
#pragma unroll
            for (int e = 0; e < AR_E; e++)
                r.v[e] = ar_point<AR_E>(p, row.at[u], o, h, e);
            ar_put<AR_E>(p, row.at[u], r);
        }
#endif
    if (row.lane == 0)
        ar_put_row(p, row.base, h);
}

#endif
