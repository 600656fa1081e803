/* The engine over the CPU backend with a front of the test's own: it holds jobs back and says how
 * they end, so that every moment can be looked at. Included by one test at a time, behind cmocka.h;
 * single-threaded. */
#ifndef ARRAYD_ENGINE_FRONT_H
#define ARRAYD_ENGINE_FRONT_H

#include <string.h>

#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"
#include "protocol/text/infix.h"

#define N 8

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
    struct array *a, *b; /* N float64 each: 0…N−1, and 100 */
};

/* The front: one stream, whose jobs it counts itself. */
static struct {
    const struct backend_ops *real;
    struct backend_ops ops;
    bool hold;        /* queue what comes */
    struct job *head; /* by job->next */
    struct job **tail;
    uint64_t issued, passed;
    enum err_code at_once; /* the next job fails in submit() */
    bool touched;          /* having written a part */
    double device_ms;      /* what each takes */
    void (*freed)(void);   /* told when memory goes */
    uint32_t bound_wholes; /* of kernels in jobs with bindings */
    _Atomic bool ran;
} front;

static inline void pass(struct job *job)
{
    job->device_ms = front.device_ms;
    if (job->measured)
        job->measured(job);
    front.passed++;
    job->done(job);
}

static inline uint64_t front_submit(struct backend_stream *s, struct job *job);

static inline bool front_passed(struct fence f)
{
    return f.seq <= front.passed;
}

static inline void front_free(struct backend *b, int device, void *p, int64_t size)
{
    if (front.freed)
        front.freed();
    front.real->free(b, device, p, size);
}

static inline void ran(struct job *job)
{
    (void)job;
    atomic_store(&front.ran, true);
}

/* The job's kernels, by the real backend. */
static inline void run_kernels(struct backend_stream *s, const struct job *job)
{
    struct job inner = {.kernels = job->kernels,
                        .n_kernels = job->n_kernels,
                        .copies = job->copies,
                        .n_copies = job->n_copies,
                        .loop_from = job->loop_from,
                        .loop_n = job->loop_n,
                        .repeats = job->repeats,
                        .slots = job->slots,
                        .bindings = job->bindings,
                        .done = ran};
    for (uint32_t i = 0; job->bindings && i < job->n_kernels; i++)
        front.bound_wholes += job->kernels[i]->whole != NULL;
    atomic_store(&front.ran, false);
    front.real->submit(s, &inner);
    while (!atomic_load(&front.ran))
        ;
    assert_int_equal(inner.result, ERR_OK);
}

static inline uint64_t front_submit(struct backend_stream *s, struct job *job)
{
    uint64_t seq = ++front.issued;
    job->stream = s;
    job->next = NULL;
    if (front.at_once != ERR_OK) {
        assert_null(front.head);
        if (front.touched)
            memset(job_slots(job,
                             job->n_kernels - 1)[job->kernels[job->n_kernels - 1]->outputs[0].slot],
                   0, 8);
        job->result = front.at_once;
        job->in_submit = true;
        job->untouched = !front.touched;
        front.at_once = ERR_OK;
        pass(job);
    } else if (front.hold) {
        *front.tail = job;
        front.tail = &job->next;
    } else {
        assert_null(front.head);
        run_kernels(s, job);
        job->in_submit = true;
        pass(job);
    }
    return seq;
}

/* Ends the oldest held job: it runs, or fails with `code` before it has written anything. */
static inline void end(enum err_code code)
{
    struct job *job = front.head;
    assert_non_null(job);
    front.head = job->next;
    if (!front.head)
        front.tail = &front.head;
    if (code == ERR_OK)
        run_kernels(job->stream, job);
    job->result = code;
    job->untouched = code != ERR_OK;
    pass(job);
}

static inline void hold(void)
{
    front.hold = true;
    front.tail = &front.head;
}

