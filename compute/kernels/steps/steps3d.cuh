/* The form steps in three dimensions; see steps2d.cuh for the terms.
 *
 * A block owns AR_WIDTH columns and AR_HEIGHT rows, and proceeds along the slowest axis: in round
 * i, plane i arrives, and level n's plane i − AR_LAG·n is computed, AR_LAG being the farthest read
 * along that axis. A thread has AR_R rows of AR_E columns: the planes of each level that the next
 * step reads, but the first level's older ones, which stay in the queue. It takes a row through all
 * levels, then the next row, so that a new plane needs no registers beside the one that it
 * replaces. Neighbours in a row come by shuffles. A group of AR_LANES threads stores its first and
 * last rows of each level in shared memory for the adjacent groups, which read them AR_LAG rounds
 * later; in between all warps have arrived at a barrier. Rows that need nothing of other groups go
 * first, so nobody waits for work of just now.
 *
 * Planes come by the copy engine, AR_AHEAD ahead, where the GPU has one and rows are aligned: one
 * thread asks for a plane in one instruction. Otherwise each thread copies its own elements.
 *
 * emit_steps3d.c provides struct ar_params, ar_rows (a row of each field), ar_kept (an ar_patch of
 * each field and plane), ar_shared, ar_bring, ar_take, ar_step, ar_turn, ar_put and the
 * AR_… constants. */
#ifndef ARRAYD_STEPS3D_CUH
#define ARRAYD_STEPS3D_CUH

/* Rows that need nothing of other groups, and the others: which is the nth. */
#define AR_FIRST (AR_BESIDE < AR_R ? AR_BESIDE : AR_R) /* rows before the inner ones */
#define AR_AFTER (AR_R - AR_BESIDE > AR_FIRST ? AR_R - AR_BESIDE : AR_FIRST)
#define AR_INNER (AR_AFTER - AR_FIRST)
AR_FN constexpr int ar_row_at(bool outer, int n)
{
    return !outer ? AR_FIRST + n : n < AR_FIRST ? n : n + AR_INNER;
}

/* Rows number N to END, of which x holds those from FROM on, at one level. */
template <bool EDGE, int PHASE, int LEVEL, bool OUTER, int FROM, int N, int END>
AR_FN void ar_level(const ar_params &p, const ar_place &s, ar_shared &shared, const ar_march &m,
                    ar_kept &kept, ar_rows (&x)[END - FROM])
{
    if constexpr (N < END) {
        ar_step<EDGE, PHASE, ar_row_at(OUTER, N), LEVEL>(
            p, s, shared, m, m.i - AR_LAG * (LEVEL + 1), kept, x[N - FROM]);
        ar_level<EDGE, PHASE, LEVEL, OUTER, FROM, N + 1, END>(p, s, shared, m, kept, x);
    }
}

template <bool EDGE, int PHASE, int LEVEL, bool OUTER, int FROM, int END>
AR_FN void ar_climb(const ar_params &p, const ar_place &s, ar_shared &shared, const ar_march &m,
                    ar_kept (&kept)[AR_T], ar_rows (&x)[END - FROM])
{
    if constexpr (LEVEL < AR_T) {
        ar_level<EDGE, PHASE, LEVEL, OUTER, FROM, FROM, END>(p, s, shared, m, kept[LEVEL], x);
        ar_climb<EDGE, PHASE, LEVEL + 1, OUTER, FROM, END>(p, s, shared, m, kept, x);
    }
}

/* Rows number FROM to END, three at a time: others to work on while one waits. */
template <bool EDGE, int PHASE, bool OUTER, int FROM, int END>
AR_FN void ar_some_rows(const ar_params &p, const ar_place &s, ar_shared &shared, const ar_march &m,
                        ar_kept (&kept)[AR_T], ar_u32 stored)
{
    if constexpr (FROM < END) {
        constexpr int to = FROM + 3 < END ? FROM + 3 : END;
        ar_rows x[to - FROM];
#pragma unroll
        for (int n = FROM; n < to; n++)
            ar_take(shared, m, s, ar_row_at(OUTER, n), x[n - FROM]);
        ar_climb<EDGE, PHASE, 0, OUTER, FROM, to>(p, s, shared, m, kept, x);
#pragma unroll
        for (int n = FROM; n < to; n++)
            ar_put(p, s, shared, m.i - AR_LAG * AR_T, ar_row_at(OUTER, n),
                   (OUTER ? AR_INNER + n : n) & 1, stored >> ar_row_at(OUTER, n) & 1, x[n - FROM]);
        ar_some_rows<EDGE, PHASE, OUTER, to, END>(p, s, shared, m, kept, stored);
    }
}

