/* The form scan: every element becomes the sum or product of those up to it along one axis.
 *
 * AR_INNER: the axis is the fastest. AR_TEAM warps go through a row, each a stretch of AR_UNROLL times
 * 32 chunks of AR_E at a time, that it loads at once and adds up by shuffles; the warps' totals meet in
 * shared memory. Else a thread goes down AR_E columns, AR_UNROLL rows loaded at once.
 *
 * AR_SPLIT: where there are too few rows or columns, each is cut into stretches, a block for one.
 * A block publishes its total and then needs what came before. Rows: the totals of the stretches of
 * its group before it, AR_GROUP at most, a thread for each; those of the groups of its supergroup
 * before that, each published by its last block as soon as it has its own group's; and the total up to
 * the end of the supergroup before. So nobody waits for a chain of others but where a row has more than
 * AR_GROUP² stretches. Columns: the total up to the end of the group before, which the last block of
 * that publishes, and the totals of the stretches of the own. What is added to what, and in which
 * order, does not depend on who comes when: the bits are the same each time. Blocks are started in the
 * order of their numbers, so that who is waited for has started.
 *
 * emit_scan.c provides ar_params, ar_operands, ar_fetch, ar_point, ar_put, ar_kept (a number to the
 * indices along the other axes) and what is done: ar_state with ar_none, ar_lift, ar_join, which is
 * exact enough for some thousand elements; ar_carry with ar_begin, ar_carry_add (a state to it),
 * ar_carry_merge, which is for any number; ar_end. */
#ifndef ARRAYD_SCAN_CUH
#define ARRAYD_SCAN_CUH

/* Another block's words; past the first cache, which other blocks' writing does not reach. */
template <typename T> AR_FN T ar_peek(const T *from)
{
    union words {
        T x;
        ar_u64 w[sizeof(T) / 8];
        __device__ words() {}
    } u;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 8); i++)
        u.w[i] = ((const volatile ar_u64 *)from)[i];
    return u.x;
}
AR_FN void ar_await(const int *flag)
{
    while (*(const volatile int *)flag == 0) {
    }
    __threadfence();
}

/* The union keeps constructors away. */
struct ar_meeting {
    ar_state totals[AR_BLOCK / 32];
    ar_carry carries[AR_BLOCK / 32];
};

/* AR_SPLIT: p.flags is one for each stretch of each line, then one for each group of each line, then
 * (rows) one for each supergroup. p.totals: in the same order, AR_WIDTH carries each. */

#if AR_INNER
#define AR_PIECE (32 * AR_E * AR_UNROLL) /* of a warp */
#define AR_ROWS  (AR_BLOCK / 32 / AR_TEAM)

#if AR_SPLIT
/* What the numbers from `first` to `end` have published, AR_BLOCK at most, in their order. */
AR_FN ar_carry ar_published(const int *flags, const ar_carry *totals, ar_meeting &shared,
                            ar_i64 first, ar_i64 end)
{
    const int tid = (int)threadIdx.x, lane = tid % 32;
    ar_carry c = ar_begin();
    if (first + tid < end) {
        ar_await(flags + first + tid);
        c = ar_peek(totals + first + tid);
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const ar_carry other = ar_from_lane(c, lane + d < 32 ? lane + d : lane);
        if (lane % (2 * d) == 0)
            c = ar_carry_merge(c, other);
    }
    __syncthreads(); /* who has read what was there */
    if (lane == 0)
        shared.carries[tid / 32] = c;
    __syncthreads();
    c = shared.carries[0];
#pragma unroll
    for (int w = 1; w < AR_BLOCK / 32; w++)
        c = ar_carry_merge(c, shared.carries[w]);
    return c;
}
AR_FN void ar_publish(int *flag, ar_carry *total, ar_carry c)
{
    *total = c;
    __threadfence();
    *(volatile int *)flag = 1;
}

/* What came before the stretch; the same to all threads. */
AR_FN ar_carry ar_before(const ar_params &p, ar_meeting &shared, ar_i64 line, ar_i64 stretch,
                         ar_carry own)
{
    const bool first = threadIdx.x == 0, closes = stretch % AR_GROUP == AR_GROUP - 1;
    const ar_i64 group = stretch / AR_GROUP, super = group / AR_GROUP;
    int *const flags = p.flags + line * p.stretches;
    int *const group_flags = p.flags + p.lines * p.stretches + line * p.groups;
    int *const super_flags = p.flags + p.lines * (p.stretches + p.groups) + line * p.supers;
    ar_carry *const totals = p.totals + (flags - p.flags);
    ar_carry *const group_totals = p.totals + (group_flags - p.flags);
    ar_carry *const super_totals = p.totals + (super_flags - p.flags);
    if (first)
        ar_publish(flags + stretch, totals + stretch, own);
    ar_carry c = ar_published(flags, totals, shared, group * AR_GROUP, stretch);
    if (first && closes)
        ar_publish(group_flags + group, group_totals + group, ar_carry_merge(c, own));
    if (group % AR_GROUP)
        c = ar_carry_merge(
            ar_published(group_flags, group_totals, shared, super * AR_GROUP, group), c);
    if (super > 0) {
        ar_await(super_flags + super - 1);
        c = ar_carry_merge(ar_peek(super_totals + super - 1), c);
    }
    if (first && closes && group % AR_GROUP == AR_GROUP - 1)
        ar_publish(super_flags + super, super_totals + super, ar_carry_merge(c, own));
    return c;
}
#endif

