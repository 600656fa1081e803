/* compute/engine where work fails: at once, or after it was taken on. The CPU backend with a front
 * of the test's own: it holds jobs back and says how they end, so that every moment can be looked
 * at. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compute/base/mem.h"
#include "tests/unit/engine_front.h"

/* What others see of fixture.a while a failure is being cleared away. */
static struct {
    struct array *a;
    struct storage *storage;
    uint64_t version;
    int looks;
} seen;

static void look(void)
{
    seen.looks++;
    assert_ptr_equal(seen.a->buffer->storage, seen.storage);
    assert_int_equal(array_version(seen.a), seen.version);
}

static void what_fails_at_once_was_never_there(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    seen.a = f.a;
    seen.storage = f.a->buffer->storage;
    seen.version = array_version(f.a);
    seen.looks = 0;
    front.freed = look;
    /* into new storage, by way of a temporary; a copy on write; directly */
    for (int i = 0; i < 3; i++) {
        struct download *d = i == 1 ? begin_reading(&f, f.a) : NULL;
        const char *text = i == 0 ? "shift(a, [1], 'wrap') - sum(a)" : i == 1 ? "b" : "b + a";
        struct view part = f.a->view;
        part.shape[0] = N - 1;
        struct array *some = array_view(f.a, DT_F64, &part);
        front.at_once = ERR_OUT_OF_MEMORY;
        assert_int_equal(evaluate(&f, i == 1 ? "b[1:]" : text, i == 1 ? some : f.a, NULL),
                         ERR_OUT_OF_MEMORY);
        array_unref(some);
        if (d) {
            double got[N];
            assert_int_equal(finish_reading(d, got), ERR_OK);
        }
        look();
        holds_ramp(&f, f.a, 0);
    }
    assert_true(seen.looks > 4);
    front.freed = NULL;
    close_fixture(&f);
}

static void what_was_half_written_is_told(void **state)
{
    (void)state;
    struct fixture f;
    double got[N];
    open_fixture(&f);
    uint64_t version = array_version(f.a);
    front.at_once = ERR_OUT_OF_MEMORY;
    front.touched = true;
    assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OUT_OF_MEMORY);
    assert_true(array_version(f.a) != version);
    assert_int_equal(read_all(&f, f.a, got), ERR_OUT_OF_MEMORY);
    assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OK);
    holds(&f, f.a, 100);
    close_fixture(&f);
}

/* Work that is taken on and then fails leaves the array as it was, for whoever asks later. */
static void old_contents_stand(void **state)
{
    (void)state;
    static const char *const ways[] = {"b", "shift(a, [1], 'wrap')"}; /* direct, new storage */
    for (int way = 0; way < 2; way++) {
        struct fixture f;
        double got[N];
        struct array *before = NULL, *after = NULL;
        open_fixture(&f);
        hold();
        assert_int_equal(evaluate(&f, ways[way], f.a, NULL), ERR_OK);
        /* these count on what is to come */
        struct download *d = begin_reading(&f, f.a);
        assert_int_equal(engine_copy(f.s, f.account, f.a, &before, NULL), ERR_OK);
        end(ERR_INTERNAL);
        front.hold = false;
        end(ERR_OK);
        end(ERR_OK);
        assert_int_equal(finish_reading(d, got), ERR_INTERNAL);
        assert_int_equal(read_all(&f, before, got), ERR_INTERNAL);
        holds_ramp(&f, f.a, 0);
        assert_int_equal(engine_copy(f.s, f.account, f.a, &after, NULL), ERR_OK);
        holds_ramp(&f, after, 0);
        assert_int_equal(evaluate(&f, ways[1], f.a, NULL), ERR_OK);
        holds_ramp(&f, f.a, 1);
        array_unref(before);
        array_unref(after);
        close_fixture(&f);
    }
}

/* Steps that read the last one's result: all fail with the first. */
static void a_chain_falls_back_to_its_beginning(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    assert_int_equal(evaluate(&f, "shift(a, [1], 'wrap')", f.a, NULL), ERR_OK);
    hold();
    for (int i = 0; i < 4; i++)
        assert_int_equal(evaluate(&f, "shift(a, [1], 'wrap')", f.a, NULL), ERR_OK);
    front.hold = false;
    end(ERR_OK);
    end(ERR_OUT_OF_MEMORY);
    end(ERR_OK);
    end(ERR_OK);
    holds_ramp(&f, f.a, 2);
    int64_t bytes = engine_bytes_in_use(f.g);
    assert_int_equal(bytes, 2 * N * (int64_t)sizeof(double));
    close_fixture(&f);
}

