/* Memory of the host that work takes, counted for whose work it is and held to limits: a request's
 * within its user's within the daemon's.
 *
 * A thread says for whom it works (meter_enter; server/http/http_workers.c,
 * server/jobs/jobs_run.c). What takes memory in large pieces (arenas, text, bodies) asks there
 * before it takes it, and counts it back when it lets go, on any thread. Where it is refused, it
 * does as if memory had run out: err_oom then says which limit it was. What is small is not
 * counted. Counts are atomic; meters are reference-counted, for what is counted may outlive a
 * request. */
#ifndef ARRAYD_BASE_METER_H
#define ARRAYD_BASE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/base/err.h"

struct meter;

/* `limit` bytes (0: none), called `name` in errors (static text), a part of what `within`, of which
 * a reference is taken, counts; NULL: of none. Past it the error is `past`, but ERR_OUT_OF_MEMORY
 * for what is too much by itself, and so will be again. NULL without memory. */
struct meter *meter_new(struct meter *within, const char *name, int64_t limit, enum err_code past);
struct meter *meter_ref(struct meter *m); /* returns m; NULL allowed, as it is below */
void meter_unref(struct meter *m);
void meter_set_limit(struct meter *m, int64_t limit); /* of what comes from now on */
int64_t meter_used(const struct meter *m);
int64_t meter_limit(const struct meter *m);

/* False: it would be more than a limit allows, and nothing is counted. */
bool meter_charge(struct meter *m, int64_t n) __attribute__((warn_unused_result));
/* What is there in any case. */
void meter_charge_anyway(struct meter *m, int64_t n);
void meter_discharge(struct meter *m, int64_t n);

/* What one thing takes, as it grows and shrinks; zeroed: nothing. It is counted for whom the thread
 * worked that first counted it. */
#define METERED_LEAST (64u << 10) /* what takes less need not be counted */
struct metered {
    struct meter *meter; /* a reference; NULL: nobody's */
    int64_t bytes;       /* counted there */
};
/* It takes `bytes` from now on. False: it would be too much, and takes what it took. */
bool metered_set(struct metered *c, int64_t bytes) __attribute__((warn_unused_result));
void metered_let_go(struct metered *c);
static inline void metered_end(struct metered *c)
{
    if (c->meter)
        metered_let_go(c);
}

/* What a thread works for: a request, a job. It belongs to one thread at a time, and meter_unref is
 * its owner's. */
struct cause {
    struct meter *meter;  /* a reference; NULL: nothing was counted yet, it is made then, */
    struct meter *within; /* borrowed, as a part of this with */
    int64_t limit;        /* and ERR_OUT_OF_MEMORY past it, */
    const char *name;     /* as that limit is called */
};
/* The thread works for that from now on (borrowed; NULL: for nobody). Forgets what was refused. */
void meter_enter(struct cause *cause);
/* Where it counts what it takes now, borrowed; NULL: nowhere. */
struct meter *meter_current(void);
/* Whether this thread has been refused memory since meter_enter: then *e says why. */
bool meter_refusal(struct err *e);

#endif
