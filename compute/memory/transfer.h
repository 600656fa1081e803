/* Contents in transit: what a task fetches for its caller (transfer.c), and moves between device
 * and host memory (move.c).
 *
 * For the engine's own files. Callbacks and their threads: engine.h. */
#ifndef ARRAYD_TRANSFER_H
#define ARRAYD_TRANSFER_H

#include "compute/memory/task.h"

/* Ends a transfer (or none); drops the storage's reference once no copy uses it. */
void transfer_end(struct transfer *t, struct storage *take_st);
/* With the lock held: a download of the first n bytes of a storage that the task, not yet
 * submitted, writes. It takes over the task's done and calls it after its own; download_undo if the
 * task is not submitted or fails at once. */
enum err_code download_of_task(struct task *t, struct storage *st, int64_t n,
                               void (*wake)(void *user), void *user, struct download **ret,
                               struct err *e) must_check;
void download_undo(struct download *d); /* NULL allowed */

/* With the lock held, before anything else that needs it: if fetch_add, or (`writes`)
 * fetch_to_write, will want memory, makes it, which may take long: without the lock. Whoever comes
 * in between may change that; then it is made later, with the lock held. ERR_OUT_OF_MEMORY,
 * ERR_QUOTA. */
enum err_code fetch_room(struct task *t, struct buffer *b, bool writes, struct err *e) must_check;
/* With the lock held, before task_reserve: if the buffer's contents are in host memory, allocates
 * room on the device, where all later work finds them. t->fetch copies them there, which
 * fetch_submit submits before the task; or (`contents` false) the task writes them, as a fresh
 * write. If the task does not run after all: fetch_undo; moves already submitted stand.
 * ERR_OUT_OF_MEMORY. */
enum err_code fetch_add(struct task *t, struct buffer *b, bool contents, struct err *e) must_check;
/* The same before the task writes the buffer in place: memory that can only be read is left, too.
 * Also ERR_CONFLICT: another process reads it there. */
enum err_code fetch_to_write(struct task *t, struct buffer *b, bool contents,
                             struct err *e) must_check;
enum err_code fetch_submit(struct task *t, struct err *e) must_check;
void fetch_undo(struct task *t);

struct mover *mover_new(struct engine *g); /* NULL without memory */
void mover_stop(struct mover *m);          /* no more evictions; ends its thread */
void mover_free(struct mover *m);
/* With the lock held: the task, not yet submitted, copies the buffer's contents to `take_to`, which
 * becomes the buffer's storage; false: no memory, nothing has happened and `take_to` is released.
 */
bool move_add(struct task *t, struct buffer *b, struct storage *take_to);
/* Queues a move that the task was made for. *ret_moved false: the contents are in that kind of
 * memory already or (`out_of`) not in that chunk any more, or (`idle`) they are in use; the task's
 * done is not called then. */
enum err_code move_submit(struct task *take_t, struct buffer *b, struct storage *take_to,
                          const struct chunk *out_of, bool idle, bool *ret_moved,
                          struct err *e) must_check;

/* Moves small arrays from chunks that have few to the holes of others, until about `bytes` will be
 * free: adds to v->out what that gives back, and to v->pending the calls of `done` for it. After
 * chunks_gather, on the mover's thread. gather_over: after the last of these calls. */
void gather(struct engine_stream *s, struct eviction *v, int64_t bytes, engine_done *done);
void gather_over(struct eviction *v);

#endif
