/* compute/engine, memory, evaluate, create, transfer on the CPU backend: reference counts,
 * accounts, order between streams, snapshots, creators, and survival of every allocation failure.
 * What expressions compute is tested by tests/backend. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "compute/engine/engine.h"
#include "compute/memory/memory_int.h"

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
};

static void open_fixture(struct fixture *f, int64_t inline_elements)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    config.backend = "cpu";
    config.device.threads = 2;
    config.device.inline_elements = inline_elements;
    struct err e = ERR_INIT;
    assert_int_equal(engine_open(&config, &f->g, &e), ERR_OK);
    assert_int_equal(engine_stream_new(f->g, 0, &f->s, &e), ERR_OK);
    f->account = account_new(0);
    assert_non_null(f->account);
}

static void close_fixture(struct fixture *f)
{
    while (engine_jobs_in_flight(f->g)) /* done() is told before a job is counted out */
        ;
    assert_int_equal(engine_bytes_in_use(f->g), 0);
    engine_stream_unref(f->s);
    account_unref(f->account);
    engine_close(f->g);
}

static void read_all(struct fixture *f, struct array *a, void *to)
{
    struct download *d = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(download_new(f->s, a, NULL, NULL, &d, &e), ERR_OK);
    for (int64_t n = array_nbytes(a), at = 0, got; at < n; at += got) {
        got = download_pull(d, at, (char *)to + at, (size_t)(n - at));
        assert_true(got >= 0);
    }
    download_free(d);
}

static struct array *ramp(struct fixture *f, int64_t n)
{
    struct literal zero = {.kind = LIT_INT}, one = {.kind = LIT_INT, .i = 1};
    struct literal stop = {.kind = LIT_INT, .i = n};
    struct array *a = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(engine_arange(f->s, f->account, DT_F64, &zero, &stop, &one, &a, &e), ERR_OK);
    return a;
}

static void a_view_keeps_the_memory(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    struct array *a = ramp(&f, 1000);
    struct index_spec ix = {.n = 1,
                            .items = {{.kind = INDEX_SLICE, .has_start = true, .start = 990}}};
    struct view v;
    assert_int_equal(view_index(&a->view, &ix, &v, NULL), ERR_OK);
    struct array *view = array_view(a, DT_F64, &v);
    double got[10];
    read_all(&f, view, got); /* everything has run */
    while (engine_jobs_in_flight(f.g))
        ;
    assert_int_equal(array_buffer_refs(a), 2);
    array_unref(a);
    assert_int_equal(engine_bytes_in_use(f.g), 8000);
    assert_int_equal(account_used(f.account), 8000);
    read_all(&f, view, got);
    assert_true(got[9] == 999);
    array_unref(view);
    assert_int_equal(engine_bytes_in_use(f.g), 0);
    close_fixture(&f);
}

static void an_account_limits_and_gives_back(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    struct account *small = account_new(1000);
    struct array *a = NULL, *b = NULL;
    struct err e = ERR_INIT;
    int64_t n = 100;
    assert_int_equal(engine_zeros(f.s, small, DT_F64, 1, &n, &a, &e), ERR_OK);
    assert_int_equal(engine_zeros(f.s, small, DT_F64, 1, &n, &b, &e), ERR_QUOTA);
    assert_int_equal(account_used(small), 800);
    n = INT64_MAX / 8;
    assert_int_equal(engine_zeros(f.s, small, DT_F64, 1, &n, &b, &e), ERR_QUOTA);
    array_unref(a);
    assert_int_equal(account_used(small), 0);
    account_unref(small);
    close_fixture(&f);
}

static void a_download_is_a_snapshot(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    struct array *a = ramp(&f, 100000);
    struct download *d = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(download_new(f.s, a, NULL, NULL, &d, &e), ERR_OK);
    uint64_t version = array_version(a);
    assert_int_equal(download_version(d), version);
    /* a region, then the whole, written while the download is open */
    struct upload *u = NULL;
    double minus = -1;
    struct view first = a->view;
    first.shape[0] = 1;
    assert_int_equal(upload_new(f.s, f.account, 8, NULL, NULL, &u, &e), ERR_OK);
    upload_push(u, &minus, 8);
    assert_int_equal(upload_finish_into(u, a, &first, false, NULL, NULL, &e), ERR_OK);
    assert_true(array_version(a) != version);
    double now[2], then = 5;
    struct view two = a->view;
    two.shape[0] = 2;
    struct array *head = array_view(a, DT_F64, &two);
    read_all(&f, head, now);
    assert_true(now[0] == -1 && now[1] == 1);
    while (download_pull(d, 0, &then, 8) == 0)
        ;
    assert_true(then == 0);
    assert_int_equal(download_pull(d, 8 * 99999, &then, 8), 8);
    assert_true(then == 99999);
    download_free(d);
    array_unref(head);
    array_unref(a);
    close_fixture(&f);
}

