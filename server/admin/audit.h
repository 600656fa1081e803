/* The audit: who did what that matters to others. In memory the last entries, for GET
 * /v1/admin/audit; on disk, if there is an audit-log, all of them (audit_file.h), from which the
 * next process has the last ones.
 *
 * It has what operators do to what others have, snapshots, accounts that are read again, tokens
 * that no account has, requests that only an operator may make, and how logins and read-only links
 * are made and end. It never has a token or a key: nothing that a request's header or body says
 * goes into it, but what the handler has understood of it.
 *
 * Called by the handlers of such actions, front.c for refusals, and main.c, which owns it.
 * Thread-safe; one short lock. No caller waits for the disk but those of audit_stop and audit_free:
 * a thread of the audit writes the lines. NULL stands for an audit that keeps nothing. */
#ifndef ARRAYD_SERVER_AUDIT_H
#define ARRAYD_SERVER_AUDIT_H

#include "protocol/json/json_writer.h"
#include "server/http/http.h"
#include "server/server.h"

#define AUDIT_TARGET 192

struct audit;
struct config;
struct principal;

/* What is written of one action; strings are constants or belong to the entry. */
struct audit_entry {
    uint64_t number; /* from 1 on, behind what the file has of earlier processes */
    int64_t at_us;
    char who[PRINCIPAL_SIZE]; /* "": nobody that is known, or the daemon itself */
    char from[HTTP_PEER_SIZE];
    const char *action;
    char target[AUDIT_TARGET];
    const char *result; /* "ok", or an error's code */
    uint64_t count;     /* how often, since the entry before of that kind */
};

/* ERR_BAD_FIELD: the file cannot be used; ERR_OUT_OF_MEMORY. The configuration outlives it. */
enum err_code audit_new(const struct config *config, struct audit **ret, struct err *e) must_check;
/* Returns when all that has been done is in the file. NULL allowed. */
void audit_stop(struct audit *a);
void audit_free(struct audit *a); /* the same first; NULL allowed */

/* Done, or tried in vain, for that request (NULL: by the daemon itself). `target` is a format. */
void audit_did(struct audit *a, const struct request *req, const char *action, enum err_code result,
               const char *target, ...) __attribute__((format(printf, 5, 6)));

/* What anybody can do as often as they like: the first is an entry at once, those of the next
 * minute are one together, when it is over. */
enum audit_refusal {
    AUDIT_LOGIN,    /* no account has the token, or a page of another site asked */
    AUDIT_LINK,     /* the same, of a read-only link's key */
    AUDIT_FORBIDDEN /* it was not an operator's */
};
void audit_refused(struct audit *a, const struct request *req, enum audit_refusal which,
                   enum err_code result);

/* What concerns a login or a link of `whose`, which users can make and end as often as they like:
 * the first AUDIT_OFTEN of a minute are entries at once, the others are one together, when it is
 * over; each action counts by itself, and so does what was refused. `who` did it; NULL: nobody
 * that is known. */
#define AUDIT_OFTEN 20
enum audit_access {
    ACCESS_LOGIN,
    ACCESS_LOGOUT,
    ACCESS_END_LOGIN,
    ACCESS_END_LOGINS,
    ACCESS_MAKE_LINK,
    ACCESS_OPEN_LINK,
    ACCESS_END_LINK
};
void audit_access(struct audit *a, const struct request *req, const struct principal *whose,
                  const struct principal *who, enum audit_access action, enum err_code result,
                  const char *target, ...) __attribute__((format(printf, 7, 8)));

/* Up to `limit` entries after that number, oldest first, into ret[0…]. */
size_t audit_list(struct audit *a, uint64_t after, size_t limit, struct audit_entry *ret,
                  bool *ret_more);
void audit_put(struct json_writer *w, const struct audit_entry *x);

#endif
