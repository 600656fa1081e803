/* One level is a whole bundle of extensions, as the processors have them together: AVX2 with FMA
 * and F16C (2013 on), AVX-512 with F, BW, CD, DQ, VL (2017 on). Finer choices would multiply the
 * builds for machines that do not exist. */
#include "compute/base/isa.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[ISA_COUNT] = {"baseline", "avx2", "avx512"};

static enum isa best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return ISA_BASELINE;
#if !defined(__clang__) /* clang 14 does not know the name */
    if (!__builtin_cpu_supports("f16c"))
        return ISA_BASELINE;
#endif
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return ISA_AVX512;
    return ISA_AVX2;
#else
    return ISA_BASELINE;
#endif
}

enum isa isa_choose(const char *wanted)
{
    enum isa b = best();
    for (int i = 0; wanted != NULL && i < ISA_COUNT; i++)
        if (strcmp(wanted, names[i]) == 0 && (enum isa)i < b)
            return (enum isa)i;
    return b;
}

static enum isa chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    chosen = isa_choose(getenv("ARRAYD_CPU_ISA"));
}

enum isa isa_now(void)
{
    pthread_once(&once, choose);
    return chosen;
}

const char *isa_name(enum isa isa)
{
    return names[isa];
}
