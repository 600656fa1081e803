/* compute/memory/gather, on both backends (the GPU's on the fake driver): arrays come and go at
 * random close to the device's limit, and what is asked for is refused only where there is no room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/unit/chunk_front.h"

#define LIMIT (INT64_C(32) << 20)
#define MOST  4000

static void open_small(struct fixture *f, int which)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.device.memory_limit = LIMIT;
    open_with(f, which, &config);
}

struct reply {
    _Atomic bool is_there;
    enum err_code code;
};

static void answered(void *user, enum err_code result, double device_ms)
{
    struct reply *a = user;
    (void)device_ms;
    a->code = result;
    atomic_store(&a->is_there, true);
}

/* Tries again until nothing can be moved, as requests do (memory_retry.h). */
static enum err_code put_retrying(struct fixture *f, struct engine_stream *s, const float *values,
                                  int64_t n, struct array **ret)
{
    enum err_code code = put_array(s, f->account, values, 1, &n, ret);
    int fruitless = 0;
    for (int tries = 0; code == ERR_OUT_OF_MEMORY && tries < 100 && fruitless < 25; tries++) {
        struct reply a = {.code = ERR_OK};
        struct eviction v = {.bytes = n * 4,
                             .stay = true,
                             .again = tries > 0,
                             .until = UINT64_MAX,
                             .done = answered,
                             .user = &a};
        int waits = 0;
        engine_evict(f->g, &v);
        while (!atomic_load(&a.is_there))
            pause_a_little(&waits);
        if (a.code == ERR_OUT_OF_MEMORY)
            tries = 98; /* once more */
        fruitless += a.code != ERR_OK;
        code = put_array(s, f->account, values, 1, &n, ret);
    }
    return code;
}

struct dice {
    uint32_t seed;
};

static uint32_t roll(struct dice *d, uint32_t below)
{
    d->seed = d->seed * 1664525u + 1013904223u;
    return (d->seed >> 8) % below;
}

/* Floats: 1 KiB to 1 MiB, each power of two as often as any other. */
static int64_t some_size(struct dice *d)
{
    const uint32_t least = 256u << roll(d, 10);
    return (int64_t)(least + roll(d, least));
}

struct held {
    struct array *a;
    int64_t n;
    uint32_t from; /* its contents: the ramp from there on */
};

struct world {
    struct fixture f;
    struct held all[MOST];
    int n;
    int64_t bytes;
    struct dice dice;
};

static void check_and_drop(struct world *w, int which)
{
    struct held *h = &w->all[which];
    assert_int_equal(get_array(w->f.s, h->a, got), ERR_OK);
    assert_memory_equal(got, ramp + h->from, (size_t)h->n * 4);
    array_unref(h->a);
    w->bytes -= h->n * 4;
    *h = w->all[--w->n];
}

/* False: there was no room. */
static bool add(struct world *w, int64_t n)
{
    struct held h = {.n = n, .from = roll(&w->dice, 1000)};
    enum err_code code = put_retrying(&w->f, w->f.s, ramp + h.from, n, &h.a);
    if (code != ERR_OK) {
        assert_int_equal(code, ERR_OUT_OF_MEMORY);
        return false;
    }
    assert_true(w->n < MOST);
    w->all[w->n++] = h;
    w->bytes += n * 4;
    return true;
}

static void is_refused_only_where_it_is_full(void **state)
{
    (void)state;
    static struct world w;
    for (uint32_t seed = 0; seed < 6; seed++) {
        w = (struct world){.dice = {.seed = seed}};
        open_small(&w.f, seed & 1 ? CUDA : CPU);
        int refused = 0;
        for (int round = 0; round < 8; round++) {
            const int64_t down_to = LIMIT / 16 * (1 + roll(&w.dice, 10));
            for (int64_t n = some_size(&w.dice);; n = some_size(&w.dice)) {
                if (add(&w, n))
                    continue;
                refused++;
                if ((w.bytes + n * 4) * 10 < LIMIT * 8)
                    fail_msg("%lld bytes are refused while %lld are in use", (long long)n * 4,
                             (long long)w.bytes);
                break;
            }
            while (w.bytes > down_to)
                check_and_drop(&w, (int)roll(&w.dice, (uint32_t)w.n));
        }
        assert_int_equal(refused, 8);
        while (w.n)
            check_and_drop(&w, 0);
        close_fixture(&w.f);
    }
}

