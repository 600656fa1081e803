/* The interpreter's kernel: every thread takes chunks of AR_E neighbouring points in turn, and does
 * all of the program's steps for one after the other. All threads of a warp do the same step at the
 * same time.
 *
 * machine.c provides the numbers of the steps, AR_STEP_…, and ar_operate, which does operations and
 * casts. */
#ifndef ARRAYD_INTERPRETER_CUH
#define ARRAYD_INTERPRETER_CUH

struct ar_chunk {
    ar_i64 first; /* point */
    int n;        /* how many of them there are */
};

/* An operation on indices. */
#define AR_INDICES(value)                                                                          \
    {                                                                                              \
        ar_register y;                                                                             \
        _Pragma("unroll") for (int e = 0; e < AR_E; e++)                                           \
        {                                                                                          \
            const ar_index i = ar_get<ar_index>(AR_R(a).v[e]);                                     \
            y.v[e] = ar_put(value);                                                                \
        }                                                                                          \
        AR_R(to) = y;                                                                              \
        return;                                                                                    \
    }

template <typename T> AR_FN void ar_run(const ar_step &q, const ar_chunk &c, ar_register *r)
{
    const T *from = (const T *)q.x + c.first;
    ar_register y;
    if (c.n == AR_E && (ar_u64)from % ar_alignment(sizeof(T) * AR_E) == 0) {
        const ar_vec<T, AR_E> x = ar_load<T, AR_E>(from);
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            y.v[e] = ar_put(x.v[e]);
    } else {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            y.v[e] = ar_put(from[e < c.n ? e : c.n - 1]);
    }
    AR_R(to) = y;
}

template <typename T> AR_FN void ar_store_run(const ar_step &q, const ar_chunk &c, ar_register *r)
{
    T *to = (T *)q.x + c.first;
    const ar_register x = AR_R(a);
    if (c.n == AR_E && (ar_u64)to % ar_alignment(sizeof(T) * AR_E) == 0) {
        ar_vec<T, AR_E> y;
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            y.v[e] = ar_get<T>(x.v[e]);
        ar_store<T, AR_E>(to, y);
    } else {
#pragma unroll
        for (int e = 0; e < AR_E; e++)
            if (e < c.n)
                to[e] = ar_get<T>(x.v[e]);
    }
}

template <typename T> AR_FN void ar_at_offset(const ar_step &q, ar_register *r)
{
    ar_register y;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        y.v[e] = ar_put(((const T *)q.x)[ar_get<ar_index>(AR_R(a).v[e])]);
    AR_R(to) = y;
}

template <typename T> AR_FN void ar_put_offset(const ar_step &q, const ar_chunk &c, ar_register *r)
{
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        if (e < c.n)
            ((T *)q.x)[ar_get<ar_index>(AR_R(b).v[e])] = ar_get<T>(AR_R(a).v[e]);
}

AR_FN void ar_number(const ar_step &q, const ar_chunk &c, ar_register *r)
{
    ar_register y;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        y.v[e] = ar_put((ar_index)(c.first + (e < c.n ? e : c.n - 1)));
    AR_R(to) = y;
}

AR_FN void ar_select(const ar_step &q, ar_register *r)
{
    ar_register y;
    const ar_register which = AR_R(a), yes = AR_R(b), no = AR_R(c);
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        y.v[e] = ar_get<ar_bool>(which.v[e]) ? yes.v[e] : no.v[e];
    AR_R(to) = y;
}

AR_FN void ar_fill(const ar_step &q, const ar_word &w, ar_register *r)
{
    ar_register y;
#pragma unroll
    for (int e = 0; e < AR_E; e++)
        y.v[e] = w;
    AR_R(to) = y;
}

#if AR_WORD >= 8 /* int64 numbers are there */
#define AR_RANDOM(value)                                                                           \
    {                                                                                              \
        const ar_u64 *k = (const ar_u64 *)at;                                                      \
        _Pragma("unroll 1") for (int e = 0; e < AR_E; e++)                                         \
        {                                                                                          \
            const struct ar_philox x = ar_philox(k[0], ar_get<ar_i64>(AR_R(a).v[e]));              \
            AR_R(to).v[e] = ar_put(value);                                                         \
        }                                                                                          \
        return;                                                                                    \
    }
#endif

