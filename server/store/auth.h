/* Principals: the authenticated callers, with their roles and quotas.
 *
 * Without accounts there is one, "local", an operator: every client that can reach the daemon. With
 * accounts (server/store/accounts.h) there are those of the file, and a request belongs to the
 * principal whose token it carries. front.c calls auth_identify before the handler runs and
 * auth_leave when the request has ended; handlers read req->principal. main.c creates the table and
 * applies the file's accounts, at the start and again on SIGHUP. The table owns its principals,
 * which live as long as it does: one no longer in the file is gone for good, with its tokens, its
 * sessions and everything they had. An account of the same name added later is another principal,
 * out of reach for any request accepted for the first. Thread-safe. */
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

/* What other modules may read. The tables exist once a principal has been identified or opened. */
struct principal {
    char name[PRINCIPAL_SIZE]; /* "local" */
    struct handles *handles;
    struct sessions *sessions;
    struct functions *functions;
    struct account *account; /* charged for everything its sessions have */
    struct meter *memory;    /* host memory that its requests, jobs and functions take */
    _Atomic uint32_t weight; /* its share of the device, relative to other users */
    _Atomic int role;        /* enum role */
    _Atomic uint64_t n_requests, bytes_in, bytes_out; /* for metrics.c: of all ended requests */
    _Atomic int64_t used_us; /* when its last request began, since 1970; 0: none has */
    _Atomic bool gone;       /* for good: grants to it are void */
    _Atomic bool open;       /* the tables exist */
    uint64_t number;         /* order of creation */
    double worked;           /* for struct http_user */
    struct observer_of observer;
    /* private to auth.c */
    struct user file; /* as the accounts file has it; under the table's lock, as the */
    struct setting_changes changes; /* next two */
    struct quotas quotas;           /* in force */
    _Atomic int64_t requests;       /* in flight */
    _Atomic int64_t connections;
    _Atomic int64_t max_requests, max_connections, max_body;
    struct principal *next;
};

/* accounts: NULL for the one local user; otherwise borrowed for the call. */
enum err_code auth_new(struct engine *engine, const struct session_limits *limits,
                       const struct accounts *accounts, struct auth **ret,
                       struct err *e) must_check;
/* Releases every session and handle; no request may be left. NULL allowed. */
void auth_free(struct auth *a);

/* Replaces the accounts. ERR_OUT_OF_MEMORY: the old ones stay. */
enum err_code auth_apply(struct auth *a, const struct accounts *accounts, struct err *e) must_check;

/* Ends a principal before the file says so: its tokens are refused, and all that it has is gone. An
 * account of that name that is applied later is another principal. ERR_NOT_FOUND: it is gone. */
enum err_code auth_end(struct auth *a, struct principal *p, struct err *e) must_check;

/* Sets req->principal and counts the request among those in flight. ERR_UNAUTHORIZED (the reply
 * gets WWW-Authenticate), ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code auth_identify(struct request *req, struct err *e) must_check;
/* The same without a header: as `p`, as long as one of its tokens has that hash, or (NULL: by a
 * read-only link) as the account lasts. ERR_UNAUTHORIZED: that is over. */
enum err_code auth_identify_as(struct request *req, struct principal *p, const uint8_t *token,
                               struct err *e) must_check;
/* The same as for another request of the caller's, whatever its quota and whether or not its
 * credentials still last, for which there is auth_lasts. It counts, since it may outlast that one.
 */
void auth_identify_again(struct request *req, const struct request *of);
/* Whose token that is, in *ret and, for auth_lasts, in the request. ERR_UNAUTHORIZED. */
enum err_code auth_find_token(struct request *req, const char *token, struct principal **ret,
                              struct err *e) must_check;
bool auth_asks(const struct auth *a); /* whether there are accounts */
void auth_leave(struct principal *p);
/* Whether the request's token and account are still valid. From any thread, once it has been
 * identified (true if it need not be). */
bool auth_lasts(struct request *req);
/* Counts one more of what the quota of that name limits; most 0: no limit. ERR_QUOTA, for a link's
 * visitors one before that. */
enum err_code auth_count(const struct request *req, _Atomic int64_t *n, int64_t most,
                         const char *what, const char *quota, struct err *e) must_check;
/* ERR_UNAUTHORIZED for a token that is not valid, or no longer. */
enum err_code auth_refuse(struct request *req, const char *why, struct err *e);
/* The connection belongs to req->principal from now on: *whose is its previous owner. ERR_QUOTA:
 * the principal has too many; the connection then has no owner. */
enum err_code auth_connect(const struct request *req, struct principal **whose,
                           struct err *e) must_check;
void auth_disconnect(struct principal *whose); /* NULL allowed */
/* ERR_FORBIDDEN if the route is for operators and req->principal is not one, or no longer. */
enum err_code auth_role(const struct request *req, struct err *e) must_check;
/* The most bytes a body of the principal may have; 0: no quota. */
int64_t auth_max_body(const struct principal *p);

/* The principal of that name; NULL: no such account. */
struct principal *auth_find(struct auth *a, const char *name);
/* The next principal after that number, whether or not it has used the daemon; NULL: that was the
 * last one. It is not freed while the daemon runs, but may be gone any time. */
struct principal *auth_next(struct auth *a, uint64_t after);
/* The same with its tables created. ERR_NOT_FOUND, ERR_OUT_OF_MEMORY. */
enum err_code auth_open(struct auth *a, const char *name, struct principal **ret,
                        struct err *e) must_check;

/* accounts_check_left, with these accounts. */
enum err_code auth_check_left(struct auth *a, const char *name, struct err *e) must_check;

/* The observer is told of all device time so far, before nothing is told any more. */
void auth_tell_months(struct auth *a);

/* The principal's quotas (0: unlimited) and its current use. */
void auth_quotas(struct auth *a, struct principal *p, struct quotas *ret_may,
                 struct quotas *ret_has);

/* Settings that an operator changes: each `given` one gets its value or, if it is not set, the
 * accounts file's again. The principal is open. ERR_NOT_FOUND: it is gone; ERR_OUT_OF_MEMORY: the
 * change could not be kept. */
struct setting_wishes {
    bool given[SETTINGS];
    struct setting_change of[SETTINGS]; /* without `file` */
};
enum err_code auth_change(struct auth *a, struct principal *p, const struct setting_wishes *w,
                          struct err *e) must_check;
/* Changes of an earlier process, as far as they still count. */
void auth_restore_changes(struct auth *a, struct principal *p, const struct setting_changes *c);
/* What the file says, and what is changed. */
void auth_changes(struct auth *a, const struct principal *p, struct user *ret_file,
                  struct setting_changes *ret);

/* Once all is there that outlives a process. */
void auth_restored(struct auth *a);

/* Visits the principals that have used the daemon; none is removed meanwhile, and visit must not
 * call this module. */
void auth_each(struct auth *a, void (*visit)(void *user, struct principal *p), void *user);

/* Sums over all principals, for metrics. */
int64_t auth_sessions(struct auth *a);
int64_t auth_arrays(struct auth *a);

#endif
