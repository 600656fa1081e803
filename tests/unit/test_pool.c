/* The pool: order in a stream, fences between streams, fairness, running inside submit(), failure.
 * Meant to be run under TSan too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "compute/base/mem.h"
#include "compute/cpu/pool.h"
#include "tests/unit/pool_jobs.h"

static void test_order(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct pool *p = pool_new(threads, 0);
        struct backend_stream *s = pool_stream_new(p);
        assert_non_null(s);
        enum { N = 20000, JOBS = 40 };
        float *x = mem_calloc(N, sizeof *x);
        void *slots[1] = {x};
        struct adder a;
        adder_init(&a, N, 1, 0, 0, 0);
        sem_t sem;
        sem_init(&sem, 0, 0);
        _Atomic int order = 0;
        struct counted *jobs = mem_calloc(JOBS, sizeof *jobs);
        for (int i = 0; i < JOBS; i++) {
            prepare(&jobs[i], &a, (uint32_t)i % 4, slots, &sem, &order);
            assert_int_equal(pool_submit(s, &jobs[i].job), i + 1);
        }
        wait_for(&sem, JOBS);
        assert_true(pool_passed((struct fence){s, JOBS}));
        assert_false(pool_passed((struct fence){s, JOBS + 1}));
        for (int i = 0; i < JOBS; i++) {
            assert_int_equal(jobs[i].job.result, ERR_OK);
            assert_int_equal(atomic_load(&jobs[i].calls), 1);
            assert_true(jobs[i].job.device_ms >= 0);
        }
        for (int i = 0; i < N; i++)
            assert_true(x[i] == 60); /* 40 jobs of 0, 1, 2, 3 kernels */
        struct pool_stats st;
        pool_get_stats(p, &st);
        assert_int_equal(st.jobs, JOBS);
        assert_int_equal(st.kernels, 60);
        assert_int_equal(st.inline_jobs, 0);
        assert_int_equal(st.threads, threads);
        pool_stream_free(s);
        pool_free(p);
        mem_free(jobs);
        mem_free(x);
        arena_free(a.arena);
        sem_destroy(&sem);
    }
}

/* Two streams hand an array to and fro; every step waits for the other stream's last. */
static void ping_pong(int64_t inline_elements)
{
    struct pool *p = pool_new(2, inline_elements);
    struct backend_stream *s[2] = {pool_stream_new(p), pool_stream_new(p)};
    enum { N = 30000, JOBS = 60 };
    float *x = mem_calloc(N, sizeof *x), *y = mem_calloc(N, sizeof *y);
    void *slots[2] = {x, y};
    struct adder a[2];
    adder_init(&a[0], N, 1, 0, 1, 0);
    adder_init(&a[1], N, 1, 1, 0, 0);
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct counted *jobs = mem_calloc(JOBS, sizeof *jobs);
    struct fence fences[JOBS];
    for (int i = 0; i < JOBS; i++) {
        prepare(&jobs[i], &a[i & 1], 1, slots, &sem, NULL);
        if (i) {
            jobs[i].job.waits = &fences[i - 1];
            jobs[i].job.n_waits = 1;
        }
        fences[i] = (struct fence){s[i & 1], pool_submit(s[i & 1], &jobs[i].job)};
    }
    wait_for(&sem, JOBS);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == JOBS && y[i] == JOBS - 1);
    /* A fence outlives its stream. */
    pool_stream_free(s[0]);
    assert_true(pool_passed(fences[JOBS - 2]));
    struct backend_stream *again = pool_stream_new(p);
    assert_true(pool_passed(fences[JOBS - 2]));
    prepare(&jobs[0], &a[0], 1, slots, &sem, NULL);
    uint64_t seq = pool_submit(again, &jobs[0].job);
    wait_for(&sem, 1);
    assert_true(pool_passed((struct fence){again, seq}));
    pool_stream_free(again);
    pool_stream_free(s[1]);
    pool_free(p);
    mem_free(jobs);
    mem_free(x);
    mem_free(y);
    arena_free(a[0].arena);
    arena_free(a[1].arena);
    sem_destroy(&sem);
}

static void test_fences(void **state)
{
    (void)state;
    ping_pong(0);
    ping_pong(1 << 20);
}

