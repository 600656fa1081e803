/* Connects engine callbacks to http_wait: a wake that may come at any time, from any thread, once
 * or several times, becomes exactly one http_wake for each http_wait.
 *
 * Used wherever a handler waits for the engine. A wakeup lives as long as its request and belongs
 * to it; any thread may call wakeup_ring, and only the thread that works on the request the rest.
 *
 *     wakeup_arm(w);
 *     if (!try_to_go_on())
 *         wakeup_wait(w, then);   // the caller's last action */
#ifndef ARRAYD_SERVER_WAKEUP_H
#define ARRAYD_SERVER_WAKEUP_H

#include <stdatomic.h>

#include "server/http/http.h"

enum wakeup_state { WAKEUP_IDLE, WAKEUP_WAITING, WAKEUP_WOKEN };

struct wakeup {
    struct request *req;
    _Atomic int state;
};

static inline void wakeup_init(struct wakeup *w, struct request *req)
{
    w->req = req;
    atomic_init(&w->state, WAKEUP_IDLE);
}

/* To be called before checking the awaited condition: wakes from here on are remembered. */
static inline void wakeup_arm(struct wakeup *w)
{
    atomic_store(&w->state, WAKEUP_IDLE);
}

/* The callback to register (user = the wakeup). */
static inline void wakeup_ring(void *user)
{
    struct wakeup *w = user;
    struct request *req = w->req;
    if (atomic_exchange(&w->state, WAKEUP_WOKEN) == WAKEUP_WAITING)
        http_wake(req);
}

/* Whether the wake comes within the configured time: on a device, the first wait for a small result
 * is usually shorter than a suspension. Callbacks of other work may run meanwhile. */
bool wakeup_soon(struct wakeup *w); /* http_wait.c */

/* The request continues in `then` at the first wake since wakeup_arm. */
static inline void wakeup_wait(struct wakeup *w, handler_fn *then)
{
    struct request *req = w->req;
    http_wait(req, then);
    int idle = WAKEUP_IDLE;
    if (!atomic_compare_exchange_strong(&w->state, &idle, WAKEUP_WAITING))
        http_wake(req);
}

#endif
