/* The table of routes: method, path, how the body is read, handler, name in metrics, required
 * role. */
#include "server/api/handlers.h"
#include "server/http/http.h"

const struct route route_table[] = {
    {"GET", "/healthz", BODY_NONE, service_healthz, "/healthz", ACCESS_ANYBODY},
    {"GET", "/readyz", BODY_NONE, service_readyz, "/readyz", ACCESS_ANYBODY},
    {"GET", "/metrics", BODY_NONE, metrics_get, "/metrics", ACCESS_OPERATOR},
    {"GET", "/openapi.json", BODY_NONE, service_openapi, "/openapi.json", ACCESS_ANYBODY},
    {"GET", "/v1/info", BODY_NONE, service_info, "/v1/info"},

    {"POST", "/v1/sessions", BODY_OPTIONAL, session_post, "/v1/sessions"},
    {"GET", "/v1/sessions", BODY_NONE, session_list_get, "/v1/sessions"},
    {"GET", "/v1/sessions/{id}", BODY_NONE, session_one_get, "/v1/sessions/{id}"},
    {"DELETE", "/v1/sessions/{id}", BODY_NONE, session_one_delete, "/v1/sessions/{id}"},
    {"POST", "/v1/sessions/{id}/sync", BODY_NONE, session_sync_post, "/v1/sessions/{id}/sync"},

    {"POST", "/v1/arrays", BODY_STREAM, array_create, "/v1/arrays"},
    {"GET", "/v1/arrays", BODY_NONE, array_list_get, "/v1/arrays"},
    {"PUT", "/v1/arrays/{ref}", BODY_STREAM, array_create, "/v1/arrays/{ref}"},
    {"GET", "/v1/arrays/{ref}", BODY_NONE, array_get, "/v1/arrays/{ref}"},
    {"PATCH", "/v1/arrays/{ref}", BODY_BUFFERED, array_patch, "/v1/arrays/{ref}", .works = true},
    {"DELETE", "/v1/arrays/{ref}", BODY_NONE, array_delete, "/v1/arrays/{ref}"},
    {"POST", "/v1/arrays/{ref}/resize", BODY_BUFFERED, array_resize, "/v1/arrays/{ref}/resize",
     .works = true},
    {"POST", "/v1/arrays/{ref}/views", BODY_BUFFERED, array_views_post, "/v1/arrays/{ref}/views"},
    {"POST", "/v1/arrays/{ref}/copy", BODY_OPTIONAL, array_copy, "/v1/arrays/{ref}/copy",
     .works = true},
    {"POST", "/v1/arrays/{ref}/swap", BODY_BUFFERED, array_swap, "/v1/arrays/{ref}/swap"},
    {"POST", "/v1/arrays/{ref}/fill_ghost", BODY_OPTIONAL, array_fill_ghost,
     "/v1/arrays/{ref}/fill_ghost", .works = true},
    {"POST", "/v1/arrays/{ref}/shares", BODY_BUFFERED, array_share_post, "/v1/arrays/{ref}/shares"},
    {"GET", "/v1/arrays/{ref}/shares", BODY_NONE, array_share_list, "/v1/arrays/{ref}/shares"},
    {"DELETE", "/v1/arrays/{ref}/shares/{principal}", BODY_NONE, array_share_delete,
     "/v1/arrays/{ref}/shares/{principal}"},
    {"POST", "/v1/arrays/{ref}/lease", BODY_BUFFERED, array_lease_post, "/v1/arrays/{ref}/lease"},
    {"DELETE", "/v1/arrays/{ref}/lease", BODY_NONE, array_lease_delete, "/v1/arrays/{ref}/lease"},
    {"POST", "/v1/arrays/{ref}/export", BODY_BUFFERED, array_export_post,
     "/v1/arrays/{ref}/export"},
    {"GET", "/v1/arrays/{ref}/data", BODY_NONE, data_get, "/v1/arrays/{ref}/data"},
    {"GET", "/v1/arrays/{ref}/summary", BODY_NONE, summary_get, "/v1/arrays/{ref}/summary",
     .works = true},
    {"PUT", "/v1/arrays/{ref}/data", BODY_STREAM, data_put, "/v1/arrays/{ref}/data"},

    {"POST", "/v1/snapshot", BODY_OPTIONAL, snapshot_post, "/v1/snapshot", ACCESS_OPERATOR},
    {"GET", "/v1/faults", BODY_NONE, faults_get, "/v1/faults", ACCESS_OPERATOR},
    {"DELETE", "/v1/faults", BODY_NONE, faults_delete, "/v1/faults", ACCESS_OPERATOR},
    {"DELETE", "/v1/faults/{which}", BODY_NONE, fault_delete, "/v1/faults/{which}",
     ACCESS_OPERATOR},

    {"POST", "/v1/layouts", BODY_BUFFERED, layouts_post, "/v1/layouts"},

    {"POST", "/v1/evaluate", BODY_BUFFERED, evaluate_post, "/v1/evaluate", .works = true},
    {"POST", "/v1/explain", BODY_BUFFERED, explain_post, "/v1/explain"},

    {"POST", "/v1/programs", BODY_BUFFERED, program_post, "/v1/programs"},
    {"GET", "/v1/jobs", BODY_NONE, job_list_get, "/v1/jobs"},
    {"GET", "/v1/jobs/{id}", BODY_NONE, job_get, "/v1/jobs/{id}"},
    {"DELETE", "/v1/jobs/{id}", BODY_NONE, job_delete, "/v1/jobs/{id}"},
    {"GET", "/v1/jobs/{id}/events", BODY_NONE, job_events_get, "/v1/jobs/{id}/events"},
    {"POST", "/v1/jobs/{id}/resume", BODY_OPTIONAL, job_resume_post, "/v1/jobs/{id}/resume"},

    {"POST", "/v1/functions", BODY_BUFFERED, function_post, "/v1/functions"},
    {"GET", "/v1/functions", BODY_NONE, function_list_get, "/v1/functions"},
    {"PUT", "/v1/functions/{name}", BODY_BUFFERED, function_put, "/v1/functions/{name}"},
    {"GET", "/v1/functions/{name}", BODY_NONE, function_get, "/v1/functions/{name}"},
    {"DELETE", "/v1/functions/{name}", BODY_NONE, function_delete, "/v1/functions/{name}"},
};
const size_t route_count = sizeof route_table / sizeof *route_table;