extern "C" __global__ void __launch_bounds__(AR_BLOCK, AR_RESIDENT)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    __shared__ ar_meeting shared;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, part = warp % AR_TEAM;
#if AR_SPLIT
    const ar_i64 line = blockIdx.x / (unsigned)p.stretches;
    const ar_i64 stretch = blockIdx.x % (unsigned)p.stretches;
#else
    const ar_i64 line = blockIdx.x, stretch = 0;
#endif
    const ar_i64 row = line * AR_ROWS + warp / AR_TEAM;
    const ar_i64 first = stretch * AR_TEAM * AR_PIECE;
    const ar_i64 last = AR_SPLIT ? first + AR_TEAM * AR_PIECE : p.length;
    ar_at base;
    if (row < p.kept)
        ar_kept(p, (ar_index)row, base);
    ar_carry carry = ar_begin();
    for (ar_i64 tile = first; tile < last; tile += AR_TEAM * AR_PIECE) {
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
                at[u].i[AR_FAST] = (ar_index)(begin + u * 32 * AR_E);
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
                shared.totals[warp] = sum;
            __syncthreads();
            whole = ar_none();
#pragma unroll
            for (int w = 0; w < AR_TEAM; w++) {
                if (w == part)
                    before = whole;
                whole = ar_join(whole, shared.totals[warp - part + w]);
            }
            __syncthreads();
        }
#if AR_SPLIT
        carry = ar_before(p, shared, line, stretch, ar_carry_add(ar_begin(), whole));
#endif
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

#else

#if AR_SPLIT
AR_FN int *ar_flag(const ar_params &p, ar_i64 line, ar_i64 stretch)
{
    return p.flags + line * p.stretches + stretch;
}
AR_FN int *ar_group_flag(const ar_params &p, ar_i64 line, ar_i64 group)
{
    return p.flags + p.lines * p.stretches + line * p.groups + group;
}
AR_FN ar_carry *ar_total(const ar_params &p, ar_i64 line, ar_i64 stretch)
{
    return p.totals + (line * p.stretches + stretch) * AR_WIDTH;
}
AR_FN ar_carry *ar_group_total(const ar_params &p, ar_i64 line, ar_i64 group)
{
    return p.totals + (p.lines * p.stretches + line * p.groups + group) * AR_WIDTH;
}
AR_FN void ar_raise(int *flag)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *(volatile int *)flag = 1;
    }
}
#endif

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

extern "C" __global__ void __launch_bounds__(AR_BLOCK)
    ar_kernel(AR_TAKES)
{
    AR_GIVEN
    const int tid = (int)threadIdx.x;
    ar_i64 begin = 0, end = p.length;
#if AR_SPLIT
    const ar_i64 line = blockIdx.x % (unsigned)p.lines;
    const ar_i64 stretch = blockIdx.x / (unsigned)p.lines;
    begin = stretch * p.rows;
    end = begin + p.rows < p.length ? begin + p.rows : p.length;
#else
    const ar_i64 line = blockIdx.x;
#endif
    const ar_i64 column = line * AR_BLOCK + tid;
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
#if AR_SPLIT
    const ar_i64 group = stretch / AR_GROUP;
    ar_carry own[AR_E];
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        own[e] = ar_begin();
    ar_walk<false>(p, base, begin, end, own);
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        ar_total(p, line, stretch)[tid * AR_E + e] = own[e];
    ar_raise(ar_flag(p, line, stretch));
    if (group > 0) {
        ar_await(ar_group_flag(p, line, group - 1));
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            carry[e] = ar_peek(ar_group_total(p, line, group - 1) + tid * AR_E + e);
    }
    for (ar_i64 i = group * AR_GROUP; i < stretch; i++) {
        ar_await(ar_flag(p, line, i));
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            carry[e] = ar_carry_merge(carry[e], ar_peek(ar_total(p, line, i) + tid * AR_E + e));
    }
    if (stretch % AR_GROUP == AR_GROUP - 1) {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            ar_group_total(p, line, group)[tid * AR_E + e] = ar_carry_merge(carry[e], own[e]);
        ar_raise(ar_group_flag(p, line, group));
    }
#endif
    ar_walk<true>(p, base, begin, end, carry);
}

#endif

#endif