static void test_inline(void **state)
{
    (void)state;
    struct pool *p = pool_new(1, 10000);
    struct backend_stream *s = pool_stream_new(p);
    float x[1000] = {0};
    void *slots[1] = {x};
    struct adder a;
    adder_init(&a, 1000, 1, 0, 0, 0);
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct counted c;
    prepare(&c, &a, 2, slots, &sem, NULL);
    pool_submit(s, &c.job);
    assert_int_equal(atomic_load(&c.calls), 1); /* before submit() returned, in this thread */
    assert_true(pthread_equal(c.thread, pthread_self()));
    assert_true(x[999] == 2);
    /* Four times three nodes a thousand points are too many. */
    prepare(&c, &a, 4, slots, &sem, NULL);
    pool_submit(s, &c.job);
    wait_for(&sem, 2);
    assert_false(pthread_equal(c.thread, pthread_self()));
    struct pool_stats st;
    pool_get_stats(p, &st);
    assert_int_equal(st.inline_jobs, 1);
    pool_stream_free(s);
    pool_free(p);
    arena_free(a.arena);
    sem_destroy(&sem);
}

/* A small job of another stream overtakes a large one, even on one thread. */
static void test_fair(void **state)
{
    (void)state;
    struct pool *p = pool_new(1, 0);
    struct backend_stream *s[2] = {pool_stream_new(p), pool_stream_new(p)};
    enum { LARGE = 1 << 20 };
    float *x = mem_calloc(LARGE, sizeof *x), y[10] = {0};
    void *large[1] = {x}, *small[1] = {y};
    struct adder a, b;
    adder_init(&a, LARGE, 1, 0, 0, 20);
    adder_init(&b, 10, 1, 0, 0, 0);
    sem_t sem;
    sem_init(&sem, 0, 0);
    _Atomic int order = 0;
    struct counted c[2];
    prepare(&c[0], &a, 4, large, &sem, &order);
    prepare(&c[1], &b, 1, small, &sem, &order);
    pool_submit(s[0], &c[0].job);
    pool_submit(s[1], &c[1].job);
    wait_for(&sem, 2);
    assert_int_equal(c[1].place, 0);
    assert_int_equal(c[0].place, 1);
    for (int i = 0; i < 2; i++)
        pool_stream_free(s[i]);
    pool_free(p);
    mem_free(x);
    arena_free(a.arena);
    arena_free(b.arena);
    sem_destroy(&sem);
}

/* done() may submit. */
struct chain {
    struct counted c;
    struct backend_stream *s;
    int left;
    sem_t *end;
};

static void chain_done(struct job *job)
{
    struct chain *ch = job->user;
    if (--ch->left == 0) {
        sem_post(ch->end);
        return;
    }
    struct job again = {.kernels = job->kernels,
                        .n_kernels = job->n_kernels,
                        .slots = job->slots,
                        .done = chain_done,
                        .user = ch};
    *job = again;
    pool_submit(ch->s, job);
}

struct submitter {
    pthread_t thread;
    struct pool *p;
    bool ok;
};

static void *submit_many(void *user)
{
    struct submitter *me = user;
    enum { STREAMS = 3, N = 5000, STEPS = 30 };
    struct backend_stream *s[STREAMS];
    struct chain ch[STREAMS];
    float *x = mem_calloc((size_t)STREAMS * N, sizeof *x);
    void *slots[STREAMS][1];
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct adder mine;
    adder_init(&mine, N, 1, 0, 0, 0);
    for (int i = 0; i < STREAMS; i++) {
        s[i] = pool_stream_new(me->p);
        slots[i][0] = x + i * N;
        ch[i] = (struct chain){.s = s[i], .left = STEPS, .end = &sem};
        ch[i].c.job = (struct job){.kernels = mine.list,
                                   .n_kernels = 1,
                                   .slots = slots[i],
                                   .done = chain_done,
                                   .user = &ch[i]};
        pool_submit(s[i], &ch[i].c.job);
    }
    wait_for(&sem, STREAMS);
    me->ok = true;
    for (int i = 0; i < STREAMS * N; i++)
        me->ok &= x[i] == STEPS;
    for (int i = 0; i < STREAMS; i++)
        pool_stream_free(s[i]);
    mem_free(x);
    arena_free(mine.arena);
    sem_destroy(&sem);
    return NULL;
}

