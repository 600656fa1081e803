/* Pages of new shared memory, made by a thread of its own while the first writer is on its way: one
 * fault for each page of 4 KiB, which is what shared memory has by default, costs several times as
 * much as writing it. Huge pages where the kernel makes them when it is told to (Linux 6.1),
 * whatever it does by itself.
 *
 * Called by cpu.c. Thread-safe. */
#ifndef ARRAYD_CPU_AHEAD_H
#define ARRAYD_CPU_AHEAD_H

#include <stdint.h>

struct ahead;
struct ahead *ahead_new(void);    /* NULL without memory */
void ahead_free(struct ahead *a); /* NULL allowed */

/* All of the memory is about to be written. What is small, or comes when much waits already, is
 * left to its writer, as is all beyond the first GiB: it may not come at once. */
void ahead_begin(struct ahead *a, void *data, int64_t size);
/* Before that memory is unmapped; waits for some milliseconds at most. */
void ahead_end(struct ahead *a, const void *data);

#endif
