/* Which instruction set loops that are built for several run on. Used by every room that has some;
 * thread-safe. */
#ifndef ARRAYD_BASE_ISA_H
#define ARRAYD_BASE_ISA_H

enum isa { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_COUNT };

/* The best one this processor has, or the one named in `wanted` (may be NULL) if it is lower;
 * another text is ignored. */
enum isa isa_choose(const char *wanted);

/* That of this process, chosen once: `wanted` is the environment's ARRAYD_CPU_ISA. */
enum isa isa_now(void);

const char *isa_name(enum isa isa);

#endif
