/* Polling for a moment before sleeping.
 *
 * Called by pool.c. Thread-safe. */
#ifndef ARRAYD_CPU_IDLE_H
#define ARRAYD_CPU_IDLE_H

#include <stdatomic.h>

/* Returns once *n > 0, or after some tens of microseconds. Yields the core to other threads. */
void idle_look(const _Atomic int *n);

#endif
