/* Suspected work runs alone, and refused work does not run, on both backends: compute/cpu/suspect.h
 * and compute/gpu/cuda/beside.h. And which job a crash is counted against. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/mem.h"
#include "compute/cpu/pool.h"
#include "compute/cpu/suspect.h"
#include "compute/culprit/alone.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/pool_jobs.h"

/* The list as the next process has it if this one dies now. */
static struct culprits *after_death(const struct culprits *c)
{
    struct culprits *next = culprits_open(true, dup(culprits_fd(c)));
    assert_non_null(next);
    return next;
}

/* A list for which a process died while a job of that kernel was running, twice: the second time by
 * itself, as it had to. */
static struct culprits *blamed(struct adder *a, int times)
{
    struct culprits *c = culprits_open(true, -1);
    for (int i = 0; i < times; i++) {
        const struct suspect_watch w = {.culprits = c};
        struct job job = {.kernels = a->list, .n_kernels = 1, .alone = i > 0};
        suspect_begins(&w, &job);
        struct culprits *next = after_death(c);
        culprits_close(c);
        c = next;
        assert_true(culprits_crashed(c, "a test")); /* who had the memory has it still */
    }
    return c;
}

static uint32_t left_of(struct culprits **c, bool crashed)
{
    uint32_t n;
    struct culprits *next = after_death(*c);
    culprits_close(*c);
    *c = next;
    culprits_ended(next, crashed);
    (void)culprits_left(next, &n);
    return n;
}

/* The next process may end before it can judge what crashed the one before it. */
static void test_a_crash_is_known_until_it_is_judged(void **state)
{
    (void)state;
    uint32_t n;
    const struct code_key one = {"one"}, two = {"two"};
    struct culprits *c = culprits_open(true, -1);
    assert_true(culprits_begin(c, &one, 1, "rows", (struct culprit_who){.name = "ann"}, false));
    assert_int_equal(left_of(&c, true), 1);
    for (int i = 0; i < 2; i++) {
        assert_true(culprits_begin(c, &two, 1, "rows", (struct culprit_who){.name = "bob"}, false));
        assert_int_equal(left_of(&c, false), 1);
        assert_string_equal(culprits_left(c, &n)->who, "ann");
    }
    (void)culprits_crashed(c, "a test");
    assert_int_equal(culprits_suspects(c), 1);
    assert_int_equal(left_of(&c, true), 0);
    culprits_close(c);
}

/* Three jobs on streams of their own, the second suspected: once. In which order they begin is for
 * the workers to say. */
static void run_beside(int64_t inline_elements)
{
    enum { LONG = 1 << 18, SHORT = 64 };
    struct adder a, b, c;
    struct counted jobs[3];
    struct backend_stream *s[3];
    sem_t sem;
    float *memory = mem_calloc(2 * LONG, sizeof *memory);
    void *slots[] = {memory, memory + LONG};
    adder_init(&a, LONG, 1, 0, 1, 60);
    adder_init(&b, SHORT, 2, 0, 1, 1);
    adder_init(&c, SHORT, 3, 0, 1, 2);
    struct culprits *list = blamed(&b, 1);
    struct pool *p = pool_new(2, inline_elements);
    sem_init(&sem, 0, 0);
    pool_watch(p, list, NULL);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < 3; i++) {
            s[i] = pool_stream_new(p);
            prepare(&jobs[i], i == 0 ? &a : i == 1 ? &b : &c, 1, slots, &sem, NULL);
        }
        for (int i = 0; i < 3; i++)
            pool_submit(s[i], &jobs[i].job);
        wait_for(&sem, 3);
        for (int i = 0; i < 3; i++) {
            assert_true(jobs[i].job.result == ERR_OK && jobs[i].job.alone == (i == 1 && !again));
            pool_stream_free(s[i]);
        }
        assert_true(culprits_is_empty(list)); /* it came through */
    }
    pool_free(p);
    culprits_close(list);
    sem_destroy(&sem);
    mem_free(memory);
    arena_free(a.arena);
    arena_free(b.arena);
    arena_free(c.arena);
}

