/* The form steps in three dimensions; see steps2d.cuh for the terms.
 *
 * A block owns AR_WIDTH columns and AR_HEIGHT rows, and proceeds along the slowest axis. A thread
 * has AR_R rows of AR_E columns: two planes of each level, and a third while it is computed. Plane
 * i of level 0 arrives in the round in which level 1's plane i − 1 is computed. Neighbours in a row
 * come by shuffles. A group of AR_LANES threads stores its first and its last row in shared memory
 * for the adjacent groups, which read them in the next round. Warps wait for each other twice a
 * round, for half of the levels each time, and only for work of half a round ago (measured: a sixth
 * faster than __syncthreads).
 *
 * emit_steps.c provides struct ar_params, struct ar_levels (an ar_patch of each field), struct
 * ar_shared, ar_bring, ar_take, ar_bend, ar_step, ar_leave, ar_put and the AR_… constants. */
#ifndef ARRAYD_STEPS3D_CUH
#define ARRAYD_STEPS3D_CUH

template <bool EDGE>
AR_FN void ar_round(const ar_params &p, const ar_place &s, ar_shared &shared, int slot, int side,
                    ar_index next, ar_levels (&a)[AR_T], ar_levels (&b)[AR_T], ar_index i,
                    ar_index begin)
{
    ar_levels c;
    ar_arrived<AR_AHEAD - 2>();
    __syncwarp();
    ar_take(shared, slot, c);
    ar_bring(p, s, shared, slot == 0 ? AR_AHEAD - 1 : slot - 1, next);
    ar_sent();
#pragma unroll
    for (int level = 0; level < AR_T; level++) {
        const ar_index z = i - level - 1;
        ar_levels d;
        if (level == 0 || level == AR_T / 2)
            ar_meet(shared.barrier, level > 0, side);
        ar_leave(s, shared, side, level, c);
        if (EDGE && !AR_WRAP_SLOW)
            ar_bend(z == 0, z == (ar_index)p.nz - 1, a[level], b[level], c);
        ar_step<EDGE>(p, s, shared, side ^ 1, level, z, a[level], b[level], c, d);
        a[level] = b[level];
        b[level] = c;
        c = d;
        if (level + 1 == AR_T / 2 || level + 1 == AR_T)
            ar_reach(shared.barrier, level + 1 == AR_T);
    }
    if (i - AR_T >= begin)
        ar_put(p, s, shared, slot, i - AR_T, c);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_BLOCKS)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    extern __shared__ __align__(16) unsigned char memory[];
    ar_shared &shared = *(ar_shared *)memory;
    const ar_index nz = (ar_index)p.nz, part = (ar_index)p.part;
    const ar_place s = ar_place_at((ar_index)blockIdx.x, (ar_index)blockIdx.y, (ar_index)p.nx,
                                   (ar_index)p.ny);
    const ar_index begin = (ar_index)blockIdx.z * part;
    const ar_index stop = (begin + part < nz ? begin + part : nz) + AR_T;
    ar_index i = begin - AR_T, next;
    if (AR_WRAP_SLOW) {
        next = ar_bounded<AR_WRAP>(i, nz);
    } else {
        i = i < 0 ? 0 : i;
        next = i;
    }
    auto after = [nz](ar_index plane) {
        return plane + 1 < nz ? plane + 1 : AR_WRAP_SLOW ? 0 : plane;
    };
#pragma unroll
    for (int k = 0; k < AR_AHEAD - 1; k++) {
        ar_bring(p, s, shared, k, next);
        ar_sent();
        next = after(next);
    }
    ar_levels a[AR_T] = {}, b[AR_T] = {};
    int slot = 0, side = 0; /* side: the one written in a round, its number's last bit */
#if defined(ARRAYD_FAKE_DEVICE)
    /* what round −1 would have left, for results that nobody uses: the fake device rejects garbage
     */
    for (int level = 0; level < AR_T; level++)
        ar_leave(s, shared, 1, level, b[level]);
#endif
    ar_open(shared.barrier);
    ar_reach(shared.barrier, 0); /* round −1 */
    ar_reach(shared.barrier, 1);
    /* AR_UNROLL rounds have a loop of their own. At its end each plane is in the same registers as
     * at its beginning, so planes advance without being copied */
    while (i < stop) {
        while (i + AR_UNROLL <= stop && (AR_WRAP_SLOW || (i > AR_T && i + AR_UNROLL <= nz))) {
#pragma unroll
            for (int k = 0; k < AR_UNROLL; k++) {
                ar_round<false>(p, s, shared, slot, side, next, a, b, i, begin);
                slot = slot + 1 == AR_AHEAD ? 0 : slot + 1;
                side ^= 1;
                next = after(next);
                i++;
            }
        }
        if (i < stop) {
            ar_round<true>(p, s, shared, slot, side, next, a, b, i, begin);
            slot = slot + 1 == AR_AHEAD ? 0 : slot + 1;
            side ^= 1;
            next = after(next);
            i++;
        }
    }
}

#endif
