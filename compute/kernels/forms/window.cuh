/* The form window: a block computes AR_BX columns of AR_BY · AR_R rows, plane by plane, from a tile
 * of values in shared memory that reaches AR_XL and AR_XH columns, AR_YL and AR_YH rows beyond them.
 * A thread has AR_R rows of one column: neighbouring lanes read neighbouring values, without bank
 * conflicts, and each value that a thread reads serves all its rows and all planes that it reaches.
 *
 * Planes come one after another, AR_ZL before a block's first one and AR_ZH after its last: points
 * before and behind begin and end while others are being computed, and their values so far are
 * carried from plane to plane. Points that began before the first plane are not stored. While a
 * plane is used the next one is on its way in registers; of AR_BUFFERS tiles one is read, the other
 * written.
 *
 * Where a shift replaces what is outside by the point itself (AR_SELF), a tile cannot hold it: there
 * the values are chosen at the point, in blocks that reach an edge only.
 *
 * emit_window.c provides struct ar_params, ar_spot and ar_spot_of (a place in a plane), ar_values
 * and ar_produce (what tiles hold there), ar_tiles and ar_keep, ar_uniform and ar_make_uniform (what
 * is the same everywhere), ar_carry, ar_march (a plane), ar_place, ar_put. */
#ifndef ARRAYD_WINDOW_CUH
#define ARRAYD_WINDOW_CUH

/* An element of the tile, by number. */
AR_FN ar_spot ar_spot_of_tile(const ar_params &p, ar_index y, ar_index x, int n)
{
    return ar_spot_of(p, y - AR_YL + n / AR_TX, x - AR_XL + n % AR_TX);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_tiles tiles[AR_BUFFERS];
    __shared__ ar_uniform uniform;
    const int column = (int)threadIdx.x % AR_BX, group = (int)threadIdx.x / AR_BX * AR_R;
    const ar_index first_x = (ar_index)blockIdx.x * AR_BX;
    const ar_index first_y = (ar_index)blockIdx.y * (AR_BY * AR_R);
    ar_index outer = (ar_index)blockIdx.z;
    ar_at at;
    const ar_index q = ar_divide(outer, p.parts);
    const ar_index from = (outer - q * (ar_index)p.parts.divisor) * (ar_index)p.part;
    const ar_index end = from + (ar_index)p.part;
    const ar_index to = end < (ar_index)p.nz ? end : (ar_index)p.nz;
    outer = q;
#pragma unroll
    for (int k = AR_BATCH - 1; k >= 0; k--) { /* axes before the last three */
        const ar_index r = ar_divide(outer, p.div[k]);
        at.i[k] = outer - r * (ar_index)p.div[k].divisor;
        outer = r;
    }
    const ar_index y = first_y + group, x = first_x + column;
    const bool edge = first_y < AR_YL || first_x < AR_XL ||
                      first_y + (AR_BY * AR_R + AR_YH) > (ar_index)p.ny ||
                      first_x + (AR_BX + AR_XH) > (ar_index)p.nx;
    ar_spot spot[AR_FILL];
    ar_values coming[AR_FILL];
#pragma unroll
    for (int n = 0; n < AR_FILL; n++) {
        const int number = (int)threadIdx.x + n * AR_BLOCK;
        spot[n] = ar_spot_of_tile(p, first_y, first_x, number);
        if (number < AR_TX * AR_TY) {
            ar_produce(p, at, from - AR_ZL, spot[n], coming[n]);
            ar_keep(tiles[0], number, coming[n]);
        }
    }
    if (threadIdx.x == 0)
        ar_make_uniform(p, uniform);
    __syncthreads();
    ar_carry carry = {};
    int now = 0;
    const ar_index last = to - 1 + AR_ZH;
    for (ar_index s = from - AR_ZL; s <= last; s++) {
        if (AR_BUFFERS > 1 && s < last) {
#pragma unroll
            for (int n = 0; n < AR_FILL; n++)
                if ((int)threadIdx.x + n * AR_BLOCK < AR_TX * AR_TY)
                    ar_produce(p, at, s + 1, spot[n], coming[n]);
        }
        ar_vec<ar_result, 1> r[AR_R];
        if (AR_SELF && (edge || s < 0 || s >= (ar_index)p.nz))
            ar_march<AR_SELF>(p, at, tiles[now], uniform, carry, s, y, x, r);
        else
            ar_march<false>(p, at, tiles[now], uniform, carry, s, y, x, r);
        if (s - AR_ZH >= from && x < (ar_index)p.nx) {
#pragma unroll
            for (int n = 0; n < AR_R; n++)
                if (y + n < (ar_index)p.ny) {
                    ar_place(at, s - AR_ZH, y + n, x);
                    ar_put<1>(p, at, r[n]);
                }
        }
        if (AR_BUFFERS > 1 && s < last) {
            now ^= 1;
#pragma unroll
            for (int n = 0; n < AR_FILL; n++)
                if ((int)threadIdx.x + n * AR_BLOCK < AR_TX * AR_TY)
                    ar_keep(tiles[now], (int)threadIdx.x + n * AR_BLOCK, coming[n]);
            __syncthreads();
        }
    }
}

#endif
