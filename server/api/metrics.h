/* Counters of the HTTP front, and GET /metrics.
 *
 * http*.c count; the handler writes them together with the engine's and the sessions' figures in
 * Prometheus' text format 0.0.4. Counters are relaxed atomics: no locks, any thread. */
#ifndef ARRAYD_SERVER_METRICS_H
#define ARRAYD_SERVER_METRICS_H

#include <stdint.h>

#include "compute/base/strb.h"
#include "server/http/http.h"

struct metrics;
struct principal;

/* For these routes; NULL without memory. */
struct metrics *metrics_new(const struct route *table, size_t n);
void metrics_free(struct metrics *m);

/* Counts a request that has ended. `route` NULL: none matched; `who` NULL: it was not
 * authenticated. Status 0: no reply could be sent. */
void metrics_request(struct metrics *m, const struct route *route, struct principal *who,
                     int status, double seconds, int64_t bytes_in, int64_t bytes_out);

/* metrics_principal.c */
void metrics_principals(struct server *server, struct strb *out);

void metrics_write(struct metrics *m, struct server *server, struct strb *out);

#endif
