/* Bump allocator for one request: everything a request builds (trees, IR, text) comes from here and
 * is freed at once. Owned by the request; not thread-safe (one thread at a time works on a
 * request). Blocks come from mem.h, so allocation failures can be injected, and are counted
 * (meter.h). */
#ifndef ARRAYD_BASE_ARENA_H
#define ARRAYD_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena;

/* A new arena that hands out at most `cap` bytes in all (0: no cap). NULL without memory. */
struct arena *arena_new(size_t cap);
void arena_free(struct arena *a); /* NULL is allowed */

/* `size` bytes, zeroed, aligned for any type; NULL when the cap or the memory is exhausted. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_alloc_array(struct arena *a, size_t n, size_t size); /* overflow-checked */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bytes it has allocated. */
size_t arena_bytes(const struct arena *a);

/* Adds n bytes, allocated elsewhere and freed with the arena, to its count. False: a limit forbids
 * it. */
bool arena_count(struct arena *a, size_t n) __attribute__((warn_unused_result));
/* true: later allocations are not counted, because another limit covers them. false: they are
 * counted again, whatever the limits say. */
void arena_exempt(struct arena *a, bool exempt);

/* Copy of n bytes. */
void *arena_dup(struct arena *a, const void *p, size_t n);

/* Grows an arena array by doubling: when *cap <= n, *p becomes a larger copy. 0 on success, -1
 * without memory (*p stays valid). The old copy stays in the arena. */
int arena_grow(struct arena *a, void **p, size_t *cap, size_t n, size_t elem_size);

static inline void arena_freep(struct arena **a)
{
    arena_free(*a);
}
#define _cleanup_arena_ __attribute__((cleanup(arena_freep)))

#endif
