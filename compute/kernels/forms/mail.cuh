/* Totals that blocks of one kernel pass on to later ones. A letter consists of words of 8 bytes, each
 * with 32 bits of the total and, below, a 1 where memory was cleared. A word is written and read
 * whole, and no order between words matters, so no fence is needed. T: a multiple of 8 bytes.
 * Device text only. */
#ifndef ARRAYD_MAIL_CUH
#define ARRAYD_MAIL_CUH

template <typename T> union ar_letter {
    static_assert(sizeof(T) % 8 == 0, "two words at once");
    T c;
    ar_u32 w[sizeof(T) / 4];
    __device__ ar_letter() {}
};
template <typename T> AR_FN void ar_post(ar_u64 *to, const T &c)
{
    ar_letter<T> l;
    l.c = c;
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 4; i++)
        ((volatile ar_u64 *)to)[i] = (ar_u64)l.w[i] << 32 | 1;
}
/* Reads two words at once; C++ would read volatile ones one by one. (__ldcv() is not volatile
 * enough: the compiler removes a loop around it.) The tests' fake device does not support PTX. */
AR_FN void ar_peek(const ar_u64 *from, ar_u64 &a, ar_u64 &b)
{
#if defined(ARRAYD_FAKE_DEVICE)
    fake_access(from, 16, FAKE_READS);
    a = *(const volatile ar_u64 *)from;
    b = *(const volatile ar_u64 *)(from + 1);
#else
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from));
#endif
}
template <typename T> AR_FN bool ar_look(const ar_u64 *from, T &c)
{
    ar_letter<T> l;
    ar_u64 all = 1, w[sizeof(T) / 4];
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 4; i += 2)
        ar_peek(from + i, w[i], w[i + 1]);
#pragma unroll
    for (int i = 0; i < (int)sizeof(T) / 4; i++) {
        l.w[i] = (ar_u32)(w[i] >> 32);
        all &= w[i];
    }
    c = l.c;
    return all != 0;
}
template <typename T> AR_FN T ar_await(const ar_u64 *from)
{
    T c;
    while (!ar_look(from, c)) {
    }
    return c;
}

#endif
