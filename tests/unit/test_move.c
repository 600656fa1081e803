/* compute/move: arrays in host memory, on their way there and back, brought back by what uses them,
 * and what becomes of them where the work that moves them fails, at once or later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compute/base/mem.h"
#include "compute/memory/reclaim.h"
#include "tests/unit/engine_front.h"

#define NBYTES ((int64_t)(N * sizeof(double)))

static void told(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    atomic_store((_Atomic int *)user, (int)result);
}
enum { WAITING = -1 };

static enum err_code move(struct fixture *f, struct array *a, bool host)
{
    static _Atomic int done;
    struct err e = ERR_INIT;
    atomic_store(&done, WAITING);
    enum err_code code = engine_move(f->s, a, host, told, &done, &e);
    return code == ERR_OK && !front.head ? (enum err_code)atomic_load(&done) : code;
}

static void reclaim(struct fixture *f)
{
    reclaim_all(f->g->reclaim);
}

static void contents_and_books(void **state)
{
    (void)state;
    struct fixture f;
    struct view every_other = {.rank = 1, .shape = {N / 2}, .strides = {2}};
    open_fixture(&f);
    struct array *v = array_view(f.a, DT_F64, &every_other);
    uint64_t version = array_version(f.a);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(move(&f, round == 1 ? v : f.a, true), ERR_OK);
        assert_true(array_in_host_memory(f.a) && array_in_host_memory(v));
        assert_false(array_in_host_memory(f.b));
        assert_int_equal(engine_bytes_in_use(f.g), NBYTES);
        assert_int_equal(engine_host_bytes(f.g), NBYTES);
        assert_int_equal(account_used(f.account), 2 * NBYTES);
        holds_ramp(&f, f.a, 0);
        assert_int_equal(move(&f, f.a, true), ERR_OK);
        assert_true(array_in_host_memory(v));
        assert_int_equal(move(&f, f.a, false), ERR_OK);
        assert_false(array_in_host_memory(f.a) || array_in_host_memory(v));
        reclaim(&f);
        assert_int_equal(engine_bytes_in_use(f.g), 2 * NBYTES);
        assert_int_equal(engine_host_bytes(f.g), 0);
        assert_int_equal(account_used(f.account), 2 * NBYTES);
        assert_int_equal(array_version(f.a), version);
        assert_int_equal(array_buffer_refs(f.a), 2);
        holds_ramp(&f, f.a, 0);
    }
    assert_int_equal(move(&f, f.a, true), ERR_OK);
    array_unref(v);
    close_fixture(&f);
}

/* Behind work that is still to write it, and before work that reads it. */
static void in_the_order_of_the_stream(void **state)
{
    (void)state;
    struct fixture f;
    _Atomic int done = WAITING;
    struct array *sum = NULL;
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "b + 1", f.b, NULL), ERR_OK);
    assert_int_equal(engine_move(f.s, f.b, true, told, &done, NULL), ERR_OK);
    assert_true(array_in_host_memory(f.b)); /* what comes later finds it there */
    struct download *d = begin_reading(&f, f.b);
    assert_int_equal(evaluate(&f, "b * 2", f.b, NULL), ERR_OK);
    assert_int_equal(evaluate(&f, "a*0 + b", NULL, &sum), ERR_OK);
    assert_false(array_in_host_memory(f.b));
    assert_int_equal(atomic_load(&done), WAITING);
    while (front.head)
        end(ERR_OK);
    assert_int_equal(atomic_load(&done), ERR_OK);
    double got[N];
    assert_int_equal(finish_reading(d, got), ERR_OK);
    assert_true(got[0] == 101);
    holds(&f, f.b, 202);
    holds(&f, sum, 202);
    reclaim(&f);
    assert_int_equal(engine_host_bytes(f.g), 0);
    array_unref(sum);
    close_fixture(&f);
}

