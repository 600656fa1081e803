/* Room on a device for a request that found none: with "evict" in the configuration, the arrays
 * used longest ago move to host memory, and the request tries again.
 *
 * Handlers that failed are repeated as a whole (room_make, called by http_reply.c); who has taken a
 * body already repeats a step (room_retry), or, in the middle of the body, waits himself
 * (room_ask). No thread waits: the engine does the moving and tells. */
#ifndef ARRAYD_SERVER_ROOM_H
#define ARRAYD_SERVER_ROOM_H

#include <stdbool.h>

#include "compute/base/err.h"
#include "server/http.h"

/* True where the error says that a device was full, and something may be done about it: the request
 * goes on in `again` (http_wait), which tries once more and asks again where it fails again. */
bool room_retry(struct request *req, const struct err *e, handler_fn *again);
/* http_config.make_room: with the whole handler. */
bool room_make(struct request *req, const struct err *e);

/* The same for who waits in his own way: true: `wake` will be told once, by any thread, unless
 * the request ends before; then room_answer. Nothing else may ask for the request meanwhile. */
bool room_ask(struct request *req, const struct err *e, void (*wake)(void *user), void *user);
enum room_answer { ROOM_WAIT, ROOM_MADE, ROOM_NONE };
enum room_answer room_answer(const struct request *req);

void room_free(struct room *room); /* with its request */

#endif