/* Asks for the next plane. */
AR_FN void ar_ask(const ar_params &p, const ar_place &s, ar_shared &shared, ar_march &m, bool any)
{
#if AR_PACED
    if (any && threadIdx.x == 0)
        ar_pace(p.counts + 32 * blockIdx.z, gridDim.x * gridDim.y, m);
#endif
    if (any)
        ar_bring(p, s, shared, m.into, m.into_brief, m.next);
    if (!AR_MAPPED)
        ar_came(shared.barriers, m.into, any);
    m.into = m.into + 1 == AR_SLOTS ? 0 : m.into + 1;
    m.into_brief = m.into_brief + 1 == AR_BRIEF ? 0 : m.into_brief + 1;
    m.next = m.next + 1 < (ar_index)p.nz ? m.next + 1 : AR_WRAP_SLOW ? 0 : m.next;
}

template <bool EDGE, int PHASE>
AR_FN void ar_round(const ar_params &p, const ar_place &s, ar_shared &shared, ar_march &m,
                    ar_kept (&kept)[AR_T])
{
    ar_await(shared.barriers, m.slot[0], m.parity);
    if (AR_PIECE < AR_E)
        __syncwarp(); /* a round's first row and its last may have the same stage */
    const ar_u32 stored = m.i - AR_LAG * AR_T >= m.begin ? s.rows : 0;
    ar_some_rows<EDGE, PHASE, false, 0, AR_INNER>(p, s, shared, m, kept, stored);
    ar_meet(shared.barriers, m.round);
    ar_ask(p, s, shared, m, m.i + AR_AHEAD < m.stop);
    ar_some_rows<EDGE, PHASE, true, 0, AR_R - AR_INNER>(p, s, shared, m, kept, stored);
    ar_reach(shared.barriers);
#pragma unroll
    for (int k = AR_LAG + AR_BACK; k > 0; k--)
        m.slot[k] = m.slot[k - 1];
    m.slot[0] = m.slot[0] + 1 == AR_SLOTS ? 0 : m.slot[0] + 1;
#pragma unroll
    for (int k = AR_LAG; k > 0; k--)
        m.brief[k] = m.brief[k - 1];
    m.brief[0] = m.brief[0] + 1 == AR_BRIEF ? 0 : m.brief[0] + 1;
    m.parity ^= m.slot[0] == 0;
    m.write = m.read;
    m.read = m.read + 1 == AR_SIDES ? 0 : m.read + 1;
    m.round ^= 1;
    m.i++;
}

/* AR_UNROLL rounds, at whose end each plane is in the same registers as at their beginning. */
template <int PHASE>
AR_FN void ar_rounds(const ar_params &p, const ar_place &s, ar_shared &shared, ar_march &m,
                     ar_kept (&kept)[AR_T])
{
    if constexpr (PHASE < AR_UNROLL) {
        ar_round<false, PHASE>(p, s, shared, m, kept);
        ar_rounds<PHASE + 1>(p, s, shared, m, kept);
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_BLOCKS)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    extern __shared__ __align__(128) unsigned char memory[];
    ar_shared &shared = *(ar_shared *)memory;
    const ar_index nz = (ar_index)p.nz, part = (ar_index)p.part;
    const ar_place s = ar_place_at((ar_index)blockIdx.x, (ar_index)blockIdx.y, (ar_index)p.nx,
                                   (ar_index)p.ny);
    ar_march m;
    m.begin = AR_BLOCK_Z * part;
    m.stop = (m.begin + part < nz ? m.begin + part : nz) + AR_LAG * AR_T;
    m.i = m.begin - AR_LAG * AR_T;
    if (AR_WRAP_SLOW)
        m.next = ar_bounded<AR_WRAP>(m.i, nz);
    else
        m.next = m.i = m.i < 0 ? 0 : m.i;
    m.into = m.into_brief = m.parity = m.round = m.write = 0;
    m.read = 1;
    m.asked = 0;
    m.due = 0u - AR_PACED * gridDim.x * gridDim.y;
#pragma unroll
    for (int k = 0; k <= AR_LAG + AR_BACK; k++)
        m.slot[k] = k ? AR_SLOTS - k : 0;
#pragma unroll
    for (int k = 0; k <= AR_LAG; k++)
        m.brief[k] = k ? AR_BRIEF - k : 0;
    ar_open(shared.barriers);
#if defined(ARRAYD_FAKE_DEVICE)
    /* for results that nobody uses: the fake device rejects garbage */
    for (unsigned k = threadIdx.x; k < sizeof(ar_shared) - sizeof(ar_barriers); k += AR_BLOCK)
        memory[sizeof(ar_barriers) + k] = 0;
    __syncthreads();
#endif
#pragma unroll
    for (int k = 0; k < AR_AHEAD; k++)
        ar_ask(p, s, shared, m, true);
    ar_kept kept[AR_T] = {};
    ar_reach(shared.barriers); /* round −1 */
    while (m.i < m.stop) {
        while (m.i + AR_UNROLL <= m.stop &&
               (AR_WRAP_SLOW || (m.i >= AR_LAG * (AR_T + 1) && m.i + AR_UNROLL <= nz)))
            ar_rounds<0>(p, s, shared, m, kept);
        if (m.i < m.stop) {
            ar_round<true, 0>(p, s, shared, m, kept);
#pragma unroll
            for (int level = 0; level < AR_T; level++)
                ar_turn(kept[level]);
        }
    }
}

#endif
