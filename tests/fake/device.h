/* CUDA's device language for the host's C++ compiler: the fake NVRTC puts this before the text it
 * is given. Execution model, memory and atomics are here, vector types in device_vector.h,
 * mathematics in device_math.h.
 *
 * No standard header is included: parsing one takes longer than compiling a kernel. The indices are
 * plain variables of the module (a module runs one launch at a time); the driver sets them before
 * it resumes a thread. Everything that waits goes through `struct fake_host`, and leaves the mark
 * `fake_uses_threads` in the module, so that a kernel that never waits runs as a plain loop. */
#ifndef ARRAYD_FAKE_DEVICE_H
#define ARRAYD_FAKE_DEVICE_H

#include "tests/fake/module.h"

#define ARRAYD_FAKE_DEVICE 1 /* for text that has a variant without inline PTX */
#define __CUDACC__         1
#define __CUDACC_RTC__     1
#define __NVCC__           1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__      inline __attribute__((always_inline))
#define __noinline__         __attribute__((noinline))
#define __align__(n)         __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
/* In a section of their own, so that the driver can fill them with rubbish before every block. */
#ifdef FAKE_PLAIN_SHARED
#define __shared__ static
#else
#define __shared__ static __attribute__((section("fake_shared")))
#endif
#define __dynamic_shared__ /* what `extern __shared__` is turned into before compiling */

typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef unsigned long long cudaTextureObject_t;

#define FAKE_FN     static inline __attribute__((unused))
#define FAKE_UNSEEN __attribute__((no_sanitize("thread"))) /* accesses are not the kernel's */

static fake_dim threadIdx, blockIdx, blockDim, gridDim;
extern "C" __attribute__((visibility("hidden"))) const fake_host *fake_host_;
static const int warpSize = 32;

typedef fake_dim uint3;
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#include "tests/fake/device_vector.h"

/* Barriers */

FAKE_FN FAKE_UNSEEN __attribute__((noinline)) unsigned fake_barrier(int line, int predicate,
                                                                    int reduction)
{
    asm volatile(".weak fake_uses_threads\n\t.set fake_uses_threads, 1");
    return fake_host_->barrier(line, predicate, reduction);
}
FAKE_FN FAKE_UNSEEN __attribute__((noinline)) unsigned long long
fake_warp_op(fake_warp kind, unsigned mask, unsigned long long value, int source, int line)
{
    asm volatile(".weak fake_uses_threads\n\t.set fake_uses_threads, 1");
    return fake_host_->warp(kind, mask, value, source, line);
}
FAKE_FN FAKE_UNSEEN __attribute__((noinline)) unsigned __activemask()
{
    asm volatile(".weak fake_uses_threads\n\t.set fake_uses_threads, 1");
    return fake_host_->active();
}
#define __syncthreads()        ((void)fake_barrier(__LINE__, 0, 0))
#define __syncthreads_count(p) ((int)fake_barrier(__LINE__, !!(p), 0))
#define __syncthreads_or(p)    ((int)fake_barrier(__LINE__, !!(p), 1))
#define __syncthreads_and(p)   ((int)fake_barrier(__LINE__, !!(p), 2))

