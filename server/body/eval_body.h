/* The body of evaluate and explain, read and checked as far as possible without typing the
 * expression.
 *
 * Called by handlers_evaluate.c and handlers_explain.c. Text and trees live in the request's arena;
 * references (session, arrays, `out`) are the struct's until eval_body_clear. */
#ifndef ARRAYD_SERVER_EVAL_BODY_H
#define ARRAYD_SERVER_EVAL_BODY_H

#include "compute/engine/engine.h"
#include "compute/lang/expr.h"
#include "compute/lang/function.h"
#include "protocol/wire/media.h"
#include "server/body/reader.h"
#include "server/http/http.h"
#include "server/store/handles.h"
#include "server/store/session.h"

/* Up to the first number of nodes the listener's thread makes the plan, up to the second a worker
 * as short work. A node takes from one to 20 µs. */
#define EVAL_NODES_HERE  64
#define EVAL_NODES_SHORT 512

struct eval_body {
    struct reader reader; /* with the session */
    struct expr expr;
    struct function_set functions; /* called; written out in expr, which points to their text */
    const char *name;              /* or NULL */
    uint64_t replaces;             /* array_buffer_id of the array that has the name now, 0: none */
    bool has_out;                  /* then: */
    struct handle out;             /* the array to write, */
    struct view region;
    bool inline_data;
    enum media reply;            /* MEDIA_JSON, or the type of the data itself */
    struct eval_request request; /* points into this struct */
};

/* Reads the body; on failure nothing needs clearing. `explain`: the reply is JSON in any case.
 * `ret` must stay where it is. */
enum err_code eval_body_read(struct request *req, struct json body, bool explain,
                             struct eval_body *ret, struct err *e) must_check;
void eval_body_clear(struct eval_body *b);
/* An error of the engine's with its place in the body. */
enum err_code eval_body_placed(enum err_code code, struct err *e);
/* Whether the other principals' arrays in it may still be used: errors as share_again. */
enum err_code eval_body_ask_again(const struct eval_body *b, struct err *e) must_check;

#endif
