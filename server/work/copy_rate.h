/* How fast each device copies memory: what other work is compared with, and what programs are
 * expected to take that have not run before.
 *
 * Measured when somebody first asks, by a thread of its own, with some copies of an array that is
 * too large for caches; and again when somebody asks after a minute or more. The fastest of all
 * counts: other work can only slow a copy down. No turn is asked for, and no user pays. Called by
 * handlers and by jobs; made by main.c. Thread-safe. */
#ifndef ARRAYD_SERVER_COPY_RATE_H
#define ARRAYD_SERVER_COPY_RATE_H

#include <stdbool.h>

#include "compute/engine/engine.h"

struct copy_rates;

struct copy_rates *copy_rates_new(struct engine *engine); /* NULL without memory */
/* Waits until then for what it measures; if the device has not ended that, nothing is freed. NULL
 * allowed; nobody may wait. */
void copy_rates_free(struct copy_rates *r, uint64_t until_ns);

/* Bytes read and written a second; 0: not known (yet). r NULL allowed, here and below. */
double copy_rate(struct copy_rates *r, int device);

/* Has it measured, if it is time. True: it is not known yet, and wake() is called, by any thread,
 * when it is, or cannot be measured; with `w` NULL nobody waits. The struct is the caller's until
 * then, or until copy_rate_leave. */
struct copy_wait {
    void (*wake)(void *user);
    void *user;
    struct copy_wait *next;
};
bool copy_rate_measure(struct copy_rates *r, int device, struct copy_wait *w);
void copy_rate_leave(struct copy_rates *r, const struct copy_wait *w);

#endif