static void a_move_that_fails_leaves_it(void **state)
{
    (void)state;
    static const enum err_code how[] = {ERR_OUT_OF_MEMORY, ERR_DEVICE_LOST};
    struct fixture f;
    open_fixture(&f);
    for (int i = 0; i < 8; i++) {
        bool host = i & 1, later = i & 2;
        _Atomic int done = WAITING;
        assert_int_equal(move(&f, f.a, !host), ERR_OK);
        front.at_once = later ? ERR_OK : how[i / 4];
        if (later)
            hold();
        enum err_code code = engine_move(f.s, f.a, host, told, &done, NULL);
        if (later) {
            assert_int_equal(code, ERR_OK);
            struct download *d = begin_reading(&f, f.a);
            end(how[i / 4]);
            end(ERR_OK);
            double got[N];
            assert_int_equal(finish_reading(d, got), how[i / 4]);
            front.hold = false;
        }
        assert_int_equal(later ? atomic_load(&done) : (int)code, how[i / 4]);
        assert_int_equal(atomic_load(&done), later ? (int)how[i / 4] : WAITING);
        assert_int_equal(array_in_host_memory(f.a), !host);
        holds_ramp(&f, f.a, 0);
        reclaim(&f);
        assert_int_equal(engine_host_bytes(f.g), host ? 0 : NBYTES);
        assert_int_equal(engine_bytes_in_use(f.g), host ? 2 * NBYTES : NBYTES);
        assert_int_equal(account_used(f.account), 2 * NBYTES);
    }
    assert_int_equal(move(&f, f.a, false), ERR_OK);
    holds_ramp(&f, f.a, 0);
    close_fixture(&f);
}

/* Work that was to bring an array back and read or write it: what brings it back fails, at once or
 * later, or the work itself. */
static void work_that_fails_leaves_it(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool into;
    } work[] = {{"a + b", false},  {"a + b", true},        {"shift(a, 1, 'wrap')", true},
                {"a[::-1]", true}, {"sum(a) + b*0", true}, {"b*2", true}};
    enum { FETCH_AT_ONCE, FETCH_LATER, WORK_LATER, WAYS };
    struct fixture f;
    open_fixture(&f);
    for (int i = 0; i < 6; i++)
        for (int way = 0; way < WAYS; way++) {
            bool fetches = i != 5; /* what is written in whole is not brought back first */
            struct array *made = NULL, *after = NULL;
            double got[N];
            assert_int_equal(move(&f, f.a, true), ERR_OK);
            uint64_t version = array_version(f.a);
            if (way == FETCH_AT_ONCE)
                front.at_once = ERR_OUT_OF_MEMORY;
            else
                hold();
            enum err_code code = evaluate(&f, work[i].text, work[i].into ? f.a : NULL, &made);
            assert_int_equal(code, way == FETCH_AT_ONCE ? ERR_OUT_OF_MEMORY : ERR_OK);
            if (way != FETCH_AT_ONCE) {
                assert_int_equal(evaluate(&f, "a*1", NULL, &after), ERR_OK);
                if (fetches)
                    end(way == FETCH_LATER ? ERR_OUT_OF_MEMORY : ERR_OK);
                end(way == FETCH_LATER && fetches ? ERR_OK : ERR_OUT_OF_MEMORY);
                end(ERR_OK);
                front.hold = false;
                bool well = way == WORK_LATER && !work[i].into; /* the work is no business of a's */
                assert_int_equal(read_all(&f, after, got), well ? ERR_OK : ERR_OUT_OF_MEMORY);
                array_unref(after);
            } else {
                assert_int_equal(array_version(f.a), version);
            }
            assert_int_equal(array_in_host_memory(f.a), way != WORK_LATER || !fetches);
            holds_ramp(&f, f.a, 0);
            array_unref(made);
            reclaim(&f);
            int64_t host = array_in_host_memory(f.a) ? NBYTES : 0;
            assert_int_equal(engine_bytes_in_use(f.g), 2 * NBYTES - host);
            assert_int_equal(engine_host_bytes(f.g), host);
            assert_int_equal(account_used(f.account), 2 * NBYTES);
        }
    close_fixture(&f);
}

/* In place, behind other work that brings it back: nobody's failure is another's. */
static void a_write_behind_a_fetch(void **state)
{
    (void)state;
    for (int fails = 0; fails < 4; fails++) {
        struct fixture f;
        struct array *sum = NULL;
        open_fixture(&f);
        assert_int_equal(move(&f, f.a, true), ERR_OK);
        hold();
        assert_int_equal(evaluate(&f, "a + b", NULL, &sum), ERR_OK);
        assert_int_equal(evaluate(&f, "a*0 + 5", f.a, NULL), ERR_OK);
        for (int k = 1; k <= 3; k++) /* the fetch, the sum, the write */
            end(k == fails ? ERR_OUT_OF_MEMORY : ERR_OK);
        front.hold = false;
        if (fails == 1 || fails == 3)
            holds_ramp(&f, f.a, 0);
        else
            holds(&f, f.a, 5);
        array_unref(sum);
        close_fixture(&f);
    }
}

