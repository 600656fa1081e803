/* server/scheduler: who gets how much of a device. A device and its clients are simulated, on a
 * clock of the test's own: streams side by side, each an equal part of the device, a stream's work
 * in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/scheduler.h"

#define STEP_NS  20000 /* of the clock */
#define MOST     80    /* clients */
#define WINDOW   10.0
#define MAX_WAIT 100

static _Atomic uint64_t now_ns;

static uint64_t test_clock(void)
{
    return atomic_load(&now_ns);
}

enum doing { THINKS, WAITS, WORKS };

/* Asks for a turn, has work of `cost` ms done, thinks for `think` ms, and asks again. */
struct client {
    struct sched_lane *lane;
    int user;
    bool fresh;                /* a new session for each piece of work */
    double cost, think, delay; /* delay: its work waits so long for something before it runs */
    double left, to_wait;      /* of what it does now, ms */
    enum doing doing;
    struct sched_turn turn;
    _Atomic bool come;
    double longest;        /* wait, ms */
    uint64_t asked, began; /* began: to run; 0: not yet */
    int served;
};

static struct sched *sched;
static _Atomic uint32_t weights[3];
static struct client clients[MOST];
static int n_clients;
static double charged[3], used[3]; /* ms, by user: as it was measured, and as it was */

static void come(void *user)
{
    struct client *c = user;
    atomic_store(&c->come, true);
}

static void begin_as(double window, bool side_by_side)
{
    struct err e = ERR_INIT;
    const struct sched_config config = {.n_devices = 1,
                                        .side_by_side = side_by_side,
                                        .window = window,
                                        .max_waiting = MAX_WAIT,
                                        .max_waiting_all = MAX_WAIT + 20,
                                        .clock_ns = test_clock};
    atomic_store(&now_ns, 1000000000u);
    assert_int_equal(sched_new(&config, &sched, &e), ERR_OK);
    for (int u = 0; u < 3; u++)
        atomic_store(&weights[u], 1);
    memset(clients, 0, sizeof clients);
    memset(charged, 0, sizeof charged);
    n_clients = 0;
}

static void begin(double window)
{
    begin_as(window, true);
}

static void lane_of(struct client *c, int user)
{
    struct err e = ERR_INIT;
    c->user = user;
    assert_int_equal(sched_lane_new(sched, &weights[user], 0, &c->lane, &e), ERR_OK);
}

/* n clients of one session. */
static struct client *add(int user, int n, double cost, double think)
{
    struct client *first = &clients[n_clients];
    for (int i = 0; i < n; i++) {
        struct client *c = &clients[n_clients++];
        if (i == 0)
            lane_of(c, user);
        c->user = user;
        c->lane = first->lane;
        c->cost = cost;
        c->think = think;
        c->left = think;
    }
    return first;
}

static void end(void)
{
    for (int i = 0; i < n_clients; i++)
        sched_leave(sched, &clients[i].turn);
    for (int i = 0; i < n_clients; i++)
        if (i == 0 || clients[i].lane != clients[i - 1].lane)
            sched_lane_unref(clients[i].lane);
    sched_free(sched);
}

static void start_work(struct client *c)
{
    double ms = (double)(test_clock() - c->asked) * 1e-6;
    c->longest = ms > c->longest ? ms : c->longest;
    sched_watch.begun(c->lane);
    c->doing = WORKS;
    c->left = c->cost;
    c->to_wait = c->delay;
    c->began = 0;
}

static bool is_first_of_lane(const struct client *c)
{
    for (const struct client *o = clients; o < &clients[n_clients]; o++)
        if (o != c && o->doing == WORKS && o->lane == c->lane &&
            (o->asked < c->asked || (o->asked == c->asked && o < c)))
            return false;
    return true;
}

static void ask(struct client *c)
{
    struct err e = ERR_INIT;
    bool now = false;
    atomic_store(&c->come, false);
    c->turn = (struct sched_turn){.come = come, .user = c};
    c->asked = test_clock();
    assert_int_equal(sched_ask(c->lane, 0, &c->turn, &now, &e), ERR_OK);
    c->doing = WAITS;
    if (now)
        start_work(c);
}

static void finish(struct client *c)
{
    double ms = (double)(test_clock() - c->began) * 1e-6;
    charged[c->user] += sched_watch.ended(c->lane, ms);
    sched_leave(sched, &c->turn);
    c->served++;
    c->doing = THINKS;
    c->left = c->think;
    if (c->fresh) {
        sched_lane_unref(c->lane);
        lane_of(c, c->user);
    }
}

static void run(double ms)
{
    uint64_t end_ns = test_clock() + (uint64_t)(ms * 1e6);
    while (test_clock() < end_ns) {
        bool working[MOST];
        int n = 0;
        for (int i = 0; i < n_clients; i++) {
            struct client *c = &clients[i];
            if (c->doing == WAITS && atomic_load(&c->come))
                start_work(c);
            working[i] = c->doing == WORKS && is_first_of_lane(c);
            if (working[i] && c->to_wait > 0) {
                c->to_wait -= STEP_NS * 1e-6;
                working[i] = false;
            }
            n += working[i];
            if (working[i] && !c->began)
                c->began = test_clock();
        }
        atomic_fetch_add(&now_ns, STEP_NS);
        for (int i = 0; i < n_clients; i++) {
            struct client *c = &clients[i];
            if (working[i])
                used[c->user] += STEP_NS * 1e-6 / n;
            if (working[i] && (c->left -= STEP_NS * 1e-6 / n) <= 0)
                finish(c);
            else if (c->doing == THINKS && (c->left -= STEP_NS * 1e-6) <= 0)
                ask(c);
        }
    }
}

static void forget_charges(void)
{
    memset(charged, 0, sizeof charged);
    memset(used, 0, sizeof used);
}

static void assert_near(double got, double want, double relative)
{
    if (got < want * (1 - relative) || got > want * (1 + relative))
        fail_msg("%g, wanted %g within %g %%", got, want, relative * 100);
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
    } cases[] = {{0.5, 3}, {1.4, 1}, {1.4, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(WINDOW);
        atomic_store(&weights[1], 3);
        add(0, 8, cases[i].crowd, 0);
        add(1, 1, cases[i].cost, 1);
        add(1, 1, cases[i].cost, 1.4);
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
        cmocka_unit_test(test_work_that_is_not_as_before),
        cmocka_unit_test(test_work_that_waits_keeps_nobody_back),
        cmocka_unit_test(test_a_new_weight_holds_at_once),
        cmocka_unit_test(test_who_seldom_asks_does_not_wait),
        cmocka_unit_test(test_time_alone_is_not_held_against_one),
        cmocka_unit_test(test_alone_the_device_is_busy),
        cmocka_unit_test(test_no_more_than_the_window_is_out),
        cmocka_unit_test(test_the_order_of_a_session),
        cmocka_unit_test(test_turns_without_work_keep_nobody_back),
        cmocka_unit_test(test_too_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
