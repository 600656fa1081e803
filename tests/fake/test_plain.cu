// Kernels of tests/unit/test_fake_*.c that never wait.
#include "params.h"

extern "C" __global__ void __launch_bounds__(256) root(const __grid_constant__ struct params p)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < p.n)
        p.b[i] = sqrtf(p.a[i]) + 1;
}

extern "C" __global__ void add_one(const __grid_constant__ struct params p)
{
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * blockDim.x)
        p.b[i] = p.a[i] + 1;
}

/* __global__ void not_me(int) */
#if 0
extern "C" __global__ void nor_me(int x) {}
#endif

template <class T> static __device__ __forceinline__ T twice(T x)
{
    return x + x;
}
static __constant__ int table[2] = {3, 4};

#define NAME language
extern "C" __global__ void
__launch_bounds__(2 * 64, 1)
NAME(const __grid_constant__ struct params p, int more)
{
    double nan = __longlong_as_double(0x7ff8000000000000LL);
    float4 v = __ldg((const float4 *)p.a + 1);
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        __stcs((float2 *)p.b + 1, make_float2(v.x, twice(v.w)));
        p.b[0] = __uint_as_float(__float_as_uint(v.y) ^ 0x80000000u);
        p.b[4] = (float)(__clz(1) + __popc(255u) + __ffs(8) + max(table[0], table[1]));
        p.b[5] = (float)(__umulhi(0x80000000u, 6u) + __brev(0x40000000u));
        p.b[6] = fmaxf(rsqrtf(4.0f), nan == nan ? 1.0f : 0.25f);
        p.b[7] = isnan(nan) + 10 * isinf(1 / 0.0f) + 100 * (sizeof(float3) == 12) + more;
    }
    atomicAdd((int *)p.b + 1, 1);
    atomicMax((int *)p.b + 8, (int)blockIdx.x);
    p.b[9] = __fadd_rn(__fmaf_rn(2, 3, 4), __fdiv_rn(1, 4)) + (float)__float2int_rz(-1e20f);
}

#define MOVE(name, type)                                                                           \
    extern "C" __global__ void name(const __grid_constant__ struct params p)                       \
    {                                                                                              \
        *(type *)((char *)p.b + p.n) = *(const type *)p.a;                                         \
    }
MOVE(move_2, short)
MOVE(move_4, float)
MOVE(move_8, float2)
MOVE(move_12, float3)
MOVE(move_16, float4)

extern "C" __global__ void count(const __grid_constant__ struct params p)
{
    atomicAdd((int *)((char *)p.b + p.n), 1);
}

extern "C" __global__ void hold(const __grid_constant__ struct params p)
{
    atomicCAS((unsigned long long *)((char *)p.b + p.n), 0ull, 1ull);
}

extern "C" __global__ void write_at(const __grid_constant__ struct params p)
{
    p.b[p.n] = 1;
}

extern "C" __global__ void read_at(const __grid_constant__ struct params p)
{
    p.b[0] = p.a[p.n];
}

extern "C" __global__ void trap(const __grid_constant__ struct params p)
{
    if (threadIdx.x == 3)
        __trap();
    p.b[threadIdx.x] = 1;
}

#define TIMES(name, factor)                                                                        \
    /* one of several */                                                                           \
    extern "C" __global__ void name(const __grid_constant__ struct params p)                       \
    {                                                                                              \
        p.b[threadIdx.x] = factor * p.a[threadIdx.x];                                              \
    }
TIMES(times_2, 2)
TIMES(times_3, 3)