static void test_many(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pool *p = pool_new(3, i ? 100000 : 0);
        struct submitter sub[4];
        for (int j = 0; j < 4; j++) {
            sub[j] = (struct submitter){.p = p};
            assert_int_equal(pthread_create(&sub[j].thread, NULL, submit_many, &sub[j]), 0);
        }
        for (int j = 0; j < 4; j++) {
            pthread_join(sub[j].thread, NULL);
            assert_true(sub[j].ok);
        }
        pool_free(p);
    }
}

/* Whatever allocation fails, the job is told of it and the pool lives on. */
static void test_out_of_memory(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        mem_fail_after(n, false);
        struct pool *p = pool_new(2, 0);
        bool refused = mem_failed() > 0;
        mem_fail_after(0, false);
        if (!refused)
            assert_non_null(p);
        pool_free(p);
        assert_int_equal(mem_live(), before);
        if (!refused)
            break;
    }
    float x[1000] = {0};
    void *slots[1] = {x};
    struct adder a;
    adder_init(&a, 1000, 1, 0, 0, 0);
    sem_t sem;
    sem_init(&sem, 0, 0);
    for (int inlined = 0; inlined < 2; inlined++) {
        struct pool *p = pool_new(2, inlined ? 1 << 20 : 0);
        struct backend_stream *s = pool_stream_new(p);
        struct counted c;
        prepare(&c, &a, 1, slots, &sem, NULL);
        mem_fail_after(1, true);
        pool_submit(s, &c.job);
        wait_for(&sem, 1);
        mem_fail_after(0, false);
        assert_int_equal(c.job.result, ERR_OUT_OF_MEMORY);
        prepare(&c, &a, 1, slots, &sem, NULL);
        pool_submit(s, &c.job);
        wait_for(&sem, 1);
        assert_int_equal(c.job.result, ERR_OK);
        pool_stream_free(s);
        pool_free(p);
    }
    assert_true(x[0] == 2);
    arena_free(a.arena);
    assert_int_equal(mem_live(), before);
    sem_destroy(&sem);
}

/* All that four kernels in place need is there before the first of them runs: from whichever
 * allocation on there is no memory, they have all run or none has begun, also where the threads
 * cannot have memory of their own. */
static void test_all_or_nothing(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    int64_t before = mem_live();
    float *x = mem_alloc(N * sizeof *x);
    void *slots[1] = {x};
    struct adder a;
    int refused = 0, borrowed = 0;
    adder_init(&a, N, 1, 0, 0, 1);
    sem_t sem;
    sem_init(&sem, 0, 0);
    for (int inlined = 0; inlined < 2; inlined++) {
        for (int n = 1;; n++) {
            struct pool *p = pool_new(3, inlined ? INT64_MAX : 0);
            struct backend_stream *s = pool_stream_new(p);
            struct counted c;
            float want = 1;
            for (int i = 0; i < N; i++)
                x[i] = 1;
            prepare(&c, &a, 4, slots, &sem, NULL);
            mem_fail_after(n, true);
            pool_submit(s, &c.job);
            wait_for(&sem, 1);
            int64_t failed = mem_failed();
            mem_fail_after(0, false);
            pool_stream_free(s);
            pool_free(p);
            if (c.job.result == ERR_OK)
                for (int k = 0; k < 4; k++)
                    want = sinf(want) + 1;
            else
                assert_int_equal(c.job.result, ERR_OUT_OF_MEMORY);
            assert_true(c.job.untouched == (c.job.result != ERR_OK));
            for (int i = 0; i < N; i++)
                if (fabsf(x[i] - want) > 1e-5F)
                    fail_msg("without allocation %d: [%d] is %g, not %g", n, i, (double)x[i],
                             (double)want);
            refused += c.job.result != ERR_OK;
            borrowed += c.job.result == ERR_OK && failed > 0;
            if (!failed)
                break;
        }
    }
    assert_true(refused > 8);
    assert_true(borrowed > 0);
    arena_free(a.arena);
    mem_free(x);
    sem_destroy(&sem);
    assert_int_equal(mem_live(), before);
}

