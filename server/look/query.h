/* Query parameters of looks: numbers, choices and lists, with their limits.
 *
 * Called by summary.c and picture.c. Every error is ERR_BAD_FIELD and names the parameter and what
 * it may be. A parameter that was not given leaves *ret as it is. Pure. */
#ifndef ARRAYD_SERVER_LOOK_QUERY_H
#define ARRAYD_SERVER_LOOK_QUERY_H

#include "server/http/http.h"

/* A finite number. */
enum err_code query_number(const struct request *req, const char *key, double *ret, bool *ret_given,
                           struct err *e) must_check;
enum err_code query_whole(const struct request *req, const char *key, int64_t least, int64_t most,
                          int64_t *ret, struct err *e) must_check;
/* "true" or "1", "false" or "0". */
enum err_code query_flag(const struct request *req, const char *key, bool *ret,
                         struct err *e) must_check;
/* The number of the name in the list, which ends with NULL. */
enum err_code query_choice(const struct request *req, const char *key, const char *const *names,
                           int *ret, struct err *e) must_check;
/* At most `most` numbers from `least` to `greatest`, separated by commas; *n: how many. */
enum err_code query_list(const struct request *req, const char *key, double least, double greatest,
                         size_t most, double *ret, size_t *n, struct err *e) must_check;
/* lo and hi; where both are given, lo must be less. */
enum err_code query_range(const struct request *req, double *ret_lo, bool *ret_has_lo,
                          double *ret_hi, bool *ret_has_hi, struct err *e) must_check;

#endif
