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

/* The fullest of a mesh's GPUs is why. */
static void full_one(const struct engine *g, struct backend_device *d)
{
    const struct backend_device mesh = *d;
    for (int i = 0; i < mesh.n_parts; i++) {
        struct backend_device part;
        engine_device_info(g, mesh.parts[i], &part);
        if (i == 0 || part.memory_free < d->memory_free)
            *d = part;
    }
}

void memory_explain(const struct engine *g, bool evict, struct err *e)
{
    struct backend_device d;
    char of_mesh[96] = "", where[32] = "";
    if (!lacks_memory(e))
        return;
    engine_device_info(g, e->device, &d);
    const bool fits = e->wanted <= d.memory_most;
    if (d.n_parts) {
        full_one(g, &d);
        snprintf(where, sizeof where, " on device %d", d.index);
    }
    if (where[0] || d.memory_of_mesh)
        snprintf(of_mesh, sizeof of_mesh, "; of this memory arrays of the mesh have %lld bytes",
                 (long long)d.memory_of_mesh);
    const size_t n = strlen(e->message);
    snprintf(e->message + n, sizeof e->message - n,
             "; %lld of the %lld bytes of device memory that arrayd may use%s (memory-limit) are "
             "free%s%s",
             (long long)(d.memory_free > 0 ? d.memory_free : 0), (long long)d.memory_limit, where,
             of_mesh,
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
    struct backend_device d;
    if (!lacks_memory(e) || r->tries >= MOST_TRIES)
        return false;
    if (!r->until) {
        engine_device_info(g, e->device, &d);
        if (e->wanted > d.memory_most)
            return false; /* and no array is moved in vain */
        r->until = clock_ns() + MOST_NS;
    }
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
