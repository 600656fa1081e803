/* The patch of a plane that a thread has in steps3d.cuh, AR_R rows of AR_E elements: copying it
 * from memory and back, its neighbours' rows, and waiting for those. */
#ifndef ARRAYD_PATCH_CUH
#define ARRAYD_PATCH_CUH

#define AR_GROUPS (AR_BLOCK / AR_LANES) /* groups of threads that share rows */
#define AR_HEIGHT (AR_GROUPS * AR_R)

/* A thread's position: its spans; the rows it stores, as bits; offsets in ar_seams of its own rows
 * and of those above and below (its own at an edge where nothing wraps; arbitrary at the edge of a
 * tile). */
struct ar_place {
    ar_span x, y;
    ar_u32 rows;
    int own, up, down;
};
#define AR_LAST (AR_R > 1 ? AR_GROUPS * AR_WIDTH : 0) /* from a group's first row to its last */

AR_FN int ar_group(void)
{
    return (int)threadIdx.x / AR_LANES;
}
AR_FN ar_place ar_place_at(ar_index x, ar_index y, ar_index nx, ar_index ny)
{
    ar_place s;
    const int g = ar_group();
    s.x = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>(x, nx, ar_lane());
    s.y = ar_span_at<AR_GROUPS, AR_R, AR_T, AR_WRAP_Y>(y, ny, g);
    s.rows = 0;
#pragma unroll
    for (int r = 0; r < AR_R; r++)
        s.rows |= (ar_u32)(s.y.own + r >= s.y.from && s.y.own + r < s.y.to) << r;
    s.own = g * AR_WIDTH + ar_lane() * AR_E;
    s.up = g == 0 ? s.own : s.own + AR_LAST - AR_WIDTH;
    s.down = g == AR_GROUPS - 1 || s.y.last ? s.own + AR_LAST : s.own + AR_WIDTH;
    return s;
}

template <typename T> struct ar_patch {
    ar_vec<T, AR_E> v[AR_R];
};
template <typename T> struct ar_plane {
    T row[AR_HEIGHT][AR_WIDTH];
};
/* The first row of every group, followed by the last row of each. */
template <typename T> struct ar_seams {
    T v[2 * AR_GROUPS * AR_WIDTH];
};

template <typename T>
AR_FN void ar_bring_patch(ar_plane<T> &to, const T *plane, ar_index stride, const ar_place &s)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++) {
        const ar_index y = AR_WRAP_Y ? ar_wrapped(s.y.own + r, s.y.n) : ar_clamped(s.y.own + r, s.y.n);
        ar_bring_row(to.row[ar_group() * AR_R + r], plane + y * stride, s.x);
    }
}
template <typename T> AR_FN void ar_take_patch(ar_patch<T> &c, const ar_plane<T> &from)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++)
        c.v[r] = ar_load<T, AR_E>(from.row[ar_group() * AR_R + r] + ar_lane() * AR_E);
}
/* Through `through`, if a lane's elements are not copied at once. */
template <typename T>
AR_FN void ar_put_patch(T *plane, ar_index stride, ar_plane<T> &through, const ar_patch<T> &c,
                        const ar_place &s)
{
    const int first = ar_group() * AR_R;
    if (AR_PIECE < AR_E) {
        __syncwarp();
#pragma unroll
        for (int r = 0; r < AR_R; r++)
            ar_store<T, AR_E>(through.row[first + r] + ar_lane() * AR_E, c.v[r]);
        __syncwarp();
    }
    const bool kept = s.x.own >= s.x.from && s.x.own < s.x.to;
    T *row = plane + s.y.own * stride;
#pragma unroll
    for (int r = 0; r < AR_R; r++, row += stride) {
        if (!(s.rows >> r & 1))
            continue;
        if (AR_PIECE < AR_E)
            ar_put_row(row, through.row[first + r], s.x);
        else if (kept)
            ar_store_whole<T, AR_E>(row + s.x.own, c.v[r]);
    }
}

