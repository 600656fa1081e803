/* The body of POST /v1/programs, read and made into a job's specification; and an evaluate's with
 * `statements`, which is a program of one step.
 *
 * Called by handlers_jobs.c, handlers_explain.c and handlers_statements.c. What is read is kept in
 * an arena of its own, which is the program's from then on; references are the struct's until they
 * are a job's (jobs_start) or program_body_clear gives them back. */
#ifndef ARRAYD_SERVER_PROGRAM_BODY_H
#define ARRAYD_SERVER_PROGRAM_BODY_H

#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/jobs/jobs.h"

struct program_body {
    struct job_spec job;
    const struct program_result *results; /* statements: what the reply has, */
    uint32_t n_results;
    bool inline_data; /* and whether with its contents */
};

/* On failure nothing needs clearing. `explain`: nothing will be written, whoever has leased it. */
enum err_code program_body_read(struct request *req, struct json body, bool explain,
                                struct program_body *ret, struct err *e) must_check;
/* The same of statements: no job is to be made of it. Where they have more than most_nodes nodes
 * (0: any number), ret->job.program is NULL, nothing has been asked of the session, and nothing
 * needs clearing. */
enum err_code statements_body_read(struct request *req, struct json body, bool explain,
                                   size_t most_nodes, struct program_body *ret,
                                   struct err *e) must_check;
void program_body_clear(struct program_body *b);

#endif
