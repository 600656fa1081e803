/* The CPU backend's array memory: 64-byte aligned blocks, counted against a limit, with a small
 * cache of freed large ones.
 *
 * Called by cpu.c. Thread-safe. */
#ifndef ARRAYD_CPU_MEMORY_H
#define ARRAYD_CPU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_memory;

struct cpu_memory_stats {
    int64_t limit, live, cached, blocks; /* bytes; blocks: a count */
    int64_t moved_out;                   /* bytes from cpu_memory_get_out */
    int64_t hits, misses;                /* large allocations served from the cache, and not */
};

/* `limit` in bytes; 0: what the machine (or its container) has. NULL without memory. */
struct cpu_memory *cpu_memory_new(int64_t limit);
void cpu_memory_free(struct cpu_memory *m);

/* size > 0; NULL when the limit or the machine's memory is exhausted. */
void *cpu_memory_get(struct cpu_memory *m, int64_t size, bool zero);
void cpu_memory_put(struct cpu_memory *m, void *p, int64_t size);
/* Counts memory allocated elsewhere as live; false: the limit does not allow it. */
bool cpu_memory_book(struct cpu_memory *m, int64_t size);
void cpu_memory_unbook(struct cpu_memory *m, int64_t size);
/* Counts memory that is there already, `out`: moved out of the device, whatever the limits are. */
void cpu_memory_book_anyway(struct cpu_memory *m, int64_t size, bool out);
/* Like get and put, for arrays moved out of the device: they do not count against the limit, but
 * live memory and they together must fit the machine. Not zeroed. */
void *cpu_memory_get_out(struct cpu_memory *m, int64_t size);
void cpu_memory_put_out(struct cpu_memory *m, void *p, int64_t size);
/* Counts such memory that was allocated elsewhere; false: it does not fit. */
bool cpu_memory_book_out(struct cpu_memory *m, int64_t size);
void cpu_memory_unbook_out(struct cpu_memory *m, int64_t size);
/* Unmaps blocks that have been in the cache for longer than `ms`; stops after some milliseconds and
 * leaves the rest to the next call. Tells mem_trim how much small-block memory was freed since. */
void cpu_memory_tidy(struct cpu_memory *m, double ms);
void cpu_memory_get_stats(struct cpu_memory *m, struct cpu_memory_stats *ret);

#endif
