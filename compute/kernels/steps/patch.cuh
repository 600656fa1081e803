/* The patch of a plane that a thread has in steps3d.cuh, AR_R rows of AR_E elements: where it is,
 * planes on their way from memory, keeping a level's rows, and storing results. */
#ifndef ARRAYD_PATCH_CUH
#define ARRAYD_PATCH_CUH

#include "compute/kernels/steps/barriers.cuh"
#include "compute/kernels/steps/steps.cuh"

#define AR_GROUPS (AR_BLOCK / AR_LANES) /* groups of threads that share rows */
#define AR_HEIGHT (AR_GROUPS * AR_R)
#define AR_SIDES  (AR_LAG + 1) /* of the seams */

/* --- places --- */

/* A thread's position: its spans; the rows it stores, as bits; in elements, where its first row
 * is in a plane of the queue and in the seams, and where the rows above and below are, the nearest
 * first (its own at the domain's edge and at a tile's, where they are arbitrary). */
struct ar_place {
    ar_span x, y;
    ar_u32 rows;
    int own, up[AR_BESIDE], down[AR_BESIDE];
    int seam, above[AR_BESIDE], below[AR_BESIDE];
};

AR_FN int ar_group(void)
{
    return (int)threadIdx.x / AR_LANES;
}
/* The first AR_BESIDE rows of every group are in the seams, followed by its last. */
AR_FN int ar_seam_of(int row)
{
    const int r = row % AR_R, first = row / AR_R * 2 * AR_BESIDE;
    return (first + (r < AR_BESIDE ? r : r - AR_R + 2 * AR_BESIDE)) * AR_WIDTH;
}
AR_FN ar_place ar_place_at(ar_index x, ar_index y, ar_index nx, ar_index ny)
{
    ar_place s;
    const int first = ar_group() * AR_R, lane = ar_lane() * AR_E;
    s.x = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>(x, nx, ar_lane());
    s.y = ar_span_at<AR_GROUPS, AR_R, AR_BESIDE * AR_T, AR_WRAP_Y>(y, ny, ar_group());
    const bool kept = AR_PIECE < AR_E || (s.x.own >= s.x.from && s.x.own < s.x.to);
    s.rows = 0;
#pragma unroll
    for (int r = 0; r < AR_R; r++)
        s.rows |= (ar_u32)(kept && s.y.own + r >= s.y.from && s.y.own + r < s.y.to) << r;
    s.own = first * AR_WIDTH + lane;
    s.seam = ar_seam_of(first) + lane;
    const int end = s.y.last ? first + AR_R - 1 : AR_HEIGHT - 1;
#pragma unroll
    for (int k = 0; k < AR_BESIDE; k++) {
        const int up = first - 1 - k > 0 ? first - 1 - k : 0;
        const int down = first + AR_R + k < end ? first + AR_R + k : end;
        s.up[k] = up * AR_WIDTH + lane;
        s.down[k] = down * AR_WIDTH + lane;
        s.above[k] = ar_seam_of(up) + lane;
        s.below[k] = ar_seam_of(down) + lane;
    }
    return s;
}

/* A block's progress: round i. */
struct ar_march {
    ar_index i, begin, stop; /* stored planes begin at `begin`; rounds end before `stop` */
    ar_index next;           /* the plane to ask for next, */
    int into, into_brief;    /* and its slot */
    int slot[AR_LAG + AR_BACK + 1], brief[AR_LAG + 1]; /* of plane i − k */
    int parity;                                        /* of slot[0]'s phase */
    int read, write;                /* sides of the seams */
    int round;                      /* its number's last bit */
    ar_u32 asked, due;              /* see ar_pace */
};

template <typename T> struct ar_patch {
    ar_vec<T, AR_E> v[AR_R];
};
template <typename T> struct ar_plane {
    T v[AR_HEIGHT * AR_WIDTH];
};
template <typename T> struct ar_seams {
    T v[2 * AR_BESIDE * AR_GROUPS * AR_WIDTH];
};
template <typename T> struct ar_stage {
    T v[AR_GROUPS * AR_WIDTH];
};

/* --- planes on their way --- */

template <typename T>
AR_FN void ar_bring_patch(ar_plane<T> &to, const T *plane, ar_index stride, const ar_place &s)
{
#pragma unroll
    for (int r = 0; r < AR_R; r++) {
        const ar_index y = AR_WRAP_Y ? ar_wrapped(s.y.own + r, s.y.n)
                                     : ar_clamped(s.y.own + r, s.y.n);
        ar_bring_row(to.v + (ar_group() * AR_R + r) * AR_WIDTH, plane + y * stride, s.x);
    }
}

