/* Principals: who asks. One local user for now; tokens will add principals here and nowhere else.
 *
 * http.c calls auth_identify before the handler runs; handlers read req->principal. The table owns
 * its principals, which live as long as it does. Thread-safe. */
#ifndef ARRAYD_SERVER_AUTH_H
#define ARRAYD_SERVER_AUTH_H

#include "compute/base/err.h"
#include "compute/engine.h"
#include "server/functions.h"
#include "server/session.h"

struct auth;
struct request;

struct principal {
    const char *name; /* "local" */
    struct handles *handles;
    struct sessions *sessions;
    struct functions *functions;
};

enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       struct auth **ret, struct err *e) must_check;
void auth_free(struct auth *a); /* releases every session and handle; no request is left */

/* Sets req->principal. ERR_UNAUTHORIZED. */
enum err_code auth_identify(struct request *req, struct err *e) must_check;

/* The principal of that name; NULL: there is none. */
struct principal *auth_find(struct auth *a, const char *name);

/* Sums over all principals, for metrics. */
int64_t auth_sessions(struct auth *a);
int64_t auth_arrays(struct auth *a);

#endif
