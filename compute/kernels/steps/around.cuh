/* What a step in three dimensions reads around a thread's row: the planes before and behind, the
 * rows above and below, the elements to the left and right, and what stands for those beyond an
 * edge. See patch.cuh. */
#ifndef ARRAYD_AROUND_CUH
#define ARRAYD_AROUND_CUH

#include "compute/kernels/steps/patch.cuh"

/* A thread's row of a field, and what a step reads around it: that row of the planes before and
 * behind, the rows above and below, elements to the left and right. */
template <typename T, int RZ, int RY, int RX> struct ar_around {
    ar_vec<T, AR_E> z[2 * RZ + 1], y[2 * RY + 1];
    T x[AR_E + 2 * RX];
};

/* Recursive templates, not loops: with a loop's counter as an index, the compiler would put the
 * planes into memory.
 *
 * `kept` has a field's last K planes of this level, up to the one AR_LAG − 1 ahead of the plane
 * that is computed; the oldest is number PHASE. The first level has the older ones in the queue. */
template <bool FIRST, int PHASE, int ROW, int D, int RZ, int RY, int RX, int K, typename T>
AR_FN void ar_look_z(ar_around<T, RZ, RY, RX> &w, const ar_patch<T> (&kept)[K],
                     const ar_vec<T, AR_E> &fresh, const ar_plane<T> *queue, const int *slot,
                     const ar_place &s)
{
    if constexpr (D == AR_LAG)
        w.z[D + RZ] = fresh;
    else if constexpr (FIRST && (D < 0 || RZ + RY == 0))
        w.z[D + RZ] =
            ar_get<T, AR_E>(ar_spot_of(queue[slot[AR_LAG - D]].v + s.own) +
                            ROW * AR_WIDTH * (int)sizeof(T));
    else
        w.z[D + RZ] = kept[(PHASE + D + K - AR_LAG) % K].v[ROW];
    if constexpr (D < RZ)
        ar_look_z<FIRST, PHASE, ROW, D + 1>(w, kept, fresh, queue, slot, s);
}

template <bool FIRST, int PHASE, int ROW, int D, int RZ, int RY, int RX, int K, typename T>
AR_FN void ar_look_y(ar_around<T, RZ, RY, RX> &w, const ar_patch<T> (&kept)[K],
                     const ar_plane<T> *queue, const int *slot, const ar_seams<T> *seams,
                     const ar_place &s)
{
    constexpr int row = ROW + D;
    if constexpr (D == 0)
        w.y[D + RY] = w.z[RZ];
    else if constexpr (row >= 0 && row < AR_R)
        w.y[D + RY] = kept[(PHASE + K - AR_LAG) % K].v[row];
    else {
        const T *from = FIRST ? queue[slot[AR_LAG]].v : seams->v;
        int at;
        if constexpr (row < 0)
            at = FIRST ? s.up[-row - 1] : s.above[-row - 1];
        else
            at = FIRST ? s.down[row - AR_R] : s.below[row - AR_R];
        w.y[D + RY] = ar_get<T, AR_E>(ar_spot_of(from + at));
    }
    if constexpr (D < RY)
        ar_look_y<FIRST, PHASE, ROW, D + 1>(w, kept, queue, slot, seams, s);
}

/* The value of the lane to the left or right, if that has the same rows. */
template <typename T> union ar_carried {
    T x;
    ar_u32 w[(sizeof(T) + 3) / 4];
    __device__ ar_carried() {}
};
template <typename T> AR_FN T ar_from_left(T x)
{
    ar_carried<T> u;
    u.w[0] = 0;
    u.x = x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) + 3) / 4; i++)
        u.w[i] = __shfl_up_sync(0xffffffffu, u.w[i], 1, AR_LANES);
    return u.x;
}
template <typename T> AR_FN T ar_from_right(T x)
{
    ar_carried<T> u;
    u.w[0] = 0;
    u.x = x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) + 3) / 4; i++)
        u.w[i] = __shfl_down_sync(0xffffffffu, u.w[i], 1, AR_LANES);
    return u.x;
}

/* The element that stands for the one k beyond an edge, counted from the edge. */
template <int MODE> AR_FN constexpr int ar_beyond(int k)
{
    return MODE == AR_REFLECT ? k : MODE == AR_SYMMETRIC ? k - 1 : 0;
}

