/* The form tile, for operands whose fastest axis differs from the result's: a block of AR_BLOCK
 * threads covers AR_TILE × AR_TILE elements of the two axes. Those operands pass through shared
 * memory: they are read along their own fastest axis and used along the result's, both in vectors
 * of AR_E. One extra column avoids bank conflicts.
 *
 * emit.c provides struct ar_params (with the two axes AR_Y and AR_X = AR_RANK − 1), ar_turning and
 * ar_turn (loads of those operands along y), ar_turned (their tiles), ar_fill (into them at (y,
 * x)), ar_take (reads back, along x), ar_operands, ar_fetch (the other operands), ar_point, ar_put.
 */
#ifndef ARRAYD_TILE_CUH
#define ARRAYD_TILE_CUH

#define AR_X (AR_RANK - 1)

/* Tiles are numbered in the order of the result's memory, so that rows of adjacent tiles form long
 * runs (2 % faster at 512³). With AR_PAIRED y comes directly after x: if an array is read both
 * ways, the data of one tile is still in the cache when another tile reads it along the other axis.
 */
AR_FN ar_index ar_part(ar_index &tile, const ar_div &d)
{
    const ar_index q = ar_divide(tile, d), part = tile - q * (ar_index)d.divisor;
    tile = q;
    return part;
}
AR_FN ar_at ar_locate(const ar_params &p, ar_index tile)
{
    ar_at at;
    at.i[AR_X] = ar_part(tile, p.tiles_x) * AR_TILE;
    if (AR_PAIRED)
        at.i[AR_Y] = ar_part(tile, p.tiles_y) * AR_TILE;
#pragma unroll
    for (int k = AR_RANK - 2; k >= 0; k--) {
        if (k != AR_Y)
            at.i[k] = ar_part(tile, p.div[k]);
        else if (!AR_PAIRED)
            at.i[k] = ar_part(tile, p.tiles_y) * AR_TILE;
    }
    return at;
}

/* A thread's AR_CHUNKS chunks of the tile, AR_DOWN rows apart: ar_along() is their first element's
 * index along one axis, ar_across(n) the row of chunk n along the other. */
#define AR_ACROSS (AR_TILE / AR_E)
#define AR_DOWN   (AR_BLOCK / AR_ACROSS)
#define AR_CHUNKS (AR_TILE / AR_DOWN)
AR_FN int ar_along(void)
{
    return (int)threadIdx.x % AR_ACROSS * AR_E;
}
AR_FN int ar_across(int n)
{
    return (int)threadIdx.x / AR_ACROSS + n * AR_DOWN;
}
AR_FN bool ar_tile_at(const ar_params &p, const ar_at &tile, int y, int x, ar_at &at)
{
    at = tile;
    at.i[AR_X] += x;
    at.i[AR_Y] += y;
    return at.i[AR_X] < (ar_index)p.nx && at.i[AR_Y] < (ar_index)p.ny;
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_turned shared;
    const ar_at tile = ar_locate(p, AR_BLOCK_X);
    ar_turning turning[AR_CHUNKS];
    ar_operands<AR_E> o[AR_UNROLL];
    ar_at at;
    /* all loads are issued first; __syncwarp() keeps the compiler from reordering them */
#pragma unroll
    for (int n = 0; n < AR_CHUNKS; n++)
        if (ar_tile_at(p, tile, ar_along(), ar_across(n), at))
            ar_turn(p, at, turning[n]);
#pragma unroll
    for (int n = 0; n < AR_UNROLL; n++)
        if (ar_tile_at(p, tile, ar_across(n), ar_along(), at))
            ar_fetch(p, at, o[n]);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < AR_CHUNKS; n++)
        ar_fill(turning[n], shared, ar_along(), ar_across(n));
    __syncthreads();
#pragma unroll
    for (int first = 0; first < AR_CHUNKS; first += AR_UNROLL) {
        if (first > 0) {
#pragma unroll
            for (int n = 0; n < AR_UNROLL; n++)
                if (ar_tile_at(p, tile, ar_across(first + n), ar_along(), at))
                    ar_fetch(p, at, o[n]);
        }
#pragma unroll
        for (int n = 0; n < AR_UNROLL; n++)
            if (ar_tile_at(p, tile, ar_across(first + n), ar_along(), at)) {
                ar_vec<ar_result, AR_E> r;
                ar_take(shared, ar_across(first + n), ar_along(), o[n]);
#pragma unroll
                for (int e = 0; e < AR_E; e++)
                    r.v[e] = ar_point<AR_E>(p, at, o[n], e);
                ar_put<AR_E>(p, at, r);
            }
    }
}

#endif
