/* Streams of Server-Sent Events: handlers of their routes.
 *
 * Called through the table of routes. Each reply is an http_source that stays open: events.h is
 * what they have in common. Handlers are stateless; a stream belongs to its request. */
#ifndef ARRAYD_SERVER_LIVE_H
#define ARRAYD_SERVER_LIVE_H

#include "server/http/http.h"

handler_fn job_events_get;   /* GET /v1/jobs/{id}/events */
handler_fn array_events_get; /* GET /v1/arrays/{ref}/events */
handler_fn list_events_get;  /* GET /v1/events */

#endif
