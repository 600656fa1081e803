/* compute/memory/adopt on both backends (the GPU's on the fake driver): what a second engine finds
 * of the arrays of a first one that is left as if it had died, and what it does not believe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compute/engine/engine.h"
#include "compute/memory/cells.h"
#include "compute/memory/chunk.h"
#include "compute/memory/export.h"
#include "compute/memory/memory_int.h"
#include "compute/memory/reclaim.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"
#include "tests/unit/side.h"

#define OWN   (INT64_C(2) << 20)
#define LARGE (OWN / 4 * 2 - 7)

static struct side first, second;
static float ramp[LARGE], got[LARGE];

static void idle(struct side *x)
{
    int tries = 0;
    while (engine_jobs_in_flight(x->g) > 0)
        pause_a_little(&tries);
}

static void close_side(struct side *x)
{
    engine_stream_unref(x->s);
    idle(x);
    reclaim_all(x->g->reclaim);
    assert_int_equal(engine_bytes_in_use(x->g), 0);
    assert_int_equal(account_used(x->account), 0);
    assert_true(engine_close(x->g));
    account_unref(x->account);
    assert_int_equal(x->keeper.n, 0);
    assert_int_equal(x->n, 0);
}

/* The second process; what it adopts is the caller's to say. */
static void die_at_once(const char *backend)
{
    side_copy(&first, &second);
    close(first.cells);
    side_take_over(&second, backend);
}

static void die(const char *backend)
{
    idle(&first);
    die_at_once(backend);
}

static void begin(const char *backend)
{
    memset(&first, 0, sizeof first);
    side_open(&first, backend, -1);
}

static struct array *put(struct side *x, int64_t n)
{
    struct array *a = NULL;
    assert_int_equal(put_array(x->s, x->account, ramp, 1, &n, &a), ERR_OK);
    return a;
}

static struct array *adopt(struct array *was)
{
    struct engine_placed p = *side_find(&first, array_memory_id(was));
    struct array *a = NULL;
    struct err e = ERR_INIT;
    if (engine_adopt(second.g, second.account, &p, &a, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(array_memory_id(a), array_memory_id(was));
    assert_int_equal(array_nbytes(a), array_nbytes(was));
    return a;
}

static void holds(struct side *x, struct array *a, enum err_code code)
{
    memset(got, 0xff, (size_t)array_nbytes(a));
    assert_int_equal(get_array(x->s, a, got), code);
    if (code == ERR_OK)
        assert_memory_equal(got, ramp, (size_t)array_nbytes(a));
}

static struct cell *cell_of(struct side *x, struct array *a)
{
    return cells_at(x->g->cells, a->buffer->storage->cell);
}

static const char *const backends[] = {"cpu", "cuda"};

static void every_array_is_there(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 100, 129, 5000, OWN / 8, OWN / 4, OWN / 4 + 1, LARGE};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < 2; i++) {
        struct array *a[SIZES], *b[SIZES], *more, *spare;
        begin(backends[i]);
        for (int k = 0; k < SIZES; k++)
            a[k] = put(&first, sizes[k]);
        spare = put(&first, 3000); /* nobody asks for it */
        die(backends[i]);
        for (int k = 0; k < SIZES; k++)
            b[k] = adopt(a[k]);
        engine_adopted(second.g, array_memory_id(spare));
        more = put(&second, 100);
        assert_true(array_memory_id(more) > array_memory_id(spare));
        for (int k = 0; k < SIZES; k++) {
            holds(&second, b[k], ERR_OK);
            array_unref(b[k]);
        }
        holds(&second, more, ERR_OK);
        array_unref(more);
        side_gone(&second, array_memory_id(spare));
        close_side(&second);
        for (int k = 0; k < SIZES; k++)
            array_unref(a[k]);
        array_unref(spare);
        close_side(&first);
    }
}

