/* A sleeping thread takes some ten microseconds or more to wake, longer than many kernels of a loop
 * run. So a thread first polls for its next work for about as long. It yields the core every
 * microsecond or so: with more runnable threads than cores, polling would otherwise take the core
 * from the very thread it waits for. */
#include "compute/cpu/idle.h"

#include <sched.h>

#include "compute/base/clock.h"

#define LOOK_NS 30000
#define LOOKS   32 /* between two yields */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void idle_look(const _Atomic int *n)
{
    const uint64_t until = clock_ns() + LOOK_NS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(n, memory_order_relaxed) > 0)
                return;
            relax();
        }
        sched_yield();
    } while (clock_ns() < until);
}
