/* The form scan for rows of up to some ten thousand elements, along the fastest axis: read once,
 * written once.
 *
 * A block's elements, of several short rows or of a part of a long one, are loaded by neighbouring
 * threads and placed in shared memory. There AR_LANES lanes process a row: each sums its own
 * AR_EACH consecutive elements, at most AR_CHUNK, the lanes' sums are combined by shuffles, the
 * warps' in shared memory; then each lane goes through its chunk again, from the sum before it on,
 * and puts the results where the elements were. Neighbouring threads store them. Lanes that load
 * what they scan would access memory in strides, and combining by shuffles after every vector, as
 * scan.cuh does, takes longer than loading it.
 *
 * AR_FLAT: rows follow each other in memory without gaps, in every operand and in the result. The
 * block's rows are then one range, accessed by vectors wherever rows begin; its first and last
 * elements, where a vector would exceed it, one by one. Otherwise AR_FETCH threads access a row.
 *
 * A row that does not fit in a block's shared memory is processed in parts of p.part elements, one
 * after the other; or if rows are few (AR_SPLIT), each by a block of its own, which adds the totals
 * of the parts before it in the same order. Blocks start in the order of their numbers, so a block
 * only waits for blocks that have started. Chunks, lanes and parts depend on the length of the rows, so the bits of a row
 * do not depend on the others, nor on where they are in memory.
 *
 * emit_scan.c provides what it does for scan.cuh; ar_kept unless AR_FLAT. */
#ifndef ARRAYD_SCAN_ROWS_CUH
#define ARRAYD_SCAN_ROWS_CUH

#define AR_GROUPS (AR_BLOCK / AR_LANES) /* rows that are scanned at once */
#define AR_ROWS   (AR_GROUPS * AR_MANY)
#define AR_WARPS  (AR_LANES > 32 ? AR_LANES / 32 : 1) /* per row */

/* The place of the i-th element. Lanes that access every AR_CHUNK-th element shall find them in
 * different banks: 16 bytes are left out after 64 where chunks are accessed by vectors of so many
 * (AR_ALIGNED: all begin at multiples of AR_V elements), else an element after 128. */
#define AR_V (16 / (int)sizeof(ar_result))
AR_FN constexpr int ar_place(int i)
{
    return AR_ALIGNED ? i + i / (4 * AR_V) * AR_V : i + i / (8 * AR_V);
}

/* What a lane accesses at once; behind the last place each thread has one of this size of its own,
 * so that an access beyond the end of a row needs no branch. */
#define AR_AT_ONCE (AR_ALIGNED ? AR_V : 1)
#define AR_PLACES  ar_place(AR_BLOCK * AR_MOST + 4 * AR_V)

struct ar_bench {
    alignas(16) ar_result x[AR_PLACES + AR_BLOCK * AR_AT_ONCE];
    ar_state totals[AR_BLOCK / 32];
#if AR_SPLIT
    ar_carry carry;
#endif
};

#if AR_SPLIT
#include "compute/kernels/forms/mail.cuh"
#define AR_WORDS ((int)(sizeof(ar_state) / 4))

/* Publishes the total of a part, and returns the sum before it; the whole block calls it. p.mail
 * has the totals of a row's parts, row by row. */
AR_FN ar_carry ar_before(const ar_params &p, ar_i64 row, int part, const ar_state &whole,
                         ar_bench &shared)
{
    ar_u64 *mail = p.mail + row * p.parts * AR_WORDS;
    const int tid = (int)threadIdx.x;
    if (tid == 0)
        ar_post(mail + part * AR_WORDS, whole);
    if (tid < 32) {
        ar_carry carry = ar_begin();
        for (int first = 0; first < part; first += 32) {
            ar_state total = ar_none();
            if (first + tid < part)
                total = ar_await<ar_state>(mail + (first + tid) * AR_WORDS);
            __syncwarp();
            for (int i = 0; i < 32 && first + i < part; i++)
                carry = ar_carry_add(carry, ar_from_lane(total, i));
        }
        if (tid == 0)
            shared.carry = carry;
    }
    __syncthreads();
    return shared.carry;
}
#endif

/* What a block processes at a time: `width` elements of each of `rows` rows. */
struct ar_piece {
    ar_i64 row, begin; /* the first row; the first element of each */
    int rows, width;
    int lead;   /* places before the first element: vectors begin at multiples of AR_E */
    int chunks; /* whole vectors of all threads; without AR_FLAT including those left out */
#if AR_FLAT
    ar_index first; /* element of the range */
    int count, head;
#endif
};

