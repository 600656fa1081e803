/* Accounts: bytes in use against limits, a session's and, behind it, its owner's. Atomic counters:
 * charges and discharges happen on any thread, including completion callbacks. The month's device
 * time, which begins again at 0, has a short lock. */

#include <assert.h>
#include <pthread.h>

#include "compute/base/clock.h"
#include "compute/base/lock.h"
#include "compute/base/mem.h"
#include "compute/memory/storage.h"

#define MEMORY_LIMIT  "the session's memory_limit"
#define DEVICE_MEMORY "the quota device_memory"

struct account {
    _Atomic uint32_t refs;
    _Atomic int64_t used, limit;
    _Atomic int64_t host, host_limit;  /* of an owner: its bytes in host memory */
    _Atomic int64_t kept[KEEP_LIMITS]; /* of an owner */
    _Atomic uint64_t device_ns;
    struct account *owner; /* NULL: it is an owner itself, or has none */
    pthread_mutex_t lock;  /* of an owner: all below */
    struct account_months months;
    uint64_t told_ns; /* of the present one, the last time */
    account_worked_fn *tell;
    void *teller;
};

struct account *account_new(int64_t limit)
{
    return account_new_of(NULL, limit);
}

struct account *account_new_of(struct account *owner, int64_t limit)
{
    struct account *a = mem_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    atomic_init(&a->refs, 1);
    atomic_init(&a->limit, limit);
    pthread_mutex_init(&a->lock, NULL);
    if (owner)
        account_ref(owner);
    a->owner = owner;
    return a;
}

void account_set_limits(struct account *a, int64_t limit, int64_t host_limit)
{
    atomic_store(&a->limit, limit);
    atomic_store(&a->host_limit, host_limit);
}

void account_ref(struct account *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
}

