/* Which parts of chunks of one size are taken: pieces of any number of grains, cut where they fit.
 *
 * Called by chunk.c. Knows no memory, only numbers; what a chunk is is its owner's affair. Taking
 * and giving back take a bounded time, whatever the number of chunks. Not thread-safe. */
#ifndef ARRAYD_PIECES_H
#define ARRAYD_PIECES_H

#include <stdbool.h>
#include <stdint.h>

struct pieces;

/* `grains` of a chunk: a power of two, at most 2^20. NULL without memory. */
struct pieces *pieces_new(uint32_t grains);
void pieces_free(struct pieces *p); /* NULL allowed */

/* Another chunk, all of it free; *ret_slot names it until it is taken out. False: no memory. */
bool pieces_add(struct pieces *p, void *chunk, uint32_t *ret_slot);

/* The next chunk with any piece taken or none, from slot *at on, for those who go through all. */
void *pieces_next(const struct pieces *p, uint32_t *at);

/* n adjacent grains, 1 ≤ n ≤ grains: their chunk, and the first of them; NULL: no chunk has them.
 */
void *pieces_take(struct pieces *p, uint32_t n, uint32_t *ret_first);

/* Takes these grains, if they are free and the chunk is there. */
bool pieces_take_at(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n);

/* Gives back what was taken; true: nothing of the chunk is taken any more, and it is out. */
bool pieces_give(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n);

#endif