/* What a part was written to never came: the array is what it was before both, and who asked for
 * the part hears of it. Where the part is fine, what was before it is not kept. */
static void a_part_written_over_a_failure_falls_back_with_it(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        for (int fails = 0; fails < 2; fails++) {
            struct fixture f;
            double got[N];
            open_fixture(&f);
            struct view part = f.a->view;
            part.shape[0] = 2;
            struct array *some = array_view(f.a, DT_F64, &part), *after = NULL;
            hold();
            assert_int_equal(evaluate(&f, "shift(a, [1], 'wrap')", f.a, NULL), ERR_OK);
            assert_int_equal(evaluate(&f, "b[:2]", some, NULL), ERR_OK);
            struct download *d = begin_reading(&f, f.a); /* counts on both */
            assert_int_equal(engine_copy(f.s, f.account, f.a, &after, NULL), ERR_OK);
            end(fails ? ERR_INTERNAL : ERR_OK);
            struct download *between = late ? begin_reading(&f, f.a) : NULL;
            front.hold = false;
            end(ERR_OK);
            end(ERR_OK);
            end(ERR_OK);
            if (late) {
                if (!fails)
                    end(ERR_OK);
                assert_int_equal(finish_reading(between, got), ERR_OK);
                assert_true(got[0] == (fails ? 0 : 100));
            }
            assert_int_equal(finish_reading(d, got), fails ? ERR_INTERNAL : ERR_OK);
            assert_int_equal(read_all(&f, after, got), fails ? ERR_INTERNAL : ERR_OK);
            assert_int_equal(read_all(&f, f.a, got), ERR_OK);
            for (int i = 0; i < N; i++)
                assert_true(got[i] == (fails ? i : i < 2 ? 100 : (i + 1) % N));
            array_unref(after);
            array_unref(some);
            assert_int_equal(engine_bytes_in_use(f.g), 2 * N * (int64_t)sizeof(double));
            close_fixture(&f);
        }
    }
}

/* Contents that are gone for good do not come back by writing a part of them, and whoever writes it
 * is told so. */
static void a_part_of_nothing_is_told(void **state)
{
    (void)state;
    struct fixture f;
    double got[N];
    open_fixture(&f);
    struct view part = f.a->view;
    part.shape[0] = 2;
    struct array *some = array_view(f.a, DT_F64, &part);
    front.at_once = ERR_OUT_OF_MEMORY;
    front.touched = true;
    assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OUT_OF_MEMORY);
    assert_int_equal(evaluate(&f, "b[:2]", some, NULL), ERR_OUT_OF_MEMORY);
    assert_int_equal(read_all(&f, f.a, got), ERR_OUT_OF_MEMORY);
    assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OK);
    assert_int_equal(evaluate(&f, "b[:2]", some, NULL), ERR_OK);
    holds(&f, f.a, 100);
    array_unref(some);
    close_fixture(&f);
}

/* A whole write that comes while another is under way stands for itself. */
static void a_whole_write_over_a_failure_stands(void **state)
{
    (void)state;
    struct fixture f;
    double got[N];
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "shift(a, [1], 'wrap')", f.a, NULL), ERR_OK);
    assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OK);
    end(ERR_OUT_OF_MEMORY);
    struct download *d = begin_reading(&f, f.a); /* looks for what there is */
    front.hold = false;
    end(ERR_OK);
    end(ERR_OK);
    assert_int_equal(finish_reading(d, got), ERR_OK);
    assert_true(got[0] == 100);
    holds(&f, f.a, 100);
    close_fixture(&f);
}

static void exchanged_arrays_fall_back_where_they_are(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    hold();
    assert_int_equal(evaluate(&f, "shift(a, [1], 'wrap')", f.a, NULL), ERR_OK);
    assert_int_equal(engine_swap(f.s, f.a, f.b, NULL), ERR_OK);
    front.hold = false;
    end(ERR_OUT_OF_MEMORY);
    holds(&f, f.a, 100);
    holds_ramp(&f, f.b, 0);
    close_fixture(&f);
}

/* An upload that was compared with contents which are not there any more. */
static void woken(void *user)
{
    ++*(int *)user;
}

/* Whoever asks what the guards say is told with the work that looked, or why it failed; who does
 * not wait for it leaves nothing behind. */
