/* The patch of a plane that a thread has in steps3d.cuh: AR_R rows of AR_E elements; the way of it from
 * memory and back, and its neighbours' rows. */
#ifndef ARRAYD_PATCH_CUH
#define ARRAYD_PATCH_CUH

#define AR_GROUPS (AR_BLOCK / AR_LANES) /* of threads that share rows */
#define AR_HEIGHT (AR_GROUPS * AR_R)

struct ar_place {
    ar_span x, y;
};
AR_FN int ar_group(void)
{
    return (int)threadIdx.x / AR_LANES;
}
AR_FN ar_place ar_place_at(ar_index x, ar_index y, ar_index nx, ar_index ny)
{
    ar_place s;
    s.x = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>(x, nx, ar_lane());
    s.y = ar_span_at<AR_GROUPS, AR_R, AR_T, AR_WRAP_Y>(y, ny, ar_group());
    return s;
}

template <typename T> struct ar_patch {
    ar_vec<T, AR_E> v[AR_R];
};
template <typename T> struct ar_plane {
    T row[AR_HEIGHT][AR_WIDTH];
};
/* The first row of every group, and the last. */
template <typename T> struct ar_seams {
    T first[AR_GROUPS][AR_WIDTH], last[AR_GROUPS][AR_WIDTH];
};

template <typename T>
AR_FN void ar_bring_patch(ar_plane<T> &to, const T *plane, ar_index stride, const ar_place &s)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++) {
        const ar_index y = AR_WRAP_Y ? ar_wrapped(s.y.own + r, s.y.n)
                                     : ar_bounded<AR_CLAMP>(s.y.own + r, s.y.n);
        ar_bring_row(to.row[ar_group() * AR_R + r], plane + y * stride, s.x);
    }
}
template <typename T> AR_FN void ar_take_patch(ar_patch<T> &c, const ar_plane<T> &from)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++)
        c.v[r] = ar_load<T, AR_E>(from.row[ar_group() * AR_R + r] + ar_lane() * AR_E);
}
/* By way of `through`, where a lane's elements are not copied at once. */
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
#pragma unroll
    for (int r = 0; r < AR_R; r++) {
        const ar_index y = s.y.own + r;
        if (y < s.y.from || y >= s.y.to)
            continue;
        if (AR_PIECE < AR_E)
            ar_put_row(plane + y * stride, through.row[first + r], s.x);
        else if (s.x.own >= s.x.from && s.x.own < s.x.to)
            ar_store<T, AR_E>(plane + y * stride + s.x.own, c.v[r]);
    }
}

template <typename T> AR_FN void ar_leave_patch(ar_seams<T> &seams, const ar_patch<T> &c)
{
    const int at = ar_lane() * AR_E;
    ar_store<T, AR_E>(seams.first[ar_group()] + at, c.v[0]);
    if (AR_R > 1)
        ar_store<T, AR_E>(seams.last[ar_group()] + at, c.v[AR_R - 1]);
}
/* The rows above and below. At an edge where nothing wraps that is a row of one's own, at a tile's
 * edge anything. */
template <int MODE, typename T>
AR_FN void ar_beside(const ar_seams<T> &seams, const ar_patch<T> &b, const ar_place &s,
                     ar_vec<T, AR_E> &up, ar_vec<T, AR_E> &down)
{
    const int g = ar_group(), at = ar_lane() * AR_E;
    const T *ends = AR_R > 1 ? seams.last[0] : seams.first[0];
    const bool top = g == 0, bottom = g == AR_GROUPS - 1 || s.y.last;
    up = ar_load<T, AR_E>((top ? seams.first[0] : ends + (g - 1) * AR_WIDTH) + at);
    down = ar_load<T, AR_E>((bottom ? ends + g * AR_WIDTH : seams.first[g + 1]) + at);
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
/* A row with what is beside it. */
template <int MODE, typename T> AR_FN ar_row<T> ar_row_of(const ar_vec<T, AR_E> &v, const ar_span &s)
{
    ar_row<T> r;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        r.v[e + 1] = v.v[e];
    ar_row_sides<MODE>(r, s);
    return r;
}

/* A plane outside, at the domain's first or last plane b, is one inside. */
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

#endif
