/* Metadata as JSON: how an array, and a moment, look in replies.
 *
 * Called by the handlers. Pure but for reference counts read from the array; thread-safe. */
#ifndef ARRAYD_SERVER_META_H
#define ARRAYD_SERVER_META_H

#include <stdint.h>

#include "compute/base/strb.h"
#include "server/handles.h"
#include "server/http.h"

/* The metadata object of GET /v1/arrays/{ref}. */
void meta_add(struct strb *out, const struct handle *h);

/* Replies with it; 201 gets `Location: /v1/arrays/{id}`. */
void meta_reply(struct request *req, int status, const struct handle *h);

/* "2026-01-31T12:00:00.123Z" with its quotes. */
void meta_add_time(struct strb *out, int64_t us);

#endif
