/* The rows of an operand that a thread of the form stencil reads; see stencil.cuh. */
#ifndef ARRAYD_NEAR_CUH
#define ARRAYD_NEAR_CUH

/* One operand's rows: [plane + RZ][row + RY][element + RX]. */
template <typename T, int RZ, int RY, int RX> struct ar_near {
    T t[AR_P + 2 * RZ][AR_R + 2 * RY][AR_E + 2 * RX];
};

/* NEED says, for a plane and a row of the tile, whether any point reads it (row) and whether beyond
 * the thread's own elements (edge). base: the batch's first element. */
template <int MODE, typename NEED, typename T, int RZ, int RY, int RX>
AR_FN void ar_near_load(ar_near<T, RZ, RY, RX> &n, const T *base, ar_index stride_z,
                        ar_index stride_y, ar_index nz, ar_index ny, ar_index nx, ar_index z,
                        ar_index y, ar_index x)
{
    const int lane = (int)(threadIdx.x & 31);
    const ar_index own = x < nx ? x : nx - AR_E; /* beyond the row: anything, it is not stored */
#pragma unroll
    for (int t = -RZ; t < AR_P + RZ; t++) {
        const T *plane = base + ar_bounded<MODE>(z + t, nz) * stride_z;
#pragma unroll
        for (int q = -RY; q < AR_R + RY; q++)
            if (NEED::row(t, q)) {
                const T *row = plane + ar_bounded<MODE>(y + q, ny) * stride_y;
                const ar_vec<T, AR_E> v = ar_load<T, AR_E>(row + own);
#pragma unroll
                for (int e = 0; e < AR_E; e++)
                    n.t[t + RZ][q + RY][e + RX] = v.v[e];
                if (NEED::edge(t, q)) {
                    const bool first = lane == 0, last = lane == 31 || x + AR_E >= nx;
#pragma unroll
                    for (int j = 1; j <= RX; j++) {
                        T below = ar_from_lane_below(v.v[AR_E - j]);
                        T above = ar_from_lane_above(v.v[j - 1]);
                        if (first)
                            below = row[ar_bounded<MODE>(own - j, nx)];
                        if (last)
                            above = row[ar_bounded<MODE>(own + (AR_E - 1 + j), nx)];
                        n.t[t + RZ][q + RY][RX - j] = below;
                        n.t[t + RZ][q + RY][RX + AR_E - 1 + j] = above;
                    }
                }
            }
    }
}

#endif