/* --- making room --- */

static enum err_code make_room(struct engine *g, struct eviction v)
{
    _Atomic int done = WAITING;
    v.done = told;
    v.user = (void *)&done;
    engine_evict(g, &v);
    for (int i = 0; i < 10000 && atomic_load(&done) == WAITING; i++)
        usleep(100);
    assert_int_not_equal(atomic_load(&done), WAITING);
    return (enum err_code)atomic_load(&done);
}

static enum err_code evict(struct engine *g, int64_t bytes, uint64_t until)
{
    return make_room(g, (struct eviction){.bytes = bytes, .again = true, .until = until});
}

static void the_oldest_go_first(void **state)
{
    (void)state;
    enum { MANY = 6 };
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct engine *g;
    struct engine_stream *s;
    struct account *account = account_new(0);
    struct array *a[MANY], *copy = NULL, *blank;
    const int64_t n = 100000;
    config.backend = "cpu";
    assert_int_equal(engine_open(&config, &g, NULL), ERR_OK);
    assert_int_equal(engine_stream_new(g, 0, &s, NULL), ERR_OK);
    assert_int_equal(engine_empty(s, account, DT_F64, 1, &n, &blank, NULL), ERR_OK);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(engine_zeros(s, account, DT_F64, 1, &n, &a[i], NULL), ERR_OK);
    assert_int_equal(engine_copy(s, account, a[0], &copy, NULL), ERR_OK);
    while (engine_jobs_in_flight(g))
        usleep(100);
    uint64_t now = engine_clock(g);
    struct eviction stay = {.bytes = 1, .stay = true, .until = now};
    assert_int_equal(make_room(g, stay), ERR_OUT_OF_MEMORY);
    atomic_fetch_add(&g->jobs, 1);
    assert_int_equal(make_room(g, stay), ERR_OVERLOADED);
    atomic_fetch_sub(&g->jobs, 1);
    assert_int_equal(engine_host_bytes(g), 0);
    /* by order of use: 1 2 3 4 5 0 copy */
    assert_int_equal(evict(g, 1, now), ERR_OK);
    assert_int_equal(evict(g, 2 * 8 * n, now), ERR_OK);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(array_in_host_memory(a[i]), i >= 1 && i <= 3);
    /* what is being read stays, and what was used since */
    struct download *d;
    assert_int_equal(download_new(s, a[4], NULL, NULL, &d, NULL), ERR_OK);
    now = engine_clock(g);
    buffer_touch(a[0]->buffer);
    assert_int_equal(evict(g, 100 * 8 * n, now), ERR_OK);
    assert_true(array_in_host_memory(a[5]) && array_in_host_memory(copy));
    assert_false(array_in_host_memory(a[4]) || array_in_host_memory(a[0]));
    assert_int_equal(evict(g, 1, now), ERR_OVERLOADED);
    download_free(d);
    assert_int_equal(evict(g, 100 * 8 * n, engine_clock(g)), ERR_OK);
    /* what nobody has written yet has nothing to move, and waits for its work */
    assert_false(array_in_host_memory(blank));
    assert_int_equal(engine_bytes_in_use(g), 8 * n);
    assert_int_equal(engine_host_bytes(g), 7 * 8 * n);
    assert_int_equal(evict(g, 1, engine_clock(g)), ERR_OVERLOADED);
    array_unref(blank);
    assert_int_equal(evict(g, 1, engine_clock(g)), ERR_OUT_OF_MEMORY);
    for (int i = 0; i < MANY; i++)
        array_unref(a[i]);
    array_unref(copy);
    engine_stream_unref(s);
    assert_int_equal(account_used(account), 0);
    account_unref(account);
    assert_true(engine_close(g));
}

/* --- all at once --- */

#define THREADS 4
#define ROUNDS  300
#define LARGE   20000

