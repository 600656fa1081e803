/* Copies from memory into shared memory that pass no register and need no waiting until their data
 * are read, of 4, 8 or 16 bytes; the thread that sent one may read it once it has arrived. Plain
 * copies below sm_80. */
#ifndef ARRAYD_COPY_CUH
#define ARRAYD_COPY_CUH

/* Whether the cache brings the whole line of 128 bytes. */
#ifndef AR_COPY_LINES
#define AR_COPY_LINES false
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
template <int BYTES> AR_FN void ar_copy(void *to, const void *from)
{
    *(ar_vec<ar_u8, BYTES> *)to = *(const ar_vec<ar_u8, BYTES> *)from;
}
AR_FN void ar_sent(void) {}
template <int LEFT> AR_FN void ar_arrived(void) {}
#elif defined(ARRAYD_FAKE_DEVICE)
template <int BYTES> AR_FN void ar_copy(void *to, const void *from)
{
    if constexpr (BYTES == 16 || BYTES == 8 || BYTES == 4)
        fake_copy<BYTES>(to, from);
    else
        *(ar_vec<ar_u8, BYTES> *)to = *(const ar_vec<ar_u8, BYTES> *)from;
}
AR_FN void ar_sent(void)
{
    fake_copies_sent();
}
template <int LEFT> AR_FN void ar_arrived(void)
{
    fake_copies_arrived(LEFT);
}
#else
template <int BYTES> AR_FN void ar_copy(void *to, const void *from)
{
    if (BYTES == 16 && AR_COPY_LINES)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                         (ar_u32)__cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
    else if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         (ar_u32)__cvta_generic_to_shared(to)),
                     "l"(from)
                     : "memory");
    else if (BYTES == 8 || BYTES == 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(
                         (ar_u32)__cvta_generic_to_shared(to)),
                     "l"(from), "n"(BYTES == 8 ? 8 : 4)
                     : "memory");
    else
        *(ar_vec<ar_u8, BYTES> *)to = *(const ar_vec<ar_u8, BYTES> *)from;
}
/* Ends a batch of copies; waits until all but the LEFT last batches have arrived. */
AR_FN void ar_sent(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> AR_FN void ar_arrived(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

#endif
