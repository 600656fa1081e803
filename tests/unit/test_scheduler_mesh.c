/* The scheduler with a mesh, simulated (scheduler_sim.h): who gets how much of its GPUs, and that
 * nobody waits in a circle. */
#include "tests/unit/scheduler_sim.h"

static const struct sched_mesh all = {3, {0, 1, 2}};

static void begin_mesh(void)
{
    begin_with(&all, WINDOW, true);
}

static double busy(int device)
{
    double sum = 0;
    for (int u = 0; u < USERS; u++)
        sum += on[device][u];
    return sum;
}

/* A user of the mesh and one of a single GPU share that GPU by weight, and only that one. */
static void test_a_gpu_is_shared_by_weight(void **state)
{
    (void)state;
    for (uint32_t weight = 1; weight <= 3; weight += 2) {
        begin_mesh();
        atomic_store(&weights[1], weight);
        add_on(GPUS, 0, 2, 2, 0.1);
        add_on(1, 1, 8, 2, 0.1);
        run(500);
        forget_charges();
        run(3000);
        assert_near(on[1][1] / on[1][0], weight, 0.1);
        assert_near(busy(1), 3000, 0.05);
        end();
    }
}

/* Long slices of programs beside small requests, either way. */
static void test_work_of_unlike_sizes(void **state)
{
    (void)state;
    for (int mesh_is_long = 0; mesh_is_long < 2; mesh_is_long++) {
        begin_mesh();
        add_on(GPUS, 0, 2, mesh_is_long ? 8 : 0.5, 0.05);
        add_on(2, 1, 2, mesh_is_long ? 0.5 : 8, 0.05);
        run(500);
        forget_charges();
        run(3000);
        assert_near(on[2][1] / on[2][0], 1, 0.15);
        end();
    }
}

/* Where others have less company, they do not wait for one whom company elsewhere keeps back. */
static void test_a_crowd_on_one_gpu_leaves_no_other_idle(void **state)
{
    (void)state;
    begin_mesh();
    add_on(GPUS, 0, 2, 2, 0.1);
    add_on(0, 1, 8, 2, 0.1);
    for (int u = 2; u < 5; u++)
        add_on(1, u, 8, 2, 0.1);
    run(500);
    forget_charges();
    run(4000);
    for (int u = 2; u < 5; u++)
        assert_near(on[1][u] / on[1][0], 1, 0.1);
    assert_near(busy(0), 4000, 0.1);
    assert_true(on[0][1] > 1800);
    end();
}

/* A user of a single GPU who seldom asks does not wait behind the mesh's work. */
static void test_who_seldom_asks_does_not_wait(void **state)
{
    (void)state;
    begin_mesh();
    add_on(GPUS, 0, 8, 2, 0.1);
    struct client *c = add_on(1, 1, 1, 0.2, 50);
    run(3000);
    assert_true(c->served > 50 && c->longest < 2 * WINDOW);
    end();
}

/* Runs, and finds out whether anybody waits although nothing is done. */
static void run_busy(double ms)
{
    double still = 0;
    for (double at = 0; at < ms; at++) {
        bool works = false, waits = false;
        run(1);
        for (int i = 0; i < n_clients; i++) {
            works |= clients[i].doing == WORKS;
            waits |= clients[i].doing == WAITS;
        }
        still = works || !waits ? 0 : still + 1;
        assert_true(still < 10);
    }
}

static uint64_t seed;

static double chance(double most)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return most * (double)(seed >> 40) / (double)(1 << 24);
}

/* Everybody on everything, in fits and starts: the devices never rest while somebody waits, and
 * everybody is served. */
static void test_at_random_nobody_waits_for_ever(void **state)
{
    (void)state;
    for (int trial = 0; trial < 30; trial++) {
        seed = (uint64_t)trial + 1;
        begin_mesh();
        for (int u = 0; u < USERS; u++) {
            atomic_store(&weights[u], 1 + (uint32_t)chance(4));
            for (int k = 0; k < 3; k++)
                add_on(chance(1) < 0.4 ? GPUS : (int)chance(GPUS), u, 1 + (int)chance(3),
                       0.1 + chance(12), 0.05);
        }
        for (int i = 0; i < 40; i++) {
            run_busy(25);
            for (int c = 0; c < n_clients; c++) {
                clients[c].think = chance(1) < 0.5 ? 0.05 : chance(100);
                if (clients[c].doing == THINKS)
                    clients[c].left = clients[c].think;
            }
        }
        for (int c = 0; c < n_clients; c++)
            clients[c].served = 0, clients[c].think = 0.05;
        run_busy(3000);
        for (int c = 0; c < n_clients; c++)
            assert_true(clients[c].served > 0);
        end();
    }
}

static void pass(double ms)
{
    for (double at = 0; at < ms; at += 1) {
        atomic_fetch_add(&now_ns, LOOK_NS);
        sched_look(sched);
    }
}

/* Turns of everybody, on everything, with starts far apart: whenever nothing is out, somebody's
 * turn comes. */
static void test_no_circle(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (int trial = 0; trial < 200; trial++) {
        seed = (uint64_t)trial + 1;
        begin_with(&all, 1, true);
        for (int u = 0; u < USERS; u++)
            for (int d = 0; d <= GPUS; d++)
                add_on(d, u, 1, 0, 0);
        for (int round = 0; round < 60; round++) {
            /* some work, that gets some ahead */
            const double most = chance(40);
            for (int k = 0; k < 12; k++) {
                struct client *c = &clients[(int)chance(n_clients)];
                sched_watch.begun(c->lane);
                pass(chance(most));
                (void)sched_watch.ended(c->lane, chance(2 * most));
            }
            pass(chance(1) < 0.5 ? 0 : chance(250));
            int waiting = 0;
            for (int k = 0; k < 12; k++) {
                struct client *c = &clients[(int)chance(n_clients)];
                bool now;
                if (c->turn.lane)
                    continue;
                c->turn = (struct sched_turn){.come = come, .user = c};
                assert_int_equal(sched_ask(c->lane, chance(2), &c->turn, &now, &e), ERR_OK);
                waiting++;
            }
            for (int still = 0; waiting > 0; still++) {
                assert_true(still < 5);
                for (int i = 0; i < n_clients; i++)
                    if (sched_held(sched, &clients[i].turn)) {
                        sched_leave(sched, &clients[i].turn);
                        waiting--;
                        still = 0;
                    }
                pass(1);
            }
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gpu_is_shared_by_weight),
        cmocka_unit_test(test_work_of_unlike_sizes),
        cmocka_unit_test(test_a_crowd_on_one_gpu_leaves_no_other_idle),
        cmocka_unit_test(test_who_seldom_asks_does_not_wait),
        cmocka_unit_test(test_no_circle),
        cmocka_unit_test(test_at_random_nobody_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
