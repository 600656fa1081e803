/* server/scheduler: who gets how much of a device, which is simulated (scheduler_sim.h). */
#include "tests/unit/scheduler_sim.h"

static void begin_as(double window, bool side_by_side)
{
    begin_with(NULL, window, side_by_side);
}

static void begin(double window)
{
    begin_as(window, true);
}

static struct client *add(int user, int n, double cost, double think)
{
    return add_on(0, user, n, cost, think);
}

/* --- shares --- */

static void test_shares_follow_weights(void **state)
{
    (void)state;
    begin(WINDOW);
    atomic_store(&weights[1], 3);
    add(0, 8, 2, 0.1);
    add(1, 8, 2, 0.1);
    run(500);
    forget_charges();
    run(3000);
    assert_near(charged[1] / charged[0], 3, 0.05);
    assert_near(charged[0] + charged[1], 3000, 0.05); /* and nothing is wasted */
    end();
}

/* One job at a time, with a pause in which its result is looked at, against a crowd. */
static void test_one_job_against_a_crowd(void **state)
{
    (void)state;
    begin(WINDOW);
    atomic_store(&weights[1], 3);
    add(0, 64, 1, 0);
    add(1, 1, 8, 0.2);
    run(500);
    forget_charges();
    run(3000);
    assert_near(charged[1] / charged[0], 3, 0.1);
    end();
}

/* Two jobs at a time, with pauses longer than anybody waits for: what is missed meanwhile is had
 * later. */
static void test_pauses_cost_nothing(void **state)
{
    (void)state;
    static const struct {
        double crowd, cost;
    } cases[] = {{0.5, 1}, {1.4, 1}, {4, 1}, {1.4, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(WINDOW);
        atomic_store(&weights[1], 3);
        add(0, 8, cases[i].crowd, 0);
        add(1, 1, cases[i].cost, 0.4);
        add(1, 1, cases[i].cost, 0.55);
        run(500);
        forget_charges();
        run(3000);
        assert_near(charged[1] / charged[0], 3, 0.1);
        end();
    }
}

static void test_work_of_unlike_sizes(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 2, 30, 0.1); /* longer than the window */
    add(1, 16, 0.5, 0.1);
    run(500);
    forget_charges();
    run(3000);
    assert_near(charged[1] / charged[0], 1, 0.1);
    end();
}

/* Long work of one after the other's, short work beside it. */
static void test_long_work_by_itself(void **state)
{
    (void)state;
    begin_as(WINDOW, false);
    struct client *a = add(0, 2, 8, 0.1), *b = add(1, 2, 8, 0.1), *c = add(2, 1, 0.2, 1);
    run(500); /* what they cost is known by then */
    forget_charges();
    for (int i = 0; i < 30000; i++) {
        run(0.1);
        assert_false((a[0].doing == WORKS || a[1].doing == WORKS) &&
                     (b[0].doing == WORKS || b[1].doing == WORKS));
    }
    assert_near(charged[1] / charged[0], 1, 0.1);
    assert_near(charged[0] + charged[1] + charged[2], 3000, 0.05);
    assert_true(c->longest < 0.1);
    end();
}

static void test_many_sessions_have_no_more(void **state)
{
    (void)state;
    begin(WINDOW);
    for (int i = 0; i < 16; i++)
        add(0, 2, 2, 0.1);
    add(1, 2, 2, 0.1);
    run(500);
    forget_charges();
    run(3000);
    assert_near(charged[1] / charged[0], 1, 0.1);
    end();
}

/* Sessions whose work waits for something, while others of the same user's work. */
static void test_sessions_that_wait_pay_for_nobody(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 4, 2, 0.1);
    for (int i = 0; i < 16; i++)
        add(0, 1, 0.05, 0.1)->delay = 40;
    add(1, 4, 2, 0.1);
    run(500);
    forget_charges();
    run(4000);
    assert_near(used[1] / used[0], 1.2, 0.3); /* nothing is won by it */
    end();
}

/* A session for each piece of work, of which nothing is known therefore. */
static void fresh_sessions(bool side_by_side, double cost)
{
    begin_as(WINDOW, side_by_side);
    add(0, 1, 1, 1e9); /* the one that everybody has */
    for (int i = 0; i < 8; i++)
        add(0, 1, cost, 0.2)->fresh = true;
    add(1, 1, 8, 0.2);
    run(1000);
    forget_charges();
    run(6000);
    assert_near(used[0] / used[1], 1, 0.3);
    assert_near(charged[0] / used[0], 1, 0.2);
    end();
}

