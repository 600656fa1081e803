/* The form scan: every element becomes the sum or product of those up to it along one axis.
 *
 * AR_INNER: the axis is the fastest. AR_TEAM warps process a row, each a stretch of AR_UNROLL times
 * 32 chunks of AR_E at a time, which it loads at once and sums by shuffles; the warps' totals are
 * combined in shared memory. Otherwise a thread goes down AR_E columns, AR_UNROLL rows loaded at
 * once.
 *
 * AR_SPLIT: if there are too few rows or columns, each is cut into stretches (stretches.cuh).
 *
 * Rows, and few columns (AR_COLUMNS > 1) whose elements lie side by side in a warp's lanes: a block
 * either sums a stretch or, p.ahead stretches later, scans one. It reads the stretch a second time,
 * from the L2 cache, but the sum before it is known by then. (Measured, one row: keeping the
 * elements and waiting needs more of them in flight than registers and shared memory can hold, 0.67
 * of a copy's rate; this reaches 0.85. Also handing over each warp's starting value avoids the
 * second sum and gains nothing.) Other columns: a block sums its stretch, and then scans it. Blocks
 * start in the order of their numbers, so a block only waits for blocks that have started.
 *
 * Several GPUs (AR_ALONG) have some of the rows or columns each, with all their blocks. AR_JOINED:
 * they have a part of every one instead, the elements [p.since, p.until). In one launch each sums its
 * part and stores the totals, in another (p.join) it scans it, from the totals of the parts before on.
 * Where rows and columns are cut, blocks pass on their stretches' totals in the first one, and the
 * second finds them.
 *
 * emit_scan.c provides ar_params, ar_operands, ar_fetch, ar_point, ar_put, ar_kept (a number to the
 * indices along the other axes) and the operation: ar_state with ar_none, ar_lift, ar_join, which
 * is exact enough for some thousand elements; ar_carry with ar_begin, ar_carry_add (adds a state),
 * ar_carry_merge, for any number of elements; ar_end. */
#ifndef ARRAYD_SCAN_CUH
#define ARRAYD_SCAN_CUH

#if AR_SPLIT
#include "compute/kernels/forms/stretches.cuh"
#endif

#ifdef AR_JOINED
#define AR_SINCE p.since
#define AR_UNTIL p.until
#define AR_COUNT (p.kept * (AR_INNER ? 1 : AR_E)) /* rows or columns */

/* The total of the parts before this one's, of a row or column. It comes from other GPUs; if it is
 * one part's, only what uses it waits. */
AR_FN ar_carry ar_earlier(const ar_params &p, ar_i64 number)
{
    ar_carry c = ar_begin();
    if (p.number > 0)
        c = p.totals[number];
    for (ar_i64 k = 1; k < p.number; k++)
        c = ar_carry_merge(c, p.totals[k * AR_COUNT + number]);
    return c;
}
AR_FN void ar_store_total(const ar_params &p, ar_i64 number, ar_carry total)
{
    p.totals[p.number * AR_COUNT + number] = total;
}
#else
#define AR_SINCE 0
#define AR_UNTIL p.length
#endif

#if AR_INNER
#define AR_SIDE  (32 / AR_COLUMNS)            /* adjacent elements of a column in a warp */
#define AR_PIECE (AR_SIDE * AR_E * AR_UNROLL) /* per warp */
#define AR_ROWS  (AR_BLOCK / 32 / AR_TEAM)

struct ar_meeting {
    ar_state totals[AR_BLOCK / 32][AR_COLUMNS];
#if AR_SPLIT
    ar_carry carries[AR_COLUMNS];
    ar_vec<ar_result, AR_E> x[AR_UNROLL][AR_BLOCK];
#endif
};

#if AR_SPLIT
/* Loads a thread's chunks of a stretch, from `begin` on. Beyond the end it reads the last chunk
 * again: all chunks have values, whatever happens to them, and loads need no condition. */
