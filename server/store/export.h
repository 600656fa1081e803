/* Exports: arrays whose memory clients on this host use in place.
 *
 * An offer is one export, from the request on: while the engine makes the memory ready, until its
 * token is presented, as long as the connection lives on which that was. It pins the array's memory
 * (engine_export) and holds a lease on it (lease_pin), so that others keep off and the memory
 * outlives handle and session. Both have gone when the offer is over, before its connection is
 * closed or whoever ended it is answered.
 *
 * handlers_export.c asks for offers, export_socket.c takes them for connections, handlers_shares.c
 * and main.c end what may not be any more. Thread-safe; one short lock, under which nothing is
 * asked of the engine. */
#ifndef ARRAYD_SERVER_EXPORT_H
#define ARRAYD_SERVER_EXPORT_H

#include <sys/types.h>

#include "compute/base/strb.h"
#include "compute/engine/export.h"
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
    uint32_t max;   /* offers of a principal */
    /* by any thread, not after exports_stop_all: there may be something to sweep, or an offer that
     * somebody holds is over; must not block */
    void (*changed)(void *user);
    void *user;
};
/* NULL without memory. */
struct exports *exports_new(const struct exports_config *config);
void exports_free(struct exports *t); /* after exports_stop_all; NULL allowed */

/* --- for requests --- */

/* `shared`: the id of somebody else's array, which he shares; NULL: it is the claim's. The offer
 * ends when he has it no more. `sealed`: as in struct exporting. The lease is taken. Every offer
 * goes back with offer_close. ERR_LOCKED, ERR_QUOTA, ERR_DRAINING, ERR_OUT_OF_MEMORY. */
enum err_code offer_new(struct exports *t, const struct lease_claim *claim, struct array *a,
                        const char *shared, bool write, bool sealed, uid_t uid, struct offer **ret,
                        struct err *e) must_check;
/* When everybody who was before the lease has sent his work the engine makes the memory ready,
 * behind what uses it and nothing else: wake(user) is told once, by any thread, perhaps at once,
 * but not after offer_close. */
void offer_ask(struct offer *o, void (*wake)(void *user), void *user);
/* After that: from now on the token can be presented, by processes of the user `uid`. Or why not.
 */
struct offered {
    const char *token, *lease; /* x-…, l-…: until offer_close */
    struct exported memory;    /* but for the descriptor */
};
enum err_code offer_open(struct offer *o, struct offered *ret, struct err *e) must_check;
/* The caller's reference goes; what has not been opened is over. NULL allowed. */
void offer_close(struct offer *o);

/* Ends the one with that lease. */
void exports_end(struct exports *t, const char *lease);
/* As lease_end, for what the principal has exported of this memory. */
void exports_revoke(struct exports *t, const struct array *a, const struct principal *who,
                    bool reading);
/* What clients may still have mapped of it they will not see any more, nor change: the array gets
 * other memory, at the end of the last export where it is exported now. Without room for that it
 * stays, which is logged, until the end of another export. */
void exports_forget(struct exports *t, struct array *a);

/* --- for the socket --- */

/* The offer that the token opens, for a process of `uid`: a new reference, and the last time that
 * the token opens anything. NULL: there is none. The descriptor in *ret is the caller's to close:
 * the offer may end, and its number be another's, before it is sent. */
struct offer *exports_take(struct exports *t, const char *token, uid_t uid, struct exported *ret);
bool offer_writes(const struct offer *o);
bool offer_is_over(struct offer *o);
enum offer_end {
    OFFER_RELEASED, /* orderly */
    OFFER_LOST,     /* its client has gone */
    OFFER_EXPIRED,  /* the token never came */
    OFFER_REVOKED,  /* taken back by the daemon or the array's owner */
    OFFER_ENDS
};
/* It is over, for the reason given where it was not before; the reference stays the caller's. */
void offer_end(struct offer *o, enum offer_end how);
/* Ends those that nobody came for, and of principals or shared arrays that have gone. Returns after
 * how many seconds to ask again; -1: when told. */
double exports_sweep(struct exports *t);

/* --- for main --- */

/* There are no new ones, and those end that need no time: all but what a client has for writing.
 * Returns how many are left. */
size_t exports_stop(struct exports *t);
void exports_stop_all(struct exports *t);

void exports_metrics(struct exports *t, struct strb *out);            /* NULL allowed */
size_t exports_count(struct exports *t, const struct principal *who); /* NULL: 0 */

#endif
