/* Shared by the forms that do several steps in one pass: spans of a row, copying rows from memory
 * to registers and back, and the neighbours of a lane's elements. See steps2d.cuh.
 *
 * AR_T steps; AR_E elements per lane; AR_PIECE of them are copied at once; AR_HALO columns on
 * either side belong to another span; AR_WRAP_X: the fastest axis wraps. */
#ifndef ARRAYD_STEPS_CUH
#define ARRAYD_STEPS_CUH

#define AR_COPY_LINES (AR_RANK == 2) /* measured: 3 % of two fields' time */
#include "compute/kernels/forms/copy.cuh"

#define AR_WIDTH  (AR_LANES * AR_E)
#define AR_PIECES (AR_E / AR_PIECE) /* per lane */

/* --- spans --- */

/* The part of an axis that is computed together: LANES times E elements, E per lane. */
struct ar_span {
    ar_index n;        /* the axis' extent */
    ar_index begin;    /* the first element: outside the domain if the axis wraps */
    ar_index from, to; /* the elements that are stored */
    ar_index own;      /* the lane's first element */
    bool first, last;  /* the lane has the domain's first element, or its last; false if the axis wraps */
};

/* If nothing wraps, the first span begins at the domain's edge and the last one ends at it, if the
 * domain is wide enough; otherwise the domain ends at the end of a lane. */
template <int LANES, int E, int HALO, bool WRAP>
AR_FN ar_span ar_span_at(ar_index number, ar_index n, int lane)
{
    const ar_index width = LANES * E, most = width - 2 * HALO, x = number * most;
    ar_span s;
    s.n = n;
    if (WRAP) {
        s.begin = x - HALO;
        s.from = x;
        s.to = x + most < n ? x + most : n;
        s.first = s.last = false;
    } else {
        const bool last = x + width >= n;
        s.begin = !last ? x : n > width ? n - width : 0;
        s.from = number == 0 ? 0 : x + HALO;
        s.to = last ? n : x + width - HALO;
    }
    s.own = s.begin + lane * E;
    if (!WRAP) {
        s.first = s.own == 0;
        s.last = s.own + E == n;
    }
    return s;
}

/* A position in a span, wrapped or not. AR_ONCE: no span is wider than its axis, so a wrapping
 * position wraps at most once, and any other is inside. */
AR_FN ar_index ar_wrapped(ar_index i, ar_index n)
{
    if (!AR_ONCE)
        return ar_bounded<AR_WRAP>(i, n);
    i = i < 0 ? i + n : i;
    return i < n ? i : i - n;
}

AR_FN ar_index ar_clamped(ar_index i, ar_index n)
{
    return AR_ONCE ? i : ar_bounded<AR_CLAMP>(i, n);
}

/* The lane's element e, inside the domain. */
template <int E, bool WRAP> AR_FN ar_index ar_inner(const ar_span &s, int e)
{
    if (WRAP)
        return ar_wrapped(s.own + e, s.n);
    return ar_clamped(s.own, s.n - E + 1) + e;
}

/* --- rows --- */

AR_FN int ar_lane(void)
{
    return (int)threadIdx.x % AR_LANES;
}

/* ar_store() with whole vectors, which the compiler would sometimes split: that took a quarter more
 * time. */
template <typename T, int N> AR_FN void ar_store_whole(T *to, const ar_vec<T, N> &x)
{
#if defined(ARRAYD_FAKE_DEVICE)
    ar_store<T, N>(to, x);
#else
    union words {
        ar_vec<T, N> x;
        ar_u32 w[sizeof(T) * N / 4 + 4];
        __device__ words() {}
    } u;
    u.x = x;
    if (sizeof(T) * N % 16 != 0)
        ar_store<T, N>(to, x);
#pragma unroll
    for (int k = 0; sizeof(T) * N % 16 == 0 && k < (int)(sizeof(T) * N / 4); k += 4)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"((ar_u32 *)to + k), "r"(u.w[k]),
                     "r"(u.w[k + 1]), "r"(u.w[k + 2]), "r"(u.w[k + 3])
                     : "memory");
#endif
}

/* A lane's elements, and one on either side. */
template <typename T> struct ar_row {
    T v[AR_E + 2];
};

/* Piece k of a span's row: adjacent lanes copy adjacent pieces. */
AR_FN int ar_piece(int k)
{
    return (k * AR_LANES + ar_lane()) * AR_PIECE;
}
template <typename T> AR_FN void ar_bring_row(T *slot, const T *row, const ar_span &s)
{
#pragma unroll
    for (int k = 0; k < AR_PIECES; k++) {
        const ar_index x = s.begin + ar_piece(k);
        const ar_index at =
            AR_WRAP_X ? ar_wrapped(x, s.n) : ar_clamped(x, s.n - AR_PIECE + 1);
        ar_copy<(int)sizeof(T) * AR_PIECE>(slot + ar_piece(k), row + at);
    }
}
template <typename T> AR_FN void ar_take_row(ar_row<T> &r, const T *slot)
{
    const ar_vec<T, AR_E> v = ar_load<T, AR_E>(slot + ar_lane() * AR_E);
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        r.v[e + 1] = v.v[e];
}