static void what_is_not_believed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct array *a[6], *b[6], *none;
        begin(backends[i]);
        for (int k = 0; k < 6; k++)
            a[k] = put(&first, k == 5 ? LARGE : 100);
        idle(&first);
        atomic_fetch_add(&cell_of(&first, a[0])->writing, 1);
        atomic_store(&cell_of(&first, a[1])->owner, 999);
        atomic_store(&cell_of(&first, a[2])->owner, 999);
        atomic_store(&cell_of(&first, a[2])->coming, array_memory_id(a[2]));
        atomic_fetch_add(&cell_of(&first, a[5])->writing, 1);
        die(backends[i]);
        for (int k = 0; k < 6; k++)
            b[k] = adopt(a[k]);
        const bool lost[] = {true, true, false, false, false, true};
        for (int k = 0; k < 6; k++)
            holds(&second, b[k], lost[k] ? ERR_CONTENTS_LOST : ERR_OK);
        /* twice, where nothing is, and over another */
        struct engine_placed p = *side_find(&first, array_memory_id(a[3]));
        assert_int_equal(engine_adopt(second.g, second.account, &p, &none, NULL), ERR_STATE);
        p.place.offset += 256;
        assert_int_equal(engine_adopt(second.g, second.account, &p, &none, NULL), ERR_STATE);
        p.place.offset = OWN;
        assert_int_equal(engine_adopt(second.g, second.account, &p, &none, NULL), ERR_STATE);
        p.place.chunk = 77;
        assert_int_equal(engine_adopt(second.g, second.account, &p, &none, NULL), ERR_STATE);
        engine_adopted(second.g, 0);
        /* until it is written as a whole */
        assert_true(atomic_load(&cell_of(&second, b[0])->writing) > 0);
        struct upload *u;
        const int64_t n = 400;
        assert_int_equal(upload_new(second.s, second.account, n, NULL, NULL, &u, NULL), ERR_OK);
        push_all(u, ramp, (size_t)n);
        assert_int_equal(upload_finish_into(u, b[0], &b[0]->view, false, NULL, NULL, NULL), ERR_OK);
        holds(&second, b[0], ERR_OK);
        idle(&second);
        assert_int_equal(cell_of(&second, b[0])->writing, 0);
        assert_int_equal(cell_of(&second, b[0])->owner, array_memory_id(b[0]));
        for (int k = 0; k < 6; k++)
            array_unref(b[k]);
        close_side(&second);
        for (int k = 0; k < 6; k++)
            array_unref(a[k]);
        close_side(&first);
    }
}

/* The cells of work that is done say so; while an upload is under way they do not. */
static void cells_follow_the_work(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(backends[i]);
        struct array *a = put(&first, 100), *b = put(&first, 100);
        idle(&first);
        assert_int_equal(cell_of(&first, a)->writing, 0);
        assert_int_equal(cell_of(&first, a)->owner, array_memory_id(a));
        assert_int_equal(engine_swap(first.s, a, b, NULL), ERR_OK);
        assert_int_equal(cell_of(&first, a)->owner, array_memory_id(a));
        assert_int_equal(cell_of(&first, b)->owner, array_memory_id(b));
        assert_int_equal(cell_of(&first, b)->coming, 0);
        struct upload *u;
        assert_int_equal(upload_new(first.s, first.account, 400, NULL, NULL, &u, NULL), ERR_OK);
        uint32_t raised = 0;
        for (uint32_t k = 1; k < 20; k++)
            raised += atomic_load(&cells_at(first.g->cells, k)->writing) > 0;
        assert_int_equal(raised, 1);
        upload_abort(u);
        if (i == 1) {
            struct scalar one = {.dtype = DT_F32, .v.f32 = 1};
            struct array *c;
            fake_cuda_hold(1);
            assert_int_equal(engine_full(first.s, first.account, one, 1, (int64_t[]){9}, &c, NULL),
                             ERR_OK);
            assert_int_equal(cell_of(&first, c)->writing, 1);
            fake_cuda_release();
            idle(&first);
            assert_int_equal(cell_of(&first, c)->writing, 0);
            array_unref(c);
        }
        array_unref(a);
        array_unref(b);
        close(first.cells);
        close_side(&first);
    }
}

