/* The form fold: reductions of rows and what is made of their results, in one pass. AR_LANES
 * threads share a row, AR_CHUNKS chunks of AR_E elements each, whose operands stay in registers or,
 * of a long row's first AR_HELD, in shared memory, where each thread reads what it copied there
 * itself. One fold after the other combines what all of them hold; each thread then has its result.
 * A value that is dear to compute and all that is needed later takes the place of the operands
 * (AR_MADE, the level of the fold that needs it first).
 *
 * Elements are combined in the order of the form reduce: a thread's chunks are AR_LANES apart, each
 * of a chunk's elements has a state of its own, and the lanes' states are merged as a binary tree.
 * So a fold has the bits of the reduction it stands for; form_fold.c sees to the same lanes.
 *
 * A row's last chunks may be missing (not AR_EVEN), and a block's last rows: such threads read what
 * there is, since all of a warp exchange values, and what they compute is not taken.
 *
 * emit.c provides ar_params, ar_operands, ar_fetch, ar_keep; with AR_HELD ar_held, the operands as
 * they are kept there, ar_hold and ar_recall; ar_made and ar_make; ar_kept and ar_reduced (as for
 * the form reduce), ar_position, ar_folds (the results, and what is the same all along a row), for
 * each an ar_fold<name> with its reduction, ar_point and ar_give; AR_FOLDS, levels of those that
 * are taken in together; ar_derive<level>, which computes what follows from their results alone;
 * with AR_STORES ar_point and ar_put of the results; ar_put_row. */
#ifndef ARRAYD_FOLD_CUH
#define ARRAYD_FOLD_CUH

#define AR_WIDTH (AR_BLOCK / AR_LANES) /* rows per block */
#define AR_KEPT  (AR_CHUNKS - AR_HELD) /* chunks in registers */
#define AR_SOME  (AR_E < 16 ? 16 / AR_E : 1) /* of the others at once */
#define AR_IN    inline __device__     /* AR_FN of a member */

/* The states of a block's warps, 32 bytes each at most, of the folds that are taken in together;
 * two of these in turn, so that the next may begin while threads still read the last. */
struct alignas(16) ar_room {
    char states[2][AR_LANES > 32 ? AR_TOGETHER * (AR_BLOCK / 32) * 32 : 16];
};

/* A row as a thread sees it: its first point, its chunks in registers, what it has of them. */
struct ar_row {
    ar_at base, at[AR_KEPT];
    ar_operands<AR_E> o[AR_KEPT];
    ar_made w[AR_KEPT];
    int lane;
};

#if AR_HELD
/* A chunk in shared memory. */
union ar_cell {
    ar_held<AR_E> o;
    ar_made w;
};
/* Rows that are computed from indices alone hold nothing: AR_CELL is 0, and no cell is accessed. */
static_assert(AR_CELL ? sizeof(ar_cell) <= AR_CELL : !AR_MADE, "of a block's shared memory");
extern __shared__ __align__(16) unsigned char ar_memory[];

AR_FN ar_cell &ar_cell_of(int chunk)
{
    return ((ar_cell *)ar_memory)[chunk * AR_BLOCK + (int)threadIdx.x];
}
/* They come before the last chunk, so they are there. */
AR_FN void ar_held_at(const ar_params &p, const ar_row &row, int chunk, ar_at &at)
{
    at = row.base;
    ar_reduced(p, row.lane + chunk * AR_LANES, at);
}
#endif

/* Only the last chunk of a thread may be missing. */
AR_FN bool ar_has(const ar_params &p, int lane, int chunk)
{
    return AR_EVEN || chunk < AR_CHUNKS - 1 || lane + chunk * AR_LANES < (ar_index)p.reduced;
}

/* Merges the states of a row's lanes, in two parts with a barrier in between if they are of several
 * warps: within each warp, and the warps'. Each lane then has the result. */
