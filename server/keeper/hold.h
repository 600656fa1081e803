/* The daemon's side of the keeper: descriptors that outlive this process.
 *
 * What is put here is held by the keeper until it is dropped, and given to the next daemon if this
 * one dies. A put is answered: when it returns ERR_OK, the keeper has the descriptor. A drop is
 * not. Without a keeper (--no-keeper) there is no struct hold, and nothing outlives the process.
 *
 * Opened by main.c; used by the rooms that own what is worth keeping. Thread-safe, except where
 * noted; puts wait for each other. */
#ifndef ARRAYD_KEEPER_HOLD_H
#define ARRAYD_KEEPER_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"

struct hold;

/* Whether this process was started by a keeper. Before hold_open. */
bool hold_expected(void);
/* Receives what the processes before left, and waits until they have ended. *ret NULL: this process
 * has no keeper. If the keeper dies later, this process ends at once: so one process at a time
 * writes to what is held. ERR_INTERNAL: no keeper answers, or one of them does not end;
 * ERR_OVERLOADED, ERR_OUT_OF_MEMORY. */
enum err_code hold_open(struct hold **ret, struct err *e) must_check;
void hold_close(struct hold *h); /* NULL allowed */

/* The descriptor of that name that the previous process left; the caller's from now on, and still
 * held. −1: none, or it was taken already. NULL allowed. */
int hold_take(struct hold *h, const char *name);
/* The first name left by it, and not taken yet, that begins with `prefix`; NULL: none. Valid until
 * it is taken. NULL allowed. */
const char *hold_next(struct hold *h, const char *prefix);
/* Drops whatever was left and not taken. NULL allowed. */
void hold_drop_rest(struct hold *h);

/* Holds the descriptor (which stays the caller's, too), in place of one of that name: not one that
 * was taken, which is held still, and which a service manager does not store a second time.
 * ERR_OVERLOADED: the system allows no more descriptors, or the keeper does not answer within some
 * seconds (it is stopped, say), and from then on until it does; what had that name is still held.
 */
enum err_code hold_put(struct hold *h, const char *name, int fd, struct err *e) must_check;
/* The same for one of many: the keeper's last descriptors are not for these. */
enum err_code hold_add(struct hold *h, const char *name, int fd, struct err *e) must_check;
void hold_drop(struct hold *h, const char *name); /* h NULL allowed */
/* Requests are answered from now on; what could not be taken over, for `arrayd upgrade`: at most
 * LINK_NAME bytes. NULL allowed. */
void hold_ready(struct hold *h, const char *missing);
/* The last processes before this one, as far as their numbers are nobody else's now; 0 at the end.
 */
const int *hold_before(const struct hold *h);
/* Whether a previous process left anything. NULL allowed. */
bool hold_inherited(const struct hold *h);
/* How often the keeper has started a daemon again. 0 without a keeper. */
int hold_restarts(const struct hold *h);
/* The signal that the previous process died of; 0: it did not, or there was none. NULL allowed. */
int hold_signal(const struct hold *h);
/* When it ended, in seconds of Unix time; 0: not known. */
int64_t hold_ended(const struct hold *h);

#endif
