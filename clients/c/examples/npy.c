/*
 * An .npy file up, an expression of it down into another.
 *
 *   npy ADDRESS IN.npy EXPRESSION OUT.npy      the expression calls the array x
 */
#include <arrayd.h>
#include <stdio.h>

static int run(struct arrayd *client, char **argv, struct arrayd_error *err)
{
    struct arrayd_array x, y;
    if (arrayd_load_npy_path(client, NULL, argv[2], &x, err))
        return -1;
    const struct arrayd_bind bind = arrayd_bind_array("x", x.id);
    const struct arrayd_expr expr = {.expr = argv[3], .binds = &bind, .bind_count = 1};
    int ret = arrayd_evaluate(client, &expr, &y, err);
    if (!ret && !y.id[0]) {
        struct arrayd_scalar number;
        ret = arrayd_evaluate_scalar(client, &expr, &number, err);
        if (!ret)
            printf("a single number: %.17g\n", number.re);
    } else if (!ret) {
        ret = arrayd_save_npy_path(client, y.id, NULL, argv[4], err);
        printf("%s: %s, %lld bytes\n", argv[4], arrayd_dtype_name(y.dtype), (long long)y.nbytes);
        arrayd_delete(client, y.id, NULL);
    }
    arrayd_delete(client, x.id, NULL);
    return ret;
}

int main(int argc, char **argv)
{
    struct arrayd *client;
    struct arrayd_error err;
    if (argc != 5) {
        fprintf(stderr, "usage: npy ADDRESS IN.npy EXPRESSION OUT.npy\n");
        return 2;
    }
    int ret = arrayd_connect(argv[1], NULL, &client, &err);
    if (!ret) {
        ret = run(client, argv, &err);
        arrayd_close(client);
    }
    if (ret)
        fprintf(stderr, "%s: %s\n", err.code, err.detail);
    return ret != 0;
}