#if AR_MAPPED
AR_FN void ar_expect(ar_barriers &b, int slot, int bytes)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(
                     ar_spot_of(&b.full[slot])),
                 "r"(bytes)
                 : "memory");
}
/* `map`: what the copy engine knows of the array. */
template <typename T, typename M>
AR_FN void ar_fetch(ar_plane<T> &to, const M &map, const ar_place &s, ar_index n,
                    ar_barriers &b, int slot)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(ar_spot_of(&to)),
                 "l"(&map), "r"((int)s.x.begin), "r"((int)s.y.begin), "r"((int)n),
                 "r"(ar_spot_of(&b.full[slot]))
                 : "memory");
}
#endif

/* Keeps blocks that read each other's planes together, so that memory is read once: no block asks
 * for a plane before those of its part have on average asked for the one before. The count is read
 * a round early, so this costs nothing while they are together; a block that has waited in vain
 * stops doing so, as not all blocks need be running: it asks AR_PATIENCE times. */
#if AR_PACED && !defined(ARRAYD_FAKE_DEVICE) && defined(__CUDA_ARCH__)
AR_FN ar_u32 ar_count(const ar_u32 *count)
{
    ar_u32 n;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(count) : "memory");
    return n;
}
AR_FN void ar_pace(ar_u32 *count, ar_u32 blocks, ar_march &m)
{
    for (int n = 0; n < AR_PATIENCE && (ar_i32)(m.asked - m.due) < 0; n++)
        m.asked = ar_count(count);
    if ((ar_i32)(m.asked - m.due) < 0)
        m.due -= 1u << 30;
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
    m.due += blocks;
    m.asked = ar_count(count);
}
#else
AR_FN void ar_pace(ar_u32 *, ar_u32, ar_march &) {}
#endif

/* --- rows that are kept --- */

/* Takes a level's new row, in place of its oldest; `seams`: of this level, for the groups beside,
 * if it has any. */
template <int PHASE, int ROW, int RY, int K, typename T>
AR_FN void ar_keep(ar_patch<T> (&kept)[K], const ar_vec<T, AR_E> &fresh, ar_seams<T> *seams,
                   const ar_place &s)
{
    kept[PHASE % K].v[ROW] = fresh;
    if constexpr (RY > 0 && ROW < AR_BESIDE)
        if (seams)
            ar_set<T, AR_E>(ar_spot_of(seams->v + s.seam) + ROW * AR_WIDTH * (int)sizeof(T), fresh);
    if constexpr (RY > 0 && ROW >= AR_R - AR_BESIDE)
        if (seams)
            ar_set<T, AR_E>(ar_spot_of(seams->v + s.seam) +
                                (ROW - AR_R + 2 * AR_BESIDE) * AR_WIDTH * (int)sizeof(T),
                            fresh);
}

/* The oldest plane's place becomes the newest's. */
template <int K, typename T> AR_FN void ar_rotate(ar_patch<T> (&kept)[K])
{
    const ar_patch<T> oldest = kept[0];
#pragma unroll
    for (int k = 0; k + 1 < K; k++)
        kept[k] = kept[k + 1];
    kept[K - 1] = oldest;
}

template <typename T>
AR_FN ar_vec<T, AR_E> ar_take_row3(const ar_plane<T> &from, const ar_place &s, int row)
{
    return ar_get<T, AR_E>(ar_spot_of(from.v + s.own) + row * AR_WIDTH * (int)sizeof(T));
}

/* Stores whole vectors, or not, without a branch, across which the compiler would not reorder. */
template <typename T, int N> AR_FN void ar_store_if(bool kept, T *to, const ar_vec<T, N> &x)
{
#if defined(__CUDA_ARCH__) && !defined(ARRAYD_FAKE_DEVICE)
    if constexpr (sizeof(T) * N % 16 == 0) {
        ar_words<T, N> u;
        u.x = x;
#pragma unroll
        for (int k = 0; k < (int)(sizeof(T) * N / 4); k += 4)
            asm volatile("{ .reg .pred p;\nsetp.ne.s32 p, %5, 0;\n"
                         "@p st.global.v4.u32 [%0], {%1, %2, %3, %4}; }" ::"l"((ar_u32 *)to + k),
                         "r"(u.w[k]), "r"(u.w[k + 1]), "r"(u.w[k + 2]), "r"(u.w[k + 3]),
                         "r"((int)kept)
                         : "memory");
        return;
    }
#endif
    if (kept)
        ar_store<T, N>(to, x);
}

/* Stores a row; `stage` is for elements that are not copied at once: another than the last row's,
 * which lanes may still be reading. */
template <typename T>
AR_FN void ar_put_patch(T *plane, ar_index stride, ar_stage<T> *stage, const ar_vec<T, AR_E> &c,
                        const ar_place &s, int row, bool kept)
{
    if constexpr (AR_PIECE < AR_E) {
        T *own = stage->v + ar_group() * AR_WIDTH;
        ar_store<T, AR_E>(own + ar_lane() * AR_E, c);
        __syncwarp();
        if (kept)
            ar_put_row(plane + (s.y.own + row) * stride, own, s.x);
    } else {
        ar_store_if<T, AR_E>(kept, plane + s.y.own * stride + s.x.own + row * stride, c);
    }
}

#endif
