/* The originator of the engine's work: a request, or a job; for the log and the errors of a device
 * that is lost while it runs the work (server/lost.h).
 *
 * A thread declares what it works for: the HTTP front by asker_request, jobs_run.c by asker_begin.
 * The engine takes a reference with each piece of work (engine_config.asker), which may long
 * outlive the request: so everything is copied, once per request, when its first piece is queued.
 * Thread-safe, except the thread's current asker, which belongs to the thread that works on the
 * request or job. */
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
    char request[40];  /* its X-Request-Id; for a job, that of the request that began it */
    char job[ID_SIZE]; /* "": not a job */
    char principal[PRINCIPAL_SIZE]; /* "" where the route is open to all */
    char session[ID_SIZE];
    char text[ASKER_TEXT]; /* "POST /v1/evaluate", and its expression or statements, shortened */
};

/* The calling thread works for that request until the next call; NULL: for none. The asker is
 * created in req->asker when the engine first gets work; the caller must asker_unref it. */
void asker_request(struct request *req);
/* The same for a job, even within a request; NULL: for none. */
void asker_begin(struct asker *a);

/* A reference to the asker that the calling thread works for; NULL: there is none, or no memory. */
void *asker_now(void);
/* A new asker for a job that begins now; pass it to asker_begin for every slice. */
struct asker *asker_of_job(const char *id, const char *session);
struct asker *asker_ref(struct asker *a);
void asker_unref(void *asker); /* NULL allowed */

/* Appends a JSON body on one line, from its expression or its statements on, if it has any. */
void asker_put_body(struct asker *to, const char *body, size_t n);

#endif