template <typename T>
AR_FN void ar_leave_patch(ar_seams<T> &seams, const ar_patch<T> &c, const ar_place &s)
{
    ar_store<T, AR_E>(seams.v + s.own, c.v[0]);
    if (AR_R > 1)
        ar_store<T, AR_E>(seams.v + s.own + AR_LAST, c.v[AR_R - 1]);
}
/* The rows above and below. */
template <int MODE, typename T>
AR_FN void ar_beside(const ar_seams<T> &seams, const ar_patch<T> &b, const ar_place &s,
                     ar_vec<T, AR_E> &up, ar_vec<T, AR_E> &down)
{
    up = ar_load<T, AR_E>(seams.v + s.up);
    down = ar_load<T, AR_E>(seams.v + s.down);
    if (MODE == AR_REFLECT) {
        const ar_vec<T, AR_E> above = up, below = down;
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            if (s.y.first)
                up.v[e] = AR_R > 1 ? b.v[AR_R > 1 ? 1 : 0].v[e] : below.v[e];
            if (s.y.last)
                down.v[e] = AR_R > 1 ? b.v[AR_R > 1 ? AR_R - 2 : 0].v[e] : above.v[e];
        }
    }
}
/* A row with its neighbours. */
template <int MODE, typename T> AR_FN ar_row<T> ar_row_of(const ar_vec<T, AR_E> &v, const ar_span &s)
{
    ar_row<T> r;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        r.v[e + 1] = v.v[e];
    ar_row_sides<MODE>(r, s);
    return r;
}

/* A plane outside the domain, at its first or last plane b, equals one inside. */
template <int MODE, typename T>
AR_FN void ar_patch_bend(bool front, bool back, ar_patch<T> &a, const ar_patch<T> &b, ar_patch<T> &c)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++)
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            const T before = a.v[r].v[e], behind = c.v[r].v[e];
            if (front)
                a.v[r].v[e] = MODE == AR_REFLECT ? behind : b.v[r].v[e];
            if (back)
                c.v[r].v[e] = MODE == AR_REFLECT ? before : b.v[r].v[e];
        }
}

/* Ensures that data is written before others read it: a barrier in two halves, so that threads need
 * not wait for others that are only slightly behind. Each round, a thread arrives at a half after
 * all its work on one half of the levels, and waits there before it works on them again. All lanes
 * of a warp arrive: if one arrived for all after a __syncwarp, 512^3 would take a fortieth longer,
 * and racecheck would not see what the others did before it. */
struct ar_barrier {
    ar_u64 state[2];
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
AR_FN void ar_open(ar_barrier &) {}
AR_FN void ar_reach(ar_barrier &, int) {}
AR_FN void ar_meet(ar_barrier &, int, int)
{
    __syncthreads();
}
#elif defined(ARRAYD_FAKE_DEVICE)
AR_FN void ar_open(ar_barrier &b)
{
    if (threadIdx.x < 2)
        fake_phase_op(FAKE_PHASE_OPEN, &b.state[threadIdx.x], AR_BLOCK);
    __syncthreads();
}
AR_FN void ar_reach(ar_barrier &b, int half)
{
    fake_phase_op(FAKE_PHASE_REACH, &b.state[half], 0);
}
AR_FN void ar_meet(ar_barrier &b, int half, int side)
{
    fake_phase_op(FAKE_PHASE_WAIT, &b.state[half], (unsigned)side);
}
#else
AR_FN ar_u32 ar_place_of(ar_barrier &b, int half)
{
    return (ar_u32)__cvta_generic_to_shared(&b.state[half]);
}
AR_FN void ar_open(ar_barrier &b)
{
    if (threadIdx.x < 2)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ar_place_of(b, (int)threadIdx.x)),
                     "r"(AR_BLOCK)
                     : "memory");
    __syncthreads();
}
AR_FN void ar_reach(ar_barrier &b, int half)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(ar_place_of(b, half))
                 : "memory");
}
/* `side`: of the round; its parity is that of the number of completed arrivals. */
AR_FN void ar_meet(ar_barrier &b, int half, int side)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again; }" ::"r"(ar_place_of(b, half)),
                 "r"(side)
                 : "memory");
}
#endif

#endif