static void downloads_start_anywhere(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1 << 16);
    struct array *a = ramp(&f, 64 * 70);
    struct view v = {.rank = 2, .shape = {60, 64}, .strides = {64, 1}, .offset = 64};
    struct array *rows = array_view(a, DT_F64, &v);
    double want[60 * 64];
    for (int i = 0; i < 60 * 64; i++)
        want[i] = 64 + i;
    struct download *d = NULL;
    assert_int_equal(download_new(f.s, rows, NULL, NULL, &d, NULL), ERR_OK);
    for (int64_t at = 0; at < (int64_t)sizeof want; at += 1237) {
        char piece[777];
        int64_t n = download_pull(d, at, piece, sizeof piece);
        assert_true(n > 0 && n <= 777);
        assert_memory_equal(piece, (char *)want + at, n);
    }
    download_free(d);
    array_unref(rows);
    array_unref(a);
    close_fixture(&f);
}

static void fortran_order_is_turned(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    int32_t staged[6] = {0, 1, 2, 3, 4, 5}, got[6];
    static const int32_t want[6] = {0, 2, 4, 1, 3, 5};
    int64_t shape[2] = {2, 3};
    struct upload *u = NULL;
    struct array *a = NULL;
    assert_int_equal(upload_new(f.s, f.account, 24, NULL, NULL, &u, NULL), ERR_OK);
    upload_push(u, staged, 24);
    assert_int_equal(upload_finish_new(u, DT_I32, 2, shape, true, &a, NULL), ERR_OK);
    assert_true(view_is_contiguous(&a->view));
    read_all(&f, a, got);
    assert_memory_equal(got, want, sizeof want);
    array_unref(a);
    close_fixture(&f);
}

static void swap_moves_views_along(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    struct array *a = ramp(&f, 10), *b = NULL, *c = ramp(&f, 11);
    struct scalar seven = {.dtype = DT_F64, .v.f64 = 7};
    int64_t ten = 10;
    struct err e = ERR_INIT;
    assert_int_equal(engine_full(f.s, f.account, seven, 1, &ten, &b, &e), ERR_OK);
    struct view last = a->view;
    last.shape[0] = 1;
    last.offset = 9;
    struct array *view = array_view(a, DT_F64, &last);
    assert_int_equal(engine_swap(f.s, a, b, &e), ERR_OK);
    assert_int_equal(engine_swap(f.s, a, c, &e), ERR_CONFLICT);
    double got[10];
    read_all(&f, view, got);
    assert_true(got[0] == 7);
    read_all(&f, b, got);
    assert_true(got[9] == 9);
    array_unref(view);
    array_unref(a);
    array_unref(b);
    array_unref(c);
    close_fixture(&f);
}

