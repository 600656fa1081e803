// Kernels of tests/unit/test_fake_*.c whose threads wait for each other.
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

extern "C" __global__ void dynamic_at(const __grid_constant__ struct params p)
{
    extern __shared__ float sums[];
    if (threadIdx.x == 0)
        sums[p.n] = 1;
    __syncthreads();
}

extern "C" __global__ void static_behind(const __grid_constant__ struct params p)
{
    __shared__ float t[32];
    for (int i = 0; i < 12288; i++) /* behind all the text's arrays */
        (&t[0])[i + p.n] = 1;
    __syncthreads();
}

extern "C" __global__ void out_of_bounds(const __grid_constant__ struct params p)
{
    __shared__ float t[32];
    t[p.n] = 1;
    __syncthreads();
    p.b[0] = t[0];
}

// Copies that go on by themselves, of a's floats: read when all but p.n batches are there, two sent.
extern "C" __global__ void copies(const __grid_constant__ struct params p)
{
    __shared__ __align__(16) float t[256];
    int i = 4 * threadIdx.x;
    t[i] = -1;
    fake_copy<4>(t + i + 1, p.a + i + 1);
    fake_copies_sent();
    fake_copy<8>(t + i + 2, p.a + i + 2);
    fake_copies_sent();
    fake_copies_arrived(1);
    p.b[i] = t[i];
    p.b[i + 1] = t[i + 1];
    fake_copies_arrived(p.n);
    p.b[i + 2] = t[i + 2];
    p.b[i + 3] = t[i + 3];
    __syncthreads();
}

// A barrier in two halves: what is written before it is read behind it; p.n: who does not come.
extern "C" __global__ void phases(const __grid_constant__ struct params p)
{
    __shared__ unsigned long long state;
    __shared__ float t[2][64];
    int i = threadIdx.x;
    if (i == 0)
        fake_phase_op(FAKE_PHASE_OPEN, &state, 64);
    __syncthreads();
    for (int round = 0; round < 4; round++) {
        t[round & 1][i] = (float)(100 * round + i);
        if (i != p.n)
            fake_phase_op(FAKE_PHASE_REACH, &state, 0);
        fake_phase_op(FAKE_PHASE_WAIT, &state, round & 1);
        p.b[i] = t[round & 1][63 - i];
    }
}
