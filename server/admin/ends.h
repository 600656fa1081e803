/* Ending what others have, for operators: arrays, sessions, principals. What binds its owner (a
 * mark as read-only, leases) does not bind an operator.
 *
 * Called by handlers_admin.c. Each is as if the owner had done it, so running work ends as it would
 * then, and memory is free when the last that uses it has ended. Leases and exports of that memory
 * end at once. Jobs on it fail, or end with their session. Thread-safe. */
#ifndef ARRAYD_SERVER_ENDS_H
#define ARRAYD_SERVER_ENDS_H

#include "server/server.h"
#include "server/store/auth.h"

/* *ret_owner: whose it was. ERR_NOT_FOUND, ERR_OUT_OF_MEMORY. */
enum err_code end_array(struct server *s, const char *id, const char **ret_owner,
                        struct err *e) must_check;
enum err_code end_session(struct server *s, const char *id, const char **ret_owner,
                          struct err *e) must_check;
/* By a principal, which cannot be the same: ERR_CONFLICT. */
enum err_code end_principal(struct server *s, const struct principal *by, const char *name,
                            struct err *e) must_check;

#endif
