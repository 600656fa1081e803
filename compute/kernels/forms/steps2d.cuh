/* The form steps in two dimensions: AR_T steps in one pass over memory.
 *
 * A warp owns 32 · AR_E columns, AR_E a lane, and goes down the rows of its part. Of each level (what
 * a field is after so many steps) it has three rows in registers: in the round that brings row i of
 * level 0, level 1's row i − 1 is computed, level 2's row i − 2, and so on; the last level's row
 * i − AR_T is stored. Neighbours in a row come by shuffles. So no warp waits for another; each computes
 * again what it needs of its neighbours': AR_T rows above and below, AR_HALO columns on either side,
 * which grow wrong by one a level.
 *
 * Rows come into a queue in shared memory, AR_AHEAD − 1 rounds ahead, by asynchronous copies in
 * pieces of AR_PIECE elements, neighbouring lanes' beside each other, and leave through it.
 *
 * The domain's edges: where it wraps, the copies do, and all else follows. Elsewhere columns end where
 * a lane's do, whose outer neighbours are replaced as they are shuffled; the rows at an edge, in a few
 * rounds at either end, are put in place of those outside (EDGE).
 *
 * emit_steps.c provides struct ar_params, struct ar_levels (an ar_row of each field), struct ar_shared,
 * ar_bring, ar_take, ar_sides, ar_bend, ar_step, ar_stage, ar_put and the AR_… constants. */
#ifndef ARRAYD_STEPS2D_CUH
#define ARRAYD_STEPS2D_CUH

template <bool EDGE>
AR_FN void ar_round(const ar_params &p, const ar_span &s, ar_shared &shared, int slot, ar_index next,
                    ar_levels (&a)[AR_T], ar_levels (&b)[AR_T], ar_index i, ar_index begin)
{
    ar_levels c;
    ar_arrived<AR_AHEAD - 2>();
    __syncwarp();
    ar_take(shared, slot, c);
    ar_bring(p, s, shared, slot == 0 ? AR_AHEAD - 1 : slot - 1, next);
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
    if (i - AR_T >= begin) {
        ar_stage(shared, c);
        __syncwarp();
        ar_put(p, s, shared, i - AR_T);
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_BLOCKS)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_shared shared;
    const ar_index ny = (ar_index)p.ny, part = (ar_index)p.part;
    const ar_span s = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>((ar_index)blockIdx.x, (ar_index)p.nx,
                                                                     ar_lane());
    const ar_index begin = (ar_index)blockIdx.y * part;
    const ar_index stop = (begin + part < ny ? begin + part : ny) + AR_T;
    ar_index i = begin - AR_T, next;
    if (AR_WRAP_SLOW) {
        next = ar_bounded<AR_WRAP>(i, ny);
    } else {
        i = i < 0 ? 0 : i;
        next = i;
    }
    /* of the row after, where the last is brought again and again */
    auto after = [ny](ar_index row) {
        return row + 1 < ny ? row + 1 : AR_WRAP_SLOW ? 0 : row;
    };
#pragma unroll
    for (int k = 0; k < AR_AHEAD - 1; k++) {
        ar_bring(p, s, shared, k, next);
        ar_sent();
        next = after(next);
    }
    ar_levels a[AR_T] = {}, b[AR_T] = {};
    int slot = 0;
    /* AR_UNROLL rounds have a loop of their own, at whose end registers are named as at its beginning:
     * rows move on without being moved */
    while (i < stop) {
        while (i + AR_UNROLL <= stop && (AR_WRAP_SLOW || (i > AR_T && i + AR_UNROLL <= ny))) {
#pragma unroll
            for (int k = 0; k < AR_UNROLL; k++) {
                ar_round<false>(p, s, shared, slot, next, a, b, i, begin);
                slot = slot + 1 == AR_AHEAD ? 0 : slot + 1;
                next = after(next);
                i++;
            }
        }
        if (i < stop) {
            ar_round<true>(p, s, shared, slot, next, a, b, i, begin);
            slot = slot + 1 == AR_AHEAD ? 0 : slot + 1;
            next = after(next);
            i++;
        }
    }
}

#endif