static void is_moved(void *user, enum err_code result, double device_ms)
{
    (void)device_ms;
    assert_int_equal(result, ERR_OK);
    atomic_store((_Atomic bool *)user, true);
}

static void move(struct side *x, struct array *a, bool host)
{
    _Atomic bool done = false;
    int tries = 0;
    assert_int_equal(engine_move(x->s, a, host, is_moved, (void *)&done, NULL), ERR_OK);
    while (!atomic_load(&done))
        pause_a_little(&tries);
}

/* In host memory they are there, too. */
static void arrays_in_host_memory(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 5000, LARGE};
    for (int i = 0; i < 2; i++) {
        struct array *a[3], *b[3];
        begin(backends[i]);
        for (int k = 0; k < 3; k++) {
            a[k] = put(&first, sizes[k]);
            idle(&first);
            first.writing = 0;
            move(&first, a[k], true);
            assert_true(first.writing > 0); /* before the copy is made, nothing lies there */
            assert_true(side_find(&first, array_memory_id(a[k]))->place.host);
        }
        die(backends[i]);
        for (int k = 0; k < 3; k++)
            b[k] = adopt(a[k]);
        engine_adopted(second.g, 0);
        assert_int_equal(engine_host_bytes(second.g), 4 * (1 + 5000 + LARGE));
        assert_int_equal(engine_bytes_in_use(second.g), 0);
        for (int k = 0; k < 3; k++) {
            assert_true(array_in_host_memory(b[k]));
            holds(&second, b[k], ERR_OK);
        }
        second.writing = 0;
        move(&second, b[1], false);
        assert_true(second.writing > 0); /* as here: what another array left is not taken for it */
        idle(&second);
        assert_int_equal(cell_of(&second, b[1])->writing, 0);
        assert_false(array_in_host_memory(b[1]) ||
                     side_find(&second, array_memory_id(b[1]))->place.host);
        holds(&second, b[1], ERR_OK);
        for (int k = 0; k < 3; k++) {
            array_unref(a[k]);
            array_unref(b[k]);
        }
        reclaim_all(second.g->reclaim);
        assert_int_equal(engine_host_bytes(second.g), 0);
        close_side(&second);
        close_side(&first);
    }
}

/* The process dies when a move has just been written down, or just been made: the contents are in
 * one of the two places. */
static void the_ends_of_a_move(void **state)
{
    (void)state;
    for (int at_end = 0; at_end < 2; at_end++) {
        begin("cuda");
        struct array *a = put(&first, LARGE), *b;
        idle(&first);
        const uint32_t from = a->buffer->storage->cell;
        if (!at_end)
            first.dies = &second;
        _Atomic bool done = false;
        int tries = 0;
        assert_int_equal(engine_move(first.s, a, true, is_moved, (void *)&done, NULL), ERR_OK);
        while (!atomic_load(&done))
            pause_a_little(&tries);
        if (at_end) { /* its thread has not come further yet */
            atomic_store(&cells_at(first.g->cells, from)->owner, array_memory_id(a));
            side_copy(&first, &second);
            atomic_store(&cells_at(first.g->cells, from)->owner, 0);
        }
        close(first.cells);
        side_take_over(&second, "cuda");
        b = adopt(a);
        engine_adopted(second.g, 0);
        assert_int_equal(array_in_host_memory(b), at_end);
        holds(&second, b, ERR_OK);
        array_unref(b);
        close_side(&second);
        array_unref(a);
        close_side(&first);
    }
}

/* A move that the process did not live to make: the contents are where they were, unless work was
 * to write behind it. */
