/* The CPU backend's speed on hand-built kernels, as JSON lines.
 *
 * Every case is checked against a plain loop first, then timed in turn with a copy by as many
 * threads, the best of each taken: noise only ever adds. "fraction" is the fewest bytes the case
 * must move, over its time, over the copy's rate (bytes read plus bytes written).
 * Usage: bench_compute [--threads N] [--edge N] [--repeat N] [case…]; arrays have edge³ elements.
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compute/backend.h"
#include "compute/cpu/loops/loops.h"
#include "compute/ir/ir_build.h"

#define MOST_THREADS 256

enum { A, B, C, OUT, N_SLOTS };

struct bench {
    struct backend *backend;
    struct backend_stream *stream;
    int threads, repeat;
    int64_t edge, n;
    float *slots[N_SLOTS];
    pthread_barrier_t barrier; /* of the copying threads */
    bool stop;
};

/* One case: builds nodes and returns the result, and the plain loop's value at element i. */
struct bench_case {
    const char *name;
    int arrays; /* read */
    uint32_t (*build)(struct ir_builder *b, const struct view *v);
    double (*plain)(const struct bench *x, int64_t i);
    bool in_place; /* onto C */
    uint32_t axes; /* reduction */
};

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the ceiling ---- */

struct copier {
    pthread_t thread;
    struct bench *bench;
    char *to, *from;
    size_t n;
};

/* Copies its part whenever main comes to the barrier, until `stop`. */
static void *copy_thread(void *user)
{
    struct copier *c = user;
    for (;;) {
        pthread_barrier_wait(&c->bench->barrier);
        if (c->bench->stop)
            return NULL;
        memcpy(c->to, c->from, c->n);
        pthread_barrier_wait(&c->bench->barrier);
    }
}

static double copy_once(struct bench *x)
{
    double t = now();
    pthread_barrier_wait(&x->barrier);
    pthread_barrier_wait(&x->barrier);
    return now() - t;
}

static void start_copiers(struct bench *x, struct copier *c)
{
    size_t bytes = (size_t)x->n * 4, part = bytes / (size_t)x->threads;
    pthread_barrier_init(&x->barrier, NULL, (unsigned)x->threads + 1);
    for (int i = 0; i < x->threads; i++) {
        c[i] = (struct copier){.bench = x,
                               .to = (char *)x->slots[OUT] + part * (size_t)i,
                               .from = (char *)x->slots[A] + part * (size_t)i,
                               .n = part};
        pthread_create(&c[i].thread, NULL, copy_thread, &c[i]);
    }
}

static void stop_copiers(struct bench *x, struct copier *c)
{
    x->stop = true;
    pthread_barrier_wait(&x->barrier);
    for (int i = 0; i < x->threads; i++)
        pthread_join(c[i].thread, NULL);
    pthread_barrier_destroy(&x->barrier);
}

/* ---- building blocks ---- */

static uint32_t load(struct ir_builder *b, int slot, const struct view *v)
{
    return ir_emit_load(b, (uint32_t)slot, DT_F32, v, 0);
}

static uint32_t number(struct ir_builder *b, float x)
{
    return ir_emit_const(b, (struct scalar){.dtype = DT_F32, .v.f32 = x});
}

static uint32_t two(struct ir_builder *b, enum op op, uint32_t x, uint32_t y)
{
    return ir_emit_op(b, op, DT_F32, (uint32_t[]){x, y});
}

static uint32_t one(struct ir_builder *b, enum op op, uint32_t x)
{
    return ir_emit_op(b, op, DT_F32, &x);
}

static uint32_t shifted(struct ir_builder *b, int slot, const struct view *v, int axis, int64_t by)
{
    struct ir_ctx c = b->k->ctxs[0];
    c.offset[axis] = by;
    c.mode = BOUNDARY_CLAMP;
    return ir_emit_load(b, (uint32_t)slot, DT_F32, v, ir_add_ctx(b, &c));
}

static uint32_t build_add(struct ir_builder *b, const struct view *v)
{
    return two(b, OP_ADD, load(b, A, v), load(b, B, v));
}
static double plain_add(const struct bench *x, int64_t i)
{
    return x->slots[A][i] + x->slots[B][i];
}

