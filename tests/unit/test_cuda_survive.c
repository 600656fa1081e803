/* Every driver call of a request fails as sticky, on the fake driver, and the process is gone: the
 * next one has all arrays. None is anything but what it was or what it was to become, and one that
 * nobody was writing is never lost; a move to other memory counts as a write. With ARRAYD_MESH on
 * several GPUs as one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/reclaim.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_torture.h"
#include "tests/unit/side.h"
#include "tests/unit/slice.h"

#define LAUNCH_FAILED 719
#define MOST_CALLS    2000

static struct side first, second;
static int lost, whole; /* targets */

/* An array of the process that dies, and of the next one. */
struct survivor {
    uint64_t id; /* 0: there was none */
    int64_t bytes;
    struct array *array;
};

static struct survivor look(struct array *a)
{
    return a ? (struct survivor){array_memory_id(a), array_nbytes(a), NULL} : (struct survivor){0};
}

static void settle(struct side *x)
{
    int tries = 0;
    while (engine_jobs_in_flight(x->g) > 0)
        pause_a_little(&tries);
}

static void close_side(struct side *x)
{
    engine_stream_unref(x->s);
    settle(x);
    reclaim_all(x->g->reclaim);
    assert_true(engine_close(x->g));
    account_unref(x->account);
    close(x->cells);
    for (int i = 0; i < x->keeper.n; i++)
        for (int k = 0; k < x->keeper.all[i].n; k++)
            close(x->keeper.all[i].fds[k]);
}

static void begin(struct fixture *x, const struct request *r)
{
    struct outcome o = {.done = WAITING};
    memset(&first, 0, sizeof first);
    side_open(&first, "cuda", -1);
    *x = (struct fixture){.g = first.g, .s = first.s, .account = first.account};
    assert_int_equal(put(x, pattern_a, 2, (int64_t[]){N, N}, &x->a), ERR_OK);
    assert_int_equal(put(x, pattern_b, 2, (int64_t[]){N, N}, &x->b), ERR_OK);
    assert_int_equal(put(x, pattern_line, 1, (int64_t[]){LONG}, &x->line), ERR_OK);
    assert_int_equal(put(x, pattern_target, 2, (int64_t[]){N, N}, &x->target), ERR_OK);
    if (r->hosted)
        move_out(x, &o);
    assert_int_equal(o.code, ERR_OK);
    for (int tries = 0; o.told && atomic_load(&o.done) == WAITING;)
        pause_a_little(&tries); /* the callback has `o` */
    settle(&first);
}

