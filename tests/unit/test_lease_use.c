/* Who waits for whom before an export: those who had looked, and nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "compute/base/mem.h"
#include "server/store/lease_use.h"

struct waiting {
    struct lease_settling settling; /* first */
    _Atomic int told;
};

static void told(struct lease_settling *s)
{
    atomic_fetch_add(&((struct waiting *)s)->told, 1);
}

static void settle(struct lease_uses *t, struct waiting *w)
{
    *w = (struct waiting){.settling = {.done = told}};
    lease_uses_settle(t, &w->settling);
}

static void those_before_are_waited_for(void **state)
{
    struct lease_uses *t = lease_uses_new();
    struct waiting first, second, third;
    (void)state;
    settle(t, &first);
    assert_int_equal(first.told, 1); /* nobody is there */
    struct lease_use a = lease_use_open(t), b = lease_use_open(t);
    settle(t, &first);
    struct lease_use later = lease_use_open(t);
    lease_use_close(&a);
    lease_use_close(&a);
    assert_int_equal(first.told, 0);
    settle(t, &second); /* waits for `later` too, and its turn comes after the first's */
    lease_use_close(&b);
    assert_int_equal(first.told, 1);
    assert_int_equal(second.told, 0);
    struct lease_use last = lease_use_open(t);
    lease_use_close(&later);
    assert_int_equal(second.told, 1); /* not for `last` */
    settle(t, &second);
    settle(t, &third);
    assert_int_equal(second.told + third.told, 0);
    lease_use_close(&last);
    assert_int_equal(second.told, 1);
    assert_int_equal(third.told, 1);
    lease_uses_free(t);
}

static void without_a_table(void **state)
{
    (void)state;
    struct lease_use u = lease_use_open(NULL);
    lease_use_close(&u);
    lease_uses_free(NULL);
}

static void no_memory(void **state)
{
    (void)state;
    mem_fail_after(1, false);
    assert_null(lease_uses_new());
    mem_fail_after(0, false);
}

/* A lease, and work that may only begin without one. */
static struct lease_uses *uses;
static _Atomic bool leased, over;
static _Atomic int at_work;
static _Atomic int wrong;

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void *works(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        struct lease_use u = lease_use_open(uses);
        if (!atomic_load(&leased)) {
            atomic_fetch_add(&at_work, 1);
            rest();
            atomic_fetch_sub(&at_work, 1);
        }
        lease_use_close(&u);
    }
    return NULL;
}

static void *leases(void *arg)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    (void)arg;
    for (int i = 0; i < 200; i++) {
        struct waiting w;
        pthread_mutex_lock(&one); /* whose lease it is */
        atomic_store(&leased, true);
        settle(uses, &w);
        while (!atomic_load(&w.told))
            rest();
        for (int k = 0; k < 3; k++) {
            if (atomic_load(&at_work))
                atomic_fetch_add(&wrong, 1);
            rest();
        }
        atomic_store(&leased, false);
        pthread_mutex_unlock(&one);
        settle(uses, &w); /* beside another's */
        while (!atomic_load(&w.told))
            rest();
        assert_int_equal(w.told, 1);
    }
    return NULL;
}

static void many_at_once(void **state)
{
    (void)state;
    pthread_t t[5];
    uses = lease_uses_new();
    for (int i = 0; i < 5; i++)
        assert_int_equal(pthread_create(&t[i], NULL, i < 3 ? works : leases, NULL), 0);
    for (int i = 4; i >= 0; i--) {
        if (i == 2)
            atomic_store(&over, true);
        pthread_join(t[i], NULL);
    }
    assert_int_equal(wrong, 0);
    lease_uses_free(uses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_before_are_waited_for),
        cmocka_unit_test(without_a_table),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(many_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