/* A stencil or a sum over many units gives the same bits on any number of threads. */
static void run_parallel(int threads, bool sum, enum boundary_mode mode, const double *in,
                         double *out, int64_t rows, int64_t cols)
{
    struct arena *arena = arena_new(0);
    struct ir_kernel k = {.rank = 2, .shape = {rows, cols}};
    struct ir_ctx c = {.rank = 2, .shape = {rows, cols}, .src = {0, 1}, .step = {1, 1}};
    struct view v = {.rank = 2, .shape = {rows, cols}, .strides = {cols, 1}};
    struct ir_builder b;
    ir_builder_init(&b, arena, &k);
    ir_add_ctx(&b, &c);
    uint32_t x = ir_emit_load(&b, 0, DT_F64, &v, 0);
    for (int axis = 0; axis < 2; axis++)
        for (int by = -1; by < 2; by += 2) {
            struct ir_ctx s = c;
            s.offset[axis] = by;
            s.mode = mode;
            uint32_t y = ir_emit_load(&b, 0, DT_F64, &v, ir_add_ctx(&b, &s));
            x = ir_emit_op(&b, OP_ADD, DT_F64, (uint32_t[]){x, y});
        }
    struct ir_output o = {.node = x, .slot = 1, .dtype = DT_F64, .view = v};
    if (sum) {
        o.kind = OUT_REDUCE;
        o.axes = 3;
        o.view = (struct view){.rank = 2, .shape = {1, 1}};
    }
    assert_true(ir_add_output(&b, &o));
    struct ir_kernel *list[1] = {&k};
    void *slots[2] = {(void *)(uintptr_t)in, out};
    struct pool *p = pool_new(threads, 0);
    struct backend_stream *s = pool_stream_new(p);
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct counted job = {.sem = &sem};
    job.job = (struct job){
        .kernels = list, .n_kernels = 1, .slots = slots, .done = counted_done, .user = &job};
    pool_submit(s, &job.job);
    wait_for(&sem, 1);
    assert_int_equal(job.job.result, ERR_OK);
    pool_stream_free(s);
    pool_free(p);
    arena_free(arena);
    sem_destroy(&sem);
}

static void test_parallel(void **state)
{
    (void)state;
    /* The second is large enough for streaming stores, and its rows begin anywhere in a line. */
    static const int64_t shapes[][2] = {{700, 600}, {2200, 2001}, {3, 200000}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        size_t n = (size_t)(rows * cols);
        double *in = mem_alloc(n * sizeof *in), *one = mem_calloc(n + 1, sizeof *one),
               *three = mem_calloc(n + 1, sizeof *three);
        for (size_t j = 0; j < n; j++)
            in[j] = (double)((j * 2654435761u) % 1000003) * 1e-3;
        for (int sum = 0; sum < 2; sum++) {
            run_parallel(1, sum, BOUNDARY_CLAMP, in, one, rows, cols);
            run_parallel(3, sum, BOUNDARY_CLAMP, in, three, rows, cols);
            assert_memory_equal(one, three, (sum ? 1 : n) * sizeof *one);
        }
        run_parallel(2, false, BOUNDARY_WRAP, in, three, rows, cols);
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < cols; x++) {
                double want = in[y * cols + x];
                want += in[(y + rows - 1) % rows * cols + x];
                want += in[(y + 1) % rows * cols + x];
                want += in[y * cols + (x + cols - 1) % cols];
                want += in[y * cols + (x + 1) % cols];
                if (three[y * cols + x] != want)
                    fail_msg("(%d, %d) is %g, not %g", (int)y, (int)x, three[y * cols + x], want);
            }
        assert_true(three[n] == 0);
        mem_free(in);
        mem_free(one);
        mem_free(three);
    }
}

/* Results larger than the caches take another way to memory; this one begins and ends anywhere. */
static void test_streamed(void **state)
{
    (void)state;
    enum { N = 8500003 };
    float *x = mem_alloc(N * sizeof *x), *y = mem_calloc(N + 2, sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i & 0xffff);
    void *slots[2] = {x, y + 1};
    struct adder a;
    adder_init(&a, N, 1, 0, 1, 0);
    struct pool *p = pool_new(2, 0);
    struct backend_stream *s = pool_stream_new(p);
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct counted c;
    prepare(&c, &a, 1, slots, &sem, NULL);
    pool_submit(s, &c.job);
    wait_for(&sem, 1);
    for (int i = 0; i < N; i++)
        if (y[i + 1] != x[i] + 1)
            fail_msg("%d: %g", i, y[i + 1]);
    assert_true(y[0] == 0 && y[N + 1] == 0);
    pool_stream_free(s);
    pool_free(p);
    arena_free(a.arena);
    mem_free(x);
    mem_free(y);
    sem_destroy(&sem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_fences),
        cmocka_unit_test(test_inline),         cmocka_unit_test(test_fair),
        cmocka_unit_test(test_many),           cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_parallel),       cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
