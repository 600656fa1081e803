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
};

static void told_of(void *user, const struct account_month *m)
{
    struct told *t = user;
    t->n++;
    t->last = *m;
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
    account_restore_month(a, &(struct account_month){202609, 5000});
    assert_true(month(a).device_ns == 0 && t.n == 0);
    account_restore_month(a, &(struct account_month){202610, 5000});
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_month_begins_at_0),
        cmocka_unit_test(a_month_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
