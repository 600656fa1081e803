/*
 * Filling in the caller's struct arrayd_error: from the library's own mistakes, and from the
 * daemon's problem+json. Every function takes NULL for an error that nobody wants, and returns -1.
 */
#ifndef ARRAYD_CLIENT_ERROR_H
#define ARRAYD_CLIENT_ERROR_H

#include <arrayd.h>

/* An error of the library's own, status 0: its code and a sentence. */
int error_set(struct arrayd_error *err, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int error_no_memory(struct arrayd_error *err);

/* The error that a reply tells of: problem+json, or whatever else somebody between has answered. */
int error_from_reply(struct arrayd_error *err, long status, int64_t retry_after_s, const char *body,
                     size_t length);

struct cJSON;

/* The members of a problem, which may be NULL. */
void error_from_problem(struct arrayd_error *err, const struct cJSON *problem);

#endif
