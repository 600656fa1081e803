/* Tries that freed something, and those that did not, are counted apart. The counts are
 * written before the owner is told, and by nobody while it is not waiting. */
#include "server/work/memory_retry.h"

#include <stdio.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/memory/memory.h"

#define MOST_TRIES     100
#define MOST_FRUITLESS 25           /* while others use all memory: some milliseconds each */
#define MOST_NS        10000000000u /* and while work is in flight */

bool lacks_memory(const struct err *e)
{
    return e->code == ERR_OUT_OF_MEMORY && e->wanted > 0;
}

void memory_explain(const struct engine *g, bool evict, struct err *e)
{
    struct backend_device d;
    if (!lacks_memory(e))
        return;
    engine_device_info(g, e->device, &d);
    const bool fits = e->wanted <= d.memory_limit;
    const size_t n = strlen(e->message);
    snprintf(e->message + n, sizeof e->message - n,
             "; %lld of the %lld bytes of device memory that arrayd may use (memory-limit) are "
             "free%s",
             (long long)(d.memory_free > 0 ? d.memory_free : 0), (long long)d.memory_limit,
             fits && !evict ? ", and the daemon was started without --evict, which moves arrays "
                              "that were not used recently to host memory"
                            : "");
}

static bool worth_waiting(struct memory_retry *r)
{
    return r->fruitless++ < MOST_FRUITLESS ||
           (engine_jobs_in_flight(r->engine) > 0 && clock_ns() < r->until);
}

static void answered(void *user, enum err_code result, double device_ms)
{
    struct memory_retry *r = user;
    (void)device_ms;
    if (result == ERR_OK)
        r->tries++;
    else if (result != ERR_OVERLOADED || !worth_waiting(r))
        r->tries = MOST_TRIES; /* the next one is the last */
    r->done(r->user);
}

bool memory_retry_ask(struct memory_retry *r, struct engine *g, bool evict, const struct err *e,
                      void (*done)(void *user), void *user)
{
    if (!lacks_memory(e) || r->tries >= MOST_TRIES)
        return false;
    if (!r->until)
        r->until = clock_ns() + MOST_NS;
    r->engine = g;
    r->done = done;
    r->user = user;
    r->eviction = (struct eviction){.device = e->device,
                                    .bytes = e->wanted,
                                    .stay = !evict,
                                    .again = r->tries > 0,
                                    .until = e->until,
                                    .done = answered,
                                    .user = r};
    engine_evict(g, &r->eviction);
    return true;
}
