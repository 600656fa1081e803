/* The steps of a request's state, one by one, and those that several threads try at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <cmocka.h>

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
static pthread_barrier_t begin;
static _Atomic int resumed, cut, handled;

static void *wake_it(void *arg)
{
    (void)arg;
    pthread_barrier_wait(&begin);
    if (state_wake(&shared) == PARKED)
        atomic_fetch_add(&resumed, 1);
    return NULL;
}

static void *move_it(void *arg)
{
    pthread_barrier_wait(&begin);
    if (state_move(&shared, PLACE_BODY, arg ? PLACE_CUT : PLACE_HANDLER))
        atomic_fetch_add(arg ? &cut : &handled, 1);
    return NULL;
}

static void at_once(void *(*f)(void *), void *first, void *second)
{
    pthread_t t[2];
    assert_int_equal(pthread_create(&t[0], NULL, f, first), 0);
    assert_int_equal(pthread_create(&t[1], NULL, f, second), 0);
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
}

static void one_party_wins_each_step(void **state)
{
    (void)state;
    pthread_barrier_init(&begin, NULL, 2);
    for (int i = 1; i <= 500; i++) {
        atomic_store(&shared.word, state_word(PLACE_HANDLER, PARKED));
        at_once(wake_it, NULL, NULL);
        assert_int_equal(atomic_load(&resumed), i);
        atomic_store(&shared.word, state_word(PLACE_BODY, RUNS));
        at_once(move_it, NULL, &shared);
        assert_int_equal(atomic_load(&cut) + atomic_load(&handled), i);
    }
    pthread_barrier_destroy(&begin);
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
