/* The form window: a block computes AR_BX · AR_E columns of AR_BY · AR_R rows from a tile of values
 * in shared memory that reaches AR_XL columns, AR_YL and AR_YH rows beyond them. A thread has AR_R
 * rows of AR_E neighbours: each value that it reads serves all its points.
 *
 * In one plane issued instructions are what bounds it, so that all but the arithmetic is kept
 * small: threads read and write vectors, and blocks that reach no edge fill their tile by vectors,
 * without boundaries; others go element by element.
 *
 * In several (AR_DEEP, AR_E = 1) planes come one after another, AR_ZL before a block's first one
 * and AR_ZH after its last: points before and behind begin and end while others are being computed,
 * and their values so far are carried from plane to plane. Points that began before the first plane
 * are not stored. While a plane is used the next one is on its way in registers; of two tiles one
 * is read, the other written. Where values depend on being inside (AR_CHOOSES) blocks that are do
 * not ask.
 *
 * Where a shift replaces what is outside by the point itself (AR_SELF), a tile cannot hold it:
 * there the values are chosen at the point, in blocks that reach an edge only, in one plane row by
 * row.
 *
 * emit_window.c provides struct ar_params, ar_spot and ar_spot_of (a place in a plane), ar_values,
 * ar_produce and ar_produce_inner (what tiles hold there), ar_tiles and ar_keep, ar_uniform and
 * ar_make_uniform (what is the same everywhere), ar_carry, ar_march (a plane), ar_place, ar_put. */
#ifndef ARRAYD_WINDOW_CUH
#define ARRAYD_WINDOW_CUH

#if AR_DEEP
/* An element of the tile, by number. */
AR_FN ar_spot ar_spot_of_tile(const ar_params &p, ar_index y, ar_index x, int n)
{
    return ar_spot_of(p, y - AR_YL + n / AR_TX, x - AR_XL + n % AR_TX);
}

