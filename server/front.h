/* The HTTP front as the daemon starts it: its settings from the configuration, and the functions it
 * calls in the layers above it (server/http/http.h: struct http_calls). */
#ifndef ARRAYD_SERVER_FRONT_H
#define ARRAYD_SERVER_FRONT_H

#include "server/config/config.h"
#include "server/http/http.h"
#include "server/server.h"

/* With the routes of server/api/routes.c. */
struct http_calls front_calls(void);

/* Starts it as s->http. The errors are http_start's. */
enum err_code front_start(const struct config *c, struct server *s, struct err *e) must_check;
/* Logs that the daemon is ready, and where. */
void front_log(const struct server *s);

#endif