template <bool LAST>
AR_FN void ar_read(const ar_params &p, const ar_at &base, ar_index begin,
                   ar_result (&x)[AR_UNROLL][AR_E])
{
    ar_operands<AR_E> o[AR_UNROLL];
    ar_at at[AR_UNROLL];
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++) {
        const ar_index i = begin + u * AR_SIDE * AR_E, last = (ar_index)p.length - AR_E;
        at[u] = base;
        at[u].i[AR_AXIS] = i < last ? i : last;
        ar_fetch<AR_E, LAST>(p, at[u], o[u]);
    }
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++)
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            x[u][e] = ar_point<AR_E>(p, at[u], o[u], e);
}

/* The sum of the chunks, over all lanes that share the column, in the first of them. */
AR_FN ar_state ar_sum_of(const ar_result (&x)[AR_UNROLL][AR_E], ar_index begin, ar_index end)
{
    const int lane = (int)threadIdx.x % 32;
    ar_state sum = ar_none();
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++) {
        ar_state chunk = ar_lift(x[u][0]);
#pragma unroll
        for (int e = 1; e < AR_E; e++)
            chunk = ar_join(chunk, ar_lift(x[u][e]));
        if (begin + u * AR_SIDE * AR_E < end)
            sum = ar_join(sum, chunk);
    }
#pragma unroll
    for (int d = 1; d < AR_SIDE; d *= 2) {
        const ar_state other = ar_from_lane(sum, lane + d * AR_COLUMNS);
        if (lane / AR_COLUMNS + d < AR_SIDE)
            sum = ar_join(sum, other);
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_meeting shared;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int column = lane % AR_COLUMNS, side = lane / AR_COLUMNS;
#ifdef AR_JOINED
    const ar_turn turn = {(int)blockIdx.x, !p.join};
#elif AR_ALONG == 0
    const int all = (int)gridDim.x / 2;
    ar_turn turn = ar_turn_of(all, (int)p.ahead < all ? (int)p.ahead : all);
    turn.number += (int)p.from / 2;
#else
    const ar_turn turn = ar_turn_of((int)p.lines * (int)p.stretches, (int)p.ahead);
#endif
    const int line = turn.number / (int)p.stretches, stretch = turn.number % (int)p.stretches;
    const ar_index begin =
        (ar_index)AR_SINCE + ((ar_index)stretch * AR_TEAM + warp) * AR_PIECE + side * AR_E;
    const ar_index end = side < AR_SIDE ? (ar_index)AR_UNTIL : 0;
    ar_at base;
    ar_kept(p, (ar_index)line * AR_COLUMNS + column, base);
    ar_result x[AR_UNROLL][AR_E];
    if (turn.only_sum) {
        ar_read<false>(p, base, begin, x);
        const ar_state sum = ar_sum_of(x, begin, end);
        if (lane < AR_COLUMNS)
            shared.totals[warp][lane] = sum;
        __syncthreads();
        for (int c = warp; c < AR_COLUMNS; c += AR_TEAM) {
            ar_state whole = ar_none();
#pragma unroll
            for (int w = 0; w < AR_TEAM; w++)
                whole = ar_join(whole, shared.totals[w][c]);
            const ar_carry own = ar_carry_add(ar_begin(), whole);
            ar_publish(p, line, stretch, c, own);
#ifdef AR_JOINED
            if (stretch == (int)p.stretches - 1) {
                const ar_carry before = ar_before(p, line, stretch, c);
                if (lane == 0)
                    ar_store_total(p, (ar_i64)line * AR_COLUMNS + c, ar_carry_merge(before, own));
            }
#endif
        }
        return;
    }
    ar_read<true>(p, base, begin, x);
    const ar_state sum = ar_sum_of(x, begin, end);
    if (lane < AR_COLUMNS)
        shared.totals[warp][lane] = sum;
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++) { /* moves the elements out of the registers, which are scarce */
        ar_vec<ar_result, AR_E> v;
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            v.v[e] = x[u][e];
        shared.x[u][threadIdx.x] = v;
    }
    for (int c = warp; c < AR_COLUMNS; c += AR_TEAM) {
#ifdef AR_JOINED
        const ar_carry earlier = ar_earlier(p, (ar_i64)line * AR_COLUMNS + c);
        const ar_carry before = ar_carry_merge(earlier, ar_before(p, line, stretch, c));
#else
        const ar_carry before = ar_before(p, line, stretch, c);
#endif
        if (lane == 0)
            shared.carries[c] = before;
    }
    __syncthreads();
    const ar_carry carry = shared.carries[column];
    ar_state before = ar_none();
