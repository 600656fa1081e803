/* Random expressions through the whole engine against the tree walk (walk.h), on a named backend:
 *   property BACKEND [COUNT] [SEED]
 * Graphs of random shapes, slices, broadcasts, shifts of every mode, index(), reductions, scans,
 * reshapes, gathers, pieces put together and casts over int64 and float64, with kernels cut at
 * random limits, into new arrays and into existing ones (also into one of the operands, through
 * views). Values are small integers, so that every order of summation gives the same bits. Exit 77
 * when the backend is not available.
 *
 * Nearly every expression is a kernel of its own, so a batch of them is submitted before the
 * results of the batch before it are looked at: a backend that compiles does so on all cores
 * meanwhile. The two batches have a stream each, because a download waits for all that its stream
 * was asked before. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/backend/property.h"
#include "tests/backend/suite.h"

static int finish_batch(struct world *worlds, int *n)
{
    int failed = 0;
    for (int i = 0; i < *n; i++)
        failed += !property_finish(&worlds[i]);
    *n = 0;
    return failed;
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "cpu";
    int count = argc > 2 ? atoi(argv[2]) : 2000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    static struct world worlds[2][BATCH];
    struct world common = {0};
    struct engine_stream *streams[2] = {0};
    struct engine_config config = suite_config(backend);
    struct err e = ERR_INIT;
    if (engine_open(&config, &common.g, &e) != ERR_OK) {
        fprintf(stderr, "skipped: %s\n", e.message);
        return 77;
    }
    common.account = account_new(0);
    for (int k = 0; k < 2; k++) {
        enum err_code code = engine_stream_new(common.g, suite_device(common.g), &streams[k], &e);
        assert(code == ERR_OK && common.account);
        (void)code;
    }
    int failed = 0, at = 0, n[2] = {0};
    for (int i = 0; i < count && failed < 5; i++) {
        common.s = streams[at];
        property_submit(&worlds[at][n[at]++], &common, seed + (uint64_t)i);
        if (n[at] == BATCH) {
            at = !at;
            failed += finish_batch(worlds[at], &n[at]);
        }
    }
    for (int k = 0; k < 2; k++)
        failed += finish_batch(worlds[k], &n[k]);
    for (int i = 0; i < 5000 && engine_jobs_in_flight(common.g) > 0; i++)
        usleep(1000); /* what was fetched is let go a moment later */
    if (engine_bytes_in_use(common.g) != 0) {
        fprintf(stderr, "%" PRId64 " bytes still in use\n", engine_bytes_in_use(common.g));
        failed++;
    }
    engine_stream_unref(streams[0]);
    engine_stream_unref(streams[1]);
    account_unref(common.account);
    engine_close(common.g);
    printf("property %s: %d expressions, %d failed\n", backend, count, failed);
    return failed != 0;
}
