/* Unused chunks (chunk.h): pinned host memory, and memory that other processes can map. A thread of
 * its own releases it, so that dropping an array, which callbacks do, never waits.
 *
 * Called by storage.c, chunk.c and the engine's frame. Mappable memory that was never exported is
 * kept for a while as a pool, for new arrays of the same size: fresh pages cost ten times as much
 * as writing them. It is released when it has not been reused for config.device.shareable_keep_s,
 * when more than shareable_keep_bytes of the device are kept, or when memory runs short. Unless
 * told otherwise, that is an eighth of a device; on a CPU no more than 2 GiB, and for a few seconds
 * only, as for other freed memory there (cpu_memory.h): the machine has more to do.
 *
 * Thread-safe; its lock is the last in the lock order. */
#ifndef ARRAYD_RECLAIM_H
#define ARRAYD_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct reclaim;
struct chunk;

struct reclaim *reclaim_new(struct engine *g); /* NULL without memory */
void reclaim_stop(struct reclaim *r);          /* ends its thread */
void reclaim_free(struct reclaim *r);          /* gives everything back; NULL allowed */

/* Starts the thread, before there is any memory to release; false: it cannot be started. */
bool reclaim_start(struct reclaim *r);
/* `clean`: nobody else has it mapped. It is not kept if there is a keeper that has it not, nor if
 * it lies on other parts of its device than new memory would, or in another order. */
void reclaim_retire(struct reclaim *r, struct chunk *take_c, bool clean);

/* Releases everything now, including the pool, which may take long. reclaim_host: host memory
 * alone. reclaim_shares: mappable memory alone, which waits for no work; returns whether any
 * has been released since reclaim_shares_back returned `since`. */
void reclaim_all(struct reclaim *r);
void reclaim_host(struct reclaim *r);
bool reclaim_shares(struct reclaim *r, uint64_t since);
uint64_t reclaim_shares_back(const struct reclaim *r);

/* A kept chunk for exactly so many bytes, or NULL: zeros after them, undefined contents within. */
struct chunk *reclaim_reuse(struct reclaim *r, int device, int64_t size);
int64_t reclaim_kept(struct reclaim *r, int device); /* bytes */
int64_t reclaim_kept_part(struct reclaim *r, int device,
                          int part); /* of these on one of its parts */

#endif
