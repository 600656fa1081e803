/* Host memory, counted for the request or job that uses it and held to limits: the request's limit,
 * within its user's, within the daemon's.
 *
 * A thread announces what it works for (meter_enter; server/http/http_workers.c,
 * server/jobs/jobs_run.c). Code that allocates large pieces (arenas, text, bodies) charges the
 * meter before it allocates and discharges it after freeing, on any thread. If the charge is
 * refused, the code acts as if memory had run out; err_oom then says which limit it was. Small
 * allocations are not counted. Counts are atomic; meters are reference-counted, because what they
 * count may outlive a request. */
#ifndef ARRAYD_BASE_METER_H
#define ARRAYD_BASE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"

struct meter;

/* A meter with a limit of `limit` bytes (0: none), called `name` in errors (static text). It counts
 * as a part of `within`, to which it takes a reference; NULL: of nothing. A charge past the limit
 * fails with `past`, or with ERR_OUT_OF_MEMORY if it would exceed the limit even alone, so that a
 * retry cannot help. NULL without memory. */
struct meter *meter_new(struct meter *within, const char *name, int64_t limit, enum err_code past);
struct meter *meter_ref(struct meter *m); /* returns m; NULL allowed, here and below */
void meter_unref(struct meter *m);
void meter_set_limit(struct meter *m, int64_t limit); /* for charges from now on */
int64_t meter_used(const struct meter *m);
int64_t meter_limit(const struct meter *m);

/* False: a limit would be exceeded; nothing is counted. */
bool meter_charge(struct meter *m, int64_t n) __attribute__((warn_unused_result));
/* Counts memory that is in use already, whatever the limits. */
void meter_charge_anyway(struct meter *m, int64_t n);
void meter_discharge(struct meter *m, int64_t n);

/* The memory of one thing, as it grows and shrinks; zeroed: none. It is counted for whatever the
 * thread that first charged it was working for. */
#define METERED_LEAST (64u << 10) /* smaller things need not be counted */
struct metered {
    struct meter *meter; /* a reference; NULL: not counted yet */
    int64_t bytes;       /* counted in `meter` */
};
/* Its size is `bytes` from now on. False: a limit would be exceeded; the old size stays counted. */
bool metered_set(struct metered *c, int64_t bytes) __attribute__((warn_unused_result));
void metered_let_go(struct metered *c);
static inline void metered_end(struct metered *c)
{
    if (c->meter)
        metered_let_go(c);
}

/* What a thread works for: a request or a job. Used by one thread at a time. Its owner releases
 * `meter` with meter_unref. */
struct cause {
    struct meter *meter;  /* a reference; NULL until something is counted */
    struct meter *within; /* borrowed; `meter` is created as a part of it */
    int64_t limit;        /* of `meter`; ERR_OUT_OF_MEMORY past it */
    const char *name;     /* what errors call that limit */
};
/* The calling thread works for `cause` from now on (borrowed; NULL: for nothing that is counted).
 * Forgets earlier refusals. */
void meter_enter(struct cause *cause);
/* The meter that the calling thread charges, borrowed; NULL: none. */
struct meter *meter_current(void);
/* Whether this thread was refused memory since meter_enter or the last call; then *e says why. */
bool meter_refusal(struct err *e);

#endif
