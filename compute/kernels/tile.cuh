/* The form tile, for operands whose fastest axis is another than the result's: a block of 256 threads
 * covers AR_TILE × AR_TILE elements of the two axes; those operands come through shared memory, read
 * along their own fastest axis and used along the result's. A column more keeps the banks apart.
 *
 * emit.c provides struct ar_params (with the two axes AR_Y and AR_X = AR_RANK − 1), ar_turned (the
 * operands' tiles), ar_fill (loads element (y, x) into them), ar_operands<1>, ar_fetch, ar_point, ar_put. */
#ifndef ARRAYD_TILE_CUH
#define ARRAYD_TILE_CUH

#define AR_ROWS (AR_BLOCK / 32) /* warps */
#define AR_X    (AR_RANK - 1)

/* Tiles are numbered along x first, then y, then the other axes. */
AR_FN ar_at ar_locate(const ar_params &p, ar_index tile)
{
    ar_at at;
    ar_index q = ar_divide(tile, p.tiles_x);
    at.i[AR_X] = (tile - q * (ar_index)p.tiles_x.divisor) * AR_TILE;
    tile = q;
    q = ar_divide(tile, p.tiles_y);
    at.i[AR_Y] = (tile - q * (ar_index)p.tiles_y.divisor) * AR_TILE;
    tile = q;
#pragma unroll
    for (int k = AR_RANK - 2; k >= 0; k--) {
        if (k == AR_Y)
            continue;
        q = ar_divide(tile, p.div[k]);
        at.i[k] = tile - q * (ar_index)p.div[k].divisor;
        tile = q;
    }
    return at;
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(const __grid_constant__ struct ar_params p)
{
    __shared__ ar_turned shared;
    const ar_at at = ar_locate(p, (ar_index)blockIdx.x);
    const int lane = (int)(threadIdx.x & 31), row = (int)(threadIdx.x >> 5);
#pragma unroll
    for (int s = 0; s < AR_TILE; s += AR_ROWS)
#pragma unroll
        for (int l = 0; l < AR_TILE; l += 32) {
            ar_at me = at;
            me.i[AR_X] += s + row;
            me.i[AR_Y] += l + lane;
            if (me.i[AR_X] < (ar_index)p.nx && me.i[AR_Y] < (ar_index)p.ny)
                ar_fill(p, me, shared, l + lane, s + row);
        }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < AR_TILE; s += AR_ROWS * AR_UNROLL)
#pragma unroll
        for (int l = 0; l < AR_TILE; l += 32) {
            ar_operands<1> o[AR_UNROLL];
#pragma unroll
            for (int u = 0; u < AR_UNROLL; u++) {
                ar_at me = at;
                me.i[AR_X] += l + lane;
                me.i[AR_Y] += s + u * AR_ROWS + row;
                if (me.i[AR_X] < (ar_index)p.nx && me.i[AR_Y] < (ar_index)p.ny)
                    ar_fetch(p, me, o[u], shared, s + u * AR_ROWS + row, l + lane);
            }
#pragma unroll
            for (int u = 0; u < AR_UNROLL; u++) {
                ar_at me = at;
                me.i[AR_X] += l + lane;
                me.i[AR_Y] += s + u * AR_ROWS + row;
                if (me.i[AR_X] < (ar_index)p.nx && me.i[AR_Y] < (ar_index)p.ny) {
                    ar_vec<ar_result, 1> r;
                    r.v[0] = ar_point<1>(p, me, o[u], 0);
                    ar_put<1>(p, me, r);
                }
            }
        }
}

#endif
