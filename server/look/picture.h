/* Pictures of arrays: image/png of GET /v1/arrays/{ref}/data and of POST /v1/evaluate.
 *
 * Called by the handlers of both. */
#ifndef ARRAYD_SERVER_PICTURE_H
#define ARRAYD_SERVER_PICTURE_H

#include "protocol/wire/media.h"
#include "server/http/http.h"
#include "server/store/session.h"

/* The query parameters of pictures; of another type of reply they are ERR_BAD_FIELD. */
#define PICTURE_QUERY "cmap", "lo", "hi", "percentiles", "width", "height", "pool", "bar"
enum err_code picture_query(const struct request *req, enum media type, struct err *e) must_check;

/* Whether there can be a picture of the path's array as the query asks for it: picture_reply's
 * errors, but for those of its computation. */
enum err_code picture_check(struct request *req, struct err *e) must_check;

/* Whether the array has as many axes, and such, as a picture needs. */
bool picture_is_possible(const struct array *a);

/* The picture of the path's array, for which the device's turn is waited first; replies, now or
 * later. `again`: the handler, which is called again when it has come. */
void picture_reply(struct request *req, handler_fn *again);
/* The picture of a result. */
void picture_of(struct request *req, struct session *s, struct array *take_a);

#endif
