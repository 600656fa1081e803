/* The table of routes: method, path, what happens to the body, handler, name in metrics. */
#include "server/handlers.h"
#include "server/http.h"
#include "server/metrics.h"

const struct route route_table[] = {
    {"GET", "/healthz", BODY_NONE, service_healthz, "/healthz"},
    {"GET", "/readyz", BODY_NONE, service_readyz, "/readyz"},
    {"GET", "/metrics", BODY_NONE, metrics_get, "/metrics"},
};
const size_t route_count = sizeof route_table / sizeof *route_table;
