/* Bytes of arrays over several GPUs beside one GPU's, below HTTP: bench_transfer [MESH [BYTES
 * [ROUNDS]]], of "all", 4 GiB and 5. Both in turn through one backend; a line for a reader, and one
 * of JSON, each:
 *
 *   out, in     a job's copy to pinned host memory, and back: evicted arrays
 *   within      a job's copy to other memory of the device
 *   download N, upload N   through slabs, by N threads at once, each of which copies between slabs
 * and pinned memory new         memory of 1 GiB, warm and not zeroed, made and given back: the
 * median call tiny        a kernel of 1,024 numbers, until its end is known: the median
 *
 * Times are the least of the rounds. What was copied is checked. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/base/clock.h"
#include "compute/ir/ir_build.h"
#include "tests/backend/suite.h"

#define MOST_THREADS 16
#define MOST_CALLS   2000
#define NEW_BYTES    (INT64_C(1) << 30)
#define TINY         1024

struct side {
    struct backend *b;
    int device;
    struct backend_stream *stream;
    int64_t n;
    char *array, *other; /* n bytes of the device each */
    char *host, *back;   /* pinned; the same for both sides */
    float *tiny[3];
    struct ir_kernel kernel;
    double calls[MOST_CALLS]; /* µs */
};

static void must(enum err_code code, const struct err *e, const char *what)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, e && *e->message ? e->message : err_name(code));
    exit(1);
}

static void *device_memory(const struct side *x, int64_t n)
{
    struct err e = ERR_INIT;
    void *p = NULL;
    must(x->b->ops->alloc(x->b, x->device, n, false, &p, &e), &e, "alloc");
    return p;
}

/* --- jobs --- */

static void job_done(struct job *job)
{
    atomic_store((_Atomic bool *)job->user, true);
}

static void run(struct side *x, struct job *job)
{
    _Atomic bool done = false;
    job->done = job_done;
    job->user = (void *)&done;
    x->b->ops->submit(x->stream, job);
    while (!atomic_load(&done))
        x->b->ops->poll(x->b);
    must(job->result, NULL, "a job");
}

static double copy(struct side *x, void *to, const void *from, enum copy_way way)
{
    const struct job_copy block = {to, from, x->n, way};
    struct job job = {.copies = &block, .n_copies = 1};
    const double begun = clock_ms();
    run(x, &job);
    return clock_ms() - begun;
}

static double out(struct side *x, int threads)
{
    (void)threads;
    return copy(x, x->back, x->array, COPY_OUT);
}

static double in(struct side *x, int threads)
{
    (void)threads;
    return copy(x, x->array, x->host, COPY_IN);
}

static double within(struct side *x, int threads)
{
    (void)threads;
    return copy(x, x->other, x->array, COPY_WITHIN);
}

/* --- transfers --- */

struct worker {
    pthread_t thread;
    struct side *side;
    struct transfer *transfer;
    sem_t woken;
    int64_t from, n;
};

static void woken(void *user)
{
    sem_post(&((struct worker *)user)->woken);
}

static void *pull(void *user)
{
    struct worker *w = user;
    const struct side *x = w->side;
    for (int64_t at = 0; at < w->n;) {
        const int64_t got =
            x->b->ops->download_pull(w->transfer, at, x->back + w->from + at, (size_t)(w->n - at));
        if (got < 0)
            must(x->b->ops->transfer_result(w->transfer), NULL, "a download");
        if (got == 0)
            sem_wait(&w->woken);
        at += got;
    }
    return NULL;
}

static void *push(void *user)
{
    struct worker *w = user;
    const struct side *x = w->side;
    for (int64_t at = 0; at < w->n;) {
        size_t room;
        void *p = x->b->ops->upload_reserve(w->transfer, &room);
        if (!p) {
            must(x->b->ops->transfer_result(w->transfer), NULL, "an upload");
            sem_wait(&w->woken);
            continue;
        }
        memcpy(p, x->host + w->from + at, room);
        x->b->ops->upload_advance(w->transfer, room);
        at += (int64_t)room;
    }
    return NULL;
}

static void open_transfer(struct worker *w, bool up)
{
    const struct side *x = w->side;
    const struct view v = {.rank = 1, .shape = {w->n}, .strides = {1}, .offset = w->from};
    struct err e = ERR_INIT;
    must(up ? x->b->ops->upload_new(x->b, x->device, x->array + w->from, w->n, woken, w,
                                    &w->transfer, &e)
            : x->b->ops->download_new(x->b, x->device, x->array, &v, 1, woken, w, &w->transfer, &e),
         &e, "a transfer");
}

