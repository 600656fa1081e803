/* Members of an object that this program wrote itself: what is wrong with one is ERR_STATE, or the
 * error of its kind in JSON, with its place.
 *
 * Called by kept_read.c and by the readers of state and journal. Pure; thread-safe. */
#ifndef ARRAYD_SERVER_KEPT_MEMBER_H
#define ARRAYD_SERVER_KEPT_MEMBER_H

#include "protocol/json/json.h"
#include "server/server.h"

/* 0 or more. */
enum err_code member_i64(struct json v, const char *name, int64_t *ret, struct err *e) must_check;
/* The same; one that is absent leaves *ret as it is. */
enum err_code member_i64_given(struct json v, const char *name, int64_t *ret,
                               struct err *e) must_check;
enum err_code member_bool(struct json v, const char *name, bool *ret, struct err *e) must_check;
enum err_code member_list(struct json v, const char *name, struct json *ret,
                          struct err *e) must_check;
/* Text of at most `size` − 1 bytes; ret is filled up with zeros. */
enum err_code member_text(struct json v, const char *name, char *ret, size_t size,
                          struct err *e) must_check;
/* An id with that prefix; `optional`: or "". */
enum err_code member_id(struct json v, const char *name, char prefix, bool optional,
                        char ret[ID_SIZE], struct err *e) must_check;

#endif
