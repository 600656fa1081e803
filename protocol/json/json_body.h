/* Create bodies that may be huge: {"shape":[…],"dtype":"float32","data":[…]} as it arrives. The
 * `data` member goes to a json_array reader, the others are kept as text and parsed as a document
 * at the end, so memory is the elements' plus the small members'. Members come in any order; a
 * dtype before the data is used while reading, one after it converts at the end.
 *
 * Called by the handlers of POST and PUT /v1/arrays for JSON bodies; a JSON object without `data`
 * is read the same way. The splitter owns everything until finish. Not thread-safe. */
#ifndef ARRAYD_JSON_BODY_H
#define ARRAYD_JSON_BODY_H

#include "protocol/json/json.h"
#include "protocol/json/json_array.h"

struct json_body;

struct json_body_limits {
    size_t max_text;         /* bytes outside `data`: ERR_TOO_LARGE past it; 0: 16 MiB */
    struct json_limits json; /* outside `data`; zeros: json.h's */
    int64_t max_data_bytes;  /* bytes of elements: ERR_QUOTA past it; 0: none */
};

struct json_body *json_body_new(const struct json_body_limits *limits); /* NULL without memory */
void json_body_free(struct json_body *b);                               /* NULL is allowed */

enum err_code json_body_feed(struct json_body *b, const char *p, size_t n,
                             struct err *e) must_check;

/* End of the body: the document (in `arena`), with null in place of `data`, and the reader of
 * `data` (borrowed, NULL if there was none), ready for json_array_take. Errors as json_parse and
 * json_array, with positions in the body and pointers from its root ("/data/1/2"). Errors of
 * json_array_take itself need err_prefix(e, "/data"). */
enum err_code json_body_finish(struct json_body *b, struct arena *arena, struct json *ret,
                               struct json_array **ret_data, struct err *e) must_check;

#endif
