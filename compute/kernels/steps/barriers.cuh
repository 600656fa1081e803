/* Barriers in two halves: threads arrive, and wait later. For patch.cuh, whose queue of planes they
 * guard. */
#ifndef ARRAYD_BARRIERS_CUH
#define ARRAYD_BARRIERS_CUH

#include "compute/kernels/steps/spot.cuh"

#define AR_SLOTS  (AR_AHEAD + 1 + AR_LAG + AR_BACK) /* of the queue; of a field that needs no */
#define AR_BRIEF  (AR_AHEAD + 1 + AR_LAG)           /* plane older than the computed one */

/* Whether the copy engine brings planes (AR_MAPS: the launch fills in what it needs for that). */
#if AR_MAPS && !defined(AR_INDIRECT) && !defined(ARRAYD_FAKE_DEVICE) && defined(__CUDA_ARCH__)
#define AR_MAPPED (__CUDA_ARCH__ >= 900)
#else
#define AR_MAPPED 0
#endif

/* `full`: a slot's plane is here. `done`: all warps have done a round. The phases of each are
 * numbered; a wait names the number's last bit. All lanes of a warp arrive, so that racecheck sees
 * what they did before. */
struct ar_barriers {
    ar_u64 done, full[AR_SLOTS];
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
AR_FN void ar_open(ar_barriers &) {}
AR_FN void ar_came(ar_barriers &, int, bool) {}
AR_FN void ar_await(ar_barriers &, int, int) {}
AR_FN void ar_reach(ar_barriers &) {}
AR_FN void ar_meet(ar_barriers &, int)
{
    __syncthreads();
}
#elif defined(ARRAYD_FAKE_DEVICE)
AR_FN void ar_open(ar_barriers &b)
{
    if (threadIdx.x == 0)
        fake_phase_op(FAKE_PHASE_OPEN, &b.done, AR_BLOCK);
    if (threadIdx.x < AR_SLOTS)
        fake_phase_op(FAKE_PHASE_OPEN, &b.full[threadIdx.x], AR_BLOCK);
    __syncthreads();
}
AR_FN void ar_came(ar_barriers &, int, bool)
{
    fake_copies_sent();
}
AR_FN void ar_await(ar_barriers &b, int slot, int parity)
{
    fake_copies_arrived(AR_AHEAD - 1);
    fake_phase_op(FAKE_PHASE_REACH, &b.full[slot], 0);
    fake_phase_op(FAKE_PHASE_WAIT, &b.full[slot], (unsigned)parity);
}
AR_FN void ar_reach(ar_barriers &b)
{
    fake_phase_op(FAKE_PHASE_REACH, &b.done, 0);
}
AR_FN void ar_meet(ar_barriers &b, int parity)
{
    fake_phase_op(FAKE_PHASE_WAIT, &b.done, (unsigned)parity);
}
#else
AR_FN void ar_open_one(ar_u64 &b, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ar_spot_of(&b)), "r"(arrivals)
                 : "memory");
}
AR_FN void ar_open(ar_barriers &b)
{
    if (threadIdx.x == 0)
        ar_open_one(b.done, AR_BLOCK);
    if (threadIdx.x < AR_SLOTS)
        ar_open_one(b.full[threadIdx.x], AR_MAPPED ? 1 : AR_BLOCK);
#if AR_MAPPED
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
}
/* This thread's copies into a slot are sent. */
AR_FN void ar_came(ar_barriers &b, int slot, bool any)
{
    if (any)
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                         ar_spot_of(&b.full[slot]))
                     : "memory");
}
AR_FN void ar_wait(ar_u64 &b, int parity)
{
    asm volatile("{ .reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
#else
                 "again: mbarrier.test_wait.parity.shared.b64 p, [%0], %1;\n"
#endif
                 "@!p bra again; }" ::"r"(ar_spot_of(&b)),
                 "r"(parity)
                 : "memory");
}
AR_FN void ar_await(ar_barriers &b, int slot, int parity)
{
    ar_wait(b.full[slot], parity);
}
AR_FN void ar_reach(ar_barriers &b)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(ar_spot_of(&b.done))
                 : "memory");
}
AR_FN void ar_meet(ar_barriers &b, int parity)
{
    ar_wait(b.done, parity);
}
#endif

#endif
