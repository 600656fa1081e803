/* A machine of the interpreter: what a register is, and a step.
 *
 * A register holds AR_E neighbouring points' values for each thread, in shared memory, a thread's
 * registers AR_BLOCK apart. A value lies in the low bytes of a word of AR_WORD bytes.
 *
 * Device text only. Before including this, machine.c writes what common.cuh asks for, AR_WORD,
 * AR_E, AR_BLOCK and AR_STEPS. */
#ifndef ARRAYD_MACHINE_CUH
#define ARRAYD_MACHINE_CUH

struct alignas(AR_WORD) ar_word {
    ar_u32 w[AR_WORD / 4];
};
struct alignas(16) ar_register {
    ar_word v[AR_E];
};

struct ar_step {
    ar_u16 code;
    ar_u8 to, a, b, c;
    ar_u16 unused;
    ar_u64 x;
};
struct ar_params {
    ar_i64 points, chunks;
    ar_i32 n, unused;
    ar_step steps[AR_STEPS];
};

template <typename T> union ar_held {
    ar_word w;
    T x;
    __device__ ar_held() {}
};
template <typename T> AR_FN T ar_get(const ar_word &w)
{
    ar_held<T> u;
    u.w = w;
    return u.x;
}
template <typename T> AR_FN ar_word ar_put(T x)
{
    ar_held<T> u;
#pragma unroll
    for (int i = 0; i < AR_WORD / 4; i++)
        u.w.w[i] = 0;
    u.x = x;
    return u.w;
}

#define AR_R(which) r[(int)q.which * AR_BLOCK]

/* An operation on every element: at once, or, where its code is long, one by one. */
#define AR_CHEAP1(T, R, f)                                                                         \
    {                                                                                              \
        ar_register x = AR_R(a);                                                                   \
        _Pragma("unroll") for (int e = 0; e < AR_E; e++) x.v[e] = ar_put<R>(f(ar_get<T>(x.v[e]))); \
        AR_R(to) = x;                                                                              \
        return;                                                                                    \
    }
#define AR_CHEAP2(T, R, f)                                                                         \
    {                                                                                              \
        ar_register x = AR_R(a);                                                                   \
        const ar_register y = AR_R(b);                                                             \
        _Pragma("unroll") for (int e = 0; e < AR_E; e++) x.v[e] =                                  \
            ar_put<R>(f(ar_get<T>(x.v[e]), ar_get<T>(y.v[e])));                                    \
        AR_R(to) = x;                                                                              \
        return;                                                                                    \
    }
#define AR_DEAR1(T, R, f)                                                                          \
    {                                                                                              \
        _Pragma("unroll 1") for (int e = 0; e < AR_E; e++) AR_R(to).v[e] =                         \
            ar_put<R>(f(ar_get<T>(AR_R(a).v[e])));                                                 \
        return;                                                                                    \
    }
#define AR_DEAR2(T, R, f)                                                                          \
    {                                                                                              \
        _Pragma("unroll 1") for (int e = 0; e < AR_E; e++) AR_R(to).v[e] =                         \
            ar_put<R>(f(ar_get<T>(AR_R(a).v[e]), ar_get<T>(AR_R(b).v[e])));                        \
        return;                                                                                    \
    }

#endif
