/* Which instruction set to run on, for loops that are built for several.
 * Depends only on the processor and the environment; thread-safe.
 *
 * A level is a whole bundle of extensions, as processors have them together: AVX2 with FMA and F16C
 * (2013 on), AVX-512 with F, BW, CD, DQ, VL (2017 on). Finer choices would multiply the builds for
 * machines that do not exist. */
#ifndef ARRAYD_BASE_ISA_H
#define ARRAYD_BASE_ISA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum isa { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_COUNT };

static inline const char *isa_name(enum isa isa)
{
    static const char *const names[ISA_COUNT] = {"baseline", "avx2", "avx512"};
    return names[isa];
}

static inline enum isa isa_best(void)
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

/* The best level of this processor, or the one named in `wanted` (may be NULL) if that is lower;
 * unknown names are ignored. */
static inline enum isa isa_choose(const char *wanted)
{
    enum isa b = isa_best();
    for (int i = 0; wanted != NULL && i < ISA_COUNT; i++)
        if (strcmp(wanted, isa_name((enum isa)i)) == 0 && (enum isa)i < b)
            return (enum isa)i;
    return b;
}

/* The level of this process; the environment variable ARRAYD_CPU_ISA can lower it. Read once. */
static inline enum isa isa_now(void)
{
    static _Atomic int known; /* 1 + the level */
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level == 0) {
        level = 1 + (int)isa_choose(getenv("ARRAYD_CPU_ISA"));
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (enum isa)(level - 1);
}

/* Of name_baseline, name_avx2 and name_avx512 the function of this process's level. */
#if defined(__x86_64__)
#define ISA_PICK(name)                                                                             \
    (isa_now() == ISA_AVX512 ? name##_avx512                                                       \
     : isa_now() == ISA_AVX2 ? name##_avx2                                                         \
                             : name##_baseline)
#else
#define ISA_PICK(name) name##_baseline
#endif

#endif