/* Writes the lane's elements to the buffer that ar_put_row() reads. */
template <typename T> AR_FN void ar_stage_row(T *stage, const ar_row<T> &r)
{
    ar_vec<T, AR_E> v;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        v.v[e] = r.v[e + 1];
    ar_store<T, AR_E>(stage + ar_lane() * AR_E, v);
}
template <typename T> AR_FN void ar_put_row(T *row, const T *stage, const ar_span &s)
{
#pragma unroll
    for (int k = 0; k < AR_PIECES; k++) {
        const ar_index x = s.begin + ar_piece(k);
        if (x >= s.from && x < s.to)
            ar_store_whole<T, AR_PIECE>(row + x, ar_load<T, AR_PIECE>(stage + ar_piece(k)));
    }
}

/* --- rows one after another --- */

/* A span, and where a lane's pieces of its rows are: the first one's column where rows come from,
 * and where they go to; how far from there the others come from. Where none wraps, distances are
 * known when the kernel is compiled. */
struct ar_window : ar_span {
    ar_index in, out;
    ar_index apart[AR_PIECES];
    bool kept[AR_PIECES]; /* is stored; those inside of every span are */
};
AR_FN ar_window ar_window_at(ar_index number, ar_index n)
{
    const ar_span s = ar_span_at<AR_LANES, AR_E, AR_HALO, AR_WRAP_X>(number, n, ar_lane());
    ar_window w;
    (ar_span &)w = s;
    w.out = s.begin + ar_piece(0);
#pragma unroll
    for (int k = 0; k < AR_PIECES; k++) {
        const ar_index x = s.begin + ar_piece(k);
        const ar_index at = AR_WRAP_X ? ar_wrapped(x, n) : ar_clamped(x, n - AR_PIECE + 1);
        if (k == 0)
            w.in = at;
        w.apart[k] = !AR_WRAP_X && AR_ONCE ? k * AR_LANES * AR_PIECE : at - w.in;
        w.kept[k] = (!AR_WRAP_X && AR_ONCE && k * AR_LANES * AR_PIECE >= AR_HALO &&
                     (k + 1) * AR_LANES * AR_PIECE <= AR_WIDTH - AR_HALO) ||
                    (x >= s.from && x < s.to);
    }
    return w;
}

/* Of a field: the lane's first piece in the next row to come, and in the next to go. */
template <typename T> struct ar_path {
    const T *from;
    T *to;
};

template <typename T> AR_FN void ar_bring_pieces(T *slot, const T *from, const ar_window &s)
{
#pragma unroll
    for (int k = 0; k < AR_PIECES; k++)
        ar_copy<(int)sizeof(T) * AR_PIECE>(slot + ar_piece(k), from + s.apart[k]);
}
template <typename T>
AR_FN void ar_put_pieces(T *to, const T *stage, const ar_window &s, bool whole)
{
#pragma unroll
    for (int k = 0; k < AR_PIECES; k++) {
        const ar_vec<T, AR_PIECE> v = ar_load<T, AR_PIECE>(stage + ar_piece(k));
        if (whole && s.kept[k])
            ar_store_whole<T, AR_PIECE>(to + k * AR_LANES * AR_PIECE, v);
    }
}

/* Fills the neighbours of the lane's elements. MODE is CLAMP or REFLECT at an edge; at a span's
 * ends they are arbitrary, because those elements belong to another span. */
template <int MODE, typename T> AR_FN void ar_row_sides(ar_row<T> &r, const ar_span &s)
{
    const int lane = (int)(threadIdx.x & 31);
    const T left = ar_from_lane(r.v[AR_E], (lane - 1) & 31);
    const T right = ar_from_lane(r.v[1], (lane + 1) & 31);
    if (AR_WRAP_X) {
        r.v[0] = left;
        r.v[AR_E + 1] = right;
    } else if (MODE == AR_REFLECT) {
        r.v[0] = s.first ? AR_E > 1 ? r.v[AR_E > 1 ? 2 : 0] : right : left;
        r.v[AR_E + 1] = s.last ? AR_E > 1 ? r.v[AR_E - 1] : left : right;
    } else {
        r.v[0] = s.first ? r.v[1] : left;
        r.v[AR_E + 1] = s.last ? r.v[AR_E] : right;
    }
}

/* A row outside the domain, at its first row or last row b, equals one inside. */
template <int MODE, typename T>
AR_FN void ar_row_bend(bool top, bool bottom, ar_row<T> &a, const ar_row<T> &b, ar_row<T> &c)
{
#pragma unroll
    for (int e = 0; e < AR_E + 2; e++) {
        const T above = a.v[e], below = c.v[e];
        if (top)
            a.v[e] = MODE == AR_REFLECT ? below : b.v[e];
        if (bottom)
            c.v[e] = MODE == AR_REFLECT ? above : b.v[e];
    }
}

#endif
