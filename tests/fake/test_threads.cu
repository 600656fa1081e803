// Kernels of tests/unit/test_fake_cuda.c whose threads wait for each other.
#include "params.h"

// A sum of 250 in static and dynamic shared memory; the last threads of a block leave early.
extern "C" __global__ void __launch_bounds__(256) sum(const __grid_constant__ struct params p)
{
    __shared__ float turned[256];
    extern __shared__ __align__(16) float sums[]; /* not: extern __shared__ int no[]; */
    int i = threadIdx.x;
    if (i >= 250)
        return;
    turned[i] = p.a[blockIdx.x * 256 + i];
    __syncthreads();
    sums[i] = turned[(i + 1) % 250];
    for (int n = 250; n > 1; n = (n + 1) / 2) {
        __syncthreads();
        if (i < n / 2)
            sums[i] += sums[i + (n + 1) / 2];
    }
    int all = __syncthreads_and(i < 250), some = __syncthreads_count(i < 3);
    if (i == 0)
        p.b[blockIdx.x] = sums[0] + 1000000 * all + 2000000 * some;
}

extern "C" __global__ void shuffle(const __grid_constant__ struct params p)
{
    int lane = threadIdx.x & 31;
    float x = p.a[threadIdx.x];
    double y = x;
    for (int n = 16; n; n /= 2)
        x += __shfl_xor_sync(0xffffffff, x, n);
    y = 1000 * __shfl_down_sync(~0u, y, 1) + __shfl_up_sync(~0u, y, 1, 8);
    long z = __shfl_sync(~0u, (long)threadIdx.x << 33, 5);
    if (__ballot_sync(~0u, lane & 1) != 0xaaaaaaaa || !__any_sync(~0u, lane == 7) ||
        __all_sync(~0u, lane == 7) || z >> 33 != 5 + threadIdx.x - lane ||
        __reduce_add_sync(~0u, lane) != 496)
        x = -1;
    if (lane < 9 && __ballot_sync(0x1ff, lane < 3) != 7)
        x = -2;
    __syncwarp();
    p.b[threadIdx.x] = x;
    p.b[256 + threadIdx.x] = (float)y;
}

// Without the barrier that belongs between: what a thread reads depends on the order.
extern "C" __global__ void race(const __grid_constant__ struct params p)
{
    __shared__ float t[64];
    t[threadIdx.x] = 1;
    p.b[threadIdx.x] = t[threadIdx.x ^ 1];
    __syncthreads();
}

extern "C" __global__ void divergent(const __grid_constant__ struct params p)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

extern "C" __global__ void lonely(const __grid_constant__ struct params p)
{
    if (threadIdx.x != 3)
        p.b[threadIdx.x] = __shfl_xor_sync(0xffffffff, p.a[threadIdx.x], 1);
    else
        __syncthreads();
}

extern "C" __global__ void too_much_shared(const __grid_constant__ struct params p)
{
    extern __shared__ float sums[];
    sums[p.n] = 1;
    __syncthreads();
}

extern "C" __global__ void out_of_bounds(const __grid_constant__ struct params p)
{
    __shared__ float t[32];
    t[p.n] = 1;
    __syncthreads();
    p.b[0] = t[0];
}
