/* Who asks for the work that the engine is given: a request, or a job; for the log and the errors
 * of a device that is lost while the work is on it (server/lost.h).
 *
 * A thread says what it works for: the HTTP front by asker_request, jobs_run.c by asker_begin. The
 * engine takes a reference with each piece of work (engine_config.asker), which may outlive the
 * request by far: so all is copied, once a request, when the first piece is asked for. Thread-safe,
 * but for the place of the asker, which belongs to the thread that works on the request or the
 * job. */
#ifndef ARRAYD_SERVER_ASKER_H
#define ARRAYD_SERVER_ASKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/server.h"

struct request;

#define ASKER_TEXT 320

struct asker {
    _Atomic unsigned refs;
    char request[40];               /* its X-Request-Id; of a job, of the one that began it */
    char job[ID_SIZE];              /* "": it is no job */
    char principal[PRINCIPAL_SIZE]; /* "" where the route is open to all */
    char session[ID_SIZE];
    char text[ASKER_TEXT]; /* "POST /v1/evaluate", and its expression or statements, shortened */
};

/* The calling thread works for that request from now on, until it is told another; NULL: for none.
 * The asker is made when the engine is given something, in req->asker: asker_unref is the caller's.
 */
void asker_request(struct request *req);
/* The same for a job's; NULL: for none. */
void asker_begin(struct asker *a);

/* A reference to the asker that the calling thread works for; NULL: there is none, or no memory. */
void *asker_now(void);
/* A new one, of a job that is begun now; asker_begin is told of it with every slice. */
struct asker *asker_of_job(const char *id, const char *session);
struct asker *asker_ref(struct asker *a);
void asker_unref(void *asker); /* NULL allowed */

/* Of a JSON body: from its expression or its statements on, where it has such, on one line. */
void asker_put_body(struct asker *to, const char *body, size_t n);

#endif