static void test_alone_on_the_cpu(void **state)
{
    (void)state;
    int64_t live = mem_live();
    run_beside(0);
    run_beside(1 << 10);
    assert_int_equal(mem_live(), live);
}

static void test_refused_on_the_cpu(void **state)
{
    (void)state;
    struct adder a, b;
    struct counted job;
    sem_t sem;
    float memory[8] = {0};
    void *slots[] = {memory, memory + 4};
    adder_init(&a, 4, 1, 0, 1, 3);
    adder_init(&b, 4, 2, 0, 1, 2);
    struct culprits *list = blamed(&a, 2);
    struct pool *p = pool_new(1, 1 << 10);
    struct backend_stream *s = pool_stream_new(p);
    sem_init(&sem, 0, 0);
    pool_watch(p, list, NULL);
    prepare(&job, &a, 1, slots, &sem, NULL);
    assert_int_equal(pool_submit(s, &job.job), 0);
    assert_true(job.calls == 1 && job.job.result == ERR_PLAN_FAULTED && job.job.refusal);
    assert_true(job.job.untouched && job.job.in_submit && memory[4] == 0);
    prepare(&job, &b, 1, slots, &sem, NULL); /* other work is not */
    pool_submit(s, &job.job);
    wait_for(&sem, 2);
    assert_int_equal(job.job.result, ERR_OK);
    pool_stream_free(s);
    pool_free(p);
    culprits_close(list);
    sem_destroy(&sem);
    arena_free(a.arena);
    arena_free(b.arena);
}

/* On two devices that are never idle of themselves: each has a job of a second at any time, and the
 * next one half a second before that ends, if it may start. When the suspected work comes, the
 * second device has held back others for two seconds already, for work that is then given up. */
static void test_alone_on_two_that_are_busy(void **state)
{
    (void)state;
    const uint64_t tick = ALONE_NS / 200;
    struct alone devices[2] = {{0}, {0}}, *both[2] = {&devices[0], &devices[1]};
    int suspect, other, given_up;
    uint64_t now = tick, ends[2][2] = {{0}};
    assert_false(alone_may_start(&devices[1], &given_up, true, true, now));
    for (now += ALONE_NS; now < 20 * ALONE_NS; now += tick) {
        bool busy = false;
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 2; i++) {
                const uint64_t next = ends[k][!i] > now ? ends[k][!i] - ALONE_NS / 4 : now;
                if (now >= ends[k][i] && now >= next &&
                    alone_may_start(&devices[k], &other, false, true, now))
                    ends[k][i] = now + ALONE_NS / 2;
                busy |= now < ends[k][i];
            }
        if (alone_may_start_on(both, 2, &suspect, true, busy, now))
            break;
    }
    assert_true(now < 6 * ALONE_NS);
    assert_true(devices[0].runs == &suspect && devices[1].runs == &suspect);
}

/* --- on a GPU --- */

#define N 64

struct gpu {
    struct backend *b;
    struct backend_stream *streams[3];
    void *memory;
    void *slots[2];
};

/* Of two GPUs, and of the mesh of both. */
enum { FIRST, SECOND, MESH };
static const int first_gpu[3] = {FIRST, FIRST, FIRST};

