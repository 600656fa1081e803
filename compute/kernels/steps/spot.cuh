/* Places in shared memory, as instructions name them, and accesses there; for patch.cuh. */
#ifndef ARRAYD_SPOT_CUH
#define ARRAYD_SPOT_CUH

/* On the device an address of 32 bits, to which an instruction adds a constant by itself. */
#if defined(ARRAYD_FAKE_DEVICE) || !defined(__CUDA_ARCH__)
typedef ar_u8 *ar_spot;
AR_FN ar_spot ar_spot_of(const void *p)
{
    return (ar_u8 *)p;
}
template <typename T, int N> AR_FN ar_vec<T, N> ar_get(ar_spot at)
{
    return ar_load<T, N>((const T *)at);
}
template <typename T, int N> AR_FN void ar_set(ar_spot at, const ar_vec<T, N> &x)
{
    ar_store<T, N>((T *)at, x);
}
#else
typedef ar_u32 ar_spot;
AR_FN ar_spot ar_spot_of(const void *p)
{
    return (ar_u32)__cvta_generic_to_shared(p);
}
template <typename T, int N> union ar_words {
    ar_vec<T, N> x;
    ar_u32 w[(sizeof(T) * N + 15) / 16 * 4];
    __device__ ar_words() {}
};
template <typename T, int N> AR_FN ar_vec<T, N> ar_get(ar_spot at)
{
    ar_words<T, N> u;
    constexpr int bytes = (int)sizeof(T) * N;
    if constexpr (bytes % 16 == 0) {
#pragma unroll
        for (int k = 0; k < bytes / 4; k += 4)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(u.w[k]), "=r"(u.w[k + 1]), "=r"(u.w[k + 2]), "=r"(u.w[k + 3])
                         : "r"(at + 4 * k));
    } else if constexpr (bytes == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(u.w[0]), "=r"(u.w[1]) : "r"(at));
    } else if constexpr (bytes == 4) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(u.w[0]) : "r"(at));
    } else if constexpr (bytes == 2) {
        asm volatile("{ .reg .u16 t; ld.shared.u16 t, [%1]; cvt.u32.u16 %0, t; }"
                     : "=r"(u.w[0])
                     : "r"(at));
    } else {
        static_assert(bytes == 1, "a power of two");
        asm volatile("ld.shared.u8 %0, [%1];" : "=r"(u.w[0]) : "r"(at));
    }
    return u.x;
}
template <typename T, int N> AR_FN void ar_set(ar_spot at, const ar_vec<T, N> &x)
{
    ar_words<T, N> u;
    constexpr int bytes = (int)sizeof(T) * N;
    u.w[0] = 0;
    u.x = x;
    if constexpr (bytes % 16 == 0) {
#pragma unroll
        for (int k = 0; k < bytes / 4; k += 4)
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at + 4 * k), "r"(u.w[k]),
                         "r"(u.w[k + 1]), "r"(u.w[k + 2]), "r"(u.w[k + 3]));
    } else if constexpr (bytes == 8) {
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(u.w[0]), "r"(u.w[1]));
    } else if constexpr (bytes == 4) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(u.w[0]));
    } else if constexpr (bytes == 2) {
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((ar_u16)u.w[0]));
    } else {
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(u.w[0]));
    }
}
#endif

#endif