void account_unref(struct account *a)
{
    if (!a)
        return;
    const uint32_t refs = atomic_fetch_sub(&a->refs, 1);
    assert(refs > 0);
    if (refs > 1)
        return;
    assert(atomic_load(&a->used) == 0 && atomic_load(&a->host) == 0);
    account_unref(a->owner); /* the owner has no owner: one level of recursion */
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

int64_t account_used(const struct account *a)
{
    return atomic_load(&a->used);
}

int64_t account_limit(const struct account *a)
{
    return atomic_load(&a->limit);
}

uint64_t account_device_ns(const struct account *a)
{
    return atomic_load_explicit(&a->device_ns, memory_order_relaxed);
}

/* --- the month --- */

static int32_t month_of(int64_t date_us)
{
    const time_t s = (time_t)(date_us / 1000000);
    struct tm tm;
    gmtime_r(&s, &tm);
    return (tm.tm_year + 1900) * 100 + tm.tm_mon + 1;
}

/* Another month, as the date says, begins at 0, unless it is the last other one. */
static struct account_month *month_now(struct account *owner)
{
    lock_held(&owner->lock);
    struct account_months *m = &owner->months;
    const int32_t now = month_of(clock_date_us());
    if (m->now.month != now) {
        const struct account_month last = m->now;
        m->now = m->other.month == now ? m->other : (struct account_month){.month = now};
        m->other = last;
        owner->told_ns = 0;
    }
    return &m->now;
}

static void tell(struct account *owner)
{
    lock_held(&owner->lock);
    owner->told_ns = owner->months.now.device_ns;
    if (owner->tell)
        owner->tell(owner->teller, &owner->months);
}

void account_observe(struct account *owner, account_worked_fn *worked, void *user)
{
    pthread_mutex_lock(&owner->lock);
    owner->tell = worked;
    owner->teller = user;
    pthread_mutex_unlock(&owner->lock);
}

void account_month(struct account *owner, struct account_month *ret)
{
    pthread_mutex_lock(&owner->lock);
    *ret = *month_now(owner);
    pthread_mutex_unlock(&owner->lock);
}

void account_months(struct account *owner, struct account_months *ret)
{
    pthread_mutex_lock(&owner->lock);
    (void)month_now(owner);
    *ret = owner->months;
    pthread_mutex_unlock(&owner->lock);
}

static void restore_month(struct account_months *of, const struct account_month *m)
{
    struct account_month *to = m->month == of->now.month ? &of->now : &of->other;
    if (!m->month)
        return;
    if (!to->month)
        to->month = m->month;
    if (to->month == m->month)
        to->device_ns += m->device_ns;
}

void account_restore_months(struct account *owner, const struct account_months *m)
{
    pthread_mutex_lock(&owner->lock);
    (void)month_now(owner);
    restore_month(&owner->months, &m->now);
    restore_month(&owner->months, &m->other);
    tell(owner);
    pthread_mutex_unlock(&owner->lock);
}

void account_tell(struct account *owner)
{
    pthread_mutex_lock(&owner->lock);
    if (month_now(owner)->device_ns > owner->told_ns)
        tell(owner);
    pthread_mutex_unlock(&owner->lock);
}

static void add_to_month(struct account *owner, uint64_t ns)
{
    pthread_mutex_lock(&owner->lock);
    struct account_month *m = month_now(owner);
    m->device_ns += ns;
    if (m->device_ns - owner->told_ns >= ACCOUNT_TELL_NS)
        tell(owner);
    pthread_mutex_unlock(&owner->lock);
}

void account_worked(struct account *a, double device_ms)
{
    const uint64_t ns = device_ms > 0 ? (uint64_t)(device_ms * 1e6) : 0;
    for (; a && ns; a = a->owner) {
        atomic_fetch_add_explicit(&a->device_ns, ns, memory_order_relaxed);
        if (!a->owner)
            add_to_month(a, ns);
    }
}

/* --- bytes --- */

int64_t account_host_used(const struct account *a)
{
    return atomic_load(&a->host);
}

/* Adds to a count unless the sum would exceed `most`. */
static enum err_code book(_Atomic int64_t *count, int64_t most, int64_t size, const char *what,
                          struct err *e)
{
    int64_t limit = most ? most : INT64_MAX, used = atomic_load(count);
    do {
        if (size > limit - used)
            return err_set(e, ERR_QUOTA,
                           "%lld bytes more would exceed %s of %lld bytes (%lld in use)",
                           (long long)size, what, (long long)limit, (long long)used);
    } while (!atomic_compare_exchange_weak(count, &used, used + size));
    return ERR_OK;
}

enum err_code account_charge(struct account *a, int64_t size, struct err *e)
{
    enum err_code code = book(&a->used, a->limit, size, MEMORY_LIMIT, e);
    if (code != ERR_OK || !a->owner)
        return code;
    code = book(&a->owner->used, a->owner->limit, size, DEVICE_MEMORY, e);
    if (code != ERR_OK)
        atomic_fetch_sub(&a->used, size);
    return code;
}

void account_charge_anyway(struct account *a, int64_t size)
{
    for (; a; a = a->owner)
        atomic_fetch_add(&a->used, size);
}

enum err_code account_check(const struct account *a, struct err *e)
{
    for (; a; a = a->owner) {
        int64_t limit = atomic_load(&a->limit), used = atomic_load(&a->used);
        if (limit && used > limit)
            return err_set(e, ERR_QUOTA,
                           "%lld bytes are in use, more than %s of %lld bytes: unfinished "
                           "downloads of other users' arrays still hold their earlier contents",
                           (long long)used, a->owner ? MEMORY_LIMIT : DEVICE_MEMORY,
                           (long long)limit);
    }
    return ERR_OK;
}

/* Subtracts what book added; never more. */
static void unbook(_Atomic int64_t *count, int64_t size)
{
    const int64_t used = atomic_fetch_sub(count, size);
    assert(size >= 0 && used >= size);
    (void)used;
}

void account_discharge(struct account *a, int64_t size)
{
    for (; a; a = a->owner)
        unbook(&a->used, size);
}

enum err_code account_charge_host(struct account *owner, int64_t size, struct err *e)
{
    return book(&owner->host, owner->host_limit, size, "the quota host_memory", e);
}

void account_discharge_host(struct account *owner, int64_t size)
{
    unbook(&owner->host, size);
}

struct account *account_owner(const struct account *a)
{
    return a->owner;
}

struct account *account_principal(struct account *a)
{
    return a->owner ? a->owner : a;
}

void account_keep(struct account *owner, enum keep_limit which, int64_t n)
{
    const int64_t had = atomic_fetch_add(&owner->kept[which], n);
    assert(had + n >= 0);
    (void)had;
}

int64_t account_kept(const struct account *a, enum keep_limit which)
{
    return atomic_load(&a->kept[which]);
}
