/* The form steps in one dimension: a warp has 32 · AR_E elements of all fields in registers, takes
 * AR_T steps and stores all but AR_HALO on either side. See steps2d.cuh.
 *
 * emit_steps.c provides struct ar_params, struct ar_levels (an ar_row of each field), struct ar_shared,
 * ar_bring, ar_take, ar_sides, ar_step, ar_stage, ar_put and the AR_… constants. */
#ifndef ARRAYD_STEPS1D_CUH
#define ARRAYD_STEPS1D_CUH

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_BLOCKS)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_shared all[AR_BLOCK / 32];
    const int warp = (int)threadIdx.x / 32;
    const ar_index number = AR_BLOCK_X * (AR_BLOCK / 32) + warp;
    const ar_span s = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>(number, (ar_index)p.nx, ar_lane());
    ar_shared &shared = all[warp];
    if (s.from >= s.to)
        return;
    ar_levels c;
    ar_bring(p, s, shared, 0, 0);
    ar_sent();
    ar_arrived<0>();
    __syncwarp();
    ar_take(shared, 0, c);
#pragma unroll
    for (int level = 0; level < AR_T; level++) {
        ar_levels d;
        ar_sides(s, c);
        ar_step<false>(p, s, 0, c, c, c, d);
        c = d;
    }
    ar_stage(shared, c);
    __syncwarp();
    ar_put(p, s, shared, 0);
}

#endif
