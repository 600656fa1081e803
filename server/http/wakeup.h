/* Joins "somebody will wake me" with http_wait: a wake that may come at any time, from any thread,
 * once or several times, becomes exactly one http_wake for each http_wait.
 *
 * Used wherever a handler waits for the engine. A gate lives as long as its request and belongs to
 * it; gate_wake may be called from any thread, the rest by whoever works on the request.
 *
 *     gate_arm(g);
 *     if (!try_to_go_on())
 *         gate_wait(g, then);   // the last thing the caller does
 */
#ifndef ARRAYD_SERVER_GATE_H
#define ARRAYD_SERVER_GATE_H

#include <stdatomic.h>

#include "compute/engine/engine.h"
#include "server/config.h"
#include "server/http/http.h"
#include "server/server.h"

enum gate_state { GATE_IDLE, GATE_WAITING, GATE_WOKEN };

struct gate {
    struct request *req;
    _Atomic int state;
};

static inline void gate_init(struct gate *g, struct request *req)
{
    g->req = req;
    atomic_init(&g->state, GATE_IDLE);
}

/* Before looking whether what is waited for is there: wakes from here on are remembered. */
static inline void gate_arm(struct gate *g)
{
    atomic_store(&g->state, GATE_IDLE);
}

/* The callback to give away (user = the gate). */
static inline void gate_wake(void *user)
{
    struct gate *g = user;
    struct request *req = g->req;
    if (atomic_exchange(&g->state, GATE_WOKEN) == GATE_WAITING)
        http_wake(req);
}

/* Whether the wake came within the configured time (microseconds): where work is done by a device,
 * the first wait for a small result is mostly shorter than a suspension costs. */
static inline bool gate_soon(struct gate *g)
{
    const struct server *s = g->req->server;
    if (s->config->spin == 0 || engine_in_host_memory(s->engine) || !http_alone(g->req))
        return false;
    uint64_t end = http_now_ns() + (uint64_t)s->config->spin * 1000;
    while (atomic_load(&g->state) != GATE_WOKEN)
        if (http_now_ns() > end)
            return false;
    return true;
}

/* The request goes on in `then` after the first wake since gate_arm. */
static inline void gate_wait(struct gate *g, handler_fn *then)
{
    struct request *req = g->req;
    http_wait(req, then);
    int idle = GATE_IDLE;
    if (!atomic_compare_exchange_strong(&g->state, &idle, GATE_WAITING))
        http_wake(req);
}

#endif
