/* Rows and columns that are cut into stretches, each with a block of its own: the total before a
 * stretch. The order of additions does not depend on timing: the bits are the same each time.
 * Stretches form groups, these form larger groups, and so on; the block with the last stretch of a
 * group waits for the others' totals and publishes the group's. The sum before a stretch then
 * consists of a few totals per level, all read at once, and of the total up to the end of the last
 * largest group before it, the only total that is computed in a chain.
 *
 * A row is a warp's, which reads the totals of a group of 32 at once, and so are columns that lie
 * side by side in its lanes; other columns are a thread's each, with groups of 8.
 *
 * p.mail: for each level the totals of all lines, for a line's columns; those that are read at once
 * are contiguous. emit_scan.c lays it out. Device text only; ar_carry and its functions as scan.cuh
 * has them. */
#ifndef ARRAYD_STRETCHES_CUH
#define ARRAYD_STRETCHES_CUH

#include "compute/kernels/forms/mail.cuh"
#define AR_WORDS         ((int)(sizeof(ar_carry) / 4))
#define AR_WARP_RADIX    32
#define AR_WARP_LEVELS   3
#define AR_THREAD_RADIX  8
#define AR_THREAD_LEVELS 4
#ifndef AR_LEVELS_AT_ONCE
#define AR_LEVELS_AT_ONCE 4 /* whose code is written out; fewer: NVRTC takes less time */
#endif
enum { AR_WRITTEN_OUT = AR_LEVELS_AT_ONCE }; /* a pragma takes no macro */

/* A block's part where one block sums a stretch and a later one scans it: which of `all` stretches,
 * and whether only its sum is needed. First `ahead` sums, then sums and scans alternating, finally
 * scans. */
struct ar_turn {
    int number;
    bool only_sum;
};
AR_FN ar_turn ar_turn_of(int all, int ahead)
{
    const int turn = (int)blockIdx.x - ahead, pairs = 2 * (all - ahead);
    if (turn < 0)
        return {(int)blockIdx.x, true};
    if (turn >= pairs)
        return {turn - pairs / 2, false};
    return turn % 2 == 0 ? ar_turn{ahead + turn / 2, true} : ar_turn{turn / 2, false};
}

AR_FN int ar_letter_number(const ar_params &p, int level, int line, int k)
{
    return (int)p.first[level] + line * (int)p.count[level] + k;
}
AR_FN ar_u64 *ar_mail(const ar_params &p, int level, int line, int k, int column)
{
    return p.mail +
           ((ar_i64)column * p.letters + ar_letter_number(p, level, line, k)) * AR_WORDS;
}
/* Of a thread's column, of `width` side by side. */
AR_FN ar_u64 *ar_own_mail(const ar_params &p, int level, int line, int k, int width)
{
    return p.mail + ((ar_i64)ar_letter_number(p, level, line, k) * width + (int)threadIdx.x) * AR_WORDS;
}

/* The sum of the lanes' carries, in lane 0. */
AR_FN ar_carry ar_gathered(ar_carry c)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
        c = ar_carry_merge(c, ar_from_lane(c, (int)(threadIdx.x % 32) ^ d));
    return c;
}

/* Called by a whole warp: publishes the total of a stretch, and of the groups that it completes. */
AR_FN void ar_publish(const ar_params &p, int line, int k, int column, ar_carry total)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll AR_WRITTEN_OUT
    for (int l = 0; l < AR_WARP_LEVELS; l++) {
        if (lane == 0)
            ar_post(ar_mail(p, l, line, k, column), total);
        if (k % AR_WARP_RADIX != AR_WARP_RADIX - 1)
            return;
        ar_carry c = ar_begin();
        if (lane < AR_WARP_RADIX - 1)
            c = ar_await<ar_carry>(ar_mail(p, l, line, k - (AR_WARP_RADIX - 1) + lane, column));
        total = ar_carry_merge(ar_gathered(c), total);
        k /= AR_WARP_RADIX;
    }
    if (k > 0)
        total = ar_carry_merge(
            ar_await<ar_carry>(ar_mail(p, AR_WARP_LEVELS, line, k - 1, column)), total);
    if (lane == 0)
        ar_post(ar_mail(p, AR_WARP_LEVELS, line, k, column), total);
}

/* Called by a whole warp: the total before a stretch, in lane 0. */
AR_FN ar_carry ar_before(const ar_params &p, int line, int stretch, int column)
{
    const int lane = (int)threadIdx.x % 32;
    ar_carry c[AR_WARP_LEVELS + 1];
    bool known[AR_WARP_LEVELS + 1];
    int k = stretch;
#pragma unroll
    for (int l = 0; l <= AR_WARP_LEVELS; l++) {
        const int at = l < AR_WARP_LEVELS ? k - k % AR_WARP_RADIX + lane : k - 1;
        c[l] = ar_begin();
        known[l] = at < 0 || at >= k || (l == AR_WARP_LEVELS && lane > 0) ||
                   ar_look(ar_mail(p, l, line, at, column), c[l]);
        k /= AR_WARP_RADIX;
    }
    k = stretch;
#pragma unroll
    for (int l = 0; l <= AR_WARP_LEVELS; l++) {
        if (!known[l])
            c[l] = ar_await<ar_carry>(ar_mail(
                p, l, line, l < AR_WARP_LEVELS ? k - k % AR_WARP_RADIX + lane : k - 1, column));
        k /= AR_WARP_RADIX;
    }
    ar_carry before = c[AR_WARP_LEVELS - 1];
#pragma unroll
    for (int l = AR_WARP_LEVELS - 2; l >= 0; l--)
        before = ar_carry_merge(before, c[l]);
    return ar_carry_merge(c[AR_WARP_LEVELS], ar_gathered(before));
}

/* The total before a stretch of a thread's column, whose own total is `own`; publishes that total,
 * and those of the groups it completes. */
AR_FN ar_carry ar_before(const ar_params &p, int line, int stretch, int width, ar_carry own)
{
    ar_carry before = ar_begin(), total = own;
    bool closes = true;
    int k = stretch;
#pragma unroll AR_WRITTEN_OUT
    for (int l = 0; l < AR_THREAD_LEVELS; l++) {
        const int n = k % AR_THREAD_RADIX;
        ar_carry c[AR_THREAD_RADIX - 1];
        bool known[AR_THREAD_RADIX - 1];
        if (closes)
            ar_post(ar_own_mail(p, l, line, k, width), total);
#pragma unroll
        for (int i = 0; i < AR_THREAD_RADIX - 1; i++) {
            c[i] = ar_begin();
            known[i] = i >= n || ar_look(ar_own_mail(p, l, line, k - n + i, width), c[i]);
        }
        ar_carry sum = ar_begin();
#pragma unroll
        for (int i = 0; i < AR_THREAD_RADIX - 1; i++) {
            if (!known[i])
                c[i] = ar_await<ar_carry>(ar_own_mail(p, l, line, k - n + i, width));
            sum = ar_carry_merge(sum, c[i]);
        }
        before = ar_carry_merge(sum, before);
        total = ar_carry_merge(sum, total);
        closes = closes && n == AR_THREAD_RADIX - 1;
        k /= AR_THREAD_RADIX;
    }
    if (k > 0)
        before = ar_carry_merge(
            ar_await<ar_carry>(ar_own_mail(p, AR_THREAD_LEVELS, line, k - 1, width)), before);
    if (closes)
        ar_post(ar_own_mail(p, AR_THREAD_LEVELS, line, k, width), ar_carry_merge(before, own));
    return before;
}

#endif
