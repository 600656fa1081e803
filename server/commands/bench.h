/* `arrayd bench`: what bench.c, which starts the daemon, and bench_cases.c, which asks it, share.
 */
#ifndef ARRAYD_SERVER_BENCH_H
#define ARRAYD_SERVER_BENCH_H

#include <stdbool.h>
#include <stdint.h>

struct bench {
    int fd;
    int64_t n;        /* the arrays' edge */
    char session[64]; /* on the device that is measured */
    char device[16];  /* in JSON */
    char called[200]; /* in words, and a colon, if it is not the only one */
    bool json;
    bool failed; /* on this device, */
    bool gone;   /* because the daemon has gone */
    double copy_ms, fetch_ms;
    char reply[1 << 16];
};

/* The first is told, later ones follow from it. */
void bench_fail(struct bench *b, const char *what, const char *detail);
/* Sends a request, and returns the reply's body; "" after a failure, which is told. */
const char *bench_ask(struct bench *b, const char *method, const char *path, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));
/* Measure large arrays, a, b, c, o, p, q, g and h, and small requests, and print their tables. */
void bench_large(struct bench *b);
void bench_small(struct bench *b);

#endif
