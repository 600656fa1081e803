/* compute/memory/account.c: device time, a month's above all. The date is the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "compute/memory/storage.h"

#define LAST_S 1793491199 /* 2026-10-31T23:59:59Z */

static time_t date;

/* libc's, for the whole program. */
int clock_gettime(clockid_t which, struct timespec *ret)
{
    if (which != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, which, ret);
    *ret = (struct timespec){.tv_sec = date};
    return 0;
}

struct told {
    int n;
    struct account_month last;
    struct account_month other;
};

static void told_of(void *user, const struct account_months *m)
{
    struct told *t = user;
    t->n++;
    t->last = m->now;
    t->other = m->other;
}

static struct account_month month(struct account *a)
{
    struct account_month m;
    account_month(a, &m);
    return m;
}

/* What a session's work takes counts for its owner; another month begins at 0, and the time since
 * the start goes on. */
static void a_month_begins_at_0(void **state)
{
    (void)state;
    struct account *owner = account_new(0), *of = account_new_of(owner, 0);
    date = LAST_S;
    account_worked(of, 2.5);
    account_worked(of, 0);
    assert_true(month(owner).month == 202610 && month(owner).device_ns == 2500000);
    date++;
    assert_true(month(owner).month == 202611 && month(owner).device_ns == 0);
    account_worked(of, 1);
    assert_true(month(owner).device_ns == 1000000 && account_device_ns(owner) == 3500000);
    account_unref(of);
    account_unref(owner);
}

/* An earlier process's time is added if it is the same month's, and told on. */
static void a_month_goes_on(void **state)
{
    (void)state;
    struct account *a = account_new(0);
    struct told t = {0};
    date = LAST_S;
    account_observe(a, told_of, &t);
    account_restore_months(a, &(struct account_months){{202610, 5000}, {0}});
    assert_true(month(a).device_ns == 5000 && t.n == 1 && t.last.device_ns == 5000);
    account_worked(a, 1);
    assert_true(t.n == 1);
    account_tell(a);
    account_tell(a);
    assert_true(t.n == 2 && t.last.device_ns == 1005000);
    for (int i = 0; i < 1000; i++)
        account_worked(a, 1);
    assert_true(t.n == 12 && t.last.device_ns == 1001005000);
    date++;
    account_worked(a, 100);
    assert_true(t.n == 13 && t.last.month == 202611 && t.last.device_ns == 100000000);
    account_unref(a);
}

/* A clock that is set into another month and back, and further than to one other. */
static void a_clock_goes_wrong(void **state)
{
    (void)state;
    struct account *a = account_new(0);
    struct told t = {0};
    account_observe(a, told_of, &t);
    date = LAST_S;
    account_worked(a, 150);
    date = 0;
    assert_true(month(a).month == 197001 && month(a).device_ns == 0);
    account_worked(a, 200);
    assert_true(t.last.month == 197001 && t.other.month == 202610 &&
                t.other.device_ns == 150000000);
    date = LAST_S;
    assert_true(month(a).device_ns == 150000000);
    account_worked(a, 1);
    assert_true(t.last.month == 202610 && t.last.device_ns == 151000000);
    assert_true(t.other.month == 197001 && t.other.device_ns == 200000000);
    for (int i = 0; i < 3; i++) {
        date = i * 86400 * 31;
        assert_true(month(a).month == 197001 + i);
    }
    date = LAST_S;
    assert_true(month(a).device_ns == 0);
    account_unref(a);
}

/* So is one that is wrong when the process begins, and set right by the network. */
static void a_clock_is_wrong_at_the_start(void **state)
{
    (void)state;
    struct account *a = account_new(0);
    struct account_months m;
    date = 0;
    account_restore_months(a, &(struct account_months){{202610, 5000}, {197001, 7000}});
    assert_true(month(a).device_ns == 7000);
    account_months(a, &m);
    assert_true(m.other.month == 202610 && m.other.device_ns == 5000);
    date = LAST_S;
    assert_true(month(a).device_ns == 5000);
    account_restore_months(a, &(struct account_months){{202609, 9000}, {202610, 1}});
    assert_true(month(a).device_ns == 5001);
    account_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_month_begins_at_0),
        cmocka_unit_test(a_month_goes_on),
        cmocka_unit_test(a_clock_goes_wrong),
        cmocka_unit_test(a_clock_is_wrong_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
