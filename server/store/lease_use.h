/* Who has been told that he may use an array's memory and has not given his work to the engine yet.
 *
 * Who is given a lease, or an export, has the array as it is behind all work that was sent; so
 * first everybody who had looked before the lease was there (lease_check) must have sent his.
 * Handlers open a use before they look and close it when the engine has their work: some
 * microseconds later, or as long as a large expression is planned. Uses are of no memory in
 * particular. Thread-safe; without a table it does nothing. */
#ifndef ARRAYD_SERVER_LEASE_USE_H
#define ARRAYD_SERVER_LEASE_USE_H

#include <stddef.h>

struct lease_uses;

struct lease_uses *lease_uses_new(void);    /* NULL without memory */
void lease_uses_free(struct lease_uses *t); /* without uses; NULL allowed */

struct lease_use {
    struct lease_uses *table; /* NULL: closed, or of no table */
    unsigned side;
};
struct lease_use lease_use_open(struct lease_uses *t); /* NULL allowed */
void lease_use_close(struct lease_use *u);             /* once more does nothing */
#define _cleanup_use_ __attribute__((cleanup(lease_use_close)))

/* done() is told once, when all uses that are open now have been closed: by any thread, perhaps at
 * once. The struct is the caller's until then. */
struct lease_settling {
    void (*done)(struct lease_settling *s);
    struct lease_settling *next; /* own */
};
void lease_uses_settle(struct lease_uses *t, struct lease_settling *s);

#endif