FAKE_FN int fake_lane()
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
}
template <class T> static inline T fake_shuffle(unsigned mask, T value, int source, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = fake_warp_op(FAKE_WARP_SHUFFLE, mask, bits, source, line);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
/* `line` is the caller's: a default argument is evaluated where the call is. */
template <class T>
static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32,
                            int line = __builtin_LINE())
{
    int lane = fake_lane();
    return fake_shuffle(mask, v, (lane & ~(width - 1)) | (source & (width - 1)), line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32,
                               int line = __builtin_LINE())
{
    int lane = fake_lane(), from = lane - (int)delta;
    return fake_shuffle(mask, v, from < (lane & ~(width - 1)) ? lane : from, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32,
                                 int line = __builtin_LINE())
{
    int lane = fake_lane(), from = lane + (int)delta;
    return fake_shuffle(mask, v, from > (lane | (width - 1)) ? lane : from, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32,
                                int line = __builtin_LINE())
{
    int lane = fake_lane(), from = lane ^ bits;
    return fake_shuffle(mask, v, from > (lane | (width - 1)) ? lane : from, line);
}
FAKE_FN void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    fake_warp_op(FAKE_WARP_SYNC, mask, 0, 0, line);
}
FAKE_FN unsigned __ballot_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return (unsigned)fake_warp_op(FAKE_WARP_BALLOT, mask, p != 0, 0, line);
}
FAKE_FN int __any_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, p, line) != 0;
}
FAKE_FN int __all_sync(unsigned mask, int p, int line = __builtin_LINE())
{
    return __ballot_sync(mask, !p, line) == 0;
}
/* Over the lanes of the mask: each one's value is brought to all. */
#define FAKE_REDUCE(name, T, expression)                                                           \
    FAKE_FN T name(unsigned mask, T v, int line = __builtin_LINE())                                \
    {                                                                                              \
        T a = v;                                                                                   \
        unsigned own = 1u << fake_lane(), alive = __ballot_sync(mask, 1, line);                    \
        for (int i = 0; i < 32; i++)                                                               \
            if (alive >> i & 1) {                                                                  \
                T b = fake_shuffle(mask, v, i, line);                                              \
                if (1u << i != own)                                                                \
                    a = expression;                                                                \
            }                                                                                      \
        return a;                                                                                  \
    }
FAKE_REDUCE(__reduce_add_sync, unsigned, a + b)
FAKE_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
FAKE_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
FAKE_REDUCE(__reduce_min_sync, int, a < b ? a : b)
FAKE_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
FAKE_REDUCE(__reduce_max_sync, int, a > b ? a : b)
FAKE_REDUCE(__reduce_and_sync, unsigned, a &b)
FAKE_REDUCE(__reduce_or_sync, unsigned, a | b)
FAKE_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T v, int line = __builtin_LINE())
{
    unsigned same = 0, alive = __ballot_sync(mask, 1, line);
    for (int i = 0; i < 32; i++)
        if ((alive >> i & 1) && fake_shuffle(mask, v, i, line) == v)
            same |= 1u << i;
    return same;
}

FAKE_FN void __nanosleep(unsigned) {}
FAKE_FN FAKE_UNSEEN long long clock64()
{
    static long long ticks;
    return ticks += 32;
}
FAKE_FN int clock()
{
    return (int)clock64();
}
FAKE_FN unsigned long long __globaltimer()
{
    return (unsigned long long)clock64();
}
FAKE_FN FAKE_UNSEEN __attribute__((noinline)) void fake_trap(int code, const char *why,
                                                             const char *file, int line)
{
    fake_host_->trap(code, why, file, line);
}
#define __trap()    (fake_trap(719, "__trap()", __FILE__, __LINE__), __builtin_unreachable())
#define assert(x)   ((x) ? (void)0 : fake_trap(710, #x, __FILE__, __LINE__))
#define __assume(x) ((x) ? (void)0 : __builtin_unreachable())
#define __brkpt()   __trap()
extern "C" int printf(const char *, ...);

/* Memory: cache hints change nothing but the type's alignment must hold, which the compiler's
 * alignment checks see to. */

#define FAKE_LOAD(name)                                                                            \
    template <class T> static inline T name(const T *p)                                            \
    {                                                                                              \
        return *p;                                                                                 \
    }
#define FAKE_STORE(name)                                                                           \
    template <class T> static inline void name(T *p, T v)                                          \
    {                                                                                              \
        *p = v;                                                                                    \
    }
