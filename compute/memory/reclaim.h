/* Unused memory that takes long to release: pinned host memory, and memory that other processes can
 * map. A thread of its own releases it, so that dropping an array, which callbacks do, never waits.
 *
 * Called by storage.c and the engine's frame. Mappable memory that was never exported is kept for a
 * while as a pool, for new arrays of the same size: fresh pages cost ten times as much as writing
 * them. It is released when it has not been reused for config.device.shareable_keep_s, when more
 * than a part of the device is kept, or when memory runs short.
 *
 * Thread-safe; its lock is the last in the lock order. */
#ifndef ARRAYD_RECLAIM_H
#define ARRAYD_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct reclaim;
struct shared_block;
struct storage;

struct reclaim *reclaim_new(struct engine *g); /* NULL without memory */
void reclaim_stop(struct reclaim *r);          /* ends its thread */
void reclaim_free(struct reclaim *r);          /* gives everything back; NULL allowed */

/* Starts the thread, before there is any memory to release; false: it cannot be started. */
bool reclaim_start(struct reclaim *r);
void reclaim_bury(struct reclaim *r, struct storage *take_st);

/* Releases everything now, including the pool, which may take long. reclaim_dig_host: host memory
 * alone. reclaim_dig_shares: mappable memory alone, which waits for no work; returns whether any
 * has been released since reclaim_shares_back returned `since`. */
void reclaim_dig(struct reclaim *r);
void reclaim_dig_host(struct reclaim *r);
bool reclaim_dig_shares(struct reclaim *r, uint64_t since);
uint64_t reclaim_shares_back(const struct reclaim *r);

/* Kept memory of exactly that size for an array: zeros after its end, undefined contents within. */
bool reclaim_reuse(struct reclaim *r, int device, int64_t size, struct shared_block *ret);
int64_t reclaim_kept(struct reclaim *r, int device); /* bytes */

#endif
