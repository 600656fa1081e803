/* compute/memory/task.c: which work is wanted, with a front that holds it back; and compute/cpu:
 * what becomes of work that is not, in each of the interpreter's ways. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/cpu/pool.h"
#include "compute/ir/ir_build.h"
#include "tests/unit/engine_front.h"

/* --- which work --- */

/* Of the job held back as number n. */
static bool unwanted(struct fixture *f, int n)
{
    struct job *job = front.head;
    while (n-- > 0)
        job = job->next;
    assert_non_null(job);
    atomic_store(&f->g->tasks.looked_ns, 0); /* as if nobody had looked lately */
    return job->unwanted && job->unwanted(job);
}

static void end_all(void)
{
    while (front.head)
        end(ERR_OK);
}

static void a_value_is_wanted_by_who_reads_it(void **state)
{
    (void)state;
    struct fixture f;
    struct array *r;
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "sum(a)", NULL, &r), ERR_OK);
    assert_false(unwanted(&f, 0));
    struct download *d = begin_reading(&f, r);
    array_unref(r);
    assert_false(unwanted(&f, 0));
    download_free(d);
    assert_true(unwanted(&f, 0));
    assert_true(unwanted(&f, 0)); /* for good */
    end(ERR_NOT_FOUND);
    end_all();
    assert_int_equal(atomic_load(&f.g->failures), 0);
    close_fixture(&f);
}

/* Each by the next, until nobody wants the last. */
static void what_leads_to_it_is_wanted_with_it(void **state)
{
    (void)state;
    struct fixture f;
    struct array *x, *y, *a;
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "shift(a + b, [1], 'wrap') + sum(a)", NULL, &x), ERR_OK);
    a = f.a;
    f.a = x;
    assert_int_equal(evaluate(&f, "a * 2 + sum(a)", NULL, &y), ERR_OK);
    f.a = a;
    array_unref(x);
    assert_false(unwanted(&f, 0) || unwanted(&f, 1));
    array_unref(y);
    assert_true(unwanted(&f, 0) && unwanted(&f, 1));
    end_all();
    close_fixture(&f);
}

/* Written again and again, in the same memory and in other: only the last contents are ever seen,
 * by whoever has the array. */
static void an_array_is_wanted_while_it_is_there(void **state)
{
    (void)state;
    static const char *const ways[] = {"a + b", "shift(a, [1], 'wrap')", "b"};
    for (int way = 0; way < 3; way++) {
        struct fixture f;
        open_fixture(&f);
        hold();
        for (int i = 0; i < 3; i++)
            assert_int_equal(evaluate(&f, ways[way], f.a, NULL), ERR_OK);
        for (int i = 0; i < 3; i++)
            assert_false(unwanted(&f, i));
        array_unref(f.a);
        f.a = NULL;
        for (int i = 0; i < 3; i++)
            assert_true(unwanted(&f, i));
        end(ERR_NOT_FOUND);
        end_all();
        close_fixture(&f);
    }
}

/* An array that is still there is written with what another, that is not, has. */
static void what_is_read_for_others_is_wanted(void **state)
{
    (void)state;
    struct fixture f;
    struct array *x, *a;
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "a * 3", NULL, &x), ERR_OK);
    a = f.a;
    f.a = x;
    assert_int_equal(evaluate(&f, "a + 1", f.b, NULL), ERR_OK);
    f.a = a;
    array_unref(x);
    assert_false(unwanted(&f, 0) || unwanted(&f, 1));
    end_all();
    front.hold = false;
    double got[N];
    assert_int_equal(read_all(&f, f.b, got), ERR_OK);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == 3.0 * i + 1);
    close_fixture(&f);
}

/* --- what becomes of it --- */

struct heavy {
    struct arena *arena;
    struct ir_kernel k, *list[1];
    char out[8 << 16]; /* or less */
};

/* Many sines of a number that stands everywhere, over rows × lanes points; ways to take them in. */
enum way { STORE, TURNED, SUM_ALL, SUM_ROWS, SUM_LANES, ARG_ALL, ARG_ROWS, PROD_ALL, SCAN, WAYS };

static void heavy_init(struct heavy *h, enum way way, int64_t rows, int64_t lanes)
{
    memset(h, 0, sizeof *h);
    h->arena = arena_new(0);
    h->list[0] = &h->k;
    h->k.rank = 2;
    struct ir_builder b;
    struct ir_ctx c = {.rank = 2, .shape = {rows, lanes}, .src = {0, 1}, .step = {1, 1}};
    struct view v = {.rank = 2, .shape = {rows, lanes}}, o = v;
    memcpy(h->k.shape, c.shape, sizeof c.shape);
    ir_builder_init(&b, h->arena, &h->k);
    ir_add_ctx(&b, &c);
    v.strides[1] = way == TURNED ? 0 : 1;
    v.strides[0] = way == TURNED;
    uint32_t x = ir_emit_load(&b, 0, DT_F64, &v, 0);
    for (int i = 0; i < 8; i++)
        x = ir_emit_op(&b, i & 1 ? OP_COS : OP_SIN, DT_F64, &x);
    bool all = way == SUM_ALL || way == ARG_ALL || way == PROD_ALL, stores = way <= TURNED;
    struct ir_output out = {.kind = stores        ? OUT_STORE
                                    : way == SCAN ? OUT_SCAN
                                                  : OUT_REDUCE,
                            .node = x,
                            .slot = 1,
                            .dtype = way == ARG_ALL || way == ARG_ROWS ? DT_I64 : DT_F64,
                            .view = o,
                            .divisor = 1};
    if (!stores) {
        out.reduce = way == ARG_ALL || way == ARG_ROWS ? REDUCE_ARGMAX
                     : way == PROD_ALL                 ? REDUCE_PROD
                                                       : REDUCE_SUM;
        out.axes = all ? 3 : way == SUM_LANES ? 2 : 1;
    }
    if (!stores && way != SCAN) {
        out.view = (struct view){.rank = 2, .shape = {1, 1}};
        out.view.shape[0] = out.axes & 1 ? 1 : rows;
        out.view.shape[1] = out.axes & 2 ? 1 : lanes;
    }
    assert_true(ir_add_output(&b, &out));
}