static void moves_under_way(void **state)
{
    (void)state;
    struct scalar one = {.dtype = DT_F32, .v.f32 = 1};
    const int64_t nine = 9;
    struct array *a[3], *b[3], *before;
    struct upload *u;
    _Atomic bool done[3] = {false};
    begin("cuda");
    for (int k = 0; k < 3; k++)
        a[k] = put(&first, k == 1 ? LARGE : 100);
    idle(&first);
    fake_cuda_hold(1);
    assert_int_equal(engine_full(first.s, first.account, one, 1, &nine, &before, NULL), ERR_OK);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(engine_move(first.s, a[k], true, is_moved, (void *)&done[k], NULL),
                         ERR_OK);
        assert_true(side_find(&first, array_memory_id(a[k]))->was.chunk);
    }
    assert_int_equal(upload_new(first.s, first.account, 36, NULL, NULL, &u, NULL), ERR_OK);
    push_all(u, ramp, 36);
    struct view part = a[2]->view;
    part.shape[0] = nine;
    assert_int_equal(upload_finish_into(u, a[2], &part, false, NULL, NULL, NULL), ERR_OK);
    die_at_once("cuda");
    for (int k = 0; k < 3; k++)
        b[k] = adopt(a[k]);
    engine_adopted(second.g, 0);
    for (int k = 0; k < 3; k++) {
        assert_false(k < 2 && array_in_host_memory(b[k]));
        holds(&second, b[k], k < 2 ? ERR_OK : ERR_CONTENTS_LOST);
        array_unref(b[k]);
    }
    side_gone(&second, array_memory_id(before));
    while (second.n > 0)
        side_gone(&second, second.all[0].buffer); /* what the upload has made */
    close_side(&second);
    fake_cuda_release();
    idle(&first);
    for (int k = 0; k < 3; k++) {
        assert_true(atomic_load(&done[k]));
        array_unref(a[k]);
    }
    array_unref(before);
    close_side(&first);
}

static void is_exported(struct exporting *x)
{
    assert_int_equal(x->code, ERR_OK);
    atomic_store((_Atomic bool *)x->user, true);
}

static void export(struct side *x, struct array *a, bool write, bool sealed, struct exporting *ret)
{
    _Atomic bool done = false;
    int tries = 0;
    *ret = (struct exporting){
        .array = a, .write = write, .sealed = sealed, .done = is_exported, .user = (void *)&done};
    engine_export(x->s, ret);
    while (!atomic_load(&done))
        pause_a_little(&tries);
}

static void end_export(struct exporting *x)
{
    close(x->exported.fd);
    engine_export_end(x->export);
}

static const struct chunk *chunk_of(struct array *a)
{
    return a->buffer->storage->chunk;
}

/* What was exported is nobody else's, in the next process either; what goes on, goes on. */
static void exports_go_on(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct array *a[4], *b[4];
        struct exporting x[3];
        struct export *again = NULL, *none;
        begin(backends[i]);
        for (int k = 0; k < 4; k++)
            a[k] = put(&first, k == 0 ? 100 : LARGE);
        export(&first, a[0], true, false, &x[0]);
        export(&first, a[1], false, false, &x[1]);
        export(&first, a[2], true, false, &x[2]);
        end_export(&x[2]);
        for (int k = 0; k < 3; k++)
            assert_true(side_find(&first, array_memory_id(a[k]))->place.exported);
        assert_false(side_find(&first, array_memory_id(a[2]))->place.outstayed);
        array_let_see_no_more(a[2]);
        assert_true(side_find(&first, array_memory_id(a[2]))->place.outstayed);
        die(backends[i]);
        for (int k = 0; k < 4; k++)
            b[k] = adopt(a[k]);
        engine_adopted(second.g, 0);
        assert_int_equal(engine_export_adopt(b[3], true, &none, NULL), ERR_STATE);
        assert_int_equal(engine_export_adopt(b[0], true, &again, NULL), ERR_OK);
        assert_true(array_is_exported(b[0]) && array_written_outside(b[0]));
        assert_int_equal(engine_move(second.s, b[0], true, is_moved, NULL, NULL), ERR_CONFLICT);
        assert_true(array_outstays_exports(b[2]) && !array_outstays_exports(b[1]));
        engine_export_end(again);
        uint64_t kept = chunk_of(b[3])->number;
        for (int k = 0; k < 4; k++) {
            holds(&second, b[k], ERR_OK);
            array_unref(b[k]);
        }
        idle(&second);
        b[3] = put(&second, LARGE);
        assert_int_equal(chunk_of(b[3])->number, kept);
        b[2] = put(&second, LARGE);
        assert_true(chunk_of(b[2])->number > kept);
        array_unref(b[2]);
        array_unref(b[3]);
        close_side(&second);
        end_export(&x[0]);
        end_export(&x[1]);
        for (int k = 0; k < 4; k++)
            array_unref(a[k]);
        close_side(&first);
    }
}

