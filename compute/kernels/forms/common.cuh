/* Shared by the kernels of all forms: vectors of 16 bytes, division by a number known at launch,
 * boundary maps, exchange between the lanes of a warp.
 *
 * Device text only (NVRTC, C++17). Before including this, emit.c writes scalar.h, ar_index (int, or
 * long if 32 bits are too few) and the AR_… constants of the form. */
#ifndef ARRAYD_COMMON_CUH
#define ARRAYD_COMMON_CUH

AR_FN constexpr int ar_alignment(int bytes)
{
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
}

/* N neighbours; moved by accesses of up to 16 bytes. */
template <typename T, int N> struct alignas(ar_alignment(sizeof(T) * N)) ar_vec {
    T v[N];
};

template <typename T, int N> AR_FN ar_vec<T, N> ar_load(const T *from)
{
    return *(const ar_vec<T, N> *)from;
}
template <typename T, int N> AR_FN void ar_store(T *to, const ar_vec<T, N> &x)
{
    *(ar_vec<T, N> *)to = x;
}

/* n / d for 0 ≤ n < 2^31 as a product (Granlund & Montgomery 1994); ceil(2^(31+l)/d) and l − 1 with
 * l = ceil(log2 d) come from the host, d = 1 as multiplier 0. Wider indices divide. */
struct ar_div {
    ar_u32 multiplier, shift;
    ar_i64 divisor;
};
AR_FN ar_index ar_divide(ar_index n, const ar_div &d)
{
    if (sizeof(ar_index) == 8)
        return (ar_index)(n / d.divisor);
    return d.multiplier ? (ar_index)(__umulhi((ar_u32)n, d.multiplier) >> d.shift) : n;
}

/* a / b for many a and one b, whose ar_inverse(b) is r: two corrections by what is left make a
 * quotient that is a unit beside the nearest at most, and then that (Markstein 1990), as long as r
 * is correctly rounded and nothing is lost below the range of float32. */
AR_FN ar_f32 ar_inverse(ar_f32 b)
{
    const ar_f32 size = fabsf(b);
    return size > 0x1p-40f && size < 0x1p40f ? 1 / b : (ar_f32)AR_NAN;
}
/* odd: set if something may be lost, and a / b is to be taken instead. */
AR_FN ar_f32 ar_over(ar_f32 a, ar_f32 b, ar_f32 r, bool &odd)
{
    const ar_f32 q = a * r, size = fabsf(q);
    odd |= !(size > 0x1p-60f && size < 0x1p60f); /* also NaN */
    const ar_f32 better = fmaf(fmaf(-q, b, a), r, q);
    return fmaf(fmaf(-better, b, a), r, better);
}

/* Index i + offset mapped into 0 ≤ . < n; n > 0. Ghosts are not mapped. */
enum { AR_CLAMP, AR_WRAP, AR_REFLECT, AR_SYMMETRIC, AR_GHOST };
AR_FN ar_index ar_modulo(ar_index i, ar_index n)
{
    ar_index r = i % n;
    return r < 0 ? r + n : r;
}
template <int MODE> AR_FN ar_index ar_bounded(ar_index i, ar_index n)
{
    if (MODE == AR_GHOST)
        return i;
    if (MODE == AR_WRAP) {
        if (i >= 0 && i < n)
            return i;
        return ar_modulo(i, n);
    }
    if (MODE == AR_REFLECT || MODE == AR_SYMMETRIC) {
        if (i >= 0 && i < n)
            return i;
        ar_index period = MODE == AR_REFLECT ? (n == 1 ? 1 : 2 * (n - 1)) : 2 * n;
        i = ar_modulo(i, period);
        return i < n ? i : MODE == AR_REFLECT ? period - i : period - 1 - i;
    }
    i = i < n - 1 ? i : n - 1;
    return i > 0 ? i : 0;
}

/* The number of a gathered element, clamped so that every access is inside. */
AR_FN ar_i64 ar_inside(ar_i64 i, ar_i64 last)
{
    i = i < last ? i : last;
    return i > 0 ? i : 0;
}
/* The same for a 32-bit number, in a row whose last element 32 bits can reach. */
AR_FN ar_i32 ar_inside_32(ar_i32 i, ar_i64 last)
{
    i = i < (ar_i32)last ? i : (ar_i32)last;
    return i > 0 ? i : 0;
}

/* Another lane's value. Whole words are exchanged. */
template <typename T> AR_FN T ar_from_lane(T x, int lane)
{
    union words {
        T x;
        ar_u32 w[(sizeof(T) + 3) / 4];
        __device__ words() {}
    } u;
    u.w[0] = 0;
    u.x = x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) + 3) / 4; i++)
        u.w[i] = __shfl_sync(0xffffffffu, u.w[i], lane);
    return u.x;
}

/* How a kernel gets its parameters p: by value, or from memory if they are too large (AR_INDIRECT).
 */
#ifdef AR_INDIRECT
struct ar_where {
    const struct ar_params *at;
};
#define AR_TAKES const __grid_constant__ struct ar_where where
#define AR_GIVEN const ar_params &p = *where.at;
#else
#define AR_TAKES const __grid_constant__ struct ar_params p
#define AR_GIVEN
#endif

/* The block's number along an axis of the grid. Where several GPUs share a kernel, a launch is of those
 * from p.from on along AR_ALONG, which goes along the iteration space's slowest axis. (Elsewhere
 * AR_ALONG is no axis: the addition alone made stencils in three dimensions 8 % slower.) */
#define AR_BLOCK_AT(axis, n) ((ar_index)(n) + (AR_ALONG == (axis) ? (ar_index)p.from : 0))
#define AR_BLOCK_X           AR_BLOCK_AT(0, blockIdx.x)
#define AR_BLOCK_Y           AR_BLOCK_AT(1, blockIdx.y)
#define AR_BLOCK_Z           AR_BLOCK_AT(2, blockIdx.z)

/* A point of the iteration space: indices along the collapsed axes, the fastest last. */
struct ar_at {
    ar_index i[AR_RANK];
};

#endif