static uint32_t build_poly(struct ir_builder *b, const struct view *v)
{
    uint32_t a = load(b, A, v), r = two(b, OP_DIVIDE, number(b, 1), a);
    uint32_t s = two(b, OP_ADD, load(b, C, v), r);
    uint32_t m = two(b, OP_MULTIPLY, two(b, OP_MULTIPLY, number(b, 2), a), load(b, B, v));
    return two(b, OP_ADD, s, m);
}
static double plain_poly(const struct bench *x, int64_t i)
{
    float a = x->slots[A][i];
    return x->slots[C][i] + 1 / a + 2 * a * x->slots[B][i];
}

static uint32_t build_relu(struct ir_builder *b, const struct view *v)
{
    uint32_t a = load(b, A, v), zero = number(b, 0);
    return ir_emit_select(b, two(b, OP_GREATER, a, zero), a, zero);
}
static double plain_relu(const struct bench *x, int64_t i)
{
    return x->slots[A][i] > 0 ? x->slots[A][i] : 0;
}

static uint32_t build_distance(struct ir_builder *b, const struct view *v)
{
    uint32_t p = load(b, A, v), q = load(b, B, v);
    return ir_emit_select(b, two(b, OP_GREATER_EQUAL, p, q), two(b, OP_SUBTRACT, p, q),
                          two(b, OP_SUBTRACT, q, p));
}
static double plain_distance(const struct bench *x, int64_t i)
{
    return fabsf(x->slots[A][i] - x->slots[B][i]);
}

static uint32_t build_maths(struct ir_builder *b, const struct view *v)
{
    uint32_t a = load(b, A, v);
    uint32_t e = one(b, OP_EXP, two(b, OP_MULTIPLY, one(b, OP_NEGATIVE, a), a));
    uint32_t s = two(b, OP_MULTIPLY, e, one(b, OP_SIN, load(b, B, v)));
    return two(b, OP_ADD, s, one(b, OP_SQRT, one(b, OP_ABS, a)));
}
static double plain_maths(const struct bench *x, int64_t i)
{
    double a = x->slots[A][i], b = x->slots[B][i];
    return exp(-a * a) * sin(b) + sqrt(fabs(a));
}

static uint32_t build_transposed(struct ir_builder *b, const struct view *v)
{
    struct view t = *v;
    for (int d = 0; d < v->rank; d++)
        t.strides[d] = v->strides[v->rank - 1 - d];
    return two(b, OP_ADD, load(b, A, v), load(b, B, &t));
}
static double plain_transposed(const struct bench *x, int64_t i)
{
    int64_t e = x->edge, p = i / (e * e), q = i / e % e, r = i % e;
    return x->slots[A][i] + x->slots[B][(r * e + q) * e + p];
}

static uint32_t build_forward(struct ir_builder *b, const struct view *v)
{
    return two(b, OP_SUBTRACT, shifted(b, A, v, 0, 1), load(b, A, v));
}
static double plain_forward(const struct bench *x, int64_t i)
{
    int64_t plane = x->edge * x->edge;
    return (i + plane < x->n ? x->slots[A][i + plane] : x->slots[A][i]) - x->slots[A][i];
}

static uint32_t build_laplacian(struct ir_builder *b, const struct view *v)
{
    uint32_t a = load(b, A, v), twice = two(b, OP_MULTIPLY, number(b, 2), a), sum = IR_NONE;
    for (int axis = 0; axis < 3; axis++) {
        uint32_t d = two(b, OP_SUBTRACT, shifted(b, A, v, axis, 1), twice);
        d = two(b, OP_ADD, d, shifted(b, A, v, axis, -1));
        sum = axis ? two(b, OP_ADD, sum, d) : d;
    }
    return sum;
}
static double plain_laplacian(const struct bench *x, int64_t i)
{
    int64_t e = x->edge, stride = e * e, c[3] = {i / (e * e), i / e % e, i % e};
    const float *a = x->slots[A];
    float sum = 0;
    for (int d = 0; d < 3; d++, stride /= e) {
        float d2 = (c[d] < e - 1 ? a[i + stride] : a[i]) - 2 * a[i];
        sum += d2 + (c[d] > 0 ? a[i - stride] : a[i]);
    }
    return sum;
}

