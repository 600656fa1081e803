/* What others need of jobs, too. */
#ifndef ARRAYD_CLIENT_JOBS_H
#define ARRAYD_CLIENT_JOBS_H

#include <arrayd.h>

struct cJSON;

/* Reads a job; false if the JSON does not describe one. */
bool jobs_read(const struct cJSON *tree, struct arrayd_job *ret);

/* Posts a body, which must be there, for which the reply is a job. */
int jobs_start(struct arrayd *client, const char *target, const char *json,
               struct arrayd_job *ret_job, struct arrayd_error *err);

#endif