template <int MODE, int K, int RZ, int RY, int RX, typename T>
AR_FN void ar_look_x(ar_around<T, RZ, RY, RX> &w, const ar_place &s)
{
    static_assert(RX <= AR_E, "neighbours are of the adjacent lanes");
    const ar_vec<T, AR_E> own = w.z[RZ];
    const T left = ar_from_left(own.v[AR_E - K]), right = ar_from_right(own.v[K - 1]);
    constexpr int in = ar_beyond<MODE>(K);
    T first = right, last = left; /* in == AR_E == 1 */
    if constexpr (in < AR_E) {
        first = own.v[in];
        last = own.v[AR_E - 1 - in];
    }
    w.x[RX - K] = !AR_WRAP_X && s.x.first ? first : left;
    w.x[RX + AR_E + K - 1] = !AR_WRAP_X && s.x.last ? last : right;
    if constexpr (K < RX)
        ar_look_x<MODE, K + 1>(w, s);
}

/* Rows beyond an edge that others than the nearest stand for. */
template <int MODE, int PHASE, int ROW, int D, int RZ, int RY, int RX, int K, typename T>
AR_FN void ar_bend_y(ar_around<T, RZ, RY, RX> &w, const ar_patch<T> (&kept)[K], const ar_place &s)
{
    constexpr int row = ROW + D;
    constexpr int mid = (PHASE + K - AR_LAG) % K;
    if constexpr (row < 0) {
        constexpr int in = ar_beyond<MODE>(-row);
        ar_vec<T, AR_E> x = w.y[RY + 1]; /* in == AR_R == 1 */
        if constexpr (in < AR_R)
            x = kept[mid].v[in];
        if (s.y.first)
            w.y[D + RY] = x;
    } else if constexpr (row >= AR_R) {
        constexpr int in = ar_beyond<MODE>(row - AR_R + 1);
        ar_vec<T, AR_E> x = w.y[RY - 1];
        if constexpr (in < AR_R)
            x = kept[mid].v[AR_R - 1 - in];
        if (s.y.last)
            w.y[D + RY] = x;
    }
    if constexpr (D < RY)
        ar_bend_y<MODE, PHASE, ROW, D + 1>(w, kept, s);
}

/* Planes outside the domain. */
template <int MODE, int M, int K, int RZ, int RY, int RX, typename T>
AR_FN void ar_bend_z(ar_around<T, RZ, RY, RX> &w, ar_index z, ar_index nz)
{
    constexpr int in = ar_beyond<MODE>(K - M) - M;
    const ar_vec<T, AR_E> before = w.z[RZ + in], behind = w.z[RZ - in];
    if (z == M)
        w.z[RZ - K] = before;
    if (z == nz - 1 - M)
        w.z[RZ + K] = behind;
    if constexpr (K < RZ)
        ar_bend_z<MODE, M, K + 1>(w, z, nz);
    else if constexpr (M + 1 < RZ)
        ar_bend_z<MODE, M + 1, M + 2>(w, z, nz);
}

template <bool FIRST, bool EDGE, int PHASE, int ROW, int MZ, int MY, int MX, int RZ, int RY, int RX,
          int K, typename T>
AR_FN void ar_look(ar_around<T, RZ, RY, RX> &w, const ar_patch<T> (&kept)[K],
                   const ar_vec<T, AR_E> &fresh, const ar_plane<T> *queue, const int *slot,
                   const ar_seams<T> *seams, const ar_place &s, ar_index z, ar_index nz)
{
    ar_look_z<FIRST, PHASE, ROW, -RZ>(w, kept, fresh, queue, slot, s);
    if constexpr (RY > 0) {
        ar_look_y<FIRST, PHASE, ROW, -RY>(w, kept, queue, slot, seams, s);
        if constexpr (MY == AR_REFLECT || MY == AR_SYMMETRIC)
            ar_bend_y<MY, PHASE, ROW, -RY>(w, kept, s);
    }
    if constexpr (RX > 0) {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            w.x[RX + e] = w.z[RZ].v[e];
        ar_look_x<MX, 1>(w, s);
    }
    if constexpr (EDGE && !AR_WRAP_SLOW && RZ > 0)
        ar_bend_z<MZ, 0, 1>(w, z, nz);
}

#endif
