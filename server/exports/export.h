/* Exports: arrays whose memory clients on this host use in place.
 *
 * An offer is one export from the request on: while the engine prepares the memory, until its token
 * is presented, and as long as the connection that presented it lives. It pins the array's memory
 * (engine_export) and holds a lease on it (lease_pin), so that others keep off and the memory
 * outlives handle and session. Pin and lease are released when the offer is over, before its
 * connection is closed or a request to end it is answered.
 *
 * Called by handlers_export.c, which creates offers; export_socket.c, which opens them for
 * connections; handlers_shares.c and main.c, which end those no longer allowed. Thread-safe; one
 * short lock, under which the engine is never called. */
#ifndef ARRAYD_SERVER_EXPORT_H
#define ARRAYD_SERVER_EXPORT_H

#include <sys/types.h>

#include "compute/memory/export.h"
#include "server/store/handles.h"
#include "server/store/lease.h"

struct exports;
struct offer; /* reference-counted */
struct principal;

struct exports_config {
    struct engine *engine;
    struct leases *leases;
    struct lease_uses *uses;
    struct shares *shares;
    double timeout; /* seconds until a token must have been presented */
    uint32_t max;   /* offers per principal */
    /* called by any thread, not after exports_stop_all: there may be something to sweep, or an
     * offer that is still referenced is over; must not block */
    void (*changed)(void *user);
    void *user;
};
/* NULL without memory. */
struct exports *exports_new(const struct exports_config *config);
void exports_free(struct exports *t); /* after exports_stop_all; NULL allowed */

/* --- for requests --- */

/* `shared`: the id of another principal's shared array; NULL: the array is the claim's. The offer
 * ends when the share does. `sealed`: as in struct exporting. The lease is taken. Every offer must
 * be given to offer_close. ERR_LOCKED, ERR_QUOTA, ERR_DRAINING, ERR_OUT_OF_MEMORY. */
enum err_code offer_new(struct exports *t, const struct lease_claim *claim, struct array *a,
                        const char *shared, bool write, bool sealed, uid_t uid, struct offer **ret,
                        struct err *e) must_check;
/* Once every request that preceded the lease has sent its work, the engine prepares the memory,
 * behind the work that uses it and nothing else. wake(user) is called once, by any thread, perhaps
 * at once, but not after offer_close. */
void offer_ask(struct offer *o, void (*wake)(void *user), void *user);
/* After that: from now on processes of the user `uid` can present the token. Or an error says why
 * not. */
struct offered {
    const char *token, *lease; /* x-…, l-…: valid until offer_close */
    struct exported memory;    /* without the descriptor */
};
enum err_code offer_open(struct offer *o, struct offered *ret, struct err *e) must_check;
/* Releases the caller's reference and ends an offer that was not opened. NULL allowed. */
void offer_close(struct offer *o);

/* Ends the offer with that lease. */
void exports_end(struct exports *t, const char *lease);
/* As lease_end, for the exports of the memory with that array_buffer_id; who NULL: everybody's. */
void exports_revoke(struct exports *t, uint64_t buffer, const struct principal *who, bool reading);
/* Clients can no longer read or write the array through memory they may still have mapped: the
 * array moves to other memory, at the end of the last export if it is exported now. If there is no
 * memory for that, it stays (which is logged) until another export ends. */
void exports_forget(struct engine *g, struct array *a);

/* Whether `who` may still have the array `shared` exported, or exported for writing; "": it is its
 * own. Memory that is not the host's can be written in any case. */
bool export_share_lasts(const struct engine *g, struct shares *shares, const char *shared,
                        const struct principal *who, bool write);

/* --- for the socket --- */

/* An export of the previous process continues, held by a connection: of all the memory of `a`,
 * with that lease, which the caller restores. *ret as exports_take's; *ret_cuda: it is a GPU's
 * memory. ERR_STATE: the memory is not to be had so; ERR_OUT_OF_MEMORY. */
enum err_code exports_adopt(struct exports *t, const struct lease_image *lease, struct array *a,
                            struct offer **ret, bool *ret_cuda, struct err *e) must_check;

/* The offer that the token opens, for a process of `uid`: a new reference; the token opens nothing
 * afterwards. NULL: no such offer. The caller closes the descriptor in *ret: otherwise the offer
 * might end, and the descriptor's number be reused, before it is sent. */
struct offer *exports_take(struct exports *t, const char *token, uid_t uid, struct exported *ret);
bool offer_writes(const struct offer *o);
const char *offer_lease(const struct offer *o);
bool offer_is_over(struct offer *o);
enum offer_end {
    OFFER_RELEASED, /* properly */
    OFFER_LOST,     /* its client disappeared */
    OFFER_EXPIRED,  /* the token was never presented */
    OFFER_REVOKED,  /* taken back by the daemon or the array's owner */
    OFFER_ENDS
};
static inline const char *offer_end_name(enum offer_end how)
{
    static const char *const names[] = {[OFFER_RELEASED] = "released",
                                        [OFFER_LOST] = "lost",
                                        [OFFER_EXPIRED] = "expired",
                                        [OFFER_REVOKED] = "revoked"};
    return names[how];
}
/* Ends the offer, with that reason unless it is over already; the caller keeps its reference. */
void offer_end(struct offer *o, enum offer_end how);
/* Ends offers whose token expired, and those of principals or shared arrays that no longer exist.
 * Returns after how many seconds to call again; -1: at the next `changed`. */
double exports_sweep(struct exports *t);

/* --- for main --- */

/* Refuses new offers and ends all that can end at once: all except those held for writing. Returns
 * how many are left. */
size_t exports_stop(struct exports *t);
void exports_stop_all(struct exports *t);

struct exports_figures {
    uint64_t opened, ended[OFFER_ENDS]; /* by this process, so far */
};
void exports_figures(struct exports *t, struct exports_figures *ret);
size_t exports_count(struct exports *t, const struct principal *who); /* NULL: 0 */

#endif
