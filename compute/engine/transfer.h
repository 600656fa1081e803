/* Contents on their way: what a task fetches for its caller (transfer.c), and what moves between
 * the memory of the device and the host's (move.c).
 *
 * For the engine's own files. Who is told what, on which thread: engine.h. */
#ifndef ARRAYD_TRANSFER_H
#define ARRAYD_TRANSFER_H

#include "compute/engine/task.h"

/* Ends a transfer (or none); the storage's reference goes when no copy uses it. */
void transfer_end(struct transfer *t, struct storage *take_st);
/* With the lock held: a download of the first n bytes of a storage that the task, which is still
 * to be submitted, writes. It takes the task's done, which is told after it; download_undo where
 * the task is not submitted or fails at once. */
enum err_code download_of_task(struct task *t, struct storage *st, int64_t n,
                               void (*wake)(void *user), void *user, struct download **ret,
                               struct err *e) must_check;
void download_undo(struct download *d); /* NULL allowed */

/* With the lock held, before task_reserve: where the buffer's contents are in host memory, there is
 * room for them on the device, where they are for all later work: brought by t->fetch, which
 * fetch_submit submits before the task, or (`contents` false) written by the task, as a fresh
 * write. Where nothing comes of either: fetch_undo; what has been submitted stands.
 * ERR_OUT_OF_MEMORY. */
enum err_code fetch_add(struct task *t, struct buffer *b, bool contents, struct err *e) must_check;
enum err_code fetch_submit(struct task *t, struct err *e) must_check;
void fetch_undo(struct task *t);

struct mover *mover_new(struct engine *g); /* NULL without memory */
void mover_stop(struct mover *m);          /* no more evictions; ends its thread */
void mover_free(struct mover *m);
/* With the lock held: the task, which is to be submitted, copies the buffer's contents to
 * `take_to`, which becomes its storage; false: without memory, nothing has happened and `take_to`
 * is gone. */
bool move_add(struct task *t, struct buffer *b, struct storage *take_to);

#endif
