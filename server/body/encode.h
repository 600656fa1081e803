/* Results inside the reply: {"dtype","shape","value"} and {"dtype","shape","data"}.
 *
 * Called by handlers_evaluate.c and handlers_statements.c. Memory is the request's; waits for the
 * device without blocking. */
#ifndef ARRAYD_SERVER_ENCODE_H
#define ARRAYD_SERVER_ENCODE_H

#include "compute/engine/engine.h"
#include "protocol/json/json_writer.h"
#include "server/http/http.h"

/* Replies 200 with the array as it is now: its `value` when it is 0-d, else its `data`. The array
 * must be small enough to be held in memory (max_inline). Uses req->state. */
void encode_reply(struct request *req, struct engine_stream *stream, struct array *take_a);

/* Writes the object; `bytes` are the elements of `v`, which is contiguous. */
void encode_put(struct json_writer *w, enum dtype dtype, const struct view *v, const void *bytes);

#endif