struct asked {
    struct job job;
    _Atomic int asked, until;
    sem_t *done;
};

static bool is_unwanted(struct job *job)
{
    struct asked *a = job->user;
    return atomic_fetch_add(&a->asked, 1) >= a->until;
}

static void tell(struct job *job)
{
    struct asked *a = job->user;
    sem_post(a->done);
}

static void give(struct backend_stream *s, struct asked *a, struct heavy *h, void *const *slots,
                 int until, sem_t *done)
{
    *a = (struct asked){.job = {.kernels = h->list,
                                .n_kernels = 1,
                                .slots = slots,
                                .done = tell,
                                .unwanted = is_unwanted,
                                .user = a},
                        .until = until,
                        .done = done};
    pool_submit(s, &a->job);
}

static void wait_for(sem_t *done)
{
    while (sem_wait(done))
        ;
}

/* Work of months in every way there is; one thread, since the results all go to few places. */
static void it_ends_in_every_way_of_running(void **state)
{
    (void)state;
    struct pool *p = pool_new(1, 0);
    struct backend_stream *s = pool_stream_new(p);
    sem_t done;
    sem_init(&done, 0, 0);
    static double in[1 << 16];
    for (int big = 0; big < 2; big++)
        for (enum way way = 0; way < WAYS; way++) {
            /* with many lanes what is summed along the rows is not cut */
            int64_t lanes = big ? 1 << 16 : 1 << 7, rows = (int64_t)1 << (big ? 30 : 33);
            struct heavy *h = mem_alloc(sizeof *h);
            struct asked a;
            heavy_init(h, way, way == SUM_LANES ? 7 : rows, way == SUM_LANES ? rows : lanes);
            if (way == SUM_LANES || way == TURNED)
                h->k.inputs[0].view.strides[0] = h->k.inputs[0].view.strides[1] = 0;
            void *slots[2] = {in, h->out};
            give(s, &a, h, slots, 3, &done);
            wait_for(&done);
            assert_int_equal(a.job.result, ERR_NOT_FOUND);
            assert_false(a.job.untouched);
            assert_int_equal(atomic_load(&a.asked), 4);
            arena_free(h->arena);
            mem_free(h);
        }
    pool_stream_free(s);
    pool_free(p);
    sem_destroy(&done);
}

static void what_has_not_begun_never_does(void **state)
{
    (void)state;
    struct pool *p = pool_new(2, 0);
    struct backend_stream *s = pool_stream_new(p), *other = pool_stream_new(p);
    sem_t done;
    sem_init(&done, 0, 0);
    struct heavy *h = mem_alloc(sizeof *h), *small = mem_alloc(sizeof *small);
    static double in[128];
    struct asked jobs[4], beside;
    heavy_init(h, SUM_ALL, (int64_t)1 << 33, 128);
    heavy_init(small, SUM_ALL, 10000, 128);
    void *slots[2] = {in, h->out}, *of_small[2] = {in, small->out};
    memset(small->out, 1, 8);
    give(s, &jobs[0], h, slots, 100, &done);
    give(s, &jobs[1], small, of_small, 0, &done);
    give(s, &jobs[2], h, slots, 5, &done);
    for (int i = 0; i < 3; i++)
        wait_for(&done);
    assert_int_equal(jobs[0].job.result, ERR_NOT_FOUND);
    assert_int_equal(jobs[1].job.result, ERR_NOT_FOUND);
    assert_true(jobs[1].job.untouched);
    assert_int_equal(jobs[2].job.result, ERR_NOT_FOUND);
    for (int i = 0; i < 8; i++)
        assert_int_equal(small->out[i], 1);
    /* what is wanted is asked about, and done, beside what is not and after it */
    give(s, &jobs[0], h, slots, 50, &done);
    give(other, &beside, small, of_small, INT32_MAX, &done);
    give(s, &jobs[3], small, of_small, INT32_MAX, &done);
    for (int i = 0; i < 3; i++)
        wait_for(&done);
    assert_int_equal(beside.job.result, ERR_OK);
    assert_int_equal(jobs[3].job.result, ERR_OK);
    assert_true(atomic_load(&jobs[3].asked) > 0);
    double sum;
    memcpy(&sum, small->out, sizeof sum);
    assert_true(sum > 0); /* of cos(sin(… 0)) */
    arena_free(h->arena);
    arena_free(small->arena);
    mem_free(h);
    mem_free(small);
    pool_stream_free(s);
    pool_stream_free(other);
    pool_free(p);
    sem_destroy(&done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_wanted_by_who_reads_it),
        cmocka_unit_test(what_leads_to_it_is_wanted_with_it),
        cmocka_unit_test(an_array_is_wanted_while_it_is_there),
        cmocka_unit_test(what_is_read_for_others_is_wanted),
        cmocka_unit_test(it_ends_in_every_way_of_running),
        cmocka_unit_test(what_has_not_begun_never_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
