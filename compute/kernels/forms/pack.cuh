/* Gathers the elements of a strided view in C order: the device's half of a download (pack.c has
 * the kernels' names). A thread fills 16 bytes, so that a warp writes contiguous memory whatever
 * the element type: the destination is host memory, and small writes are slow across the bus.
 *
 * Read by NVRTC, and by the host for the parameters. */
#ifndef ARRAYD_PACK_CUH
#define ARRAYD_PACK_CUH

#define AR_PACK_RANK 32
/* Element k of the result (k < count) is k steps, in C order, after index start[] of the shape;
 * `from` is where that first element lies, strides are in elements. */
struct ar_params {
    void *to; /* 16-byte aligned */
    const void *from;
    long shape[AR_PACK_RANK], strides[AR_PACK_RANK], start[AR_PACK_RANK];
    unsigned count; /* ≤ 2^22 */
    int rank;       /* ≥ 1 */
    int narrow;     /* every extent < 2^31 */
};

#if defined(__CUDACC_RTC__)

struct __align__(16) ar_16bytes
{
    unsigned long low, high;
};

/* The position of element k, counted from p.from; *ret_left elements follow at the last axis'
 * stride. Index can hold any extent, and any extent plus `count`. Not inlined: a thread usually
 * calls it once, and sixteen copies of it took NVRTC half a second. */
template <typename Index>
static __device__ __noinline__ long ar_pack_find(const struct ar_params &p, unsigned k,
                                                 unsigned *ret_left)
{
    Index carry = k;
    long at = 0;
    for (int a = p.rank - 1; a >= 0; a--) {
        if (a < p.rank - 1 && carry == 0)
            break; /* the other digits are the first element's */
        Index extent = (Index)p.shape[a], v = (Index)p.start[a] + carry;
        carry = v / extent;
        Index digit = v - carry * extent;
        at += ((long)digit - p.start[a]) * p.strides[a];
        if (a == p.rank - 1) {
            Index left = extent - digit;
            *ret_left = left < 16 ? (unsigned)left : 16u;
        }
    }
    return at;
}

template <typename T, typename Index>
static __device__ inline void ar_pack_by(const struct ar_params &p)
{
    const unsigned many = 16 / sizeof(T);
    unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * many;
    if (first >= p.count)
        return;
    const T *from = (const T *)p.from;
    const long stride = p.strides[p.rank - 1];
    struct __align__(16) group
    {
        T v[many];
    }
    out;
    unsigned n = p.count - first < many ? p.count - first : many, left = 0;
    long at = 0;
    for (unsigned i = 0; i < many; i++) {
        if (i >= n)
            break;
        if (left == 0)
            at = ar_pack_find<Index>(p, first + i, &left);
        out.v[i] = from[at];
        at += stride;
        left--;
    }
    T *to = (T *)p.to + first;
    if (n == many)
        *(struct group *)to = out;
    else
        for (unsigned i = 0; i < n; i++)
            to[i] = out.v[i];
}

template <typename T> static __device__ inline void ar_pack(const struct ar_params &p)
{
    if (p.narrow)
        ar_pack_by<T, unsigned>(p);
    else
        ar_pack_by<T, unsigned long>(p);
}

#endif

#endif
