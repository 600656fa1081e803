/* Devices and their clients for the tests of the scheduler, simulated on a clock of the test's own:
 * streams side by side, each an equal part of the device, a stream's work in order; work on the
 * mesh goes on where it is slowest. One of them at a time: begin(), add() and run(), end(). One
 * thread. */
#ifndef ARRAYD_TESTS_SCHEDULER_SIM_H
#define ARRAYD_TESTS_SCHEDULER_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/work/scheduler.h"

#define STEP_NS  20000 /* of the clock */
#define LOOK_NS  1000000
#define MOST     80 /* clients */
#define WINDOW   10.0
#define MAX_WAIT 100
#define USERS    6
#define GPUS     3 /* of a mesh, the device behind them */

static _Atomic uint64_t now_ns;

static uint64_t test_clock(void)
{
    return atomic_load(&now_ns);
}

enum doing { THINKS, WAITS, WORKS };

/* Asks for a turn, has work of `cost` ms done, thinks for `think` ms, and asks again. */
struct client {
    struct sched_lane *lane;
    int user, device;
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
static _Atomic uint32_t weights[USERS];
static int n_devices;
static struct client clients[MOST];
static int n_clients;
static double charged[USERS], used[USERS]; /* ms, by user: as it was measured, and as it was */
static double on[GPUS + 1][USERS];         /* of each device, whether they could use it or not */

static void come(void *user)
{
    struct client *c = user;
    atomic_store(&c->come, true);
}

static void begin_with(const struct sched_mesh *mesh, double window, bool side_by_side)
{
    struct err e = ERR_INIT;
    n_devices = mesh ? GPUS + 1 : 1;
    const struct sched_config config = {.n_devices = n_devices,
                                        .mesh = mesh ? *mesh : (struct sched_mesh){0},
                                        .side_by_side = side_by_side,
                                        .window = window,
                                        .max_waiting = MAX_WAIT,
                                        .max_waiting_all = MAX_WAIT + 20,
                                        .clock_ns = test_clock};
    atomic_store(&now_ns, 1000000000u);
    assert_int_equal(sched_new(&config, &sched, &e), ERR_OK);
    for (int u = 0; u < USERS; u++)
        atomic_store(&weights[u], 1);
    memset(clients, 0, sizeof clients);
    memset(charged, 0, sizeof charged);
    memset(on, 0, sizeof on);
    n_clients = 0;
}

static void lane_of(struct client *c, int user)
{
    struct err e = ERR_INIT;
    c->user = user;
    assert_int_equal(sched_lane_new(sched, &weights[user], c->device, &c->lane, &e), ERR_OK);
}

/* n clients of one session. */
static struct client *add_on(int device, int user, int n, double cost, double think)
{
    struct client *first = &clients[n_clients];
    for (int i = 0; i < n; i++) {
        struct client *c = &clients[n_clients++];
        c->device = device;
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

/* Whether the client's work is on that device, which is no mesh. */
static bool is_on(const struct client *c, int device)
{
    return c->device == device || (c->device == GPUS && device < GPUS);
}

/* By how many streams' work the client's is slowed down. */
static int crowd(const struct client *c, const int *n)
{
    int most = 0;
    for (int d = 0; d < n_devices; d++)
        most = is_on(c, d) && n[d] > most ? n[d] : most;
    return most;
}

static void run(double ms)
{
    uint64_t end_ns = test_clock() + (uint64_t)(ms * 1e6);
    while (test_clock() < end_ns) {
        bool working[MOST];
        int n[GPUS + 1] = {0};
        for (int i = 0; i < n_clients; i++) {
            struct client *c = &clients[i];
            if (c->doing == WAITS && atomic_load(&c->come))
                start_work(c);
            working[i] = c->doing == WORKS && is_first_of_lane(c);
            if (working[i] && c->to_wait > 0) {
                c->to_wait -= STEP_NS * 1e-6;
                working[i] = false;
            }
            for (int d = 0; d < n_devices; d++)
                n[d] += working[i] && is_on(c, d);
            if (working[i] && !c->began)
                c->began = test_clock();
        }
        atomic_fetch_add(&now_ns, STEP_NS);
        if (test_clock() % LOOK_NS < STEP_NS)
            sched_look(sched);
        for (int i = 0; i < n_clients; i++) {
            struct client *c = &clients[i];
            const double step = working[i] ? STEP_NS * 1e-6 / crowd(c, n) : 0;
            used[c->user] += step;
            for (int d = 0; d < n_devices; d++)
                on[d][c->user] += working[i] && is_on(c, d) ? STEP_NS * 1e-6 / n[d] : 0;
            if (working[i] && (c->left -= step) <= 0)
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
    memset(on, 0, sizeof on);
}

static void assert_near(double got, double want, double relative)
{
    if (got < want * (1 - relative) || got > want * (1 + relative))
        fail_msg("%g, wanted %g within %g %%", got, want, relative * 100);
}

#endif
