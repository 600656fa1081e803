/* The form steps in two dimensions: AR_T steps in one pass over memory.
 *
 * A warp owns 32 · AR_E columns, AR_E per lane, and proceeds down the rows of its part. A level is
 * the state of a field after that many steps; the warp has three rows of each level in registers.
 * In the round that brings row i of level 0, it computes level 1's row i − 1, level 2's row i − 2,
 * and so on, and stores row i − AR_T of the last level. Neighbours in a row come by shuffles. So no
 * warp waits for another; each recomputes what it needs of its neighbours': AR_T rows above and
 * below, and AR_HALO columns on either side, one more of which becomes invalid with each level.
 *
 * Rows arrive in a queue in shared memory, AR_AHEAD − 1 rounds ahead, by asynchronous copies in
 * pieces of AR_PIECE elements, adjacent lanes copying adjacent pieces, and leave through it.
 *
 * The domain's edges: if an axis wraps, the copies wrap, and nothing else is needed. Otherwise
 * columns end where a lane's do, and the outer neighbours are replaced when they are shuffled; in a
 * few rounds at either end, the rows at an edge are used in place of those outside (EDGE).
 *
 * What bounds it is how many instructions are issued: hence addresses that are only added to, and
 * rounds without a branch.
 *
 * emit_steps.c provides struct ar_params, struct ar_levels (an ar_row of each field), struct
 * ar_paths (an ar_path of each), struct ar_shared, ar_begin, ar_forward, ar_bring, ar_take,
 * ar_sides, ar_bend, ar_step, ar_stage, ar_put and the AR_… constants. */
#ifndef ARRAYD_STEPS2D_CUH
#define ARRAYD_STEPS2D_CUH

/* A place in the queue, from one less than twice its length. */
AR_FN int ar_slot(int n)
{
    return (AR_AHEAD & (AR_AHEAD - 1)) == 0 ? n & (AR_AHEAD - 1) : n < AR_AHEAD ? n : n - AR_AHEAD;
}

template <bool EDGE>
AR_FN void ar_round(const ar_params &p, const ar_window &s, ar_shared &shared, int slot,
                    bool more, ar_paths &w, ar_levels (&a)[AR_T], ar_levels (&b)[AR_T], ar_index i,
                    ar_index begin)
{
    ar_levels c = {};
    ar_arrived<AR_AHEAD - 2>();
    __syncwarp();
    if (!EDGE || AR_WRAP_SLOW || i < (ar_index)p.ny) /* below, rows are only bent */
        ar_take(shared, slot, c);
    if (AR_WRAP_SLOW || more)
        ar_bring(s, shared, ar_slot(slot + AR_AHEAD - 1), w);
    ar_sent();
    ar_sides(s, c);
#pragma unroll
    for (int level = 0; level < AR_T; level++) {
        const ar_index y = i - level - 1;
        ar_levels d;
        if (EDGE && !AR_WRAP_SLOW)
            ar_bend(y == 0, y == (ar_index)p.ny - 1, a[level], b[level], c);
        ar_step<EDGE>(p, s, y, a[level], b[level], c, d);
        a[level] = b[level];
        b[level] = c;
        if (level + 1 < AR_T)
            ar_sides(s, d);
        c = d;
    }
    ar_stage(shared, c);
    __syncwarp();
    ar_put(p, s, shared, i - AR_T >= begin, w);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_BLOCKS)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_shared shared;
    const ar_index ny = (ar_index)p.ny, part = (ar_index)p.part;
    const ar_window s = ar_window_at((ar_index)blockIdx.x, (ar_index)p.nx);
    const ar_index begin = AR_BLOCK_Y * part;
    const ar_index stop = (begin + part < ny ? begin + part : ny) + AR_T;
    ar_index i = begin - AR_T;
    if (!AR_WRAP_SLOW && i < 0)
        i = 0;
    ar_index next = AR_WRAP_SLOW ? ar_bounded<AR_WRAP>(i, ny) : i; /* the row to bring */
    ar_paths w;
    ar_begin(p, s, next, i - AR_T, w);
    /* after the last row comes the first, or none */
    auto forward = [&] {
        const bool first = AR_WRAP_SLOW && next == ny - 1;
        ar_forward(p, first ? 1 - ny : 1, w);
        next = first ? 0 : next + 1;
    };
#pragma unroll
    for (int k = 0; k < AR_AHEAD - 1; k++) {
        if (AR_WRAP_SLOW || next < ny)
            ar_bring(s, shared, k, w);
        ar_sent();
        forward();
    }
    int slot = 0;
    ar_levels a[AR_T] = {}, b[AR_T] = {};
    /* AR_UNROLL rounds away from the edges have a loop of their own. At its end each row is in the
     * same registers as at its beginning, so rows advance without being copied */
    while (i < stop) {
        while (i + AR_UNROLL <= stop &&
               (AR_WRAP_SLOW ? next + AR_UNROLL < ny : i > AR_T && i + AR_UNROLL <= ny)) {
#pragma unroll
            for (int k = 0; k < AR_UNROLL; k++) {
                ar_round<false>(p, s, shared, slot, next < ny, w, a, b, i, begin);
                ar_forward(p, 1, w);
                next++;
                slot = ar_slot(slot + 1);
                i++;
            }
        }
        if (i < stop) {
            ar_round<true>(p, s, shared, slot, next < ny, w, a, b, i, begin);
            forward();
            slot = ar_slot(slot + 1);
            i++;
        }
    }
}

#endif
