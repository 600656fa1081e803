/* Uses: requests that passed lease_check but have not yet sent their work to the engine.
 *
 * The holder of a new lease or export gets the array as it is after all work already sent. So every
 * request that checked before the lease existed (lease_check) must have sent its work first.
 * Handlers open a use before they check and close it when the engine has their work: some
 * microseconds later, or as long as planning a large expression takes. A use is not tied to
 * particular memory. Thread-safe; without a table it does nothing. */
#ifndef ARRAYD_SERVER_LEASE_USE_H
#define ARRAYD_SERVER_LEASE_USE_H

#include <stddef.h>

struct lease_uses;

struct lease_uses *lease_uses_new(void);    /* NULL without memory */
void lease_uses_free(struct lease_uses *t); /* when no use is open; NULL allowed */

struct lease_use {
    struct lease_uses *table; /* NULL: closed, or without a table */
    unsigned side;
};
struct lease_use lease_use_open(struct lease_uses *t); /* NULL allowed */
void lease_use_close(struct lease_use *u);             /* idempotent */
#define _cleanup_use_ __attribute__((cleanup(lease_use_close)))

/* done() is called once, when all uses open now have been closed: by any thread, perhaps at once.
 * The struct must stay valid until then. */
struct lease_settling {
    void (*done)(struct lease_settling *s);
    struct lease_settling *next; /* private */
};
void lease_uses_settle(struct lease_uses *t, struct lease_settling *s);

#endif
