/* A thread that sleeps takes some ten microseconds or more to wake, longer than many a kernel of a
 * loop runs, so it looks for its next work for about as long first. The core is offered to others
 * every microsecond or so: with more threads that can run than cores it would be taken from the one
 * that is waited for. */
#include "compute/cpu/idle.h"

#include <sched.h>

#include "compute/base/clock.h"

#define LOOK_NS 30000
#define LOOKS   32 /* between two offers */

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
