/* Accesses to data that is not needed again soon: the L2 cache evicts it first, and keeps the rest.
 * Device text only; included after common.cuh. */
#ifndef ARRAYD_STREAMED_CUH
#define ARRAYD_STREAMED_CUH

template <int BYTES> struct ar_lump {
    typedef ar_u8 type;
};
template <> struct ar_lump<2> {
    typedef ar_u16 type;
};
template <> struct ar_lump<4> {
    typedef ar_u32 type;
};
template <> struct ar_lump<8> {
    typedef uint2 type;
};
template <> struct ar_lump<16> {
    typedef uint4 type;
};

template <typename T, int N, bool LAST> AR_FN ar_vec<T, N> ar_load(const T *from)
{
    typedef typename ar_lump<ar_alignment(sizeof(T) * N)>::type lump;
    if (!LAST)
        return ar_load<T, N>(from);
    ar_vec<T, N> x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof x / sizeof(lump)); i++)
        ((lump *)&x)[i] = __ldcs((const lump *)from + i);
    return x;
}
template <typename T, int N> AR_FN void ar_leave(T *to, const ar_vec<T, N> &x)
{
    typedef typename ar_lump<ar_alignment(sizeof(T) * N)>::type lump;
#pragma unroll
    for (int i = 0; i < (int)(sizeof x / sizeof(lump)); i++)
        __stcs((lump *)to + i, ((const lump *)&x)[i]);
}

#endif
