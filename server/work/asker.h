/* Who asks for the work that the engine is given: a request, or a job; for the log and the errors
 * of a device that is lost while the work is on it (server/lost.h).
 *
 * http_wait.c and jobs_run.c say what their thread is at. The engine takes a reference with each
 * piece of work (engine_config.asker), which may outlive the request by far: so all is copied, once
 * a request, when the first piece is asked for. Thread-safe but for struct asking, which belongs to
 * whoever works on the request or the job. */
#ifndef ARRAYD_SERVER_ASKER_H
#define ARRAYD_SERVER_ASKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/store/accounts.h"
#include "server/store/handles.h"

#define ASKER_TEXT 320

struct asker {
    _Atomic unsigned refs;
    char request[40];               /* its X-Request-Id; of a job, of the one that began it */
    char job[ID_SIZE];              /* "": it is no job */
    char principal[PRINCIPAL_SIZE]; /* "" where the route is open to all */
    char session[ID_SIZE];
    char text[ASKER_TEXT]; /* "POST /v1/evaluate", and its expression or statements, shortened */
};

/* What a thread is at. */
struct asking {
    struct asker *asker; /* a reference; NULL: the engine was given nothing yet */
    /* Fills in a new one, of which all is 0. */
    void (*describe)(const struct asking *a, struct asker *to);
};

void asking_begin(struct asking *a); /* of the calling thread, until */
void asking_end(void);

/* A reference to the asker of what the calling thread is at; NULL: there is none, or no memory. */
void *asker_now(void);
/* The same for a job that is begun now; asking_begin is told of it with every slice. */
struct asker *asker_of_job(const char *id, const char *session);
struct asker *asker_ref(struct asker *a);
void asker_unref(void *asker); /* NULL allowed */

/* Of a JSON body: from its expression or its statements on, where it has such, on one line. */
void asker_put_body(struct asker *to, const char *body, size_t n);

#endif
