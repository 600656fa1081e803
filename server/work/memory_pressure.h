/* A device is full and a request found no memory on it: it waits for what work under way gives back
 * and, with "evict" in the configuration, for the arrays used longest ago to move to host memory;
 * then it tries again.
 *
 * A handler that failed is repeated as a whole (memory_pressure_repeat, by way of
 * http_calls.retry); one that has taken a body already repeats a step (memory_pressure_retry) or,
 * in the middle of the body, does its own waiting (memory_pressure_ask). No thread waits: the
 * engine moves the arrays and tells. */
#ifndef ARRAYD_SERVER_MEMORY_PRESSURE_H
#define ARRAYD_SERVER_MEMORY_PRESSURE_H

#include <stdbool.h>

#include "compute/base/err.h"
#include "server/http/http.h"

/* True where the error says that a device was full, and something may be done about it: the request
 * goes on in `again` (http_wait), which tries once more and asks again where it fails again. */
bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again);
/* http_calls.retry: with the whole handler. */
bool memory_pressure_repeat(struct request *req, const struct err *e);

/* The same for a handler that waits in its own way: true: `wake` will be told once, by any thread,
 * unless the request ends before; then memory_pressure_answered, and it is time to try again.
 * Nothing else may ask for the request meanwhile. */
bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user);
bool memory_pressure_answered(const struct request *req);

void memory_pressure_free(struct memory_pressure *p); /* with its request */

#endif
