/*
 * Upload a field, take a step of a diffusion in place, ask for a number, and download the result.
 *
 *   quickstart [ADDRESS]
 */
#include <arrayd.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 48 };

static int fail(const struct arrayd_error *err)
{
    fprintf(stderr, "%s: %s\n", err->code, err->detail);
    if (err->offset >= 0)
        fprintf(stderr, "at character %lld of %s\n", (long long)err->offset, err->pointer);
    return 1;
}

static int run(struct arrayd *client, double *field, size_t nbytes)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    struct arrayd_array u;
    struct arrayd_error err;
    struct arrayd_scalar heat, hottest;

    if (arrayd_upload(client, NULL, ARRAYD_FLOAT64, 2, shape, field, nbytes, &u, &err))
        return fail(&err);

    /* Names in an expression are what they are bound to, or the session's arrays. */
    const struct arrayd_bind binds[] = {arrayd_bind_array("u", u.id),
                                        arrayd_bind_double("dt", 0.1)};
    const struct arrayd_expr step = {.expr = "u + dt*laplacian(u, boundary='wrap')",
                                     .binds = binds,
                                     .bind_count = 2,
                                     .out = u.id};
    const struct arrayd_expr sum = {.expr = "sum(u)", .binds = binds, .bind_count = 1};
    const struct arrayd_expr max = {.expr = "max(u)", .binds = binds, .bind_count = 1};
    if (arrayd_evaluate(client, &step, NULL, &err) ||
        arrayd_evaluate_scalar(client, &sum, &heat, &err) ||
        arrayd_evaluate_scalar(client, &max, &hottest, &err) ||
        arrayd_read(client, u.id, NULL, field, nbytes, &err) || arrayd_delete(client, u.id, &err))
        return fail(&err);
    printf("heat %g, hottest %g, in the middle %g\n", heat.re, hottest.re,
           field[ROWS / 2 * COLUMNS + COLUMNS / 2]);
    return 0;
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "http://127.0.0.1:7411";
    const size_t nbytes = ROWS * COLUMNS * sizeof(double);
    struct arrayd *client;
    struct arrayd_error err;

    double *field = calloc(1, nbytes);
    if (!field)
        return 1;
    field[ROWS / 2 * COLUMNS + COLUMNS / 2] = 100;
    if (arrayd_connect(address, NULL, &client, &err)) {
        free(field);
        return fail(&err);
    }
    int ret = run(client, field, nbytes);
    arrayd_close(client);
    free(field);
    return ret;
}