#pragma unroll
    for (int w = 0; w < AR_TEAM; w++)
        if (w < warp)
            before = ar_join(before, shared.totals[w][column]);
#pragma unroll
    for (int u = 0; u < AR_UNROLL; u++) {
        ar_vec<ar_result, AR_E> r = shared.x[u][threadIdx.x];
        ar_state upto = ar_lift(r.v[0]);
#pragma unroll
        for (int e = 1; e < AR_E; e++)
            upto = ar_join(upto, ar_lift(r.v[e]));
#pragma unroll
        for (int d = 1; d < AR_SIDE; d *= 2) {
            const ar_state other = ar_from_lane(upto, lane - d * AR_COLUMNS);
            if (side >= d)
                upto = ar_join(other, upto);
        }
        const ar_state left = ar_from_lane(upto, lane - AR_COLUMNS);
        ar_state s = side > 0 ? ar_join(before, left) : before;
        before = ar_join(before, ar_from_lane(upto, (AR_SIDE - 1) * AR_COLUMNS + column));
        if (begin + u * AR_SIDE * AR_E < end) {
            ar_at at = base;
            at.i[AR_AXIS] = begin + u * AR_SIDE * AR_E;
#pragma unroll
            for (int e = 0; e < AR_E; e++) {
                s = ar_join(s, ar_lift(r.v[e]));
                r.v[e] = ar_end(carry, s);
            }
            ar_put<AR_E>(p, at, r);
        }
    }
}

#else

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_meeting shared;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, part = warp % AR_TEAM;
    const ar_i64 row = (ar_i64)AR_BLOCK_X * AR_ROWS + warp / AR_TEAM;
    ar_at base;
    if (row < p.kept)
        ar_kept(p, (ar_index)row, base);
    ar_carry carry = ar_begin();
    for (ar_i64 tile = 0; tile < p.length; tile += AR_TEAM * AR_PIECE) {
        ar_operands<AR_E> o[AR_UNROLL];
        ar_at at[AR_UNROLL];
        ar_result x[AR_UNROLL][AR_E];
        ar_state start[AR_UNROLL]; /* what comes before the chunk, in the warp's piece */
        const ar_i64 begin = tile + part * AR_PIECE + lane * AR_E;
        const ar_i64 end = row < p.kept ? p.length : 0;
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++)
            if (begin + u * 32 * AR_E < end) {
                at[u] = base;
                at[u].i[AR_AXIS] = (ar_index)(begin + u * 32 * AR_E);
                ar_fetch<AR_E>(p, at[u], o[u]);
            }
        ar_state sum = ar_none();
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++) {
            ar_state upto = ar_none();
            if (begin + u * 32 * AR_E < end) {
#pragma unroll
                for (int e = 0; e < AR_E; e++) {
                    x[u][e] = ar_point<AR_E>(p, at[u], o[u], e);
                    upto = ar_join(upto, ar_lift(x[u][e]));
                }
            }
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const ar_state other = ar_from_lane(upto, lane - d);
                if (lane >= d)
                    upto = ar_join(other, upto);
            }
            const ar_state before = ar_from_lane(upto, lane - 1);
            start[u] = lane > 0 ? ar_join(sum, before) : sum;
            sum = ar_join(sum, ar_from_lane(upto, 31));
        }
        ar_state before = ar_none(), whole = sum;
        if (AR_TEAM > 1) {
            if (lane == 0)
                shared.totals[warp][0] = sum;
            __syncthreads();
            whole = ar_none();
#pragma unroll
            for (int w = 0; w < AR_TEAM; w++) {
                if (w == part)
                    before = whole;
                whole = ar_join(whole, shared.totals[warp - part + w][0]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++)
            if (begin + u * 32 * AR_E < end) {
                ar_vec<ar_result, AR_E> r;
                ar_state s = AR_TEAM > 1 ? ar_join(before, start[u]) : start[u];
#pragma unroll
                for (int e = 0; e < AR_E; e++) {
                    s = ar_join(s, ar_lift(x[u][e]));
                    r.v[e] = ar_end(carry, s);
                }
                ar_put<AR_E>(p, at[u], r);
            }
        carry = ar_carry_add(carry, whole);
    }
}

