/* Errors as values: what went wrong, and where in the request.
 *
 * Used everywhere. A `struct err` is owned by the caller (usually on the stack), is written only on
 * failure and needs no release. No global state; as thread-safe as the struct itself. */
#ifndef ARRAYD_BASE_ERR_H
#define ARRAYD_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

enum err_code {
    ERR_OK = 0,
#define ERR(id, status, name, title) ERR_##id,
#include "compute/base/err.def"
#undef ERR
    ERR_COUNT
};

struct err {
    enum err_code code;
    long offset;        /* character offset in an infix expression, -1 when there is none */
    char pointer[256];  /* JSON pointer (RFC 6901) into the request body, "" when there is none */
    bool of_target;     /* it is about what is written to (eval_request.out), which has no place */
    char message[1024]; /* one sentence for a person, the problem's "detail" */
    /* ERR_OUT_OF_MEMORY: the bytes of this device's memory that could not be allocated; arrays used
     * since `until` belong to the failed attempt (engine_evict). 0 bytes: other memory ran out */
    long long wanted;
    int device;
    unsigned long long until;
    int retry_s; /* 429 and 503: after so many seconds it may be different; 0: soon */
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        .offset = -1                                                                               \
    }
#define must_check __attribute__((warn_unused_result))

/* Returns the error unless `call` gives ERR_OK, from a function that returns enum err_code. Use
 * _cleanup_ attributes for whatever the function must release. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum err_code try_ = (call);                                                               \
        if (try_ != ERR_OK)                                                                        \
            return try_;                                                                           \
    } while (0)

/* Records code and a printf-style message; clears place information; returns `code`. `e` may be
 * NULL. A message that does not fit is cut at a character boundary. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As err_set, with the character offset in an infix expression. */
enum err_code err_at(struct err *e, enum err_code code, long offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* As err_set, with a JSON pointer to the offending member ("/shape/0"). */
enum err_code err_field(struct err *e, enum err_code code, const char *pointer, const char *fmt,
                        ...) __attribute__((format(printf, 4, 5)));

/* Puts `prefix` ("/expr") before the existing pointer: called by an outer parser on the way up.
 * Returns e->code. */
enum err_code err_prefix(struct err *e, const char *prefix);

/* Sets the usual error after a failed allocation; returns ERR_OUT_OF_MEMORY. */
enum err_code err_oom(struct err *e);

/* The error of what begins while the daemon ends; returns ERR_DRAINING. */
enum err_code err_draining(struct err *e);

/* Of these the engine may know more: why a kernel did not compile, or is refused. */
static inline bool err_has_reason(enum err_code code)
{
    return code == ERR_INTERNAL || code == ERR_FAULTED || code == ERR_PLAN_FAULTED;
}

int err_status(enum err_code code);        /* HTTP status, 200 for ERR_OK */
const char *err_name(enum err_code code);  /* wire token, "ok" for ERR_OK */
const char *err_title(enum err_code code); /* RFC 9457 title */

#endif
