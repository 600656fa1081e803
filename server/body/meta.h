/* Metadata as JSON: arrays and times in replies, and the members of a body that set an array's
 * properties.
 *
 * Called by the handlers and by the readers of bodies. Pure but for reference counts read from the
 * array, and for looking up coordinates; thread-safe. */
#ifndef ARRAYD_SERVER_META_H
#define ARRAYD_SERVER_META_H

#include <stdint.h>

#include "protocol/json/json.h"
#include "protocol/json/json_writer.h"
#include "server/http/http.h"
#include "server/labels/labels_read.h"
#include "server/store/handles.h"

struct session;

/* Writes the metadata object of GET /v1/arrays/{ref} as one value. `brief`: for a list, without
 * what may be long (labels_put). */
void meta_put(struct json_writer *w, const struct handle *h, bool brief);

/* The same of GET /v1/sessions/{id}. */
void meta_put_session(struct json_writer *w, const struct session *s);

/* Replies with this object; 201 adds `Location: /v1/arrays/{id}`. */
void meta_reply(struct request *req, int status, const struct handle *h);

/* For requests that change something: reserves the memory before, so that a change is never
 * followed by an error for want of memory. `labels`: bytes of the array's (labels_size). `located`:
 * with Location. */
enum err_code meta_reserve(struct strb *ret, size_t labels, struct err *e) must_check;
/* Gives the arrays handles and replies with the last one's metadata, 201 or, where it replaced
 * another, 200. */
enum err_code meta_reply_added(struct request *req, struct session *s,
                               const struct handle_new *list, size_t n, struct err *e) must_check;
void meta_reply_reserved(struct request *req, int status, const struct handle *h, bool located,
                         struct strb *take);

/* A member "key": "2026-01-31T12:00:00.123Z". */
void meta_put_time(struct json_writer *w, const char *key, int64_t us);

/* The optional member "name": NULL if absent, else checked. ERR_BAD_NAME with a place. */
enum err_code meta_name(struct json body, const char **ret, struct err *e) must_check;
/* The optional members "attrs", "coords", "dims" and "units", or the query's parameters of these
 * names, whose errors have no place; coordinates are among the session's arrays. */
enum err_code meta_labels(struct request *req, struct session *s, struct json body,
                          struct labels_patch *ret, struct err *e) must_check;
enum err_code meta_labels_of_query(struct request *req, struct session *s, struct labels_patch *ret,
                                   struct err *e) must_check;
/* The member `name`, "read" or "write". */
enum err_code meta_access(struct json body, const char *name, bool *ret_write,
                          struct err *e) must_check;
/* The optional member "placement" of a new array, or the query's parameter, whose errors have no
 * place: whether all of it lies on one device or is divided among those that the session's consists
 * of. ERR_UNSUPPORTED_PLACEMENT. */
struct meta_placement {
    bool given, apart, from_query;
    int axes; /* that were listed */
};
enum err_code meta_placement(const struct request *req, const struct session *s, struct json body,
                             struct meta_placement *ret, struct err *e) must_check;
enum err_code meta_placement_of_query(struct request *req, const struct session *s,
                                      struct meta_placement *ret, struct err *e) must_check;
/* Places the new array so. Errors as above, and engine_place's. */
enum err_code meta_place(const struct meta_placement *p, const struct session *s, struct array *a,
                         struct err *e) must_check;
/* The optional member "location": 1 for the host, 0 for the device, unchanged if absent. */
enum err_code meta_location(struct json body, int *ret_host, struct err *e) must_check;

#endif