/* Sealed memory is read where it is; the first write leaves it, but not while it is exported. */
static void sealed_memory(void **state)
{
    (void)state;
    struct array *a[2], *b[2];
    struct exporting x[2];
    struct export *again = NULL, *none;
    struct err e = ERR_INIT;
    begin("cpu");
    for (int k = 0; k < 2; k++) {
        a[k] = put(&first, LARGE);
        export(&first, a[k], false, true, &x[k]);
    }
    die("cpu");
    for (int k = 0; k < 2; k++)
        b[k] = adopt(a[k]);
    engine_adopted(second.g, 0);
    assert_true(chunk_of(b[0])->sealed);
    assert_int_equal(engine_export_adopt(b[1], true, &none, NULL), ERR_STATE);
    assert_int_equal(engine_export_adopt(b[1], false, &again, NULL), ERR_OK);
    holds(&second, b[0], ERR_OK);
    for (int k = 0; k < 2; k++) {
        struct view v, part;
        const int64_t n = LARGE;
        assert_int_equal(view_contiguous(1, &n, 4, &v, &e), ERR_OK);
        struct array *all = array_view(b[k], DT_F32, &v);
        part = v;
        part.shape[0] = 3;
        part.offset = 5;
        struct upload *u;
        static const float sevens[3] = {7, 7, 7};
        assert_int_equal(upload_new(second.s, second.account, sizeof sevens, NULL, NULL, &u, NULL),
                         ERR_OK);
        push_all(u, sevens, sizeof sevens);
        assert_int_equal(upload_finish_into(u, all, &part, false, NULL, NULL, &e),
                         k ? ERR_CONFLICT : ERR_OK);
        array_unref(all);
    }
    assert_false(chunk_of(b[0])->sealed);
    assert_true(chunk_of(b[1])->sealed);
    assert_int_equal(get_array(second.s, b[0], got), ERR_OK);
    memcpy(ramp + 5, (float[]){7, 7, 7}, 12);
    assert_memory_equal(got, ramp, sizeof got);
    for (int k = 5; k < 8; k++)
        ramp[k] = (float)k;
    holds(&second, b[1], ERR_OK);
    holds(&first, a[0], ERR_OK);
    engine_export_end(again);
    for (int k = 0; k < 2; k++) {
        array_unref(b[k]);
        end_export(&x[k]);
        array_unref(a[k]);
    }
    close_side(&second);
    close_side(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_array_is_there),  cmocka_unit_test(what_is_not_believed),
        cmocka_unit_test(cells_follow_the_work), cmocka_unit_test(arrays_in_host_memory),
        cmocka_unit_test(moves_under_way),       cmocka_unit_test(the_ends_of_a_move),
        cmocka_unit_test(exports_go_on),         cmocka_unit_test(sealed_memory),
    };
    for (size_t i = 0; i < sizeof ramp / sizeof *ramp; i++)
        ramp[i] = (float)i;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