AR_FN ar_piece ar_piece_of(const ar_params &p, ar_i64 row, ar_i64 begin)
{
    ar_piece s;
    s.row = row;
    s.begin = begin;
    s.rows = p.kept - row < AR_ROWS ? (int)(p.kept - row) : AR_ROWS;
    s.width = p.length - begin < p.part ? (int)(p.length - begin) : (int)p.part;
#if AR_FLAT
    s.first = (ar_index)(row * p.length + begin);
    s.count = s.rows * s.width;
    s.lead = (int)(s.first % AR_E);
    s.head = s.lead ? AR_E - s.lead : 0;
    s.head = s.head < s.count ? s.head : s.count;
    s.chunks = (s.count - s.head) / AR_E;
#else
    s.lead = 0;
    s.chunks = s.rows * AR_FETCH;
#endif
    return s;
}

/* Where chunk k is in memory and, as the number of its first element, in shared memory; false if
 * there is none. */
AR_FN bool ar_chunk(const ar_params &p, const ar_piece &s, int k, ar_at &at, int &place)
{
#if AR_FLAT
    at.i[0] = s.first + s.head + k * AR_E;
    place = s.lead + s.head + k * AR_E;
    return k < s.chunks;
#else
    const int row = k / AR_FETCH, i = k % AR_FETCH * AR_E;
    if (row >= s.rows || i >= s.width)
        return false;
    ar_kept(p, (ar_index)(s.row + row), at);
    at.i[AR_AXIS] = (ar_index)s.begin + i;
    place = row * s.width + i;
    return true;
#endif
}

/* Moves a chunk between registers and its places, which are adjacent. */
AR_FN void ar_put_down(ar_result *to, const ar_vec<ar_result, AR_E> &x)
{
    if (AR_ALIGNED)
        ar_store<ar_result, AR_E>(to, x);
    else
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            to[e] = x.v[e];
}
AR_FN ar_vec<ar_result, AR_E> ar_take_up(const ar_result *from)
{
    if (AR_ALIGNED)
        return ar_load<ar_result, AR_E>(from);
    ar_vec<ar_result, AR_E> x;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        x.v[e] = from[e];
    return x;
}

AR_FN void ar_gather(const ar_params &p, const ar_piece &s, ar_result *x)
{
#pragma unroll 1
    for (int k = (int)threadIdx.x; k < s.chunks; k += AR_BLOCK * AR_UNROLL) {
        ar_operands<AR_E> o[AR_UNROLL];
        ar_at at[AR_UNROLL];
        int place[AR_UNROLL];
        bool there[AR_UNROLL];
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++) {
            there[u] = ar_chunk(p, s, k + u * AR_BLOCK, at[u], place[u]);
            if (there[u])
                ar_fetch<AR_E>(p, at[u], o[u]);
        }
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++)
            if (there[u]) {
                ar_vec<ar_result, AR_E> r;
#pragma unroll
                for (int e = 0; e < AR_E; e++)
                    r.v[e] = ar_point<AR_E>(p, at[u], o[u], e);
                ar_put_down(x + ar_place(place[u]), r);
            }
    }
}

AR_FN void ar_scatter(const ar_params &p, const ar_piece &s, const ar_result *x)
{
#pragma unroll 1
    for (int k = (int)threadIdx.x; k < s.chunks; k += AR_BLOCK * AR_UNROLL)
#pragma unroll
        for (int u = 0; u < AR_UNROLL; u++) {
            ar_at at;
            int place;
            if (ar_chunk(p, s, k + u * AR_BLOCK, at, place))
                ar_put<AR_E>(p, at, ar_take_up(x + ar_place(place)));
        }
}

#if AR_FLAT && AR_E > 1
/* The elements before the first whole vector and after the last, a thread each. */
AR_FN bool ar_edge(const ar_piece &s, ar_at &at, int &place)
{
    const int vectors = s.chunks * AR_E, tid = (int)threadIdx.x;
    const int i = tid < s.head ? tid : vectors + tid;
    at.i[0] = s.first + i;
    place = s.lead + i;
    return i < s.count && tid < s.count - vectors;
}
AR_FN void ar_gather_edges(const ar_params &p, const ar_piece &s, ar_result *x)
{
    ar_at at;
    int place;
    if (ar_edge(s, at, place)) {
        ar_operands<1> o;
        ar_fetch<1>(p, at, o);
        x[ar_place(place)] = ar_point<1>(p, at, o, 0);
    }
}
AR_FN void ar_scatter_edges(const ar_params &p, const ar_piece &s, const ar_result *x)
{
    ar_at at;
    int place;
    if (ar_edge(s, at, place)) {
        ar_vec<ar_result, 1> r;
        r.v[0] = x[ar_place(place)];
        ar_put<1>(p, at, r);
    }
}
#else
AR_FN void ar_gather_edges(const ar_params &, const ar_piece &, ar_result *)
{
}
AR_FN void ar_scatter_edges(const ar_params &, const ar_piece &, const ar_result *)
{
}
#endif

/* Where the lane's chunk is from its j-th element on, of which it has n. */
AR_FN int ar_where(int from, int j, int n)
{
    return j < n ? ar_place(from + j) : AR_PLACES + (int)threadIdx.x * AR_AT_ONCE;
}

