/* Logins: what a browser shows in place of a token, which scripts and other ports of the host must
 * not get; and read-only links, which are logins with narrower rights whose key is in an address.
 *
 * One table for all principals. A login has a random key of 256 bits, known to its holder alone:
 * the table has the key's hash. It ends at a time, by logins_end, and is worth nothing once its
 * account, or, if it is no link, its token, is gone, which visitor.c asks server/store about. Links
 * outlive the process, with the journal and the state on disk, which have their keys' hashes;
 * logins do not. Thread-safe; one short lock. The table owns its logins; requests
 * hold references to the one that they came with. */
#ifndef ARRAYD_SERVER_LOGINS_H
#define ARRAYD_SERVER_LOGINS_H

#include "compute/base/err.h"
#include "server/kept/kept.h"
#include "server/server.h"
#include "server/store/accounts.h"

struct journal_writer;
struct login;
struct logins;
struct principal;

#define LOGIN_KEY_LEN 43 /* characters, six bits each */
#define LOGIN_COOKIE  32
#define LINK_REFS_MAX KEPT_LINK_REFS /* arrays and jobs of a link */

/* What a login is; constant. */
struct login_terms {
    char id[ID_SIZE]; /* v-… */
    struct principal *who;
    uint8_t token[TOKEN_HASH_SIZE]; /* the hash of the token it was made with; not for a link */
    bool link;                      /* read-only: */
    bool whole;                     /* all that `who` sees, or */
    size_t n_refs;                  /* these arrays and jobs */
    const char (*refs)[ID_SIZE];
    int64_t created_us, expires_us; /* since 1970 */
};

/* At most so many logins and links of a principal. NULL without memory. */
struct logins *logins_new(int64_t max_logins, int64_t max_links);
void logins_free(struct logins *t); /* NULL allowed; no request may be left */
/* Links are written to that journal (NULL: to none) from here on. Returns what keeps them. */
const struct kept_links *logins_keep(struct logins *t, struct journal_writer *writer);
/* The name of the cookie, another for each process. Browsers do not tell ports apart: two daemons
 * of a host would else overwrite each other's. */
const char *logins_cookie(const struct logins *t);
#define LOGIN_COOKIE_SAME 7 /* characters that all of them begin with */

/* Makes a login for so many seconds. *terms is copied; its id and times are set here. Past its
 * maximum, a principal's oldest login ends, whose id is in ret_gone then, else "", but a link is
 * refused: ERR_QUOTA. ERR_OUT_OF_MEMORY, of the journal, too. The caller gets a reference, and the
 * only copy of the key. */
enum err_code logins_add(struct logins *t, const struct login_terms *terms, double seconds,
                         char ret_key[LOGIN_KEY_LEN + 1], struct login **ret,
                         char ret_gone[ID_SIZE], struct err *e) must_check;
/* The login with that key, n bytes; NULL: none, or not any more. The caller gets a reference. */
struct login *logins_find(struct logins *t, const char *key, size_t n);
bool logins_end(struct logins *t, struct login *l); /* false: it had ended before */
/* All of the principal's but links; how many there were. */
size_t logins_end_all(struct logins *t, const struct principal *who);
/* Ends a link of the principal's. ERR_NOT_FOUND. */
enum err_code logins_end_link(struct logins *t, const struct principal *who, const char *id,
                              struct err *e) must_check;
/* Visits the principal's links, oldest first, with the lock held. */
void logins_each_link(struct logins *t, const struct principal *who,
                      void (*visit)(void *user, const struct login_terms *terms), void *user);
/* Drops what is over, or whose principal is gone: no other process is to find it. */
void logins_sweep(struct logins *t);
void logins_count(struct logins *t, int64_t *ret_logins, int64_t *ret_links);

const struct login_terms *login_terms(const struct login *l);
bool login_lasts(const struct login *l); /* any thread */
bool login_names(const struct login *l, const char *ref);
struct login *login_ref(struct login *l);
void login_unref(struct login *l); /* NULL allowed */

#endif
