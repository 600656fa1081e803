/* What every way of creating an array has in common: where the new handle goes.
 *
 * POST /v1/arrays takes the name from the body or ?name=, refuses a taken one and answers 201;
 * PUT /v1/arrays/{name} takes it from the path, replaces, and answers 201 or 200. Called by
 * handlers_create.c (JSON creators) and data.c (bytes). Memory is the request's. */
#ifndef ARRAYD_SERVER_CREATE_H
#define ARRAYD_SERVER_CREATE_H

#include "server/body/condition.h"
#include "server/http/http.h"
#include "server/store/handles.h"
#include "server/store/lease.h"
#include "server/store/session.h"

struct create_target {
    struct session *session; /* a reference, create_target_clear gives it back */
    bool put;
    char name[NAME_SIZE];       /* "" when the array gets none */
    struct condition condition; /* PUT: on the array that has the name now */
    struct leases *leases;      /* on which there must be no lease */
};

/* Reads session, path and ?name= (ERR_BAD_FIELD on PUT) and checks that the name can be had and,
 * for PUT, that the request's conditions hold (ERR_PRECONDITION_FAILED, ERR_LOCKED); both are asked
 * again when the array gets its handle. On failure nothing needs clearing. */
enum err_code create_target_init(struct request *req, struct create_target *ret,
                                 struct err *e) must_check;
/* The "name" of a JSON body (POST only); checked in the same way. The pointer in `e` is "/name". */
enum err_code create_target_name(struct create_target *t, const char *name,
                                 struct err *e) must_check;
void create_target_clear(struct create_target *t);

/* Gives the array its handle and replies with the metadata, or with the error. Takes the caller's
 * reference to the array and clears the target. */
void create_reply(struct request *req, struct create_target *take_t, struct array *take_array);

#endif
