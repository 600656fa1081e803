/*
 * What the programs that test the C client have in common: a client, an error, and checks, which
 * end the program with 1 at the first thing that is not as it should be.
 */
#ifndef TEST_CLIENT_C_H
#define TEST_CLIENT_C_H

#include <arrayd.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static struct arrayd *c;
static struct arrayd_error err;

static void check(bool ok, const char *what, int line)
{
    if (ok)
        return;
    fprintf(stderr, "line %d: %s\nlast error: %d %s: %s (at %s, %lld)\n", line, what, err.status,
            err.code, err.detail, err.pointer, (long long)err.offset);
    exit(1);
}

#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call)         check((call) == 0, #call, __LINE__)

/* The call fails with that status and code. */
#define FAILS(call, status_, code_)                                                                \
    check((call) == -1 && err.status == (status_) && !strcmp(err.code, code_) && err.detail[0],    \
          #call " is " #status_ " " code_, __LINE__)

static struct arrayd_expr expression(const char *expr)
{
    return (struct arrayd_expr){.expr = expr};
}

static struct arrayd_scalar scalar(const char *expr)
{
    struct arrayd_expr e = expression(expr);
    struct arrayd_scalar ret;
    OK(arrayd_evaluate_scalar(c, &e, &ret, &err));
    return ret;
}

/* A client of the daemon at an address, with options of the environment's. */
static struct arrayd *client_of(const char *address, const char *token)
{
    struct arrayd *client;
    const char *timeout = getenv("TIMEOUT_MS");
    const struct arrayd_options options = {.token = token,
                                           .session = getenv("SESSION"),
                                           .ca_file = getenv("CA_FILE"),
                                           .timeout_ms = timeout ? atol(timeout) : 0};
    setlocale(LC_ALL, ""); /* numbers on the wire have points, whatever the locale's are */
    OK(arrayd_connect(address, &options, &client, &err));
    return client;
}

#endif