static void creators_agree_with_numpy(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    struct err e = ERR_INIT;
    struct array *a = NULL;
    struct literal l0 = {.kind = LIT_INT, .i = 10}, l1 = {.kind = LIT_INT, .i = -5},
                   l2 = {.kind = LIT_INT, .i = -3};
    assert_int_equal(engine_arange(f.s, f.account, DT_I16, &l0, &l1, &l2, &a, &e), ERR_OK);
    static const int16_t down[5] = {10, 7, 4, 1, -2};
    int16_t got16[5];
    assert_int_equal(a->view.shape[0], 5);
    read_all(&f, a, got16);
    assert_memory_equal(got16, down, sizeof down);
    array_unref(a);

    struct literal big = {.kind = LIT_INT, .i = ((__int128)1 << 64) - 3},
                   top = {.kind = LIT_INT, .i = ((__int128)1 << 64) - 1},
                   one = {.kind = LIT_INT, .i = 1}, zero = {.kind = LIT_INT};
    assert_int_equal(engine_arange(f.s, f.account, DT_U64, &big, &top, &one, &a, &e), ERR_OK);
    uint64_t got64[2];
    assert_int_equal(a->view.shape[0], 2);
    read_all(&f, a, got64);
    assert_true(got64[0] == UINT64_MAX - 2 && got64[1] == UINT64_MAX - 1);
    array_unref(a);
    assert_int_equal(engine_arange(f.s, f.account, DT_U8, &zero, &big, &one, &a, &e),
                     ERR_BAD_SHAPE);
    assert_int_equal(engine_arange(f.s, f.account, DT_U8, &zero, &l0, &zero, &a, &e),
                     ERR_BAD_FIELD);
    struct literal many = {.kind = LIT_INT, .i = 300};
    assert_int_equal(engine_arange(f.s, f.account, DT_U8, &zero, &many, &one, &a, &e),
                     ERR_LITERAL_RANGE);

    struct literal half = {.kind = LIT_FLOAT, .re = 0.5};
    assert_int_equal(engine_linspace(f.s, f.account, DT_F64, &zero, &half, 6, true, &a, &e),
                     ERR_OK);
    double got[6];
    read_all(&f, a, got);
    assert_true(got[0] == 0 && got[5] == 0.5 && fabs(got[1] - 0.1) < 1e-15);
    array_unref(a);
    for (int n = 0; n < 2; n++) { /* none, and one */
        assert_int_equal(engine_linspace(f.s, f.account, DT_F64, &half, &l0, n, true, &a, &e),
                         ERR_OK);
        got[0] = 0.5;
        read_all(&f, a, got);
        assert_true(got[0] == 0.5);
        array_unref(a);
    }

    assert_int_equal(engine_eye(f.s, f.account, DT_I16, 2, 3, 1, &a, &e), ERR_OK);
    static const int16_t eye[6] = {0, 1, 0, 0, 0, 1};
    int16_t got_eye[6];
    read_all(&f, a, got_eye);
    assert_memory_equal(got_eye, eye, sizeof eye);
    array_unref(a);

    struct random_spec dice = {.dist = RANDOM_INTEGERS,
                               .seed = 42,
                               .has_low = true,
                               .has_high = true,
                               .low = one,
                               .high = {.kind = LIT_INT, .i = 7}};
    int64_t shape[2] = {50, 20};
    int8_t thrown[1000];
    int seen[8] = {0};
    assert_int_equal(engine_random(f.s, f.account, DT_I8, 2, shape, &dice, &a, &e), ERR_OK);
    read_all(&f, a, thrown);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(thrown[i], 1, 6);
        seen[(int)thrown[i]]++;
    }
    for (int i = 1; i <= 6; i++)
        assert_in_range(seen[i], 100, 240);
    array_unref(a);
    dice.high.i = 300;
    assert_int_equal(engine_random(f.s, f.account, DT_I8, 2, shape, &dice, &a, &e),
                     ERR_LITERAL_RANGE);
    close_fixture(&f);
}

static void told(void *user, enum err_code result, double ms)
{
    (void)ms;
    assert_int_equal(result, ERR_OK);
    atomic_fetch_add((_Atomic int *)user, 1);
}

static void streams_wait_for_each_other_where_they_share(void **state)
{
    (void)state;
    for (int64_t inline_elements = 0; inline_elements <= 1 << 16; inline_elements += 1 << 16) {
        struct fixture f;
        open_fixture(&f, inline_elements);
        struct engine_stream *other = NULL;
        assert_int_equal(engine_stream_new(f.g, 0, &other, NULL), ERR_OK);
        struct array *a = ramp(&f, 400000);
        struct array *copy = NULL;
        struct err e = ERR_INIT;
        _Atomic int done = 0;
        for (int i = 0; i < 20; i++) { /* each copy on the other stream than the last */
            struct array *next = NULL;
            assert_int_equal(
                engine_copy(i % 2 ? f.s : other, f.account, copy ? copy : a, &next, &e), ERR_OK);
            array_unref(copy);
            copy = next;
        }
        engine_sync(f.s, told, &done);
        engine_sync(other, told, &done);
        while (atomic_load(&done) < 2)
            ;
        double *got = malloc(400000 * 8);
        read_all(&f, copy, got);
        for (int i = 0; i < 400000; i += 999)
            assert_true(got[i] == i);
        free(got);
        array_unref(copy);
        array_unref(a);
        engine_stream_unref(other);
        close_fixture(&f);
    }
}

