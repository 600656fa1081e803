/* Array bytes in and out of a request: upload sinks for octet-stream, .npy and JSON bodies, and
 * download sources for the same three.
 *
 * Called by the handlers of arrays, data and evaluate. Everything is streamed: memory is bounded
 * whatever the body's size (except for the engine's staging memory). Objects live in the request's
 * arena or belong to it and end with it. One thread at a time works on a request; wakes may come
 * from any thread. */
#ifndef ARRAYD_SERVER_DATA_H
#define ARRAYD_SERVER_DATA_H

#include <stdbool.h>

#include "compute/engine/engine.h"
#include "protocol/wire/media.h"
#include "server/http/http.h"
#include "server/http/wakeup.h"
#include "server/store/handles.h"
#include "server/store/session.h"

/* Formats of array bytes. */
enum data_format {
    DATA_SNIFF, /* no Content-Type: .npy when it begins with its magic, else octets */
    DATA_OCTETS,
    DATA_NPY,
    DATA_JSON
};

/* The format that the request's Content-Type names (none: DATA_SNIFF). ERR_UNSUPPORTED_MEDIA_TYPE
 * for another type. */
enum err_code data_format_of(struct request *req, enum data_format *ret, struct err *e) must_check;

/* --- in (data_upload.c) --- */

/* Gets the new array (and owns it) when the whole body has arrived and is valid; must reply. */
typedef void data_created(struct request *req, struct array *take_a);

/* For POST /v1/arrays and PUT /v1/arrays/{name} with DATA_OCTETS, DATA_NPY or DATA_SNIFF, called
 * from the streamed handler after the headers: reads `dtype` and `shape` from the query, takes the
 * body and makes a new array of it. This module replies to every error; otherwise it calls
 * created() once. The caller has checked the other query parameters and the name, and keeps
 * `stream` and `account` alive until the request ends. req->state is left to the caller. */
void data_accept_create(struct request *req, struct engine_stream *stream, struct account *account,
                        enum data_format format, data_created *created);

/* For PUT …/data: takes the body and writes it to `region` of the handle's array; replies with 204
 * or the error. Takes the session's and the handle's references. */
void data_accept_into(struct request *req, struct session *take_session, struct handle *take_handle,
                      const struct view *region, enum data_format format);

/* The end of that: makes the upload's bytes the contents of the region, if the array that `target`
 * was is still there and the request's conditions hold. The upload is taken, unless upload_keep
 * says otherwise. */
enum err_code data_write(struct request *req, struct session *s, const struct handle *target,
                         const struct view *region, struct upload *take_u, bool fortran,
                         struct err *e) must_check;

/* Elements in memory on their way into an upload's staging. */
struct data_staging {
    struct request *req;
    struct wakeup *wakeup; /* the upload wakes it */
    struct upload *upload;
    const char *from;
    size_t n, pushed;
};
/* Copies what there is room for, a slice at a time. True when all is copied; otherwise the caller
 * returns, and the request continues in `again`, which calls this again. */
bool data_stage(struct data_staging *s, handler_fn *again);

/* --- out (data_download.c) --- */

/* The number of elements in the JSON text, or for an empty array of innermost empty lists: (1000,
 * 0) has no element, but a thousand lists. */
int64_t data_json_items(const struct view *v);
/* The most empty lists that a reply may have. */
#define JSON_EMPTY_MAX (1 << 24)

/* The error of a failed download for its reply: ERR_OUT_OF_MEMORY, ERR_INTERNAL, ERR_FAULTED,
 * ERR_DEVICE_LOST. */
void data_error(const struct download *d, struct err *e);
/* Sets the times of the contents for Server-Timing; `own` as in download_device_ms. */
void data_times(struct request *req, const struct download *d, bool own);

/* Replies 200 with the array's present contents in C order, as `type` (MEDIA_OCTETS,
 * MEDIA_NPY, MEDIA_JSON). `of`: this is GET …/data of that handle, with ETag and Range, and the
 * reply ends when the array is no longer shared; NULL: a fresh result. Uses req->state. */
void data_reply(struct request *req, struct engine_stream *stream, struct array *take_a,
                enum media type, const struct handle *of);

#endif