/* The thread's values of plane z. */
template <bool INNER> AR_FN void ar_fetch(const ar_params &p, const ar_at &at, ar_index z,
                                          const ar_spot *spot, ar_values *coming)
{
#pragma unroll
    for (int n = 0; n < AR_FILL; n++)
        if ((int)threadIdx.x + n * AR_BLOCK < AR_TX * AR_TY)
            ar_produce<INNER>(p, at, z, spot[n], 0, coming[n]);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_tiles tiles[2];
    __shared__ ar_uniform uniform;
    const int column = (int)threadIdx.x % AR_BX, group = (int)threadIdx.x / AR_BX * AR_R;
    const ar_index first_x = AR_BLOCK_X * AR_BX;
    const ar_index first_y = AR_BLOCK_Y * (AR_BY * AR_R);
    ar_index outer = AR_BLOCK_Z;
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
                      first_x + (AR_TX - AR_XL) > (ar_index)p.nx;
    ar_spot spot[AR_FILL];
    ar_values coming[AR_FILL];
#pragma unroll
    for (int n = 0; n < AR_FILL; n++) {
        const int number = (int)threadIdx.x + n * AR_BLOCK;
        spot[n] = ar_spot_of_tile(p, first_y, first_x, number);
        if (number < AR_TX * AR_TY) {
            ar_produce<false>(p, at, from - AR_ZL, spot[n], 0, coming[n]);
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
        if (s < last) {
            if (AR_CHOOSES && !edge && s + 1 >= 0 && s + 1 < (ar_index)p.nz)
                ar_fetch<true>(p, at, s + 1, spot, coming);
            else
                ar_fetch<false>(p, at, s + 1, spot, coming);
        }
        ar_vec<ar_result, 1> r[AR_R];
        const int own = group * AR_TX + column;
#if AR_SELF
        if (edge || s < 0 || s >= (ar_index)p.nz)
            ar_march_edge(p, at, tiles[now], uniform, carry, own, s, y, x, r);
        else
#endif
            ar_march(p, at, tiles[now], uniform, carry, own, s, y, x, r);
        if (s - AR_ZH >= from && x < (ar_index)p.nx) {
#pragma unroll
            for (int n = 0; n < AR_R; n++)
                if (y + n < (ar_index)p.ny) {
                    ar_place(at, s - AR_ZH, y + n, x);
                    ar_put<1>(p, at, r[n]);
                }
        }
        if (s < last) {
            now ^= 1;
#pragma unroll
            for (int n = 0; n < AR_FILL; n++)
                if ((int)threadIdx.x + n * AR_BLOCK < AR_TX * AR_TY)
                    ar_keep(tiles[now], (int)threadIdx.x + n * AR_BLOCK, coming[n]);
            __syncthreads();
        }
    }
}
#else
#define AR_VECTORS (AR_TX / AR_E) /* of a row of the tile */

/* A vector of the tile, by number, counted from the block's first point. */
AR_FN ar_index ar_tile_y(int n)
{
    return n / AR_VECTORS - AR_YL;
}
AR_FN ar_index ar_tile_x(int n)
{
    return n % AR_VECTORS * AR_E - AR_XL;
}

AR_FN void ar_fill_inner(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x,
                         ar_tiles &tile)
{
    ar_values coming[AR_FILL];
#pragma unroll
    for (int n = 0; n < AR_FILL; n++) {
        const int number = (int)threadIdx.x + n * AR_BLOCK;
        if (number < AR_VECTORS * AR_TY)
            ar_produce_inner(p, at, z, y + ar_tile_y(number), x + ar_tile_x(number), coming[n]);
    }
#pragma unroll
    for (int n = 0; n < AR_FILL; n++) {
        const int number = (int)threadIdx.x + n * AR_BLOCK;
        if (number < AR_VECTORS * AR_TY)
            ar_keep(tile, number * AR_E, coming[n]);
    }
}

AR_FN void ar_fill_edge(const ar_params &p, const ar_at &at, ar_index z, ar_index y, ar_index x,
                        ar_tiles &tile)
{
#pragma unroll 1
    for (int n = (int)threadIdx.x; n < AR_VECTORS * AR_TY; n += AR_BLOCK) {
        ar_values v;
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            ar_produce<false>(p, at, z, ar_spot_of(p, y + ar_tile_y(n), x + ar_tile_x(n) + e), e,
                              v);
        ar_keep(tile, n * AR_E, v);
    }
}

/* Stores what is inside of a row of the thread's points. */
AR_FN void ar_leave_row(const ar_params &p, ar_at &at, ar_index z, ar_index y, ar_index x,
                        const ar_vec<ar_result, AR_E> &r)
{
    if (y >= (ar_index)p.ny)
        return;
    if (x + AR_E <= (ar_index)p.nx) {
        ar_place(at, z, y, x);
        ar_put<AR_E>(p, at, r);
        return;
    }
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        if (x + e < (ar_index)p.nx) {
            const ar_vec<ar_result, 1> one = {{r.v[e]}};
            ar_place(at, z, y, x + e);
            ar_put<1>(p, at, one);
        }
}

/* The block's points of a plane. */
AR_FN void ar_plane(const ar_params &p, ar_at &at, ar_tiles &tile, const ar_uniform &uniform,
                    ar_index z, ar_index first_y, ar_index first_x)
{
    const int column = (int)threadIdx.x % AR_BX * AR_E, group = (int)threadIdx.x / AR_BX * AR_R;
    const int own = group * AR_TX + column;
    const ar_index y = first_y + group, x = first_x + column;
    const bool edge = first_y < AR_YL || first_x < AR_XL ||
                      first_y + (AR_BY * AR_R + AR_YH) > (ar_index)p.ny ||
                      first_x + (AR_TX - AR_XL) > (ar_index)p.nx;
    ar_carry none;
    if (edge)
        ar_fill_edge(p, at, z, first_y, first_x, tile);
    else
        ar_fill_inner(p, at, z, first_y, first_x, tile);
    __syncthreads();
#if AR_SELF
    if (edge) {
#pragma unroll 1
        for (int n = 0; n < AR_R; n++) {
            ar_vec<ar_result, AR_E> r;
            ar_march_edge(p, at, tile, uniform, none, own + n * AR_TX, z, y + n, x, &r);
            ar_leave_row(p, at, z, y + n, x, r);
        }
        return;
    }
#endif
    ar_vec<ar_result, AR_E> r[AR_R];
    ar_march(p, at, tile, uniform, none, own, z, y, x, r);
#pragma unroll
    for (int n = 0; n < AR_R; n++)
        ar_leave_row(p, at, z, y + n, x, r[n]);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_tiles tile;
    __shared__ ar_uniform uniform;
    const ar_index first_x = AR_BLOCK_X * (AR_BX * AR_E);
    const ar_index first_y = AR_BLOCK_Y * (AR_BY * AR_R);
    ar_index outer = AR_BLOCK_Z;
    ar_at at;
    const ar_index q = ar_divide(outer, p.parts);
    const ar_index from = (outer - q * (ar_index)p.parts.divisor) * (AR_ONE ? 1 : (ar_index)p.part);
    outer = q;
#pragma unroll
    for (int k = AR_BATCH - 1; k >= 0; k--) { /* axes before the last three */
        const ar_index r = ar_divide(outer, p.div[k]);
        at.i[k] = outer - r * (ar_index)p.div[k].divisor;
        outer = r;
    }
    if (threadIdx.x == 0)
        ar_make_uniform(p, uniform);
    if (AR_ONE) {
        ar_plane(p, at, tile, uniform, from, first_y, first_x);
        return;
    }
    const ar_index end = from + (ar_index)p.part;
    const ar_index to = end < (ar_index)p.nz ? end : (ar_index)p.nz;
#pragma unroll 1
    for (ar_index z = from; z < to; z++) {
        ar_plane(p, at, tile, uniform, z, first_y, first_x);
        __syncthreads();
    }
}
#endif

#endif