template <typename F>
AR_FN typename F::ar_state ar_send(typename F::ar_state s, int lane, typename F::ar_state *to)
{
    static_assert(sizeof(s) <= 32, "of ar_room");
    const int tid = (int)threadIdx.x;
#pragma unroll
    for (int half = (AR_LANES < 32 ? AR_LANES : 32) / 2; half > 0; half /= 2)
        s = F::ar_merge(s, ar_from_lane(s, tid + half));
    if (AR_LANES > 32 && lane % 32 == 0)
        to[tid / 32] = s;
    return s;
}
template <typename F>
AR_FN typename F::ar_state ar_receive(typename F::ar_state s, int lane,
                                      const typename F::ar_state *from)
{
    const int tid = (int)threadIdx.x;
#if AR_LANES > 32
    const int warps = AR_LANES / 32, mine = tid / AR_LANES * warps;
    s = from[mine + lane % warps];
#pragma unroll
    for (int half = warps / 2; half > 0; half /= 2)
        s = F::ar_merge(s, ar_from_lane(s, tid + half));
    return ar_from_lane(s, 0);
#else
    (void)from;
    return ar_from_lane(s, tid - lane);
#endif
}

#if AR_MADE
/* The values, in whole registers: the compiler would keep each of two bytes in one of its own, and
 * converted to float32 as soon as it is once. */
AR_FN void ar_pack(ar_made &w)
{
#if defined(__CUDA_ARCH__) && !defined(ARRAYD_FAKE_DEVICE)
    if (AR_KEPT * AR_E > 32 && sizeof(w.v[0]) == 2 && sizeof w % 4 == 0) {
        union words {
            ar_made w;
            ar_u32 u[(sizeof(ar_made) + 3) / 4];
            __device__ words() {}
        } all;
        all.w = w;
#pragma unroll
        for (int i = 0; i < (int)sizeof w / 4; i++)
            all.u[i] = ar_own_instruction(all.u[i]);
        w = all.w;
    }
#endif
}
#endif

/* One fold's states while a thread takes its row in. */
template <int LEVEL, typename F> struct ar_taking {
    static constexpr int STATES = F::SEEDS == 1 ? 1 : AR_E;
    typename F::ar_state s[STATES];

    AR_IN void begin(const ar_params &p, const ar_row &row, const ar_folds &h)
    {
        const int seeds = F::SEEDS ? F::SEEDS : 1;
        typename F::ar_value x[seeds] = {};
#pragma unroll
        for (int i = 0; i < F::SEEDS; i++) {
            ar_at at = row.base;
            ar_operands<AR_E> o;
            ar_reduced(p, (ar_index)p.reduced / seeds * i, at);
            ar_made w;
            ar_fetch<AR_E>(p, at, o);
#if AR_MADE
            if (LEVEL >= AR_MADE)
                w.v[0] = ar_make<AR_E>(p, at, o, w, h, 0);
#endif
            x[i] = F::template ar_point<AR_E>(p, at, o, w, h, 0);
        }
#pragma unroll
        for (int e = 0; e < STATES; e++)
            s[e] = F::ar_begin(p, x);
    }

    AR_IN void take(const ar_params &p, const ar_at &at, const ar_operands<AR_E> &o,
                    const ar_made &w, const ar_folds &h, bool has, int e)
    {
        typename F::ar_state &of = s[STATES == 1 ? 0 : e];
        const typename F::ar_state next = F::ar_take(
            of, F::template ar_point<AR_E>(p, at, o, w, h, e), ar_position(p, at, e));
        if (has)
            of = next;
    }

    AR_IN void send(const ar_row &row, char *room)
    {
#pragma unroll
        for (int e = 1; e < STATES; e++)
            s[0] = F::ar_merge(s[0], s[e]);
        s[0] = ar_send<F>(s[0], row.lane, (typename F::ar_state *)room);
    }

    AR_IN void receive(const ar_params &p, const ar_row &row, ar_folds &h, const char *room)
    {
        s[0] = ar_receive<F>(s[0], row.lane, (const typename F::ar_state *)room);
        F::ar_give(h, F::ar_end(p, s[0]));
    }
};

/* Folds that need nothing of each other, together: what both compute of an element is computed once
 * and need not be kept until the next one, and there is one barrier. */
