/* The reader for the bodies of evaluate, explain and programs: expressions, the functions that they
 * call, what their names mean, and the arrays that they write.
 *
 * Called by eval_body.c and program_body.c; function_json.c reads its expression with it too. The
 * reader holds references to the session and to what names mean until reader_clear. Used by the
 * thread that works on the request; a reader must not be moved. */
#ifndef ARRAYD_SERVER_READER_H
#define ARRAYD_SERVER_READER_H

#include "compute/check/check.h"
#include "compute/lang/expr.h"
#include "compute/lang/function.h"
#include "protocol/json/json.h"
#include "server/http/http.h"
#include "server/store/lease.h"
#include "server/store/session.h"
#include "server/store/share.h"

/* A name and its meaning: from the body's "bind", or from the session's arrays. It means the same
 * array throughout a request, whatever happens to the handles meanwhile. */
struct resolved {
    const char *name;
    struct binding binding; /* for arrays, with a reference */
    char shared[ID_SIZE];   /* another principal's array: its id; else "" */
};

/* What a text meant to the process that read it first: names and functions mean the same again,
 * whatever clients have changed since. */
struct past_name {
    const char *name;
    char id[ID_SIZE]; /* of the handle that it was found by */
    bool shared;      /* another principal's */
    struct array *array;
};
struct past {
    struct session *session;
    struct functions *functions; /* those that it calls */
    const char *lease;           /* the request's tokens; NULL: none */
    const struct past_name *names;
    size_t n_names;
};

struct reader {
    struct request *req;     /* with a past: only its server, principal and arena are set */
    const struct past *past; /* borrowed; NULL: everything means what it does now */
    struct json body;
    bool explain;            /* nothing will be written, so leases do not matter */
    struct session *session; /* a reference; NULL before reader_open */
    struct array_scope scope;
    struct lease_claim claim; /* without a table, nothing is checked */
    struct resolved *bound;   /* sorted by name */
    size_t n_bound;
    struct resolved *seen; /* the session's arrays that were looked up */
    size_t n_seen, cap_seen;
    struct check_env env; /* its user is this struct */
};

/* Makes an empty expression in this memory, with the configured limits. */
void reader_start(const struct reader *r, struct arena *arena, struct expr *x);
/* Parses one expression in either spelling, from the place `pointer` of the body. Strings are
 * infix, unless `tree` is set. */
enum err_code reader_parse(struct expr *x, struct json v, const char *pointer, bool tree,
                           uint32_t *ret, struct err *e) must_check;
/* Writes out the calls of the principal's functions. The caller owns the set (functions_release),
 * also on failure: the expression points to its text. */
enum err_code reader_write_out(const struct reader *r, struct expr *x, struct function_set *ret,
                               struct err *e) must_check;

/* Opens the session and reads the body's "bind": an object of names and arrays (id or name), weak
 * scalars or typed constants. ERR_BAD_FIELD, ERR_BAD_NAME, ERR_NOT_FOUND (no such array),
 * ERR_INEXACT_NUMBER …, with the pointer. After a failure too, call reader_clear. */
enum err_code reader_open(struct reader *r, struct err *e) must_check;
/* check_env.resolve; `reader` is the reader. */
enum err_code reader_resolve(void *reader, const char *name, struct binding *ret,
                             struct err *e) must_check;
/* check_env.called: the array's name, or its id where it has none. */
const char *reader_called(void *reader, const char *name);
/* The id of an array from this reader if it is another principal's; else NULL. */
const char *reader_shared(const struct reader *r, const struct array *a);
/* Whether all other principals' arrays from this reader are still shared: share_again. */
enum err_code reader_ask_again(const struct reader *r, struct err *e) must_check;
/* With a past: what the name meant; NULL: it was no array. */
const struct past_name *reader_past(const struct reader *r, const char *name);
/* The array `ref`, which is to be written: errors as request_find, ERR_LOCKED, ERR_READ_ONLY,
 * ERR_FORBIDDEN. */
enum err_code reader_target(struct reader *r, const char *ref, struct handle *ret,
                            struct err *e) must_check;
void reader_clear(struct reader *r);

#endif
