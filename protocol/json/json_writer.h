/* Append-only JSON output: the writer handles commas and escapes, the caller handles nesting.
 *
 * Called wherever a reply is made. The text grows in a strb that the caller owns, whose sticky
 * error is checked once at the end. Not thread-safe. cJSON is not used for printing either: its
 * doubles are rounded to 15 or 17 digits, it prints NaN as null and has no 64-bit integers. */
#ifndef ARRAYD_JSON_WRITER_H
#define ARRAYD_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/base/strb.h"
#include "compute/type/dtype.h"
#include "protocol/json/json.h"

struct json_writer {
    struct strb *out;
    bool comma; /* a value precedes: the next one needs a comma */
};
#define JSON_WRITER(strb_) ((struct json_writer){.out = (strb_)})

void json_open_object(struct json_writer *w);
void json_close_object(struct json_writer *w);
void json_open_list(struct json_writer *w);
void json_close_list(struct json_writer *w);
void json_put_key(struct json_writer *w, const char *name); /* then exactly one value */

void json_put_null(struct json_writer *w);
void json_put_bool(struct json_writer *w, bool v);
void json_put_i64(struct json_writer *w, int64_t v);
void json_put_u64(struct json_writer *w, uint64_t v);
/* Shortest text that reads back as v; NaN and infinities as strings. */
void json_put_double(struct json_writer *w, double v);
/* UTF-8 text; bytes that are not UTF-8 become U+FFFD. NULL writes null. */
void json_put_string(struct json_writer *w, const char *s);
void json_put_stringn(struct json_writer *w, const char *s, size_t n);
/* One element as the API specifies: complex as [re, im], integers exact. */
void json_put_scalar(struct json_writer *w, const struct scalar *s);
void json_put_i64_list(struct json_writer *w, size_t n, const int64_t *v);
/* Text that is JSON already, as one value. */
void json_put_raw(struct json_writer *w, const char *text, size_t n);

/* A value of a document, numbers as they were written; an absent one is null. */
void json_put_value(struct json_writer *w, struct json v);

/* key and value in one call */
void json_put_member_string(struct json_writer *w, const char *name, const char *s);
void json_put_member_i64(struct json_writer *w, const char *name, int64_t v);
void json_put_member_double(struct json_writer *w, const char *name, double v);
void json_put_member_bool(struct json_writer *w, const char *name, bool v);

#endif
