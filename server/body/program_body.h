/* A program that a request asks for, with all it needs to be run: the body of POST /v1/programs,
 * read; and an evaluate's with `statements`, which is a program of one step.
 *
 * Called by handlers_jobs.c, handlers_explain.c and handlers_statements.c; a job is made of one
 * (jobs_start). What is read is kept in an arena of its own, which is the program's from then on;
 * references are the struct's until they are a job's or program_body_clear gives them back. */
#ifndef ARRAYD_SERVER_PROGRAM_BODY_H
#define ARRAYD_SERVER_PROGRAM_BODY_H

#include "compute/program/program.h"
#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/store/handles.h"
#include "server/store/lease.h"
#include "server/store/share.h"

struct session;

struct body_snapshot {
    uint32_t target; /* of the program */
    int64_t every;   /* steps */
};

/* Under which handle an array is written: asked for again before each slice and after it. */
struct body_target {
    char id[ID_SIZE];
    bool shared; /* another principal's, who may take it back */
};

/* An array of another principal's that is only read. */
struct body_read {
    char id[ID_SIZE];
    uint32_t input; /* of the program */
};

struct program_body {
    const struct principal *principal;
    struct session *session;
    struct program *program;
    struct function_set *functions; /* that the program's text names */
    size_t n_functions;
    struct lease_claim claim; /* under which its arrays are read and written */
    struct shares *shares;
    const struct body_target *targets; /* as many as the program has, in its order */
    const struct body_read *reads;
    uint32_t n_reads;
    /* of a program: */
    int64_t steps, record_every;
    const char *const *series; /* names */
    uint32_t n_series;
    const struct body_snapshot *snapshots;
    uint32_t n_snapshots;
    /* of statements: */
    const struct program_result *results; /* what the reply has, */
    uint32_t n_results;
    bool inline_data; /* and whether with its contents */
};

/* On failure nothing needs clearing. `explain`: nothing will be written, whoever has leased it. */
enum err_code program_body_read(struct request *req, struct json body, bool explain,
                                struct program_body *ret, struct err *e) must_check;
/* The same of statements: no job is to be made of it. Where they have more than most_nodes nodes
 * (0: any number), ret->program is NULL, nothing has been asked of the session, and nothing needs
 * clearing. */
enum err_code statements_body_read(struct request *req, struct json body, bool explain,
                                   size_t most_nodes, struct program_body *ret,
                                   struct err *e) must_check;
/* Lets go of the program, and of the functions that its text names. */
void program_body_drop(struct program_body *b);
/* The same, and of the session. */
void program_body_clear(struct program_body *b);

/* --- program_use.c --- */

/* Whether the program may read what it reads and write to all of its arrays at this moment:
 * ERR_NOT_FOUND where the session is gone, ERR_LOCKED, ERR_READ_ONLY, ERR_CONFLICT for one that was
 * resized, or what share_get says. */
enum err_code program_may_use(const struct program_body *b, struct err *e) must_check;
/* Whether an array of another principal's that it uses is not there for it any more. */
bool program_has_lost(const struct program_body *b);

#endif