template <int LEVEL, typename... F> struct ar_together : ar_taking<LEVEL, F>... {
    static_assert(sizeof...(F) <= AR_TOGETHER, "of ar_room");

    AR_IN void chunk(const ar_params &p, const ar_at &at, const ar_operands<AR_E> &o, ar_made &w,
                     const ar_folds &h, bool has)
    {
#if AR_MADE
#pragma unroll
        for (int e = 0; e < AR_E && LEVEL == AR_MADE; e++)
            w.v[e] = ar_make<AR_E>(p, at, o, w, h, e);
#endif
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            (ar_taking<LEVEL, F>::take(p, at, o, w, h, has, e), ...);
    }

    AR_IN void fold(const ar_params &p, ar_row &row, ar_folds &h, char *room)
    {
        const int step = AR_LANES > 32 ? AR_BLOCK / 32 * 32 : 0;
        int from = 0;
        (ar_taking<LEVEL, F>::begin(p, row, h), ...);
#if AR_HELD
#pragma unroll AR_SOME
        for (int u = 0; u < AR_HELD; u++) {
            ar_at at;
            ar_operands<AR_E> o;
            ar_made w;
            ar_held_at(p, row, u, at);
            if (AR_MADE && LEVEL > AR_MADE) {
                w = ar_cell_of(u).w;
            } else {
                ar_fetch<AR_E>(p, at, o);
                ar_recall<AR_E>(ar_cell_of(u).o, o);
            }
            chunk(p, at, o, w, h, true);
            if (AR_MADE && LEVEL == AR_MADE)
                ar_cell_of(u).w = w;
        }
#endif
#pragma unroll
        for (int u = 0; u < AR_KEPT; u++)
            chunk(p, row.at[u], row.o[u], row.w[u], h, ar_has(p, row.lane, AR_HELD + u));
        ((ar_taking<LEVEL, F>::send(row, room + from), from += step), ...);
        if (AR_LANES > 32)
            __syncthreads();
        from = 0;
        ((ar_taking<LEVEL, F>::receive(p, row, h, room + from), from += step), ...);
    }
};

#ifdef AR_STORES
AR_FN void ar_put_chunk(const ar_params &p, const ar_at &at, const ar_operands<AR_E> &o,
                        const ar_made &w, const ar_folds &h)
{
    ar_vec<ar_result, AR_E> r;
    bool odd = false;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        r.v[e] = ar_point<AR_E, false>(p, at, o, w, h, e, odd);
    if (odd) {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            r.v[e] = ar_point<AR_E, true>(p, at, o, w, h, e, odd);
    }
    ar_put<AR_E>(p, at, r);
}
#endif

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_room room;
    ar_row row;
    ar_folds h;
    const ar_index number = AR_BLOCK_X * AR_WIDTH + (int)threadIdx.x / AR_LANES;
    const bool inside = number < (ar_index)p.kept;
    row.lane = (int)threadIdx.x % AR_LANES;
    ar_kept(p, inside ? number : (ar_index)p.kept - 1, row.base);
#if AR_HELD
#pragma unroll AR_SOME
    for (int u = 0; u < AR_HELD; u++) {
        ar_at at;
        ar_held_at(p, row, u, at);
        ar_hold<AR_E>(p, at, ar_cell_of(u).o);
    }
    ar_sent();
#endif
#pragma unroll
    for (int u = 0; u < AR_KEPT; u++) {
        const int chunk = AR_HELD + u;
        row.at[u] = row.base;
        ar_reduced(p, ar_has(p, row.lane, chunk) ? row.lane + chunk * AR_LANES : 0, row.at[u]);
        ar_fetch<AR_E>(p, row.at[u], row.o[u]);
    }
#if AR_HELD
    ar_arrived<0>();
#endif
    int turn = 0;
#define AR_FOLD(level, ...)                                                                        \
    ar_together<level, __VA_ARGS__>().fold(p, row, h, room.states[turn]);                          \
    ar_derive##level(p, h);                                                                        \
    turn ^= 1;
    AR_FOLDS(AR_FOLD)
#undef AR_FOLD
    if (!inside)
        return;
#ifdef AR_STORES
#if AR_HELD
#pragma unroll AR_SOME
    for (int u = 0; u < AR_HELD; u++) {
        ar_at at;
        ar_operands<AR_E> o;
        ar_made w;
        ar_held_at(p, row, u, at);
        ar_fetch<AR_E>(p, at, o);
        if (AR_MADE)
            w = ar_cell_of(u).w;
        else
            ar_recall<AR_E>(ar_cell_of(u).o, o);
        ar_put_chunk(p, at, o, w, h);
    }
#endif
#pragma unroll
    for (int u = 0; u < AR_KEPT; u++)
        if (ar_has(p, row.lane, AR_HELD + u)) {
            ar_operands<AR_E> o;
            ar_fetch<AR_E>(p, row.at[u], o);
            ar_keep<AR_E>(row.o[u], o);
#if AR_MADE
            ar_pack(row.w[u]);
#endif
            ar_put_chunk(p, row.at[u], o, row.w[u], h);
        }
#endif
    if (row.lane == 0)
        ar_put_row(p, row.base, h);
}

#endif
