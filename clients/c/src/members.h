/*
 * Members of JSON requests that several routes have in common, and what several replies hold.
 * Adding functions put a member, with the comma before it, into a text; reading ones return false
 * where the reply is not what the contract says.
 */
#ifndef ARRAYD_CLIENT_MEMBERS_H
#define ARRAYD_CLIENT_MEMBERS_H

#include "clients/c/src/exchange.h"

struct cJSON;

void members_strings(struct text *json, const char *name, const char *const *strings, size_t count);
void members_integer(struct text *json, const char *name, int64_t value);
void members_true(struct text *json, const char *name, bool value); /* none where it is false */
void members_binds(struct text *json, const struct arrayd_bind *binds, size_t count);

/* An array's metadata; *ret may be written in part on failure: it is the caller's own copy. */
bool members_array(const struct cJSON *json, struct arrayd_array *ret);

/* {"dtype", "shape", "value"}: a single number, with what it holds. */
bool members_scalar(const struct cJSON *json, struct arrayd_scalar *ret);

/* A string member into a buffer: "" where it is not there or null, false where it is too long. */
bool members_copy(const struct cJSON *json, const char *name, char *into, size_t size);

/* A member that is a list of `rank` integers. *ret may be written in part on failure. */
bool members_integers(const struct cJSON *json, const char *name, int rank, int64_t *ret);

/* Runs an exchange whose reply is an array's metadata, and frees it. ret may be NULL. */
int members_array_reply(struct arrayd *client, struct exchange *x, struct arrayd_array *ret,
                        struct arrayd_error *err);

#endif
