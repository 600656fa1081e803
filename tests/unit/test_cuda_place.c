/* Arrays placed on several GPUs as one, on the fake driver with three: where metadata says that
 * they lie, where they stay, and what becomes of one while it is being placed and driver calls
 * fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compute/base/mem.h"
#include "tests/fake/fake_cuda.h"
#include "tests/unit/cuda_arrays.h"

#define PARTS 3
#define ROWS  (7 * PARTS)
#define ROW   (1 << 18)  /* float32 elements: 1 MiB */
#define MANY  (5 * ROWS) /* rows that are divided by their size */
#define OOM   2

static float pattern[ROWS * ROW], got[MANY * ROW];

struct fixture {
    struct engine *g;
    struct engine_stream *s;
    struct account *account;
};

static void open_fixture(struct fixture *x)
{
    struct engine_config config = ENGINE_CONFIG_DEFAULT;
    struct err e = ERR_INIT;
    config.backend = "cuda";
    config.device.mesh = "all";
    config.device.mesh_least = 10 << 20;
    *x = (struct fixture){.account = account_new(0)};
    if (engine_open(&config, &x->g, &e) != ERR_OK)
        fail_msg("%s", e.message);
    assert_int_equal(engine_stream_new(x->g, engine_mesh(x->g), &x->s, &e), ERR_OK);
}

static void settle(struct fixture *x)
{
    int tries = 0;
    while (engine_jobs_in_flight(x->g) > 0)
        pause_a_little(&tries);
}

static void close_fixture(struct fixture *x)
{
    engine_stream_unref(x->s);
    settle(x);
    assert_int_equal(engine_bytes_in_use(x->g), 0);
    assert_int_equal(account_used(x->account), 0);
    engine_close(x->g);
    account_unref(x->account);
}

static struct array *made(struct fixture *x)
{
    struct array *a = NULL;
    assert_int_equal(put_array(x->s, x->account, pattern, 3, (int64_t[]){ROWS, 1, ROW}, &a),
                     ERR_OK);
    return a;
}

/* Whether it is divided, and then as it should be. */
static bool is_apart(const struct array *a)
{
    int64_t rows[BACKEND_PARTS + 1], devices[BACKEND_PARTS];
    int axis = -1;
    const int n = array_divided(a, &axis, rows, devices);
    if (!n)
        return false;
    /* 21 MiB in three shares of 8 MiB */
    assert_true(n == PARTS && axis == 0);
    assert_true(rows[0] == 0 && rows[1] == 8 && rows[2] == 16 && rows[3] == ROWS);
    assert_true(devices[0] == 0 && devices[1] == 1 && devices[2] == 2);
    return true;
}

static void holds_pattern(struct fixture *x, struct array *a)
{
    assert_int_equal(get_array(x->s, a, got), ERR_OK);
    assert_memory_equal(got, pattern, sizeof pattern);
}

static void ignore(void *user, enum err_code result, double device_ms)
{
    (void)user, (void)device_ms;
    assert_int_equal(result, ERR_OK);
}

static void stays_where_it_is_placed(void **state)
{
    (void)state;
    struct fixture x;
    struct err e = ERR_INIT;
    open_fixture(&x);
    struct array *a = made(&x);
    assert_false(is_apart(a)); /* by its size */
    assert_int_equal(engine_place(x.s, a, false, &e), ERR_OK);
    assert_false(is_apart(a));
    assert_int_equal(engine_place(x.s, a, true, &e), ERR_OK);
    assert_true(is_apart(a));
    holds_pattern(&x, a);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(engine_move(x.s, a, k == 0, ignore, NULL, &e), ERR_OK);
        settle(&x);
        assert_true(array_in_host_memory(a) == (k == 0) && is_apart(a) == (k == 1));
        holds_pattern(&x, a);
    }
    /* what is divided by its size, not */
    struct array *b = NULL;
    assert_int_equal(engine_full(x.s, x.account, (struct scalar){.dtype = DT_F32, .v.f32 = 3}, 2,
                                 (int64_t[]){MANY, ROW}, &b, &e),
                     ERR_OK);
    int64_t rows[BACKEND_PARTS + 1], devices[BACKEND_PARTS];
    int axis;
    assert_int_equal(array_divided(b, &axis, rows, devices), PARTS);
    assert_int_equal(engine_place(x.s, b, false, &e), ERR_OK);
    assert_int_equal(array_divided(b, &axis, rows, devices), 0);
    assert_int_equal(get_array(x.s, b, got), ERR_OK);
    for (size_t i = 0; i < (size_t)MANY * ROW; i += ROW / 2)
        assert_true(got[i] == 3);
    array_unref(a);
    array_unref(b);
    close_fixture(&x);
}

static void too_small_to_be_divided(void **state)
{
    (void)state;
    struct fixture x;
    open_fixture(&x);
    static const int64_t sizes[] = {0, 1, (6 << 20) - 1, 6 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct array *a = NULL;
        struct err e = ERR_INIT;
        int axis;
        int64_t rows[BACKEND_PARTS + 1], devices[BACKEND_PARTS];
        assert_int_equal(engine_zeros(x.s, x.account, DT_I8, 1, &sizes[i], &a, &e), ERR_OK);
        const bool fits = sizes[i] == 6 << 20;
        assert_int_equal(engine_place(x.s, a, true, &e), fits ? ERR_OK : ERR_UNSUPPORTED_PLACEMENT);
        assert_int_equal(array_divided(a, &axis, rows, devices), fits ? PARTS : 0);
        array_unref(a);
        settle(&x);
    }
    close_fixture(&x);
}

/* One that cannot be placed is where it was, with what it had. */
static void out_of_memory_loses_nothing(void **state)
{
    (void)state;
    const int64_t before = mem_live();
    struct fixture x;
    open_fixture(&x);
    bool struck = true;
    int refused = 0;
    for (int nth = 1; struck; nth++) {
        struct err e = ERR_INIT;
        struct array *a = made(&x);
        settle(&x);
        fake_cuda_reset();
        fake_cuda_fail(nth, OOM);
        const enum err_code code = engine_place(x.s, a, true, &e);
        settle(&x);
        fake_cuda_fail(0, 0);
        struck = fake_cuda_failed() != NULL;
        assert_true(code == ERR_OK || (struck && code == ERR_OUT_OF_MEMORY));
        refused += code != ERR_OK;
        assert_true(code == ERR_OK || !is_apart(a));
        if (get_array(x.s, a, got) == ERR_OK)
            assert_memory_equal(got, pattern, sizeof pattern);
        else
            assert_true(struck && code == ERR_OK);
        array_unref(a);
        settle(&x);
        assert_int_equal(engine_bytes_in_use(x.g), 0);
        engine_tidy(x.g);
    }
    assert_true(refused > 0);
    close_fixture(&x);
    for (int k = 0; k < FAKE_LAUNCHES; k++)
        assert_int_equal(fake_cuda_live((enum fake_kind)k), 0);
    assert_int_equal(mem_live(), before);
}

int main(void)
{
    for (int i = 0; i < ROWS * ROW; i++)
        pattern[i] = (float)(i % 1021);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_where_it_is_placed),
        cmocka_unit_test(too_small_to_be_divided),
        cmocka_unit_test(out_of_memory_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
