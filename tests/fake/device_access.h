/* Every access of a kernel to memory is told to the driver, which checks it (access.c); part of
 * device.h.
 *
 * The calls are the compiler's: those that it makes for -fsanitize=thread, one for each load and
 * store but those of locals whose address nobody has (device_calls.c). Atomics are kept from the
 * compiler's instruments, which would replace them, and tell of themselves. */
#ifndef ARRAYD_FAKE_DEVICE_ACCESS_H
#define ARRAYD_FAKE_DEVICE_ACCESS_H

/* What an instruction of n bytes asks for that the host's code has no such instruction for. */
FAKE_FN FAKE_UNSEEN void fake_access(const void *p, size_t n, int how)
{
    if ((size_t)p % n)
        fake_host_->trap(716, "misaligned address", __FILE__, __LINE__);
    fake_host_->access(p, n, how, __builtin_return_address(0));
}

/* What sm_80 has instructions for; kernels have these in place of their inline PTX. */

template <int BYTES> FAKE_UNSEEN static inline void fake_copy(void *to, const void *from)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
    if (((size_t)to | (size_t)from) % BYTES)
        fake_host_->trap(716, "misaligned address", __FILE__, __LINE__);
    fake_host_->copy(to, from, BYTES, __builtin_return_address(0));
}
FAKE_FN FAKE_UNSEEN void fake_copies_sent()
{
    fake_host_->copies_sent();
}
FAKE_FN FAKE_UNSEEN void fake_copies_arrived(unsigned left)
{
    fake_host_->copies_arrived(left);
}
FAKE_FN FAKE_UNSEEN __attribute__((noinline)) void
fake_phase_op(fake_phase what, void *state, unsigned number, int line = __builtin_LINE())
{
    asm volatile(".weak fake_uses_threads\n\t.set fake_uses_threads, 1");
    if ((size_t)state % 8)
        fake_host_->trap(716, "misaligned address", __FILE__, __LINE__);
    fake_host_->phase(what, state, number, line);
}

/* Atomics: two launches may run at once, so they are. */

template <class T, class F> FAKE_UNSEEN static inline T fake_atomic(T *p, F next)
{
    T old, want;
    fake_access(p, sizeof(T), FAKE_READS | FAKE_WRITES);
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    do
        want = next(old);
    while (!__atomic_compare_exchange(p, &old, &want, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> struct fake_same {
    typedef T type;
};
#define FAKE_ATOMIC(name, expression)                                                              \
    template <class T> static inline T name(T *p, typename fake_same<T>::type b)                   \
    {                                                                                              \
        return fake_atomic(p, [b](T a) -> T { return expression; });                               \
    }                                                                                              \
    template <class T> static inline T name##_block(T *p, typename fake_same<T>::type b)           \
    {                                                                                              \
        return name(p, b);                                                                         \
    }                                                                                              \
    template <class T> static inline T name##_system(T *p, typename fake_same<T>::type b)          \
    {                                                                                              \
        return name(p, b);                                                                         \
    }
FAKE_ATOMIC(atomicAdd, a + b)
FAKE_ATOMIC(atomicSub, a - b)
FAKE_ATOMIC(atomicExch, b)
FAKE_ATOMIC(atomicMin, a < b ? a : b)
FAKE_ATOMIC(atomicMax, a > b ? a : b)
FAKE_ATOMIC(atomicAnd, a &b)
FAKE_ATOMIC(atomicOr, a | b)
FAKE_ATOMIC(atomicXor, a ^ b)
FAKE_ATOMIC(atomicInc, a >= b ? 0 : a + 1)
FAKE_ATOMIC(atomicDec, a == 0 || a > b ? b : a - 1)
template <class T>
FAKE_UNSEEN static inline T atomicCAS(T *p, typename fake_same<T>::type expected,
                                      typename fake_same<T>::type want)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "2, 4 or 8 bytes");
    fake_access(p, sizeof(T), FAKE_READS | FAKE_WRITES);
    __atomic_compare_exchange(p, &expected, &want, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
FAKE_FN FAKE_UNSEEN void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
FAKE_FN void __threadfence_block()
{
    __threadfence();
}
FAKE_FN void __threadfence_system()
{
    __threadfence();
}

#endif
