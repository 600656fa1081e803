/* Array data in JSON, read as it arrives: a nested list of numbers becomes typed elements and a
 * shape, without a tree and without holding the text.
 *
 * Called by the handlers of `PUT …/data` and, through json_body.h, of `"data"` in a create body. A
 * reader owns its growing element buffer until json_array_take hands it over. Not thread-safe.
 *
 * Elements: numbers, true/false, "NaN", "Infinity", "-Infinity"; complex as [re, im]. A scalar
 * alone is rank 0. With a dtype, values are converted to it exactly as they are read (correctly
 * rounded once; a value beyond a narrow float becomes an infinity; ERR_LITERAL_RANGE for one that
 * does not fit an integer, or is beyond float64). Without one the dtype follows from the content:
 * all bools bool; integers int64, uint64 if only that holds them; anything else float64; no
 * elements float64. Errors carry the element's JSON pointer ("/1/2"): ERR_BAD_SHAPE for ragged or
 * too deeply nested lists, ERR_BAD_FIELD for null, objects and other strings, ERR_BAD_JSON for
 * malformed text, ERR_QUOTA past max_bytes. */
#ifndef ARRAYD_JSON_ARRAY_H
#define ARRAYD_JSON_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/err.h"
#include "compute/type/dtype.h"
#include "compute/type/layout.h"

struct json_array;

/* `dtype` -1: from the content. `max_bytes` of elements (0: no limit). NULL without memory. */
struct json_array *json_array_new(int dtype, int64_t max_bytes);
void json_array_free(struct json_array *r); /* NULL is allowed */

/* The value begins at this byte of the body (messages give positions); 0 unless set. */
void json_array_start_at(struct json_array *r, uint64_t position);

/* Takes the next n bytes. Stops after the value's end: *ret_used < n (white space after it is not
 * consumed); *ret_done: the value is complete. A number at the outermost level ends only with the
 * byte after it. */
enum err_code json_array_feed(struct json_array *r, const char *p, size_t n, size_t *ret_used,
                              bool *ret_done, struct err *e) must_check;

/* For a body that is the array alone: as json_array_feed, but white space may follow and anything
 * else is ERR_BAD_JSON. */
enum err_code json_array_feed_all(struct json_array *r, const char *p, size_t n,
                                  struct err *e) must_check;

/* End of input: ERR_BAD_JSON when the value is incomplete. */
enum err_code json_array_finish(struct json_array *r, struct err *e) must_check;

struct json_array_data {
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK];
    int64_t size; /* elements */
    void *data;   /* C order, dtype's layout; the receiver releases it with mem_free */
};

/* After json_array_finish: hands over the elements. `dtype` ≥ 0 converts elements that were read
 * without a dtype (as exactly as if it had been known from the start); if the reader was given a
 * dtype it must be that one, or -1. */
enum err_code json_array_take(struct json_array *r, int dtype, struct json_array_data *ret,
                              struct err *e) must_check;

#endif
