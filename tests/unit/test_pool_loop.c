/* Loops of the pool: kernels that run over and over in one job, small ones that stay on one thread
 * and large ones that are shared. Meant to be run under TSan too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <semaphore.h>
#include <time.h>

#include "compute/base/mem.h"
#include "compute/cpu/pool.h"
#include "compute/ir/ir_build.h"

struct rig {
    struct pool *p;
    struct backend_stream *s;
    sem_t sem;
};

static void tell(struct job *job)
{
    sem_post(job->user);
}

static void rig_open(struct rig *g, int threads)
{
    g->p = pool_new(threads, 0);
    assert_non_null(g->p);
    g->s = pool_stream_new(g->p);
    sem_init(&g->sem, 0, 0);
}

static void rig_close(struct rig *g)
{
    pool_stream_free(g->s);
    pool_free(g->p);
    sem_destroy(&g->sem);
}

static void rig_run(struct rig *g, struct job *job)
{
    job->done = tell;
    job->user = &g->sem;
    pool_submit(g->s, job);
    while (sem_wait(&g->sem))
        ;
    assert_int_equal(job->result, ERR_OK);
}

static struct view plane(int64_t rows, int64_t cols)
{
    return (struct view){.rank = 2, .shape = {rows, cols}, .strides = {cols, 1}};
}

/* slot 1 = the mean of slot 0's four neighbours and itself, all around, float32 */
static void ring_kernel(struct ir_kernel *k, struct arena *arena, int64_t rows, int64_t cols)
{
    *k = (struct ir_kernel){.rank = 2, .shape = {rows, cols}};
    struct ir_ctx c = {.rank = 2, .shape = {rows, cols}, .src = {0, 1}, .step = {1, 1}};
    const struct view v = plane(rows, cols);
    struct ir_builder b;
    ir_builder_init(&b, arena, k);
    ir_add_ctx(&b, &c);
    uint32_t x = ir_emit_load(&b, 0, DT_F32, &v, 0);
    for (int axis = 0; axis < 2; axis++)
        for (int by = -1; by < 2; by += 2) {
            struct ir_ctx s = c;
            s.offset[axis] = by;
            s.mode = BOUNDARY_WRAP;
            uint32_t y = ir_emit_load(&b, 0, DT_F32, &v, ir_add_ctx(&b, &s));
            x = ir_emit_op(&b, OP_ADD, DT_F32, (uint32_t[]){x, y});
        }
    uint32_t fifth = ir_emit_const(&b, (struct scalar){.dtype = DT_F32, .v.f32 = 0.2F});
    x = ir_emit_op(&b, OP_MULTIPLY, DT_F32, (uint32_t[]){x, fifth});
    struct ir_output o = {.kind = OUT_STORE, .node = x, .slot = 1, .dtype = DT_F32, .view = v};
    assert_true(ir_add_output(&b, &o));
}

static void ring_plain(float *to, const float *u, int64_t rows, int64_t cols)
{
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < cols; x++) {
            float sum = u[y * cols + x];
            sum += u[(y + rows - 1) % rows * cols + x];
            sum += u[(y + 1) % rows * cols + x];
            sum += u[y * cols + (x + cols - 1) % cols];
            sum += u[y * cols + (x + 1) % cols];
            to[y * cols + x] = sum * 0.2F;
        }
}

/* Two arrays that take turns: the bits are those of a plain loop, on any number of threads; who
 * runs what goes by the work there is. */
static void test_turns(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {2, 3}, {16, 16}, {70, 40}, {60, 100}, {300, 256}};
    enum { REPEATS = 25 };
    const int64_t before = mem_live();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t rows = shapes[i][0], cols = shapes[i][1];
        const size_t n = (size_t)(rows * cols);
        float *u = mem_alloc(4 * n * sizeof *u), *t = u + n, *a = t + n, *b = a + n;
        for (size_t j = 0; j < n; j++)
            a[j] = (float)((j * 2654435761u) % 1009);
        memcpy(u, a, n * sizeof *u);
        for (int j = 0; j < REPEATS; j++) {
            ring_plain(t, u, rows, cols);
            ring_plain(u, t, rows, cols);
        }
        memcpy(t, a, n * sizeof *t);
        struct arena *arena = arena_new(0);
        struct ir_kernel k, *list[2] = {&k, &k};
        ring_kernel(&k, arena, rows, cols);
        void *there[2] = {a, b}, *back[2] = {b, a};
        void *const *bindings[2] = {there, back};
        for (int threads = 1; threads <= 3; threads++) {
            struct rig g;
            rig_open(&g, threads);
            memcpy(a, t, n * sizeof *a);
            struct job job = {.kernels = list,
                              .n_kernels = 2,
                              .bindings = bindings,
                              .loop_n = 2,
                              .repeats = REPEATS};
            rig_run(&g, &job);
            assert_memory_equal(a, u, n * sizeof *a);
            struct pool_stats stats;
            pool_get_stats(g.p, &stats);
            assert_true((stats.units > 0) == (rows >= 300));
            rig_close(&g);
        }
        arena_free(arena);
        mem_free(u);
    }
    assert_int_equal(mem_live(), before);
}