/* A lane's chunk from its places, and back. Of a chunk that ends early the rest has any values: no
 * lane of the row follows. */
AR_FN void ar_take_chunk(const ar_result *x, int from, int n, ar_result (&to)[AR_CHUNK])
{
#pragma unroll
    for (int j = 0; j < AR_CHUNK; j += AR_AT_ONCE) {
        const ar_vec<ar_result, AR_AT_ONCE> v =
            ar_load<ar_result, AR_AT_ONCE>(x + ar_where(from, j, n));
#pragma unroll
        for (int e = 0; e < AR_AT_ONCE; e++)
            to[j + e] = v.v[e];
    }
}
AR_FN void ar_put_chunk(ar_result *x, int from, int n, const ar_result (&of)[AR_CHUNK])
{
#pragma unroll
    for (int j = 0; j < AR_CHUNK; j += AR_AT_ONCE) {
        ar_vec<ar_result, AR_AT_ONCE> v;
#pragma unroll
        for (int e = 0; e < AR_AT_ONCE; e++)
            v.v[e] = of[j + e];
        ar_store<ar_result, AR_AT_ONCE>(x + ar_where(from, j, n), v);
    }
}

/* Scans a lane's chunk of a row of the piece, from `carry` on; returns that with the piece added. */
AR_FN ar_carry ar_scan_row(const ar_params &p, const ar_piece &s, int row, ar_bench &shared,
                           ar_carry carry)
{
    const int tid = (int)threadIdx.x, lane = tid % AR_LANES, at = lane * AR_EACH;
    const int from = s.lead + row * s.width + at;
    int n = row < s.rows ? s.width - at : 0;
    n = n < AR_EACH ? n : AR_EACH;
    ar_result x[AR_CHUNK];
    ar_take_chunk(shared.x, from, n, x);
    ar_state sum = ar_none();
#pragma unroll
    for (int j = 0; j < AR_CHUNK; j++)
        if (AR_CHUNK == AR_EACH || j < AR_EACH)
            sum = ar_join(sum, ar_lift(x[j]));
    ar_state whole = sum, before = ar_none();
    if (AR_LANES > 1) {
        const int width = AR_LANES < 32 ? AR_LANES : 32, side = lane % width, of = tid % 32;
        ar_state upto = sum;
#pragma unroll
        for (int d = 1; d < width; d *= 2) {
            const ar_state other = ar_from_lane(upto, of - d);
            if (side >= d)
                upto = ar_join(other, upto);
        }
        const ar_state left = ar_from_lane(upto, of - 1);
        if (side > 0)
            before = left;
        if (AR_WARPS > 1) {
            const int part = lane / 32, first = tid / AR_LANES * AR_WARPS;
            if (side == 31)
                shared.totals[first + part] = upto;
            __syncthreads();
            ar_state sums = ar_none();
#pragma unroll
            for (int w = 0; w < AR_WARPS; w++) {
                if (w == part)
                    before = side > 0 ? ar_join(sums, before) : sums;
                sums = ar_join(sums, shared.totals[first + w]);
            }
            whole = sums;
        }
    }
#if AR_SPLIT
    carry = ar_before(p, s.row, (int)(s.begin / p.part), whole, shared);
#endif
#pragma unroll
    for (int j = 0; j < AR_CHUNK; j++) {
        before = ar_join(before, ar_lift(x[j]));
        x[j] = ar_end(carry, before);
    }
    ar_put_chunk(shared.x, from, n, x);
    return ar_carry_add(carry, whole);
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_bench shared;
    const int group = (int)threadIdx.x / AR_LANES;
    ar_carry carry = ar_begin(), next;
    const ar_vec<ar_result, AR_AT_ONCE> any = {};
    ar_store<ar_result, AR_AT_ONCE>(shared.x + ar_where(0, 0, 0), any);
#if AR_SPLIT
    const unsigned block = (unsigned)AR_BLOCK_X;
    const ar_i64 row = block / (unsigned)p.parts;
    const ar_i64 begin = (ar_i64)(block % (unsigned)p.parts) * p.part;
#else
    const ar_i64 row = (ar_i64)AR_BLOCK_X * AR_ROWS;
    for (ar_i64 begin = 0; begin < p.length; begin += p.part)
#endif
    {
        const ar_piece s = ar_piece_of(p, row, begin);
        ar_gather(p, s, shared.x);
        ar_gather_edges(p, s, shared.x);
        __syncthreads();
#pragma unroll 1
        for (int m = 0; m < AR_MANY; m++)
            next = ar_scan_row(p, s, m * AR_GROUPS + group, shared, carry);
        carry = next;
        __syncthreads();
        ar_scatter(p, s, shared.x);
        ar_scatter_edges(p, s, shared.x);
        __syncthreads(); /* before the next part takes their place */
    }
}

#endif