static uint32_t build_heat(struct ir_builder *b, const struct view *v)
{
    uint32_t l = build_laplacian(b, v);
    return two(b, OP_ADD, load(b, A, v), two(b, OP_MULTIPLY, number(b, 0.1f), l));
}
static double plain_heat(const struct bench *x, int64_t i)
{
    return x->slots[A][i] + 0.1f * (float)plain_laplacian(x, i);
}

static uint32_t build_load(struct ir_builder *b, const struct view *v)
{
    return load(b, A, v);
}
static double plain_load(const struct bench *x, int64_t i)
{
    return x->slots[A][i];
}

static double plain_sum(const struct bench *x, int64_t first, int64_t n, int64_t step)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x->slots[A][first + i * step];
    return s;
}
static double plain_sum_all(const struct bench *x, int64_t i)
{
    return plain_sum(x, i, x->n, 1);
}
static double plain_sum_0(const struct bench *x, int64_t i)
{
    return plain_sum(x, i, x->edge, x->edge * x->edge);
}
static double plain_sum_1(const struct bench *x, int64_t i)
{
    return plain_sum(x, i / x->edge * x->edge * x->edge + i % x->edge, x->edge, x->edge);
}
static double plain_sum_2(const struct bench *x, int64_t i)
{
    return plain_sum(x, i * x->edge, x->edge, 1);
}

static const struct bench_case cases[] = {
    {"copy", 1, build_load, plain_load, false, 0},
    {"a+b", 2, build_add, plain_add, false, 0},
    {"c+1/a+2*a*b", 3, build_poly, plain_poly, false, 0},
    {"where(a>0,a,0)", 1, build_relu, plain_relu, false, 0},
    {"where(a>=b,a-b,b-a)", 2, build_distance, plain_distance, false, 0},
    {"exp(-a*a)*sin(b)+sqrt(abs(a))", 2, build_maths, plain_maths, false, 0},
    {"a+transpose(b)", 2, build_transposed, plain_transposed, false, 0},
    {"shift(a,+1)-a", 1, build_forward, plain_forward, false, 0},
    {"laplacian(a)", 1, build_laplacian, plain_laplacian, false, 0},
    {"a+0.1*laplacian(a)", 1, build_heat, plain_heat, false, 0},
    {"sum(a)", 1, build_load, plain_sum_all, false, 7},
    {"sum(a,0)", 1, build_load, plain_sum_0, false, 1},
    {"sum(a,1)", 1, build_load, plain_sum_1, false, 2},
    {"sum(a,2)", 1, build_load, plain_sum_2, false, 4},
};

/* ---- running ---- */

static void job_done(struct job *job)
{
    sem_post(job->user);
}

static double run_once(struct bench *x, struct ir_kernel *k)
{
    sem_t done;
    sem_init(&done, 0, 0);
    struct job job = {.kernels = &k,
                      .n_kernels = 1,
                      .slots = (void *const *)x->slots,
                      .done = job_done,
                      .user = &done};
    double t = now();
    x->backend->ops->submit(x->stream, &job);
    sem_wait(&done);
    t = now() - t;
    sem_destroy(&done);
    if (job.result != ERR_OK)
        exit(1);
    return t;
}

static int64_t output_view(const struct bench_case *c, const struct bench *x, struct view *ret)
{
    int64_t n = 1;
    *ret = (struct view){.rank = 3};
    for (int d = 2; d >= 0; d--) {
        bool reduced = c->axes >> d & 1;
        ret->shape[d] = reduced ? 1 : x->edge;
        ret->strides[d] = reduced ? 0 : n;
        n *= ret->shape[d];
    }
    return n;
}