/* Threads that ask one engine for work on shared arrays, each with a stream of its own. */
static void *worker(void *p)
{
    struct fixture f = *(struct fixture *)p;
    assert_int_equal(engine_stream_new(f.g, 0, &f.s, NULL), ERR_OK);
    struct array *shared = ((struct array **)p)[sizeof(struct fixture) / sizeof(void *)];
    for (int i = 0; i < 200; i++) {
        struct array *mine = NULL;
        struct upload *u = NULL;
        double x[64], got[64];
        for (int k = 0; k < 64; k++)
            x[k] = i;
        if (upload_new(f.s, f.account, sizeof x, NULL, NULL, &u, NULL) != ERR_OK)
            return NULL;
        upload_push(u, x, sizeof x);
        if (upload_finish_into(u, shared, &shared->view, false, NULL, NULL, NULL) != ERR_OK ||
            engine_copy(f.s, f.account, shared, &mine, NULL) != ERR_OK)
            return NULL;
        read_all(&f, mine, got);
        array_unref(mine);
        for (int k = 1; k < 64; k++) /* somebody's write, but a whole one */
            if (got[k] != got[0])
                return NULL;
    }
    engine_stream_unref(f.s);
    return p;
}

static void threads_share_an_engine(void **state)
{
    (void)state;
    struct {
        struct fixture f;
        struct array *shared;
    } w;
    open_fixture(&w.f, 1 << 10);
    int64_t n = 64;
    assert_int_equal(engine_zeros(w.f.s, w.f.account, DT_F64, 1, &n, &w.shared, NULL), ERR_OK);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, worker, &w), 0);
    for (int i = 0; i < 4; i++) {
        void *ok = NULL;
        pthread_join(t[i], &ok);
        assert_non_null(ok);
    }
    array_unref(w.shared);
    close_fixture(&w.f);
}

/* One of everything; false when something was refused for want of memory. */
static bool everything(struct fixture *f)
{
    struct array *a = NULL, *b = NULL, *c = NULL;
    struct upload *u = NULL;
    struct download *d = NULL;
    struct err e = ERR_INIT;
    int64_t shape[2] = {4, 5};
    struct random_spec spec = {.dist = RANDOM_UNIFORM, .seed = 1};
    static const double x[20];
    enum err_code code = engine_random(f->s, f->account, DT_F32, 2, shape, &spec, &a, &e);
    struct view t = {.rank = 2, .shape = {5, 4}, .strides = {1, 5}};
    struct array *turned = code == ERR_OK ? array_view(a, DT_F32, &t) : NULL;
    if (code == ERR_OK && !turned)
        code = ERR_OUT_OF_MEMORY;
    if (code == ERR_OK)
        code = engine_copy(f->s, f->account, turned, &b, &e);
    if (code == ERR_OK)
        code = engine_zeros(f->s, f->account, DT_F64, 2, shape, &c, &e);
    if (code == ERR_OK)
        code = upload_new(f->s, f->account, sizeof x, NULL, NULL, &u, &e);
    if (code == ERR_OK) {
        upload_push(u, x, sizeof x);
        code = upload_finish_into(u, c, &c->view, true, NULL, NULL, &e);
    }
    if (code == ERR_OK)
        code = download_new(f->s, turned, NULL, NULL, &d, &e);
    download_free(d);
    array_unref(a);
    array_unref(b);
    array_unref(c);
    array_unref(turned);
    if (code != ERR_OK)
        assert_int_equal(code, ERR_OUT_OF_MEMORY);
    return code == ERR_OK;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1 << 16); /* inline: done when the call returns */
    assert_true(everything(&f));
    int64_t live = mem_live();
    for (int n = 1;; n++) {
        mem_fail_after(n, false);
        bool ok = everything(&f);
        bool refused = mem_failed() > 0;
        mem_fail_after(0, false);
        assert_int_equal(engine_bytes_in_use(f.g), 0);
        assert_int_equal(account_used(f.account), 0);
        assert_int_equal(engine_jobs_in_flight(f.g), 0);
        if (!refused) {
            assert_true(ok);
            assert_true(n > 20);
            break;
        }
    }
    assert_in_range(mem_live(), live - 8, live + 8); /* caches may have moved a little */
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_keeps_the_memory),
        cmocka_unit_test(an_account_limits_and_gives_back),
        cmocka_unit_test(a_download_is_a_snapshot),
        cmocka_unit_test(downloads_start_anywhere),
        cmocka_unit_test(fortran_order_is_turned),
        cmocka_unit_test(swap_moves_views_along),
        cmocka_unit_test(creators_agree_with_numpy),
        cmocka_unit_test(streams_wait_for_each_other_where_they_share),
        cmocka_unit_test(threads_share_an_engine),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
