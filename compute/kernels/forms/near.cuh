/* The rows of an operand that a thread of the form stencil reads; see stencil.cuh.
 *
 * If rows are aligned, a thread's AR_E elements along the fastest axis are neighbours (AR_STEP 1),
 * read as a vector. Otherwise they lie 32 apart (AR_STEP 32), so that a warp's accesses are still
 * whole lines, and all 32 · AR_E elements of a warp are inside the row. Either way a neighbour is
 * either another lane's element or another of the thread's own. */
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

/* A row is loaded in two steps, so that all loads of all rows are issued before the first lane
 * waits for another's element; a __syncwarp() in between keeps the compiler from delaying loads.
 * First step: the thread's own elements, x being the first, and, at the ends of a warp or row,
 * those beside them. */
template <int MODE, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_own(ar_near<T, RZ, RY, RX> &n, const T *row, ar_index nx, ar_index x, int z, int y,
                       bool edge)
{
    const int lane = (int)(threadIdx.x & 31);
#if AR_STEP == 1
    const ar_index own = x < nx ? x : nx - AR_E; /* beyond the row: any value, it is not stored */
    const ar_vec<T, AR_E> v = ar_load<T, AR_E>(row + own);
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        n.at(z, y, e, 0) = v.v[e];
    if (!edge)
        return;
#pragma unroll
    for (int j = 1; j <= RX; j++) {
        if (lane == 0)
            n.at(z, y, 0, -j) = row[ar_bounded<MODE>(own - j, nx)];
        if (lane == 31 || x + AR_E >= nx)
            n.at(z, y, AR_E - 1, j) = row[ar_bounded<MODE>(own + (AR_E - 1 + j), nx)];
    }
#else
    /* This form is limited by instructions: one address per row, everything else constant, and one
     * load serves the outer neighbours of both the first and the last lanes. */
    const T *own = row + x;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        n.at(z, y, e, 0) = own[e * AR_STEP];
    if (!edge)
        return;
#pragma unroll
    for (int j = 1; j <= RX; j++)
        if (lane < j || lane + j >= 32) {
            const ar_index out = lane < j ? x - j : x + ((AR_E - 1) * AR_STEP + j);
            const T v = row[ar_bounded<MODE>(out, nx)];
            n.at(z, y, 0, -j) = v;
            n.at(z, y, AR_E - 1, j) = v;
        }
#endif
}

/* Second step: the neighbours that other lanes hold. */
template <typename T, int RZ, int RY, int RX>
AR_FN void ar_near_others(ar_near<T, RZ, RY, RX> &n, ar_index nx, ar_index x, int z, int y)
{
    const int lane = (int)(threadIdx.x & 31);
#if AR_STEP == 1
#pragma unroll
    for (int j = 1; j <= RX; j++) {
        const T below = ar_from_lane(n.at(z, y, AR_E - j, 0), (lane - 1) & 31);
        const T above = ar_from_lane(n.at(z, y, j - 1, 0), (lane + 1) & 31);
        if (lane != 0)
            n.at(z, y, 0, -j) = below;
        if (lane != 31 && x + AR_E < nx)
            n.at(z, y, AR_E - 1, j) = above;
    }
#else
#pragma unroll
    for (int j = 1; j <= RX; j++) {
        T below[AR_E], above[AR_E];
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            below[e] = ar_from_lane(n.at(z, y, e, 0), (lane - j) & 31);
            above[e] = ar_from_lane(n.at(z, y, e, 0), (lane + j) & 31);
        }
#pragma unroll
        for (int e = 0; e < AR_E; e++) {
            if (lane >= j)
                n.at(z, y, e, -j) = below[e];
            else if (e > 0)
                n.at(z, y, e, -j) = below[e > 0 ? e - 1 : 0];
            if (lane + j < 32)
                n.at(z, y, e, j) = above[e];
            else if (e < AR_E - 1)
                n.at(z, y, e, j) = above[e < AR_E - 1 ? e + 1 : e];
        }
    }
#endif
}

/* The position of plane or row i. Positions beyond the last ghost that any point reads belong to
 * surplus threads. */
template <int MODE, int REACH> AR_FN ar_index ar_near_place(ar_index i, ar_index n)
{
    if (MODE == AR_GHOST)
        return i < n + REACH ? i : n - 1 + REACH;
    return ar_bounded<MODE>(i, n);
}

/* NEED tells, for a plane and a row of the tile, whether any point reads it (row) and whether it
 * reads beyond the thread's own elements (edge). base: the batch's first element. */
template <int MODE, typename NEED, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_load(ar_near<T, RZ, RY, RX> &n, const T *base, ar_index stride_z,
                        ar_index stride_y, ar_index nz, ar_index ny, ar_index nx, ar_index z,
                        ar_index y, ar_index x)
{
#pragma unroll
    for (int t = -RZ; t < AR_P + RZ; t++) {
        const T *plane = base + ar_near_place<MODE, RZ>(z + t, nz) * stride_z;
#pragma unroll
        for (int q = -RY; q < AR_R + RY; q++)
            if (NEED::row(t, q))
                ar_near_own<MODE>(n, plane + ar_near_place<MODE, RY>(y + q, ny) * stride_y, nx, x, t, q,
                                  NEED::edge(t, q));
    }
}
template <typename NEED, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_exchange(ar_near<T, RZ, RY, RX> &n, ar_index nx, ar_index x)
{
#pragma unroll
    for (int t = -RZ; t < AR_P + RZ; t++)
#pragma unroll
        for (int q = -RY; q < AR_R + RY; q++)
            if (NEED::edge(t, q))
                ar_near_others(n, nx, x, t, q);
}

#endif