FAKE_LOAD(__ldg)
FAKE_LOAD(__ldcs)
FAKE_LOAD(__ldcg)
FAKE_LOAD(__ldca)
FAKE_LOAD(__ldlu)
FAKE_LOAD(__ldcv)
FAKE_STORE(__stcs)
FAKE_STORE(__stcg)
FAKE_STORE(__stwb)
FAKE_STORE(__stwt)

#include "tests/fake/device_access.h"
#include "tests/fake/device_math.h"

extern "C" {
extern __attribute__((weak)) char __start_fake_shared[], __stop_fake_shared[];
extern __attribute__((visibility("hidden"))) char __ehdr_start[], _end[];
}

/* Kernels: their parameters' sizes and a way to call them, for any number of parameters. */

template <class T, T... I> struct fake_list {
};
#if __has_builtin(__make_integer_seq)
#define FAKE_COUNT(n) __make_integer_seq<fake_list, int, n>
#else
#define FAKE_COUNT(n) fake_list<int, __integer_pack(n)...>
#endif
template <class F, F *f> struct fake_entry;
template <class... P, void (*f)(P...)> struct fake_entry<void(P...), f> {
    static constexpr unsigned sizes[sizeof...(P) + 1] = {sizeof(P)..., 0};
    static constexpr unsigned count = sizeof...(P);
    template <int... I>
    FAKE_UNSEEN static __attribute__((always_inline)) inline void call(void *const *p,
                                                                       fake_list<int, I...>)
    {
        f(*(P *)p[I]...);
    }
    FAKE_UNSEEN static __attribute__((always_inline)) inline void run(void *const *p)
    {
        call(p, FAKE_COUNT(sizeof...(P))());
    }
    FAKE_UNSEEN static void thread(void *const *p) { run(p); }
    FAKE_UNSEEN static void block(void *const *p, int backwards)
    {
        unsigned n = blockDim.x * blockDim.y * blockDim.z;
        if (backwards) {
            while (n--) {
                threadIdx.x = n % blockDim.x;
                threadIdx.y = n / blockDim.x % blockDim.y;
                threadIdx.z = n / blockDim.x / blockDim.y;
                run(p);
            }
            return;
        }
        for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
            for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                    run(p);
    }
};
static constexpr int fake_bound(int threads = 0, int = 0, int = 0)
{
    return threads;
}

/* Written by the fake NVRTC behind the text. The name of a kernel may be a macro. */
#define FAKE_TEXT(f)           #f
#define FAKE_KERNEL(f, bounds) FAKE_KERNEL_(f, bounds)
#define FAKE_KERNEL_(f, bounds)                                                                    \
    {FAKE_TEXT(f),                                                                                 \
     fake_entry<decltype(f), f>::thread,                                                           \
     fake_entry<decltype(f), f>::block,                                                            \
     fake_entry<decltype(f), f>::sizes,                                                            \
     fake_entry<decltype(f), f>::count,                                                            \
     fake_bound bounds},
#define FAKE_DYNAMIC_SHARED                                                                        \
    extern "C" __attribute__((aligned(1024),                                                       \
                              visibility("hidden"))) char fake_dynamic[FAKE_SHARED_ASKED] = {};
#define FAKE_DYNAMIC_NAME(name)                                                                    \
    asm(".globl " #name "\n.hidden " #name "\n.set " #name ", fake_dynamic");
#define FAKE_MODULE(dynamic)                                                                       \
    extern "C" __attribute__((visibility("default")))                                              \
    const fake_module fake_module_ = {FAKE_ABI,                                                    \
                                      sizeof fake_kernels / sizeof *fake_kernels - 1,              \
                                      fake_kernels,                                                \
                                      &threadIdx,                                                  \
                                      &blockIdx,                                                   \
                                      &blockDim,                                                   \
                                      &gridDim,                                                    \
                                      &fake_host_,                                                 \
                                      dynamic,                                                     \
                                      __start_fake_shared,                                         \
                                      __stop_fake_shared,                                          \
                                      __ehdr_start,                                                \
                                      _end};

#endif