static struct {
    struct engine *g;
    struct account *account;
    struct array *a[3]; /* each all of one value, whoever looks */
    _Atomic int wrong;
} many;

static enum err_code resolve_many(void *user, const char *name, struct binding *ret, struct err *e)
{
    (void)user, (void)e;
    struct array *a = many.a[name[1] - '0'];
    *ret = (struct binding){BINDING_ARRAY, .array = a, .dtype = a->dtype, .view = a->view};
    return ERR_OK;
}

static void look(struct engine_stream *s, struct array *a)
{
    static _Thread_local double got[LARGE];
    struct download *d;
    if (download_new(s, a, NULL, NULL, &d, NULL) != ERR_OK) {
        atomic_fetch_add(&many.wrong, 1);
        return;
    }
    for (int64_t at = 0; at < (int64_t)sizeof got;) {
        int64_t n = download_pull(d, at, (char *)got + at, sizeof got - (size_t)at);
        if (n < 0) {
            atomic_fetch_add(&many.wrong, 1);
            break;
        }
        at += n;
    }
    download_free(d);
    for (int i = 1; i < LARGE; i++)
        if (got[i] != got[0]) {
            atomic_fetch_add(&many.wrong, 1);
            break;
        }
}

static void compute(struct engine_stream *s, const char *text, struct array *out)
{
    struct arena *arena = arena_new(0);
    struct expr x;
    uint32_t source;
    struct array *made = NULL;
    expr_init(&x, arena, 1000, 400);
    struct check_env env = {.resolve = resolve_many, .max_inputs = 64};
    struct eval_request req = {.expr = &x, .env = &env, .dtype = -1, .out = out};
    if (expr_add_source(&x, "/expr", &source, NULL) != ERR_OK ||
        infix_parse(&x, source, text, strlen(text), &x.root, NULL) != ERR_OK ||
        engine_evaluate(s, many.account, &req, &made, NULL, NULL, NULL, NULL) != ERR_OK)
        atomic_fetch_add(&many.wrong, 1);
    array_unref(made);
    arena_free(arena);
}

static void *one_of_many(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    struct engine_stream *s;
    if (engine_stream_new(many.g, 0, &s, NULL) != ERR_OK)
        return arg;
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic int done = WAITING;
        struct array *a = many.a[rand_r(&seed) % 3];
        switch (rand_r(&seed) % 6) {
        case 0:
        case 1:
            if (engine_move(s, a, seed & 1, told, &done, NULL) != ERR_OK)
                atomic_fetch_add(&many.wrong, 1);
            else
                while (atomic_load(&done) == WAITING)
                    sched_yield();
            break;
        case 2:
            (void)evict(many.g, 8 * LARGE, engine_clock(many.g));
            break;
        case 3:
            compute(s, "a0 + a1", many.a[2]);
            break;
        case 4:
            compute(s, "a0*0 + a2", many.a[1]);
            break;
        default:
            look(s, a);
        }
    }
    engine_stream_unref(s);
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    const int64_t n = LARGE;
    pthread_t t[THREADS];
    config.backend = "cpu";
    config.device.threads = 2;
    config.device.inline_elements = 100;
    many.account = account_new(0);
    assert_int_equal(engine_open(&config, &many.g, NULL), ERR_OK);
    struct engine_stream *s;
    assert_int_equal(engine_stream_new(many.g, 0, &s, NULL), ERR_OK);
    for (int i = 0; i < 3; i++) {
        struct scalar v = {.dtype = DT_F64, .v.f64 = i + 1};
        assert_int_equal(engine_full(s, many.account, v, 1, &n, &many.a[i], NULL), ERR_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, one_of_many, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&many.wrong), 0);
    for (int i = 0; i < 3; i++) {
        look(s, many.a[i]);
        array_unref(many.a[i]);
    }
    engine_stream_unref(s);
    assert_true(engine_close(many.g));
    assert_int_equal(account_used(many.account), 0);
    account_unref(many.account);
    assert_int_equal(atomic_load(&many.wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_and_books),
        cmocka_unit_test(in_the_order_of_the_stream),
        cmocka_unit_test(a_move_that_fails_leaves_it),
        cmocka_unit_test(work_that_fails_leaves_it),
        cmocka_unit_test(a_write_behind_a_fetch),
        cmocka_unit_test(the_oldest_go_first),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
