/* Which parts of chunks of one size are taken: pieces of any number of grains, cut where they fit.
 *
 * Called by chunk.c. Knows no memory, only numbers; to it a chunk is an opaque pointer. Taking and
 * giving back take a bounded time, however many chunks there are; pieces_take_at and pieces_close
 * look through one chunk. Not thread-safe. */
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

/* The next chunk from slot *at on, whether pieces of it are taken or not, to go through them all.
 */
void *pieces_next(const struct pieces *p, uint32_t *at);

/* Takes n adjacent grains, 1 ≤ n ≤ grains: their chunk, and the first of them; NULL: none were
 * found. Where a quarter more are free side by side, they always are. */
void *pieces_take(struct pieces *p, uint32_t n, uint32_t *ret_first);

/* Takes these grains, if they are free and the chunk is there. */
bool pieces_take_at(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n);

/* Gives back what was taken; true: nothing of the chunk is taken now, and it has been taken out. */
bool pieces_give(struct pieces *p, uint32_t slot, uint32_t first, uint32_t n);

/* Grains of a chunk that are free; of all chunks that are not closed. From a closed one nothing is
 * taken but by pieces_take_at. */
uint32_t pieces_left(const struct pieces *p, uint32_t slot);
uint64_t pieces_left_open(const struct pieces *p);
void pieces_close(struct pieces *p, uint32_t slot, bool closed);
bool pieces_is_closed(const struct pieces *p, uint32_t slot);

#endif
