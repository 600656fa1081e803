/* Entity tags of arrays, and the conditions of requests that change one (RFC 9110, 13).
 *
 * An array's tags identify its contents: GET …/data sends them, and If-Match and If-None-Match of
 * PUT, PATCH and DELETE are compared with them. Called by the handlers and by data_*.c. A condition
 * borrows the request's header; nothing here allocates. Thread-safe. */
#ifndef ARRAYD_SERVER_CONDITION_H
#define ARRAYD_SERVER_CONDITION_H

#include <stdbool.h>

#include "compute/engine/engine.h"
#include "protocol/wire/media.h"
#include "server/http/http.h"

#define ETAG_MAX 72

/* The tag of the elements `v` of an array with this contents version (array_version), represented
 * as `type`. */
void etag_make(enum dtype dtype, const struct view *v, uint64_t version, enum media type,
               char ret[ETAG_MAX]);

/* The tag of something made of them: of `kind`, with so many bytes of parameters. */
void etag_derived(enum dtype dtype, const struct view *v, uint64_t version, const void *from,
                  size_t size, char kind, char ret[ETAG_MAX]);

/* Whether a header's value is `*` or a list with the tag. `strong`: W/ tags never match. */
bool etag_listed(const char *list, const char *etag, bool strong);

struct condition {
    const char *match, *none_match; /* values of If-Match and If-None-Match, NULL: not sent */
};
struct condition condition_of(struct request *req);

/* Whether the condition depends on particular contents. */
bool condition_names_tags(const struct condition *c);

/* ERR_PRECONDITION_FAILED unless the condition holds for the array as it is now (NULL: there is
 * none yet). The tags of its `region` and of the whole array match, in each representation: each of
 * them identifies what would be overwritten. */
enum err_code condition_check(const struct condition *c, const struct array *now,
                              const struct view *region, struct err *e) must_check;
/* The same for a whole array, as a handle_guard: user is the struct condition. */
enum err_code condition_guard(void *user, const struct array *now, struct err *e) must_check;

/* For a reply that has this tag ("": none): ERR_PRECONDITION_FAILED unless If-Match allows it;
 * *ret_same: the client has it already, and the reply is 304. */
enum err_code condition_read(struct request *req, const char *etag, bool *ret_same,
                             struct err *e) must_check;

#endif
