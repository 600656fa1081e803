/* Room on a device for a request that found none: what work under way gives back, and, with "evict"
 * in the configuration, that of the arrays used longest ago, which move to host memory; then the
 * request tries again.
 *
 * Handlers that failed are repeated as a whole (memory_pressure_repeat, called by http_reply.c);
 * who has taken a body already repeats a step (memory_pressure_retry), or, in the middle of the
 * body, waits himself (memory_pressure_ask). No thread waits: the engine does the moving and tells.
 */
#ifndef ARRAYD_SERVER_MEMORY_PRESSURE_H
#define ARRAYD_SERVER_MEMORY_PRESSURE_H

#include <stdbool.h>

#include "compute/base/err.h"
#include "server/http/http.h"

/* True where the error says that a device was full, and something may be done about it: the request
 * goes on in `again` (http_wait), which tries once more and asks again where it fails again. */
bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again);
/* http_config.make_room: with the whole handler. */
bool memory_pressure_repeat(struct request *req, const struct err *e);

/* The same for who waits in his own way: true: `wake` will be told once, by any thread, unless
 * the request ends before; then memory_pressure_answered, and it is time to try again. Nothing else
 * may ask for the request meanwhile. */
bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user);
bool memory_pressure_answered(const struct request *req);

void memory_pressure_free(struct memory_pressure *room); /* with its request */

#endif
