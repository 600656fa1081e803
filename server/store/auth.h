/* Principals: who asks, what he may and how much of it.
 *
 * Without accounts there is one, "local", an operator, whom everybody is who can reach the daemon;
 * with accounts (server/store/accounts.h) those of the file, and a request is whose token it
 * carries. http.c calls auth_identify before the handler runs and auth_leave when the request has
 * ended; handlers read req->principal. main.c makes the table and gives it the file's accounts, at
 * the start and again on SIGHUP. The table owns its principals, which live as long as it does: one
 * that is no more in the file is gone for good, with its tokens, its sessions and all that they
 * had. An account of that name which is added later is another principal: nothing that was let in
 * for the first can reach it. Thread-safe. */
#ifndef ARRAYD_SERVER_AUTH_H
#define ARRAYD_SERVER_AUTH_H

#include <stdatomic.h>

#include "compute/base/err.h"
#include "compute/engine/engine.h"
#include "server/store/accounts.h"
#include "server/store/functions.h"
#include "server/store/session.h"

struct auth;
struct request;

/* What others than auth.c may read. The tables are there once a principal has been identified or
 * opened. */
struct principal {
    char name[PRINCIPAL_SIZE]; /* "local" */
    struct handles *handles;
    struct sessions *sessions;
    struct functions *functions;
    struct account *account; /* what all his sessions have is charged to it too */
    struct meter *memory;    /* of the host, that his requests, jobs and functions take */
    _Atomic uint32_t weight; /* of his work beside others' */
    _Atomic int role;        /* enum role */
    _Atomic uint64_t n_requests, bytes_in, bytes_out; /* metrics.c's: of all that have ended */
    _Atomic bool gone;                                /* for good: what others granted it is void */
    double worked;                                    /* for struct http_user */
    /* auth.c's own */
    _Atomic bool open;        /* the tables are there */
    struct quotas quotas;     /* under the table's lock */
    _Atomic int64_t requests; /* in flight */
    _Atomic int64_t connections;
    _Atomic int64_t max_requests, max_connections, max_body;
    struct principal *next;
};

/* accounts: NULL for the one local user, else borrowed for the call. */
enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       const struct accounts *accounts, struct auth **ret,
                       struct err *e) must_check;
void auth_free(struct auth *a); /* releases every session and handle; no request is left */

/* Puts these accounts in the place of those before. ERR_OUT_OF_MEMORY: those stay. */
enum err_code auth_apply(struct auth *a, const struct accounts *accounts, struct err *e) must_check;

/* Sets req->principal, who has one request more in flight then. ERR_UNAUTHORIZED (the reply gets
 * WWW-Authenticate), ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code auth_identify(struct request *req, struct err *e) must_check;
void auth_leave(struct principal *p);
/* Whether what let the request in, its token and the account, still does. From any thread, once it
 * has been identified (true of one that need not be). */
bool auth_lasts(struct request *req);
/* ERR_UNAUTHORIZED for a token that is not valid, or no more. */
enum err_code auth_refuse(struct request *req, const char *why, struct err *e);
/* The connection is req->principal's from now on: *whose is whose it was before. ERR_QUOTA: he has
 * too many; then it is nobody's. */
enum err_code auth_connect(const struct request *req, struct principal **whose,
                           struct err *e) must_check;
void auth_disconnect(struct principal *whose); /* NULL allowed */
/* ERR_FORBIDDEN where the route is for operators and req->principal is none, or no more. */
enum err_code auth_role(const struct request *req, struct err *e) must_check;
/* Bytes a body of his may have; 0: no quota. */
int64_t auth_max_body(const struct principal *p);

/* The principal of that name; NULL where there is no such account. */
struct principal *auth_find(struct auth *a, const char *name);
/* The same with his tables there. ERR_NOT_FOUND, ERR_OUT_OF_MEMORY. */
enum err_code auth_open(struct auth *a, const char *name, struct principal **ret,
                        struct err *e) must_check;

/* What he may have (0: as much as there is) and what he has. */
void auth_quotas(struct auth *a, struct principal *p, struct quotas *ret_may,
                 struct quotas *ret_has);

/* Those who have been here; none goes meanwhile, and visit must not call this module. */
void auth_each(struct auth *a, void (*visit)(void *user, struct principal *p), void *user);

/* Sums over all principals, for metrics. */
int64_t auth_sessions(struct auth *a);
int64_t auth_arrays(struct auth *a);

#endif