static double transfers(struct side *x, int threads, bool up)
{
    struct worker workers[MOST_THREADS] = {0};
    struct err e = ERR_INIT;
    struct job nothing = {0};
    const double begun = clock_ms();
    for (int i = 0; i < threads; i++) {
        struct worker *w = &workers[i];
        w->side = x;
        w->from = x->n * i / threads;
        w->n = x->n * (i + 1) / threads - w->from;
        sem_init(&w->woken, 0, 0);
        open_transfer(w, up);
        if (!up)
            x->b->ops->download_start(w->transfer);
        pthread_create(&w->thread, NULL, up ? push : pull, w);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        if (up)
            must(x->b->ops->upload_join(workers[i].transfer, x->stream, &e), &e, "join");
    }
    if (up)
        run(x, &nothing);
    const double ms = clock_ms() - begun;
    for (int i = 0; i < threads; i++) {
        x->b->ops->transfer_free(workers[i].transfer, NULL, NULL);
        sem_destroy(&workers[i].woken);
    }
    return ms;
}

static double download(struct side *x, int threads)
{
    return transfers(x, threads, false);
}

static double upload(struct side *x, int threads)
{
    return transfers(x, threads, true);
}

/* --- short calls --- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(struct side *x, int n)
{
    qsort(x->calls, (size_t)n, sizeof *x->calls, by_size);
    return x->calls[n / 2] * 1e-3;
}

static double new_memory(struct side *x, int times)
{
    x->b->ops->free(x->b, x->device, device_memory(x, NEW_BYTES), NEW_BYTES);
    for (int i = 0; i < times; i++) {
        const double begun = clock_ms();
        void *p = device_memory(x, NEW_BYTES);
        x->calls[i] = (clock_ms() - begun) * 1e3;
        x->b->ops->free(x->b, x->device, p, NEW_BYTES);
    }
    return median(x, times);
}

static void make_tiny(struct side *x, struct arena *arena)
{
    struct ir_builder b;
    struct ir_ctx ctx = {.rank = 1, .shape = {TINY}, .src = {0}, .step = {1}};
    const struct view v = {.rank = 1, .shape = {TINY}, .strides = {1}};
    x->kernel = (struct ir_kernel){.rank = 1, .shape = {TINY}};
    ir_builder_init(&b, arena, &x->kernel);
    ir_add_ctx(&b, &ctx);
    const uint32_t sum[] = {ir_emit_load(&b, 0, DT_F32, &v, 0), ir_emit_load(&b, 1, DT_F32, &v, 0)};
    const struct ir_output o = {.slot = 2,
                                .dtype = DT_F32,
                                .kind = OUT_STORE,
                                .view = v,
                                .node = ir_emit_op(&b, OP_ADD, DT_F32, sum)};
    if (!ir_add_output(&b, &o) || b.oom)
        exit(1);
    for (int i = 0; i < 3; i++) {
        struct err e = ERR_INIT;
        void *p = NULL;
        must(x->b->ops->alloc(x->b, x->device, TINY * sizeof(float), true, &p, &e), &e, "alloc");
        x->tiny[i] = p;
    }
}

static double tiny(struct side *x, int times)
{
    struct ir_kernel *k = &x->kernel;
    for (int i = -times / 10; i < times; i++) {
        struct job job = {.kernels = &k, .n_kernels = 1, .slots = (void *const *)x->tiny};
        const double begun = clock_ms();
        run(x, &job);
        if (i >= 0)
            x->calls[i] = (clock_ms() - begun) * 1e3;
    }
    return median(x, times);
}

/* --- the table --- */

static const struct {
    const char *name;
    double (*run)(struct side *x, int n); /* ms */
    int n;
    double wanted; /* the one GPU's time over the mesh's; 0: no such goal */
} cases[] = {
    {"in", in, 0, 1.8},
    {"out", out, 0, 1.8},
    {"within", within, 0, 0},
    {"upload 1", upload, 1, 0},
    {"upload 8", upload, 8, 0},
    {"upload 16", upload, 16, 0},
    {"download 1", download, 1, 0},
    {"download 8", download, 8, 0},
    {"download 16", download, 16, 0},
    {"new", new_memory, 100, 0},
    {"tiny", tiny, MOST_CALLS, 0},
};

