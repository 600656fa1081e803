/* Which instruction set the loops run on. Called by loops.c and tests. Pure; thread-safe. */
#ifndef ARRAYD_CPU_ISA_H
#define ARRAYD_CPU_ISA_H

enum isa { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_COUNT };

/* The best one this processor has, or the one named in `wanted` (may be NULL) if it is lower;
 * another text is ignored. */
enum isa isa_choose(const char *wanted);

const char *isa_name(enum isa isa);

#endif
