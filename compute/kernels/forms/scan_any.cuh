/* The form scan with one text for all lengths, layouts and ways to divide the work, of elements that
 * lie in the order of the points: behind a program of the interpreter (interp/rest.c). What scan.cuh
 * has in its text are arguments; a thread reads its elements as often as there is need of them
 * instead of keeping them. Everything is added in scan.cuh's order.
 *
 * p.columns is scan.cuh's AR_COLUMNS, 1 of rows; 0: a column is a thread's. Of rows a chunk has
 * p.each elements, a thread p.many chunks at a time. Neighbours along the axis are p.inner.divisor
 * elements apart. emit_scan.c provides the operation, as for scan.cuh. */
#ifndef ARRAYD_SCAN_ANY_CUH
#define ARRAYD_SCAN_ANY_CUH

#define AR_LEVELS_AT_ONCE 1
#include "compute/kernels/forms/stretches.cuh"

#define AR_TEAM  (AR_BLOCK / 32) /* warps of a row */
#define AR_SIDES 16              /* columns side by side, at most */
#define AR_MOST  4               /* elements of a chunk */
#define AR_AHEAD 8               /* elements of a thread's column that are read at once */

struct ar_meeting {
    ar_state totals[AR_TEAM][AR_SIDES];
    ar_carry carries[AR_SIDES];
};

/* The first element of a row or column. */
AR_FN ar_index ar_first(const ar_params &p, ar_index n)
{
    const ar_index q = ar_divide(n, p.inner);
    return q * (ar_index)(p.length - 1) * (ar_index)p.inner.divisor + n;
}

/* A chunk's elements, of which there are p.each. */
struct ar_chunk {
    ar_result v[AR_MOST];
};

template <int E> AR_FN void ar_read(const ar_params &p, ar_index n, ar_chunk &x)
{
    const ar_vec<ar_result, E> y = ar_load<ar_result, E>(p.in0 + n);
#pragma unroll
    for (int e = 0; e < E; e++)
        x.v[e] = y.v[e];
}
AR_FN ar_chunk ar_chunk_at(const ar_params &p, ar_index n)
{
    ar_chunk x = {};
    if (p.each == 4)
        ar_read<4>(p, n, x);
    else if (p.each == 2)
        ar_read<2>(p, n, x);
    else
        ar_read<1>(p, n, x);
    return x;
}

template <int E> AR_FN void ar_write(const ar_params &p, ar_index n, const ar_chunk &x)
{
    ar_vec<ar_result, E> y;
#pragma unroll
    for (int e = 0; e < E; e++)
        y.v[e] = x.v[e];
    ar_store<ar_result, E>(p.out + n, y);
}
AR_FN void ar_write_chunk(const ar_params &p, ar_index n, const ar_chunk &x)
{
    if (!p.gaps && p.each == 4) {
        ar_write<4>(p, n, x);
    } else if (!p.gaps && p.each == 2) {
        ar_write<2>(p, n, x);
    } else {
#pragma unroll
        for (int e = 0; e < AR_MOST; e++)
            if (e < p.each)
                ar_put_one(p, n + e, x.v[e]);
    }
}

/* `sum` and the chunk's elements from number `first` on. */
AR_FN ar_state ar_sum(const ar_params &p, const ar_chunk &x, ar_state sum, int first)
{
#pragma unroll
    for (int e = 0; e < AR_MOST; e++)
        if (e >= first && e < p.each)
            sum = ar_join(sum, ar_lift(x.v[e]));
    return sum;
}

/* Every lane's sum becomes that of its own and all that are before it in its column; a lane's
 * neighbour is `columns` lanes further, and it has number `side` among them. */
AR_FN void ar_add_up(ar_state &upto, int columns, int side, int sides)
{
#pragma unroll 1
    for (int d = 1; d < sides; d *= 2) {
        const ar_state other = ar_from_lane(upto, (int)threadIdx.x % 32 - d * columns);
        if (side >= d)
            upto = ar_join(other, upto);
    }
}

AR_FN void ar_finish(const ar_params &p, ar_index n, const ar_carry &carry, ar_state s, ar_chunk x)
{
#pragma unroll
    for (int e = 0; e < AR_MOST; e++)
        if (e < p.each) {
            s = ar_join(s, ar_lift(x.v[e]));
            x.v[e] = ar_end(carry, s);
        }
    ar_write_chunk(p, n, x);
}