static void open_side(struct side *x, struct backend *b, int device, int64_t n, char *host,
                      char *back)
{
    struct err e = ERR_INIT;
    *x = (struct side){.b = b, .device = device, .n = n, .host = host, .back = back};
    must(b->ops->stream_new(b, device, false, &x->stream, &e), &e, "stream");
    x->array = device_memory(x, n);
    x->other = device_memory(x, n);
}

static void close_side(struct side *x)
{
    x->b->ops->release(x->b, &x->kernel);
    x->b->ops->stream_free(x->stream);
    x->b->ops->free(x->b, x->device, x->array, x->n);
    x->b->ops->free(x->b, x->device, x->other, x->n);
    for (int i = 0; i < 3; i++)
        x->b->ops->free(x->b, x->device, x->tiny[i], TINY * sizeof(float));
}

static bool same(const struct side *x)
{
    return memcmp(x->host, x->back, (size_t)x->n) == 0;
}

/* What the case has left, by ways that `out` shows. */
static bool is_right(struct side *x, double (*way)(struct side *x, int n))
{
    if (way == new_memory || way == tiny)
        return true;
    if (way == out || way == download)
        return same(x);
    memset(x->back, 0, (size_t)x->n);
    (void)copy(x, x->back, way == within ? x->other : x->array, COPY_OUT);
    return same(x);
}

static void *pinned(struct backend *b, int64_t n)
{
    struct err e = ERR_INIT;
    void *p = NULL;
    must(b->ops->host_alloc(b, n, NULL, &p, &e), &e, "host memory");
    return p;
}

int main(int argc, char **argv)
{
    struct backend_config config = suite_config("cuda").device;
    const int64_t n = argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_C(4) << 30;
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    struct backend *b;
    struct err e = ERR_INIT;
    char note[128];
    config.mesh = argc > 1 ? argv[1] : "all";
    config.mesh_least = 0;
    config.interpret = INTERPRET_NEVER;
    must(backend_open("cuda", &config, &b, note, sizeof note, &e), &e, "backend");
    char *host = pinned(b, n), *back = pinned(b, n);
    for (int64_t i = 0; i + 8 <= n; i += 8)
        memcpy(host + i, &(uint64_t){(uint64_t)i * 0x9e3779b97f4a7c15u}, 8);
    struct arena *arena = arena_new(0);
    static struct side sides[2];
    for (int k = 0; k < 2; k++) {
        open_side(&sides[k], b, k ? b->ops->device_count(b) - 1 : 0, n, host, back);
        make_tiny(&sides[k], arena);
        (void)in(&sides[k], 0);
    }
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double best[2] = {1e30, 1e30};
        bool right = true;
        for (int round = 0; round <= rounds; round++)
            for (int k = 0; k < 2; k++) {
                struct side *x = &sides[(k + round) % 2];
                if (round == 0 && (cases[i].run == out || cases[i].run == download))
                    memset(back, 0, (size_t)n);
                const double ms = cases[i].run(x, cases[i].n);
                if (round == 0)
                    right &= is_right(x, cases[i].run);
                else if (ms < best[x == &sides[1]])
                    best[x == &sides[1]] = ms;
            }
        const bool is_short = cases[i].run == new_memory || cases[i].run == tiny;
        printf("| %-11s | one %10.4f ms | mesh %10.4f ms | %5.2f |", cases[i].name, best[0],
               best[1], best[0] / best[1]);
        if (!is_short)
            printf(" %5.1f, %5.1f GB/s |", (double)n / best[0] * 1e-6, (double)n / best[1] * 1e-6);
        if (cases[i].wanted > 0)
            printf(" wanted %.1f |", cases[i].wanted);
        printf("%s\n{\"bench\": \"transfer\", \"case\": \"%s\", \"bytes\": %lld, \"one_ms\": %.5f, "
               "\"mesh_ms\": %.5f, \"right\": %s}\n",
               right ? "" : " WRONG", cases[i].name, (long long)n, best[0], best[1],
               right ? "true" : "false");
        fflush(stdout);
        wrong += !right;
    }
    for (int k = 0; k < 2; k++)
        close_side(&sides[k]);
    arena_free(arena);
    b->ops->host_free(b, host, n, false);
    b->ops->host_free(b, back, n, false);
    backend_close(b);
    return wrong != 0;
}