static void guards_are_part_of_the_work(void **state)
{
    (void)state;
    static const char good[] = "take(b, astype(a, 'int64'))";
    static const char bad[] = "take(b, astype(a, 'int64') + 1)";
    struct fixture f;
    struct eval_guards *g;
    struct err e = ERR_INIT;
    int wakes = 0;
    struct eval_watch watch = {.wake = woken, .user = &wakes};
    struct expr x = {0};
    open_fixture(&f);
    uint64_t version = array_version(f.a);
    front.at_once = ERR_OUT_OF_MEMORY; /* refused: nobody is to be told */
    assert_int_equal(evaluate_watched(&f, good, f.a, &watch, NULL), ERR_OUT_OF_MEMORY);
    assert_null(watch.guards);
    assert_true(array_version(f.a) == version);

    hold();
    for (int i = 0; i < 3; i++) {
        wakes = 0;
        assert_int_equal(evaluate_watched(&f, i ? good : bad, f.a, &watch, NULL), ERR_OK);
        g = watch.guards;
        assert_int_equal(eval_guards_pull(g), 0);
        assert_true(array_version(f.a) != version);
        if (i == 2) {
            eval_guards_free(g);
            end(ERR_OK);
            break;
        }
        end(i ? ERR_INTERNAL : ERR_OK);
        assert_int_equal(wakes, 1);
        assert_int_equal(eval_guards_pull(g), i ? -1 : 1);
        if (i == 0) {
            assert_int_equal(eval_guards_verdict(g, &x, &e), ERR_BAD_INDEX);
            assert_true(array_version(f.a) == version);
        }
        eval_guards_free(g);
        front.hold = false;
        holds_ramp(&f, f.a, 0);
        hold();
    }
    front.hold = false;
    holds(&f, f.a, 100);
    close_fixture(&f);
}

static void uploads_expect_a_version(void **state)
{
    (void)state;
    struct fixture f;
    double sevens[N] = {7, 7, 7, 7, 7, 7, 7, 7};
    open_fixture(&f);
    for (int64_t n = N / 2; n <= N; n += N / 2) {
        struct upload *u = NULL;
        struct view v = f.a->view;
        uint64_t version = array_version(f.a);
        v.shape[0] = n;
        for (int late = 0; late < 2; late++) {
            assert_int_equal(upload_new(f.s, f.account, 8 * n, NULL, NULL, &u, NULL), ERR_OK);
            upload_push(u, sevens, (size_t)(8 * n));
            upload_expect(u, version);
            if (late)
                assert_int_equal(evaluate(&f, "b", f.a, NULL), ERR_OK);
            uint64_t now = array_version(f.a);
            assert_int_equal(upload_finish_into(u, f.a, &v, false, NULL, NULL, NULL),
                             late ? ERR_PRECONDITION_FAILED : ERR_OK);
            assert_true((array_version(f.a) == now) == late);
            version = array_version(f.a);
        }
        holds(&f, f.a, 100);
    }
    close_fixture(&f);
}

static void memory_of_running_work_is_not_freed(void **state)
{
    (void)state;
    struct fixture f;
    struct array *copy = NULL;
    open_fixture(&f);
    hold();
    assert_int_equal(engine_copy(f.s, f.account, f.a, &copy, NULL), ERR_OK);
    array_unref(copy);
    array_unref(f.a);
    array_unref(f.b);
    engine_stream_unref(f.s);
    assert_false(engine_close(f.g));
    front.hold = false;
    end(ERR_OK); /* reads and writes what it was given */
    assert_int_equal(account_used(f.account), 0);
    account_unref(f.account);
    assert_true(engine_close(f.g));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fails_at_once_was_never_there),
        cmocka_unit_test(what_was_half_written_is_told),
        cmocka_unit_test(old_contents_stand),
        cmocka_unit_test(a_chain_falls_back_to_its_beginning),
        cmocka_unit_test(a_part_written_over_a_failure_falls_back_with_it),
        cmocka_unit_test(a_part_of_nothing_is_told),
        cmocka_unit_test(a_whole_write_over_a_failure_stands),
        cmocka_unit_test(exchanged_arrays_fall_back_where_they_are),
        cmocka_unit_test(guards_are_part_of_the_work),
        cmocka_unit_test(uploads_expect_a_version),
        cmocka_unit_test(memory_of_running_work_is_not_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
