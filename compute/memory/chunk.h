/* Chunks: memory that takes long to make and to release, and outlives the process if a keeper holds
 * its descriptor (engine_keep). An array of engine.own_least bytes and more has one to itself, and
 * so has one that is exported; smaller ones are pieces of one (pieces.h), if there is a keeper and
 * room for that.
 *
 * Called by storage.c, reclaim.c and adopt.c, and by compute/engine/engine.c. Thread-safe; a lock
 * here is taken after the engine's, before reclaim's. */
#ifndef ARRAYD_CHUNK_H
#define ARRAYD_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/memory/memory.h"

struct chunk {
    struct shared_block share;        /* host: its data and size alone, of one part */
    int64_t used;                     /* bytes of it that arrays may have: zeros behind them */
    uint64_t number;                  /* the keeper's name for it; 0: the keeper does not have it */
    struct account *_Atomic kept_for; /* the owner who needed it; NULL: it is not in use (keep.c) */
    int device;
    bool host;   /* in host memory (backend.h's host_alloc) */
    bool cut;    /* in pieces: cannot be exported */
    bool sealed; /* can only be read */
    uint32_t slot;
    uint32_t movable;      /* gather.c: so many of its pieces could be moved, with so */
    int64_t movable_bytes; /* many bytes; the mover's */
    struct chunk *next;    /* in a list of reclaim.c's, or of those that were adopted */
    uint64_t kept_ns;      /* reclaim.c: the time it was put in the pool */
};

struct chunks;
struct chunks *chunks_new(struct engine *g); /* NULL without memory */
void chunks_free(struct chunks *c);          /* when every chunk is released; NULL allowed */

/* A chunk for `size` bytes; the keeper gets it, if there is one. `must`: make one even if the
 * keeper cannot get it, see share_alloc. ERR_OUT_OF_MEMORY, ERR_OVERLOADED: no more descriptors. */
enum err_code chunk_new(struct engine *g, int device, int64_t size, bool zero, bool must,
                        struct chunk **ret, struct err *e) must_check;
/* The same in host memory, for arrays of that device, even if the keeper cannot get it. */
enum err_code chunk_new_host(struct engine *g, int device, int64_t size, struct chunk **ret,
                             struct err *e) must_check;
/* Releases it, and the keeper's part in it. May take long. */
void chunk_free(struct engine *g, struct chunk *c);

/* A piece of a chunk, or (`another`) of a new one: `size` bytes at *ret_data. chunk_paste gives it
 * back. ERR_OUT_OF_MEMORY, ERR_OVERLOADED as above. */
enum err_code chunk_cut(struct engine *g, int device, int64_t size, bool zero, bool another,
                        struct chunk **ret, void **ret_data, struct err *e) must_check;
void chunk_paste(struct engine *g, struct chunk *c, void *data, int64_t size);

/* Moving pieces together (gather.c), so that fewer chunks hold them. chunks_gather: whether there
 * are holes for that; no piece counts as movable yet. chunk_count: one more does. chunk_close: how
 * many pieces the chunk has that has the least, if all of them are movable and may fit into the
 * others' holes; nothing is cut from it until chunks_open, and *ret is there only to be compared:
 * it may be empty, and gone. 0: none. */
bool chunks_gather(struct engine *g, int device);
void chunk_count(struct chunk *c, int64_t size);
uint32_t chunk_close(struct engine *g, int device, const struct chunk **ret);
int64_t chunk_size(const struct engine *g);
void chunks_open(struct engine *g, int device);

/* Takes over a chunk of a previous process (ERR_STATE: there is certainly no such memory;
 * any other error: it cannot be mapped now); chunk_adopted: the one of that number, if
 * that place of it is free, which is then taken; NULL otherwise.
 * chunks_adopted gives back those of which nobody took anything. Nothing else is going on. */
enum err_code chunk_adopt(struct engine *g, uint64_t number, int device, const int *fds, int n,
                          int64_t size, struct err *e) must_check;
struct chunk *chunk_adopted(struct engine *g, const struct engine_place *place);
void chunks_adopted(struct engine *g);

/* --- limits (keep.c) --- */

struct storage;

/* An array beyond the limit does not outlive the process; or `n` are used now, and there is room
 * again if those are not only one or two less. */
void keep_limit_reached(struct engine *g, enum keep_limit which);
void keep_limit_left(struct engine *g, enum keep_limit which, int64_t n, int64_t most);
/* Storage that is complete, and what it lies in, count for its account's owner, and it gets a cell;
 * until keep_end. keep_chunk_unused: nothing lies in the chunk any more. */
/* The limit of which the owner has a share already; KEEP_LIMITS: none. */
enum keep_limit keep_share(const struct engine *g, const struct account *a);
void keep_begin(struct storage *st);
void keep_end(struct storage *st);
void keep_passes(struct storage *st, struct account *to); /* which is about to be its account */
void keep_chunk_unused(struct engine *g, struct chunk *c);

struct chunk_figures {
    /* that the keeper has, those kept for reuse included; each counts for as many as it has parts
     */
    int64_t chunks, bytes;
};
void chunk_figures(const struct engine *g, struct chunk_figures *ret);

#endif