static bool run_case(struct bench *x, const struct bench_case *c)
{
    struct arena *arena = arena_new(0);
    struct ir_kernel k = {.rank = 3};
    struct ir_ctx ctx = {.rank = 3};
    struct view v = {.rank = 3};
    for (int d = 2, s = 1; d >= 0; d--, s *= (int)x->edge) {
        k.shape[d] = ctx.shape[d] = v.shape[d] = x->edge;
        v.strides[d] = s;
        ctx.src[d] = (int8_t)d;
        ctx.step[d] = 1;
    }
    struct ir_builder b;
    ir_builder_init(&b, arena, &k);
    ir_add_ctx(&b, &ctx);
    struct ir_output out = {.slot = OUT, .dtype = DT_F32};
    out.kind = c->axes ? OUT_REDUCE : OUT_STORE;
    out.reduce = REDUCE_SUM;
    out.axes = c->axes;
    out.node = c->build(&b, &v);
    int64_t n_out = output_view(c, x, &out.view);
    if (!ir_add_output(&b, &out) || b.oom)
        return false;

    memset(x->slots[OUT], 0xff, (size_t)n_out * 4);
    run_once(x, &k);
    for (int64_t i = 0; i < n_out; i += c->axes ? n_out / 16 + 1 : 1) {
        double want = c->plain(x, i), got = x->slots[OUT][i];
        if (!(fabs(got - want) <= 1e-5 * fabs(want) + 1e-5)) {
            fprintf(stderr, "%s: element %lld is %g, not %g\n", c->name, (long long)i, got, want);
            return false;
        }
    }
    double best = INFINITY, copy = INFINITY, cpu = 0;
    for (int i = 0; i < x->repeat; i++) {
        double t = copy_once(x);
        copy = t < copy ? t : copy;
        double before = cpu_time();
        t = run_once(x, &k);
        best = t < best ? t : best;
        cpu += cpu_time() - before;
    }
    double bytes = 4.0 * ((double)x->n * c->arrays + (double)n_out);
    double rate = bytes / best, copy_rate = 8.0 * (double)x->n / copy;
    printf("{\"case\":\"%s\",\"elements\":%lld,\"threads\":%d,\"isa\":\"%s\",\"ms\":%.3f,"
           "\"cpu_ms\":%.3f,\"gb_s\":%.1f,\"copy_gb_s\":%.1f,\"fraction\":%.2f}\n",
           c->name, (long long)x->n, x->threads, loop_isa(), best * 1e3, cpu / x->repeat * 1e3,
           rate * 1e-9, copy_rate * 1e-9, rate / copy_rate);
    fflush(stdout);
    arena_free(arena);
    return true;
}

int main(int argc, char **argv)
{
    struct bench x = {.threads = 2, .repeat = 15, .edge = 256};
    static const struct option options[] = {{"threads", required_argument, NULL, 't'},
                                            {"edge", required_argument, NULL, 'e'},
                                            {"repeat", required_argument, NULL, 'r'},
                                            {0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == '?')
            return 2;
        *(o == 't' ? &x.threads : &x.repeat) = o == 'e' ? x.repeat : atoi(optarg);
        if (o == 'e')
            x.edge = atoll(optarg);
    }
    if (x.threads < 1 || x.threads > MOST_THREADS || x.repeat < 1 || x.edge < 1)
        return 2;
    x.n = x.edge * x.edge * x.edge;
    struct err e = ERR_INIT;
    struct backend_config config = {.threads = x.threads};
    char note[128];
    if (backend_open("cpu", &config, &x.backend, note, sizeof note, &e) ||
        x.backend->ops->stream_new(x.backend, 0, false, &x.stream, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    uint64_t seed = 1;
    for (int i = 0; i < N_SLOTS; i++) {
        void *p;
        if (x.backend->ops->alloc(x.backend, 0, x.n * 4, false, &p, &e))
            return 1;
        x.slots[i] = p;
        for (int64_t j = 0; j < x.n; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x.slots[i][j] = (float)(int32_t)(seed >> 40) * 0x1p-23f + 0.5f;
        }
        for (int64_t j = 0; j < x.n && i < C; j += 3)
            x.slots[i][j] = -x.slots[i][j];
    }
    static struct copier copiers[MOST_THREADS];
    start_copiers(&x, copiers);
    bool ok = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool wanted = optind == argc;
        for (int a = optind; a < argc; a++)
            wanted |= !strcmp(argv[a], cases[i].name);
        ok &= !wanted || run_case(&x, &cases[i]);
    }
    stop_copiers(&x, copiers);
    for (int i = 0; i < N_SLOTS; i++)
        x.backend->ops->free(x.backend, 0, x.slots[i], x.n * 4);
    x.backend->ops->stream_free(x.stream);
    backend_close(x.backend);
    return !ok;
}
