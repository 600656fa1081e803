/* The steps of a request's state, one by one, and those that several threads try at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <sched.h>

#include <cmocka.h>

#include "compute/base/clock.h"
#include "server/http/http_state.h"

static struct http_state at(enum place p, enum waits w)
{
    struct http_state s;
    atomic_init(&s.word, state_word(p, w));
    return s;
}

static void a_wake_before_the_suspension_is_remembered(void **state)
{
    (void)state;
    struct http_state s = at(PLACE_HANDLER, RUNS);
    state_set(&s, ARMED);
    assert_int_equal(state_wake(&s), ARMED);
    assert_false(state_step(&s, ARMED, PARKED));
    assert_int_equal(state_waits(&s), WOKEN);
    state_set(&s, RUNS);
    assert_int_equal(state_wake(&s), RUNS); /* late: nobody waits */
    assert_int_equal(state_waits(&s), RUNS);

    s = at(PLACE_BODY, RUNS);
    assert_false(state_wake_flow(&s));
    assert_false(state_step_flow(&s, RUNS, PARKED));
    assert_true(state_step_flow(&s, WOKEN, RUNS));
    assert_true(state_step_flow(&s, RUNS, PARKED));
    assert_true(state_wake_flow(&s));
    assert_int_equal(state_waits(&s), RUNS);
}

static void one_that_is_held_is_woken_all_the_same(void **state)
{
    (void)state;
    struct http_state s = at(PLACE_STREAM, PARKED);
    assert_true(state_step(&s, PARKED, HELD));
    assert_int_equal(state_wake(&s), HELD); /* not the waker's to resume */
    assert_false(state_step(&s, HELD, PARKED));
    assert_int_equal(state_waits(&s), WOKEN);
}

static void wakes_of_one_kind_do_nothing_to_the_other(void **state)
{
    (void)state;
    static const enum place works[] = {PLACE_STREAM, PLACE_SINK_END, PLACE_HANDLER};
    static const enum place flows[] = {PLACE_BODY, PLACE_REPLY};
    static const enum place neither[] = {PLACE_HEADER, PLACE_DRAIN, PLACE_CUT};
    for (int i = 0; i < 3; i++) {
        struct http_state s = at(works[i], PARKED);
        assert_false(state_wake_flow(&s));
        assert_false(state_step_flow(&s, PARKED, RUNS));
        assert_int_equal(state_waits(&s), PARKED);
        s = at(neither[i], RUNS);
        assert_false(state_wake_flow(&s));
        assert_int_equal(state_wake(&s), RUNS);
        assert_false(state_step_flow(&s, RUNS, PARKED));
        assert_int_equal(state_waits(&s), RUNS);
    }
    for (int i = 0; i < 2; i++) {
        struct http_state s = at(flows[i], PARKED);
        assert_int_equal(state_wake(&s), RUNS);
        assert_false(state_step(&s, PARKED, HELD));
        assert_true(state_flow_parked(&s));
    }
}

static void what_waits_is_not_cut(void **state)
{
    (void)state;
    struct http_state s = at(PLACE_BODY, PARKED);
    assert_false(state_move(&s, PLACE_BODY, PLACE_CUT));
    s = at(PLACE_BODY, WOKEN);
    assert_true(state_move(&s, PLACE_BODY, PLACE_CUT));
    assert_false(state_move(&s, PLACE_BODY, PLACE_HANDLER));
    assert_int_equal(state_place(&s), PLACE_CUT);
}

static struct http_state shared;
static _Atomic int met, resumed, moved, wrong;
static _Atomic bool over;

/* Two threads that go on within some nanoseconds of each other, where each has a core. */
static void meet(void)
{
    int mine = atomic_fetch_add(&met, 1), both = mine - mine % 2 + 2;
    for (int spins = 0; atomic_load(&met) < both; spins++)
        if (spins > 1000)
            sched_yield();
}

static void set(enum place p, enum waits w)
{
    atomic_store(&resumed, 0);
    atomic_store(&moved, 0);
    atomic_store(&shared.word, state_word(p, w));
}

/* The first party also sets the state and looks at the outcome, while the other waits. */
static void *take_part(void *first)
{
    double begun = clock_ms();
    for (int i = 0; !atomic_load(&over); i++) {
        if (first)
            set(PLACE_HANDLER, PARKED);
        meet();
        if (state_wake(&shared) == PARKED)
            atomic_fetch_add(&resumed, 1);
        meet();
        if (first) {
            atomic_fetch_add(&wrong, atomic_load(&resumed) != 1);
            set(PLACE_BODY, RUNS);
        }
        meet();
        if (state_move(&shared, PLACE_BODY, first ? PLACE_CUT : PLACE_HANDLER))
            atomic_fetch_add(&moved, 1);
        meet();
        if (first) {
            atomic_fetch_add(&wrong, atomic_load(&moved) != 1);
            atomic_store(&over, i == 100000 || clock_ms() - begun > 2000);
        }
        meet();
    }
    return NULL;
}

static void one_party_wins_each_step(void **state)
{
    (void)state;
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, take_part, i ? NULL : &shared), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_before_the_suspension_is_remembered),
        cmocka_unit_test(one_that_is_held_is_woken_all_the_same),
        cmocka_unit_test(wakes_of_one_kind_do_nothing_to_the_other),
        cmocka_unit_test(what_waits_is_not_cut),
        cmocka_unit_test(one_party_wins_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
