/* Leases: who may touch an array's memory, and for how long: until a time, or as long as an export
 * (export.h) lives.
 *
 * One table for all principals, since a lease binds everybody. It is keyed by the buffer, so it
 * holds for the array, its views and what else shares its memory, under whatever handle; it keeps
 * no memory alive. Handlers ask lease_check with what the request brought (lease_claim) before they
 * read or write; while there is no lease at all that is one load. Thread-safe; one short lock,
 * which may be taken under that of the handles, never the other way round. */
#ifndef ARRAYD_SERVER_LEASE_H
#define ARRAYD_SERVER_LEASE_H

#include "compute/engine/engine.h"
#include "server/store/handles.h"

struct leases;
struct principal;

/* At most `max` leases of a principal. NULL without memory. */
struct leases *leases_new(uint32_t max);
void leases_free(struct leases *t); /* NULL allowed */

struct lease {
    char token[ID_SIZE]; /* l-… */
    bool write;
    int64_t expires_us; /* since 1970 */
};

/* A request and the value of its Arrayd-Lease, a list of tokens (NULL: none). */
struct lease_claim {
    struct leases *table; /* NULL: there are no leases */
    const char *tokens;
    const struct principal *who; /* for whom a new lease counts */
};

enum lease_access {
    LEASE_LOOK,  /* metadata: always */
    LEASE_READ,  /* ERR_LOCKED while somebody else has a write lease */
    LEASE_WRITE, /* … any lease */
    LEASE_PLACE, /* other memory is to take the place of the array's: so, and while anybody, the
                    holder too, has it exported */
    LEASE_UNDO /* the array is to be replaced or exchanged: … anybody, its holder too, has one */
};
enum err_code lease_check(const struct lease_claim *c, const struct array *a,
                          enum lease_access access, struct err *e) must_check;

/* A new lease, or, where the claim holds one on this memory already, that one: with a new end and
 * the new mode (*ret_again). ERR_LOCKED, ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code lease_take(const struct lease_claim *c, const struct array *a, bool write,
                         double ttl_s, struct lease *ret, bool *ret_again,
                         struct err *e) must_check;
/* The claim's lease ends; that of an export only by lease_unpin: it stays, its token is in
 * ret_export (else ""). ERR_NOT_FOUND where there is none, ERR_LOCKED where it is another's. */
enum err_code lease_give(const struct lease_claim *c, const struct array *a,
                         char ret_export[ID_SIZE], struct err *e) must_check;

/* The lease of an export, beside what the claim holds: it has no end and is neither renewed nor
 * changed. Errors as lease_take. */
enum err_code lease_pin(const struct lease_claim *c, const struct array *a, bool write,
                        char ret_token[ID_SIZE], struct err *e) must_check;
void lease_unpin(struct leases *t, uint64_t buffer, const char *token);
/* Those of `who` end on this memory, exports' aside: where he may not use it any more (`reading`),
 * or not write to it, those for writing. */
void lease_end(struct leases *t, const struct array *a, const struct principal *who, bool reading);
/* For changes that a handle's table makes: LEASE_UNDO of what is there now; a handle_guard's check,
 * user is the struct leases. */
enum err_code lease_guard(void *user, const struct array *now, struct err *e) must_check;

#endif