#endif

#else

/* Rows [begin, end) of a thread's columns. */
template <bool WRITE>
AR_FN void ar_walk(const ar_params &p, const ar_at &base, ar_i64 begin, ar_i64 end, ar_carry *carry)
{
    for (ar_i64 r = begin; r < end; r += AR_UNROLL) {
        ar_operands<AR_E> o[AR_UNROLL];
        ar_at at[AR_UNROLL];
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++)
            if (r + u < end) {
                at[u] = base;
                at[u].i[AR_AXIS] = (ar_index)(r + u);
                ar_fetch<AR_E>(p, at[u], o[u]);
            }
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++)
            if (r + u < end) {
                ar_vec<ar_result, AR_E> v;
#pragma unroll
                for (int e = 0; e < AR_E; e++) {
                    carry[e] = ar_carry_add(carry[e], ar_lift(ar_point<AR_E>(p, at[u], o[u], e)));
                    v.v[e] = ar_end(carry[e], ar_none());
                }
                if (WRITE)
                    ar_put<AR_E>(p, at[u], v);
            }
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    ar_i64 begin = AR_SINCE, end = AR_UNTIL;
#if AR_SPLIT
#if AR_ALONG == 0
    const unsigned lines = gridDim.x / (unsigned)p.stretches;
    const ar_i64 line = p.from / p.stretches + blockIdx.x % lines, stretch = blockIdx.x / lines;
#else
    const ar_i64 line = blockIdx.x % (unsigned)p.lines;
    const ar_i64 stretch = blockIdx.x / (unsigned)p.lines;
#endif
    begin += stretch * p.rows;
    end = begin + p.rows < AR_UNTIL ? begin + p.rows : AR_UNTIL;
#else
    const ar_i64 line = AR_BLOCK_X;
#endif
    const ar_i64 column = line * AR_BLOCK + (int)threadIdx.x;
    const bool there = column < p.kept;
    ar_at base;
    if (there)
        ar_kept(p, (ar_index)column, base);
    else
        end = begin;
    ar_carry carry[AR_E];
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        carry[e] = ar_begin();
#ifdef AR_JOINED
    if (!there)
        return;
#if AR_SPLIT
    ar_carry *before = p.begins + (stretch * p.lines + line) * AR_BLOCK + (int)threadIdx.x;
#endif
    if (!p.join) {
        ar_walk<false>(p, base, begin, end, carry);
#if AR_SPLIT
        *before = ar_before(p, (int)line, (int)stretch, AR_BLOCK, carry[0]);
        carry[0] = ar_carry_merge(*before, carry[0]);
        if (stretch == p.stretches - 1)
#endif
#pragma unroll
            for (int e = 0; e < AR_E; e++)
                ar_store_total(p, column * AR_E + e, carry[e]);
        return;
    }
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        carry[e] = ar_earlier(p, column * AR_E + e);
#if AR_SPLIT
    carry[0] = ar_carry_merge(carry[0], *before);
#endif
#elif AR_SPLIT /* AR_E is 1 */
    ar_walk<false>(p, base, begin, end, carry);
    if (!there)
        return;
    carry[0] = ar_before(p, (int)line, (int)stretch, AR_BLOCK, carry[0]);
#endif
    ar_walk<true>(p, base, begin, end, carry);
}

#endif

#endif
