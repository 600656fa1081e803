/* The handlers that routes.c names, and the few things they all do with a request.
 *
 * A handler checks in this order: query, Accept, session and {ref}, body; it changes something only
 * when nothing can fail any more. */
#ifndef ARRAYD_SERVER_HANDLERS_H
#define ARRAYD_SERVER_HANDLERS_H

#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/store/lease.h"
#include "server/store/lease_use.h"
#include "server/store/session.h"
#include "server/store/share.h"

/* routes.c */
extern const struct route route_table[];
extern const size_t route_count;

/* handlers_service.c */
handler_fn service_healthz, service_readyz, service_info, service_openapi;

/* handlers_sessions.c */
handler_fn session_post, session_list_get, session_one_get, session_one_delete, session_sync_post;

/* handlers_arrays.c */
handler_fn array_list_get, array_get, array_patch, array_delete, array_resize, array_copy,
    array_swap;

/* handlers_views.c */
handler_fn array_views_post;

/* handlers_shares.c */
handler_fn array_lease_post, array_lease_delete, array_share_post, array_share_list,
    array_share_delete;

/* handlers_export.c */
handler_fn array_export_post;

/* handlers_grid.c */
handler_fn layouts_post, array_fill_ghost;

/* handlers_functions.c */
handler_fn function_post, function_put, function_list_get, function_get, function_delete;

/* handlers_jobs.c, handlers_events.c */
handler_fn program_post, job_list_get, job_get, job_delete, job_resume_post, job_events_get;

/* handlers_state.c */
handler_fn snapshot_post;

/* handlers_create.c: POST /v1/arrays and PUT /v1/arrays/{ref}, streamed */
handler_fn array_create;

/* --- what they share (handler_util.c) --- */

/* No query parameters at all, and a client that takes JSON: ERR_BAD_QUERY, ERR_NOT_ACCEPTABLE. */
enum err_code handler_plain(struct request *req, struct err *e) must_check;
/* The Accept half of it. */
enum err_code handler_accepts_json(struct request *req, struct err *e) must_check;

/* The request's state: `size` zeroed bytes, which `release` is called with when the request has
 * been answered. NULL: there is no memory, and it has been answered so (ERR_OUT_OF_MEMORY). */
void *handler_begin(struct request *req, size_t size, void (*release)(void *state));

/* The buffered body as an object; `optional`: an empty body is an absent value. Errors as
 * media_require_json and json_parse; ERR_BAD_FIELD when it is not an object. */
enum err_code handler_body(struct request *req, bool optional, struct json *ret,
                           struct err *e) must_check;

/* The configured limits of JSON bodies. */
struct json_limits handler_json_limits(const struct request *req);

/* ?limit= and ?after= of a list. `after` is the number of the last entry of the page before. */
struct page {
    uint64_t after;
    size_t limit;
};
enum err_code handler_page(struct request *req, struct page *ret, struct err *e) must_check;

/* The session of the request and the handle that path parameter 0 names, whose memory is going to
 * be used as `access` says (ERR_LOCKED). On failure neither needs
 * releasing. */
enum err_code handler_array(struct request *req, enum lease_access access, struct session **ret_s,
                            struct handle *ret_h, struct err *e) must_check;
/* The same of an array that is the principal's own: what is done with it is not the business of
 * those it is shared with (ERR_FORBIDDEN). */
enum err_code handler_own_array(struct request *req, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h,
                                struct err *e) must_check;
enum err_code handler_owned(const struct handle *h, struct err *e) must_check;
/* Whose arrays the request may name, in a session. */
struct array_scope handler_scope(const struct request *req, const struct session *s);
/* What `ref` means to the request in a session, others' shared arrays included. */
enum err_code handler_find(struct request *req, struct session *s, const char *ref,
                           struct handle *ret, struct err *e) must_check;
/* What the request may do with leased arrays. */
struct lease_claim handler_claim(struct request *req);
enum err_code handler_leased(struct request *req, const struct array *a, enum lease_access access,
                             struct err *e) must_check;

/* ERR_READ_ONLY. */
enum err_code handler_writable(const struct handle *h, struct err *e) must_check;

/* For work that writes to an array and is not waited for (engine_done; user: NULL): what fails
 * after its reply is logged, nobody else hears of it. */
void handler_work_done(void *user, enum err_code result, double device_ms);

/* The optional member "name": NULL when there is none, else checked. ERR_BAD_NAME with a place. */
enum err_code handler_name(struct json body, const char **ret, struct err *e) must_check;
/* The optional member "location": 1 for the host, 0 for the device, untouched when there is none.
 */
enum err_code handler_location(struct json body, int *ret_host, struct err *e) must_check;

#endif