AR_FN void ar_do(const ar_params &p, const ar_step &q, const ar_chunk &c, ar_register *r)
{
    const unsigned char *at = (const unsigned char *)&p + q.x; /* of a step with constants */
    (void)at;
    switch (q.code) {
    case AR_STEP_POINT:
        ar_number(q, c, r);
        return;
    case AR_STEP_DIVIDE: {
        const ar_div d = *(const ar_div *)at;
        AR_INDICES(ar_divide(i, d))
    }
    case AR_STEP_LESS:
        AR_INDICES(i - ar_get<ar_index>(AR_R(b).v[e]) * (ar_index)q.x)
    case AR_STEP_MORE:
        AR_INDICES(i + ar_get<ar_index>(AR_R(b).v[e]) * (ar_index)q.x)
    case AR_STEP_TIMES:
        AR_INDICES(i * (ar_index)q.x)
    case AR_STEP_PLUS:
        AR_INDICES(i + (ar_index)q.x)
    case AR_STEP_CLAMP:
        AR_INDICES(ar_bounded<AR_CLAMP>(i, (ar_index)q.x))
    case AR_STEP_WRAP:
        AR_INDICES(ar_bounded<AR_WRAP>(i, (ar_index)q.x))
    case AR_STEP_REFLECT:
        AR_INDICES(ar_bounded<AR_REFLECT>(i, (ar_index)q.x))
    case AR_STEP_SYMMETRIC:
        AR_INDICES(ar_bounded<AR_SYMMETRIC>(i, (ar_index)q.x))
    case AR_STEP_WITHIN:
        AR_INDICES((ar_bool)(i >= 0 && i < (ar_index)q.x))
    case AR_STEP_SELECT:
        ar_select(q, r);
        return;
    case AR_STEP_RUN1:
        ar_run<ar_u8>(q, c, r);
        return;
    case AR_STEP_RUN2:
        ar_run<ar_u16>(q, c, r);
        return;
    case AR_STEP_RUN4:
        ar_run<ar_u32>(q, c, r);
        return;
    case AR_STEP_AT1:
        ar_at_offset<ar_u8>(q, r);
        return;
    case AR_STEP_AT2:
        ar_at_offset<ar_u16>(q, r);
        return;
    case AR_STEP_AT4:
        ar_at_offset<ar_u32>(q, r);
        return;
    case AR_STEP_STORE1:
        ar_store_run<ar_u8>(q, c, r);
        return;
    case AR_STEP_STORE2:
        ar_store_run<ar_u16>(q, c, r);
        return;
    case AR_STEP_STORE4:
        ar_store_run<ar_u32>(q, c, r);
        return;
    case AR_STEP_PUT1:
        ar_put_offset<ar_u8>(q, c, r);
        return;
    case AR_STEP_PUT2:
        ar_put_offset<ar_u16>(q, c, r);
        return;
    case AR_STEP_PUT4:
        ar_put_offset<ar_u32>(q, c, r);
        return;
#if AR_WORD == 4
    case AR_STEP_VALUE:
        ar_fill(q, ar_put((ar_u32)q.x), r);
        return;
#else
    case AR_STEP_VALUE:
        ar_fill(q, ar_put(q.x), r);
        return;
    case AR_STEP_TABLE:
        AR_INDICES(((const ar_i64 *)at)[i])
    case AR_STEP_RUN8:
        ar_run<ar_u64>(q, c, r);
        return;
    case AR_STEP_AT8:
        ar_at_offset<ar_u64>(q, r);
        return;
    case AR_STEP_STORE8:
        ar_store_run<ar_u64>(q, c, r);
        return;
    case AR_STEP_PUT8:
        ar_put_offset<ar_u64>(q, c, r);
        return;
    case AR_STEP_UNIFORM_F32:
        AR_RANDOM(ar_uniform_F32(x))
    case AR_STEP_UNIFORM_F64:
        AR_RANDOM(ar_uniform_F64(x))
    case AR_STEP_NORMAL_F32:
        AR_RANDOM(ar_normal_F32(x))
    case AR_STEP_NORMAL_F64:
        AR_RANDOM(ar_normal_F64(x))
    case AR_STEP_INTEGERS:
        AR_RANDOM(ar_integers(x, k[1], k[2]))
#endif
#if AR_WORD == 16
    case AR_STEP_VALUE16:
        ar_fill(q, ar_put(*(const ar_c128 *)at), r);
        return;
    case AR_STEP_RUN16:
        ar_run<ar_c128>(q, c, r);
        return;
    case AR_STEP_AT16:
        ar_at_offset<ar_c128>(q, r);
        return;
    case AR_STEP_STORE16:
        ar_store_run<ar_c128>(q, c, r);
        return;
    case AR_STEP_PUT16:
        ar_put_offset<ar_c128>(q, c, r);
        return;
#endif
    default:
        ar_operate(q, r);
    }
}

extern "C" __global__ void __launch_bounds__(AR_BLOCK) ar_kernel(AR_TAKES)
{
    AR_GIVEN
    extern __shared__ ar_register registers[];
    ar_register *r = registers + threadIdx.x;
    const ar_i64 stride = (ar_i64)gridDim.x * AR_BLOCK;
    for (ar_i64 at = (ar_i64)blockIdx.x * AR_BLOCK + threadIdx.x; at < p.chunks; at += stride) {
        ar_chunk c;
        c.first = at * AR_E;
        c.n = p.points - c.first < AR_E ? (int)(p.points - c.first) : AR_E;
        for (int k = 0; k < p.n; k++)
            ar_do(p, p.steps[k], c, r);
    }
}

#endif
