/* A request found a device's memory full: it waits until work in flight returns memory and, with
 * "evict" in the configuration, until the least recently used arrays have moved to host memory;
 * then it tries again.
 *
 * A failed handler is repeated as a whole (memory_pressure_repeat, through http_calls.retry); one
 * that has taken a body repeats a step (memory_pressure_retry) or, in the middle of the body, waits
 * by itself (memory_pressure_ask). No thread waits: the engine moves the arrays and calls back. */
#ifndef ARRAYD_SERVER_MEMORY_PRESSURE_H
#define ARRAYD_SERVER_MEMORY_PRESSURE_H

#include <stdbool.h>

#include "compute/base/err.h"
#include "server/http/http.h"

/* True if the error says that a device was full and another try may help: the request continues in
 * `again` (http_wait), which tries once more and, after another failure, calls this again. */
bool memory_pressure_retry(struct request *req, const struct err *e, handler_fn *again);
/* http_calls.retry: repeats the whole handler. */
bool memory_pressure_repeat(struct request *req, const struct err *e);

/* For a handler that waits in its own way. True: any thread calls `wake` once, unless the request
 * ends before; then memory_pressure_answered is true, and the handler should try again. Nothing
 * else may ask for the request meanwhile. */
bool memory_pressure_ask(struct request *req, const struct err *e, void (*wake)(void *user),
                         void *user);
bool memory_pressure_answered(const struct request *req);

void memory_pressure_free(struct memory_pressure *p); /* at the request's end */

#endif
