/* Workers: steps under the owner's mutex, wakes, waits, the end, and threads that cannot be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "compute/base/clock.h"
#include "compute/base/worker.h"

static _Atomic int most_threads = INT32_MAX; /* that can be had from now on */

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return atomic_fetch_sub(&most_threads, 1) > 0 ? real(t, attr, run, arg) : EAGAIN;
}

/* A queue of numbers, which the steps add up. */
struct owner {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct worker worker;
    int queued, sum, inside, most_inside, steps, stops;
    double rests; /* what a step with nothing to do returns, */
    int lingers;  /* so many times after the end, too */
    bool busy;    /* a step does not return */
    char name[16];
};

static double step(void *user)
{
    struct owner *o = user;
    o->steps++;
    o->lingers -= o->lingers > 0 && worker_is_stopped(&o->worker);
    pthread_getname_np(pthread_self(), o->name, sizeof o->name);
    pthread_cond_broadcast(&o->changed);
    while (o->busy)
        pthread_cond_wait(&o->changed, &o->lock);
    if (!o->queued)
        return o->worker.finishes && worker_is_stopped(&o->worker) && !o->lingers ? WORKER_RESTS
                                                                                  : o->rests;
    o->queued--;
    o->inside++;
    if (o->inside > o->most_inside)
        o->most_inside = o->inside;
    pthread_cond_broadcast(&o->changed);
    const struct timespec until = clock_after(0.01);
    pthread_cond_timedwait(&o->changed, &o->lock, &until); /* others may work meanwhile */
    o->inside--;
    o->sum++;
    return WORKER_AGAIN;
}

static void open_owner(struct owner *o, int n)
{
    memset(o, 0, sizeof *o);
    pthread_mutex_init(&o->lock, NULL);
    clock_cond_init(&o->changed);
    o->rests = WORKER_RESTS;
    o->worker =
        (struct worker){.name = "a-worker", .lock = &o->lock, .step = step, .user = o, .n = n};
    worker_init(&o->worker);
    atomic_store(&most_threads, INT32_MAX);
}

static void close_owner(struct owner *o)
{
    worker_stop(&o->worker);
    worker_destroy(&o->worker);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
}

static bool start(struct owner *o)
{
    return worker_start(&o->worker);
}

static void queue(struct owner *o, int n)
{
    pthread_mutex_lock(&o->lock);
    o->queued += n;
    for (int i = 0; i < n; i++)
        worker_wake(&o->worker);
    pthread_mutex_unlock(&o->lock);
}

/* Until the steps have done so much, or 10 s have gone. */
static void wait_for(struct owner *o, const int *what, int least)
{
    const struct timespec until = clock_after(10);
    pthread_mutex_lock(&o->lock);
    while (*what < least && pthread_cond_timedwait(&o->changed, &o->lock, &until) == 0)
        ;
    assert_true(*what >= least);
    pthread_mutex_unlock(&o->lock);
}

static void test_wakes_and_drains(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o, 0);
    assert_true(start(&o));
    assert_true(start(&o)); /* it runs already */
    assert_int_equal(o.worker.running, 1);
    wait_for(&o, &o.steps, 1);
    assert_string_equal(o.name, "a-worker");
    queue(&o, 1);
    wait_for(&o, &o.sum, 1);
    usleep(20000); /* it rests: nobody wakes it */
    pthread_mutex_lock(&o.lock);
    assert_true(o.steps <= 4);
    pthread_mutex_unlock(&o.lock);
    queue(&o, 3);
    worker_stop(&o.worker); /* what is there is done before */
    assert_int_equal(o.sum, 4);
    worker_stop(&o.worker);
    assert_false(start(&o)); /* for good */
    pthread_mutex_lock(&o.lock);
    assert_true(worker_is_stopped(&o.worker));
    pthread_mutex_unlock(&o.lock);
    close_owner(&o);
}

static void test_looks_now_and_then(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o, 0);
    o.rests = 0.005;
    assert_true(start(&o));
    wait_for(&o, &o.steps, 4); /* although nobody wakes it */
    pthread_mutex_lock(&o.lock);
    o.rests = 3600;
    pthread_mutex_unlock(&o.lock);
    const uint64_t began = clock_ns();
    close_owner(&o); /* wakes it */
    assert_true(clock_ns() - began < 5000000000u);
}

/* Where the owner says so, the end is the step's to say: it may have to wait for something. */
static void test_lingers(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o, 0);
    o.rests = 0.001;
    o.worker.finishes = true;
    o.lingers = 5;
    assert_true(start(&o));
    worker_stop(&o.worker);
    assert_int_equal(o.lingers, 0);
    assert_true(o.steps >= 5);
    close_owner(&o);
}

static void *stop(void *arg)
{
    struct owner *o = arg;
    worker_stop(&o->worker);
    pthread_mutex_lock(&o->lock);
    o->stops++;
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static void test_every_stop_waits_for_the_end(void **state)
{
    (void)state;
    struct owner o;
    pthread_t stoppers[2];
    open_owner(&o, 0);
    o.busy = true;
    assert_true(start(&o));
    wait_for(&o, &o.steps, 1);
    for (int i = 0; i < 2; i++) {
        assert_true(thread_start(&stoppers[i], "a-stopper", stop, &o));
        usleep(20000); /* the first is inside worker_stop when the second comes */
    }
    pthread_mutex_lock(&o.lock);
    assert_int_equal(o.stops, 0); /* the thread is still inside its step */
    o.busy = false;
    pthread_cond_broadcast(&o.changed);
    pthread_mutex_unlock(&o.lock);
    for (int i = 0; i < 2; i++)
        pthread_join(stoppers[i], NULL);
    assert_int_equal(o.stops, 2);
    close_owner(&o);
}

static void test_several_at_once(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o, 3);
    assert_true(start(&o));
    queue(&o, 60);
    wait_for(&o, &o.sum, 60);
    assert_true(o.most_inside > 1 && o.most_inside <= 3);
    close_owner(&o);
}

static void test_without_threads(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o, 0);
    atomic_store(&most_threads, 0);
    assert_false(start(&o));
    assert_int_equal(o.worker.running, 0);
    atomic_store(&most_threads, 1);
    assert_true(start(&o)); /* the next try counts */
    close_owner(&o);

    open_owner(&o, 3);
    atomic_store(&most_threads, 2);
    assert_false(start(&o));
    assert_int_equal(o.worker.running, 2);
    queue(&o, 5); /* those that are there work */
    wait_for(&o, &o.sum, 5);
    close_owner(&o);
    open_owner(&o, 0); /* never started */
    close_owner(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakes_and_drains),
        cmocka_unit_test(test_looks_now_and_then),
        cmocka_unit_test(test_lingers),
        cmocka_unit_test(test_every_stop_waits_for_the_end),
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_without_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
