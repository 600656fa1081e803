/* What is read of jobs elsewhere, too. */
#ifndef ARRAYD_CLIENT_JOBS_H
#define ARRAYD_CLIENT_JOBS_H

#include <arrayd.h>

struct cJSON;

/* Reads a job; false if the JSON does not describe one. */
bool jobs_read(const struct cJSON *tree, struct arrayd_job *ret);

#endif
