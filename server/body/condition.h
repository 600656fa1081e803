/* Entity tags of arrays, and the conditions of requests that change one (RFC 9110, 13).
 *
 * An array's tags are those of its contents: GET …/data gives them, and If-Match and If-None-Match
 * of PUT, PATCH and DELETE are held against them. Called by the handlers and by data_*.c. A
 * condition borrows the request's header; nothing here allocates. Thread-safe. */
#ifndef ARRAYD_SERVER_CONDITION_H
#define ARRAYD_SERVER_CONDITION_H

#include <stdbool.h>

#include "compute/engine/engine.h"
#include "protocol/wire/media.h"
#include "server/http/http.h"

#define ETAG_MAX 64

/* The tag of the elements `v` of an array whose contents have this version (array_version), as
 * `type`. */
void etag_make(enum dtype dtype, const struct view *v, uint64_t version, enum media type,
               char ret[ETAG_MAX]);

/* Whether a header's value is `*` or a list that names the tag. `strong`: W/ tags never match. */
bool etag_listed(const char *list, const char *etag, bool strong);

struct condition {
    const char *match, *none_match; /* values of If-Match and If-None-Match, NULL: not sent */
};
struct condition condition_of(struct request *req);

/* Whether it holds for certain contents only, not for any others that may come. */
bool condition_names_tags(const struct condition *c);

/* ERR_PRECONDITION_FAILED unless the condition holds for the array as it is now (NULL: there is
 * none yet). The tags are those of `region` of it and of the whole, in each representation: all of
 * them say the same about what would be overwritten. */
enum err_code condition_check(const struct condition *c, const struct array *now,
                              const struct view *region, struct err *e) must_check;
/* The same of a whole array, as a handle_guard: user is the struct condition. */
enum err_code condition_guard(void *user, const struct array *now, struct err *e) must_check;

#endif