/* slot 0 += slot 1, of n numbers and of one, or itself += 1 where n is 0. */
static void add_kernel(struct ir_kernel *k, struct arena *arena, int64_t n)
{
    const int64_t ext = n ? n : 1;
    *k = (struct ir_kernel){.rank = 1, .shape = {ext}};
    struct ir_ctx c = {.rank = 1, .shape = {ext}, .src = {0}, .step = {1}};
    const struct view v = {.rank = 1, .shape = {ext}, .strides = {1}};
    const struct view one = {.rank = 1, .shape = {ext}};
    struct ir_builder b;
    ir_builder_init(&b, arena, k);
    ir_add_ctx(&b, &c);
    const uint32_t slot = n ? 0 : 1;
    uint32_t x = ir_emit_load(&b, slot, DT_F64, &v, 0);
    uint32_t y = n ? ir_emit_load(&b, 1, DT_F64, &one, 0)
                   : ir_emit_const(&b, (struct scalar){.dtype = DT_F64, .v.f64 = 1});
    x = ir_emit_op(&b, OP_ADD, DT_F64, (uint32_t[]){x, y});
    struct ir_output o = {.kind = OUT_STORE, .node = x, .slot = slot, .dtype = DT_F64, .view = v};
    assert_true(ir_add_output(&b, &o));
}

/* What a pass reads once for a whole kernel is read again in the next. */
static void test_read_again(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 100, 300000};
    enum { REPEATS = 50 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct arena *arena = arena_new(0);
        struct ir_kernel count, add, *list[2] = {&count, &add};
        add_kernel(&count, arena, 0);
        add_kernel(&add, arena, sizes[i]);
        for (int threads = 1; threads <= 3; threads++) {
            double *x = mem_calloc((size_t)sizes[i], sizeof *x), counter = 0;
            void *slots[2] = {x, &counter};
            struct rig g;
            rig_open(&g, threads);
            struct job job = {
                .kernels = list, .n_kernels = 2, .slots = slots, .loop_n = 2, .repeats = REPEATS};
            rig_run(&g, &job);
            assert_true(counter == REPEATS);
            for (int64_t j = 0; j < sizes[i]; j++)
                if (x[j] != REPEATS * (REPEATS + 1) / 2)
                    fail_msg("%d threads: [%d] is %g", threads, (int)j, x[j]);
            rig_close(&g);
            mem_free(x);
        }
        arena_free(arena);
    }
}

/* A loop that has no memory to keep its programs runs all the same. */
static void test_nothing_kept(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 300, N = ROWS * COLS, REPEATS = 4 };
    const int64_t before = mem_live();
    float *u = mem_alloc(4 * N * sizeof *u), *t = u + N, *a = t + N, *b = a + N;
    for (int j = 0; j < N; j++)
        a[j] = u[j] = (float)(j % 1009);
    for (int j = 0; j < REPEATS; j++) {
        ring_plain(t, u, ROWS, COLS);
        ring_plain(u, t, ROWS, COLS);
    }
    memcpy(t, a, N * sizeof *t);
    struct arena *arena = arena_new(0);
    struct ir_kernel k, *list[2] = {&k, &k};
    ring_kernel(&k, arena, ROWS, COLS);
    void *there[2] = {a, b}, *back[2] = {b, a};
    void *const *bindings[2] = {there, back};
    int refused = 0, went_on = 0;
    for (int n = 1;; n++) {
        struct rig g;
        rig_open(&g, 2);
        memcpy(a, t, N * sizeof *a);
        struct job job = {
            .kernels = list, .n_kernels = 2, .bindings = bindings, .loop_n = 2, .repeats = REPEATS};
        job.done = tell;
        job.user = &g.sem;
        mem_fail_after(n, true);
        pool_submit(g.s, &job);
        while (sem_wait(&g.sem))
            ;
        const int64_t failed = mem_failed();
        mem_fail_after(0, false);
        refused += job.result != ERR_OK;
        went_on += job.result == ERR_OK && failed > 0;
        assert_memory_equal(a, job.result == ERR_OK ? u : t, N * sizeof *a);
        rig_close(&g);
        if (!failed)
            break;
    }
    assert_true(refused > 4 && went_on > 4);
    arena_free(arena);
    mem_free(u);
    assert_int_equal(mem_live(), before);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Threads look for work for a moment only: without any they take no time. */
static void test_sleep(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    struct ir_kernel add, *list[1] = {&add};
    add_kernel(&add, arena, 300000);
    double *x = mem_calloc(300000, sizeof *x), one = 1;
    void *slots[2] = {x, &one};
    struct rig g;
    rig_open(&g, 3);
    struct job job = {.kernels = list, .n_kernels = 1, .slots = slots, .loop_n = 1, .repeats = 5};
    rig_run(&g, &job);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    const double from = cpu_ms();
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_true(cpu_ms() - from < 50);
    rig_close(&g);
    mem_free(x);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_read_again),
        cmocka_unit_test(test_nothing_kept),
        cmocka_unit_test(test_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