/* Large memory, too, and work's own, which lies in no chunk. */
static void chunks_are_given_back(void **state)
{
    (void)state;
    static struct world w;
    for (int which = CPU; which <= CUDA; which++) {
        struct chunk_figures before, after;
        w = (struct world){.dice = {.seed = 1}};
        open_small(&w.f, which);
        while (add(&w, OWN / 16)) /* four to a chunk */
            ;
        for (int i = w.n - 1; i >= 0; i--)
            if (i % 4)
                check_and_drop(&w, i);
        settle(&w.f);
        chunk_figures(w.f.g, &before);
        assert_true(before.bytes > LIMIT / 4 * 3);
        assert_true(add(&w, LARGE - 1000));
        assert_true(add(&w, LARGE - 1000));
        assert_true(add(&w, 2));
        settle(&w.f);
        chunk_figures(w.f.g, &after);
        assert_true(after.chunks < before.chunks);
        while (w.n) {
            if (storage_of(w.all[0].a)->chunk) /* near the limit a GPU's may have none */
                assert_true(storage_of(w.all[0].a)->cell);
            check_and_drop(&w, 0);
        }
        close_fixture(&w.f);
    }
}

/* What is in use stays, and so does its chunk; it is not tried again and again. */
static void what_is_in_use_stays(void **state)
{
    (void)state;
    static struct world w;
    w = (struct world){.dice = {.seed = 1}};
    open_small(&w.f, CPU);
    while (add(&w, OWN / 16))
        ;
    for (int i = w.n - 1; i >= 0; i--)
        if (i % 4)
            check_and_drop(&w, i);
    struct storage *used[MOST];
    const int n = w.n;
    pthread_mutex_lock(&w.f.g->lock);
    for (int i = 0; i < n; i++)
        used[i] = storage_ref(buffer_storage(w.all[i].a->buffer));
    pthread_mutex_unlock(&w.f.g->lock);
    assert_false(add(&w, LARGE - 1000));
    for (int i = 0; i < n; i++) {
        assert_ptr_equal(storage_of(w.all[i].a), used[i]);
        storage_unref(used[i]);
    }
    assert_true(add(&w, LARGE - 1000));
    while (w.n)
        check_and_drop(&w, 0);
    close_fixture(&w.f);
}

/* --- many threads --- */

struct member {
    struct fixture *f;
    struct engine_stream *s;
    struct dice dice;
    pthread_t thread;
    int made, refused;
};

static void *member_run(void *user)
{
    struct member *m = user;
    static _Thread_local float own[OWN / 4];
    struct held all[64] = {{NULL}};
    for (int i = 0; i < 400; i++) {
        struct held *h = &all[roll(&m->dice, 64)];
        if (h->a) {
            if (get_array(m->s, h->a, own) != ERR_OK ||
                memcmp(own, ramp + h->from, (size_t)h->n * 4) != 0)
                abort();
            array_unref(h->a);
            h->a = NULL;
        } else {
            h->n = some_size(&m->dice);
            h->from = roll(&m->dice, 1000);
            enum err_code code = put_retrying(m->f, m->s, ramp + h->from, h->n, &h->a);
            m->made += code == ERR_OK;
            m->refused += code == ERR_OUT_OF_MEMORY;
        }
    }
    for (int i = 0; i < 64; i++)
        array_unref(all[i].a);
    return NULL;
}

static void a_crowd(void **state)
{
    (void)state;
    for (int which = CPU; which <= CUDA; which++) {
        struct fixture f;
        struct member all[4];
        open_small(&f, which);
        for (unsigned i = 0; i < 4; i++) {
            all[i] = (struct member){.f = &f, .dice = {.seed = i}};
            assert_int_equal(engine_stream_new(f.g, 0, &all[i].s, NULL), ERR_OK);
            assert_int_equal(pthread_create(&all[i].thread, NULL, member_run, &all[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(all[i].thread, NULL);
            assert_true(all[i].made > 50);
            engine_stream_unref(all[i].s);
        }
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_refused_only_where_it_is_full),
        cmocka_unit_test(chunks_are_given_back),
        cmocka_unit_test(what_is_in_use_stays),
        cmocka_unit_test(a_crowd),
    };
    for (size_t i = 0; i < sizeof ramp / sizeof *ramp; i++)
        ramp[i] = (float)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