static void adopt(struct survivor *k)
{
    const struct engine_placed *p = k->id ? side_find(&second, k->id) : NULL;
    struct err e = ERR_INIT;
    if (!p)
        return;
    const struct engine_placed place = *p;
    if (engine_adopt(second.g, second.account, &place, &k->array, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(array_nbytes(k->array), k->bytes);
}

/* ERR_NOT_FOUND: nobody wrote down where it is. */
static enum err_code read_kept(const struct survivor *k, float *to)
{
    struct fixture x = {.s = second.s};
    return k->array ? get(&x, k->array, to) : ERR_NOT_FOUND;
}

static void must_be(const struct survivor *k, const float *pattern, const char *name, int nth)
{
    static float got[LONG];
    const enum err_code code = read_kept(k, got);
    if (code != ERR_OK || memcmp(got, pattern, (size_t)k->bytes) != 0)
        fail_msg("%s, call %d: an array that nobody was writing: %s", name, nth, err_name(code));
}

static void target_must_be(const struct survivor *k, const struct request *r,
                           const struct outcome *o, int nth)
{
    static float got[CELLS];
    const enum err_code code = read_kept(k, got);
    const bool old = code == ERR_OK && !memcmp(got, pattern_target, sizeof pattern_target);
    const bool new =
        code == ERR_OK && r->into && o->n == CELLS && !memcmp(got, o->want, CELLS * sizeof *got);
    if (old && !new && r->into && o->told)
        fail_msg("%s, call %d: a write that was accepted is not there, and nobody says so", r->name,
                 nth);
    lost += code == ERR_CONTENTS_LOST;
    whole += code == ERR_OK;
    if (!old && !new && !(code == ERR_CONTENTS_LOST && r->into))
        fail_msg("%s, call %d: the target: %s", r->name, nth, err_name(code));
}

static void result_must_be(const struct survivor *k, const struct request *r,
                           const struct outcome *o, int nth)
{
    static float got[BULK];
    const enum err_code code = read_kept(k, got);
    if (code == ERR_OK && memcmp(got, o->want, (size_t)k->bytes) != 0)
        fail_msg("%s, call %d: the result is another", r->name, nth);
    if (code != ERR_OK && code != ERR_CONTENTS_LOST && code != ERR_NOT_FOUND)
        fail_msg("%s, call %d: the result: %s", r->name, nth, err_name(code));
}

/* False: the request had passed before that many calls. */
static bool die_at(const struct request *r, int nth, bool looks)
{
    struct fixture x;
    struct outcome o = {.done = WAITING};
    begin(&x, r);
    struct survivor kept[] = {look(x.a), look(x.b), look(x.line), look(x.target), {0}};
    enum { A, B, LINE, TARGET, RESULT, ALL };
    fake_cuda_fail(nth, LAUNCH_FAILED);
    r->run(&x, &o);
    for (int tries = 0; o.told && atomic_load(&o.done) == WAITING;)
        pause_a_little(&tries);
    settle(&first);
    const bool struck = fake_cuda_failed() != NULL;
    if (o.result && array_memory_id(o.result) > kept[TARGET].id) /* else it is a view */
        kept[RESULT] = look(o.result);
    for (int i = 0; i < RESULT; i++) /* somebody looks it up in between, which brings back what
                                        failed work was to replace */
        if (looks)
            (void)array_in_host_memory((struct array *[]){x.a, x.b, x.line, x.target}[i]);
    side_copy(&first, &second); /* here it dies: what it lets go of must not be zeroed any more */
    fake_cuda_fail(1, LAUNCH_FAILED);
    struct array *const all[] = {x.a, x.b, x.line, x.target, o.result};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_unref(all[i]);
    close_side(&first);
    fake_cuda_reset();
    side_take_over(&second, "cuda");
    for (int i = 0; i < ALL; i++)
        adopt(&kept[i]);
    engine_adopted(second.g, 0);
    must_be(&kept[A], pattern_a, r->name, nth);
    must_be(&kept[B], pattern_b, r->name, nth);
    must_be(&kept[LINE], pattern_line, r->name, nth);
    target_must_be(&kept[TARGET], r, &o, nth);
    result_must_be(&kept[RESULT], r, &o, nth);
    for (int i = 0; i < ALL; i++)
        array_unref(kept[i].array);
    settle(&second);
    close_side(&second);
    return struck;
}

/* On a mesh the other arrays are too small to be divided, and are much as on one GPU. */
static int step_for(const struct request *r)
{
    return slice_step(3) * (getenv("ARRAYD_MESH") && r->run != upload_bulk ? 8 : 1);
}

static void no_call_that_fails_costs_an_array(void **state)
{
    (void)state;
    const int64_t live = mem_live();
    long calls = 0, stood_for = 0;
    for (size_t i = 0; i < REQUESTS; i++) {
        const struct request *r = &requests[i];
        const int step = step_for(r);
        for (int nth = 1 + slice_from(step); die_at(r, nth, nth & 1); nth += step) {
            calls++;
            stood_for += step;
            assert_true(nth < MOST_CALLS);
            assert_int_equal(mem_live(), live);
        }
    }
    print_message("%ld calls failed; targets: %d lost, %d whole\n", calls, lost, whole);
    assert_true(stood_for > 100 && lost > 0 && whole > calls / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_that_fails_costs_an_array),
    };
    fill_patterns();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