/* A stretch of a row, or of columns side by side: its sum, or what is made of it. */
AR_FN void ar_stretch(const ar_params &p, ar_meeting &shared)
{
    const int columns = (int)p.columns, sides = 32 / columns, many = (int)p.many;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int column = lane % columns, side = lane / columns;
    const ar_turn turn = ar_turn_of((int)p.lines * (int)p.stretches, (int)p.ahead);
    const int line = turn.number / (int)p.stretches, stretch = turn.number % (int)p.stretches;
    const ar_index step = sides * (int)p.each, apart = (ar_index)p.inner.divisor;
    const ar_index begin = (stretch * AR_TEAM + warp) * step * many + side * (int)p.each;
    const ar_index end = side < sides ? (ar_index)p.length : 0;
    const ar_index first = ar_first(p, (ar_index)line * columns + column);
    ar_state sum = ar_none();
#pragma unroll 2
    for (int u = 0; u < many; u++)
        if (begin + u * step < end) {
            const ar_chunk x = ar_chunk_at(p, first + (begin + u * step) * apart);
            sum = ar_join(sum, ar_sum(p, x, ar_lift(x.v[0]), 1));
        }
#pragma unroll 1
    for (int d = 1; d < sides; d *= 2) {
        const ar_state other = ar_from_lane(sum, lane + d * columns);
        if (side + d < sides)
            sum = ar_join(sum, other);
    }
    if (lane < columns)
        shared.totals[warp][lane] = sum;
    if (turn.only_sum)
        __syncthreads();
#pragma unroll 1
    for (int c = warp; c < columns; c += AR_TEAM) {
        if (turn.only_sum) {
            ar_state whole = ar_none();
#pragma unroll 1
            for (int w = 0; w < AR_TEAM; w++)
                whole = ar_join(whole, shared.totals[w][c]);
            ar_publish(p, line, stretch, c, ar_carry_add(ar_begin(), whole));
        } else {
            const ar_carry carry = ar_before(p, line, stretch, c);
            if (lane == 0)
                shared.carries[c] = carry;
        }
    }
    if (turn.only_sum)
        return;
    __syncthreads();
    const ar_carry carry = shared.carries[column];
    ar_state before = ar_none();
#pragma unroll 1
    for (int w = 0; w < warp; w++)
        before = ar_join(before, shared.totals[w][column]);
#pragma unroll 1
    for (int u = 0; u < many; u++) {
        const bool there = begin + u * step < end;
        const ar_index n = first + (there ? begin + u * step : 0) * apart;
        const ar_chunk x = ar_chunk_at(p, n);
        ar_state upto = ar_sum(p, x, ar_lift(x.v[0]), 1);
        ar_add_up(upto, columns, side, sides);
        const ar_state left = ar_from_lane(upto, lane - columns);
        const ar_state s = side > 0 ? ar_join(before, left) : before;
        before = ar_join(before, ar_from_lane(upto, (sides - 1) * columns + column));
        if (there)
            ar_finish(p, n, carry, s, x);
    }
}

/* A row that is not cut: the block goes along it, over every piece twice. */
AR_FN void ar_row(const ar_params &p, ar_meeting &shared)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, many = (int)p.many;
    const ar_i64 piece = 32 * p.each * many;
    const ar_index first = ar_first(p, AR_BLOCK_X);
    ar_carry carry = ar_begin();
#pragma unroll 1
    for (ar_i64 tile = 0; tile < p.length; tile += AR_TEAM * piece) {
        ar_state before = ar_none(), whole = ar_none();
#pragma unroll 1
        for (int again = 0; again < 2; again++) {
            ar_state sum = ar_none();
#pragma unroll 1
            for (int u = 0; u < many; u++) {
                const ar_i64 i = tile + warp * piece + (u * 32 + lane) * p.each;
                const bool there = i < p.length;
                const ar_index n = first + (ar_index)(there ? i : 0);
                const ar_chunk x = ar_chunk_at(p, n);
                ar_state upto = ar_none();
                if (there)
                    upto = ar_sum(p, x, upto, 0);
                ar_add_up(upto, 1, lane, 32);
                const ar_state left = ar_from_lane(upto, lane - 1);
                const ar_state start = lane > 0 ? ar_join(sum, left) : sum;
                if (again && there)
                    ar_finish(p, n, carry, ar_join(before, start), x);
                sum = ar_join(sum, ar_from_lane(upto, 31));
            }
            if (again)
                continue;
            if (lane == 0)
                shared.totals[warp][0] = sum;
            __syncthreads();
#pragma unroll 1
            for (int w = 0; w < AR_TEAM; w++) {
                if (w == warp)
                    before = whole;
                whole = ar_join(whole, shared.totals[w][0]);
            }
            __syncthreads();
        }
        carry = ar_carry_add(carry, whole);
    }
}

/* A stretch of a thread's column, or all of it: its sum, unless that is of no use, and then what is
 * made of it. */
AR_FN void ar_column(const ar_params &p)
{
    const ar_index block = AR_BLOCK_X;
    const ar_i64 line = block % (ar_index)p.lines, stretch = block / (ar_index)p.lines;
    const ar_i64 column = line * (int)blockDim.x + (int)threadIdx.x, begin = stretch * p.rows;
    const ar_i64 end = begin + p.rows < p.length ? begin + p.rows : p.length;
    if (column >= p.kept)
        return;
    const ar_index first = ar_first(p, (ar_index)column), apart = (ar_index)p.inner.divisor;
    ar_carry carry = ar_begin();
#pragma unroll 1
    for (int again = p.stretches == 1; again < 2; again++) {
#pragma unroll 1
        for (ar_i64 r = begin; r < end; r += AR_AHEAD) {
            ar_result x[AR_AHEAD];
#pragma unroll
            for (int u = 0; u < AR_AHEAD; u++)
                if (r + u < end)
                    x[u] = p.in0[first + (ar_index)(r + u) * apart];
#pragma unroll
            for (int u = 0; u < AR_AHEAD; u++)
                if (r + u < end) {
                    carry = ar_carry_add(carry, ar_lift(x[u]));
                    if (again)
                        ar_put_one(p, first + (ar_index)(r + u) * apart, ar_end(carry, ar_none()));
                }
        }
        if (!again)
            carry = ar_before(p, (int)line, (int)stretch, (int)blockDim.x, carry);
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_meeting shared;
    if (p.columns == 0)
        ar_column(p);
    else if (p.stretches > 1)
        ar_stretch(p, shared);
    else
        ar_row(p, shared);
}

#endif
