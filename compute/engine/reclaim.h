/* Memory that nobody uses any more and that takes long to give back: the host's, pinned, and what
 * other processes could map. A thread of its own does it, so that nobody waits who lets go of an
 * array, which callbacks do.
 *
 * What others could map and nobody was ever given is kept for a while, for new arrays of the same
 * size, as a pool does: fresh pages cost ten times what it takes to write them. It goes when it has
 * not been used for config.device.shareable_keep_s, when more than a part of the device is kept, or
 * when memory is lacking.
 *
 * Thread-safe; its lock is the last that is taken. */
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

/* The thread runs, before there is any memory to be given back; false: it cannot. */
bool reclaim_start(struct reclaim *r);
void reclaim_bury(struct reclaim *r, struct storage *take_st);

/* Gives everything back now, what is kept too, which may take long. reclaim_dig_host: the host's
 * alone. reclaim_dig_shares: what others could map alone, which waits for no work; whether any has
 * come back since reclaim_shares_back said `since`. */
void reclaim_dig(struct reclaim *r);
void reclaim_dig_host(struct reclaim *r);
bool reclaim_dig_shares(struct reclaim *r, uint64_t since);
uint64_t reclaim_shares_back(const struct reclaim *r);

/* Kept memory of an array of exactly that size: zeros behind that, anything in it. */
bool reclaim_reuse(struct reclaim *r, int device, int64_t size, struct shared_block *ret);
int64_t reclaim_kept(struct reclaim *r, int device); /* bytes */

#endif
