/* The arrays' memory with the keeper: what its chunks are called there, and how they are found
 * again.
 *
 * A chunk's name says all that the engine needs to map it: "chunk.N.BACKEND.DEVICE.BYTES". One of
 * the mesh has a name for each of its parts, with the GPU that this lies on as the device, and
 * ".PART.PARTS" at the end: what number the mesh has, and which GPUs in which order, may be another
 * in the next process.
 *
 * Called by server/survive.c. Thread-safe, once it has the engine, except where noted. */
#ifndef ARRAYD_SERVER_HELD_CHUNKS_H
#define ARRAYD_SERVER_HELD_CHUNKS_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"

#define HELD_CHUNKS  "chunk." /* all names begin so */
#define HELD_BACKEND 16

struct engine;
struct held_chunks;
struct hold;

struct held_chunks *held_chunks_new(struct hold *hold); /* NULL without memory */
void held_chunks_free(struct held_chunks *c);           /* NULL allowed */

/* Before the rest: the backend whose chunks were left, "" for none; lets go of all that were left.
 */
void held_chunks_backend(const struct held_chunks *c, char ret[HELD_BACKEND]);
void held_chunks_discard(struct held_chunks *c);

/* Whose chunks these are. */
void held_chunks_engine(struct held_chunks *c, struct engine *g);
/* engine_keep's put and drop. ERR_OVERLOADED, ERR_OUT_OF_MEMORY: the keeper has nothing of it.
 * `stays`: the keeper still has it. */
enum err_code held_chunks_put(struct held_chunks *c, uint64_t number, int device, int64_t size,
                              const int *fds, int n, struct err *e) must_check;
void held_chunks_drop(struct held_chunks *c, uint64_t number, bool stays);
/* Has the engine map all that were left. What is certainly no memory is dropped. Any other failure
 * may have passed by the next start, so it ends this one, and the keeper still has all of it.
 * Single thread. */
enum err_code held_chunks_adopt(struct held_chunks *c, struct err *e) must_check;
/* Whether one of the mesh's was put or adopted. */
bool held_chunks_of_mesh(const struct held_chunks *c);

#endif