static void test_fresh_sessions_gain_nothing(void **state)
{
    (void)state;
    fresh_sessions(true, 5);
    fresh_sessions(true, 50);
    fresh_sessions(false, 50);
}

/* The same without one that stays, one piece after the other: what his work took is not forgotten.
 */
static void test_who_leaves_between_pieces_gains_nothing(void **state)
{
    (void)state;
    begin_as(WINDOW, false);
    struct client *c = add(0, 1, 30, 0.2);
    c->fresh = true;
    add(1, 4, 5, 0);
    atomic_store(&weights[1], 9);
    run(1000);
    forget_charges();
    run(6000);
    assert_near(charged[1] / charged[0], 9, 0.2);
    end();
}

/* Little work, and then much. */
static void test_work_that_is_not_as_before(void **state)
{
    (void)state;
    begin(WINDOW);
    for (int i = 0; i < 4; i++) {
        add(0, 6, 0.1, 0.2);
        struct client *c = &clients[n_clients]; /* of the same session as those */
        *c = clients[n_clients - 1];
        n_clients++;
        c->cost = 40;
    }
    add(1, 1, 8, 0.2);
    run(1000);
    forget_charges();
    run(6000);
    assert_near(used[0] / used[1], 1, 0.35);
    end();
}

/* A first kernel is being compiled, for a long time: the device is the others' meanwhile. */
static void test_work_that_waits_keeps_nobody_back(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 1, 1, 0.1)->delay = 3000;
    add(1, 4, 2, 0.1);
    run(500);
    forget_charges();
    run(2000);
    assert_near(used[1], 2000, 0.05);
    end();
}

static void test_a_new_weight_holds_at_once(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 4, 2, 0.1);
    add(1, 4, 2, 0.1);
    run(500);
    atomic_store(&weights[0], 4);
    run(100);
    forget_charges();
    run(2000);
    assert_near(charged[0] / charged[1], 4, 0.05);
    end();
}

/* --- who seldom asks, who comes later, who is alone --- */

static void test_who_seldom_asks_does_not_wait(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 64, 1, 0);
    struct client *c = add(1, 1, 0.5, 7);
    run(3000);
    assert_true(c->served > 200);
    assert_true(c->longest < 0.1); /* a step or two of the clock */
    end();
}

static void test_time_alone_is_not_held_against_one(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 4, 2, 0.1);
    run(5000);
    add(1, 4, 2, 0.1); /* nor is what he did not use given to the other */
    run(100);
    forget_charges();
    run(1000);
    assert_near(charged[1] / charged[0], 1, 0.05);
    end();
}

static void test_alone_the_device_is_busy(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 3, 30, 0.1);
    run(3000);
    assert_near(charged[0], 3000, 0.02);
    end();
}

static void test_no_more_than_the_window_is_out(void **state)
{
    (void)state;
    begin(WINDOW);
    add(0, 64, 1, 0);
    run(200); /* what a piece costs is known by then */
    int most = 0;
    for (int i = 0; i < 1000; i++) {
        int n = 0;
        run(0.1);
        for (int k = 0; k < n_clients; k++)
            n += clients[k].doing == WORKS;
        most = n > most ? n : most;
    }
    assert_in_range(most, 8, 11);
    end();
}

static int at_work(int user)
{
    int n = 0;
    for (int k = 0; k < n_clients; k++)
        n += clients[k].user == user && clients[k].doing == WORKS;
    return n;
}

/* However many sessions one has who is alone: somebody comes, and finds little on the device. */
static void test_alone_the_device_is_not_filled(void **state)
{
    (void)state;
    begin(WINDOW);
    for (int i = 0; i < 70; i++)
        add(0, 1, 30, 0);
    run(5000); /* what a piece costs is known by then */
    assert_in_range(at_work(0), 2, 16);
    forget_charges();
    run(1000);
    assert_near(charged[0], 1000, 0.1);
    end();
}

static void pass_ms(double ms)
{
    atomic_fetch_add(&now_ns, (uint64_t)(ms * 1e6));
}

/* The device's own time of a piece is charged even if its end is told late, which leaves less time
 * between it and the next; but no more than has passed, and not what another lane had. */
