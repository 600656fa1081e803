/* Leases: exclusive or shared access to an array's memory, until a time or as long as an export
 * (export.h) lives.
 *
 * One table for all principals, since a lease binds everybody. It is keyed by the buffer, so it
 * holds for the array, its views and everything else that shares its memory, under any handle; it
 * keeps no memory alive. Called by the handlers: lease_check, with the request's lease_claim,
 * before they read or write; without any lease that is one load. Thread-safe; one short lock, which
 * may be taken under the handles' lock, never the other way round. */
#ifndef ARRAYD_SERVER_LEASE_H
#define ARRAYD_SERVER_LEASE_H

#include "compute/engine/engine.h"
#include "server/store/handles.h"

struct leases;
struct principal;

/* At most `max` leases per principal. NULL without memory. */
struct leases *leases_new(uint32_t max);
void leases_free(struct leases *t);                               /* NULL allowed */
void leases_observe(struct leases *t, const struct observer *to); /* before it is used; borrowed */
/* Drops what is over: after accounts were removed. */
void leases_sweep(struct leases *t);

struct lease {
    char token[ID_SIZE]; /* l-… */
    bool write;
    int64_t expires_us; /* since 1970 */
};

/* A request and the value of its Arrayd-Lease header, a list of tokens (NULL: none). */
struct lease_claim {
    struct leases *table; /* NULL: there are no leases */
    const char *tokens;
    const struct principal *who; /* the principal that a new lease counts for */
};

enum lease_access {
    LEASE_LOOK,  /* metadata: always allowed */
    LEASE_READ,  /* ERR_LOCKED while another holder has a write lease */
    LEASE_WRITE, /* … any lease */
    LEASE_PLACE, /* other memory will replace the array's: as LEASE_WRITE, and while anybody, the
                    claim's holder included, has it exported */
    LEASE_UNDO /* the array will be replaced or exchanged: … anybody, the claim's holder included,
                  has a lease */
};
enum err_code lease_check(const struct lease_claim *c, const struct array *a,
                          enum lease_access access, struct err *e) must_check;

/* A new lease, or, if the claim already holds one on this memory, that one with a new end and mode
 * (*ret_again). ERR_LOCKED, ERR_QUOTA, ERR_OUT_OF_MEMORY. */
enum err_code lease_take(const struct lease_claim *c, const struct array *a, bool write,
                         double ttl_s, struct lease *ret, bool *ret_again,
                         struct err *e) must_check;
/* Ends the claim's lease. An export's lease ends only by lease_unpin: it stays, and ret_export
 * returns its token (otherwise ""). ERR_NOT_FOUND: no lease; ERR_LOCKED: it is another holder's. */
enum err_code lease_give(const struct lease_claim *c, const struct array *a,
                         char ret_export[ID_SIZE], struct err *e) must_check;

/* The lease of an export, beside those the claim holds: it has no end and is neither renewed nor
 * changed. `shared`: the id of another principal's array; NULL: the array is the claim's. Errors as
 * lease_take. */
enum err_code lease_pin(const struct lease_claim *c, const struct array *a, const char *shared,
                        bool write, char ret_token[ID_SIZE], struct err *e) must_check;
void lease_unpin(struct leases *t, uint64_t buffer, const char *token);
/* Ends the leases of `who` on this memory, except exports': all of them if `who` may no longer use
 * it (`reading`), or those for writing if it may no longer write. */
void lease_end(struct leases *t, const struct array *a, const struct principal *who, bool reading);
/* The same whoever's they are, of the memory with that array_buffer_id: its owner no longer has it.
 */
void lease_end_all(struct leases *t, uint64_t buffer);
/* A lease as the observer is told of it, and as another process can restore it. */
struct lease_image {
    struct lease lease;
    uint64_t buffer;             /* array_buffer_id, in this process */
    const struct principal *who; /* NULL: nobody's */
    bool pinned;                 /* an export's: without an end */
    uint64_t memory;             /* an export's: array_memory_id, and */
    char shared[ID_SIZE];        /* lease_pin's `shared`; "": NULL */
};
/* Calls visit for each lease that is in force, on that buffer or (NULL) on any, with the lock
 * held. */
void lease_each(struct leases *t, const uint64_t *buffer,
                void (*visit)(void *user, const struct lease_image *l), void *user);
/* Restores a lease of an earlier process; the maximum number does not apply. One that is over is
 * not restored. ERR_OUT_OF_MEMORY. */
enum err_code lease_restore(struct leases *t, const struct lease_image *image,
                            struct err *e) must_check;

/* For changes made by a handle's table: LEASE_UNDO of the current array. It is a handle_guard's
 * check; user is the struct leases. */
enum err_code lease_guard(void *user, const struct array *now, struct err *e) must_check;

#endif
