/* A request's turn on the device (server/work/scheduler.h): the HTTP front asks for it before the
 * handler of a route that gives a device work runs, and leaves it when the reply is there. The
 * request waits meanwhile, with its body read. */
#ifndef ARRAYD_SERVER_DEVICE_TURN_H
#define ARRAYD_SERVER_DEVICE_TURN_H

#include "server/http/http.h"

struct sched_lane;

/* It has a turn, or waits for one: a request that runs again (http_repeat) keeps its turn. */
bool device_turn_asked(const struct request *req);
/* True: the request goes on now. False: it does in `then`, when its turn has come; or it has been
 * answered (too many wait already). release(holder) is called when the turn is left: what keeps the
 * lane until then. */
bool device_turn_take(struct request *req, struct sched_lane *lane, void (*release)(void *holder),
                      void *holder, handler_fn *then);
/* No harm without one. */
void device_turn_leave(struct request *req);

#endif