static void test_ends_that_are_told_late(void **state)
{
    (void)state;
    struct client a = {0}, b = {0};
    begin(WINDOW);
    lane_of(&a, 0);
    lane_of(&b, 1);
    for (int i = 0; i < 3; i++)
        sched_watch.begun(a.lane);
    pass_ms(1.3);
    assert_near(sched_watch.ended(a.lane, 1.0), 1.0, 1e-6);
    pass_ms(0.7);
    assert_near(sched_watch.ended(a.lane, 1.0), 1.0, 1e-6);
    pass_ms(0.5);
    assert_near(sched_watch.ended(a.lane, 1.0), 0.5, 1e-6);
    sched_watch.begun(a.lane); /* what was left of an earlier time is gone */
    pass_ms(1.0);
    assert_near(sched_watch.ended(a.lane, 0.25), 0.25, 1e-6);
    sched_watch.begun(a.lane);
    sched_watch.begun(a.lane);
    sched_watch.begun(b.lane);
    pass_ms(2.0);
    double all = sched_watch.ended(a.lane, 0.5) + sched_watch.ended(b.lane, 2.0);
    pass_ms(1.0);
    all += sched_watch.ended(a.lane, 9.0);
    assert_near(all, 3.0, 1e-6);
    sched_lane_unref(a.lane);
    sched_lane_unref(b.lane);
    end();
}

/* A lane whose pieces take less than the time between their ends has no claim to that for later. */
static void test_time_that_was_not_used_is_not_kept(void **state)
{
    (void)state;
    struct client a = {0}, b = {0};
    begin(WINDOW);
    lane_of(&a, 0);
    lane_of(&b, 1);
    sched_watch.begun(a.lane);
    for (int i = 0; i < 1000; i++) {
        sched_watch.begun(a.lane);
        pass_ms(2.0);
        assert_near(sched_watch.ended(a.lane, 1.0), 1.0, 1e-6);
    }
    sched_watch.begun(b.lane);
    pass_ms(200);
    const double charged_a = sched_watch.ended(a.lane, 200);
    assert_true(charged_a >= 100 && charged_a <= 120);
    assert_near(sched_watch.ended(b.lane, 200), 100, 1e-6);
    sched_lane_unref(a.lane);
    sched_lane_unref(b.lane);
    end();
}

/* Little work in many sessions, and then much in all of them at once. */
static void test_much_in_many_sessions_at_once(void **state)
{
    (void)state;
    begin(WINDOW);
    add(1, 1, 0.5, 7);
    for (int i = 0; i < 70; i++)
        add(0, 1, 0.05, 5);
    run(500);
    for (int i = 1; i < n_clients; i++)
        clients[i].cost = 30;
    for (int i = 0; i < 300; i++) {
        run(0.1);
        assert_true(at_work(0) <= 16);
    }
    end();
}

/* --- turns --- */

static void test_the_order_of_a_session(void **state)
{
    (void)state;
    begin(0);
    struct client *c = add(0, 6, 1, 0);
    struct err e = ERR_INIT;
    bool now;
    for (int i = 0; i < 6; i++) {
        c[i].turn = (struct sched_turn){.come = come, .user = &c[i]};
        assert_int_equal(sched_ask(c->lane, 1, &c[i].turn, &now, &e), ERR_OK);
        assert_int_equal(now, i < 2); /* two are always out */
        assert_int_equal(sched_held(sched, &c[i].turn), now);
    }
    sched_leave(sched, &c[3].turn); /* waits no more */
    for (int i = 0; i < 6; i++) {
        int later = i + 2 + (i >= 1);
        if (i == 3)
            continue;
        if (later < 6)
            assert_false(atomic_load(&c[later].come));
        sched_leave(sched, &c[i].turn);
        if (later < 6)
            assert_true(atomic_load(&c[later].come));
    }
    assert_false(atomic_load(&c[3].come));
    struct sched_counts n;
    sched_count(sched, &weights[0], &n);
    assert_int_equal(n.waiting, 0);
    assert_int_equal(n.turns, 5);
    assert_int_equal(n.waited, 3);
    sched_count(sched, &weights[1], &n);
    assert_int_equal(n.turns, 0);
    end();
}

