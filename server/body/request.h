/* What the handlers and the readers of bodies need from a request: its query and Accept, its JSON
 * body, its session and arrays, and the rights to them.
 *
 * Results belong to the request's arena, except references to sessions and handles, which are the
 * caller's. Used by the thread that works on the request. */
#ifndef ARRAYD_SERVER_REQUEST_H
#define ARRAYD_SERVER_REQUEST_H

#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/http/wakeup.h"
#include "server/store/lease.h"
#include "server/store/lease_use.h"
#include "server/store/session.h"
#include "server/store/share.h"

/* No query parameters at all, and the client accepts JSON: ERR_BAD_QUERY, ERR_NOT_ACCEPTABLE. */
enum err_code request_plain(struct request *req, struct err *e) must_check;
/* Only the check of Accept. */
enum err_code request_accepts_json(struct request *req, struct err *e) must_check;

/* Replies with the error of `f`, if any; otherwise `f` has replied, or the request continues
 * later. */
void request_try(struct request *req, enum err_code (*f)(struct request *req, struct err *e));

/* The request's state: `size` zeroed bytes, passed to `release` after the reply. NULL: there is no
 * memory, and the reply has been sent (ERR_OUT_OF_MEMORY). */
void *request_begin(struct request *req, size_t size, void (*release)(void *state));

/* The buffered body as an object; `optional`: an empty body is an absent value. Errors as
 * media_require_json and json_parse; ERR_BAD_FIELD if it is not an object. */
enum err_code request_body(struct request *req, bool optional, struct json *ret,
                           struct err *e) must_check;

/* The configured limits of JSON bodies. */
struct json_limits request_json_limits(const struct request *req);

/* The session of the request and the handle that path parameter 0 names, whose memory will be used
 * as `access` says (ERR_LOCKED). On failure neither needs releasing. */
enum err_code request_array(struct request *req, enum lease_access access, struct session **ret_s,
                            struct handle *ret_h, struct err *e) must_check;
/* The same for an array of the principal's own: principals it is shared with may not do this
 * (ERR_FORBIDDEN). */
enum err_code request_own_array(struct request *req, enum lease_access access,
                                struct session **ret_s, struct handle *ret_h,
                                struct err *e) must_check;

/* The arrays that the request may name, in a session. A read-only link does not pass on what others
 * share with its owner. */
struct array_scope request_scope(const struct request *req, const struct session *s);
/* The array that `ref` names for the request in a session, including other principals' shared
 * arrays. */
enum err_code request_find(struct request *req, struct session *s, const char *ref,
                           struct handle *ret, struct err *e) must_check;
/* The request's claim to leased arrays. */
struct lease_claim request_claim(struct request *req);
enum err_code request_leased(struct request *req, const struct array *a, enum lease_access access,
                             struct err *e) must_check;

/* A move to host memory or back that the request waits for: it continues in `then`, which takes the
 * outcome by request_moved. On failure it does not. */
struct request_move {
    struct wakeup wakeup;
    double device_ms;   /* set before the result */
    _Atomic int result; /* enum err_code */
};
enum err_code request_move(struct request *req, struct request_move *m, struct engine_stream *s,
                           struct array *a, bool to_host, handler_fn *then,
                           struct err *e) must_check;
enum err_code request_moved(struct request *req, const struct request_move *m,
                            struct err *e) must_check;

/* For work that writes to an array after the reply (engine_done; user: NULL): failures are only
 * logged. */
void request_work_done(void *user, enum err_code result, double device_ms);

/* How kernels ran (bits of enum tier), in a word for clients; NULL: unknown, or on a backend
 * without tiers. */
const char *request_tiers(unsigned tiers);

#endif