/* shareable_least < 0: memory cannot be exported. */
static inline void open_fixture_sharing(struct fixture *f, int64_t shareable_least)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct literal zero = {.kind = LIT_INT}, one = {.kind = LIT_INT, .i = 1},
                   n = {.kind = LIT_INT, .i = N};
    struct scalar hundred = {.dtype = DT_F64, .v.f64 = 100};
    memset(&front, 0, sizeof front);
    config.backend = "cpu";
    config.device.threads = 1;
    config.close_wait_ms = 30;
    config.device.shareable = shareable_least >= 0;
    config.device.shareable_least = shareable_least;
    assert_int_equal(engine_open(&config, &f->g, NULL), ERR_OK);
    front.real = f->g->backend->ops;
    front.ops = *front.real;
    front.ops.submit = front_submit;
    front.ops.passed = front_passed;
    front.ops.free = front_free;
    f->g->backend->ops = &front.ops;
    f->account = account_new(0);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, NULL), ERR_OK);
    assert_int_equal(engine_arange(f->s, f->account, DT_F64, &zero, &n, &one, &f->a, NULL), ERR_OK);
    assert_int_equal(engine_full(f->s, f->account, hundred, 1, (int64_t[]){N}, &f->b, NULL),
                     ERR_OK);
}

static inline void open_fixture(struct fixture *f)
{
    open_fixture_sharing(f, -1);
}

static inline void close_fixture(struct fixture *f)
{
    assert_null(front.head);
    array_unref(f->a);
    array_unref(f->b);
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    assert_int_equal(account_used(f->account), 0);
    engine_stream_unref(f->s);
    account_unref(f->account);
    assert_true(engine_close(f->g));
}

static inline enum err_code resolve(void *user, const char *name, struct binding *ret,
                                    struct err *e)
{
    struct fixture *f = user;
    struct array *a = *name == 'a' ? f->a : f->b;
    (void)e;
    *ret = (struct binding){BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

static inline enum err_code evaluate_watched(struct fixture *f, const char *text, struct array *out,
                                             struct eval_watch *watch, struct array **ret)
{
    struct arena *arena = arena_new(0);
    struct expr x;
    uint32_t source;
    expr_init(&x, arena, 1000, 400);
    assert_int_equal(expr_add_source(&x, "/expr", &source, NULL), ERR_OK);
    assert_int_equal(infix_parse(&x, source, text, strlen(text), &x.root, NULL), ERR_OK);
    struct check_env env = {.resolve = resolve, .user = f, .max_inputs = 64};
    struct eval_request req = {.expr = &x, .env = &env, .dtype = -1, .out = out, .watch = watch};
    struct array *made = NULL;
    enum err_code code = engine_evaluate(f->s, f->account, &req, &made, NULL, NULL, NULL, NULL);
    arena_free(arena);
    if (ret)
        *ret = made;
    else
        array_unref(made);
    return code;
}

static inline enum err_code evaluate(struct fixture *f, const char *text, struct array *out,
                                     struct array **ret)
{
    return evaluate_watched(f, text, out, NULL, ret);
}

/* The contents, or why there are none. Nothing may be held back. */
static inline enum err_code finish_reading(struct download *d, double *to)
{
    int64_t n = download_pull(d, 0, to, N * sizeof *to);
    enum err_code code = n < 0 ? download_result(d) : ERR_OK;
    assert_true(n < 0 || n == N * sizeof *to);
    download_free(d);
    return code;
}

static inline struct download *begin_reading(struct fixture *f, struct array *a)
{
    struct download *d = NULL;
    assert_int_equal(download_new(f->s, a, NULL, NULL, &d, NULL), ERR_OK);
    return d;
}

static inline enum err_code read_all(struct fixture *f, struct array *a, double *to)
{
    assert_null(front.head);
    return finish_reading(begin_reading(f, a), to);
}

static inline void holds_ramp(struct fixture *f, struct array *a, int step)
{
    double got[N];
    assert_int_equal(read_all(f, a, got), ERR_OK);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == (i + step) % N);
}

static inline void holds(struct fixture *f, struct array *a, double value)
{
    double got[N];
    assert_int_equal(read_all(f, a, got), ERR_OK);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == value);
}

#endif
