/* The program in a request, with everything needed to run it: the parsed body of POST /v1/programs,
 * or an evaluate's with `statements`, which is a program of one step.
 *
 * Called by handlers_jobs.c, handlers_explain.c and handlers_statements.c; jobs_start makes a job
 * of one. The parsed body is in an arena of its own, which the program then owns; references are
 * the struct's until a job takes them or program_body_clear releases them. */
#ifndef ARRAYD_SERVER_PROGRAM_BODY_H
#define ARRAYD_SERVER_PROGRAM_BODY_H

#include "compute/program/program.h"
#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/store/handles.h"
#include "server/store/lease.h"
#include "server/store/share.h"

struct past;
struct server;
struct session;

struct body_snapshot {
    uint32_t target; /* of the program */
    int64_t every;   /* steps */
};

/* The handle under which an array is written: checked before each slice and after it. */
struct body_target {
    char id[ID_SIZE];
    bool shared; /* another principal's, who may revoke the share */
};

/* Another principal's array that is only read. */
struct body_read {
    char id[ID_SIZE];
    uint32_t input; /* of the program */
};

struct program_body {
    const struct principal *principal;
    struct session *session;
    struct program *program;
    struct function_set *functions; /* named in the program's text */
    size_t n_functions;
    struct lease_claim claim; /* the claim for reading and writing its arrays */
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
    const char *text; /* the request's body */
    size_t text_len;
    /* of statements: */
    const struct program_result *results; /* the results in the reply */
    uint32_t n_results;
    bool inline_data; /* with their contents */
};

/* On failure nothing needs clearing. `explain`: nothing will be written, so leases do not
 * matter. */
enum err_code program_body_read(struct request *req, struct json body, bool explain,
                                struct program_body *ret, struct err *e) must_check;
/* The same for a program of an earlier process, from its `text`. What its arrays may be used for
 * is not looked at. */
enum err_code program_body_again(struct server *server, struct principal *p, const char *text,
                                 size_t n, const struct past *past, struct program_body *ret,
                                 struct err *e) must_check;
/* The same for statements, from which no job will be made. If they have more than most_nodes nodes
 * (0: any number), ret->program is NULL, the session has not been used, and nothing needs
 * clearing. */
enum err_code statements_body_read(struct request *req, struct json body, bool explain,
                                   size_t most_nodes, struct program_body *ret,
                                   struct err *e) must_check;
/* Releases the program, and the functions that its text names. */
void program_body_drop(struct program_body *b);
/* The same, and the session. */
void program_body_clear(struct program_body *b);

/* --- program_use.c --- */

/* Whether the program may read and write all of its arrays at this moment: ERR_NOT_FOUND if the
 * session is closed, ERR_LOCKED, ERR_READ_ONLY, ERR_CONFLICT for an array that was resized, or the
 * errors of share_get. */
enum err_code program_may_use(const struct program_body *b, struct err *e) must_check;
/* The handle of a target at this moment, which the caller clears; one without an array if there is
 * none any more. */
void program_target_now(const struct program_body *b, uint32_t target, struct handle *ret);
/* Whether it has lost access to another principal's array that it uses. */
bool program_has_lost(const struct program_body *b);

#endif
