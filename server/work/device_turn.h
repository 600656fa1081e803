/* A request's turn on the device (server/work/scheduler.h): http.c asks for it before the handler
 * of a route that gives a device work runs, and leaves it when the reply is there. The request
 * waits meanwhile, with its body read. */
#ifndef ARRAYD_SERVER_DEVICE_TURN_H
#define ARRAYD_SERVER_DEVICE_TURN_H

#include "server/http/http.h"

/* True: it goes on now. False: in `then`, when its turn has come; or it has been answered (too many
 * wait already). */
bool device_turn_take(struct request *req, handler_fn *then);
/* No harm without one. */
void device_turn_leave(struct request *req);

#endif