/* Turns that are held and give the device nothing: their requests are still being read. */
static void hold_turns(bool side_by_side, double ms)
{
    begin_as(WINDOW, side_by_side);
    struct client holder = {0};
    static struct sched_turn turns[6];
    struct err e = ERR_INIT;
    bool now;
    memset(turns, 0, sizeof turns);
    lane_of(&holder, 0);
    struct client *c = add(1, 2, 4, 0.1);
    run(100);                     /* what it costs is known by then */
    for (int i = 0; i < 6; i++) { /* some of them wait behind the others */
        turns[i] = (struct sched_turn){.come = come, .user = &holder};
        assert_int_equal(sched_ask(holder.lane, ms, &turns[i], &now, &e), ERR_OK);
    }
    run(10);
    forget_charges();
    c->longest = 0;
    run(1000);
    assert_near(charged[1], 1000, 0.02);
    assert_true(c->longest < 5);
    for (int i = 0; i < 6; i++)
        sched_leave(sched, &turns[i]);
    sched_lane_unref(holder.lane);
    end();
}

static void test_turns_without_work_keep_nobody_back(void **state)
{
    (void)state;
    hold_turns(true, 8);
    hold_turns(false, 8);
    hold_turns(true, 0);
}

static void test_too_many_wait(void **state)
{
    (void)state;
    begin(0);
    struct client holder = {0}, other = {0};
    static struct sched_turn turns[MAX_WAIT + 30];
    struct err e = ERR_INIT;
    bool now;
    int i = 0;
    memset(turns, 0, sizeof turns);
    lane_of(&holder, 0);
    lane_of(&other, 1);
    for (; i < MAX_WAIT + 2; i++) {
        turns[i] = (struct sched_turn){.come = come, .user = &holder};
        assert_int_equal(sched_ask(holder.lane, 1, &turns[i], &now, &e), ERR_OK);
    }
    assert_int_equal(sched_ask(holder.lane, 1, &turns[i], &now, &e), ERR_QUOTA);
    assert_null(turns[i].lane);
    for (int k = 0; k < 21; k++, i++) { /* another has his own, until there are too many of all */
        turns[i] = (struct sched_turn){.come = come, .user = &other};
        assert_int_equal(sched_ask(other.lane, 1, &turns[i], &now, &e), ERR_OK);
        assert_int_equal(now, k < 1); /* he is not alone, and the window is 0 */
    }
    assert_int_equal(sched_ask(other.lane, 1, &turns[i], &now, &e), ERR_OVERLOADED);
    turns[i] = (struct sched_turn){.come = come, .user = &other, .sure = true};
    assert_int_equal(sched_ask(other.lane, 1, &turns[i], &now, &e), ERR_OK);
    assert_false(now);
    atomic_store(&other.come, false);
    sched_open(sched);
    assert_true(atomic_load(&other.come));
    assert_true(sched_held(sched, &turns[i]));
    for (; i >= 0; i--)
        sched_leave(sched, &turns[i]);
    sched_lane_unref(holder.lane);
    sched_lane_ref(other.lane);
    sched_lane_unref(other.lane);
    sched_free(sched);
    sched_watch.release(other.lane); /* a stream's, after the scheduler's end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_follow_weights),
        cmocka_unit_test(test_one_job_against_a_crowd),
        cmocka_unit_test(test_pauses_cost_nothing),
        cmocka_unit_test(test_work_of_unlike_sizes),
        cmocka_unit_test(test_long_work_by_itself),
        cmocka_unit_test(test_many_sessions_have_no_more),
        cmocka_unit_test(test_sessions_that_wait_pay_for_nobody),
        cmocka_unit_test(test_fresh_sessions_gain_nothing),
        cmocka_unit_test(test_who_leaves_between_pieces_gains_nothing),
        cmocka_unit_test(test_work_that_is_not_as_before),
        cmocka_unit_test(test_work_that_waits_keeps_nobody_back),
        cmocka_unit_test(test_a_new_weight_holds_at_once),
        cmocka_unit_test(test_who_seldom_asks_does_not_wait),
        cmocka_unit_test(test_time_alone_is_not_held_against_one),
        cmocka_unit_test(test_alone_the_device_is_busy),
        cmocka_unit_test(test_no_more_than_the_window_is_out),
        cmocka_unit_test(test_alone_the_device_is_not_filled),
        cmocka_unit_test(test_ends_that_are_told_late),
        cmocka_unit_test(test_time_that_was_not_used_is_not_kept),
        cmocka_unit_test(test_much_in_many_sessions_at_once),
        cmocka_unit_test(test_the_order_of_a_session),
        cmocka_unit_test(test_turns_without_work_keep_nobody_back),
        cmocka_unit_test(test_too_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
