/* Waiting for a moment, awake.
 *
 * Called by pool.c. Thread-safe. */
#ifndef ARRAYD_CPU_IDLE_H
#define ARRAYD_CPU_IDLE_H

#include <stdatomic.h>

/* Returns once *n > 0, or after some tens of microseconds. Whoever wants the core gets it. */
void idle_look(const _Atomic int *n);

#endif
