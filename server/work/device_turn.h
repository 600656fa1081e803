/* A request's turn on the device (server/work/scheduler.h). The HTTP front asks for a turn before
 * it runs the handler of a route that gives a device work, and leaves it when the request has its
 * reply; a handler that has much to do without the device leaves it before. A request that waits
 * has its body read already. */
#ifndef ARRAYD_SERVER_DEVICE_TURN_H
#define ARRAYD_SERVER_DEVICE_TURN_H

#include "server/http/http.h"

struct sched_lane;

/* It holds a turn, or waits for one: a request that runs again (http_repeat) keeps its turn. */
bool device_turn_asked(const struct request *req);
/* True: the request continues now. False: it continues in `then` when its turn comes, or it has its
 * reply (too many wait already). release(holder), called when the turn ends, releases what keeps
 * the lane alive until then. */
bool device_turn_take(struct request *req, struct sched_lane *lane, void (*release)(void *holder),
                      void *holder, handler_fn *then);
/* For a request that has more work for the device once it has fetched the result of what it gave
 * it: leaves the turn and asks for another, which is never refused. Results as device_turn_take;
 * true without a turn. */
bool device_turn_renew(struct request *req, handler_fn *then);
/* Does nothing without a turn. */
void device_turn_leave(struct request *req);

#endif