/* With a stream on each of these devices. */
static void open_gpu(struct gpu *g, struct culprits *list, const int devices[3])
{
    const struct backend_config config = {
        .slab_memory = 8 << 20, .culprits = list, .mesh = "all", .mesh_least = 1 << 20};
    const struct backend_ops *ops = &backend_cuda_ops;
    struct err e = ERR_INIT;
    if (ops->open(&config, &g->b, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(ops->alloc(g->b, 0, 2 * N * 4, true, &g->memory, &e), ERR_OK);
    g->slots[0] = g->memory;
    g->slots[1] = (char *)g->memory + N * 4;
    for (int i = 0; i < 3; i++)
        assert_int_equal(ops->stream_new(g->b, devices[i], false, &g->streams[i], &e), ERR_OK);
}

static void close_gpu(struct gpu *g, struct adder *adders, int n)
{
    const struct backend_ops *ops = &backend_cuda_ops;
    for (int i = 0; i < n; i++)
        ops->release(g->b, &adders[i].k);
    for (int i = 0; i < 3; i++)
        ops->stream_free(g->streams[i]);
    ops->free(g->b, 0, g->memory, 2 * N * 4);
    ops->close(g->b);
}

static bool is_running(const struct culprits *c)
{
    uint32_t n;
    struct culprits *copy = after_death(c);
    (void)culprits_left(copy, &n);
    culprits_ended(copy, false); /* takes what is running */
    culprits_close(copy);
    return n > 0;
}

/* A list for which a process died while the kernel was running. */
static struct culprits *blamed_on_a_gpu(struct adder *a)
{
    struct gpu g;
    struct counted job;
    sem_t sem;
    struct culprits *c = culprits_open(true, -1), *next = NULL;
    uint32_t n = 0;
    sem_init(&sem, 0, 0);
    open_gpu(&g, c, first_gpu);
    fake_cuda_hold(1);
    prepare(&job, a, 1, g.slots, &sem, NULL);
    backend_cuda_ops.submit(g.streams[0], &job.job);
    while (n == 0) { /* until it is compiled and launched */
        culprits_close(next);
        usleep(1000);
        next = after_death(c);
        (void)culprits_left(next, &n);
    }
    fake_cuda_release();
    wait_for(&sem, 1);
    close_gpu(&g, a, 1);
    culprits_close(c);
    (void)culprits_crashed(next, "a test");
    assert_false(culprits_is_empty(next));
    sem_destroy(&sem);
    return next;
}

/* The first job is on its device and does not end, the second is suspected, the third is not. */
static void alone_on(const int devices[3])
{
    struct adder adders[3];
    struct counted jobs[3];
    struct gpu g;
    sem_t sem;
    _Atomic int order = 0;
    for (int i = 0; i < 3; i++)
        adder_init(&adders[i], N, 1, 0, 1, i + 1);
    struct culprits *list = blamed_on_a_gpu(&adders[1]);
    sem_init(&sem, 0, 0);
    open_gpu(&g, list, devices);
    for (int i = 0; i < 3; i++) { /* compiled, without the list: they can run at once then */
        prepare(&jobs[i], &adders[i], 1, g.slots, &sem, NULL);
        if (i != 1)
            backend_cuda_ops.submit(g.streams[i], &jobs[i].job);
        else
            backend_cuda_ops.prepare(g.b, devices[i], &adders[i].k, NULL);
    }
    wait_for(&sem, 2);
    usleep(200000); /* for the second */
    for (int i = 0; i < 3; i++)
        prepare(&jobs[i], &adders[i], 1, g.slots, &sem, &order);
    fake_cuda_hold(1);
    backend_cuda_ops.submit(g.streams[0], &jobs[0].job);
    while (!is_running(list))
        usleep(1000);
    for (int i = 1; i < 3; i++)
        backend_cuda_ops.submit(g.streams[i], &jobs[i].job);
    usleep(300000);
    assert_false(is_running(list)); /* nothing more was launched */
    assert_true(jobs[1].job.alone && !jobs[2].job.alone && atomic_load(&order) == 0);
    fake_cuda_release();
    wait_for(&sem, 3);
    for (int i = 0; i < 3; i++)
        assert_true(jobs[i].job.result == ERR_OK && jobs[i].place == i);
    assert_true(culprits_is_empty(list)); /* it came through */
    close_gpu(&g, adders, 3);
    culprits_close(list);
    sem_destroy(&sem);
    for (int i = 0; i < 3; i++)
        arena_free(adders[i].arena);
}

static void test_alone_on_a_gpu(void **state)
{
    (void)state;
    alone_on(first_gpu);
}

/* The mesh's suspected work has all its GPUs, one that is idle is kept free for it; a GPU's keeps
 * the mesh off. */
static void test_alone_on_what_shares_gpus(void **state)
{
    (void)state;
    alone_on((const int[]){SECOND, MESH, FIRST});
    alone_on((const int[]){FIRST, MESH, SECOND});
    alone_on((const int[]){MESH, SECOND, MESH});
    alone_on((const int[]){MESH, MESH, FIRST});
    alone_on((const int[]){MESH, FIRST, FIRST});
}

/* What lasts holds others back for a while only. */
static void not_for_long(const int devices[3])
{
    struct adder adders[3];
    struct counted jobs[3];
    struct gpu g;
    sem_t sem;
    _Atomic int order = 0;
    for (int i = 0; i < 3; i++)
        adder_init(&adders[i], N, 1, 0, 1, i + 1);
    struct culprits *list = blamed_on_a_gpu(&adders[1]);
    sem_init(&sem, 0, 0);
    open_gpu(&g, list, devices);
    for (int i = 0; i < 3; i++)
        prepare(&jobs[i], &adders[i], 1, g.slots, &sem, &order);
    fake_cuda_hold(1);
    backend_cuda_ops.submit(g.streams[0], &jobs[0].job);
    while (!is_running(list))
        usleep(1000);
    backend_cuda_ops.submit(g.streams[1], &jobs[1].job);
    backend_cuda_ops.submit(g.streams[2], &jobs[2].job);
    wait_for(&sem, 1);
    assert_true(jobs[2].calls == 1 && jobs[2].place == 0 && !jobs[0].calls && !jobs[1].calls);
    fake_cuda_release();
    wait_for(&sem, 2);
    assert_true(jobs[0].place == 1 && jobs[1].place == 2 && jobs[1].job.result == ERR_OK);
    close_gpu(&g, adders, 3);
    culprits_close(list);
    sem_destroy(&sem);
    for (int i = 0; i < 3; i++)
        arena_free(adders[i].arena);
}

static void test_others_are_not_held_back_for_long(void **state)
{
    (void)state;
    not_for_long(first_gpu);
    not_for_long((const int[]){SECOND, MESH, FIRST});
    not_for_long((const int[]){MESH, SECOND, MESH});
}

/* On the mesh and on its GPUs at once, many that want all of theirs to themselves: all of them end,
 * and none waits until others are let go before it. */
static void test_no_circle(void **state)
{
    (void)state;
    enum { JOBS = 300 };
    static struct counted jobs[JOBS];
    struct adder adders[3];
    struct gpu g;
    sem_t sem;
    struct culprits *list = culprits_open(true, -1);
    sem_init(&sem, 0, 0);
    open_gpu(&g, list, (const int[]){FIRST, SECOND, MESH});
    for (int i = 0; i < 3; i++) {
        adder_init(&adders[i], N, 1, 0, 1, 1);
        prepare(&jobs[i], &adders[i], 1, g.slots, &sem, NULL);
        backend_cuda_ops.submit(g.streams[i], &jobs[i].job);
    }
    wait_for(&sem, 3);
    const uint64_t begun = clock_ns();
    for (int i = 0; i < JOBS; i++) {
        prepare(&jobs[i], &adders[i * 7 % 3], 1, g.slots, &sem, NULL);
        jobs[i].job.alone = i * 5 % 11 < 6;
        backend_cuda_ops.submit(g.streams[i * 7 % 3], &jobs[i].job);
    }
    wait_for(&sem, JOBS);
    for (int i = 0; i < JOBS; i++)
        assert_true(jobs[i].calls == 1 && jobs[i].job.result == ERR_OK);
    assert_true(clock_ns() - begun < 10 * ALONE_NS);
    close_gpu(&g, adders, 3);
    culprits_close(list);
    sem_destroy(&sem);
    for (int i = 0; i < 3; i++)
        arena_free(adders[i].arena);
}

/* Each device is told when what one of its jobs waits for has ended on another. */
static void test_waits_for_another_device(void **state)
{
    (void)state;
    struct adder adders[3];
    struct counted jobs[3];
    struct gpu g;
    sem_t sem;
    _Atomic int order = 0;
    for (int i = 0; i < 3; i++)
        adder_init(&adders[i], N, 1, 0, 1, 1);
    sem_init(&sem, 0, 0);
    open_gpu(&g, NULL, (const int[]){FIRST, SECOND, MESH});
    for (int first = 0; first < 3; first++) {
        atomic_store(&order, 0);
        for (int again = 0; again < 2; again++) { /* compiled first */
            for (int i = 0; i < 3; i++)
                prepare(&jobs[i], &adders[i], 1, g.slots, &sem, &order);
            if (again)
                fake_cuda_hold(1);
            struct fence fence = {.stream = g.streams[first]};
            fence.seq = backend_cuda_ops.submit(g.streams[first], &jobs[first].job);
            usleep(again * 20000);
            for (int i = (first + 1) % 3; i != first; i = (i + 1) % 3) {
                jobs[i].job.waits = &fence;
                jobs[i].job.n_waits = 1;
                backend_cuda_ops.submit(g.streams[i], &jobs[i].job);
            }
            usleep(again * 50000); /* until nothing looks for work there */
            if (again) {
                assert_int_equal(jobs[0].calls + jobs[1].calls + jobs[2].calls, 0);
                fake_cuda_release();
            }
            wait_for(&sem, 3);
        }
        assert_int_equal(jobs[first].place, 3); /* of six, with those that compiled */
    }
    close_gpu(&g, adders, 3);
    sem_destroy(&sem);
    for (int i = 0; i < 3; i++)
        arena_free(adders[i].arena);
}

/* --- jobs --- */

static void begin_of(struct culprits *c, int k, const char *job)
{
    struct code_key key = {{(uint8_t)k}};
    assert_true(culprits_begin(c, &key, 1, "rows", (struct culprit_who){"ann", job}, false));
}

static struct culprits *crash(struct culprits *c)
{
    struct culprits *next = after_death(c);
    culprits_close(c);
    (void)culprits_crashed(next, "a test");
    return next;
}

/* The job that a crash is counted against: nobody who ran beside other work. */
static void test_a_job_that_it_crashed_of(void **state)
{
    (void)state;
    uint32_t n, number;
    struct culprits *r = culprits_open(true, -1);
    begin_of(r, 1, "j-1");
    begin_of(r, 2, "j-1");
    assert_true(culprits_begin_job(r, "j-1") && culprits_begin_job(r, "j-2"));
    struct culprits *killed = after_death(r);
    culprits_ended(killed, false);
    assert_string_equal(culprits_crashed_of(killed), "");
    culprits_close(killed);
    begin_of(r, 1, "j-1");
    assert_true(culprits_begin_job(r, "j-1") && culprits_begin_job(r, "j-2"));
    r = crash(r);
    assert_true(culprits_left(r, &n) && n == 1); /* jobs are not plans */
    assert_string_equal(culprits_crashed_of(r), "j-1");
    begin_of(r, 1, "j-1");
    begin_of(r, 2, "j-2");
    r = crash(r);
    assert_string_equal(culprits_crashed_of(r), "");
    begin_of(r, 1, "j-1");
    begin_of(r, 2, "");
    r = crash(r);
    assert_string_equal(culprits_crashed_of(r), "");
    begin_of(r, 2, ""); /* of a request, beside a job that has nothing on the device */
    assert_true(culprits_begin_job(r, "j-1"));
    r = crash(r);
    assert_string_equal(culprits_crashed_of(r), "");
    /* nothing is on a device */
    number = culprits_begin_job(r, "j-1");
    assert_true(culprits_begin_job(r, "j-2"));
    culprits_end(r, number);
    r = crash(r);
    assert_string_equal(culprits_crashed_of(r), "j-2");
    assert_true(culprits_begin_job(r, "j-1") && culprits_begin_job(r, "j-2"));
    r = crash(r);
    assert_string_equal(culprits_crashed_of(r), "");
    culprits_close(r);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("ARRAYD_FAKE_DEVICES")) { /* the fake driver looks when it is loaded */
        setenv("ARRAYD_FAKE_DEVICES", "2", 1);
        execv("/proc/self/exe", argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_crash_is_known_until_it_is_judged),
        cmocka_unit_test(test_alone_on_the_cpu),
        cmocka_unit_test(test_refused_on_the_cpu),
        cmocka_unit_test(test_alone_on_two_that_are_busy),
        cmocka_unit_test(test_alone_on_a_gpu),
        cmocka_unit_test(test_alone_on_what_shares_gpus),
        cmocka_unit_test(test_others_are_not_held_back_for_long),
        cmocka_unit_test(test_no_circle),
        cmocka_unit_test(test_waits_for_another_device),
        cmocka_unit_test(test_a_job_that_it_crashed_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
