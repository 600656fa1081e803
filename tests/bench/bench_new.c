/* New arrays, with a keeper of their memory and without, in turns: bench_new BACKEND [LARGE BYTES].
 * A line of JSON each: nanoseconds to make and drop an array of 1 KiB, and milliseconds to make,
 * fill and drop a large one, from fresh memory (each round has a size of its own) and from memory
 * that was just used. The least of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "tests/keeper.h"

#define SMALL  1024
#define TIMES  20000
#define ROUNDS 7

static struct keeper keeper;

struct side {
    const char *name;
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    double small_ns, fresh_ms, again_ms;
};

static void open_side(struct side *x, const char *backend, bool keeps)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = backend;
    config.device.slab_memory = 32 << 20;
    if (keeps)
        config.keep = keeper_of(&keeper);
    if (engine_open(&config, &x->g, &e) != ERR_OK) {
        printf("%s\n", e.message);
        exit(77);
    }
    x->name = keeps ? "kept" : "not kept";
    x->account = account_new(0);
    if (engine_stream_new(x->g, 0, &x->s, NULL) != ERR_OK)
        exit(1);
    x->small_ns = x->fresh_ms = x->again_ms = 1e9;
}

static void small(struct side *x)
{
    const int64_t n = SMALL;
    struct array *first, *a;
    if (engine_empty(x->s, x->account, DT_U8, 1, &n, &first, NULL) != ERR_OK)
        exit(1);
    double begun = clock_ms();
    for (int i = 0; i < TIMES; i++) {
        if (engine_empty(x->s, x->account, DT_U8, 1, &n, &a, NULL) != ERR_OK)
            exit(1);
        array_unref(a);
    }
    double ns = (clock_ms() - begun) * 1e6 / TIMES;
    array_unref(first);
    x->small_ns = ns < x->small_ns ? ns : x->small_ns;
}

static void is_done(void *user, enum err_code result, double device_ms)
{
    (void)result, (void)device_ms;
    atomic_store((_Atomic bool *)user, true);
}

static double large(struct side *x, int64_t n)
{
    struct array *a;
    struct scalar seven = {.dtype = DT_U8, .v.u64 = 7};
    double begun = clock_ms();
    if (engine_full(x->s, x->account, seven, 1, &n, &a, NULL) != ERR_OK)
        exit(1);
    _Atomic bool done = false;
    engine_sync(x->s, is_done, (void *)&done);
    while (!atomic_load(&done))
        usleep(10);
    double ms = clock_ms() - begun;
    array_unref(a);
    return ms;
}

int main(int argc, char **argv)
{
    const char *backend = argc > 1 ? argv[1] : "cpu";
    const int64_t n = argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_C(512) << 20;
    struct side sides[2];
    for (int i = 0; i < 2; i++)
        open_side(&sides[i], backend, i);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            struct side *x = &sides[(i + round) % 2];
            small(x);
            const int64_t size = n + ((int64_t)round << 21);
            const double fresh = large(x, size), again = large(x, size);
            x->fresh_ms = fresh < x->fresh_ms ? fresh : x->fresh_ms;
            x->again_ms = again < x->again_ms ? again : x->again_ms;
        }
    for (int i = 0; i < 2; i++) {
        struct side *x = &sides[i];
        printf("{\"bench\": \"new\", \"backend\": \"%s\", \"memory\": \"%s\", \"small_ns\": %.0f, "
               "\"large_bytes\": %lld, \"fresh_ms\": %.3f, \"again_ms\": %.3f}\n",
               engine_backend(x->g), x->name, x->small_ns, (long long)n, x->fresh_ms, x->again_ms);
        engine_stream_unref(x->s);
        engine_close(x->g);
        account_unref(x->account);
    }
    return 0;
}
