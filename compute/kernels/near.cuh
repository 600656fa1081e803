/* The rows of an operand that a thread of the form stencil reads; see stencil.cuh.
 *
 * A thread's AR_E elements along the fastest axis are neighbours (AR_STEP 1), read as a vector, where
 * rows are aligned for that; otherwise they lie 32 apart (AR_STEP 32), so that a warp's accesses are
 * still whole lines. Either way a neighbour is another lane's element or another of one's own. */
#ifndef ARRAYD_NEAR_CUH
#define ARRAYD_NEAR_CUH

/* One operand's rows: [plane + RZ][row + RY]. */
template <typename T, int RZ, int RY, int RX> struct ar_near {
#if AR_STEP == 1
    T t[AR_P + 2 * RZ][AR_R + 2 * RY][AR_E + 2 * RX];
    __device__ T &at(int z, int y, int e, int dx)
    {
        return t[z + RZ][y + RY][e + dx + RX];
    }
    __device__ const T &at(int z, int y, int e, int dx) const
    {
        return t[z + RZ][y + RY][e + dx + RX];
    }
#else
    T t[AR_P + 2 * RZ][AR_R + 2 * RY][2 * RX + 1][AR_E];
    __device__ T &at(int z, int y, int e, int dx)
    {
        return t[z + RZ][y + RY][dx + RX][e];
    }
    __device__ const T &at(int z, int y, int e, int dx) const
    {
        return t[z + RZ][y + RY][dx + RX][e];
    }
#endif
};

/* The thread's own elements of a row, and with `edge` those up to RX beside them. x: the first. */
template <int MODE, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_row(ar_near<T, RZ, RY, RX> &n, const T *row, ar_index nx, ar_index x, int z, int y,
                       bool edge)
{
    const int lane = (int)(threadIdx.x & 31);
#if AR_STEP == 1
    const ar_index own = x < nx ? x : nx - AR_E; /* beyond the row: anything, it is not stored */
    const ar_vec<T, AR_E> v = ar_load<T, AR_E>(row + own);
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        n.at(z, y, e, 0) = v.v[e];
    if (!edge)
        return;
    const bool first = lane == 0, last = lane == 31 || x + AR_E >= nx;
#pragma unroll
    for (int j = 1; j <= RX; j++) {
        T below = ar_from_lane(v.v[AR_E - j], lane - 1 & 31);
        T above = ar_from_lane(v.v[j - 1], lane + 1 & 31);
        if (first)
            below = row[ar_bounded<MODE>(own - j, nx)];
        if (last)
            above = row[ar_bounded<MODE>(own + (AR_E - 1 + j), nx)];
        n.at(z, y, 0, -j) = below;
        n.at(z, y, AR_E - 1, j) = above;
    }
#else
    T v[AR_E], below[AR_E], above[AR_E];
#pragma unroll
    for (int e = 0; e < AR_E; e++) {
        const ar_index own = x + e * AR_STEP;
        v[e] = row[own < nx ? own : nx - 1];
        n.at(z, y, e, 0) = v[e];
    }
    if (!edge)
        return;
#pragma unroll
    for (int j = 1; j <= RX; j++) {
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            below[e] = ar_from_lane(v[e], lane - j & 31);
            above[e] = ar_from_lane(v[e], lane + j & 31);
        }
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            const ar_index own = x + e * AR_STEP;
            T lower = lane >= j || e == 0 ? below[e] : below[e > 0 ? e - 1 : 0];
            T upper = lane + j < 32 || e == AR_E - 1 ? above[e] : above[e < AR_E - 1 ? e + 1 : e];
            if (e == 0 && lane < j)
                lower = row[ar_bounded<MODE>((own < nx ? own : nx - 1) - j, nx)];
            if ((e == AR_E - 1 && lane + j >= 32) || own + j >= nx)
                upper = row[ar_bounded<MODE>((own < nx ? own : nx - 1) + j, nx)];
            n.at(z, y, e, -j) = lower;
            n.at(z, y, e, j) = upper;
        }
    }
#endif
}

/* NEED says, for a plane and a row of the tile, whether any point reads it (row) and whether beyond
 * the thread's own elements (edge). base: the batch's first element. */
template <int MODE, typename NEED, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_load(ar_near<T, RZ, RY, RX> &n, const T *base, ar_index stride_z,
                        ar_index stride_y, ar_index nz, ar_index ny, ar_index nx, ar_index z,
                        ar_index y, ar_index x)
{
#pragma unroll
    for (int t = -RZ; t < AR_P + RZ; t++) {
        const T *plane = base + ar_bounded<MODE>(z + t, nz) * stride_z;
#pragma unroll
        for (int q = -RY; q < AR_R + RY; q++)
            if (NEED::row(t, q))
                ar_near_row<MODE>(n, plane + ar_bounded<MODE>(y + q, ny) * stride_y, nx, x, t, q,
                                  NEED::edge(t, q));
    }
}

#endif
